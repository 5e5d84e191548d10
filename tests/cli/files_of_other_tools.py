"""Small sessions as Claude Code, Codex, opencode and pi write them, in a home of their own."""

import contextlib
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import apsw

TIME = "2026-05-01T10:00:00.000Z"


def _write(path: Path, lines: Iterable[Any], *, time: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    os.utime(path, (time, time))


def claude(home: Path, folder: Path, own: str, prompt: str, *, time: int = 1_790_000_000) -> None:
    """Write a session of Claude Code: notes in the user's name come before the first prompt."""
    shared = {"sessionId": own, "cwd": str(folder), "version": "2.1.0", "timestamp": TIME}
    said = {**shared, "type": "user", "isSidechain": False, "userType": "external"}
    lines = [
        {"type": "queue-operation", "operation": "enqueue", "timestamp": TIME, "sessionId": own},
        {
            **said,
            "uuid": "u0",
            "parentUuid": None,
            "isMeta": True,
            "message": {"role": "user", "content": "<local-command-caveat>not said</…>"},
        },
        {**said, "uuid": "u1", "parentUuid": "u0", "message": {"role": "user", "content": prompt}},
        {
            **shared,
            "type": "assistant",
            "isSidechain": False,
            "uuid": "u2",
            "parentUuid": "u1",
            "message": {
                "id": "msg_1",
                "type": "message",
                "role": "assistant",
                "model": "claude-sonnet-5",
                "content": [{"type": "text", "text": "Done."}],
                "stop_reason": "end_turn",
                "usage": {"input_tokens": 3, "output_tokens": 2},
            },
        },
    ]
    name = "".join(each if each.isalnum() else "-" for each in str(folder))
    _write(home / ".claude" / "projects" / name / f"{own}.jsonl", lines, time=time)


def codex(home: Path, folder: Path, own: str, prompt: str, *, time: int = 1_790_000_000) -> None:
    """Write a rollout of Codex."""

    def item(kind: str, **payload: Any) -> dict[str, Any]:
        return {"timestamp": TIME, "type": kind, "payload": payload}

    def said(role: str, kind: str, text: str) -> dict[str, Any]:
        content = [{"type": kind, "text": text}]
        return item("response_item", type="message", role=role, content=content)

    lines = [
        item("session_meta", id=own, cwd=str(folder), originator="codex_cli_rs", cli_version="1.0"),
        said("user", "input_text", "<environment_context>not said</environment_context>"),
        said("user", "input_text", prompt),
        item("event_msg", type="user_message", message=prompt),
        said("assistant", "output_text", "Done."),
    ]
    day = home / ".codex" / "sessions" / "2026" / "05" / "01"
    _write(day / f"rollout-2026-05-01T10-00-00-{own}.jsonl", lines, time=time)


def pi(home: Path, folder: Path, own: str, prompt: str, *, time: int = 1_790_000_000) -> None:
    """Write a session of pi."""
    user = {"role": "user", "content": [{"type": "text", "text": prompt}], "timestamp": 1}
    answer = {
        "role": "assistant",
        "content": [{"type": "text", "text": "Done."}],
        "api": "anthropic-messages",
        "provider": "anthropic",
        "model": "claude-sonnet-5",
        "stopReason": "stop",
        "timestamp": 2,
    }
    lines = [
        {"type": "session", "version": 3, "id": own, "timestamp": TIME, "cwd": str(folder)},
        {"type": "message", "id": "a", "parentId": None, "timestamp": TIME, "message": user},
        {"type": "message", "id": "b", "parentId": "a", "timestamp": TIME, "message": answer},
    ]
    name = "--" + str(folder).strip("/").replace("/", "-") + "--"
    path = home / ".pi" / "agent" / "sessions" / name / f"2026-05-01T10-00-00-000Z_{own}.jsonl"
    _write(path, lines, time=time)


def _messages(prompt: str, folder: Path) -> list[tuple[str, dict[str, Any], dict[str, Any]]]:
    user = {
        "role": "user",
        "time": {"created": 1_790_000_000_000},
        "agent": "build",
        "model": {"providerID": "anthropic", "modelID": "claude-sonnet-5"},
    }
    answer = {
        "role": "assistant",
        "parentID": "msg_1",
        "providerID": "anthropic",
        "modelID": "claude-sonnet-5",
        "path": {"cwd": str(folder), "root": str(folder)},
        "time": {"created": 1_790_000_001_000, "completed": 1_790_000_002_000},
        "cost": 0,
        "tokens": {"input": 3, "output": 2, "reasoning": 0, "cache": {"read": 0, "write": 0}},
        "finish": "stop",
    }
    return [
        ("msg_1", user, {"type": "text", "text": prompt}),
        ("msg_2", answer, {"type": "text", "text": "Done."}),
    ]


def opencode_files(
    home: Path, folder: Path, own: str, prompt: str, *, time: int = 1_790_000_000
) -> None:
    """Write a session as versions of opencode before its database did."""
    storage = home / ".local" / "share" / "opencode" / "storage"
    info = {
        "id": own,
        "projectID": "global",
        "directory": str(folder),
        "title": prompt,
        "version": "0.15.0",
        "time": {"created": time * 1000, "updated": time * 1000},
    }
    _write(storage / "session" / "global" / f"{own}.json", [info], time=time)
    for place, about, part in _messages(prompt, folder):
        name = f"{place}_{own}"
        message = {**about, "id": name, "sessionID": own}
        _write(storage / "message" / own / f"{name}.json", [message], time=time)
        piece = {**part, "id": f"prt_{name}", "messageID": name, "sessionID": own}
        _write(storage / "part" / name / f"prt_{name}.json", [piece], time=time)


_TABLES = """
CREATE TABLE IF NOT EXISTS session (id text PRIMARY KEY, project_id text NOT NULL, parent_id text,
    slug text NOT NULL, directory text NOT NULL, title text NOT NULL, version text NOT NULL,
    time_created integer NOT NULL, time_updated integer NOT NULL);
CREATE TABLE IF NOT EXISTS message (id text PRIMARY KEY, session_id text NOT NULL,
    time_created integer NOT NULL, time_updated integer NOT NULL, data text NOT NULL);
CREATE TABLE IF NOT EXISTS part (id text PRIMARY KEY, message_id text NOT NULL,
    session_id text NOT NULL, time_created integer NOT NULL, time_updated integer NOT NULL,
    data text NOT NULL);
"""


def opencode(home: Path, folder: Path, own: str, prompt: str, *, time: int = 1_790_000_000) -> None:
    """Write a session into the database of opencode."""
    path = home / ".local" / "share" / "opencode" / "opencode.db"
    path.parent.mkdir(parents=True, exist_ok=True)
    connection = apsw.Connection(str(path))
    connection.execute(_TABLES)
    stamp = time * 1000
    for each, parent in ((own, None), (f"{own}child", own)):
        connection.execute(
            "INSERT INTO session VALUES (?, 'global', ?, 'slug', ?, ?, '1.2.0', ?, ?)",
            (each, parent, str(folder), prompt, stamp, stamp),
        )
    for place, about, part in _messages(prompt, folder):
        name = f"{place}_{own}"
        row = (name, own, stamp, stamp, json.dumps(about))
        connection.execute("INSERT INTO message VALUES (?, ?, ?, ?, ?)", row)
        piece = (f"prt_{name}", name, own, stamp, stamp, json.dumps(part))
        connection.execute("INSERT INTO part VALUES (?, ?, ?, ?, ?, ?)", piece)
    connection.close()


WRITERS = {
    "claude": claude,
    "codex": codex,
    "opencode": opencode,
    "opencode in files": opencode_files,
    "pi": pi,
}


def openai_agents(path: Path, prompts: dict[str, str]) -> Path:
    """Write a database of openai-agents, as its `SQLiteSession` does."""
    with contextlib.closing(apsw.Connection(str(path))) as database:
        database.execute(
            "CREATE TABLE agent_sessions (session_id TEXT PRIMARY KEY,"
            " created_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP,"
            " updated_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP);"
            "CREATE TABLE agent_messages (id INTEGER PRIMARY KEY AUTOINCREMENT,"
            " session_id TEXT NOT NULL, message_data TEXT NOT NULL,"
            " created_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP)"
        )
        for name, prompt in prompts.items():
            database.execute("INSERT INTO agent_sessions (session_id) VALUES (?)", (name,))
            answer = {"type": "output_text", "text": "Done.", "annotations": []}
            for item in (
                {"role": "user", "content": prompt},
                {"id": "msg_1", "type": "message", "role": "assistant", "content": [answer]},
            ):
                database.execute(
                    "INSERT INTO agent_messages (session_id, message_data) VALUES (?, ?)",
                    (name, json.dumps(item)),
                )
    return path
