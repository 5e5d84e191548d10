"""Query input: what one query is given, and the type that its answer must have."""

from collections.abc import Callable
from typing import Literal, TypeAlias

import msgspec

from holdfast.ports.tool_hooks import OutputTransform
from holdfast.vocabulary.ids import QueryId
from holdfast.vocabulary.messages import UserMessage
from holdfast.vocabulary.requests import OutputSchema

Unanswered: TypeAlias = Literal["stop", "deny"]
"""What happens to an approval that nobody is there to give: the query rests, or it is denied."""


class OutputSpec(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The type that an answer must have."""

    schema: OutputSchema
    parse: Callable[[str], object]
    """Returns the value, or raises ValueError saying what is wrong."""
    max_repairs: int = 2


class QueryInput(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """What one query is given; everything else is the session's."""

    query_id: QueryId
    message: UserMessage | None
    """The prompt; None to go on with what is there."""
    reminders: tuple[str, ...] = ()
    """Notes to the model with the first request only; never stored."""
    require_tool: str | None = None
    """The tool that the model must call in its first turn."""
    transform: OutputTransform | None = None
    """Changes tool output before it is encoded, in this query only."""
    output: OutputSpec | None = None
    timeout: float | None = None
    """Seconds that a model may take for one attempt of one turn; a consumer's time is not its."""
    resumes: QueryId | None = None
    input_id: str | None = None
    """The queued input that this query promotes."""
