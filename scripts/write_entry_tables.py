"""Writes what is derived from the kinds of entries and events: the unions and tables of the pages.

`model/known_events.py` has the unions for type checkers and decoders; the tables stand in
pages of the documentation. Run it with `make docs`. With `--check`, which is part of `make check`,
it writes nothing, names each file that is not what it would write, and fails.
"""

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

from haptera.model import log
from haptera.model.events import LiveEvent
from haptera.model.log.entry import UnknownEntry, kind_name, own_fields, registered_kinds

ROOT = Path(__file__).parents[1]
UNIONS = ROOT / "src" / "haptera" / "model" / "known_events.py"
_TABLE = re.compile(r"(<!-- table: ([a-z ]+) -->\n).*?(<!-- end of table -->)", re.DOTALL)
_HEAD = '''"""All kinds of entries and live-only events that this version knows, by `make docs`.

A module of its own because it is data, written by `scripts/write_entry_tables.py`. What reads logs
goes by `KnownEntry`; importing it defines every kind.
"""

from typing import TypeAlias

'''

for _module in iter_modules(log.__path__, f"{log.__name__}."):
    import_module(_module.name)
KINDS = [kind for kind in registered_kinds() if kind is not UnknownEntry]


def unions() -> str:
    """Return the module with the unions."""
    live = sorted(_leaves(LiveEvent), key=lambda kind: kind.__name__)
    by_module: dict[str, list[str]] = {}
    for kind in (*KINDS, *live):
        by_module.setdefault(kind.__module__, []).append(kind.__name__)
    imports = "".join(
        f"from {module} import {_in_lines(names)}\n" for module, names in sorted(by_module.items())
    )
    return f"{_HEAD}{imports}\n{_union('KnownEntry', KINDS)}\n{_union('KnownLiveEvent', live)}"


def _in_lines(names: list[str]) -> str:
    return "(\n" + "".join(f"    {name},\n" for name in sorted(names)) + ")"


def _leaves(kind: type[LiveEvent]) -> list[type[LiveEvent]]:
    return [leaf for own in kind.__subclasses__() for leaf in _leaves(own)] or [kind]


def _union(name: str, kinds: list[type]) -> str:
    members = "\n    | ".join(kind.__name__ for kind in kinds)
    return f"{name}: TypeAlias = (\n    {members}\n)\n"


def entries_table() -> str:
    """Return the table of all kinds: when each is written, its fields, what a rewind does to it."""
    rows = [
        (
            _summary(kind),
            _names(own_fields(kind)),
            "yes" if kind.survives_rewind else "no",
        )
        for kind in KINDS
    ]
    return _markdown(("written when", "fields", "survives a rewind"), rows)


def imports_table() -> str:
    """Return the table of what an import takes over of each kind."""
    rows = []
    for kind in KINDS:
        fate, fields = kind.imported.fate, kind.imported.fields
        kept = "—" if fate == "dropped" else "all" if fields is None else _names(fields)
        rows.append((fate, kept))
    return _markdown(("import", "fields that are kept"), rows)


def _summary(kind: type) -> str:
    return (kind.__doc__ or "").partition("\n\n")[0].strip().replace("\n", " ").removesuffix(".")


def _names(fields: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in fields) or "—"


def _markdown(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    named = [(f"`{kind_name(kind)}`", *row) for kind, row in zip(KINDS, rows, strict=True)]
    lines = [("kind", *head), ("---",) * (len(head) + 1), *named]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


TABLES: Mapping[str, Callable[[], str]] = {
    "entries": entries_table,
    "imported entries": imports_table,
}
PAGES = tuple(ROOT / "docs" / f"{name}.md" for name in ("entries", "export-and-import"))


def wanted() -> dict[Path, str]:
    """Return the files that are written, with what they should hold."""
    pages = {page: page.read_text(encoding="utf-8") for page in PAGES}
    return {UNIONS: unions()} | {
        page: _TABLE.sub(lambda found: f"{found[1]}{TABLES[found[2]]()}{found[3]}", text)
        for page, text in pages.items()
    }


def main(*, is_check: bool) -> int:
    """Write the files, or name those that differ; returns how many did."""
    texts = wanted()
    differing = [path for path, text in texts.items() if text != _text_of(path)]
    for path in differing:
        if is_check:
            sys.stderr.write(f"{path.relative_to(ROOT)} is not up to date; run make docs\n")
        else:
            path.write_text(texts[path], encoding="utf-8")
    return len(differing)


def _text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


if __name__ == "__main__":
    is_check = sys.argv[1:] == ["--check"]
    count = main(is_check=is_check)
    sys.exit(count if is_check else 0)
