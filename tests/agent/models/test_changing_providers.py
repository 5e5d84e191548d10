"""A session that is with another provider at every turn, in the middle of loops, too."""

import json
import re
from collections import Counter
from itertools import cycle, pairwise
from pathlib import Path

from haptera import Agent
from tests.fixtures_report import Report
from tests.providers.faulty_server import Connection, FaultyServer, Request, faulty_server
from tests.providers.grammar.judges import faults_of
from tests.providers.replay_server import Recorded, recorded
from tests.providers.vendors_by_recording import CalledTools, specs_of

MODELS = {
    "anthropic-messages": "anthropic/claude-sonnet-4-5",
    "deepseek-chat": "deepseek/deepseek-chat",
    "openai-responses": "openai/gpt-5.5",
    "gemini-generatecontent": "gemini/gemini-3-flash-preview",
    "ollama-native": "ollama/qwen3:4b",
}
PATHS = {
    "messages": "anthropic-messages",
    "completions": "deepseek-chat",
    "responses": "openai-responses",
    "chat": "ollama-native",
}
ANSWERS = {
    "anthropic-messages": (
        "llm-anthropic.test_fixed_version_tool_chain_with_thinking_display_regression.0",
        "llm-anthropic.test_fixed_version_tool_chain_with_thinking_display_regression.1",
    ),
    "deepseek-chat": (
        "ruby_llm.chat_function_calling_deepseek_deepseek_chat_can_use_tools_w_f7602715.0",
        "ruby_llm.chat_function_calling_deepseek_deepseek_chat_can_use_tools_w_f7602715.1",
    ),
    "openai-responses": (
        "llm.test_responses_tool_use_streaming.0",
        "llm.test_responses_tool_use_streaming.1",
    ),
    "gemini-generatecontent": (
        "pydantic-ai.test_google_streaming_tool_call_thought_signature.0",
        "pydantic-ai.test_google_streaming_tool_call_thought_signature.1",
    ),
    "ollama-native": (
        "rig.reasoning_tool_roundtrip_streaming.0",
        "rig.raw_capture_agent_matrix_multi_turn_tool_run_records_distinct_raw_streamed.1",
    ),
}


def api_of(request: Request) -> str:
    """Return the protocol that a request was made in."""
    end = request.path.partition("?")[0].rpartition("/")[2]
    return PATHS.get(end, "gemini-generatecontent")


class EveryProvider:
    """A server that answers in every protocol: with a call so many times, then with a text."""

    def __init__(self, wire: Path) -> None:
        self.calls_left = 0
        self._used = 0
        self.replies: dict[str, tuple[Recorded, Recorded]] = {}
        for api, (call, text) in ANSWERS.items():
            folder = wire / "open" / api
            self.replies[api] = (recorded(folder / call), recorded(folder / text))

    async def __call__(self, connection: Connection) -> None:
        call, text = self.replies[api_of(connection.request)]
        reply = call if self.calls_left else text
        self.calls_left = max(0, self.calls_left - 1)
        await connection.head(headers={"content-type": reply.content_type})
        await connection.piece(self._with_new_ids(reply.body))
        await connection.end()

    def _with_new_ids(self, body: bytes) -> bytes:
        """Return a recorded reply with ids that no reply before it had."""
        self._used += 1
        return re.sub(rb"\b((?:fc|rs|msg|resp|call|toolu)_)\w{4}", rb"\g<1>%04d" % self._used, body)


def environment(url: str) -> dict[str, str]:
    """Return variables with a key for every provider, all of them at one address."""
    addresses = {
        "ANTHROPIC": "ANTHROPIC_BASE_URL",
        "DEEPSEEK": "DEEPSEEK_BASE_URL",
        "OPENAI": "OPENAI_BASE_URL",
        "GEMINI": "GEMINI_BASE_URL",
        "OLLAMA": "OLLAMA_HOST",
    }
    keys = {f"{name}_API_KEY": "x" for name in addresses}
    return {**keys, **dict.fromkeys(addresses.values(), url)}


def agent_at(url: str, provider: EveryProvider, tools: CalledTools) -> Agent:
    """Make an agent that reaches every provider at `url`, with the tools that they call."""
    specs = {
        spec.name: spec for call, _ in provider.replies.values() for spec in specs_of(call.request)
    }
    return Agent(
        MODELS["anthropic-messages"],
        tools=[tools.tool(spec) for spec in specs.values()],
        environment=environment(url),
        thinking="high",
        loop_threshold=None,
    )


def refused(server: FaultyServer) -> list[tuple[str, list[str]]]:
    """Return every request that its provider would refuse, and why."""
    found = []
    for request in server.requests:
        api = api_of(request)
        model = MODELS[api].partition("/")[2]
        if faults := faults_of(api, json.loads(request.body), model=model):
            found.append((api, faults))
    return found


async def test_a_session_may_change_its_provider_at_every_query(wire: Path, report: Report) -> None:
    provider, tools = EveryProvider(wire), CalledTools()
    async with (
        faulty_server(provider) as server,
        agent_at(server.url, provider, tools) as agent,
        agent.session() as session,
    ):
        for model in (*MODELS.values(), *reversed(MODELS.values())):
            await session.configure(model=model)
            provider.calls_left = 1
            result = await session.chat("Go on.")
            assert f"{result.provider}/{result.model}".startswith(model.partition("/")[0])
            assert result.text
    assert len(tools.calls) == 10
    assert Counter(map(api_of, server.requests)) == dict.fromkeys(MODELS, 4)
    assert refused(server) == []
    report(f"a provider per query: {len(server.requests)} requests, 0 refused")


async def test_a_session_may_change_its_provider_at_every_turn_of_a_loop(
    wire: Path, report: Report
) -> None:
    following = cycle(MODELS.values())

    async def move() -> None:
        await session.configure(model=next(following))

    provider, tools = EveryProvider(wire), CalledTools(meanwhile=move)
    turns = 3 * len(MODELS)
    async with (
        faulty_server(provider) as server,
        agent_at(server.url, provider, tools) as agent,
        agent.session() as session,
    ):
        provider.calls_left = turns - 1
        result = await session.chat("Go round.")
    assert result.turns == turns == len(server.requests)
    order = [api_of(request) for request in server.requests]
    assert all(first != second for first, second in pairwise(order[1:]))
    assert refused(server) == []
    report(f"a provider per turn: {len(server.requests)} requests, 0 refused")
