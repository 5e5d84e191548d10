"""Known ways to run a program past a rule that denies it; the program here is called `evil`.

They are what people found in rules of other tools: quoting, expansion, compound commands, wrappers,
interpreters, programs that run others, files that are made first. Each is harmless: `evil` does
nothing. A few need a program that is not installed everywhere, and do nothing there.
"""

import json
from pathlib import Path

FAMILIES: dict[str, list[str]] = json.loads(
    Path(__file__).with_suffix(".json").read_text(encoding="utf-8")
)
BYPASSES: tuple[str, ...] = tuple(
    dict.fromkeys(command for family in FAMILIES.values() for command in family)
)
