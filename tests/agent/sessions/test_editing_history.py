"""Editing a conversation: an appended entry changes what is sent, and nothing is rewritten."""

from pathlib import Path

import pytest

from haptera import AgentSession, ErrorCode, TextPart, ToolResultPart, tool
from haptera.model.ids import CallId
from haptera.model.parts import ToolCallPart
from haptera.ports.session_store import Store
from haptera.testing import calls, says
from tests.scripted_agents import failure_of, make_agent, playing
from tests.stores.store_factories import DURABLE, open_store

RAN: list[str] = []


@tool
def pay(amount: int) -> str:
    """Pay."""
    RAN.append(str(amount))
    return f"paid {amount}"


def texts(session: AgentSession) -> list[str]:
    return [message.text for message in session.messages]


async def test_a_message_is_replaced_removed_and_added_and_the_model_sees_that() -> None:
    async with playing([says("a"), says("b"), says("c")]) as (session, provider):
        await session.chat("first")
        await session.chat("second")
        first, _, second, last = session.messages
        await session.replace_message(first.id, "first, but nicer")
        await session.remove_message(second.id)
        added = await session.add_message("by the way", after=last.id)
        assert texts(session) == ["first, but nicer", "ab", "by the way"]
        assert added == session.messages[-1].id
        await session.chat("third")
        sent = provider.requests[-1].messages
        assert [message.text for message in sent] == ["first, but nicer", "ab", "by the waythird"]


async def test_an_edit_is_in_the_log_and_the_same_after_reopening(tmp_path: Path) -> None:
    for kind in DURABLE:
        store: Store = open_store(kind, tmp_path / kind)
        agent, _ = make_agent([says("a")], store=store)
        async with agent.session("one") as session:
            await session.chat("hi")
            await session.replace_message(session.messages[0].id, "hello")
            kept = session.messages
        async with agent.session("one", must_exist=True) as again:
            assert again.messages == kept
            entries = await store.log.read(again.session_id or "")  # type: ignore[arg-type]
        assert entries[-1].kind == "history.edited"
        assert any("hi" in str(entry) for entry in entries), "what was said stays in the log"
        await agent.close()
        await store.close()


async def test_a_rewind_behind_an_edit_takes_it_back() -> None:
    async with playing([says("a"), says("b")]) as (session, _):
        await session.chat("first")
        answer = session.messages[1]
        await session.chat("second")
        await session.remove_message(session.messages[0].id)
        await session.rewind(to=answer.id)
        assert texts(session) == ["first", "a"]
        await session.undo_rewind()
        assert texts(session) == ["second", "b"]


async def test_parts_are_replaced_and_removed() -> None:
    async with playing([says("a")]) as (session, _):
        await session.chat("first")
        prompt = session.messages[0]
        await session.replace_part(prompt.id, 0, TextPart(text="changed"))
        assert session.messages[0].text == "changed"
        error = await failure_of(session.remove_part(prompt.id, 7))
        assert (error.code, "1 parts" in error.message) == (ErrorCode.NOT_FOUND, True)
        await session.remove_part(session.messages[1].id, 0)
        assert texts(session) == ["changed"]


async def test_a_call_that_comes_in_by_an_edit_is_answered_and_never_run() -> None:
    RAN.clear()
    async with playing([says("a"), says("b")], tools=[pay]) as (session, provider):
        await session.chat("first")
        call = ToolCallPart(call_id=CallId("c1"), name="pay", arguments={"amount": 7})
        await session.add_message([TextPart(text="paying"), call], role="assistant")
        await session.chat("go on")
        assert RAN == []
        results = [
            part
            for message in provider.requests[-1].messages
            for part in message.parts
            if isinstance(part, ToolResultPart)
        ]
        assert [(part.call_id, part.outcome) for part in results] == [("c1", "unknown")]


async def test_removing_the_results_of_a_call_does_not_run_it_again() -> None:
    RAN.clear()
    script = [calls(("pay", {"amount": 3})), says("done"), says("ok")]
    async with playing(script, tools=[pay]) as (session, _):
        await session.chat("pay 3")
        results = session.messages[2]
        await session.remove_message(results.id)
        await session.chat("again?")
        assert RAN == ["3"]


async def test_what_cannot_be_edited_is_refused() -> None:
    async with playing([says("a")]) as (session, _):
        await session.chat("first")
        for attempt in (
            session.remove_message("msg_unknown"),
            session.replace_message("msg_unknown", "x"),
            session.add_message("x", after="msg_unknown"),
        ):
            assert (await failure_of(attempt)).code is ErrorCode.MESSAGE_NOT_FOUND
        for wrong in (
            session.add_message([]),
            session.add_message(""),
            session.replace_message(session.messages[0].id, session.messages[0]),  # type: ignore[arg-type]
            session.add_message([7]),  # type: ignore[list-item]
            session.add_message("x", role="system"),  # type: ignore[arg-type]
        ):
            assert (await failure_of(wrong)).code is ErrorCode.CONFIG_INVALID
        assert texts(session) == ["first", "a"]


@pytest.mark.parametrize("edit", ["add", "remove"])
async def test_a_session_that_waits_for_an_approval_is_not_edited(edit: str) -> None:
    @tool(approval="ask")
    def erase() -> str:
        """Erase."""
        return "erased"

    async with playing([calls(("erase", {})), says("done")], tools=[erase]) as (session, _):
        result = await session.chat("erase it")
        attempt = (
            session.add_message("x")
            if edit == "add"
            else session.remove_message(session.messages[0].id)
        )
        assert (await failure_of(attempt)).code is ErrorCode.BUSY
        await session.approve(result.pending[0].id)
        await session.resume()
