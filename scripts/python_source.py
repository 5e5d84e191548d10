"""Python source as scripts read and write it: parsed, its imports, formatted."""

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path


@cache
def tree_of(module: str) -> ast.Module:
    """Return the source of a module, parsed."""
    return ast.parse(Path(sys.modules[module].__file__ or "").read_text("utf-8"))


@cache
def places_of(module: str) -> dict[str, str]:
    """Return where each name of a module comes from: what it imports, or the module itself."""
    found = dict.fromkeys(vars(sys.modules[module]), module)
    for node in ast.walk(tree_of(module)):
        if isinstance(node, ast.ImportFrom):
            found |= {each.name: node.module or "" for each in node.names}
    return found


def formatted(text: str, path: Path) -> str:
    """Return a module as the formatter leaves it, with its imports in order."""
    for arguments in (["check", "--fix-only", "--select", "I,F401,D,PLW0108"], ["format"]):
        command = [sys.executable, "-m", "ruff", *arguments, "-q", "-"]
        command += ["--stdin-filename", str(path)]
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
        text = done.stdout
    return text
