"""Redaction: a session without secrets, paths and media, so that it can be shown to others.

Secrets are what `model.secrets.scrub` knows or recognises. Absolute paths become `[path-1]`,
`[path-2]`: the same path always the same number, so that one can still follow what was done to
which file. Media are replaced by a line of text, because nothing can look into them.
"""

import re
from collections.abc import Iterable, Iterator

import msgspec
from msgspec.structs import replace

from haptera.formats.secret_rules import without_secrets_by_rule
from haptera.formats.values import SessionExport, TimedMessage
from haptera.model.entry_bytes import decode_entry, encode_entry
from haptera.model.ids import PartId
from haptera.model.json_types import Json, JsonObject
from haptera.model.log.entry import Entry
from haptera.model.log.queries import QueryEnded
from haptera.model.log.turns import (
    GrowingPart,
    PartCheckpoint,
    PartEnded,
    PartTexts,
    TurnDiscarded,
    TurnEnded,
    TurnStarted,
)
from haptera.model.secrets import scrub

_NAME = r"[^\s/\\:\"'<>|`(){}\[\],;]"
_SEPARATOR = r"[\\/]"
_BEHIND = rf"(?:{_SEPARATOR}{_NAME}+)*{_SEPARATOR}?"
# Each looks back over the first sign of a path, which is searched for first: that is much faster.
# Not behind a word, a slash or a dot: there it is the end of a relative path or of a URL. Behind an
# option of one letter or the end of a line in a text that was written as JSON, it begins anew.
_BEGAN = r"(?:(?<![\w/\\.].)|(?<=\s-[A-Za-z].)|(?<=^-[A-Za-z].)|(?<=\\[nrt].))"
_NAME_ENDS = r"(?![\w~+@%-]|\.\w)"
_PATH = (
    rf"file://(?:/{_NAME}+)+/?"
    rf"|/(?:home|Users)(?:/{_NAME}+)+/?"
    rf"|/{_BEGAN}{_NAME}+(?:/{_NAME}+)+/?"
    rf"|~(?<![\w/\\.].)(?:/{_NAME}+)+/?"
    rf"|[A-Za-z]:(?<![\w/\\]..)[\\/]{_NAME}+(?:[\\/]{_NAME}+)*[\\/]?"
    rf"|\\(?<![\w\\].)\\{_NAME}+(?:\\{_NAME}+)+"
)
"""Absolute paths: of Unix from two names on, those in home folders, of Windows, of its network."""
_ABSOLUTE = re.compile(r"/|[A-Za-z]:[\\/]|\\\\")
_WORD = r"[\w.+-]{1,64}"
_DATA_URL = re.compile(
    rf"data:(?:(?P<mime>{_WORD}/{_WORD})(?:;[\w=.+-]{{1,64}}){{0,8}}|;base64),[^\s\"'<>)\\]*",
    re.ASCII,
)
"""URLs that hold their content; the bounds keep the search linear in the length of a text."""
_MOST_PATHS = 100_000
_SEALED = frozenset({"text", "reasoning", "tool_call", "compaction"})
"""Parts to which providers attach data of their own; a signature does not fit masked text."""
_SETTLING = (TurnStarted, TurnEnded, TurnDiscarded, QueryEnded)


class Redactor:
    """Masks texts. Owns the numbers of paths: one redactor is for one export.

    `roots` are folders whose paths are masked although they would not be recognised: of one name,
    or with spaces in their names. The working folder and the home folder are meant. Only absolute
    ones count: the name of a project that is no folder is a word like any other.
    """

    def __init__(self, roots: Iterable[str] = ()) -> None:
        self._numbers: dict[str, int] = {}
        absolute = {root.rstrip("/\\") for root in roots if _ABSOLUTE.match(root)} - {""}
        # The longest first: the home folder would match the beginning of the working folder.
        named = [_pattern_of(root) for root in sorted(absolute, key=len, reverse=True)]
        # In one pass, so that a path is masked as a whole, whichever of them recognises it.
        self._paths = re.compile("|".join((*named, _PATH)))

    def text(self, text: str) -> str:
        """Return a text without secrets, paths and media."""
        if "data:" in text:
            text = _DATA_URL.sub(lambda found: f"[{found['mime'] or 'data'}: left out]", text)
        if "/" not in text and "\\" not in text:
            return _without_secrets(text)
        # Secrets first: one that had a path masked inside it would not be recognised any more.
        return self._paths.sub(self._mask, _without_secrets(text))

    def value(self, value: Json) -> Json:
        """Return a JSON value whose texts and keys are masked."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list | tuple):
            return [self.value(item) for item in value]
        if not isinstance(value, dict):
            return value
        if value.get("type") == "media" and isinstance(value.get("mime"), str):
            return {"type": "text", "text": f"[{value['mime']}: left out]"}
        is_part = value.get("type") in _SEALED
        return {
            self.text(name): self.value(each)
            for name, each in value.items()
            if not (is_part and name in {"native", "signature"})
        }

    def _mask(self, match: re.Match[str]) -> str:
        path = match[0].rstrip("/\\")
        if path not in self._numbers and len(self._numbers) >= _MOST_PATHS:
            return "[path]"
        return f"[path-{self._numbers.setdefault(path, len(self._numbers) + 1)}]"


def _without_secrets(text: str) -> str:
    """Mask what is known to be secret, and what a rule finds in the rest."""
    return without_secrets_by_rule(scrub(text))


def _pattern_of(root: str) -> str:
    """Return what finds a folder and what is in it, but not a folder whose name goes on."""
    # `/work` may be the end of a relative path; several names in a row are no words.
    is_short = len(re.findall(_SEPARATOR, root)) == 1
    began = _BEGAN if is_short else ""
    return f"{re.escape(root[0])}{began}{re.escape(root[1:])}{_NAME_ENDS}{_BEHIND}"


def redacted(export: SessionExport, redactor: Redactor) -> SessionExport:
    """Return a session that can be written in any format for others to read."""
    masked = [
        msgspec.convert(redactor.value(msgspec.to_builtins(each)), TimedMessage)
        for each in export.messages
    ]
    return replace(
        export,
        messages=tuple(masked),
        title=redactor.text(export.title) if export.title else None,
        cwd=redactor.text(export.cwd),
        system_prompts=tuple(map(redactor.text, export.system_prompts)),
        contents={},
    )


def redacted_entries(entries: Iterable[Entry], redactor: Redactor) -> Iterator[Entry]:
    """Yield the entries of a log for others to read; they fold to the masked conversation.

    Text that streamed is in the log in increments, and a secret may stand across two of them. So
    what was said in a turn is put together first; its first increment then holds all of it.
    """
    turn: list[Entry] = []
    for entry in entries:
        if turn and isinstance(entry, _SETTLING):
            yield from _redacted_turn(turn, redactor)
            turn = []
        if turn or isinstance(entry, PartCheckpoint):
            turn.append(entry)
        else:
            yield _redacted_entry(entry, redactor)
    yield from _redacted_turn(turn, redactor)


def _redacted_turn(turn: list[Entry], redactor: Redactor) -> Iterator[Entry]:
    whole = {name: redactor.text(text) for name, text in _texts_of(turn).items()}
    begun: set[PartId] = set()
    for entry in turn:
        if isinstance(entry, PartCheckpoint):
            text = whole[entry.part_id]
            is_first = entry.part_id not in begun
            begun.add(entry.part_id)
            first = {"text": text, "offset": 0} if is_first else {"text": "", "offset": len(text)}
            # Entries with `raw` are written as these bytes, whatever their fields say.
            yield replace(entry, raw=None, **first)
        elif isinstance(entry, PartEnded) and entry.part_id in begun and entry.offset:
            rest = (
                replace(entry.part, text="") if isinstance(entry.part, GrowingPart) else entry.part
            )
            ended = replace(entry, part=rest, offset=len(whole[entry.part_id]), raw=None)
            yield _redacted_entry(ended, redactor)
        else:
            yield _redacted_entry(entry, redactor)


def _texts_of(turn: list[Entry]) -> dict[PartId, str]:
    """Return the whole text of every part that was stored in increments."""
    growing, texts = PartTexts(), dict[PartId, str]()
    for entry in turn:
        if isinstance(entry, PartCheckpoint):
            growing.add(entry)
            texts[entry.part_id] = ""
        elif isinstance(entry, PartEnded) and entry.part_id in growing:
            part = growing.compose(entry).part
            texts[entry.part_id] = part.text if isinstance(part, GrowingPart) else ""
            growing.drop(entry.part_id)
    unfinished = {name: growing.text_of(name) for name in texts if name in growing}
    return texts | unfinished


def _redacted_entry(entry: Entry, redactor: Redactor) -> Entry:
    fields: JsonObject = msgspec.json.decode(encode_entry(entry))
    return decode_entry(msgspec.json.encode(redactor.value(fields)))
