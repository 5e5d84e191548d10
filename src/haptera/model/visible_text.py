"""Text that shows what it holds: what a terminal obeys and what cannot be seen is written out.

`visible` is for reading: what languages and emoji need of joiners stays. `visible_exactly` is for
what a person decides about: all of it is written out, and the text can be had back from it.
"""

import re
import unicodedata

HIDDEN = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 but tab and newline, DEL, C1
    # What Unicode calls default ignorable: soft hyphens, joiners, marks of direction, fillers,
    # variation selectors, tags.
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3"
    "\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
    "\u2028\u2029\u2800\ufff9-\ufffb"  # other line ends, the empty Braille cell, annotations
    "\ud800-\udfff"  # halves of surrogate pairs
)
"""The inside of a character class: what is never shown as it is."""

_HIDDEN = re.compile(f"[{HIDDEN}]")
_EXACT = re.compile(rf"[\t{HIDDEN}]|\\(?=[\\trxuU\t{HIDDEN}])")
_JOINERS = "\u200c\u200d"
_EMOJI_STYLE = "\ufe0f"
_JOINING_SCRIPTS = re.compile("[\u0600-\u0dff\u1000-\u109f\u1780-\u17ff]")
"""Arabic and Indic scripts, Burmese and Khmer: joiners are part of how words are spelt."""
NEEDS_NEXT = frozenset(("\r", *_JOINERS))
"""Characters of which the next one decides whether they are shown."""
MOST_BEFORE = 2
"""How many characters before one can decide whether it is shown."""


def visible(text: str, *, start: int = 0, end: int | None = None) -> str:
    r"""Return a text, or a part of one, with what is hidden in it written out, as in `\x1b`.

    Tabs and newlines stay, and `\r\n` is a newline. Joiners stay between letters of scripts that
    are spelt with them and inside emoji, the emoji style behind a symbol.
    """
    end = len(text) if end is None else end
    pieces, place = list[str](), start
    for match in _HIDDEN.finditer(text, start, end):
        at = match.start()
        pieces.append(text[place:at])
        place = match.end()
        if text[at] == "\r" and text[place : place + 1] == "\n":
            continue
        pieces.append(text[at] if _is_needed(text, at) else _written_out(text[at]))
    pieces.append(text[place:end])
    return "".join(pieces)


def visible_exactly(text: str) -> str:
    r"""Return a text with tabs and everything hidden written out, so that it can be had back.

    It is written as `\t`, `\r`, `\xNN`, `\uNNNN` or `\UNNNNNNNN`. A backslash is doubled where it
    would be read as the beginning of one of these, or as half of a doubled one.
    """
    return _EXACT.sub(lambda found: _written_out(found[0]), text)


def visible_in_json(text: str) -> str:
    r"""Return a JSON document with what is hidden in its strings escaped: the same values."""
    return _HIDDEN.sub(_json_escape, text)


def _json_escape(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


def _written_out(character: str) -> str:
    # `surrogatepass`: half of a surrogate pair is hidden, too, and has to be written out.
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")


def _is_needed(text: str, at: int) -> bool:
    """Whether a hidden character shapes those around it."""
    before, after = text[at - 1 : at] if at else "", text[at + 1 : at + 2]
    if text[at] == _EMOJI_STYLE:
        return _is_symbol(before) or (before != "" and before in "0123456789#*")
    if text[at] not in _JOINERS or not before or not after:
        return False
    if all(_JOINING_SCRIPTS.match(each) and _is_letter(each) for each in (before, after)):
        return True
    if before == _EMOJI_STYLE and at > 1:
        before = text[at - 2]
    return text[at] == "\u200d" and _is_symbol(before) and _is_symbol(after)


def _is_letter(character: str) -> bool:
    return unicodedata.category(character)[0] in "LM" and not _HIDDEN.match(character)


def _is_symbol(character: str) -> bool:
    kind = unicodedata.category(character) if character else ""
    return (kind in {"So", "Sk", "Sm"} and character > "\x7f") or character in {"\u203c", "\u2049"}
