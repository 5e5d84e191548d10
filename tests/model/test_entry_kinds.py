"""A kind of entry that something forgot is noticed: by the fold, the rewind rule, tests or docs."""

import re
from pathlib import Path
from typing import Any, get_args

import pytest

from haptera.kernel.blocks.conversation.fold import SessionFold
from haptera.kernel.blocks.conversation.paths import current_path
from haptera.model.entries import (
    Entry,
    Rewound,
    SessionOpened,
    UnknownEntry,
)
from haptera.model.entry_kinds import KnownEntry
from haptera.model.ids import EntryId, new_session_id
from tests.strategies_branches import go_back
from tests.strategies_logs import write_session

KINDS: tuple[type[Entry], ...] = get_args(KnownEntry)
SHARED = set(Entry.__struct_fields__)

PAGE = Path(__file__).parents[2] / "docs" / "entries.md"


def kind_of(entry: type[Entry]) -> str:
    return str(entry.__struct_config__.tag)


def rows() -> dict[str, tuple[str, str]]:
    """Return the rows of the page by kind: the fields, and whether it survives a rewind."""
    found = re.findall(
        r"^\| `([a-z.]+)` \| .+? \| (.+?) \| (.+?) \|$", PAGE.read_text(), re.MULTILINE
    )
    return {kind: (fields, survives) for kind, fields, survives in found}


def test_every_kind_of_entry_can_be_read_back() -> None:
    """What decodes a log, and the samples of the round-trip tests, go by `KnownEntry`."""
    known: set[type[Entry]] = {*KINDS, UnknownEntry}
    forgotten = {kind_of(kind) for kind in known ^ set(Entry.__subclasses__())}
    assert not forgotten, "add it to KnownEntry in model/entry_kinds.py"


@pytest.mark.parametrize("kind", [*KINDS, UnknownEntry], ids=kind_of)
def test_every_kind_has_its_step_in_the_fold(kind: type[Entry]) -> None:
    assert kind in SessionFold._steps, "add a step to fold.py, also if it changes nothing there"


@pytest.mark.parametrize("kind", [*KINDS, UnknownEntry], ids=kind_of)
def test_every_kind_says_itself_whether_it_survives_a_rewind(kind: type[Entry]) -> None:
    assert isinstance(vars(kind).get("survives_rewind"), bool)


def test_every_kind_is_in_the_logs_that_are_cut_off_everywhere() -> None:
    """The strategy of the every-prefix tests writes each kind, if it is given enough choices."""
    written: set[type[Entry]] = set()
    for seed in range(60):
        choices = bytes((seed * 97 + place * place * 31) % 251 for place in range(200))
        written |= {type(entry) for entry in write_session(choices, go_back=go_back).entries}
    known: set[type[Entry]] = {*KINDS, UnknownEntry}
    unwritten = {kind_of(kind) for kind in known - written}
    assert not unwritten, "write it in tests/strategies_logs.py"


def test_every_kind_is_on_the_page_with_its_fields_and_its_fate() -> None:
    wanted = {
        kind_of(kind): (
            ", ".join(f"`{name}`" for name in kind.__struct_fields__ if name not in SHARED) or "—",
            "yes" if kind.survives_rewind else "no",
        )
        for kind in KINDS
    }
    assert rows() == wanted


def a_log(*kinds: type[Entry]) -> list[Entry]:
    """Write entries of these kinds, as far as the rewind rule looks at them."""
    made: list[Entry] = []
    for number, kind in enumerate(kinds, 1):
        shared: dict[str, Any] = {"id": EntryId(f"evt_{number}"), "time": 1, "seq": number}
        own = dict.fromkeys(kind.__struct_fields__[len(SHARED) :]) if kind is not Rewound else {}
        if kind is SessionOpened:
            own["session_id"] = new_session_id()
        made.append(kind(**shared | own | ({"to_seq": 1} if kind is Rewound else {})))
    return made


@pytest.mark.parametrize("kind", [*KINDS, UnknownEntry], ids=kind_of)
def test_what_survives_a_rewind_is_what_says_so(kind: type[Entry]) -> None:
    opened, entry, rewound = a_log(SessionOpened, kind, Rewound)
    path = current_path([opened, entry, rewound])
    assert (entry in path) == kind.survives_rewind
