"""What a kind of entry says of itself is said, is derived everywhere, and holds."""

import re
from pathlib import Path
from typing import Any, ClassVar, get_args

import pytest

from haptera.model.ids import EntryId, new_session_id
from haptera.model.known_events import KnownEntry
from haptera.model.log.entry import (
    KEPT,
    Entry,
    ImportRule,
    UnknownEntry,
    kind_name,
    own_fields,
    registered_kinds,
)
from haptera.model.log.history import Rewound
from haptera.model.log.paths import current_path
from haptera.model.log.session_fold import SessionFold
from haptera.model.log.sessions import SessionOpened
from scripts import write_entry_tables
from tests.strategies_branches import go_back
from tests.strategies_logs import write_session

KINDS: tuple[type[Entry], ...] = get_args(KnownEntry)
ROOT = Path(__file__).parents[2]


def test_every_kind_of_entry_can_be_read_back() -> None:
    """What decodes a log, and the samples of the round-trip tests, go by `KnownEntry`."""
    assert registered_kinds() == [*KINDS, UnknownEntry], "run make docs"


def test_what_is_derived_from_the_kinds_is_up_to_date() -> None:
    stale = [
        path.name for path, text in write_entry_tables.wanted().items() if path.read_text() != text
    ]
    assert not stale, "run make docs"


def test_the_check_names_what_is_not_up_to_date(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "entries.md"
    page.write_text("# Kinds\n<!-- table: entries -->\n<!-- end of table -->\n")
    monkeypatch.setattr(write_entry_tables, "ROOT", tmp_path)
    monkeypatch.setattr(write_entry_tables, "PAGES", (page,))
    assert write_entry_tables.main(is_check=True) == 1
    assert capsys.readouterr().err == "entries.md is not up to date; run make docs\n"
    assert "tool.ended" not in page.read_text()
    write_entry_tables.main(is_check=False)
    assert write_entry_tables.main(is_check=True) == 0
    assert "| `tool.ended` | A tool call has ended |" in page.read_text()


def test_a_kind_that_does_not_say_what_it_is_is_refused() -> None:
    before = registered_kinds()
    with pytest.raises(TypeError, match="MessageRated does not say apply, imported, survives_rew"):

        class MessageRated(Entry, frozen=True, kw_only=True, tag="message.rated"):
            stars: int

    with pytest.raises(TypeError, match="MessageSeen does not say survives_rewind"):

        class MessageSeen(Entry, frozen=True, kw_only=True, tag="message.seen"):
            imported: ClassVar[ImportRule] = KEPT

            def apply(self, fold: SessionFold) -> None:
                """Change nothing."""

    assert registered_kinds() == before


def test_every_kind_is_in_the_logs_that_are_cut_off_everywhere() -> None:
    """The strategy of the every-prefix tests writes each kind, if it is given enough choices."""
    written: set[type[Entry]] = set()
    for seed in range(60):
        choices = bytes((seed * 97 + place * place * 31) % 251 for place in range(200))
        written |= {type(entry) for entry in write_session(choices, go_back=go_back).entries}
    unwritten = {kind_name(kind) for kind in registered_kinds() if kind not in written}
    assert not unwritten, "write it in tests/strategies_logs.py"


def test_the_page_has_every_kind_with_its_fields_and_its_fate() -> None:
    """The table is generated; this says what has to be in it."""
    page = (ROOT / "docs" / "entries.md").read_text()
    rows = re.findall(r"^\| `([a-z.]+)` \| .+? \| (.+?) \| (.+?) \|$", page, re.MULTILINE)
    wanted = {
        kind_name(kind): (
            ", ".join(f"`{name}`" for name in own_fields(kind)) or "—",
            "yes" if kind.survives_rewind else "no",
        )
        for kind in KINDS
    }
    assert {kind: (fields, survives) for kind, fields, survives in rows} == wanted


def a_log(*kinds: type[Entry]) -> list[Entry]:
    """Write entries of these kinds, as far as the rewind rule looks at them."""
    made: list[Entry] = []
    for number, kind in enumerate(kinds, 1):
        shared: dict[str, Any] = {"id": EntryId(f"evt_{number}"), "time": 1, "seq": number}
        own = dict.fromkeys(own_fields(kind)) if kind is not Rewound else {}
        if kind is SessionOpened:
            own["session_id"] = new_session_id()
        made.append(kind(**shared | own | ({"to_seq": 1} if kind is Rewound else {})))
    return made


@pytest.mark.parametrize("kind", [*KINDS, UnknownEntry], ids=kind_name)
def test_what_survives_a_rewind_is_what_says_so(kind: type[Entry]) -> None:
    opened, entry, rewound = a_log(SessionOpened, kind, Rewound)
    path = current_path([opened, entry, rewound])
    assert (entry in path) == kind.survives_rewind
