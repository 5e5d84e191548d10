"""Secrets: values that cannot be printed, logged or stored by accident.

One scrubber is used wherever text from outside leaves the program: `scrub` takes out the
values that are known to be secret and whatever has the shape of a credential. A value is known
from the moment a `Secret` is made of it. `AgentError` scrubs its message and request id itself, so
what is raised, stored, recorded or shown of an error went through here.
"""

import re
from collections.abc import Callable, Iterable, Mapping

from haptera.model.json_types import writable
from haptera.model.late_names import late_module

REDACTED = "****"

_SHOWN = 8
_LONG_ENOUGH_TO_SHOW_SOME = 16
_SHORTEST_KNOWN = 6
"""Shorter values are in too many words to be taken out of texts."""
_SHORTEST_OWN = 4
"""The same for the secrets of one request, which are few; no service gives out shorter ones."""
_MOST_KNOWN = 1000
"""How many values are remembered; the one that was not used for longest is forgotten first."""
_STAND_INS = frozenset({"ollama", "lm-studio", "not-needed", "no-key", "none-needed", "dummy-key"})
"""What people write where a server wants a key and does not look at it."""

# A dictionary keeps the order in which values were used, which a set does not.
_known: dict[str, None] = {}

# `Bearer authentication` is prose. A credential has a digit or a sign in it, or is long.
_MORE_THAN_A_WORD = r"(?=[A-Za-z0-9._~+/=-]*[0-9._~+/=-]|[A-Za-z]{20})"
# `api_key=settings.api_key` is a program. A credential without quotes has a digit, or is long.
_NO_NAME = r"(?=[A-Za-z._~+/-]*[0-9]|[A-Za-z]{20})"
_PREFIXES = ("sk", "rk", "pk", "gsk", "xai", "ghp", "gho", "ghs", "hf", "glpat")
"""What keys of services begin with."""
_BASE64_RUN = r"[A-Za-z0-9_-]{8,}+"
# A JSON Web Token, with what is before it in its run of letters: whether dots follow is looked at
# once for a run. To look behind every `eyJ` in it would take quadratic time.
_JWT = (
    rf"(?<![A-Za-z0-9_-])(?={_BASE64_RUN}\.{_BASE64_RUN}\.{_BASE64_RUN})"
    rf"[A-Za-z0-9_-]*?\beyJ{_BASE64_RUN}\.{_BASE64_RUN}\.{_BASE64_RUN}"
)
_CREDENTIAL = (
    rf"(?P<lead>\b(?i:bearer|basic)\s+){_MORE_THAN_A_WORD}[A-Za-z0-9._~+/=-]{{8,}}"
    r"|(?P<name>\b(?i:(?:x-)?(?:api|access|auth|secret)[-_]?(?:key|token))[\"']?\s*[:=]\s*"
    rf"(?:[\"']|{_NO_NAME}))[A-Za-z0-9._~+/=-]{{8,}}"
    rf"|\b(?i:{'|'.join(_PREFIXES)})[-_][A-Za-z0-9_-]{{16,}}"
    r"|\bAIza[A-Za-z0-9_-]{16,}"
    rf"|{_JWT}"
)
_MARKS = (
    *("bearer", "basic", "key", "token", "aiza", "eyj"),
    *(prefix + sign for prefix in _PREFIXES for sign in "-_"),
)
"""In lower case: whatever has the shape of a credential has one of these in it."""
_TELLING = ("auth", "key", "token", "secret", "cookie", "passw", "credential", "signature")
"""What names of headers with a credential have in them."""


class Secret:
    """A credential; only `reveal` shows it.

    Printing, formatting and pickling give a stand-in; encoding it as JSON fails. Once it is made,
    `scrub` takes its value out of texts.
    """

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value
        remember(value)

    def reveal(self) -> str:
        """Return the value itself; only for the request that needs it."""
        return self._value

    def __repr__(self) -> str:
        return f"Secret({REDACTED!r})"

    def __str__(self) -> str:
        return REDACTED

    def __format__(self, format_spec: str) -> str:
        return format(REDACTED, format_spec)

    def __bool__(self) -> bool:
        return bool(self._value)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        # It brings OpenSSL's digests, and secrets are seldom compared.
        compare = late_module("hmac").compare_digest
        return bool(compare(_bytes_of(self._value), _bytes_of(other._value)))

    def __hash__(self) -> int:
        return hash((Secret, self._value))

    def __reduce__(self) -> tuple[type["Secret"], tuple[str]]:
        return Secret, (REDACTED,)


def mask(value: str) -> str:
    """Return enough of a credential to tell two apart in a log: less than half, or nothing.

    For programs with several keys that log which one they use. Haptera itself logs none of a key.
    """
    if len(value) <= _LONG_ENOUGH_TO_SHOW_SOME:
        return REDACTED
    return value[:_SHOWN] + REDACTED


def token_digest(token: str) -> str:
    """Return the SHA-256 of a token, which is what is stored of it and looked up."""
    # It brings OpenSSL's digests, which only servers and shares need.
    sha256 = late_module("hashlib").sha256
    return str(sha256(_bytes_of(token)).hexdigest())


def _bytes_of(value: str) -> bytes:
    """Encode a credential, which from a variable that is not UTF-8 has halves of characters."""
    return value.encode("utf-8", "surrogatepass")


def remember(value: str) -> None:
    """Take `value` for a secret from now on; `Secret` does so with its own."""
    for form in _forms(value):
        _remember(form)


def _forms(value: str) -> set[str]:
    """Return what texts may have of a value with halves of characters: these are kept or replaced.

    Or left out, which is what the HTTP client does to headers, so peers repeat the value without.
    """
    return {value, writable(value), value.encode("utf-8", "ignore").decode()}


def _remember(value: str) -> None:
    if value in _known:
        _known.pop(value, None)  # to the end: it is in use
    elif len(value) < _SHORTEST_KNOWN or value.lower() in _STAND_INS or value == REDACTED:
        return
    elif len(_known) >= _MOST_KNOWN:
        _known.pop(next(iter(_known)), None)
    _known[value] = None


def remember_headers(headers: Mapping[str, str]) -> None:
    """Take the values of headers whose names speak of credentials for secrets."""
    for name, value in headers.items():
        lowered = name.casefold()
        if any(word in lowered for word in _TELLING):
            remember(value.strip())
            # Of `Bearer <token>`, the token alone is a secret as well.
            remember(value.rpartition(" ")[2].strip())


def remember_url(url: str) -> None:
    """Take the password in a URL, if there is one, for a secret."""
    try:
        remember(late_module("urllib.parse").urlsplit(url).password or "")
    except ValueError:
        return


def scrub(text: str, secrets: Iterable[Secret] = ()) -> str:
    """Take what is secret, and whatever else looks like a credential, out of a text from outside.

    `secrets` are taken out even if they were forgotten, and down to `_SHORTEST_OWN` characters.
    """
    own = (form for secret in secrets for form in _forms(secret.reveal()))
    # A copy: another thread may remember a value meanwhile.
    values = {value for value in own if len(value) >= _SHORTEST_OWN}.union(_known.copy())
    # The longest first: one secret may be the beginning of another.
    for value in sorted((each for each in values if each in text), key=len, reverse=True):
        text = text.replace(value, REDACTED)
    if "%" in text:
        text = _without_quoted(text, values)
    if not _may_hold_credential(text):
        return text
    return re.sub(
        _CREDENTIAL, lambda match: (match["lead"] or match["name"] or "") + REDACTED, text
    )


def _may_hold_credential(text: str) -> bool:
    """Whether it is worth looking for the shape of a credential, which takes longer.

    Text that is not ASCII is always looked at: some of its letters count as those of a mark.
    """
    if not text.isascii():
        return True
    lowered = text.lower()
    # Not a generator: that would take most of the time.
    return any(map(lowered.__contains__, _MARKS))


def _without_quoted(text: str, values: Iterable[str]) -> str:
    """Take out what is written as in a URL."""
    quote = late_module("urllib.parse").quote
    for value in sorted(values, key=len, reverse=True):
        text = text.replace(quote(_bytes_of(value), safe=""), REDACTED)
    return text


class ScrubbedError(Exception):
    """Stands for an exception that shows a secret: its type and text without it.

    The traceback, scrubbed as well, is its note.
    """


def error_text(error: BaseException) -> str:
    """Return what an exception says, or its type where it says nothing or cannot."""
    return _rendered(lambda: str(error)) or type(error).__name__


def _rendered(render: Callable[[], str]) -> str | None:
    """Return what shows an exception; None if that fails."""
    try:
        return str(render())
    except Exception:  # noqa: BLE001 - an exception's own text is its author's code
        return None


def without_secrets(raised: BaseException) -> BaseException:
    """Return `raised` if neither it nor what caused it shows a secret, else a stand-in for it.

    This is what errors of ours have as their cause where the exception is not ours.
    """
    trace = _rendered(lambda: "".join(late_module("traceback").format_exception(raised)))
    # A traceback shows the text of an exception. Its `repr` may show more.
    more = _rendered(lambda: f"{raised!r}{raised.__cause__!r}{raised.__context__!r}")
    if trace is None or more is None:
        return ScrubbedError(type(raised).__name__)
    text = trace + more
    if scrub(text) == text:
        return raised
    stand_in = ScrubbedError(scrub(f"{type(raised).__name__}: {raised}"))
    stand_in.add_note(scrub(trace))
    return stand_in
