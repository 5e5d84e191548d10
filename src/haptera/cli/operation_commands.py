"""Commands of `haptera sessions` that are made from operations: flags, help and what is called."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, get_type_hints

import click

from haptera import Agent, AgentSession, AgentSessions
from haptera.cli.choices import find_session_by_words, with_agent
from haptera.cli.terminal import Output, print_json
from haptera.model.operations.operation import CommandLine, Operation, SessionCommand, operations_of
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
        given: dict[str, Any] = flags
        reference = given.pop("reference")
        if line.words:
            given[line.words] = " ".join(given[line.words]) or None
        is_json = given.pop(_SHOWN_AS, None) == "json"
        asked, told = _asked(kind, line, given)

        async def work(agent: Agent) -> object:
            session_id = await find_session_by_words(agent, reference, by_text=not line.is_exact)
            if not issubclass(asked, SessionCommand):
                return await ask(agent.sessions, asked, {**told, "reference": session_id})
            async with await agent.sessions.switch_to(session_id) as session:
                return await ask(session, asked, told)

        found = with_agent(context, work)
        if is_json:
            print_json(Output(), found)
        elif show is None:
            Output().line(line.done.format(**told))
        else:
            show(found)

    metavar = "ID|NAME" if line.is_exact else "ID|NAME|TEXT"
    parameters = [click.Argument(["reference"], metavar=metavar), *_parameters(kind, line)]
    if line.lists:
        forms = click.Choice(("table", "json"))
        parameters.append(click.Option(["--format", _SHOWN_AS], type=forms, default="table"))
    return click.Command(line.name, callback=run, params=parameters, help=line.help)


def _parameters(kind: type[Operation], line: CommandLine) -> Iterator[click.Parameter]:
    otherwise = kind.facts.otherwise
    for name, declared in given_fields(kind).items():
        if name == line.words:
            yield click.Argument([name], nargs=-1, required=False)
        elif (flag := line.flags.get(name)) is not None:
            is_switch = declared.kind is bool
            yield click.Option(
                [flag.name, name],
                is_flag=is_switch,
                default=False if is_switch else None,
                metavar=flag.metavar,
                help=flag.help,
            )
        elif name != "reference":
            yield click.Argument([name], metavar=line.metavar)
        if otherwise is not None and name == otherwise.field:
            yield click.Option(
                [otherwise.flag, _OTHERWISE], is_flag=True, default=False, help=otherwise.help
            )


def _asked(
    kind: type[Operation], line: CommandLine, given: dict[str, Any]
) -> tuple[type[Operation], dict[str, Any]]:
    """Return which operation is meant, and what it is told.

    Raises:
        UsageError: when both are meant, or none, or a flag is for the other one.

    """
    otherwise = kind.facts.otherwise
    if otherwise is None:
        return kind, given
    flag = line.flags[otherwise.field]
    if (given[otherwise.field] is None) != given.pop(_OTHERWISE):
        raise click.UsageError(f"give either {flag.name} {flag.metavar} or {otherwise.flag}")
    asked, told, others = meant(kind, given)
    if others:
        named = " and ".join(line.flags[name].name for name in others)
        raise click.UsageError(f"{named} need {flag.name}")
    return asked, told
