"""Approval cards: what is shown of a question, part by part, and whose words each part has."""

import re
from collections.abc import Iterator
from typing import Literal, TypeAlias

import msgspec

from haptera.model.approvals import ApprovalRequest, CallFacts
from haptera.model.ids import ApprovalId
from haptera.model.json_types import Json

CardWords: TypeAlias = Literal["ours", "model", "tool"]
"""Who wrote a text: this program, the model, or a tool or the server that offers it."""
CardPartKind: TypeAlias = Literal[
    "tool", "program", "folder", "path", "change", "argument", "warning", "reason"
]

_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


class CardPart(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One part of a card. `text` is whole and as it came; it is escaped when it is shown."""

    kind: CardPartKind
    words: CardWords
    text: str
    name: str = ""
    """Of an argument: where its value is, as in `items[0].price`; the words of who made the call.
    """
    is_json: bool = False
    """Of an argument: whether `text` is a JSON value that is no string."""


class ApprovalCard(msgspec.Struct, frozen=True, kw_only=True):
    """What a person sees of a question: everything that the answer is about, and nothing cut.

    Every value in the arguments is in a part of kind `argument`, one part for each.
    """

    approval_id: ApprovalId
    parts: tuple[CardPart, ...]


def card_of(request: ApprovalRequest) -> ApprovalCard:
    """Return the card of a question."""
    return ApprovalCard(approval_id=request.id, parts=tuple(_parts(request)))


def _parts(request: ApprovalRequest) -> Iterator[CardPart]:
    yield CardPart(kind="tool", words="tool", text=request.tool)
    yield from _fact_parts(request.facts)
    for name, value in _leaves("", request.arguments):
        is_json = not isinstance(value, str)
        text = msgspec.json.encode(value).decode() if is_json else str(value)
        yield CardPart(
            kind="argument", words=request.asked_by, text=text, name=name, is_json=is_json
        )
    # None says that it is not known, and gives no warning.
    if request.facts.is_confined is False:
        unconfined = "no full sandbox would confine this command"
        yield CardPart(kind="warning", words="ours", text=unconfined)
    if request.child is not None:
        yield CardPart(kind="reason", words="ours", text="a sub-agent asks")
    if request.reason:
        words: CardWords = "tool" if request.asked_by == "tool" else "ours"
        yield CardPart(kind="reason", words=words, text=request.reason)


def _fact_parts(facts: CallFacts) -> Iterator[CardPart]:
    """Yield what the call would do: found out by the tool, in words that the model chose."""
    if facts.argv is not None:
        # Of `bash … -c SCRIPT` the script is what runs.
        is_script = len(facts.argv) > 1 and facts.argv[-2] == "-c"
        words = [facts.argv[-1]] if is_script else [_quoted(each) for each in facts.argv]
        yield CardPart(kind="program", words="model", text=" ".join(words))
        folder = facts.folder or facts.root or "."
        yield CardPart(kind="folder", words="model", text=folder)
    if facts.path is not None:
        yield CardPart(kind="path", words="model", text=facts.path)
    if facts.difference:
        yield CardPart(kind="change", words="model", text=facts.difference)


def _quoted(word: str) -> str:
    """Return a word as a shell would take it."""
    if word and re.fullmatch(r"[\w@%+=:,./-]+", word, re.ASCII):
        return word
    return "'" + word.replace("'", "'\"'\"'") + "'"


def _leaves(name: str, value: Json) -> Iterator[tuple[str, Json]]:
    """Yield every value that holds no other, and empty objects and lists, with where it is."""
    if isinstance(value, dict) and value:
        for key, each in value.items():
            yield from _leaves(_beneath(name, key), each)
    elif isinstance(value, list) and value:
        for index, each in enumerate(value):
            yield from _leaves(f"{name}[{index}]", each)
    elif name or value not in ({}, []):  # a call without arguments has none to show
        yield name, value


def _beneath(name: str, key: str) -> str:
    if _PLAIN_KEY.fullmatch(key):
        return f"{name}.{key}" if name else key
    return f"{name}[{msgspec.json.encode(key).decode()}]"
