"""Values that users make by hand, under attack: one that cannot be read again is never written."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from haptera import (
    Agent,
    AgentError,
    ApprovalRequest,
    Approve,
    ConfigError,
    Deny,
    ErrorCode,
    MediaPart,
    TextPart,
    tool,
)
from haptera.hooks import Answer, BeforeTool, Block, Hooks, Proceed
from haptera.testing import ScriptedProvider, calls, says
from tests.case_names import stable_name
from tests.scripted_agents import failure_of, make_agent, outcomes_in, playing, run_script

CALL = ("erase", {"path": "notes"})
ANYTHING: Any = object()

WRONG_DECISIONS: list[Any] = [
    Approve(scope=ANYTHING),
    Approve(scope="always"),  # type: ignore[arg-type]
    Approve({"path": ANYTHING}),
    Approve({"path": "\ud800"}),
    Approve(["notes"]),
    Approve(by=7),  # type: ignore[arg-type]
    Deny(7),  # type: ignore[arg-type]
    Approve,
    True,
    None,
]


@tool(approval="ask")
async def erase(path: str) -> str:
    """Erase a file."""
    return f"{path} is gone"


@pytest.mark.parametrize("decision", WRONG_DECISIONS, ids=stable_name)
async def test_what_is_no_decision_of_an_approver_allows_nothing(
    decision: Any, tmp_path: Path
) -> None:
    async def approve(request: ApprovalRequest) -> Any:
        return decision

    options: Any = {"tools": [erase], "approver": approve, "store": f"jsonl:{tmp_path}"}
    async with playing([calls(CALL), says("well")], **options) as (session, provider):
        error = await failure_of(session.chat("go"))
        assert (error.code, len(provider.requests)) == (ErrorCode.HOOK_FAILED, 1)
        assert (await session.chat("again")).text == "well"
    ((_, outcome, told),) = outcomes_in(provider.requests[1])
    assert (outcome, "approver" in told) == ("denied", False)


@pytest.mark.parametrize("decision", WRONG_DECISIONS[:8], ids=stable_name)
async def test_what_is_no_decision_leaves_the_question_open(decision: Any) -> None:
    async with playing([calls(CALL), says("done")], tools=[erase]) as (session, provider):
        rest = await session.chat("go")
        asked = rest.pending[0].id
        with pytest.raises(ConfigError):
            if isinstance(decision, Deny):
                await session.deny(asked, decision.reason)
            else:
                await session.approve(
                    asked, arguments=decision.arguments, scope=decision.scope, by=decision.by
                )
        assert session.view().messages == rest.messages
        await session.approve(asked)
        await session.resume()
    assert outcomes_in(provider.requests[1]) == [("erase", "ok", "notes is gone")]


async def test_another_process_cannot_send_commands_that_the_holder_cannot_read(
    tmp_path: Path,
) -> None:
    agent, _ = make_agent([], store=f"jsonl:{tmp_path}")
    odd: Any = "always"
    async with agent:
        async with agent.session("ana"):
            remote = await agent.remote("ana")
            with pytest.raises(ConfigError):
                await remote.approve("apr_1", scope=odd)
            with pytest.raises(ConfigError):
                await remote.deny("apr_1", ANYTHING)
            with pytest.raises(ConfigError):
                await remote.send("hello", delivery=odd)
        async with agent.session("ana") as session:
            assert session.messages == ()


async def test_a_plain_approver_that_runs_out_has_not_approved_and_does_not_hang() -> None:
    def first(request: ApprovalRequest) -> Approve:
        nothing: Iterator[Approve] = iter(())
        return next(nothing)

    _, provider = await run_script([calls(CALL), says("ok")], tools=[erase], approver=first)
    assert [outcome for _, outcome, _ in outcomes_in(provider.requests[1])] == ["denied"]


async def test_an_approver_that_exits_has_not_approved_and_does_not_end_the_program() -> None:
    async def leave(request: ApprovalRequest) -> Approve:
        raise SystemExit(2)

    _, provider = await run_script([calls(CALL), says("ok")], tools=[erase], approver=leave)
    assert [outcome for _, outcome, _ in outcomes_in(provider.requests[1])] == ["denied"]


def test_an_approver_that_waits_for_ever_does_not_hold_up_the_end_of_the_program() -> None:
    asked, never = threading.Event(), threading.Event()

    def ponder(request: ApprovalRequest) -> Approve:
        asked.set()
        never.wait()
        return Approve()

    async def main() -> None:
        provider = ScriptedProvider([calls(CALL)])
        options: Any = {"providers": [provider], "tools": [erase], "approver": ponder}
        async with Agent("scripted/m", environment={}, **options) as agent, agent.session() as one:
            task = asyncio.ensure_future(one.chat("go", on_abort="return"))
            await asyncio.to_thread(asked.wait)
            one.abort()
            assert (await task).stop_reason == "aborted"

    asyncio.run(main())  # it waits for the threads of its own pool
    never.set()


@pytest.mark.parametrize(
    "verdict",
    [None, True, Block(ANYTHING), Answer(ANYTHING), Answer((TextPart(text=ANYTHING),))],
    ids=stable_name,
)
async def test_what_is_no_verdict_of_a_hook_is_a_failure_of_the_hook(verdict: Any) -> None:
    async def hook(given: BeforeTool) -> Proceed:
        answer: Proceed = verdict
        return answer

    async with playing([calls(CALL)], tools=[erase], hooks=Hooks(before_tool=hook)) as (session, _):
        with pytest.raises(AgentError) as caught:
            await session.chat("go")
    assert caught.value.code is ErrorCode.HOOK_FAILED


def _gives(value: Any) -> Callable[[], Any]:
    async def give() -> Any:
        """Give it."""
        return value

    return give


@pytest.mark.parametrize(
    "value", [TextPart(text=ANYTHING), MediaPart(mime="image/png")], ids=stable_name
)
async def test_a_part_that_is_none_fails_its_tool(value: Any, tmp_path: Path) -> None:
    _, provider = await run_script(
        [calls(("give", {})), says("ok")], tools=[_gives(value)], store=f"jsonl:{tmp_path}"
    )
    ((_, outcome, text),) = outcomes_in(provider.requests[1])
    assert (outcome, "is not valid" in text) == ("error", True)


async def test_text_beside_media_stays_text_and_bytes_become_base64() -> None:
    photo: Any = MediaPart(mime="image/png", data=b"png")  # type: ignore[arg-type]
    _, provider = await run_script(
        [calls(("give", {})), says("ok")], tools=[_gives(["here", photo, {"a": 1}])]
    )
    (result,) = provider.requests[1].messages[-1].parts
    assert getattr(result, "content", None) == (
        TextPart(text="here"),
        MediaPart(mime="image/png", data="cG5n"),
        TextPart(text='{"a":1}'),
    )


async def test_a_coroutine_that_exits_fails_its_tool_and_does_not_end_the_program() -> None:
    async def leave() -> None:
        """Leave."""
        raise SystemExit(2)

    _, provider = await run_script([calls(("leave", {})), says("ok")], tools=[leave])
    ((_, outcome, text),) = outcomes_in(provider.requests[1])
    assert (outcome, "SystemExit" in text) == ("error", True)


async def test_a_generator_that_a_function_returns_is_run_like_its_own() -> None:
    def plain() -> Any:
        """Count."""

        def count() -> Generator[int, None, str]:
            yield 1
            return "counted"

        return count()

    async def other() -> Any:
        """Count."""

        async def count() -> AsyncIterator[str]:
            yield "one"
            yield "two"

        return count()

    script = [calls(("plain", {}), ("other", {})), says("ok")]
    _, provider = await run_script(script, tools=[plain, other])
    assert [text for _, _, text in outcomes_in(provider.requests[1])] == ["counted", "two"]
