"""Commands of `haptera sessions` that are made from operations: flags, help and what is called."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, get_type_hints

import click
import msgspec

from haptera import Agent, AgentSession, AgentSessions
from haptera.cli.choices import find_session_by_words, with_agent
from haptera.cli.session_texts import shown_title
from haptera.cli.terminal import Output, confirm, print_json
from haptera.model.operations.operation import (
    CommandLine,
    Facts,
    Flag,
    Operation,
    Otherwise,
    SessionCommand,
    operations_of,
)
from haptera.model.operations.sessions import SessionsOperation
from haptera.options.declarations import Declared
from haptera.options.operations import ask, given_fields, meant

_OTHERWISE, _SHOWN_AS = "otherwise", "shown_as"


def session_commands(show: Mapping[Any, Callable[[Any], None]]) -> Iterator[click.Command]:
    """Yield the commands of operations; `show` has what prints that which they return, by type."""
    for kind in operations_of():
        if (line := kind.facts.command) is not None:
            face = AgentSession if issubclass(kind, SessionCommand) else AgentSessions
            returned = get_type_hints(getattr(face, kind.facts.face))["return"]
            yield _command(kind, line, None if returned is type(None) else show[returned])


def _command(
    kind: type[Operation], line: CommandLine, show: Callable[[Any], None] | None
) -> click.Command:

    @click.pass_context
    def run(context: click.Context, /, **flags: object) -> None:
        fields: dict[str, Any] = flags
        reference = fields.pop("reference", None)
        if line.words:
            fields[line.words] = " ".join(fields[line.words]) or None
        is_json = fields.pop(_SHOWN_AS, None) == "json"
        if line.question:
            reference = _confirmed(context, line, reference, yes=fields.pop("yes"))
        asked, values = _asked(kind, line, fields)

        async def work(agent: Agent) -> object:
            if reference is None:
                return await ask(agent.sessions, asked, values)
            session_id = await find_session_by_words(agent, reference, by_text=not line.is_exact)
            if not issubclass(asked, SessionCommand):
                return await ask(agent.sessions, asked, {**values, "reference": session_id})
            async with await agent.sessions.switch_to(session_id) as session:
                return await ask(session, asked, values)

        answer = with_agent(context, work)
        if is_json:
            print_json(Output(), answer)
        elif show is None:
            Output().line(line.done.format(**values, reference=reference))
        else:
            show(answer)

    return click.Command(
        line.name, callback=run, params=list(_parameters(kind, line)), help=line.help
    )


def _confirmed(context: click.Context, line: CommandLine, reference: str, *, yes: bool) -> str:
    """Return the id of a session, once a person has confirmed what is done with it."""

    async def find(agent: Agent) -> tuple[str, str]:
        session_id = await find_session_by_words(agent, reference, by_text=not line.is_exact)
        return session_id, await shown_title(agent, await agent.sessions.get(session_id))

    session_id, title = with_agent(context, find)
    # Between two agents: no store is held open while the user is asked.
    confirm(line.question.format(title=title, id=session_id), yes=yes)
    return session_id


def _parameters(kind: type[Operation], line: CommandLine) -> Iterator[click.Parameter]:
    facts, declarations = kind.facts, given_fields(kind)
    if issubclass(kind, SessionCommand | SessionsOperation):
        metavar = "ID|NAME" if line.is_exact else "ID|NAME|TEXT"
        yield click.Argument(["reference"], metavar=metavar)
    yield from _field_parameters(facts, line, declarations)
    if facts.otherwise is not None and not facts.otherwise.field:
        yield _otherwise(facts.otherwise)
    if line.lists:
        forms = click.Choice(("table", "json"))
        yield click.Option(["--format", _SHOWN_AS], type=forms, default="table", show_default=True)
    if line.question:
        yield click.Option(["-y", "--yes"], is_flag=True, help="Do not ask.")


def _field_parameters(
    facts: Facts, line: CommandLine, declarations: Mapping[str, Declared]
) -> Iterator[click.Parameter]:
    for name in sorted(declarations, key=[*line.flags, *declarations].index):
        declared = declarations[name]
        if name == line.words:
            yield click.Argument([name], nargs=-1, required=False)
        elif name == facts.rest:
            yield click.Argument([name], nargs=-1, required=True)
        elif (flag := line.flags.get(name)) is not None:
            yield _option(name, flag, declared)
            if facts.otherwise is not None and name == facts.otherwise.field:
                yield _otherwise(facts.otherwise)
        elif name != "reference" and declared.default is msgspec.UNSET:
            yield click.Argument([name], metavar=line.metavar)


def _option(name: str, flag: Flag, declared: Declared) -> click.Option:
    is_switch, is_number = declared.kind is bool, flag.least is not None
    return click.Option(
        [flag.name, name],
        is_flag=is_switch,
        type=_type_of(declared, flag),
        default=declared.default if is_switch or is_number else None,
        show_default=is_number,
        metavar=flag.metavar,
        help=flag.help,
    )


class _JsonOrText(click.ParamType[Any]):
    """JSON; what is none is a text."""

    name = "json"

    def convert(self, value: object, param: object, ctx: object) -> object:
        """Read the value."""
        del param, ctx
        try:
            return msgspec.json.decode(str(value))
        except msgspec.DecodeError:
            return value


def _type_of(declared: Declared, flag: Flag) -> click.ParamType[Any] | None:
    if flag.least is not None:
        return click.IntRange(min=flag.least)
    return _JsonOrText() if declared.kind is Any else None


def _otherwise(otherwise: Otherwise) -> click.Option:
    return click.Option(
        [otherwise.flag, _OTHERWISE], is_flag=True, default=False, help=otherwise.help
    )


def _asked(
    kind: type[Operation], line: CommandLine, fields: dict[str, Any]
) -> tuple[type[Operation], dict[str, Any]]:
    """Return which operation is meant, and what it is told.

    Raises:
        UsageError: when both are meant, or none, or a flag is for the other one.

    """
    otherwise = kind.facts.otherwise
    if otherwise is None:
        return kind, fields
    if not otherwise.field:
        return (otherwise.operation if fields.pop(_OTHERWISE) else kind), fields
    flag = line.flags[otherwise.field]
    if (fields[otherwise.field] is None) != fields.pop(_OTHERWISE):
        raise click.UsageError(f"give either {flag.name} {flag.metavar} or {otherwise.flag}")
    asked, values, others = meant(kind, fields)
    if others:
        named = " and ".join(line.flags[name].name for name in others)
        raise click.UsageError(f"{named} need {flag.name}")
    return asked, values
