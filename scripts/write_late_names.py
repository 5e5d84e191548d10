"""Writes the tables of names that are imported late; `--check` only compares them.

What a module imports under `TYPE_CHECKING` is its `__all__` and its table of `late_names`. They
stand between two lines (`# Made by scripts/write_late_names.py.` and `# End.`).
"""

import ast
import re
import sys
from pathlib import Path

from scripts.python_source import formatted

FOLDER = Path(__file__).parents[1] / "src" / "haptera"
PATHS = [
    FOLDER / name
    for name in (
        "__init__.py",
        "access/assembly/__init__.py",
        "access/assembly/late.py",
        "agent/__init__.py",
    )
]
REGION = re.compile(r"(# Made by scripts/write_late_names\.py\.\n).*?(# End\.\n)", re.DOTALL)


def written(path: Path) -> str:
    """Return the text of a module with its tables as its imports for type checkers have them."""
    text = path.read_text("utf-8")
    block = next(
        node
        for node in ast.parse(text).body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    )
    places = {
        alias.name: node.module or ""
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    # Constants, classes, functions: the order that the linter has for `__all__`.
    names = sorted(places, key=lambda name: (not name.isupper(), name.islower(), name))
    table = {name: places[name] for name in names}
    made = (
        f"__all__ = {[*table]}\n\nif not TYPE_CHECKING:\n"
        f"    __getattr__ = late_names(__name__, {table})\n"
    )
    return formatted(REGION.sub(lambda found: found[1] + made + found[2], text), path)


def main() -> None:
    """Write the tables, or say which are not what would be written."""
    texts = {path: written(path) for path in PATHS}
    if "--check" in sys.argv[1:]:
        wrong = [f"{path}" for path, text in texts.items() if path.read_text("utf-8") != text]
        sys.exit(f"run `make sync`: it would write {', '.join(wrong)} anew" if wrong else 0)
    for path, text in texts.items():
        path.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
