"""Reads the tables of docs/provider-errors.md, and sends what a row says through a protocol."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from haptera.model.errors import AgentError
from haptera.model.json_types import JsonObject
from haptera.providers.wire import (
    anthropic_messages,
    chat_completions,
    gemini,
    ollama,
    openai_responses,
)
from haptera.providers.wire.protocol import Frame, WireProtocol

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "provider-errors.md"
IN_STREAM = 200


def cells_of(heading: str) -> list[list[str]]:
    """Return the cells of the first table under a heading, without its first row."""
    text = DOCUMENT.read_text(encoding="utf-8").split(f"# {heading}\n", 1)[1]
    lines = text.split("\n|---", 1)[1].split("\n\n", 1)[0].splitlines()[1:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


class ErrorRow(NamedTuple):
    """One row: what comes in, and what it becomes."""

    status: int
    typed: str
    message: str
    code: str
    basis: str

    @property
    def name(self) -> str:
        return f"{self.status}-{self.typed}-{self.message[:30]}"


def rows_of(heading: str) -> list[ErrorRow]:
    """Return the rows of a table of errors."""
    return [
        ErrorRow(int(status), typed, message, code, basis)
        for status, typed, message, code, basis in cells_of(heading)
    ]


def _anthropic_report(typed: str, message: str) -> JsonObject:
    error: JsonObject = {"message": message} | ({"type": typed} if typed else {})
    if typed == "spend_limit":
        details = {"error_code": "enforced_spend_limit_reached"}
        error |= {"type": "rate_limit_error", "details": details}
    return {"type": "error", "error": error}


def _chat_report(typed: str, message: str) -> JsonObject:
    code = int(typed) if typed.isdigit() else typed
    return {"error": {"message": message} | ({"code": code} if typed else {})}


def _responses_report(typed: str, message: str) -> JsonObject:
    if typed == "invalid-argument":
        return {"code": typed, "error": message}
    return {"error": {"code": typed or None, "message": message, "param": None}}


def _gemini_report(typed: str, message: str) -> JsonObject:
    error: JsonObject = {"message": message, "status": typed}
    if typed == "QUOTA_OF_THE_DAY":
        violations = [{"quotaId": "RequestsPerDayPerProject"}]
        error |= {"status": "RESOURCE_EXHAUSTED", "details": [{"violations": violations}]}
    elif typed in {"BILLING_DISABLED", "SERVICE_DISABLED"} or typed.startswith("API_"):
        error |= {"status": "INVALID_ARGUMENT", "details": [{"reason": typed}]}
    return {"error": error}


def _ollama_report(typed: str, message: str) -> JsonObject:
    return {"error": message}


class Peer(NamedTuple):
    """A protocol and how its servers report a typed code and a message."""

    protocol: WireProtocol
    report: Callable[[str, str], JsonObject]

    def error(
        self, status: int, typed: str, message: str, headers: Mapping[str, str] | None = None
    ) -> AgentError:
        """Return what becomes of an error reply, or of a report inside a success."""
        body = json.dumps(self.report(typed, message)).encode()
        if status != IN_STREAM:
            return self.protocol.classify(status, headers or {}, body)
        with pytest.raises(AgentError) as raised:
            self.protocol.decoder().feed([Frame(data=body, event="error")], [])
        return raised.value


PEERS = {
    "Anthropic Messages": Peer(anthropic_messages.PROTOCOL, _anthropic_report),
    "Chat Completions": Peer(chat_completions.PROTOCOL, _chat_report),
    "OpenAI Responses": Peer(openai_responses.PROTOCOL, _responses_report),
    "Gemini generateContent": Peer(gemini.PROTOCOL, _gemini_report),
    "Ollama": Peer(ollama.PROTOCOL, _ollama_report),
}
"""By the heading of their section."""
