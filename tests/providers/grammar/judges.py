"""Who judges a request body: the rules of each protocol, by the client that sends it."""

from holdfast.vocabulary.json_types import JsonObject
from tests.providers.grammar import anthropic, gemini, ollama, responses
from tests.providers.grammar.chat_grammar import refusals
from tests.providers.grammar.rules import breaches

_RULES = {
    "messages": anthropic.RULES,
    "generatecontent": gemini.RULES,
    "native": ollama.RULES,
    "responses": responses.RULES,
}


def faults_of(api: str, body: JsonObject, *, model: str) -> list[str]:
    """Return why `api`, named like a kind of recording, would refuse a body."""
    server, _, protocol = api.rpartition("-")
    if protocol == "chat":
        dialect = "compatible" if server == "compat" else server
        return refusals(body, dialect)
    found = breaches(_RULES[protocol], {"model": model} | body)
    return [f"{name}: {fault}" for name, faults in found.items() for fault in faults]
