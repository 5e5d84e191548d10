"""Sessions that other programs keep on this machine: finds them, and opens one to be imported.

Only the usual folders of the programs are looked at, and nothing in them is changed.
"""

import contextlib
import errno
import io
import os
import stat
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import BinaryIO, Literal, TypeAlias

import msgspec

from haptera.access.assembly import late
from haptera.access.assembly.agent_inputs import ConfigurationSources
from haptera.access.assembly.configuration import ConfigurationFolders
from haptera.formats.forms import (
    milliseconds_of,
    number_in,
    object_in,
    text_in,
)
from haptera.model.json_types import JsonObject, objects_in

OtherTool: TypeAlias = Literal["claude", "codex", "opencode", "pi", "openai-agents"]
OTHER_TOOLS: tuple[OtherTool, ...] = ("claude", "codex", "opencode", "pi")
"""The programs that keep sessions in a place of their own."""
_FORMATS = {
    "claude": "claude-code",
    "codex": "codex",
    "opencode": "opencode",
    "pi": "pi",
    "openai-agents": "openai",
}
_LONGEST_TITLE = 200
_LONGEST_HEAD = 4 << 20
"""How much of a file is read to find its first prompt; attachments may come before it."""
_LARGEST_RECORD = 64 << 20
_NOT_SAID = ("<", "# AGENTS.md", "Caveat:")
"""How texts begin that a program says in the user's name."""


class FoundSession(msgspec.Struct, frozen=True, kw_only=True):
    """A session of another program."""

    tool: OtherTool
    id: str
    folder: str
    """The folder it worked in."""
    title: str
    """Its title, else its first prompt."""
    updated: int
    """In milliseconds since 1970."""
    path: str
    """The file, or the folder or database that holds it."""

    @property
    def format(self) -> str:
        """The name of its format for `agent.sessions.import_from(of=)`."""
        return _FORMATS[self.tool]

    def open(self) -> BinaryIO:
        """Open it for `agent.sessions.import_from`; the caller closes it.

        Raises:
            OSError: when it cannot be read.
            StoreError: UNAVAILABLE when the database that holds it cannot be read.

        """
        if self.tool == "openai-agents":
            return io.BytesIO(late.agents_document(Path(self.path), self.id))
        if self.tool != "opencode":
            return Path(self.path).open("rb")
        if self.path.endswith(".db"):
            return io.BytesIO(late.opencode_document(Path(self.path), self.id))
        return io.BytesIO(_stored_document(Path(self.path), self.id))


def find_other_sessions(
    tool: OtherTool,
    *,
    folder: Path | None = None,
    limit: int | None = None,
    sources: ConfigurationSources | None = None,
) -> tuple[FoundSession, ...]:
    """Return the sessions that a program keeps, the last updated first.

    `folder` keeps those that worked in it. Sessions in which nothing was asked are left out.

    Raises:
        StoreError: UNAVAILABLE when the program's database cannot be read.

    """
    folders = ConfigurationFolders(sources or ConfigurationSources())
    wanted = None if folder is None else os.path.realpath(folder)
    # A generator: no more files are read than are wanted.
    sessions = (
        each
        for each in _FINDERS[tool](folders)
        if wanted is None or (each.folder and os.path.realpath(each.folder) == wanted)
    )
    return tuple(islice(sessions, limit))


def openai_agents_sessions(path: str | Path) -> tuple[FoundSession, ...]:
    """Return the sessions in a database of openai-agents (`SQLiteSession`), the last updated first.

    Raises:
        StoreError: UNAVAILABLE when it is no such database, or cannot be read.

    """
    return tuple(
        FoundSession(
            tool="openai-agents",
            id=text_in(each, "id"),
            folder="",
            title=text_in(each, "id")[:_LONGEST_TITLE],
            # SQLite writes `2026-11-20 00:54:28`, which is UTC.
            updated=milliseconds_of(text_in(each, "updated")),
            path=str(path),
        )
        for each in late.agents_sessions(Path(path))
    )


def _claude(folders: ConfigurationFolders) -> Iterator[FoundSession]:
    root = Path(folders.environment.get("CLAUDE_CONFIG_DIR") or folders.home / ".claude")
    for path, updated in _newest(root / "projects", "*/*.jsonl"):
        if path.name.startswith("agent-"):  # what a sub-agent did
            continue
        head = _Head(path.stem)
        for line in _lines(path):
            head.folder = head.folder or text_in(line, "cwd")
            match text_in(line, "type"):
                case "summary" | "custom-title" | "ai-title":
                    head.title = text_in(line, "customTitle", "aiTitle", "summary") or head.title
                # What the program added by itself, and what a sub-agent was asked.
                case "user" if not (line.get("isMeta") or line.get("isSidechain")):
                    head.say(object_in(line, "message").get("content"))
            if head.is_complete:
                break
        yield from head.found("claude", path, updated)


def _codex(folders: ConfigurationFolders) -> Iterator[FoundSession]:
    root = Path(folders.environment.get("CODEX_HOME") or folders.home / ".codex")
    for path, updated in _newest(root / "sessions", "**/rollout-*.jsonl"):
        head = _Head("")
        for line in _lines(path):
            payload = object_in(line, "payload")
            if line.get("type") == "session_meta" and not head.id:
                head.id, head.folder = text_in(payload, "id"), text_in(payload, "cwd")
            elif line.get("type") == "response_item" and payload.get("role") == "user":
                head.say(payload.get("content"))
            if head.is_complete:
                break
        yield from head.found("codex", path, updated)


def _pi(folders: ConfigurationFolders) -> Iterator[FoundSession]:
    folder = folders.environment.get("PI_CODING_AGENT_DIR")
    root = Path(folder) if folder else folders.home / ".pi" / "agent"
    for path, updated in _newest(root / "sessions", "**/*.jsonl"):
        head = _Head("")
        for line in _lines(path):
            message = object_in(line, "message")
            match text_in(line, "type"):
                case "session":
                    head.id, head.folder = text_in(line, "id"), text_in(line, "cwd")
                case "session_info":
                    head.title = text_in(line, "name") or head.title
                case "message" if message.get("role") == "user":
                    head.say(message.get("content"))
            if head.is_complete:
                break
        yield from head.found("pi", path, updated)


def _opencode(folders: ConfigurationFolders) -> Iterator[FoundSession]:
    """Find what is in the database, and what older versions kept in files."""
    data = folders.environment.get("XDG_DATA_HOME")
    root = (Path(data) if data else folders.home / ".local" / "share") / "opencode"
    database, storage = root / "opencode.db", root / "storage"
    infos = late.opencode_sessions(database) if database.is_file() else ()
    sessions = [_of_opencode(info, database) for info in infos]
    names = {each.id for each in sessions}
    for path, _ in _newest(storage / "session", "*/ses_*.json"):
        info = _record(path)
        # Sessions of sub-agents, and those that an update has copied into the database.
        if info.get("parentID") or text_in(info, "id") in names:
            continue
        sessions.append(_of_opencode(info, storage))
    return iter(sorted((each for each in sessions if each.id), key=lambda each: -each.updated))


_FINDERS: dict[OtherTool, Callable[[ConfigurationFolders], Iterator[FoundSession]]] = {
    "claude": _claude,
    "codex": _codex,
    "opencode": _opencode,
    "pi": _pi,
}


class _Head:
    """What the first lines of a file say."""

    def __init__(self, own: str) -> None:
        self.id = own
        self.folder = ""
        self.title = ""
        self._prompt = ""

    @property
    def is_complete(self) -> bool:
        return bool(self.id and self.folder and self._prompt)

    def say(self, content: object) -> None:
        """Take in what the user said first; not what the program said in the user's name."""
        texts = (
            [content]
            if isinstance(content, str)
            else [text_in(part, "text") for part in objects_in(content)]
        )
        title = next((each for each in texts if each and not each.startswith(_NOT_SAID)), "")
        self._prompt = self._prompt or title

    def found(self, tool: OtherTool, path: Path, updated: int) -> Iterator[FoundSession]:
        """Yield the session, unless nothing was asked in it."""
        if self.id and self._prompt:
            title = " ".join((self.title or self._prompt).split())[:_LONGEST_TITLE]
            yield FoundSession(
                tool=tool,
                id=self.id,
                folder=self.folder,
                title=title,
                updated=updated,
                path=str(path),
            )


def _newest(root: Path, pattern: str) -> list[tuple[Path, int]]:
    """Return the files below a folder with their times, the last changed first."""
    newest: list[tuple[Path, int]] = []
    for path in _matching(root, pattern):
        # One by one: a link that leads nowhere, or a file that is gone by now, hides no other.
        with contextlib.suppress(OSError):
            facts = path.stat()
            if stat.S_ISREG(facts.st_mode):
                newest.append((path, facts.st_mtime_ns // 1_000_000))
    return sorted(newest, key=lambda each: -each[1])


def _matching(root: Path, pattern: str) -> list[Path]:
    try:
        return list(root.glob(pattern))
    except OSError:
        return []  # a folder that cannot be read holds nothing for us


def _lines(path: Path) -> Iterator[JsonObject]:
    """Yield the objects in the first lines of a file; what is no object is passed over."""
    try:
        with path.open("rb") as file:
            left = _LONGEST_HEAD
            # With a limit: a file without line breaks would be read as a whole otherwise.
            while left > 0 and (line := file.readline(left)):
                left -= len(line)
                if (record := _object(line)) is not None:
                    yield record
    except OSError:
        return


def _object(raw: bytes) -> JsonObject | None:
    try:
        return msgspec.json.decode(raw, type=dict)
    except (ValueError, RecursionError):
        return None


def _record(path: Path) -> JsonObject:
    try:
        with path.open("rb") as file:
            # Cut off here, a file that is too large is no JSON, and is passed over like a damaged
            # one.
            return _object(file.read(_LARGEST_RECORD)) or {}
    except OSError:
        return {}


def _of_opencode(info: JsonObject, path: Path) -> FoundSession:
    times = object_in(info, "time")
    return FoundSession(
        tool="opencode",
        id=text_in(info, "id"),
        folder=text_in(info, "directory"),
        title=" ".join(text_in(info, "title").split())[:_LONGEST_TITLE],
        updated=number_in(times, "updated") or milliseconds_of(times.get("created")),
        path=str(path),
    )


def _stored_document(storage: Path, session_id: str) -> bytes:
    """Put the files of one session together, as `opencode export` does."""
    info = next(map(_record, storage.glob(f"session/*/{_plain(session_id)}.json")), None)
    if info is None:
        raise FileNotFoundError(errno.ENOENT, "the session is no longer there", str(storage))
    messages = [
        {
            "info": _record(path),
            "parts": [_record(part) for part in _sorted(storage / "part" / path.stem)],
        }
        for path in _sorted(storage / "message" / _plain(session_id))
    ]
    return msgspec.json.encode({"info": info, "messages": messages})


def _sorted(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.json"))


def _plain(name: str) -> str:
    """Return an id of a file as the one name it can be: no folder, and no pattern."""
    return "".join(each for each in name if each.isalnum() or each in "_-")
