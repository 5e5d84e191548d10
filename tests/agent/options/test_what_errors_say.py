"""What errors say: each names what is wrong by the word that the user wrote, and what to write."""

import json
import logging
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from haptera import Agent, AgentError, Approve, ErrorCode, tool
from haptera.agent.agent_options import OTHER_NAMES
from haptera.agent.query_options import ONE_CALL
from haptera.hooks import Hooks, Proceed
from haptera.providers.vendors import VENDORS
from haptera.stores.memory import MemoryStore
from haptera.testing import calls, says
from tests.scripted_agents import failure_of, make_agent, outcomes_in, playing, run_script


def _refused(**options: Any) -> str:
    """Return what the error of an agent with these options says."""
    with pytest.raises(AgentError) as caught:
        make_agent([], **options)
    assert caught.value.code is ErrorCode.CONFIG_INVALID
    return caught.value.message


# Options that are called something else, or belong elsewhere.


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("instructions", "instructions is unknown; did you mean 'system_prompt'?"),
        ("system", "system is unknown; did you mean 'system_prompt'?"),
        ("max_turns", "max_turns is unknown; did you mean 'limits=Limits(turns=...)'?"),
        ("functions", "functions is unknown; did you mean 'tools'?"),
        ("response_format", "response_format is unknown; output_type is an option of session.chat"),
        ("temprature", "temprature is unknown; did you mean 'temperature'?"),
    ],
)
def test_the_word_of_another_library_is_told_the_one_here(name: str, told: str) -> None:
    assert told in _refused(**{name: "x"})


async def test_a_query_is_told_so_too() -> None:
    async with playing([]) as (session, _):
        untyped: Any = session
        with pytest.raises(AgentError, match="did you mean 'output_type'"):
            await untyped.chat("go", response_model=int)


def test_words_of_other_libraries_lead_to_options() -> None:
    known = ONE_CALL.options
    assert {here.partition("=")[0] for here in OTHER_NAMES.values()} <= set(known)
    assert not set(OTHER_NAMES) & set(known)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"retry": [1]}, "retry: Expected `dict`, got `list`"),
        ({"stop": "x"}, "stop: Expected `list`, got `str`"),
        ({"parallel_tools": None}, "parallel_tools: Expected `bool`, got `None`"),
        ({"allowed_tools": 3}, "allowed_tools: Expected `list | None`, got `int`"),
        ({"owner": None}, "option 'owner' is not valid: Expected `str`, got `None`"),
        ({"permissions": {"allow": "x"}}, "Expected `list`, got `str` - at `$.allow`"),
    ],
)
def test_a_wrong_type_is_said_in_the_words_of_python(options: dict[str, Any], told: str) -> None:
    assert told in _refused(**options)


# Models and stores.


@pytest.mark.parametrize(
    ("model", "meant"),
    [
        ("openai:gpt-5", "openai/gpt-5"),
        ("openai:gpt5", "openai/gpt-5"),
        ("anthropic:claude-sonnet-5", "anthropic/claude-sonnet-5"),
        ("ollama:llama3", "ollama/llama3"),
    ],
)
def test_a_model_with_a_colon_is_told_to_write_a_slash(model: str, meant: str) -> None:
    assert _refused(model=model).endswith(f"did you mean '{meant}'?")


def test_a_colon_after_no_provider_is_not_guessed() -> None:
    assert "did you mean" not in _refused(model="zzzzzz:yyyyyy")


async def test_a_local_model_that_was_named_is_not_told_that_none_was(tmp_path: Path) -> None:
    home = {"HOME": str(tmp_path)}
    usual = f"local/{VENDORS['local'].default_model}"
    for model in ("local/qwen2.5-coder-1.5b", usual):
        async with Agent(model, environment=home) as agent:
            named = await failure_of(agent.run("hi"))
        assert "is not on this machine; install it: " in named.message
    async with Agent(environment=home) as agent:
        found = await failure_of(agent.run("hi"))
    assert "it is used when no model is named and no API key is found" in found.message


def test_a_wrong_store_is_refused_when_the_agent_is_made() -> None:
    assert _refused(store="memory:") == (
        "option 'store': 'memory' takes no location: write 'memory', not 'memory:'"
    )
    assert "option 'store': 'sqlte' is not a store; did you mean 'sqlite'?" in _refused(
        store="sqlte:x"
    )
    variable = {"HAPTERA_STORE": "sqlte:x"}
    assert "HAPTERA_STORE: 'sqlte' is not a store" in _refused(environment=variable)


# The configuration file.


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            '[defaults]\nstore = "sqlte:x"\n',
            "line 2: defaults.store: 'sqlte' is not a store; did y",
        ),
        ('[defaults]\ntitle_model = "tiny"\n', "line 2: defaults.title_model: the model 'tiny' is"),
        (
            '[defaults.compaction]\nmodel = "tiny"\n',
            "line 2: defaults.compaction.model: the model 'tiny' is neither",
        ),
        (
            '[permissions]\ndeny = ["shell"]\n',
            "line 1: permissions: belongs in the table [defaults]: write [defaults.permissions]",
        ),
        ('model = "a/b"\n', "line 1: model: belongs in the table [defaults]"),
        ("buffer_size = 3\n", "line 1: buffer_size: belongs in the table [runtime]"),
        ('[defaults]\nstop = "x"\n', "line 2: defaults.stop: Expected `array`, got `str`"),
        ("[defaults]\nretry = 3\n", "line 2: defaults.retry: Expected `table`, got `int`"),
    ],
)
def test_a_mistake_in_the_file_is_named_with_file_and_line(
    text: str, told: str, tmp_path: Path
) -> None:
    (tmp_path / "config.toml").write_text(text)
    (tmp_path / "config.toml").chmod(0o600)
    assert f"{tmp_path / 'config.toml'}, {told}" in _refused(config_dir=tmp_path)


# Prompts, sessions and states.


@pytest.mark.parametrize(
    ("prompt", "told"),
    [
        (b"x", "a prompt must be text or a list of parts, not bytes"),
        (None, "a prompt must be text or a list of parts, not NoneType"),
        (["x"], "a list as a prompt has parts, such as TextPart(text='Hello'), not str"),
    ],
)
async def test_a_wrong_prompt_is_named_by_its_own_type(prompt: Any, told: str) -> None:
    async with playing([]) as (session, _):
        assert (await failure_of(session.chat(prompt))).message == told


@pytest.mark.parametrize("name", ["", " \n"])
async def test_an_empty_name_of_a_session_is_called_empty(name: str) -> None:
    agent, _ = make_agent([])
    async with agent:
        with pytest.raises(AgentError, match="a session's name or id must not be empty"):
            agent.session(name)


@pytest.mark.parametrize(
    ("state", "told"),
    [
        (json.dumps({"version": 1}), "not str; read JSON with json.loads() first"),
        (5, "takes a SessionState, or the dictionary of its to_dict(), not int"),
        ({"version": 9}, "session state version 9 cannot be restored"),
    ],
)
async def test_a_state_that_is_none_is_told_what_to_pass(state: Any, told: str) -> None:
    agent, _ = make_agent([])
    async with agent:
        with pytest.raises(AgentError, match=re.escape(told)):
            agent.session(restore=state)


async def test_a_session_that_is_held_is_named_as_it_was_opened() -> None:
    store = MemoryStore()
    first, _ = make_agent([], store=store)
    second, _ = make_agent([], store=store)
    async with first, second, first.session("ana-1") as session:
        by_name = await failure_of(second.session("ana-1").open())
        by_id = await failure_of(second.session(session.session_id).open())
    assert by_name.code is by_id.code is ErrorCode.BUSY
    assert f"session 'ana-1' ({session.session_id}) is " in by_name.message
    assert f"session {session.session_id} is " in by_id.message


# Tools, hooks and answers.


@tool(approval="ask")
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


async def test_arguments_that_an_approver_spoiled_are_not_the_models_mistake(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, "haptera")
    steps = [calls(("pay", {"amount": 20})), says("ok")]
    changed = Approve(arguments={"amount": 20, "typo": 1})
    _, provider = await run_script(steps, tools=[pay], approver=lambda _: changed)
    ((_, outcome, text),) = outcomes_in(provider.requests[1])
    assert outcome == "error"
    assert "its arguments were changed after you made it" in text
    assert "typo" in text
    assert "Correct them" not in text
    assert "tool pay was not run: the arguments that an approver or a hook gave it" in caplog.text


async def test_arguments_that_a_hook_spoiled_are_not_the_models_mistake() -> None:
    hooks = Hooks(before_tool=lambda _: Proceed(arguments={"amount": "much"}))
    steps = [calls(("pay", {"amount": 20})), says("ok")]
    _, provider = await run_script(steps, tools=[pay], hooks=hooks)
    ((_, _, text),) = outcomes_in(provider.requests[1])
    assert "Your own arguments were not the reason" in text


async def test_arguments_of_the_model_that_do_not_fit_are_its_own_to_correct() -> None:
    steps = [calls(("pay", {"amount": "much"})), says("ok")]
    _, provider = await run_script(steps, tools=[pay])
    ((_, _, text),) = outcomes_in(provider.requests[1])
    assert text.endswith("Correct them and call again.")


async def test_a_hook_that_returns_nothing_is_told_what_it_must_return() -> None:
    def forget(_given: object) -> Any:
        """Change nothing, and return nothing either."""

    async with playing([], hooks=Hooks(transform_messages=forget)) as (session, _):
        error = await failure_of(session.chat("go"))
    assert error.code is ErrorCode.HOOK_FAILED
    assert "returned an invalid value: expected a list of messages, not NoneType" in error.message


async def test_an_answer_that_never_matches_names_the_schema() -> None:
    class City(msgspec.Struct):
        name: str

    async with playing([says("{}")] * 3) as (session, _):
        error = await failure_of(session.chat("go", output_type=City))
    assert (
        "the answer is not the output 'City' that was asked for, after 3 attempts: "
        in error.message
    )
