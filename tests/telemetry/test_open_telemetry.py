"""OpenTelemetry: spans and metrics of queries, turns and tool calls, as a real SDK gets them."""

import asyncio
import gc
import json
import re
import subprocess
import sys
from typing import Any

import pytest
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes
from opentelemetry.semconv._incubating.metrics import gen_ai_metrics
from opentelemetry.semconv.attributes import error_attributes
from opentelemetry.trace import SpanKind, StatusCode

from haptera import AgentSession, MediaPart, TextPart, sync, tool
from haptera.model.errors import ErrorCode, ProviderError
from haptera.model.settings import RetrySettings
from haptera.model.usage import Usage
from haptera.ports.telemetry import Begun
from haptera.providers.vendors import VENDORS, Vendor, trace_name_of
from haptera.telemetry import OpenTelemetry
from haptera.testing import Gate, ScriptedProvider, calls, reasoning, says
from haptera.testing.clocks import AutoClock
from haptera.testing.scripted_provider import Step
from tests.benchmarks.test_counts import FEW, MANY, Calls, consume, streamed
from tests.scripted_agents import failure_of, playing
from tests.telemetry.spans import Collected, attributes_of

SCRIPT: list[Step] = [
    calls(("look", {"path": "secret.txt"}), ids=["call_1"]),
    says("The secret is out.", usage=Usage(input=30, output=7, cache_read=20, reasoning=2)),
]
NAMES = {
    value
    for module in (gen_ai_attributes, gen_ai_metrics, error_attributes)
    for value in vars(module).values()
    if isinstance(value, str)
}
CONTENT = {
    "gen_ai.input.messages",
    "gen_ai.output.messages",
    "gen_ai.system_instructions",
    "gen_ai.tool.definitions",
    "gen_ai.tool.call.arguments",
    "gen_ai.tool.call.result",
}


@tool
async def look(path: str) -> str:
    """Look at a path."""
    return f"{path} is a secret"


async def traced(script: list[Step], *, content: bool = False, **options: Any) -> Collected:
    """Run one prompt on a script, and return what the SDK got."""
    collected = Collected(content=content)
    options = {"tools": [look], "telemetry": collected.telemetry, **options}
    async with playing(script, **options) as (session, _):
        await session.chat("a secret prompt")
    return collected


# The spans of a query with two turns and a tool.


async def test_a_query_with_two_turns_and_a_tool_is_four_spans_of_one_trace() -> None:
    collected = await traced(SCRIPT)
    assert collected.tree() == [
        ("invoke_agent", None),
        ("chat one", "invoke_agent"),
        ("execute_tool look", "invoke_agent"),
        ("chat one", "invoke_agent"),
    ]
    assert len({span.context.trace_id for span in collected.spans if span.context}) == 1
    assert [span.kind for span in collected.spans] == [
        SpanKind.CLIENT,
        SpanKind.INTERNAL,
        SpanKind.CLIENT,
        SpanKind.INTERNAL,
    ]
    assert {span.status.status_code for span in collected.spans} == {StatusCode.UNSET}


async def test_every_span_has_the_session_s_id() -> None:
    collected = Collected()
    async with playing(SCRIPT, tools=[look], telemetry=collected.telemetry) as (session, _):
        await session.chat("go")
        session_id = session.session_id
    ids = [attributes_of(span)["gen_ai.conversation.id"] for span in collected.spans]
    assert ids == [session_id] * 4
    assert len({attributes_of(span)["haptera.query.id"] for span in collected.spans}) == 1


async def test_the_exporter_prints_what_each_span_is_about() -> None:
    collected = await traced(SCRIPT, temperature=0.5, max_tokens=100)
    first, ran, second, query = (json.loads(span.to_json()) for span in collected.spans)
    varying = ("gen_ai.conversation.id", "haptera.query.id", "haptera.turn.id")
    for span in (first, ran, second, query):
        for name in (*varying, "gen_ai.response.time_to_first_chunk"):
            span["attributes"].pop(name, None)
    assert first["attributes"] == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "scripted",
        "gen_ai.request.model": "one",
        "gen_ai.request.stream": True,
        "gen_ai.request.max_tokens": 100,
        "gen_ai.request.temperature": 0.5,
        "gen_ai.output.type": "text",
        "gen_ai.response.model": "scripted",
        "gen_ai.response.finish_reasons": ["tool_use"],
        "gen_ai.usage.input_tokens": 10,
        "gen_ai.usage.output_tokens": 5,
        "haptera.attempt": 1,
    }
    assert ran["attributes"] == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "look",
        "gen_ai.tool.type": "function",
        "gen_ai.tool.description": "Look at a path.",
        "gen_ai.tool.call.id": "call_1",
        "haptera.outcome": "ok",
        "haptera.attempts": 1,
    }
    assert second["attributes"]["gen_ai.usage.cache_read.input_tokens"] == 20
    assert second["attributes"]["gen_ai.usage.reasoning.output_tokens"] == 2
    assert query["attributes"] == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.provider.name": "scripted",
        "gen_ai.request.model": "one",
        "gen_ai.response.finish_reasons": ["end_turn"],
        "gen_ai.usage.input_tokens": 40,
        "gen_ai.usage.output_tokens": 12,
        "gen_ai.usage.cache_read.input_tokens": 20,
        "gen_ai.usage.reasoning.output_tokens": 2,
        "haptera.stop_reason": "complete",
        "haptera.turns": 2,
        "haptera.attempts": 2,
        "haptera.tool_calls": 1,
    }


async def test_names_are_those_of_the_semantic_conventions() -> None:
    collected = await traced(SCRIPT, content=True, system_prompt="Be brief.")
    used = {name for span in collected.spans for name in attributes_of(span)}
    assert {name for name in used if not name.startswith("haptera.")} <= NAMES
    assert used >= CONTENT


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("gemini", "gcp.gemini"),
        ("vertex", "gcp.vertex_ai"),
        ("azure", "azure.ai.openai"),
        ("azure-responses", "azure.ai.openai"),
        ("mistral", "mistral_ai"),
        ("xai-responses", "x_ai"),
        ("deepseek-responses", "deepseek"),
        ("anthropic", "anthropic"),
        ("openai-chat", "openai"),
        ("openrouter-responses", "openrouter"),
        ("house", "house"),
    ],
)
async def test_providers_have_the_names_that_the_conventions_give_them(
    ours: str, theirs: str
) -> None:
    collected = Collected()
    options: Any = {"model": f"{ours}/large", "api_key": "k", "base_url": "http://127.0.0.1:9"}
    options |= {"retry": RetrySettings(max_retries=0), "telemetry": collected.telemetry}
    options |= {"environment": {"GOOGLE_CLOUD_PROJECT": "p"}}
    async with playing([], **options) as (session, _):
        await failure_of(session.chat("go"))
    for name in ("invoke_agent", "chat large"):
        assert attributes_of(collected.named(name))["gen_ai.provider.name"] == theirs


CONVENTIONS = {value.value for value in gen_ai_attributes.GenAiProviderNameValues}


@pytest.mark.parametrize("vendor", VENDORS.values(), ids=lambda row: row.name)
def test_a_vendor_has_the_name_that_the_conventions_have_for_it(vendor: Vendor) -> None:
    """One that they do not have goes by its own name, which none of theirs is like."""
    if trace_name_of(vendor.name) not in CONVENTIONS:
        assert vendor.trace_name == ""
        like = [name for name in CONVENTIONS if vendor.name in re.sub(r"[^a-z]", "", name)]
        assert like == []


# Where spans belong.


async def test_a_query_s_span_belongs_to_the_span_that_its_prompt_was_sent_in() -> None:
    collected = Collected()
    async with playing([says("fine")], telemetry=collected.telemetry) as (session, _):
        with collected.tracer.start_as_current_span("request"):
            await session.chat("go")
    assert ("invoke_agent", "request") in collected.tree()


def test_a_span_of_blocking_code_is_the_parent_of_its_query() -> None:
    collected, provider = Collected(), ScriptedProvider([says("fine")])
    options: Any = {"providers": [provider], "environment": {}, "telemetry": collected.telemetry}
    request = collected.tracer.start_as_current_span("request")
    with sync.Agent("scripted/one", **options) as agent, request:
        agent.run("go")
    assert ("invoke_agent", "request") in collected.tree()


async def test_what_a_tool_does_belongs_to_the_tool_s_span() -> None:
    collected = Collected()

    @tool
    async def fetch() -> str:
        """Fetch."""
        with collected.tracer.start_as_current_span("GET"):
            return "got it"

    @tool
    def read() -> str:
        """Read, in a thread."""
        with collected.tracer.start_as_current_span("SELECT"):
            return "row"

    script = [calls(("fetch", {}), ("read", {})), says("fine")]
    async with playing(script, tools=[fetch, read], telemetry=collected.telemetry) as (session, _):
        await session.chat("go")
    assert {("GET", "execute_tool fetch"), ("SELECT", "execute_tool read")} <= set(collected.tree())


async def test_what_a_model_client_does_belongs_to_the_turn_s_span() -> None:
    collected = Collected()

    async def send() -> None:
        with collected.tracer.start_as_current_span("POST"):
            pass

    async with playing([[send, *says("fine")]], telemetry=collected.telemetry) as (session, _):
        await session.chat("go")
    assert ("POST", "chat one") in collected.tree()


async def test_no_span_is_current_after_a_query() -> None:
    collected = Collected()
    async with playing([says("1"), says("2")], telemetry=collected.telemetry) as (session, _):
        await session.chat("one")
        await session.chat("two")
    queries = [span for span in collected.spans if span.name == "invoke_agent"]
    assert [span.parent for span in queries] == [None, None]


# Content is off unless it is asked for.


async def test_no_content_is_recorded_by_default() -> None:
    script: list[Step] = [
        calls(("look", {"path": "secret.txt"}), ("fail", {"path": "secret"})),
        [*reasoning("secret thought"), *says("The secret is out.")],
    ]

    @tool
    async def fail(path: str) -> str:
        """Fail."""
        raise RuntimeError(f"{path} is a secret")

    collected = await traced(script, tools=[look, fail], system_prompt="a secret instruction")
    printed = "".join(span.to_json() for span in collected.spans)
    assert "secret" not in printed
    assert attributes_of(collected.named("execute_tool fail"))["error.type"] == "TOOL_FAILED"


async def test_content_is_recorded_when_it_is_asked_for() -> None:
    collected = await traced(SCRIPT, content=True, system_prompt="Be brief.")
    first, ran, second, query = map(attributes_of, collected.spans)
    assert json.loads(query["gen_ai.input.messages"]) == [
        {"role": "user", "parts": [{"type": "text", "content": "a secret prompt"}]}
    ]
    assert json.loads(first["gen_ai.system_instructions"]) == [
        {"type": "text", "content": "Be brief."}
    ]
    assert json.loads(first["gen_ai.tool.definitions"])[0]["name"] == "look"
    call = {
        "type": "tool_call",
        "id": "call_1",
        "name": "look",
        "arguments": {"path": "secret.txt"},
    }
    assert json.loads(first["gen_ai.output.messages"]) == [
        {"role": "assistant", "parts": [call], "finish_reason": "tool_use"}
    ]
    assert json.loads(ran["gen_ai.tool.call.arguments"]) == {"path": "secret.txt"}
    assert json.loads(ran["gen_ai.tool.call.result"]) == [
        {"type": "text", "content": "secret.txt is a secret"}
    ]
    result = {"type": "tool_call_response", "id": "call_1", "response": "secret.txt is a secret"}
    assert json.loads(second["gen_ai.input.messages"])[-1] == {"role": "tool", "parts": [result]}


async def test_media_are_recorded_without_their_bytes() -> None:
    collected = Collected(content=True)
    image, link = (
        MediaPart(mime="image/png", data="aGVsbG8="),
        MediaPart(mime="image/png", url="https://example.com/a.png"),
    )
    async with playing([says("nice")], telemetry=collected.telemetry) as (session, _):
        await session.chat([TextPart(text="look"), image, link])
    sent = json.loads(attributes_of(collected.named("chat one"))["gen_ai.input.messages"])
    assert sent[0]["parts"][1:] == [
        {"type": "file", "mime_type": "image/png", "file_id": ""},
        {"type": "uri", "mime_type": "image/png", "uri": "https://example.com/a.png"},
    ]


async def test_a_key_in_content_is_masked() -> None:
    collected = Collected(content=True)
    async with playing([says("fine")], telemetry=collected.telemetry) as (session, _):
        await session.chat("use Bearer sk-ant-0123456789abcdef0123")
    assert "0123456789abcdef" not in "".join(span.to_json() for span in collected.spans)


# Failures and ends.


async def test_a_request_that_failed_is_a_span_of_its_own() -> None:
    overloaded = ProviderError(ErrorCode.OVERLOADED, "later", basis="status", request_id="req_1")
    collected = await traced(
        [overloaded, says("at last")], clock=AutoClock(), retry=RetrySettings(max_retries=1)
    )
    failed, answered, query = collected.spans
    assert attributes_of(failed)["error.type"] == "OVERLOADED"
    assert attributes_of(failed)["haptera.request.id"] == "req_1"
    assert (failed.status.status_code, failed.status.description) == (StatusCode.ERROR, None)
    assert [attributes_of(span)["haptera.attempt"] for span in (failed, answered)] == [1, 2]
    assert {answered.status.status_code, query.status.status_code} == {StatusCode.UNSET}


async def test_an_abort_ends_every_span() -> None:
    gate, collected = Gate(), Collected()
    step: Step = [*says("half")[:3], gate]
    async with playing([step], telemetry=collected.telemetry) as (session, _):
        asking = asyncio.ensure_future(session.chat("go", on_abort="return"))
        await gate.reached.wait()
        session.abort()
        await asking
    assert [span.name for span in collected.spans] == ["chat one", "invoke_agent"]
    assert [attributes_of(span)["error.type"] for span in collected.spans] == ["ABORTED"] * 2


class Broken:
    """A tracing system that fails at everything, or at the end only."""

    def __init__(self, *, begins: bool) -> None:
        self._begins = begins

    def begin(self, begun: Begun) -> Any:
        if not self._begins:
            raise RuntimeError("the collector is gone")
        return self

    def __enter__(self) -> None:
        raise RuntimeError("the collector is gone")


@pytest.mark.parametrize("begins", [False, True])
async def test_a_tracing_system_that_fails_does_no_harm(
    begins: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async with playing(SCRIPT, tools=[look], telemetry=Broken(begins=begins)) as (session, _):
        assert (await session.chat("go")).text == "The secret is out."
    assert "telemetry failed" in caplog.text


# Metrics.


async def test_durations_tokens_and_latencies_are_metrics() -> None:
    collected = await traced(SCRIPT)
    durations = collected.points("gen_ai.client.operation.duration")
    assert {(found["gen_ai.operation.name"], point.count) for found, point in durations} == {
        ("chat", 2),
        ("execute_tool", 1),
        ("invoke_agent", 1),
    }
    tokens = collected.points("gen_ai.client.token.usage")
    assert {(found["gen_ai.token.type"], point.sum) for found, point in tokens} == {
        ("input", 40),
        ("output", 12),
    }
    assert tokens[0][1].explicit_bounds[:4] == (1.0, 4.0, 16.0, 64.0)
    ((found, point),) = collected.points("gen_ai.client.operation.time_to_first_chunk")
    assert point.count == 2
    assert found == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "scripted",
        "gen_ai.request.model": "one",
        "gen_ai.response.model": "scripted",
    }
    every = (
        "gen_ai.client.operation.duration",
        "gen_ai.client.token.usage",
        "gen_ai.client.operation.time_to_first_chunk",
    )
    assert {*every, *(name for each in every for name in collected.points(each)[0][0])} <= NAMES


async def test_a_failure_is_counted_under_its_type() -> None:
    collected = Collected()
    refused = ProviderError(ErrorCode.AUTH, "no", basis="status")
    async with playing([refused], telemetry=collected.telemetry) as (session, _):
        await failure_of(session.chat("go"))
    durations = collected.points("gen_ai.client.operation.duration")
    assert {found["error.type"] for found, _ in durations} == {"AUTH"}


# What it costs, and what it needs.


async def calls_of(deltas: int, **options: Any) -> Calls:
    """Count what an answer of so many deltas calls, in Haptera and in OpenTelemetry."""
    counted = Calls()
    async with playing([streamed(deltas)], **options) as (session, _):
        await _counting(counted, session)
    return counted


async def _counting(counted: Calls, session: AgentSession) -> None:
    gc.collect()
    sys.setprofile(counted)
    try:
        await consume(session)
    finally:
        sys.setprofile(None)


def grown(few: Calls, many: Calls) -> dict[str, int]:
    """Return what more deltas call more often, without the ids, which are minted in stocks."""
    more = many.counts - few.counts
    return {name: count for name, count in more.items() if not name.startswith("model/ids")}


def per_delta(counts: dict[str, int]) -> dict[str, float]:
    """How often each function is called for a delta, without those that run now and then.

    An append may hold one delta more or less, and a late one may come between, by their time.
    """
    rounded = {name: round(count / (MANY - FEW), 1) for name, count in counts.items()}
    return {name: count for name, count in rounded.items() if count}


@pytest.mark.slow
async def test_a_delta_costs_no_call_more_with_tracing_and_none_is_for_measuring() -> None:
    off = grown(await calls_of(FEW), await calls_of(MANY))
    on = grown(
        await calls_of(FEW, telemetry=Collected().telemetry),
        await calls_of(MANY, telemetry=Collected().telemetry),
    )
    assert per_delta(on) == per_delta(off)
    rooms = ("engine/measurements", "telemetry/", "ports/telemetry")
    assert [name for name in off if name.startswith(rooms)] == []


async def test_without_an_sdk_nothing_is_recorded_and_the_query_runs() -> None:
    async with playing(SCRIPT, tools=[look], telemetry=OpenTelemetry()) as (session, _):
        assert (await session.chat("go")).text == "The secret is out."


def test_without_the_api_the_error_names_the_extra() -> None:
    program = (
        "import sys; sys.modules['opentelemetry'] = None\n"
        "import haptera\n"
        "try:\n    import haptera.telemetry\n"
        "except ImportError as error:\n    print(error)"
    )
    command = [sys.executable, "-c", program]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "pip install 'haptera[otel]'" in said


def test_only_the_api_is_loaded_at_run_time() -> None:
    program = "import sys, haptera.telemetry\nprint(*sorted(sys.modules))"
    command = [sys.executable, "-c", program]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert "opentelemetry.trace" in said
    assert [name for name in said if name.startswith(("opentelemetry.sdk", "pydantic"))] == []
