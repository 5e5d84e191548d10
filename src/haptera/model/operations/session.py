"""What a session can be told, by the process that holds it or through the inbox of its store.

The tags and fields of those that a store may hold are never given another meaning.
"""

from typing import Annotated, ClassVar, TypeAlias

from msgspec import Meta

from haptera.model.approvals import ApprovalScope
from haptera.model.ids import ApprovalId, InputId, MessageId, QueryId
from haptera.model.json_types import Json, JsonObject
from haptera.model.messages import UserMessage
from haptera.model.operations.operation import (
    CommandLine,
    Facts,
    Flag,
    Otherwise,
    Route,
    SessionCommand,
)
from haptera.model.operations.texts import ChosenText, Name
from haptera.model.settings import Delivery


class AbortQuery(SessionCommand, frozen=True, kw_only=True, tag="abort"):
    """Stop what is running."""

    facts: ClassVar[Facts] = Facts(
        face="abort",
        by_place=1,
        by_hand=True,
        route=Route(
            path="/cancel",
            name="cancel_query",
            rpc="query/cancel",
            summary="Stop the running query; the id of one that does not run is ignored.",
            body="CancelBody",
            about="Which query to stop; one that does not run any more is ignored.",
            fields={"query_id": ("query_id", Name), "reason": ("reason", Name)},
            status=202,
            tag="messages",
        ),
    )

    reason: Annotated[str | None, Meta(description="Why it is stopped.")] = None
    query_id: Annotated[
        QueryId | None, Meta(description="The query to stop; without one, the query that runs.")
    ] = None


class SendPrompt(SessionCommand, frozen=True, kw_only=True, tag="prompt"):
    """Answer a prompt, delivered as asked."""

    facts: ClassVar[Facts] = Facts(face="send", by_hand=True)

    input_id: InputId
    message: UserMessage
    delivery: Delivery = "queue"
    once: bool = False
    """Whether a message with this id is taken in only if the log has none yet."""


class ApproveCall(SessionCommand, frozen=True, kw_only=True, tag="approve"):
    """Let a waiting tool call run."""

    facts: ClassVar[Facts] = Facts(face="approve", by_hand=True)

    approval_id: ApprovalId
    arguments: Json | None = None
    scope: ApprovalScope = "once"
    feedback: str | None = None


class DenyCall(SessionCommand, frozen=True, kw_only=True, tag="deny"):
    """Refuse a waiting tool call."""

    facts: ClassVar[Facts] = Facts(face="deny", by_hand=True)

    approval_id: ApprovalId
    reason: str | None = None


class DeliverResult(SessionCommand, frozen=True, kw_only=True, tag="deliver"):
    """Give a tool call that waits its answer: once, from any process, in any order.

    The same answer may be delivered again. The query goes on with `resume`, or by itself where
    a worker or a server carries sessions on.

    Raises:
        ConfigError: CONFIG_INVALID when there is a result and an error.
        SessionError: NOT_FOUND when no such call waits, or it waits no longer.
        StoreError: CONFLICT when it has another answer already.
        ToolError: TOOL_INVALID_INPUT when the answer is not what was asked for; it waits on.

    """

    facts: ClassVar[Facts] = Facts(
        face="deliver",
        by_place=2,
        waits=True,
        route=Route(
            path="/deliveries",
            name="deliver_result",
            rpc="call/deliver",
            summary="Give a tool call that waits its answer, once.",
            body="Delivery",
            about="The answer of a call, or why there is none.",
            fields={"call": ("call", Name), "error": ("error", ChosenText)},
            status=202,
            tag="messages",
        ),
        command=CommandLine(
            name="deliver",
            help="Give a tool call that waits its answer, by its id or its ref.",
            flags={
                "result": Flag("--result", "The answer: JSON, or a text.", "JSON"),
                "error": Flag("--error", "Why there is no answer.", "TEXT"),
            },
            metavar="CALL",
            done="delivered {call}",
            is_exact=True,
        ),
    )

    call: Annotated[str, Meta(description="The id of the call, or its ref.")]
    result: Annotated[Json, Meta(description="The answer, as JSON.")] = None
    error: Annotated[str | None, Meta(description="Why there is no answer.")] = None


class ChangeSession(SessionCommand, frozen=True, kw_only=True, tag="change"):
    """Change facts of the session, as `session.changed` has them."""

    facts: ClassVar[Facts] = Facts(face="", by_hand=True)

    changes: JsonObject


class ConfigureSession(SessionCommand, frozen=True, kw_only=True, tag="configure"):
    """Change settings, from the next turn on.

    Raises:
        ConfigError: CONFIG_INVALID naming the field.

    """

    facts: ClassVar[Facts] = Facts(face="configure", waits=True, by_hand=True)

    settings: JsonObject


class UndoRewind(SessionCommand, frozen=True, kw_only=True, tag="undo_rewind"):
    """Take the last rewind back; files that it changed become again what they were before.

    Raises:
        SessionError: BUSY while a query runs, NOT_FOUND when nothing was rewound.
        StoreError: CONFLICT when such files were changed since, unless forced.

    """

    facts: ClassVar[Facts] = Facts(face="undo_rewind", waits=True)

    force: Annotated[
        bool,
        Meta(description="Whether files that others changed since then are overwritten, too."),
    ] = False


class RewindSession(SessionCommand, frozen=True, kw_only=True, tag="rewind"):
    """Make the message with the id `to` the last one of the conversation; nothing is lost.

    The files are those of the process that holds the session.

    Raises:
        SessionError: BUSY while a query runs, MESSAGE_NOT_FOUND when there is no such message.
        StoreError: CONFLICT when others changed files that would be overwritten; UNAVAILABLE
            when the files of that time are not known. Nothing is changed then.
        ConfigError: CONFIG_MISSING when the agent takes no snapshots of files.

    """

    facts: ClassVar[Facts] = Facts(
        face="rewind",
        waits=True,
        otherwise=Otherwise(
            "to", UndoRewind, "--undo", "Take the last rewind back, with its files."
        ),
        route=Route(
            summary="Make a message the last one; without one, take the last rewind back.",
            about="The message that becomes the last one; null takes the last rewind back.",
            fields={"to": ("message_id", Name)},
            unready="CONFIG_MISSING",
        ),
        command=CommandLine(
            name="rewind",
            help="Go back to a message; nothing is lost by it. `show --format json` has the "
            "message ids.",
            flags={
                "to": Flag("--to", "The message that becomes the last one.", "MESSAGE"),
                "files": Flag("--files", "Bring the files of this folder back, too."),
                "dry_run": Flag("--dry-run", "Only say what would happen to files."),
                "force": Flag("--force", "Overwrite files that others changed since then."),
            },
        ),
        slash=("/rewind [N|undo]", "go back to a prompt"),
    )

    to: Annotated[MessageId, Meta(description="The message that becomes the last one.")]
    files: Annotated[
        bool,
        Meta(
            description="Whether the files of the workspace become what they were after that "
            "message; only those that this session changed since then are touched."
        ),
    ] = False
    dry_run: Annotated[
        bool, Meta(description="Whether to say only which messages and files would change.")
    ] = False
    force: Annotated[
        bool,
        Meta(description="Whether files that others changed since then are overwritten, too."),
    ] = False


class CompactSession(SessionCommand, frozen=True, kw_only=True, tag="compact"):
    """Replace the earlier messages by a summary in what is sent, and return what was done."""

    facts: ClassVar[Facts] = Facts(
        face="compact",
        by_hand=True,
        waits=True,
        route=Route(
            summary="Replace the earlier messages by a summary in what is sent to the model.",
            about="How to compact.",
            fields={"instructions": ("instructions", ChosenText)},
        ),
        command=CommandLine(
            name="compact",
            help="Send a summary in place of the earlier messages; INSTRUCTIONS say what matters "
            "in it.",
            words="instructions",
        ),
        slash=("/compact [INSTRUCTIONS]", "shorten what is sent"),
    )

    instructions: Annotated[
        str | None, Meta(description="What the summary is to pay attention to.")
    ] = None


AnsweredCommand: TypeAlias = (
    RewindSession | UndoRewind | CompactSession | ConfigureSession | DeliverResult
)
"""Commands whose sender waits for their end: a `command.ended` in the log."""
PlainCommand: TypeAlias = AbortQuery | SendPrompt | ApproveCall | DenyCall | ChangeSession
"""Commands that have no end in the log: what they do is there."""
Command: TypeAlias = PlainCommand | AnsweredCommand
