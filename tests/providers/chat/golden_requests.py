"""The golden request bodies; `python -m tests.providers.chat.golden_requests` writes them anew."""

import json
from pathlib import Path
from typing import Any

from haptera.providers.wire.chat_completions.dialects import DIALECTS, Dialect
from tests.providers.chat.example_requests import EXAMPLES, encode

FOLDER = Path(__file__).resolve().parents[1] / "golden" / "chat"


def golden_of(dialect: Dialect) -> dict[str, Any]:
    """Return what a dialect makes of each example."""
    requests = {name: encode(dialect, make(dialect)) for name, make in EXAMPLES.items()}
    return {
        name: {"path": request.path, "body": json.loads(request.body)}
        for name, request in requests.items()
    }


def write_all() -> None:
    """Write every golden file; the change is then read by a person."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for dialect in DIALECTS.values():
        text = json.dumps(golden_of(dialect), indent=1, ensure_ascii=False)
        (FOLDER / f"{dialect.name}.json").write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    write_all()
