"""What prompts, queries and opened sessions can be told, by the structs that declare the options.

Options of a query that its runner looks at are fields of `ports.runner.QueryInput`, those that a
log keeps of `model.messages.KeptOptions`.
"""

import re
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Generic, Literal, TypeAlias

import msgspec

from haptera.access.assembly.agent_inputs import AttachmentInput, DepsOption, ToolsOption
from haptera.agent.agent_options import AGENT, WrittenSettings
from haptera.model.ids import CHOSEN_MESSAGE_ID
from haptera.model.messages import Sender, UserMessage
from haptera.model.option import Option
from haptera.model.parts import Part
from haptera.model.results import OutputT, TypeForm
from haptera.model.session_state import SessionState
from haptera.model.settings import Delivery, Settings
from haptera.options.declarations import (
    ELSEWHERE,
    Keywords,
    function_option,
    is_anything,
    list_option,
)
from haptera.ports.runner import QueryInput
from haptera.system.abort import AbortSignal

Prompt: TypeAlias = str | Sequence[Part] | UserMessage
OnAbort: TypeAlias = Literal["raise", "return"]


class SendOptions(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """What may be said of a prompt, also to a session that another process holds."""

    delivery: Annotated[
        Delivery,
        Option(
            "What happens when the session is busy: `queue`, `steer` (into the running query), "
            "`reject` (BUSY) or `interrupt`."
        ),
    ] = "queue"
    sender: Annotated[
        Sender | None,
        Option(
            "Who speaks: a `haptera.settings.Sender`, or a dictionary with `kind` "
            "(`human`, `agent` or `orchestrator`) and `user_id`."
        ),
    ] = None
    attachments: Annotated[
        Sequence[AttachmentInput],
        list_option(
            "Files by their path, content as bytes, URLs, or parts; read when the prompt is sent.",
            wanted="a list of attachments",
        ),
    ] = ()


def _is_message_id(value: object) -> bool:
    if value is None:
        return True
    # `fullmatch`: `$` would also match before a line break at the end.
    return isinstance(value, str) and re.fullmatch(CHOSEN_MESSAGE_ID, value) is not None


class AdmissionOptions(SendOptions, frozen=True, kw_only=True, eq=False):
    """What may be said of a prompt that is sent without waiting for the answer."""

    message_id: Annotated[
        str | None,
        Option(
            "An id for the message, of your choice and unique in the session. A message that the "
            "session has already is not taken in again, so sending may be repeated.",
            fits=_is_message_id,
            wanted="1 to 128 letters, digits, dots, colons, dashes and underscores",
        ),
    ] = None


class QueryOptions(msgspec.Struct, Generic[OutputT], frozen=True, kw_only=True, eq=False):
    """What may be said of the answer to a query, new or resumed, to the session that gives it."""

    tools: ToolsOption = None
    deps: DepsOption = None
    signal: Annotated[
        AbortSignal | None,
        Option(
            "An `AbortSignal` that stops the query.",
            fits=lambda value: value is None or isinstance(value, AbortSignal),
            wanted="an AbortSignal (of an AbortController: its `signal`)",
        ),
    ] = None
    on_abort: Annotated[
        OnAbort,
        Option("What an abort does: `raise` ABORTED with the partial result, or `return` it."),
    ] = "raise"
    total_timeout: Annotated[
        float | None,
        Option(
            "Seconds that the whole query may take, from when it is sent; waiting in the queue "
            "counts. 0 or None: any.",
            least=0,
        ),
    ] = None
    output_type: Annotated[
        TypeForm[OutputT],
        Option(
            "The type of the answer, which comes back as `result.output`: whatever a type checker "
            "takes, such as a dataclass, a TypedDict, a pydantic model, `list[City]`, a `Literal` "
            "or a union. None: none is asked for.",
            fits=is_anything,
        ),
    ] = ELSEWHERE
    output_schema: Annotated[
        dict[str, Any] | None,
        Option(
            "The JSON Schema that the answer must match; comes back as `result.output`, as plain "
            "values or what `output_type` makes of them. Needs the package `jsonschema`."
        ),
    ] = None
    output_validator: Annotated[
        Callable[..., object] | None,
        function_option(
            "A function, async or not, that checks the output, and may take a `ToolContext`: it "
            "raises `Retry` with what to say to the model, or returns another value to use."
        ),
    ] = None
    output_attempts: Annotated[
        int,
        Option(
            "How often each model may answer until the output is what was asked for.",
            least=1,
        ),
    ] = 3


class SessionOptions(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """What a session may be told when it is opened; settings, tools and deps are its own."""

    tools: ToolsOption = None
    deps: DepsOption = None
    restore: Annotated[
        SessionState | dict[str, Any] | None,
        Option(
            "A `SessionState`, or its plain values, that a new session goes on from.",
            fits=is_anything,
        ),
    ] = None
    busy: Annotated[
        Literal["wait", "reject"],
        Option("What to do when another process holds the session."),
    ] = "reject"
    must_exist: Annotated[bool, Option("Whether a session that does not exist is NOT_FOUND.")] = (
        False
    )
    native_session_id: Annotated[
        str | None,
        Option(
            "The session of a native agent that this session, which has no conversation yet, goes "
            "on with. One that is not found is NOT_FOUND."
        ),
    ] = None


class NameOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a session is found that is made together with its agent."""

    name: Annotated[
        str | None,
        Option("The session's name or id; without one it is new.", fits=is_anything),
    ] = None


_ANSWER = (WrittenSettings, QueryOptions, QueryInput)

QUERY = Keywords(structs=(*_ANSWER, SendOptions), configured=(Settings,))
"""What one query may be told; settings, tools and deps among it are of this query only."""
SINGLE_QUERY = Keywords(structs=QUERY.structs, configured=(Settings,), without=("delivery",))
"""What a query in a session of its own may be told."""
RESUME = Keywords(structs=QUERY.structs, configured=(Settings,), without=("sender", "attachments"))
"""What a query that is carried on may be told: all but what belongs to its prompt."""
SESSION = Keywords(structs=(WrittenSettings, SessionOptions), configured=(Settings,))
"""What a session may be told when it is opened."""
ONE_CALL = Keywords(
    structs=(*AGENT.structs, *QUERY.structs),
    configured=AGENT.configured,
    without=(*AGENT.without, *SINGLE_QUERY.without),
)
"""What a single query may be told about its agent and itself."""
CREATE_SESSION = Keywords(
    structs=(*AGENT.structs, SessionOptions, NameOptions),
    configured=AGENT.configured,
    without=AGENT.without,
)
"""What a single session may be told about its agent and itself."""
