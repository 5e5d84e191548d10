"""OpenTelemetry: spans and metrics by its semantic conventions for generative AI.

A query is an `invoke_agent` span, a turn a `chat` span, a tool call an `execute_tool` span. Only
the API package is needed; where the data goes is decided by the SDK that the program sets up.
Without one, nothing is recorded anywhere.
"""

from collections.abc import Sequence
from contextvars import Token
from types import TracebackType
from typing import Any, Self, TypeAlias

import msgspec

from haptera.model.errors import ErrorReport
from haptera.model.events import Measured, QueryMeasured, ToolMeasured, TurnMeasured
from haptera.model.messages import AssistantMessage, Message
from haptera.model.parts import (
    CompactionPart,
    MediaPart,
    Part,
    ProviderPart,
    ReasoningPart,
    ReminderPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from haptera.model.requests import ModelRequest
from haptera.model.secrets import scrub
from haptera.model.usage import Usage
from haptera.model.vendors import split_model
from haptera.ports.telemetry import Begun, QueryBegun, ToolBegun, TurnBegun

try:
    from opentelemetry import context as otel_context
    from opentelemetry.context import Context
    from opentelemetry.metrics import Meter, MeterProvider, get_meter
    from opentelemetry.trace import (
        Span,
        SpanKind,
        Status,
        StatusCode,
        TracerProvider,
        get_tracer,
        set_span_in_context,
    )
except ImportError as error:
    raise ImportError(
        "tracing needs the package opentelemetry-api: pip install 'haptera[otel]'"
    ) from error

AttributeValue: TypeAlias = str | bool | int | float | Sequence[str]
Attributes: TypeAlias = dict[str, AttributeValue]

_SCOPE = "haptera"
# The boundaries that the conventions advise, so that dashboards fit.
_TOKEN_BOUNDS = tuple(float(4**power) for power in range(14))
_SECOND_BOUNDS = tuple(0.01 * 2**power for power in range(14))
_CHUNK_BOUNDS = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0),
)


class OpenTelemetry:
    """Traces the sessions of an agent: `Agent(telemetry=OpenTelemetry())`.

    Spans belong to the span that is current where the prompt is sent, and what a tool does belongs
    to the tool's span. Prompts, answers, arguments and results are recorded with `content=True`
    only; without it, of an error only its code is. Secrets are masked in either case. Implements
    `haptera.ports.telemetry.Telemetry`.
    """

    def __init__(
        self,
        *,
        content: bool = False,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
    ) -> None:
        self._content = content
        self._tracer = get_tracer(_SCOPE, tracer_provider=tracer_provider)
        self._metrics = _Metrics(get_meter(_SCOPE, meter_provider=meter_provider))

    def begin(self, begun: Begun) -> "OpenSpan":
        """Begin a span below the current one."""
        name, kind, attributes = _beginning(begun)
        if self._content:
            attributes |= _begun_content(begun)
        span = self._tracer.start_span(name, kind=kind, attributes=attributes)
        shared = {key: attributes[key] for key in _METRIC_KEYS if key in attributes}
        return OpenSpan(span, self._metrics, shared, content=self._content)


class OpenSpan:
    """One span that has not ended. Implements `haptera.ports.telemetry.Span`."""

    def __init__(
        self, span: Span, metrics: "_Metrics", shared: Attributes, *, content: bool
    ) -> None:
        self._span = span
        self._metrics = metrics
        self._shared = shared
        self._content = content
        self._token: Token[Context] | None = None

    def __enter__(self) -> Self:
        self._token = otel_context.attach(set_span_in_context(self._span))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._token is not None:
            otel_context.detach(self._token)

    def end(self, measured: Measured, parts: Sequence[Part] = ()) -> None:
        """Set what is known at the end, and end the span."""
        span = self._span
        span.set_attributes(_ending(measured))
        if self._content:
            span.set_attributes(_ended_content(measured, parts))
        failure = _failure_of(measured)
        if failure is not None:
            span.set_attribute("error.type", failure)
            span.set_status(Status(StatusCode.ERROR, _description(measured, content=self._content)))
            self._shared = {**self._shared, "error.type": failure}
        self._metrics.record(measured, self._shared)
        span.end()


class _Metrics:
    """The instruments of the conventions that apply to a client."""

    def __init__(self, meter: Meter) -> None:
        self._tokens = meter.create_histogram(
            "gen_ai.client.token.usage",
            unit="{token}",
            description="Tokens of a request.",
            explicit_bucket_boundaries_advisory=_TOKEN_BOUNDS,
        )
        self._duration = meter.create_histogram(
            "gen_ai.client.operation.duration",
            unit="s",
            description="Duration of a query, a request or a tool call.",
            explicit_bucket_boundaries_advisory=_SECOND_BOUNDS,
        )
        self._first_chunk = meter.create_histogram(
            "gen_ai.client.operation.time_to_first_chunk",
            unit="s",
            description="Time to the first piece of an answer.",
            explicit_bucket_boundaries_advisory=_CHUNK_BOUNDS,
        )

    def record(self, measured: Measured, shared: Attributes) -> None:
        if isinstance(measured, TurnMeasured) and measured.response_model:
            shared = {**shared, "gen_ai.response.model": measured.response_model}
        self._duration.record(measured.duration_ms / 1000, shared)
        if not isinstance(measured, TurnMeasured):
            return
        if measured.first_token_ms is not None:
            self._first_chunk.record(measured.first_token_ms / 1000, shared)
        # The conventions know no other types of tokens: those of caches and of reasoning are parts
        # of these.
        counts = {"input": measured.usage.input, "output": measured.usage.output}
        for kind, count in counts.items():
            if count:
                self._tokens.record(count, {**shared, "gen_ai.token.type": kind})


# Attributes with few values only: each combination of values is a time series of its own.
_METRIC_KEYS = ("gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.request.model")


def _beginning(begun: Begun) -> tuple[str, SpanKind, Attributes]:
    """Return the name, the kind and the first attributes of a span."""
    shared: Attributes = {
        "gen_ai.conversation.id": begun.session_id,
        "haptera.query.id": begun.query_id,
    }
    match begun:
        case QueryBegun():
            provider, model = split_model(begun.model)
            shared |= {
                "gen_ai.operation.name": "invoke_agent",
                "gen_ai.provider.name": begun.provider_name or provider,
                "gen_ai.request.model": model,
            }
            return "invoke_agent", SpanKind.INTERNAL, shared
        case TurnBegun():
            shared |= {
                "gen_ai.operation.name": "chat",
                "gen_ai.provider.name": begun.provider_name or begun.provider,
                "haptera.turn.id": begun.turn_id,
                "haptera.attempt": begun.attempt,
                **_request_attributes(begun.request),
            }
            return f"chat {begun.request.model}", SpanKind.CLIENT, shared
        case ToolBegun():
            shared |= {
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": begun.tool,
                "gen_ai.tool.type": "function",
                "gen_ai.tool.description": begun.description,
                "gen_ai.tool.call.id": begun.call_id,
            }
            if begun.turn_id is not None:
                shared["haptera.turn.id"] = begun.turn_id
            return f"execute_tool {begun.tool}", SpanKind.INTERNAL, shared


def _request_attributes(request: ModelRequest) -> Attributes:
    return _known(
        {
            "gen_ai.request.model": request.model,
            "gen_ai.request.stream": True,
            "gen_ai.request.max_tokens": request.max_tokens,
            "gen_ai.request.temperature": request.temperature,
            "gen_ai.request.seed": request.seed,
            "gen_ai.request.stop_sequences": request.stop or None,
            "gen_ai.output.type": "json" if request.output_schema else "text",
        }
    )


def _ending(measured: Measured) -> Attributes:
    """Return what is known of a query, a turn or a tool call at its end."""
    match measured:
        case QueryMeasured():
            return _known(
                {
                    "gen_ai.response.finish_reasons": _reasons(measured.finish_reason),
                    **_usage_attributes(measured.usage),
                    # Attributes cannot be decimals.
                    "haptera.cost_usd": None if measured.cost is None else float(measured.cost),
                    "haptera.stop_reason": measured.stop_reason,
                    "haptera.turns": measured.turns,
                    "haptera.attempts": measured.attempts,
                    "haptera.tool_calls": measured.tool_calls,
                }
            )
        case TurnMeasured():
            first = measured.first_token_ms
            return _known(
                {
                    "gen_ai.response.model": measured.response_model,
                    "gen_ai.response.id": measured.response_id,
                    "gen_ai.response.finish_reasons": _reasons(measured.finish_reason),
                    "gen_ai.response.time_to_first_chunk": None if first is None else first / 1000,
                    **_usage_attributes(measured.usage),
                    "haptera.cost_usd": None if measured.cost is None else float(measured.cost),
                    "haptera.request.id": measured.request_id,
                }
            )
        case ToolMeasured():
            return {"haptera.outcome": measured.outcome, "haptera.attempts": measured.attempts}


def _usage_attributes(usage: Usage) -> dict[str, AttributeValue | None]:
    return {
        # Zero is also what a provider that reports no count has.
        "gen_ai.usage.input_tokens": usage.input or None,
        "gen_ai.usage.output_tokens": usage.output or None,
        "gen_ai.usage.cache_read.input_tokens": usage.cache_read or None,
        "gen_ai.usage.cache_creation.input_tokens": usage.cache_write or None,
        "gen_ai.usage.reasoning.output_tokens": usage.reasoning or None,
    }


def _reasons(reason: str | None) -> tuple[str, ...] | None:
    return (reason,) if reason else None


def _known(attributes: dict[str, Any]) -> Attributes:
    return {key: value for key, value in attributes.items() if value is not None}


def _failure_of(measured: Measured) -> str | None:
    """Return the type of a failure, which is a code; None for what went well."""
    error: ErrorReport | None = measured.error
    if error is not None:
        return str(error.code)
    if isinstance(measured, TurnMeasured) and measured.interrupted:
        return "ABORTED"
    if isinstance(measured, ToolMeasured) and measured.outcome != "ok":
        return measured.outcome
    return None


def _description(measured: Measured, *, content: bool) -> str | None:
    """Return the text of an error; it may quote what a tool or a model said."""
    return scrub(measured.error.message) if content and measured.error is not None else None


_Plain: TypeAlias = dict[str, Any]


def _begun_content(begun: Begun) -> dict[str, str]:
    """Return what is sent: a prompt, a request's messages, or the arguments of a tool."""
    match begun:
        case QueryBegun(prompt=prompt):
            return {"gen_ai.input.messages": _as_json([_message_form(prompt)])} if prompt else {}
        case TurnBegun(request=request):
            system = [{"type": "text", "content": text} for text in request.system]
            tools = [
                {
                    "type": "function",
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": tool.input_schema,
                }
                for tool in request.tools
            ]
            forms = {
                "gen_ai.input.messages": [_message_form(item) for item in request.messages],
                "gen_ai.system_instructions": system,
                "gen_ai.tool.definitions": tools,
            }
            return {name: _as_json(form) for name, form in forms.items() if form}
        case ToolBegun(arguments=arguments):
            return {"gen_ai.tool.call.arguments": _as_json(arguments)}


def _ended_content(measured: Measured, parts: Sequence[Part]) -> dict[str, str]:
    """Return what came back: the answer of a model, or the result of a tool."""
    if isinstance(measured, TurnMeasured) and parts:
        answer = {
            "role": "assistant",
            "parts": [_part_form(part) for part in parts],
            "finish_reason": measured.finish_reason or "",
        }
        return {"gen_ai.output.messages": _as_json([answer])}
    if isinstance(measured, ToolMeasured) and parts:
        return {"gen_ai.tool.call.result": _as_json([_part_form(part) for part in parts])}
    return {}


def _message_form(message: Message) -> _Plain:
    parts = [_part_form(part) for part in message.parts]
    role = "assistant" if isinstance(message, AssistantMessage) else "user"
    # The conventions have a role for results of tools, which are user messages here.
    if parts and all(isinstance(part, ToolResultPart) for part in message.parts):
        role = "tool"
    return {"role": role, "parts": parts}


def _part_form(part: Part) -> _Plain:
    form: _Plain
    match part:
        case TextPart(text=text) | ReminderPart(text=text) | CompactionPart(text=text):
            form = {"type": "text", "content": text}
        case ReasoningPart(text=text):
            form = {"type": "reasoning", "content": text}
        case ToolCallPart(call_id=call_id, name=name):
            arguments = part.arguments if part.invalid is None else part.invalid
            form = {"type": "tool_call", "id": call_id, "name": name, "arguments": arguments}
        case ToolResultPart(call_id=call_id, text=text):
            form = {"type": "tool_call_response", "id": call_id, "response": text}
        case MediaPart(mime=mime, url=str() as url):
            form = {"type": "uri", "mime_type": mime, "uri": url}
        case MediaPart(mime=mime):  # its bytes would make spans as large as files
            form = {"type": "file", "mime_type": mime, "file_id": part.blob or ""}
        # Its content is opaque, and only its provider can read it.
        case ProviderPart(provider=provider):
            form = {"type": "provider", "provider": provider}
    return form


def _as_json(value: object) -> str:
    return scrub(msgspec.json.encode(value).decode())
