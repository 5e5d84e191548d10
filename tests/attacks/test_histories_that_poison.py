"""What a provider would refuse for ever, under attack: it is refused at once, or made readable."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from haptera import ConfigError, ErrorCode, MediaPart, TextPart, tool
from haptera.hooks import Answer, BeforeTool, Hooks, Proceed
from haptera.model.errors import HookError
from haptera.model.log.entry import Entry
from haptera.model.log.queries import QueryStarted
from haptera.model.log.sessions import SessionOpened
from haptera.model.log.tools import ToolEnded
from haptera.model.messages import UserMessage
from haptera.model.parts import Part, ToolCallPart, ToolResultPart
from haptera.stores.memory import MemoryStore
from haptera.testing import ScriptedProvider, calls, says
from tests.history_grammar import violations
from tests.scripted_agents import live_of, make_agent, outcomes_in, playing, run_script

SOUND = MediaPart(mime="image/png", data="iVBORw0KGgo=")
BAD_DATA = [
    "not base64!",
    "",
    "iVBORw0KGgo",
    "iVBOR\nw0KGgo=",
    "iVBORw0KGgo=\n",
    "-_==",
    "é",
    "====",
]
BAD = [MediaPart(mime="image/png", data=data) for data in BAD_DATA]


def every_part(provider: ScriptedProvider) -> list[Part]:
    """Return the parts of the last request, those inside results too."""
    parts: list[Part] = []
    for message in provider.requests[-1].messages:
        for part in message.parts:
            parts.append(part)
            parts.extend(part.content if isinstance(part, ToolResultPart) else ())
    return parts


@pytest.mark.parametrize("part", BAD, ids=repr)
async def test_a_tool_whose_picture_cannot_be_read_has_failed_and_says_why(part: MediaPart) -> None:
    @tool
    async def look() -> Any:
        """Look."""
        return [TextPart(text="see"), part]

    _, provider = await run_script([calls(("look", {})), says("well")], tools=[look])
    ((_, outcome, text),) = outcomes_in(provider.requests[-1])
    assert outcome == "error"
    assert "base64" in text
    assert not any(isinstance(each, MediaPart) for each in every_part(provider))


@pytest.mark.parametrize("part", BAD, ids=repr)
async def test_a_picture_made_by_hand_that_cannot_be_read_is_refused(part: MediaPart) -> None:
    async with playing([]) as (session, _):
        for ask in (
            lambda: session.chat([TextPart(text="see"), part]),
            lambda: session.chat("see", attachments=[part]),
            lambda: session.steer([part]),
        ):
            with pytest.raises(ConfigError, match="base64") as refused:
                await ask()
            assert refused.value.code is ErrorCode.CONFIG_INVALID
        assert session.messages == ()


async def test_a_hook_that_answers_with_a_picture_that_cannot_be_read_has_failed() -> None:
    async def before(given: BeforeTool) -> Answer | Proceed:
        return Answer((BAD[0],))

    with pytest.raises(HookError):
        await run_script([calls(("look", {}))], hooks=Hooks(before_tool=before))


async def test_a_transform_that_makes_a_picture_that_cannot_be_read_has_failed() -> None:
    @tool
    async def look() -> str:
        """Look."""
        return "seen"

    query = {"transform": lambda name, value: BAD[0]}
    _, provider = await run_script([calls(("look", {})), says("well")], query, tools=[look])
    assert [outcome for _, outcome, _ in outcomes_in(provider.requests[-1])] == ["error"]


async def rewritten(change: Callable[[Entry], Entry]) -> tuple[MemoryStore, str]:
    """Return a stored session as an earlier version might have left it."""

    @tool
    async def look() -> Any:
        """Look."""
        return SOUND

    store, old = MemoryStore(), MemoryStore()
    agent, _ = make_agent([calls(("look", {})), says("well")], tools=[look], store=store)
    async with agent, agent.session() as session:
        await session.chat([TextPart(text="see"), SOUND])
        session_id = (await live_of(session)).session_id
        entries = await store.log.read(session_id)
    lease = await old.leases.acquire(session_id, "gone")
    await old.log.append(lease, [change(entry) for entry in entries])
    await old.leases.release(lease)
    return old, session_id


@pytest.mark.parametrize("bad", BAD, ids=repr)
async def test_a_stored_picture_that_cannot_be_read_is_replaced_by_words(bad: MediaPart) -> None:
    def spoil(entry: Entry) -> Entry:
        if isinstance(entry, ToolEnded):
            return msgspec.structs.replace(entry, content=(bad,))
        if isinstance(entry, QueryStarted) and entry.message is not None:
            prompt = msgspec.structs.replace(entry.message, parts=(bad,))
            return msgspec.structs.replace(entry, message=prompt)
        return entry

    store, session_id = await rewritten(spoil)
    agent, provider = make_agent([says("fine")], store=store)
    async with agent, agent.session(session_id, must_exist=True) as session:
        await session.chat("and?")
    texts = [part.text for part in every_part(provider) if isinstance(part, TextPart)]
    assert len([text for text in texts if "image/png" in text and "base64" in text]) == 2
    assert not any(isinstance(part, MediaPart) for part in every_part(provider))


async def test_stored_text_that_was_never_encoded_is_shown_as_it_is() -> None:
    def spoil(entry: Entry) -> Entry:
        plain = MediaPart(mime="text/plain", data="as it is")
        return (
            msgspec.structs.replace(entry, content=(plain,))
            if isinstance(entry, ToolEnded)
            else entry
        )

    store, session_id = await rewritten(spoil)
    agent, provider = make_agent([says("fine")], store=store)
    async with agent, agent.session(session_id, must_exist=True) as session:
        await session.chat("and?")
    assert TextPart(text="as it is") in every_part(provider)


def state(*messages: Any) -> dict[str, Any]:
    return {"version": 1, "messages": messages}


def said(role: str, *parts: dict[str, Any]) -> dict[str, Any]:
    return {"role": role, "id": f"msg_{role}_{len(parts)}", "parts": parts}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def call(call_id: str, name: str = "look") -> dict[str, Any]:
    return {"type": "tool_call", "call_id": call_id, "name": name}


def answer(call_id: str, words: str = "seen") -> dict[str, Any]:
    return {"type": "tool_result", "call_id": call_id, "name": "look", "content": [text(words)]}


@pytest.mark.parametrize(
    ("asked", "answered", "told"),
    [
        (["a", "a"], ["1", "2"], ["ok 1", "ok 2"]),
        (["a", "a"], ["1"], ["ok 1", "unknown"]),
        (["a", "a"], [], ["unknown", "unknown"]),
        (["a", "a", "a"], ["1", "2"], ["ok 1", "ok 2", "unknown"]),
        (["a", "a", "a_2"], ["1"], ["ok 1", "unknown", "unknown"]),
    ],
)
async def test_restored_calls_with_one_id_have_each_one_result(
    asked: list[str], answered: list[str], told: list[str]
) -> None:
    restored = state(
        said("user", text("go")),
        said("assistant", *(call(call_id) for call_id in asked)),
        said("user", *(answer("a", words) for words in answered), text("and?")),
    )
    agent, provider = make_agent([says("fine")])
    async with agent, agent.session(restore=restored) as session:
        await session.chat("now?")
        await session.rewind(to=session.messages[1].id)
    (request,) = provider.requests
    assert violations(request.messages) == []
    results = [part for message in request.messages for part in message.parts]
    outcomes = [
        f"{part.outcome} {part.text}" if part.outcome == "ok" else part.outcome
        for part in results
        if isinstance(part, ToolResultPart)
    ]
    assert outcomes == told


async def test_restored_pictures_that_cannot_be_read_are_replaced_by_words() -> None:
    bad = {"type": "media", "mime": "image/png", "data": "not base64!", "filename": "a.png"}
    restored = state(
        said("user", text("go"), bad),
        said("assistant", call("a")),
        said("user", answer("a") | {"content": [bad]}),
    )
    agent, provider = make_agent([says("fine")])
    async with agent, agent.session(restore=restored) as session:
        await session.chat("now?")
    assert not any(isinstance(part, MediaPart) for part in every_part(provider))
    told = [part for part in every_part(provider) if isinstance(part, TextPart)]
    assert sum("a.png" in part.text for part in told) == 2


async def test_stored_calls_with_one_id_have_each_one_result_and_one_run() -> None:
    ran: list[int] = []

    @tool
    async def look(at: int) -> str:
        """Look."""
        ran.append(at)
        return f"saw {at}"

    store = MemoryStore()
    asking = calls(("look", {"at": 1}), ("look", {"at": 2}), ids=("a", "b"))
    agent, _ = make_agent([asking, says("well")], tools=[look], store=store)
    async with agent, agent.session() as session:
        await session.chat("go")
        session_id = (await live_of(session)).session_id
        entries = await store.log.read(session_id)
    ran.clear()
    first_end = next(place for place, entry in enumerate(entries) if isinstance(entry, ToolEnded))
    old = MemoryStore()
    lease = await old.leases.acquire(session_id, "gone")
    await old.log.append(lease, [_with_one_id(entry) for entry in entries[: first_end + 1]])
    await old.leases.release(lease)
    agent, provider = make_agent([says("fine")], tools=[look], store=old)
    async with agent, agent.session(session_id, must_exist=True) as session:
        await session.resume()
    assert violations(provider.requests[-1].messages) == []
    assert [outcome for _, outcome, _ in outcomes_in(provider.requests[-1])] == ["ok", "unknown"]
    assert ran == []


def _with_one_id(entry: Entry) -> Entry:
    part = getattr(entry, "part", None)
    if isinstance(part, ToolCallPart):
        return msgspec.structs.replace(entry, part=msgspec.structs.replace(part, call_id="a"))
    return entry


async def test_a_session_that_began_with_a_poisoned_history_goes_on() -> None:
    bad = UserMessage(id="m", parts=(BAD[0],))  # type: ignore[arg-type]
    store, session_id = await rewritten(
        lambda entry: (
            msgspec.structs.replace(entry, history=(bad,))
            if isinstance(entry, SessionOpened)
            else entry
        )
    )
    agent, provider = make_agent([says("fine")], store=store)
    async with agent, agent.session(session_id, must_exist=True) as session:
        await session.chat("and?")
    assert sum(isinstance(part, MediaPart) for part in every_part(provider)) == 2
