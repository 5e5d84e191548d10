"""Runs inside an interpreter of its own: prints what IPython completes and shows, as JSON."""

import json
import sys
from typing import Any

from IPython.core.completer import provisionalcompleter
from IPython.core.interactiveshell import InteractiveShell

_SET_UP = """
import haptera
from haptera import Agent, run_agent, tool
agent = Agent("echo/any", environment={"HOME": "/nowhere"})
session = agent.session()
stream = agent.stream("hi")
"""


def main() -> None:
    shell: Any = InteractiveShell.instance()
    shell.colors = "nocolor"
    shell.Completer.jedi_compute_type_timeout = (
        60_000  # by default a busy machine completes nothing
    )
    shell.run_cell(_SET_UP).raise_error()
    asked = json.load(sys.stdin)
    with provisionalcompleter():
        completed = {
            text: sorted({found.text for found in shell.Completer.completions(text, len(text))})
            for text in asked["complete"]
        }
    shown = {name: shell.object_inspect_text(name) for name in asked["inspect"]}
    sys.stdout.write(f"\n{json.dumps({'completed': completed, 'shown': shown})}\n")


main()
