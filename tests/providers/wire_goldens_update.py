"""Writes the golden requests anew, after a change that is meant."""

import json

from haptera.providers.wire.ollama import RequestEncoder as OllamaEncoder
from haptera.providers.wire.openai_responses.request import RequestEncoder as ResponsesEncoder
from haptera.providers.wire.protocol import WireRequest
from tests.providers.gemini.requests import REQUESTS as GEMINI
from tests.providers.gemini.requests import encoded as encode_gemini
from tests.providers.ollama.requests import REQUESTS as OLLAMA
from tests.providers.responses.requests import REQUESTS as RESPONSES
from tests.providers.wire_goldens import FOLDER, shown


def golden() -> dict[str, WireRequest]:
    """Return every golden request by the path of its file."""
    found = {
        f"responses/{name}": ResponsesEncoder(dialect)(request)
        for name, (request, dialect) in RESPONSES.items()
    }
    found |= {f"gemini/{name}": encode_gemini(*each) for name, each in GEMINI.items()}
    found |= {f"ollama/{name}": OllamaEncoder()(each) for name, each in OLLAMA.items()}
    return found


if __name__ == "__main__":
    for name, request in golden().items():
        path = FOLDER / f"{name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(shown(request), indent=1, ensure_ascii=False)
        path.write_text(text + "\n", encoding="utf-8")
