"""The flags that `haptera`, `haptera run` and `haptera chat` share, and the agent they describe.

`Choices` is what was said on the command line, checked by click. `open_agent` makes the agent,
`open_chosen_session` finds or makes the session that the query runs in, and `with_agent` lets a
subcommand use an agent.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

import click
from msgspec.structs import replace

from haptera import Agent, AgentSession, Deny
from haptera.access.command_flags import MODEL_FLAG, STORE_FLAG, CommandT, flag
from haptera.access.configured import configured_store
from haptera.agent.query_options import QueryOptions
from haptera.model.agent_defaults import Permissions
from haptera.model.approvals import ApprovalRequest, Decision
from haptera.model.errors import ErrorCode, SessionError
from haptera.model.ids import parse_session_id
from haptera.model.settings import Limits, Settings
from haptera.options.declarations import allowed_words, declared_fields, options_of

ValueT = TypeVar("ValueT")

_SETTINGS = declared_fields(Settings)
_LIMITS = declared_fields(Limits)
_RULES = declared_fields(Permissions)
EFFORTS = allowed_words(_SETTINGS["thinking"].kind)
MODES = allowed_words(_SETTINGS["permission_mode"].kind)
OUTPUT_FORMATS = ("text", "json", "stream-json")


@dataclass(frozen=True, kw_only=True)
class Choices:
    """What was chosen on the command line; None and empty mean: as configured."""

    model: str | None = None
    effort: str | None = None
    system: str | None = None
    output_format: str = "text"
    include_partial_messages: bool = False
    output_schema: str | None = None
    continue_last: bool = False
    resume: str | None = None
    """An id, a name or words to look for; empty: choose from a list."""
    fork: bool = False
    session_id: str | None = None
    native_session: str | None = None
    name: str | None = None
    no_session: bool = False
    allow_tool: tuple[str, ...] = ()
    deny_tool: tuple[str, ...] = ()
    permission_mode: str | None = None
    max_turns: int | None = None
    max_budget_usd: float | None = None
    timeout: float | None = None
    store: str | None = None
    debug: bool = False

    def check(self) -> None:
        """Refuse flags that contradict each other.

        Raises:
            click.UsageError: naming the flags.

        """
        if self.continue_last and self.resume is not None:
            raise click.UsageError("give either -c or -r: both choose a session")
        if self.fork and not (self.continue_last or self.resume is not None or self.session_id):
            raise click.UsageError("--fork copies a session: choose it with -c or -r")
        if self.native_session and (self.continue_last or self.resume is not None):
            raise click.UsageError("--native-session begins a session: -c and -r choose one")
        if self.no_session and (self.continue_last or self.resume is not None):
            raise click.UsageError("--no-session stores nothing, so -c and -r find nothing in it")
        if self.session_id is not None and parse_session_id(self.session_id) is None:
            raise click.UsageError(
                f"--session-id is a UUID in lower case, not {self.session_id!r}; -n gives a name"
            )

    @classmethod
    def taken_from(cls, flags: dict[str, Any]) -> "Choices":
        """Take the shared flags out of what click parsed."""
        return cls(
            **{each.name: flags.pop(each.name) for each in fields(cls) if each.name in flags}
        )

    def over(self, other: "Choices") -> "Choices":
        """Return these choices, and for what they leave open those of another."""
        # A flag that is given its default cannot be told from one that is not given.
        plain = Choices()
        return Choices(
            **{
                each.name: getattr(self if is_chosen else other, each.name)
                for each in fields(self)
                for is_chosen in (getattr(self, each.name) != getattr(plain, each.name),)
            }
        )


_FLAGS = (
    MODEL_FLAG,
    flag(
        "--effort",
        declared=_SETTINGS["thinking"].brief(),
        otherwise="the model's own",
        is_configured=True,
    ),
    flag(
        "--system",
        declared=replace(_SETTINGS["system_prompts"], kind=str, default=None).brief(),
        metavar="TEXT",
        is_configured=True,
    ),
    click.option(
        "--output-format",
        type=click.Choice(OUTPUT_FORMATS),
        default="text",
        show_default=True,
        help="`text`: the answer. `json`: one result object. `stream-json`: one event per line.",
    ),
    click.option(
        "--include-partial-messages",
        is_flag=True,
        help="With `stream-json`: also text, reasoning and arguments in pieces, as they come.",
    ),
    click.option(
        "--output-schema",
        type=click.Path(exists=True, dir_okay=False),
        metavar="FILE",
        help="A JSON Schema that the answer must match; the value is `structured_output` of the "
        "result object.",
    ),
    click.option(
        "-c",
        "--continue",
        "continue_last",
        is_flag=True,
        help="Continue the last session of this folder.",
    ),
    click.option(
        "-r",
        "--resume",
        is_flag=False,
        flag_value="",
        metavar="[ID|NAME|TEXT]",
        help="Continue a session by its id (of any folder), its name or words in it; without a "
        "value, the chat asks which.",
    ),
    click.option(
        "--fork", is_flag=True, help="With `-c` or `-r`: continue in a copy of the session."
    ),
    click.option(
        "--session-id",
        metavar="ID",
        help="The id of a new session, or of one to continue: a UUID.",
    ),
    click.option("-n", "--name", metavar="NAME", help="The name of the session, new or not."),
    click.option(
        "--native-session",
        metavar="ID",
        help="Go on with a session of Claude Code of this machine, in a new session.",
    ),
    click.option("--no-session", is_flag=True, help="Store nothing."),
    flag(
        "--allow-tool",
        declared=_RULES["allow"],
        metavar="RULE",
        more="Such as `shell(git status*)`. Repeatable.",
    ),
    flag(
        "--deny-tool",
        declared=_RULES["deny"],
        metavar="RULE",
        more="Such as `read(secrets/**)`. Repeatable.",
    ),
    flag(
        "--permission-mode",
        declared=_SETTINGS["permission_mode"].brief(),
        more="See `docs/permissions.md`.",
        is_configured=True,
    ),
    flag("--max-turns", declared=_LIMITS["turns"].brief(), metavar="N", is_configured=True),
    flag("--max-budget-usd", declared=_LIMITS["cost"].brief(), metavar="USD", is_configured=True),
    flag(
        "--timeout",
        declared=options_of(QueryOptions)["total_timeout"].brief(),
        metavar="SECONDS",
    ),
    STORE_FLAG,
    click.option("--debug", is_flag=True, help="Show tracebacks."),
)


def with_flags(command: CommandT) -> CommandT:
    """Give a command the shared flags."""
    # Decorators apply from the last to the first: `--help` has the flags in their order.
    for add in reversed(_FLAGS):
        command = add(command)
    return command


def open_agent(
    choices: Choices, *, approver: Callable[[ApprovalRequest], Any] | None = None
) -> Agent:
    """Make the agent: the built-in tools in the working folder, and the store of this user.

    Raises:
        ConfigError: CONFIG_INVALID or CONFIG_MISSING, with what to do.

    """
    options: dict[str, Any] = {
        "store": "memory" if choices.no_session else choices.store or configured_store(),
        "workspace": Path.cwd(),
        "approver": approver,
    }
    if choices.allow_tool or choices.deny_tool:
        options["permissions"] = Permissions(allow=choices.allow_tool, deny=choices.deny_tool)
    limits = {"turns": choices.max_turns, "cost": choices.max_budget_usd}
    if named := {name: value for name, value in limits.items() if value is not None}:
        options["limits"] = Limits(**named)  # type: ignore[arg-type]  # each value is of its field
    settings = {
        "model": choices.model,
        "thinking": choices.effort,
        "system_prompt": choices.system,
        "permission_mode": choices.permission_mode,
    }
    options |= {name: value for name, value in settings.items() if value is not None}
    return Agent(**options)


def with_agent(
    context: click.Context, work: Callable[[Agent], Awaitable[ValueT]], *, store: str | None = None
) -> ValueT:
    """Do something with an agent for the store that was chosen, and close it."""
    choices: Choices = context.obj or Choices()

    async def run() -> ValueT:
        chosen = choices if store is None else Choices(store=store).over(choices)
        async with open_agent(chosen) as agent:
            return await work(agent)

    return asyncio.run(run())


async def open_chosen_session(agent: Agent, choices: Choices) -> AgentSession:
    """Open the session that was chosen: the last one here, one by its id, name or text, or new.

    Raises:
        SessionError: NOT_FOUND when there is none, or more than one has the words.

    """
    reference = choices.session_id
    if choices.continue_last:
        reference = await _last_session(agent)
    elif choices.resume is not None:
        reference = await find_session_by_words(agent, choices.resume)
    if choices.fork:
        # Without opening the session, which another program may hold. The copy has its settings
        # and is opened anew, as every session is, with those that were chosen.
        async with await agent.sessions.fork(reference or "", name=choices.name) as forked:
            reference = forked.session_id
    if reference is not None and (choices.fork or choices.continue_last or choices.resume):
        # It keeps the project of the session; `agent.session` would look for it in this folder's.
        return await agent.sessions.switch_to(reference)  # of any folder
    return await agent.session(
        reference or choices.name, native_session_id=choices.native_session
    ).open()


async def find_session_by_words(agent: Agent, words: str, *, by_text: bool = True) -> str:
    """Return the id of the one session with this id, this name, or these words in it.

    Without `by_text` only the id and the name count: for commands that take a session away.

    Raises:
        SessionError: NOT_FOUND naming what there is instead.

    """
    if not words.strip():
        raise SessionError(
            ErrorCode.NOT_FOUND,
            "which session? Name it by its id, its name or words in it; `haptera sessions list`",
        )
    try:
        return (await agent.sessions.get(words)).id
    except SessionError as error:
        if error.code is not ErrorCode.NOT_FOUND or not by_text:
            raise
    sessions = {hit.session.id: hit.session for hit in await agent.sessions.search(words)}
    titled = await agent.sessions.list(limit=200)
    sessions |= {each.id: each for each in titled if words.casefold() in each.title.casefold()}
    if len(sessions) == 1:
        return next(iter(sessions))
    if not sessions:
        message = f"no session here has the id, the name or the text {words!r}"
        raise SessionError(ErrorCode.NOT_FOUND, f"{message}; see `haptera sessions list --all`")
    names = "".join(f"\n  {each.id}  {each.title}" for each in list(sessions.values())[:5])
    message = f"{len(sessions)} sessions have {words!r} in them; name one by its id:"
    raise SessionError(ErrorCode.NOT_FOUND, message + names)


async def _last_session(agent: Agent) -> str:
    for each in await agent.sessions.list(limit=1):
        return each.id
    raise SessionError(
        ErrorCode.NOT_FOUND,
        "there is no session to continue in this folder; see `haptera sessions list --all`",
    )


def deny_unanswered(asked: list[ApprovalRequest]) -> Callable[[ApprovalRequest], Decision]:
    """Return an approver for commands without a terminal: it denies, and keeps what was asked."""

    def deny(request: ApprovalRequest) -> Decision:
        asked.append(request)
        return Deny(reason="there is no user to approve this call; it was not run")

    return deny
