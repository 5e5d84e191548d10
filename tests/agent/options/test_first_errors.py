"""The first errors of a new user: short, with the code, and with what to do at the end."""

import importlib.util
import inspect
import pydoc
import re
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import haptera.sync
from haptera import Agent, AgentError, ErrorCode, ToolError, run_agent, tool
from haptera.hooks import Hooks
from haptera.providers.vendors import VENDORS
from haptera.testing import ScriptedProvider, calls, says
from tests.stores.durable_kinds import durable_kind
from tests.stores.store_factories import DURABLE, store_string

MOST_FRAMES = 6
"""Frames of a traceback, the user's own included."""


async def _error_of(*model: str, **options: Any) -> AgentError:
    with pytest.raises(AgentError) as caught:
        async with Agent(*model, **{"environment": {"HOME": "/nowhere"}, **options}) as agent:
            await agent.run("hi")
    return caught.value


def _last_line(error: BaseException) -> str:
    return "".join(traceback.format_exception(error)).rstrip().splitlines()[-1]


async def test_without_a_key_and_without_a_local_model_one_message_names_both_ways(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", _without("xllamacpp"))
    error = await _error_of()
    assert error.code is ErrorCode.CONFIG_MISSING
    for words in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "pip install xllamacpp", "pull_model"):
        assert words in error.message


def _without(package: str) -> Callable[..., Any]:
    find = importlib.util.find_spec
    return lambda name, *more: None if name == package else find(name, *more)


async def test_a_named_model_without_its_key_says_where_to_put_one() -> None:
    error = await _error_of("anthropic/claude-sonnet-5")
    assert error.code is ErrorCode.CONFIG_MISSING
    assert "set ANTHROPIC_API_KEY" in error.message
    assert "api_key=" in error.message


@pytest.mark.parametrize(
    ("model", "meant"),
    [
        ("anthropc/claude", "did you mean 'anthropic'?"),
        ("opnai/gpt-5", "did you mean 'openai'?"),
        ("claude-sonnet-5", "did you mean 'anthropic/claude-sonnet-5'?"),
        ("claude-sonet-5", "did you mean 'anthropic/claude-sonnet-5'?"),
        ("gpt-5", "did you mean 'openai/gpt-5'"),
        ("gemini-2.5-flash", "did you mean 'gemini/gemini-2.5-flash'"),
    ],
)
async def test_a_misspelt_model_is_told_which_one_may_be_meant(model: str, meant: str) -> None:
    error = await _error_of(model)
    assert error.code is ErrorCode.CONFIG_INVALID
    assert meant in error.message


@pytest.mark.parametrize("name", VENDORS)
async def test_a_misspelt_provider_is_told_which_one_may_be_meant(name: str) -> None:
    error = await _error_of(f"{name}{name[-1]}/any")
    assert error.code is ErrorCode.CONFIG_INVALID
    assert f"did you mean {name!r}?" in error.message


@pytest.mark.parametrize(
    ("name", "usual"),
    [(row.name, row.default_model) for row in VENDORS.values() if row.default_model],
)
async def test_a_provider_without_a_model_is_told_its_usual_one(name: str, usual: str) -> None:
    for model in (name, f"{name}/"):
        assert f"'{name}/{usual}'" in (await _error_of(model)).message


async def test_a_provider_of_the_program_may_be_meant_too() -> None:
    error = await _error_of("scriptd/any", providers=[ScriptedProvider()])
    assert "did you mean 'scripted'?" in error.message


@pytest.mark.parametrize("kind", [Agent, haptera.sync.Agent])
def test_two_models_are_refused(kind: Callable[..., object]) -> None:
    with pytest.raises(AgentError, match="two models are given, 'a/b' and 'c/d'") as caught:
        kind("a/b", model="c/d")
    assert caught.value.code is ErrorCode.CONFIG_INVALID


async def test_a_name_like_nothing_is_not_guessed() -> None:
    error = await _error_of("zzzzzz")
    assert "did you mean" not in error.message
    assert "'provider/model'" in error.message


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"thinking": "ultra"}, "thinking: 'ultra' is not allowed; use 'off', 'minimal', 'low'"),
        ({"thinking": "hihg"}, "'hihg' is not allowed (did you mean 'high'?); use 'off'"),
        ({"cache_ttl": "2h"}, "cache_ttl: '2h' is not allowed"),
        ({"unanswered": "stp"}, "'stp' is not allowed (did you mean 'stop'?); use 'stop' or 'deny"),
        ({"on_loop": "ignore"}, "on_loop: 'ignore' is not allowed; use 'ask', 'deny' or 'allow'"),
    ],
)
async def test_a_word_that_is_not_allowed_is_told_which_ones_are(
    options: dict[str, Any], told: str
) -> None:
    error = await _error_of("anthropic/claude-sonnet-5", **options)
    assert error.code is ErrorCode.CONFIG_INVALID
    assert told in error.message


async def test_an_option_of_a_query_is_told_which_words_are_allowed() -> None:
    async with Agent("scripted/any", providers=[ScriptedProvider()]) as agent:
        with pytest.raises(AgentError, match="'later' is not allowed; use 'queue', 'steer'"):
            await agent.session().chat("hi", delivery="later")  # type: ignore[arg-type]


async def test_a_query_in_a_session_of_its_own_has_no_delivery() -> None:
    """Nothing else can run in that session."""
    async with Agent("scripted/any", providers=[ScriptedProvider()]) as agent:
        for begin in (agent.run, agent.stream):
            with pytest.raises(AgentError, match=r"delivery is an option of .*session.chat\(\)"):
                await begin("hi", delivery="reject")  # type: ignore[call-arg]
    with pytest.raises(AgentError, match=r"delivery is an option of .*session.chat\(\)"):
        await run_agent("hi", model="scripted/any", delivery="reject")  # type: ignore[call-arg]


async def test_a_session_that_is_not_there_names_owner_and_project() -> None:
    async with Agent("scripted/any", providers=[ScriptedProvider()], project="house") as agent:
        for attempt in (agent.session("nope", must_exist=True).open(), agent.remote("nope")):
            with pytest.raises(AgentError) as caught:
                await attempt
            assert caught.value.code is ErrorCode.NOT_FOUND
            assert "'nope' of owner 'local' in project 'house'" in caught.value.message
            assert len(traceback.extract_tb(caught.value.__traceback__)) <= MOST_FRAMES


@pytest.mark.parametrize(
    "options",
    [{}, {"thinking": "ultra"}, {"tools": [lambda: 1]}, {"max_tokens": -1}],
    ids=["no key", "a wrong word", "a tool without a name", "a number out of bounds"],
)
async def test_a_traceback_is_short_and_ends_with_class_code_and_advice(
    options: dict[str, Any],
) -> None:
    error = await _error_of("anthropic/claude-sonnet-5", **options)
    assert len(traceback.extract_tb(error.__traceback__)) <= MOST_FRAMES
    assert error.__cause__ is None
    assert _last_line(error) == f"haptera.ConfigError: {error.code}: {error.message}"


async def test_a_stream_that_fails_has_a_short_traceback_too() -> None:
    async with Agent("anthropic/x", environment={"HOME": "/nowhere"}) as agent:
        with pytest.raises(AgentError) as caught:
            async for _ in agent.stream("hi"):
                pass
    assert len(traceback.extract_tb(caught.value.__traceback__)) <= MOST_FRAMES
    assert _last_line(caught.value).startswith("haptera.ConfigError: CONFIG_MISSING: there is no")


def test_blocking_code_has_short_tracebacks_too(tmp_path: Path) -> None:
    with pytest.raises(AgentError) as caught:
        haptera.sync.run_agent("hi", model="anthropic/x", environment={"HOME": str(tmp_path)})
    assert len(traceback.extract_tb(caught.value.__traceback__)) <= MOST_FRAMES
    assert _last_line(caught.value).startswith("haptera.ConfigError: CONFIG_MISSING: there is no")


async def test_what_a_hook_raised_is_still_shown_with_its_own_traceback() -> None:
    @tool
    def look() -> str:
        """Look."""
        return "seen"

    async def hook(call: Any) -> Any:
        raise LookupError("the list is empty")

    provider = ScriptedProvider([calls(("look", {})), says("ok")])
    async with Agent(
        "scripted/any", providers=[provider], tools=[look], hooks=Hooks(before_tool=hook)
    ) as agent:
        with pytest.raises(AgentError) as caught:
            await agent.run("hi")
    shown = "".join(traceback.format_exception(caught.value))
    assert "LookupError: the list is empty" in shown
    assert 'raise LookupError("the list is empty")' in shown


def test_an_error_says_its_code_and_keeps_its_message_apart() -> None:
    error = ToolError(ErrorCode.TOOL_FAILED, "it broke")
    assert str(error) == "TOOL_FAILED: it broke"
    assert error.message == "it broke"
    assert error.args == ("it broke",)


# What is passed in the wrong place, or is something else.


class NotAClient:
    """Has the name of a provider, and nothing else."""

    provider = "nothing"


@pytest.mark.parametrize(
    ("providers", "told"),
    [
        ("anthropic", "must be a list of model clients, such as [MyClient()], not str"),
        (None, "must be a list of model clients, such as [MyClient()], not NoneType"),
        ({"a": ScriptedProvider()}, "must be a list of model clients, such as [MyClient()], not d"),
        (["anthropic"], "as in Agent('anthropic/<model>'), and needs no providers="),
        ([ScriptedProvider], "is the class ScriptedProvider; pass an instance: ScriptedProvider("),
        ([None], "Each item is a model client: an object with `provider` (its name), `stream`"),
        ([[ScriptedProvider()]], "is of type list"),
        ([lambda: 1], "is of type function"),
        ([NotAClient()], "is of type NotAClient, which has no stream, count_tokens, close. Each"),
    ],
)
async def test_a_wrong_provider_is_told_what_to_pass(providers: Any, told: str) -> None:
    error = await _error_of("scripted/any", providers=providers)
    assert error.code is ErrorCode.CONFIG_INVALID
    assert told in error.message


async def test_providers_may_come_from_a_generator() -> None:
    clients = (client for client in [ScriptedProvider([says("hi")])])
    async with Agent("scripted/any", providers=clients) as agent:
        assert (await agent.run("hello")).text == "hi"


async def test_an_unknown_option_names_the_method_that_was_called() -> None:
    async with Agent("scripted/any", providers=[ScriptedProvider()]) as agent:
        session: Any = agent.session()
        untyped: Any = agent
        for method, name in (
            (untyped.run, "agent.run()"),
            (untyped.stream, "agent.stream()"),
            (session.chat, "session.chat()"),
            (session.stream, "session.stream()"),
        ):
            told = rf"^CONFIG_INVALID: {re.escape(name)}: typo is unknown"
            with pytest.raises(TypeError, match=told):
                started = method("hi", typo=1)
                await started


@pytest.mark.parametrize("name", ["name", "session_id", "id"])
async def test_the_name_of_a_session_is_told_to_be_the_first_argument(name: str) -> None:
    async with Agent("scripted/any", providers=[ScriptedProvider()]) as agent:
        untyped: Any = agent
        with pytest.raises(TypeError, match=rf"{name} is the first argument.*agent\.session\('ana"):
            untyped.session(**{name: "x"})


@pytest.mark.parametrize(
    ("model", "told"),
    [
        ("anthropic/", "write it as 'provider/model', such as 'anthropic/claude-sonnet-5'"),
        ("openai/", "write it as 'provider/model', such as 'openai/gpt-5'"),
        ("mine/", "'mine/' names a provider and no model; write it as 'provider/model'"),
        ("anthropic", "did you mean 'anthropic/claude-sonnet-5'?"),
    ],
)
async def test_a_provider_without_a_model_is_told_to_name_one(model: str, told: str) -> None:
    error = await _error_of(model)
    assert error.code is ErrorCode.CONFIG_INVALID
    assert told in error.message


@pytest.mark.parametrize("kind", DURABLE)
async def test_a_store_in_folders_that_are_not_there_is_refused_and_makes_none(
    kind: str, tmp_path: Path
) -> None:
    model = ScriptedProvider([says("hi")])
    store = store_string(kind, tmp_path / "one")
    error = await _error_of("scripted/any", providers=[model], store=store)
    assert error.code is ErrorCode.CONFIG_INVALID
    assert f"there is no folder '{tmp_path}/one'" in error.message
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", DURABLE)
async def test_a_store_makes_the_one_folder_that_is_missing(kind: str, tmp_path: Path) -> None:
    model = ScriptedProvider([says("hi")])
    store = store_string(kind, tmp_path)
    async with Agent("scripted/any", providers=[model], store=store) as agent:
        assert (await agent.run("hello")).text == "hi"
    assert list(tmp_path.iterdir()) == [durable_kind(kind).root(tmp_path)]


async def test_a_session_that_is_not_there_shows_no_frame_of_the_engine() -> None:
    async with Agent("scripted/any", providers=[ScriptedProvider()]) as agent:
        with pytest.raises(AgentError) as caught:
            await agent.remote("nope")
    frames = traceback.extract_tb(caught.value.__traceback__)
    assert [frame.name for frame in frames][1:] == ["remote"]


def test_the_help_of_an_agent_shows_its_options_once() -> None:
    shown = pydoc.plain(pydoc.render_doc(Agent))
    signatures = [line for line in shown.splitlines() if "fallbacks: " in line]
    assert len([line for line in signatures if "Agent(model" in line or "__init__" in line]) == 1
    assert "fallbacks" in inspect.signature(Agent).parameters
