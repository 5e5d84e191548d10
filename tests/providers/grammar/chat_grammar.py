"""What Chat Completions servers refuse, as rules with a source each: the judge of our requests.

A rule holds for the dialects it names, or for all. It was written from what servers say, not from
what our encoder does.
"""

from tests.providers.grammar import chat_message_rules, chat_option_rules
from tests.providers.grammar.chat_rule import RULES, Body, Rule

__all__ = ["RULES", "Body", "Rule", "refusals"]

# Importing them adds their rules.
RULE_MODULES = (chat_message_rules, chat_option_rules)


def refusals(body: Body, dialect: str) -> list[str]:
    """Return why a server of `dialect` would refuse `body`; nothing when it would not."""
    return [
        f"{rule.name}: {reason}"
        for rule in RULES
        if rule.dialects is None or dialect in rule.dialects
        for reason in rule.check(body)
    ]
