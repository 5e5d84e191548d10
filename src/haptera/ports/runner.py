"""What queries and sessions are given, and how a query came to rest."""

from collections.abc import Awaitable, Callable
from typing import Annotated, Any

import msgspec
from msgspec.structs import replace

from haptera.model.errors import AgentError
from haptera.model.ids import QueryId
from haptera.model.messages import KeptOptions, UserMessage
from haptera.model.requests import OutputSchema
from haptera.model.results import StopReason
from haptera.options.declarations import function_option
from haptera.ports.tools import (
    Approver,
    OutputTransform,
    ToolContext,
    ToolSession,
    ToolSource,
    Unanswered,
)


class Retry(Exception):  # noqa: N818 - raised by programs, and no failure of theirs
    """Raised by an output validator: the message goes to the model, which answers again."""


class OutputSpec(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """What an answer must be."""

    schema: OutputSchema | None
    """What the model gets of it; None for plain text."""
    hint: Any
    """The type as the program has written it."""
    parse: Callable[[str], object]
    """Returns the value, or raises ValueError saying what is wrong."""
    check: Callable[[object, ToolContext[Any]], Awaitable[object]] | None = None
    """Checks a value, and returns the one to go on with; raises `Retry` with what to say."""
    is_wrapped: bool = False
    """Whether the schema is that of an object which holds the value."""
    attempts: int = 3
    """How often each model may answer."""


class QueryInput(KeptOptions, frozen=True, kw_only=True, eq=False, gc=True):
    """What one query is given; everything else is the session's.

    A field with an `Option` is an option of a query, here and in `KeptOptions`, which a log keeps.
    None, or nothing in it, stands for "not said", so that a query that is resumed keeps what it was
    told.
    """

    query_id: QueryId
    message: UserMessage | None
    """The prompt; None to go on with what is there."""
    transform: Annotated[
        OutputTransform | None,
        function_option(
            "A function from a tool's name and raw output to what the model sees instead."
        ),
    ] = None
    output: OutputSpec | None = None
    wants_text: bool = False
    """Whether the output is the text of the answer as it is."""
    is_only: bool = False
    """Whether its session ends with it, so that no later query repeats what it sends."""
    tools: ToolSource | None = None
    """What the model may call in this query; None: what the session offers."""
    deps: object = None
    """For tools that ask for it; None: what the session has."""
    resumes: QueryId | None = None
    input_id: str | None = None
    """The queued input that this query promotes."""
    gives_way: bool = False
    """Whether approvals that it comes to rest on are void at once: prompts wait behind it."""


class QueryOutcome(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """How a query came to rest."""

    stop_reason: StopReason
    stop_detail: str | None = None
    """Which limit was reached, which tool call was repeated, or that a compaction was the end."""
    error: AgentError | None = None


class SessionBindings(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """What a program gives a session beside its settings; nothing of it is stored."""

    tools: ToolSource | None = None
    """What the model may call; None: what the agent offers."""
    deps: object = None
    """For tools that ask for it; None: what the agent has."""
    face: ToolSession | None = None
    """The session as tools see it."""
    approver: Approver | None = None
    """Who is asked about its calls; None: the approver of the agent."""
    unanswered: Unanswered | None = None
    """What happens without an approver; None: what the agent says, or else `stop`."""

    def over(self, agent: "SessionBindings") -> "SessionBindings":
        """Return these with what the agent has where they are silent."""
        return replace(
            agent,
            tools=self.tools,
            face=self.face,
            deps=agent.deps if self.deps is None else self.deps,
            approver=self.approver or agent.approver,
            unanswered=self.unanswered or agent.unanswered or "stop",
        )
