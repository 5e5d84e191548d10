"""The programs of docs/coming-from print the same with either library, against scripted models.

Run by `make comingfrom`, in an environment that has the other libraries.
"""

import ast
import functools
import io
import json
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import agents
import pydantic_ai
import pydantic_ai.models
import pytest
from agents.models.interface import Model
from agents.models.multi_provider import MultiProvider
from langchain_core.load import dumps
from langchain_core.messages import (
    AIMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
    messages_to_dict,
)
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from openai.types.responses import (
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.profiles import ModelProfile

import haptera
from haptera.exchange import read_session
from haptera.testing import ScriptedProvider, calls, says

FOLDER = Path(__file__).parents[2] / "docs" / "coming-from"
Answer = str | tuple[str, dict[str, Any]]
"""What a model says, or the tool that it calls."""
CITY = '{"name":"Paris","people":2100000}'
PROGRAMS: tuple[tuple[list[Answer], str], ...] = (
    (["Paris."], "Paris."),
    ([("price", {"item": "tea"}), "4 euros."], "4 euros."),
    (["Hello Ana.", "You are Ana."], "You are Ana."),
    ([CITY], "Paris 2100000"),
    ([("pay", {"to": "Ana", "amount": 20}), "Ana has it."], "Ana has it."),
)
"""What the model answers in each of the five programs, and what they print."""
MOVED: list[Answer] = ["Hello Ana.", "You are Ana."]


def _blocks(page: str) -> Iterator[tuple[str, str]]:
    text = (FOLDER / f"{page}.md").read_text(encoding="utf-8")
    yield from re.findall(r"```(py|python)\n(.*?)```", text, re.DOTALL)


def _cases() -> Iterator[Any]:
    for page in ("pydantic-ai", "openai-agents"):
        counts = {"py": 0, "python": 0}
        for kind, code in _blocks(page):
            if "openai_agents_sessions" in code:
                yield pytest.param(code, MOVED, "You are Ana.", id=f"{page}-moved")
                continue
            script, printed = PROGRAMS[counts[kind]]
            whose = page if kind == "py" else "haptera"
            yield pytest.param(code, script, printed, id=f"{page}-{counts[kind] + 1}-{whose}")
            counts[kind] += 1
        assert counts == {"py": len(PROGRAMS), "python": len(PROGRAMS)}


class _FakeModel(Model):
    """Answers of a script, as openai-agents gets them."""

    def __init__(self, script: list[Answer]) -> None:
        self._script = script

    async def get_response(self, *given: Any, **named: Any) -> agents.ModelResponse:
        """Return the next answer; an output that is no object for the library is in one."""
        answer = self._script.pop(0)
        schema = named["output_schema"] if "output_schema" in named else given[4]
        if schema is not None and "response" in schema.json_schema()["properties"]:
            answer = f'{{"response":{answer}}}'
        item: Any = ResponseOutputMessage(
            id="msg_1",
            type="message",
            role="assistant",
            status="completed",
            content=[ResponseOutputText(type="output_text", text=str(answer), annotations=[])],
        )
        if isinstance(answer, tuple):
            item = ResponseFunctionToolCall(
                type="function_call",
                call_id="c1",
                name=answer[0],
                arguments=json.dumps(answer[1]),
            )
        return agents.ModelResponse(output=[item], usage=agents.Usage(), response_id=None)

    def stream_response(self, *_: Any, **__: Any) -> AsyncIterator[Any]:
        """Refuse: no program streams."""
        raise NotImplementedError


def _pydantic_model(script: list[Answer]) -> FunctionModel:
    def answer(_messages: list[ModelMessage], _info: AgentInfo) -> ModelResponse:
        said = script.pop(0)
        part: Any = TextPart(str(said))
        if isinstance(said, tuple):
            part = ToolCallPart(said[0], said[1], "c1")
        return ModelResponse(parts=[part])

    return FunctionModel(answer, profile=ModelProfile(supports_json_schema_output=True))


@pytest.fixture
def models(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Answer]:
    """Put scripted models in the place of real ones, in all three libraries."""
    script: list[Answer] = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    agents.set_tracing_disabled(True)
    monkeypatch.setattr(MultiProvider, "get_model", lambda *_: _FakeModel(script))
    for place in (pydantic_ai.models, pydantic_ai.agent.models):
        monkeypatch.setattr(place, "infer_model", lambda *_, **__: _pydantic_model(script))
    return script


def _scripted_agent(
    agent: type[haptera.Agent], provider: ScriptedProvider, _model: str, **options: Any
) -> haptera.Agent:
    """Make an agent as a page does, with a scripted model in place of the named one."""
    return agent("scripted/one", providers=[provider], environment={}, **options)


async def _run(code: str) -> None:
    """Run a block, which awaits at its top level."""
    names: dict[str, Any] = {"__name__": "program"}
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    work = eval(compile(code, "program", "exec", flags), names)  # noqa: S307 - our own page
    if work is not None:
        await work


@pytest.mark.parametrize(("code", "script", "printed"), [*_cases()])
async def test_a_program_prints_what_its_neighbour_does(
    models: list[Answer],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    code: str,
    script: list[Answer],
    printed: str,
) -> None:
    models += script
    steps = [calls(each) if isinstance(each, tuple) else says(each) for each in script]
    if "haptera.exchange" in code:  # the first answer is that of the other library
        steps, models[:] = steps[1:], models[:1]
    provider = ScriptedProvider(steps)
    agent = functools.partial(_scripted_agent, haptera.Agent, provider)
    monkeypatch.setattr(haptera, "Agent", agent)
    await _run(code)
    assert capsys.readouterr().out == f"{printed}\n"


async def test_what_pydantic_ai_writes_is_imported_whole(models: list[Answer]) -> None:
    models += [("price", {"item": "tea"}), "4 euros."]
    agent = pydantic_ai.Agent("openai:gpt-5", instructions="Be brief.", system_prompt="A shop.")

    @agent.tool_plain
    def price(item: str) -> dict[str, int]:
        """Return the price of an item in euros."""
        return {item: 4}

    picture = pydantic_ai.BinaryContent(data=b"\xfb\xff", media_type="image/png")
    result = await agent.run(["What does tea cost?", picture])
    session = read_session(io.BytesIO(result.all_messages_json()))
    report = session.report
    assert session.format == "pydantic-ai"
    assert session.system_prompts == ("Be brief.", "A shop.")
    assert (report.messages, report.tool_calls, report.tool_results) == (4, 1, 1)
    assert (report.opaque, report.opaque_parts, report.warnings) == ({}, {}, ())
    assert [each.message.text for each in session.messages][::3] == [
        "What does tea cost?",
        "4 euros.",
    ]


@pytest.mark.parametrize("form", ["messages_to_dict", "dumps", "checkpoint"])
def test_what_langchain_and_langgraph_write_is_imported_whole(form: str) -> None:
    call = {"name": "price", "args": {"item": "tea"}, "id": "c1"}
    messages = [
        SystemMessage("A shop."),
        HumanMessage("What does tea cost?"),
        AIMessage("", tool_calls=[call]),
        ToolMessage("4", tool_call_id="c1", name="price"),
        AIMessage([{"type": "reasoning", "reasoning": "Easy."}, {"type": "text", "text": "4."}]),
    ]
    if form == "checkpoint":
        graph = StateGraph(MessagesState)
        graph.add_node("shop", lambda _: {"messages": messages[1:]})
        graph.add_edge(START, "shop")
        saver = InMemorySaver()
        thread: Any = {"configurable": {"thread_id": "ana"}}
        graph.compile(checkpointer=saver).invoke({"messages": messages[:1]}, thread)
        found = saver.get_tuple(thread)
        assert found is not None
        messages = found.checkpoint["channel_values"]["messages"]
    written = dumps(messages) if form == "dumps" else json.dumps(messages_to_dict(messages))
    session = read_session(io.BytesIO(written.encode()))
    report = session.report
    assert session.format == "langchain"
    assert session.system_prompts == ("A shop.",)
    assert (report.messages, report.tool_calls, report.tool_results) == (4, 1, 1)
    assert (report.opaque, report.opaque_parts, report.warnings) == ({}, {}, ())
    assert session.messages[-1].message.text == "4."
