"""The guides to web applications and to terminals do what they say, driven from outside."""

import asyncio
import builtins
import json
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import haptera
import haptera.sync
from haptera.testing import ScriptedProvider, says

_ROOT = Path(__file__).parents[2]
_Agent = haptera.Agent
_SyncAgent = haptera.sync.Agent


def _block(page: str, place: int) -> str:
    found = re.findall(r"```python\n(.*?)```", (_ROOT / page).read_text(), re.DOTALL)
    return str(found[place])


class Browser:
    """Speaks to an ASGI application as a server would."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def post(self, path: str, body: object = None) -> tuple[int, bytes]:
        sent: list[dict[str, Any]] = []
        await self._app(_scope("POST", path), _once(json.dumps(body).encode()), _into(sent))
        whole = b"".join(message.get("body", b"") for message in sent)
        return sent[0]["status"], whole

    async def follow(self, path: str, until: str, after: int = 0) -> list[tuple[int, str]]:
        """Follow server-sent events until one of a kind came, then leave."""
        gone, text = asyncio.Event(), ""

        async def receive() -> dict[str, Any]:
            if not gone.is_set():
                await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: dict[str, Any]) -> None:
            nonlocal text
            text += message.get("body", b"").decode()
            if f"event: {until}\n" in text:
                gone.set()

        await self._app(_scope("GET", path, {"last-event-id": str(after)}), receive, send)
        pattern = r"(?:id: (\d+)\n)?event: (\S+)\ndata: .*\n"
        return [(int(seq or 0), kind) for seq, kind in re.findall(pattern, text)]


def _scope(method: str, path: str, headers: dict[str, str] | None = None) -> dict[str, Any]:
    given = {"content-type": "application/json", **(headers or {})}
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [(name.encode(), value.encode()) for name, value in given.items()],
        "server": ("127.0.0.1", 80),
        "client": ("127.0.0.1", 1),
    }


def _once(body: bytes) -> Any:
    messages = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def receive() -> dict[str, Any]:
        return next(messages, {"type": "http.disconnect"})

    return receive


def _into(sent: list[dict[str, Any]]) -> Any:
    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    return send


async def test_the_web_application_sends_and_follows_and_reconnects(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    provider = ScriptedProvider([says("Hel", "lo."), says("Again.")], provider="anthropic")
    monkeypatch.setattr(
        haptera, "Agent", lambda model, **more: _Agent(model, providers=[provider], **more)
    )
    names: dict[str, Any] = {"__name__": "guide"}
    exec(compile(_block("docs/web-apps.md", 0), "web-apps.md", "exec"), names)  # noqa: S102 - our own page
    browser = Browser(names["app"])
    async with names["agent"]:
        status, body = await browser.post("/sessions/ana/prompts", {"prompt": "Hi"})
        assert status == 200
        assert json.loads(body)["query_id"].startswith("qry_")
        seen = await browser.follow("/sessions/ana/events", until="query.ended")
        kinds = [kind for _, kind in seen]
        assert kinds.count("query.ended") == 1
        last = max(seq for seq, _ in seen)
        await browser.post("/sessions/ana/prompts", {"prompt": "And?"})
        more = await browser.follow("/sessions/ana/events", until="query.ended", after=last)
        assert min(seq for seq, _ in more if seq) == last + 1
        assert (await browser.post("/sessions/ana/abort"))[0] == 200
    provider.check()


def test_the_terminal_stops_an_answer_on_ctrl_c_and_goes_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    provider = ScriptedProvider([says("One, ", "two"), says("Three.")], provider="anthropic")
    monkeypatch.setattr(
        haptera.sync,
        "Agent",
        lambda model, **more: _SyncAgent(model, providers=[provider], **more),
    )
    typed = iter(["count", "go on"])

    def ask(_: str) -> str:
        try:
            return next(typed)
        except StopIteration:
            raise EOFError from None

    monkeypatch.setattr(builtins, "input", ask)
    names: dict[str, Any] = {"print": _interrupting(iter([False, True]))}
    exec(textwrap.dedent(_block("docs/interactive-programs.md", 0)), names)  # noqa: S102 - our own page
    names["repl"]()
    shown = capsys.readouterr().out
    assert "[stopped]" in shown
    assert "Three." in shown
    provider.check()


def _interrupting(when: Iterator[bool]) -> Any:
    """Return a `print` that is hit by Ctrl-C when told so."""

    def show(*values: object, **more: Any) -> None:
        if more.get("flush") and next(when, False):
            raise KeyboardInterrupt
        sys.stdout.write(f"{' '.join(map(str, values))}{more.get('end', chr(10))}")

    return show
