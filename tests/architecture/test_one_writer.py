"""What the package writes to a terminal goes through one writer; every other way is listed."""

import ast
from pathlib import Path

from tests.architecture.source_tree import PACKAGE, modules_under

WRITER = "cli/terminal.py"
OTHER_WAYS = {
    "cli/__init__.py": {"sys.stderr"},  # the name of a package, where click is missing
    "cli/chat/client.py": {"click.prompt"},  # words of ours
    "cli/chat/screen.py": {"sys.stdout"},  # as a guarded stream
    "cli/chat/slash_commands.py": {"sys.stdout"},  # as a guarded stream
    "cli/import_commands.py": {"click.prompt"},  # words of ours
    "cli/login_commands.py": {"click.prompt"},  # words of ours, and a name made harmless
    "cli/main.py": {"sys.stdout"},  # only whether it is a terminal
    "cli/models_commands.py": {"click.confirm"},  # words of ours
    "cli/sessions_commands.py": {"sys.stdout"},  # bytes of an export, where it is no terminal
    "demo.py": {"sys.stdout", "sys.stderr"},  # through `visible`
    # On the guarded streams of the command.
    "access/failure_log.py": {"StreamHandler"},
    "server/command.py": {"click.echo"},
    "server/rpc_stdio.py": {"sys.stdout"},  # only flushed
    "tools/page_text.py": {"sys.stdout"},  # the text of a page, to its parent through a pipe
    # Lines of ASCII JSON, from a child process to its parent.
    "tools/sandbox/probes.py": {"sys.stdout"},
    "tools/search_program.py": {"sys.stdout"},
}
_CLICK = {"echo", "secho", "prompt", "confirm", "echo_via_pager", "pause", "progressbar"}
_STREAMS = {"stdout", "stderr", "__stdout__", "__stderr__"}
_LOGGING = {"StreamHandler", "basicConfig", "print_exc", "print_exception", "print_stack"}


def ways_in(source: str) -> set[str]:
    """Return the ways to a terminal that a module uses."""
    found = set[str]()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id in {"print", "input", "breakpoint"}:
                found.add(node.func.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            owner = node.value.id
            if owner == "sys" and node.attr in _STREAMS:
                found.add(f"sys.{node.attr}")
            elif owner == "click" and node.attr in _CLICK:
                found.add(f"click.{node.attr}")
            elif owner in {"logging", "traceback"} and node.attr in _LOGGING:
                found.add(node.attr)
        elif isinstance(node, ast.ImportFrom) and node.module in {"sys", "click", "logging"}:
            taken = {alias.name for alias in node.names}
            found |= taken & (_STREAMS | _CLICK | _LOGGING)
        elif isinstance(node, ast.ImportFrom) and node.module in {"getpass", "pydoc", "pprint"}:
            found.add(node.module)
    return found


def test_every_way_to_a_terminal_is_the_writer_or_is_listed() -> None:
    found = {
        str(path.relative_to(PACKAGE)): ways
        for path in modules_under(PACKAGE)
        if (ways := ways_in(Path(path).read_text(encoding="utf-8")))
    }
    found.pop(WRITER)
    assert found == OTHER_WAYS


def test_a_planted_way_is_seen() -> None:
    planted = (
        "print('x')",
        "import sys\nsys.stderr.write(name)",
        "import sys\nout = sys.stdout",
        "import click\nclick.secho(name)",
        "from click import echo",
        "from sys import stdout",
        "import traceback\ntraceback.print_exc()",
        "import logging\nlogging.basicConfig()",
    )
    assert all(ways_in(source) for source in planted)
    assert not ways_in("def f(output):\n    output.line('x')")
