"""Options of prompts, queries and opened sessions. Each is declared once, as in `agent_options`."""

import re
from collections.abc import Sequence
from typing import Annotated, Any, Generic, Literal, TypeAlias, TypedDict

from haptera.access.assembly.agent_inputs import AttachmentInput
from haptera.agent.agent_options import AgentOptions, ScopedOptions
from haptera.model.ids import CHOSEN_MESSAGE_ID
from haptera.model.messages import Sender, UserMessage
from haptera.model.option_declarations import (
    Option,
    function_option,
    is_anything,
    list_option,
)
from haptera.model.parts import Part
from haptera.model.results import OutputT
from haptera.model.session_state import SessionState
from haptera.model.settings import Delivery
from haptera.ports.tools import OutputTransform
from haptera.system.abort import AbortSignal

Prompt: TypeAlias = str | Sequence[Part] | UserMessage
OnAbort: TypeAlias = Literal["raise", "return"]


class DeliveryOptions(TypedDict, total=False):
    """What may be said of anything that a session is to answer."""

    delivery: Annotated[
        Delivery,
        Option(
            "What happens when the session is busy: `queue`, `steer` (into the running query), "
            "`reject` (BUSY) or `interrupt`.",
            default="queue",
        ),
    ]


class PromptOptions(TypedDict, total=False):
    """What may be said of any prompt."""

    sender: Annotated[
        Sender | None,
        Option(
            "Who speaks: a `haptera.settings.Sender`, or a dictionary with `kind` "
            "(`human`, `agent` or `orchestrator`) and `user_id`.",
            default=None,
        ),
    ]
    attachments: Annotated[
        Sequence[AttachmentInput],
        list_option(
            "Files by their path, content as bytes, URLs, or parts; read when the prompt is sent.",
            wanted="a list of attachments",
        ),
    ]


class SendOptions(DeliveryOptions, PromptOptions, total=False):
    """What may be said of a prompt, also to a session that another process holds."""


def _is_message_id(value: object) -> bool:
    if value is None:
        return True
    # `fullmatch`: `$` would also match before a line break at the end.
    return isinstance(value, str) and re.fullmatch(CHOSEN_MESSAGE_ID, value) is not None


class AdmissionOptions(SendOptions, total=False):
    """What may be said of a prompt that is sent without waiting for the answer."""

    message_id: Annotated[
        str | None,
        Option(
            "An id for the message, of your choice and unique in the session. A message that the "
            "session has already is not taken in again, so sending may be repeated.",
            default=None,
            fits=_is_message_id,
            wanted="1 to 128 letters, digits, dots, colons, dashes and underscores",
        ),
    ]


class AnswerOptions(TypedDict, Generic[OutputT], total=False):
    """What may be said of the answer to a query, new or resumed."""

    signal: Annotated[
        AbortSignal | None,
        Option(
            "An `AbortSignal` that stops the query.",
            default=None,
            fits=lambda value: value is None or isinstance(value, AbortSignal),
            wanted="an AbortSignal (of an AbortController: its `signal`)",
        ),
    ]
    on_abort: Annotated[
        OnAbort,
        Option(
            "What an abort does: `raise` ABORTED with the partial result, or `return` it.",
            default="raise",
        ),
    ]
    timeout: Annotated[
        float | None,
        Option(
            "Seconds that one attempt of one model call may take; a slow consumer's do not count. "
            "0 or None: any.",
            default=None,
            least=0,
        ),
    ]
    total_timeout: Annotated[
        float | None,
        Option(
            "Seconds that the whole query may take, from when it is sent; waiting in the queue "
            "counts. 0 or None: any.",
            default=None,
            least=0,
        ),
    ]
    output_type: Annotated[
        type[OutputT] | None,
        Option(
            "The type of the answer: a pydantic model, dataclass, TypedDict, struct or any other "
            "type hint with a JSON Schema; comes back as `result.output`.",
            default=None,
            fits=is_anything,
        ),
    ]
    reminders: Annotated[
        Sequence[str],
        Option(
            "Notes to the model with the first request only. They are not part of the "
            "conversation, and stored only while their prompt waits in the queue.",
            default=(),
        ),
    ]
    require_tool: Annotated[
        str | None,
        Option(
            "The tool that the model must call first; what it does after that is its own choice.",
            default=None,
        ),
    ]
    transform: Annotated[
        OutputTransform | None,
        function_option(
            "A function from a tool's name and raw output to what the model sees instead."
        ),
    ]


class QueryOnlyOptions(PromptOptions, AnswerOptions[OutputT], Generic[OutputT], total=False):
    """What one query may be told that an agent or a session may not."""


class ResumeOptions(
    ScopedOptions, DeliveryOptions, AnswerOptions[OutputT], Generic[OutputT], total=False
):
    """What a query that is carried on may be told: all but what belongs to its prompt."""


class SingleQueryOptions(ScopedOptions, QueryOnlyOptions[OutputT], Generic[OutputT], total=False):
    """What a query in a session of its own may be told."""


class QueryOptions(SingleQueryOptions[OutputT], DeliveryOptions, Generic[OutputT], total=False):
    """What one query may be told; settings, tools and deps among it are of this query only."""


class UndoOptions(TypedDict, total=False):
    """What taking a rewind back may be told."""

    force: Annotated[
        bool,
        Option("Whether files that others changed since then are overwritten, too.", default=False),
    ]


class RewindOptions(UndoOptions, total=False):
    """What a rewind may be told."""

    files: Annotated[
        bool,
        Option(
            "Whether the files of the workspace become what they were after that message; only "
            "those that this session changed since then are touched.",
            default=False,
        ),
    ]
    dry_run: Annotated[
        bool, Option("Whether to say only which messages and files would change.", default=False)
    ]


class OpeningOptions(TypedDict, total=False):
    """What opening a session may be told that an agent or a query may not."""

    restore: Annotated[
        SessionState | dict[str, Any] | None,
        Option(
            "A `SessionState`, or its plain values, that a new session goes on from.",
            default=None,
            fits=is_anything,
        ),
    ]
    busy: Annotated[
        Literal["wait", "reject"],
        Option("What to do when another process holds the session.", default="reject"),
    ]
    must_exist: Annotated[
        bool, Option("Whether a session that does not exist is NOT_FOUND.", default=False)
    ]
    native_session_id: Annotated[
        str | None,
        Option(
            "The session of a native agent that this session, which has no conversation yet, goes "
            "on with. One that is not found is NOT_FOUND.",
            default=None,
        ),
    ]


class SessionOptions(ScopedOptions, OpeningOptions, total=False):
    """What a session may be told when it is opened; settings, tools and deps are its own."""


class OneCallOptions(AgentOptions, QueryOnlyOptions[OutputT], Generic[OutputT], total=False):
    """What a single query may be told about its agent and itself."""


class CreateSessionOptions(AgentOptions, OpeningOptions, total=False):
    """What a single session may be told about its agent and itself."""

    name: Annotated[
        str | None,
        Option("The session's name or id; without one it is new.", default=None, fits=is_anything),
    ]
