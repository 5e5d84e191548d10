"""The flags that `holdfast`, `holdfast run` and `holdfast chat` share, and the agent they describe.

`Choices` is what was said on the command line, checked by click. `open_agent` makes the agent,
`open_session` finds or makes the session that the query runs in.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

import click

from holdfast import Agent, AgentSession, Deny
from holdfast.administration.configured import command_line_store
from holdfast.vocabulary.agent_defaults import Permissions
from holdfast.vocabulary.approvals import ApprovalRequest, Decision
from holdfast.vocabulary.errors import ErrorCode, SessionError
from holdfast.vocabulary.settings import Limits

CommandT = TypeVar("CommandT", bound=Callable[..., Any])

EFFORTS = ("off", "minimal", "low", "medium", "high", "xhigh", "max")
MODES = ("default", "accept_edits", "plan", "dont_ask")
FORMATS = ("text", "json", "stream-json")


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

    @classmethod
    def taken_from(cls, flags: dict[str, Any]) -> "Choices":
        """Take the shared flags out of what click parsed."""
        return cls(
            **{each.name: flags.pop(each.name) for each in fields(cls) if each.name in flags}
        )

    def over(self, other: "Choices") -> "Choices":
        """Return these choices, and for what they leave open those of another."""
        plain = Choices()
        return Choices(
            **{
                each.name: getattr(self if is_chosen else other, each.name)
                for each in fields(self)
                for is_chosen in (getattr(self, each.name) != getattr(plain, each.name),)
            }
        )


_FLAGS = (
    click.option("-m", "--model", metavar="PROVIDER/MODEL", help="The model to use."),
    click.option("--effort", type=click.Choice(EFFORTS), help="How much the model thinks first."),
    click.option("--system", metavar="TEXT", help="The system prompt."),
    click.option(
        "--output-format",
        type=click.Choice(FORMATS),
        default="text",
        show_default=True,
        help="text: the answer. json: one result object. stream-json: one event per line.",
    ),
    click.option(
        "--include-partial-messages",
        is_flag=True,
        help="With stream-json: every piece of an answer as it comes.",
    ),
    click.option(
        "--output-schema",
        type=click.Path(exists=True, dir_okay=False),
        metavar="FILE",
        help="A JSON Schema that the answer has to match.",
    ),
    click.option(
        "-c", "--continue", "continue_last", is_flag=True, help="Go on with the last session here."
    ),
    click.option(
        "-r",
        "--resume",
        is_flag=False,
        flag_value="",
        metavar="[ID|NAME|TEXT]",
        help="Go on with a session by its id, its name or words in it.",
    ),
    click.option("--fork", is_flag=True, help="With -c or -r: go on in a copy of the session."),
    click.option("--session-id", metavar="ID", help="The id of a new session, or of one to go on."),
    click.option("-n", "--name", metavar="NAME", help="The name of the session, new or not."),
    click.option("--no-session", is_flag=True, help="Store nothing."),
    click.option(
        "--allow-tool",
        multiple=True,
        metavar="RULE",
        help="Tool calls that need no approval, such as 'shell(git status*)'. Repeatable.",
    ),
    click.option(
        "--deny-tool",
        multiple=True,
        metavar="RULE",
        help="Tool calls that are never made, such as 'read(secrets/**)'. Repeatable.",
    ),
    click.option(
        "--permission-mode",
        type=click.Choice(MODES),
        help="What needs an approval: see `docs/permissions.md`.",
    ),
    click.option(
        "--max-turns", type=click.IntRange(min=1), metavar="N", help="Requests to the model."
    ),
    click.option(
        "--max-budget-usd",
        type=click.FloatRange(min=0),
        metavar="USD",
        help="What the query may cost.",
    ),
    click.option(
        "--timeout",
        type=click.FloatRange(min=0),
        metavar="SECONDS",
        help="How long the query may take.",
    ),
    click.option(
        "--store",
        metavar="STORE",
        help="Where sessions are kept: sqlite:FILE, jsonl:DIR, postgresql://URL or memory.",
    ),
    click.option("--debug", is_flag=True, help="Show tracebacks."),
)


def with_flags(command: CommandT) -> CommandT:
    """Give a command the shared flags."""
    for flag in reversed(_FLAGS):
        command = flag(command)
    return command


def open_agent(
    choices: Choices, *, approver: Callable[[ApprovalRequest], Any] | None = None
) -> Agent:
    """Make the agent: the built-in tools in the working folder, and the store of this user.

    Raises:
        ConfigError: CONFIG_INVALID or CONFIG_MISSING, with what to do.

    """
    options: dict[str, Any] = {
        "store": "memory" if choices.no_session else choices.store or command_line_store(),
        "workspace": Path.cwd(),
        "approver": approver,
    }
    if choices.allow_tool or choices.deny_tool:
        options["permissions"] = Permissions(allow=choices.allow_tool, deny=choices.deny_tool)
    limits = {"turns": choices.max_turns, "cost": choices.max_budget_usd}
    if given := {name: value for name, value in limits.items() if value is not None}:
        options["limits"] = Limits(**given)  # type: ignore[arg-type]  # each value is of its field
    told = {
        "model": choices.model,
        "thinking": choices.effort,
        "system_prompt": choices.system,
        "permission_mode": choices.permission_mode,
    }
    options |= {name: value for name, value in told.items() if value is not None}
    return Agent(**options)


async def open_session(agent: Agent, choices: Choices) -> AgentSession:
    """Open the session that was chosen: the last one here, one by its id, name or text, or new.

    Raises:
        SessionError: NOT_FOUND when there is none, or more than one has the words.

    """
    reference = choices.session_id
    if choices.continue_last:
        reference = await _last_session(agent)
    elif choices.resume is not None:
        reference = await find_session(agent, choices.resume)
    must_exist = choices.continue_last or choices.resume is not None
    session = agent.session(reference or (None if must_exist else choices.name))
    await session.open()
    if choices.fork:
        forked = await session.fork(name=choices.name)
        await session.close()
        return forked
    return session


async def find_session(agent: Agent, words: str, *, by_text: bool = True) -> str:
    """Return the id of the one session with this id, this name, or these words in it.

    Without `by_text` only the id and the name count: for commands that take a session away.

    Raises:
        SessionError: NOT_FOUND naming what there is instead.

    """
    if not words.strip():
        raise SessionError(
            ErrorCode.NOT_FOUND,
            "which session? Name it by its id, its name or words in it; `holdfast sessions list`",
        )
    try:
        return (await agent.sessions.get(words)).id
    except SessionError as error:
        if error.code is not ErrorCode.NOT_FOUND or not by_text:
            raise
    found = {hit.session.id: hit.session for hit in await agent.sessions.search(words)}
    titled = await agent.sessions.list(limit=200)
    found |= {each.id: each for each in titled if words.casefold() in each.title.casefold()}
    if len(found) == 1:
        return next(iter(found))
    if not found:
        told = f"no session here has the id, the name or the text {words!r}"
        raise SessionError(ErrorCode.NOT_FOUND, f"{told}; see `holdfast sessions list --all`")
    names = "".join(f"\n  {each.id}  {each.title}" for each in list(found.values())[:5])
    told = f"{len(found)} sessions have {words!r} in them; name one by its id:"
    raise SessionError(ErrorCode.NOT_FOUND, told + names)


async def _last_session(agent: Agent) -> str:
    for each in await agent.sessions.list(limit=1):
        return each.id
    raise SessionError(
        ErrorCode.NOT_FOUND,
        "there is no session to continue in this folder; see `holdfast sessions list --all`",
    )


def deny_unanswered(asked: list[ApprovalRequest]) -> Callable[[ApprovalRequest], Decision]:
    """Return an approver for commands that nobody watches: it denies, and keeps what was asked."""

    def deny(request: ApprovalRequest) -> Decision:
        asked.append(request)
        return Deny(reason="there is no user to approve this call; it was not run")

    return deny
