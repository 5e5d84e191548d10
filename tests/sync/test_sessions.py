"""`agent.sessions`, blocking: the same methods, waited for."""

import inspect
from pathlib import Path

import pytest

from haptera import ErrorCode, SessionError
from haptera.access.descriptions import ActiveContext, SessionEvent, SessionSummary
from haptera.agent.sessions import AgentSessions as AsyncAgentSessions
from haptera.sync import Agent
from haptera.sync.sessions import AgentSessions
from haptera.testing import FakeClock, ScriptedProvider, says

INTERNAL = {"record", "folded", "announce"}


def make_agent(*answers: str) -> Agent:
    provider = ScriptedProvider([says(answer) for answer in answers])
    return Agent("scripted/one", providers=[provider], clock=FakeClock(), environment={})


def test_every_method_has_its_blocking_twin_with_the_same_parameters() -> None:
    def public(kind: type) -> dict[str, list[str]]:
        found = inspect.getmembers(kind, inspect.isfunction)
        return {
            name: list(inspect.signature(function).parameters)
            for name, function in found
            if not name.startswith("_") and name not in INTERNAL
        }

    assert public(AgentSessions) == public(AsyncAgentSessions)


def test_a_session_is_made_found_changed_exported_imported_and_deleted(tmp_path: Path) -> None:
    with make_agent("It is deep.") as agent:
        sessions = agent.sessions
        seen: list[SessionEvent] = []
        stop = sessions.on(seen.append)
        with sessions.create(name="fjord", tags=["x"]) as session:
            assert session.chat("How deep?").text == "It is deep."
        stop()
        assert [info.name for info in sessions.list(tag="x")] == ["fjord"]
        assert sessions.search("deep")[0].session.name == "fjord"
        assert [each.message.text for each in sessions.messages("fjord", limit=1)] == ["How deep?"]
        assert (sessions.stats("fjord").queries, sessions.children("fjord")) == (1, ())
        sessions.set_context("fjord", ActiveContext(cwd="/work"))
        sessions.set_summary("fjord", SessionSummary(title="Depth"))
        summary = sessions.summary("fjord")
        assert (sessions.context("fjord").cwd, summary and summary.title) == ("/work", "Depth")
        sessions.rename("fjord", "bay")
        sessions.tag("bay", "y")
        assert sessions.untag("bay", "x").tags == ("y",)
        assert sessions.archive("bay").archived is not None
        assert sessions.archive("bay", undo=True).archived is None
        assert sessions.touch("bay").title == sessions.update("bay", title=None).title
        assert sessions.verify("bay").ok
        path = tmp_path / "bay.jsonl"
        sessions.export_to(path, "bay")
        assert b"".join(sessions.export("bay", to="markdown"))
        imported = sessions.import_from(path, name="copy")
        assert imported.session.name == "copy"
        sessions.switch_to("copy")
        active = sessions.active
        assert active is not None
        assert not active.closed
        sessions.delete("copy")
        assert sessions.repair() == 1
        assert sessions.prune(days=365) == ()
        with pytest.raises(SessionError) as caught:
            sessions.get("copy")
        assert caught.value.code is ErrorCode.NOT_FOUND
        assert [event.kind for event in seen] == ["created"]
