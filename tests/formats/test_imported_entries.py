"""What an imported log may hold: each row of the table, and each setting, is what it says."""

import json
import re
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from haptera.formats.archive_adoption import (
    KEPT_SETTINGS,
    kept_settings,
)
from haptera.model.entry_bytes import decode_entry, encode_entry
from haptera.model.errors import ErrorCode, StoreError
from haptera.model.ids import EntryId, new_entry_id, new_session_id
from haptera.model.known_events import KnownEntry
from haptera.model.log.entry import Entry, kind_name, own_fields, registered_kinds
from haptera.model.log.fold import fold_entries
from haptera.model.log.queries import QueryStarted
from haptera.model.log.sessions import SessionChanged, SessionOpened
from haptera.model.settings import Settings
from tests.attacks.hostile_imports import ESCAPES, SETTINGS, strings
from tests.formats.test_adoption import adopt, without_ends
from tests.strategies_branches import go_back
from tests.strategies_logs import write_session

PAGE = Path(__file__).parents[2] / "docs" / "export-and-import.md"
SHARED = {"kind", *Entry.__struct_fields__}
VALUES: dict[str, Any] = {
    "system_prompts": ["Be brief."],
    "thinking": "high",
    "max_tokens": 5,
    "temperature": 0.5,
    "stop": ["END"],
    "seed": -7,
    "model": "anthropic/claude-sonnet-5",
}
NO_MODELS = ("local:/etc/passwd", "local/qwen3", "claude-agent/x", f"a/{ESCAPES}")


def logs_with(kind: type[Entry]) -> list[list[Entry]]:
    """Return logs that have an entry of a kind, cut off at different places."""
    found = []
    for seed in range(60):
        choices = bytes((seed * 97 + place * place * 31) % 251 for place in range(200))
        entries = write_session(choices, go_back=go_back).entries
        places = [place for place, entry in enumerate(entries) if isinstance(entry, kind)]
        found += [entries, entries[: places[0] + 1]] if places else []
    return found[:20]


def nothing_is_open(log: Sequence[Entry]) -> None:
    fold = fold_entries(log)
    assert not fold.unended
    assert not fold.calls
    assert not fold.approvals
    assert not fold.inputs
    assert fold.unfinished_query() is None
    assert not fold.standing.grants


@pytest.mark.parametrize("kind", registered_kinds(), ids=kind_name)
def test_a_row_is_what_an_import_does(kind: type[Entry]) -> None:
    row = kind.imported
    logs = logs_with(kind)
    assert logs
    for entries in logs:
        _, new = adopt(entries)
        taken = without_ends(new)
        assert len(taken) == len(entries)
        for old, adopted in zip(entries, taken, strict=True):
            if not isinstance(old, kind):
                continue
            # A prompt that leaves the queue twice, or never waited, is left out.
            if row.fate == "dropped" or adopted.kind == "imported.missing":
                assert adopted.kind == "imported.missing"
                continue
            assert type(adopted) is type(old)
            if row.fields is not None:
                own = set(json.loads(encode_entry(adopted))) - SHARED
                assert own <= {*row.fields, "origin", "owner", "project", "name"}
        nothing_is_open(new)


@pytest.mark.parametrize("kind", registered_kinds(), ids=kind_name)
def test_no_value_of_a_field_leaves_anything_open(kind: type[Entry]) -> None:
    """Any value of any field, in the middle of a log and as the last that was written."""
    logs = logs_with(kind)
    assert logs
    names = [*own_fields(kind), "query_id", "turn_id", "later"]
    adopted = 0
    for number, (name, value) in enumerate(product(names, strings("/planted"))):
        entries = list(logs[number % len(logs)])
        place = next(place for place, entry in enumerate(entries) if isinstance(entry, kind))
        fields = json.loads(encode_entry(entries[place])) | {name: value}
        try:
            entries[place] = decode_entry(msgspec.json.encode(fields))
        except (StoreError, OverflowError):  # no archive could hold it
            continue
        if not isinstance(entries[0], SessionOpened):  # nor is one a log without its opening
            continue
        try:
            _, new = adopt(entries)
        except StoreError as refused:
            assert refused.code in {ErrorCode.CORRUPT, ErrorCode.VERSION_UNSUPPORTED}
            continue
        nothing_is_open(new)
        adopted += 1
    assert adopted > len(names)


def test_the_page_has_the_table() -> None:
    rows = re.findall(
        r"^\| `([a-z.]+)` \| (kept|ended|dropped) \| (.+?) \|$", PAGE.read_text(), re.MULTILINE
    )
    assert {kind: (fate, fields) for kind, fate, fields in rows} == {
        kind_name(kind): (
            row.fate,
            "—"
            if row.fate == "dropped"
            else "all"
            if row.fields is None
            else ", ".join(f"`{name}`" for name in row.fields),
        )
        for kind in get_args(KnownEntry)
        for row in [kind.imported]
    }
    named = re.search(r"^Settings that are kept: (.+)\.$", PAGE.read_text(), re.MULTILINE)
    assert named is not None
    assert named[1] == ", ".join(f"`{name}`" for name in KEPT_SETTINGS)


def test_there_is_a_value_for_every_setting() -> None:
    assert {*VALUES} == {*KEPT_SETTINGS}
    assert {*SETTINGS} - {"later"} == {*Settings.__struct_fields__} - {*KEPT_SETTINGS}


@pytest.mark.parametrize("name", [*VALUES, *SETTINGS])
def test_a_setting_is_kept_if_it_is_named_and_valid(name: str) -> None:
    value = VALUES.get(name, SETTINGS.get(name))
    expected = {name: value} if name in KEPT_SETTINGS else {}
    session_id = new_session_id()
    opened = SessionOpened(
        id=new_entry_id(), time=1, seq=1, session_id=session_id, configured=(name,)
    )
    with_settings = {**json.loads(encode_entry(opened)), "settings": {name: value}}
    entries: list[Entry] = [
        decode_entry(msgspec.json.encode(with_settings)),
        SessionChanged(id=EntryId("e2"), time=1, seq=2, changes={"settings": {name: value}}),
        decode_entry(
            b'{"kind":"query.started","id":"e3","time":1,"seq":3,"options":%b}'
            % msgspec.json.encode({"settings": {name: value}, "timeout": 1.5})
        ),
    ]
    base = Settings(model="own/model", denied_tools=("shell",), allowed_tools=("read",))
    for seq in (1, 2, 3):
        part = [entries[0] if seq == 1 else opened, *entries[1:seq]]
        _, new = adopt(part, settings=base)
        started, fold = new[seq - 1], fold_entries(new)
        if isinstance(started, QueryStarted):
            assert started.options.settings == expected
            assert started.options.timeout is None
        assert fold.settings == msgspec.convert(msgspec.to_builtins(base) | expected, Settings)
        assert not fold.configured


@pytest.mark.parametrize("name", KEPT_SETTINGS)
@pytest.mark.parametrize("value", ["-1", -1, 2**70, 1e300, [5], {"a": 1}, True, *NO_MODELS])
def test_a_setting_of_a_wrong_value_is_dropped(name: str, value: Any) -> None:
    is_valid = [name, value] in [["seed", -1], ["temperature", -1], ["model", "-1"]]
    assert kept_settings({name: value}) == ({name: value} if is_valid else {})
    assert kept_settings(value) == {}
