"""The end of `haptera serve`, by signals and by a crash, while a query runs."""

import runpy
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.cli.commands import Place
from tests.cli.scripted_server import Turn, scripted_server
from tests.server.processes import ServeProcess, sent_in, started

pytestmark = pytest.mark.slow

_EXAMPLE = Path(__file__).parents[2] / "examples/http_client.py"
_HOURS = {"HAPTERA_CLOSE_DRAIN_TIMEOUT": "3600"}


def _ask(server: ServeProcess) -> str:
    """Send a prompt and return the session."""
    session_id = str(server.json("POST", "/api/v1/sessions", {})["id"])
    server.json("POST", f"/api/v1/sessions/{session_id}/messages", {"content": "go", "id": "m1"})
    return session_id


def _end_of(log: list[dict[str, Any]]) -> dict[str, Any]:
    (end,) = [entry for entry in log if entry["kind"] == "query.ended"]
    return end


def test_sigterm_ends_streams_at_once_and_lets_the_query_end_by_itself(tmp_path: Path) -> None:
    hold = threading.Event()
    with scripted_server(Turn(["Hel", "lo."], hold=hold)) as model:
        place = Place(tmp_path, model, variables=_HOURS, is_new=True)
        with started(place) as server:
            session_id = _ask(server)
            model.arrived.acquire()
            with server.answer("GET", f"/api/v1/sessions/{session_id}/events") as stream:
                events = sent_in(stream)
                assert next(events)["kind"] == "session.opened"
                server.process.send_signal(signal.SIGTERM)
                told = [event.get("kind") for event in events]  # the stream ends, the query runs
            assert "query.ended" not in told
            assert server.process.poll() is None
            assert server.path.exists()
            hold.set()
            assert server.process.wait(60) == 0
            assert not server.path.exists()
        with started(place) as server:
            log = server.log(session_id)
    assert _end_of(log)["stop_reason"] == "complete"
    assert [entry["seq"] for entry in log] == list(range(1, len(log) + 1))


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_suspends_the_query_and_the_next_server_carries_it_on(
    second: signal.Signals, tmp_path: Path
) -> None:
    hold = threading.Event()
    with scripted_server(Turn(["Hel", "lo."], hold=hold), Turn("Hello again.")) as model:
        place = Place(tmp_path, model, variables=_HOURS)
        with started(place) as server:
            session_id = _ask(server)
            model.arrived.acquire()
            with server.answer("GET", f"/api/v1/sessions/{session_id}/events") as stream:
                events = sent_in(stream)
                assert next(events)  # it has begun
                server.process.send_signal(signal.SIGTERM)
                told = list(events)  # it ends: the server has taken the first signal
            assert told[-1]["kind"] == "query.suspended"
            assert server.end(second) == 0
            assert not server.path.exists()
            assert b"Traceback" not in b"".join(server.printed)
        with started(place) as server:
            path = f"/api/v1/sessions/{session_id}/events"
            with server.answer("GET", path) as stream:
                assert any(event.get("kind") == "query.ended" for event in sent_in(stream))
            log = server.log(session_id)
    assert _end_of(log)["stop_reason"] == "complete"
    assert [entry["seq"] for entry in log] == list(range(1, len(log) + 1))
    assert len([entry for entry in log if entry["kind"] == "query.started"]) == 2  # and its resume


def test_a_killed_server_leaves_a_query_that_the_next_one_carries_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold = threading.Event()
    with scripted_server(Turn(["Hel", "lo."], hold=hold), Turn("Hello again.")) as model:
        place = Place(tmp_path, model)
        with started(place) as first:
            session_id = _ask(first)
            model.arrived.acquire()
            before = first.log(session_id)
            assert first.end(signal.SIGKILL) == -signal.SIGKILL
            assert first.path.exists()
        monkeypatch.setenv("HOME", place.environment["HOME"])
        monkeypatch.setattr(sys, "argv", ["http_client.py"])
        with pytest.raises(SystemExit, match="start `haptera serve` first"):
            runpy.run_path(str(_EXAMPLE), run_name="__main__")
        with started(place) as second:
            assert second.state["token"] != first.state["token"]
            stale = f"Bearer {first.state['token']}"
            assert second.call("GET", "/api/v1/info", authorization=stale)[0] == 401
            path = f"/api/v1/sessions/{session_id}/events"
            with second.answer("GET", path, last_event_id=str(before[-1]["seq"])) as stream:
                after = []
                for event in sent_in(stream):
                    after.append(event)
                    if event.get("kind") == "query.ended":
                        break
            log = [*before, *(event for event in after if "id" in event)]
            assert log == second.log(session_id)
            assert second.end() == 0
            assert not second.path.exists()
    assert _end_of(log)["stop_reason"] == "complete"
