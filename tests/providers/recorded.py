"""The recorded replies of real providers, and how they are compared with what we make of them.

Usage is compared after this mapping. OpenAI Responses: input, output, cached, written and reasoning
tokens are ours by name; its totals are inclusive as ours are. Gemini: input is the prompt and what
tools added to it, output is candidates and thoughts, reasoning is the thoughts. Ollama: what was
evaluated of the prompt, and what was generated.
"""

from pathlib import Path

from haptera.model.json_types import JsonObject
from haptera.model.usage import Usage
from haptera.providers.wire.protocol import WireProtocol
from tests.fixtures_wire import wire_files
from tests.providers.replies import decode, read_json

SMALL = 2_500
"""Bodies up to this many bytes are split at every position."""


def cases(*folders: str, kind: str) -> list[object]:
    """Return the recorded cases of `kind` (stream or error) as parameters."""
    found = [param for folder in folders for param in wire_files(f"open/{folder}/*/meta.json")]
    return [param for param in found if _kind_of(param) in {kind, "missing"}]


def _kind_of(param: object) -> str:
    path = param.values[0]  # type: ignore[attr-defined]
    if not isinstance(path, Path) or not path.is_file():
        return "missing"
    return "stream" if read_json(path)["status"] == 200 else "error"


def result_of(case: Path) -> JsonObject:
    """Return what the vendor's own client made of a case."""
    value: JsonObject = read_json(case / "expect.json")["result"]
    return value


def differing_splits(protocol: WireProtocol, body: bytes) -> list[int]:
    """Return where the beginning of a body can be split so that it is decoded differently."""
    body = body[: 2 * SMALL]
    whole = decode(protocol, body).stream
    positions = range(1, len(body), 1 if len(body) <= SMALL else 17)
    return [each for each in positions if decode(protocol, body, [each]).stream != whole]


def usage_of_responses(usage: JsonObject | None) -> Usage:
    """Map the usage of OpenAI Responses."""
    usage = usage or {}
    into = usage.get("input_tokens_details") or {}
    out_of = usage.get("output_tokens_details") or {}
    return Usage(
        input=usage.get("input_tokens") or 0,
        output=usage.get("output_tokens") or 0,
        cache_read=into.get("cached_tokens") or 0,
        cache_write=into.get("cache_write_tokens") or 0,
        reasoning=out_of.get("reasoning_tokens") or 0,
    )


def usage_of_gemini(usage: JsonObject | None) -> Usage:
    """Map the usage of Gemini."""
    count = {name: value or 0 for name, value in (usage or {}).items() if name.endswith("_count")}
    thoughts = count.get("thoughts_token_count", 0)
    mapped = Usage(
        input=count.get("prompt_token_count", 0) + count.get("tool_use_prompt_token_count", 0),
        output=count.get("candidates_token_count", 0) + thoughts,
        cache_read=count.get("cached_content_token_count", 0),
        reasoning=thoughts,
    )
    # The provider's own total is the proof that nothing is counted twice or left out.
    assert mapped.total == count.get("total_token_count", mapped.total)
    return mapped


def usage_of_ollama(usage: JsonObject | None) -> Usage:
    """Map the usage of Ollama."""
    usage = usage or {}
    return Usage(input=usage.get("prompt_eval_count") or 0, output=usage.get("eval_count") or 0)
