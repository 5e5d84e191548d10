"""Words for a name or a word that is not known, and for the one that may have been meant."""

from collections.abc import Iterable, Sequence

from haptera.model.late_names import late_module


def word_fault(value: object, allowed: tuple[str, ...]) -> str:
    """Say that a word is not one of those allowed, and which one may have been meant."""
    words = ", ".join(repr(word) for word in allowed[:-1]) + f" or {allowed[-1]!r}"
    meant = _closest(str(value), allowed, cutoff=0.7)
    hint = f" ({did_you_mean(meant)})" if meant else ""
    return f"{value!r} is not allowed{hint}; use {words}"


def unknown_name(name: str, known: Iterable[str]) -> str:
    """Say that a name is not known, and which known one may have been meant."""
    return f"unknown{meant_name(name, known)}"


def meant_name(name: str, known: Iterable[str], *, prefix: str = "") -> str:
    """Say which known name may have been meant, after what was said of this one; else nothing.

    `prefix` is what all of them begin with; the names are given without it.
    """
    meant = _closest(name, known, cutoff=0.6)
    return f"; {did_you_mean([prefix + each for each in meant])}" if meant else ""


def did_you_mean(names: Sequence[str]) -> str:
    """Ask whether one of some names was meant."""
    return f"did you mean {' or '.join(map(repr, names))}?"


def _closest(name: str, known: Iterable[str], *, cutoff: float) -> list[str]:
    matches: list[str] = late_module("difflib").get_close_matches(
        name, list(known), n=1, cutoff=cutoff
    )
    return matches
