"""Compares an encoded request with the golden file of its name.

After a change that is meant, `HOLDFAST_UPDATE_GOLDEN=1` writes the files anew; look at the
difference before you commit it.
"""

import json
import os
from pathlib import Path

from holdfast.providers.wire.protocol import WireRequest
from holdfast.vocabulary.json_types import JsonObject

FOLDER = Path(__file__).parent / "golden"


def check_golden(protocol: str, name: str, request: WireRequest) -> JsonObject:
    """Compare with `golden/<protocol>/<name>.json` and return the body."""
    body: JsonObject = json.loads(request.body)
    found = {"path": request.path, "headers": request.headers, "body": body}
    path = FOLDER / protocol / f"{name}.json"
    if os.environ.get("HOLDFAST_UPDATE_GOLDEN") == "1":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    assert found == json.loads(path.read_text(encoding="utf-8"))
    return body
