"""Messages: what a user and a model said, as immutable values, and what came with a prompt."""

from decimal import Decimal
from typing import Annotated, Literal, TypeAlias

import msgspec

from haptera.model.ids import MessageId, QueryId, TurnId
from haptera.model.json_types import JsonObject, Value
from haptera.model.option import Option
from haptera.model.parts import Part, ToolCallPart, text_of
from haptera.model.usage import Usage

AnswerStop: TypeAlias = Literal[
    "complete",
    "tool_calls",
    "max_tokens",
    "refusal",
    "pause",
    "compaction",
    "aborted",
    "error",
    "interrupted",
]
"""Why a model's message ends where it does.

`aborted` and `error` say how its query ended while it was being written. `interrupted` means that
the program stopped meanwhile, and nothing recorded an end.
"""


class Sender(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Who spoke in a user message."""

    kind: Literal["human", "agent", "orchestrator"] = "human"
    user_id: str | None = None


class CompactOrder(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What `session.compact()` was told."""

    instructions: str | None = None
    """What the summary is to pay attention to."""


class KeptOptions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What a query was told beside its prompt, as far as a log can keep it.

    Functions, objects and the type of an answer are not kept: they live in the program.
    """

    settings: JsonObject = msgspec.field(default_factory=dict)
    """Settings of this query alone, laid over those of the session."""
    reminders: Annotated[
        tuple[str, ...],
        Option(
            "Notes to the model with the first request only. They are not part of the "
            "conversation, and stored only while their prompt waits in the queue."
        ),
    ] = ()
    require_tool: Annotated[
        str | None,
        Option(
            "The tool that the model must call first; what it does after that is its own choice."
        ),
    ] = None
    timeout: Annotated[
        float | None,
        Option(
            "Seconds that one attempt of one model call may take; a slow consumer's do not count. "
            "0 or None: any.",
            least=0,
        ),
    ] = None
    compact: CompactOrder | None = None
    """The query compacts the conversation and has no prompt."""
    sender: Sender | None = None
    """Who sent the prompt, where the entry has no message that says so."""


NO_OPTIONS = KeptOptions()


def kept_options(given: KeptOptions, *, but: tuple[str, ...]) -> KeptOptions:
    """Return what a log keeps of the options of a query, without some of them.

    It is `NO_OPTIONS` itself when nothing is left: an entry does not write its defaults, and what
    the default is, msgspec tells by its identity.
    """
    fields = {}
    for name in KeptOptions.__struct_fields__:
        if name not in but:
            fields[name] = getattr(given, name)
    options = KeptOptions(**fields)
    return NO_OPTIONS if options == NO_OPTIONS else options


class _Message(Value, frozen=True, kw_only=True, omit_defaults=True, tag_field="role"):
    id: MessageId
    parts: tuple[Part, ...]
    query_id: QueryId | None = None
    turn_id: TurnId | None = None
    time: int | None = None
    """Wall-clock milliseconds: when it was said, or when an answer was complete."""

    @property
    def text(self) -> str:
        """The text parts joined."""
        return text_of(self.parts)


class UserMessage(_Message, frozen=True, kw_only=True, tag="user"):
    """What was said to the model: prompts, tool results, reminders."""

    sender: Sender | None = None

    @property
    def role(self) -> Literal["user"]:
        """Who speaks, as JSON has it."""
        return "user"


class AssistantMessage(_Message, frozen=True, kw_only=True, tag="assistant"):
    """What a model said."""

    provider: str = ""
    model: str = ""
    usage: Usage | None = None
    cost: Decimal | None = None
    """In US dollars; None when a price is unknown."""
    stop_reason: AnswerStop | None = None
    """Why it ends; None in a history from elsewhere that does not say."""
    finish_reason: str | None = None
    """The provider's own word."""
    interrupted: bool = False
    """Whether the model was cut off: by an abort, a crash or a dropped stream."""

    @property
    def role(self) -> Literal["assistant"]:
        """Who speaks, as JSON has it."""
        return "assistant"

    @property
    def tool_calls(self) -> tuple[ToolCallPart, ...]:
        """The calls this message asks for, in the model's order."""
        return tuple([part for part in self.parts if isinstance(part, ToolCallPart)])


Message: TypeAlias = UserMessage | AssistantMessage
