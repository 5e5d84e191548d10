"""The table of temperatures says what becomes of one, by model: each row is tried."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from haptera.model.requests import ModelRequest
from haptera.model.settings import Thinking
from haptera.testing.decode_reply import PROTOCOLS
from tests.providers.conversations import user

PAGE = Path(__file__).resolve().parents[2] / "docs" / "provider-options.md"

APIS = {
    "Messages": ["anthropic-messages"],
    "Responses": ["openai-responses", "azure-responses"],
    "Chat Completions at OpenAI and Azure": ["openai-chat", "azure-chat"],
    "Responses and Chat Completions elsewhere": [
        "xai-responses",
        "openrouter-responses",
        "compat-responses",
        "xai-chat",
        "openrouter-chat",
        "groq-chat",
        "deepseek-chat",
        "mistral-chat",
    ],
    "generateContent": ["gemini-generatecontent", "vertex-generatecontent"],
    "Ollama": ["ollama-native"],
}
THINKING: dict[str, list[Thinking | None]] = {
    "any": [None, "off", "low", "high", "max"],
    "off": ["off"],
    "not set, off": [None, "off"],
    "low to max": ["low", "high", "max"],
    "not set, low to max": [None, "low", "high", "max"],
}


def cases() -> Iterator[tuple[str, str, Thinking | None, float | None]]:
    section = PAGE.read_text(encoding="utf-8").split("## Temperature\n", 1)[1].split("\n## ", 1)[0]
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("|")]
    for _, protocol, thinking, outcome, examples in rows[2:]:
        becomes = None if outcome.strip() == "not sent" else float(outcome)
        for model in re.findall(r"`([^`]+)`", examples):
            for api in APIS[protocol.strip()]:
                for level in THINKING[thinking.strip()]:
                    yield api, model, level, becomes


def temperature_in(body: object) -> float | None:
    """Find the temperature in a body, wherever it stands."""
    if not isinstance(body, dict):
        return None
    if "temperature" in body:
        return float(body["temperature"])
    return next((found for item in body.values() if (found := temperature_in(item))), None)


@pytest.mark.parametrize(("api", "model", "thinking", "becomes"), list(cases()))
def test_a_temperature_becomes_what_the_page_says(
    api: str, model: str, thinking: Thinking | None, becomes: float | None
) -> None:
    request = ModelRequest(model=model, messages=(user("Hi"),), temperature=1.5, thinking=thinking)
    body = json.loads(PROTOCOLS[api].new_encoder()(request).body)
    assert temperature_in(body) == becomes
