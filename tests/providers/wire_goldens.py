"""Compares an encoded request with the golden file of its name.

After a change that is meant, `python -m tests.providers.wire_goldens_update` writes the files anew;
look at the difference before you commit it.
"""

import json
from pathlib import Path

from haptera.model.json_types import JsonObject
from haptera.providers.wire.protocol import WireRequest

FOLDER = Path(__file__).parent / "golden"


def check_golden(protocol: str, name: str, request: WireRequest) -> None:
    """Compare with `golden/<protocol>/<name>.json`."""
    path = FOLDER / protocol / f"{name}.json"
    assert shown(request) == json.loads(path.read_text(encoding="utf-8"))


def shown(request: WireRequest) -> JsonObject:
    """Return what a golden file holds."""
    return {"path": request.path, "headers": request.headers, "body": json.loads(request.body)}
