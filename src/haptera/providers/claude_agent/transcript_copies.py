"""The copies of a transcript, on this machine and in the store: which one a session goes on with.

A transcript is compared with what the log says of it. A copy agrees if its conversation has the
entry that the log names, at the same place. Of those that agree the longer one wins.
"""

import asyncio
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from haptera.model.errors import AgentError
from haptera.model.ids import new_id
from haptera.model.json_types import JsonObject
from haptera.ports.native_agent import FoundTranscript, KnownTranscript, ReadTranscript
from haptera.providers.claude_agent.sdk import package as sdk
from haptera.providers.claude_agent.transcripts import TranscriptStore, is_native_id
from haptera.system.logs import scrubbed_logger

_logger = scrubbed_logger(__name__)

_SAFE_STEP = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_SPEAKERS = frozenset({"user", "assistant"})


class ConversationPlace(msgspec.Struct, frozen=True):
    """Where the conversation in a transcript ends."""

    entry: str | None = None
    count: int = 0

    def after(self, lines: Iterable[JsonObject]) -> "ConversationPlace":
        """Return the place after more lines; only what was said counts."""
        ids = conversation_ids(lines)
        return ConversationPlace(ids[-1], self.count + len(ids)) if ids else self


class TranscriptCopy(msgspec.Struct, frozen=True, kw_only=True):
    """One copy of a transcript."""

    lines: Sequence[JsonObject]
    path: Path | None = None
    """The file; None for the copy in the store."""
    is_whole: bool = True
    """Whether every line of the file can be read."""


def conversation_ids(lines: Iterable[JsonObject]) -> list[str]:
    """Return the ids of what was said, each once, without what sub-agents said."""
    ids = (
        line["uuid"]
        for line in lines
        if line.get("type") in _SPEAKERS and line.get("uuid") and not line.get("isSidechain")
    )
    return list(dict.fromkeys(ids))


def choose_copy(
    copies: Sequence[TranscriptCopy], known: KnownTranscript
) -> tuple[TranscriptCopy, FoundTranscript] | None:
    """Return the copy to go on with; None when none of them agrees with the log."""
    ranked = []
    ids_of_copies = [conversation_ids(copy.lines) for copy in copies]
    # Without a place in the log, copies can only be compared with each other.
    longest = max(ids_of_copies, key=len, default=[])
    for copy, ids in zip(copies, ids_of_copies, strict=True):
        agrees = _agrees(copy, ids, known) if known.entry else longest[: len(ids)] == ids
        if not agrees and not known.entry:
            return None
        if agrees and copy.lines:
            has_prompt = known.prompt is None or known.prompt in ids
            ranked.append(((has_prompt, len(ids), copy.path is not None), copy))
    if not ranked:
        return None
    (has_prompt, *_), chosen = max(ranked, key=lambda each: each[0])
    return chosen, FoundTranscript(has_prompt=has_prompt)


def _agrees(copy: TranscriptCopy, ids: Sequence[str], known: KnownTranscript) -> bool:
    if known.count < 1 or ids[known.count - 1 : known.count] != [known.entry]:
        return False
    if known.is_copied:
        return len(ids) == known.count  # a copy takes all of it
    # A prompt that the log does not have came from another program.
    more = frozenset(ids[known.count :])
    return known.prompt is not None or not any(
        _is_prompt(line) for line in copy.lines if line.get("uuid") in more
    )


def _is_prompt(line: JsonObject) -> bool:
    """Whether a line is what a person or a program said to the agent."""
    message = line.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    if line.get("type") != "user" or line.get("isMeta") or line.get("isCompactSummary"):
        return False
    if isinstance(content, list):
        kinds = [block.get("type") for block in content if isinstance(block, dict)]
        text = "".join(str(block.get("text", "")) for block in content if isinstance(block, dict))
        return "tool_result" not in kinds and not text.startswith("[Request interrupted")
    return isinstance(content, str) and not content.startswith(("<local-command", "[Request inter"))


class LocalTranscripts:
    """The transcripts on this machine, in the CLI's own folder."""

    def __init__(self, config_folder: Path, cwd: Path) -> None:
        self._projects = config_folder / "projects"
        self._cwd = cwd

    def has(self, native_session_id: str) -> bool:
        """Whether the CLI finds the session by itself."""
        return bool(self._paths(native_session_id))

    async def copies(self, native_session_id: str) -> list[TranscriptCopy]:
        """Read every copy in the folder, the one that the CLI takes first."""
        paths = self._paths(native_session_id)
        return [await asyncio.to_thread(_read, path) for path in paths]

    async def place(self, native_session_id: str) -> ConversationPlace:
        """Return where the conversation ends in the copy that the CLI takes."""
        copies = await self.copies(native_session_id)
        return ConversationPlace().after(copies[0].lines if copies else ())

    async def find(
        self, transcripts: TranscriptStore | None, native_session_id: str, known: KnownTranscript
    ) -> FoundTranscript | None:
        """Choose among the copies here and in the store, and put the one where the CLI looks."""
        if not is_native_id(native_session_id):
            return None
        copies = await self.copies(native_session_id)
        key = {"project_key": "", "session_id": native_session_id}
        stored = (await transcripts.load(key) if transcripts is not None else None) or []
        every = [*copies, *([TranscriptCopy(lines=stored)] if stored else [])]
        chosen = choose_copy([copy for copy in every if copy.lines], known)
        if chosen is None:
            return None
        copy, transcript = chosen
        if copy.path is None and transcripts is not None:
            await self.restore(transcripts, native_session_id)
        elif not copy.is_whole or copy.path != copies[0].path:
            # The CLI would add its next line to the half of one.
            await asyncio.to_thread(_write_private, self._target(native_session_id), copy.lines)
        if copy.path is not None and transcripts is not None:
            await _catch_up(transcripts, key, stored=stored, lines=copy.lines)
        return transcript

    async def restore(self, transcripts: TranscriptStore, native_session_id: str) -> bool:
        """Write what the store has of a session; False when it has nothing."""
        if not is_native_id(native_session_id):
            return False
        key = {"project_key": "", "session_id": native_session_id}
        lines = await transcripts.load(key)
        if not lines:
            return False
        target = self._target(native_session_id)
        below = [(target, lines)]
        for subpath in await transcripts.list_subkeys(key):
            steps = subpath.split("/")
            if all(_SAFE_STEP.fullmatch(step) for step in steps):
                folder = target.with_suffix("").joinpath(*steps[:-1])
                content = await transcripts.load({**key, "subpath": subpath}) or []
                below.append((folder / f"{steps[-1]}.jsonl", content))
        for path, content in below:
            await asyncio.to_thread(_write_private, path, content)
        return True

    def _target(self, native_session_id: str) -> Path:
        folder = self._projects / sdk.project_key_for_directory(str(self._cwd))
        return folder / f"{native_session_id}.jsonl"

    def _paths(self, native_session_id: str) -> list[Path]:
        if not is_native_id(native_session_id):
            return []
        target = self._target(native_session_id)
        # Of several the CLI takes the one of the folder in which it runs.
        paths = sorted(self._projects.glob(f"*/{native_session_id}.jsonl"))
        return sorted(paths, key=lambda path: path != target)


async def read_transcript(
    local: LocalTranscripts | None, transcripts: TranscriptStore | None, native_session_id: str
) -> ReadTranscript | None:
    """Read the longest of the copies of a transcript; None when there is none, or they differ."""
    if not is_native_id(native_session_id):
        return None
    copies = await local.copies(native_session_id) if local is not None else []
    key = {"project_key": "", "session_id": native_session_id}
    if transcripts is not None and (stored := await transcripts.load(key)):
        copies.append(TranscriptCopy(lines=stored))
    chosen = choose_copy([copy for copy in copies if copy.lines], KnownTranscript())
    if chosen is None:
        return None
    lines = chosen[0].lines
    place = ConversationPlace().after(lines)
    if place.entry is None:
        return None
    content = b"\n".join(map(msgspec.json.encode, lines)) + b"\n"
    return ReadTranscript(content=content, entry=place.entry, count=place.count)


async def _catch_up(
    transcripts: TranscriptStore,
    key: JsonObject,
    *,
    stored: Sequence[JsonObject],
    lines: Sequence[JsonObject],
) -> None:
    """Store what the store lacks of a longer copy here, as after a process that was killed."""
    stored_ids, ids = conversation_ids(stored), conversation_ids(lines)
    if len(ids) <= len(stored_ids) or ids[: len(stored_ids)] != stored_ids:
        return
    try:
        await transcripts.append(key, [line for line in lines if line.get("uuid")])
    except AgentError as error:  # as when the CLI writes it: only the copy is missing
        _logger.warning("a transcript was not stored: %s", error)


def _read(path: Path) -> TranscriptCopy:
    """Read a file up to the first line that is none."""
    lines: list[JsonObject] = []
    try:
        content = path.read_bytes()
    except OSError:
        return TranscriptCopy(lines=(), path=path, is_whole=False)
    for line in content.splitlines():
        try:
            value = msgspec.json.decode(line) if line.strip() else None
        except msgspec.DecodeError:
            return TranscriptCopy(lines=lines, path=path, is_whole=False)
        if isinstance(value, dict):
            lines.append(value)
    return TranscriptCopy(lines=lines, path=path, is_whole=content.endswith(b"\n"))


def _write_private(path: Path, lines: Iterable[JsonObject]) -> None:
    """Write a transcript as a whole: what reads it meanwhile gets the former one."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    written = path.with_name(f".{new_id('tmp')}")
    # Renamed over the name: a symbolic link there does not let another file be overwritten.
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    try:
        with os.fdopen(os.open(written, flags, 0o600), "wb") as file:
            for line in lines:
                if line.get("type") != "agent_metadata":
                    file.write(msgspec.json.encode(line) + b"\n")
        written.replace(path)
    finally:
        written.unlink(missing_ok=True)
