"""Who judges a request body: the rules of each protocol, by the client that sends it."""

from haptera.model.json_types import JsonObject
from tests.providers.grammar import anthropic, gemini, ollama, responses
from tests.providers.grammar.chat_grammar import refusals
from tests.providers.grammar.rules import breaches

_RULES = {
    "messages": anthropic.RULES,
    "generatecontent": gemini.RULES,
    "native": ollama.RULES,
    "responses": responses.RULES,
}
_OF_OPENAI_MODELS = {"effort", "seal not offered"}
"""Rules that tell by OpenAI's own names which of its models reason."""


def faults_of(api: str, body: JsonObject, *, model: str) -> list[str]:
    """Return why `api`, named like a kind of recording, would refuse a body."""
    server, _, protocol = api.rpartition("-")
    if protocol == "chat":
        dialect = "compatible" if server == "compat" else server
        return refusals(body, dialect)
    rules = _RULES[protocol]
    if protocol == "responses" and server not in {"openai", "azure"}:
        rules = tuple(rule for rule in rules if rule.name not in _OF_OPENAI_MODELS)
    if server == "perplexity" and "response_format" in body:
        # The same schema, in a field of its own: https://docs.perplexity.ai/api-reference
        wanted = body["response_format"]["json_schema"]
        body = {name: value for name, value in body.items() if name != "response_format"}
        body["text"] = {"format": {"type": "json_schema", **wanted}}
    found = breaches(rules, {"model": model} | body)
    return [f"{name}: {fault}" for name, faults in found.items() for fault in faults]
