"""What all protocols share in reading an error: status, headers, a message fit for people.

`docs/provider-errors.md` leads to the tables.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import msgspec

from holdfast.vocabulary.errors import AgentError, Basis, ErrorCode, error_of
from holdfast.vocabulary.json_types import Json

_CONTEXT_LENGTH = re.compile(
    r"prompt is too long|exceeds? (?:the )?(?:context|model's? maximum|available context)"
    r"|maximum context length|context[_ ]length[_ ]exceeded|exceeds the context window"
    r"|input token count.*exceeds|exceed context limit|context size has been exceeded"
    r"|exceeds the available context size|input is too long|too many input tokens",
    re.IGNORECASE,
)
_QUOTA = re.compile(
    r"credit balance is too low|insufficient[_ ](?:quota|funds|balance|credits)"
    r"|exceeded your current quota|reached your specified (?:\w+ )?(?:api )?usage limit"
    r"|spend(?:ing)? limit|billing hard limit",
    re.IGNORECASE,
)
_CONTENT_FILTER = re.compile(r"content filter(?:ing)? policy|content[_ ]filter", re.IGNORECASE)

_MESSAGE_LIMIT = 500


class ErrorReply(msgspec.Struct, frozen=True, kw_only=True):
    """What a reply that is not a success says about itself."""

    message: str
    status: int | None = None
    request_id: str | None = None
    retry_after: float | None = None

    def to_error(self, code: ErrorCode, basis: Basis) -> AgentError:
        """Make the error."""
        return error_of(
            code,
            self.message,
            basis=basis,
            status=self.status,
            request_id=self.request_id,
            retry_after=self.retry_after,
        )


def code_of_message(message: str) -> ErrorCode | None:
    """Return the code of a bad request whose text says more than its type does."""
    if _CONTEXT_LENGTH.search(message):
        return ErrorCode.CONTEXT_LENGTH
    if _QUOTA.search(message):
        return ErrorCode.QUOTA
    if _CONTENT_FILTER.search(message):
        return ErrorCode.CONTENT_FILTER
    return None


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return how many seconds the provider asks to wait: `retry-after-ms`, seconds or a date.

    A date is compared with the reply's own `date`, so that a wrong clock does not matter.
    """
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        try:
            seconds = float(headers.get(name, "")) / unit
        except ValueError:
            continue
        if 0 <= seconds < float("inf"):
            return seconds
    due, sent = _date(headers.get("retry-after")), _date(headers.get("date"))
    if due is None or sent is None:
        return None
    seconds = (due - sent).total_seconds()
    return seconds if seconds > 0 else None


def parse_body(body: bytes) -> Json:
    """Return the body as JSON, or None when it is something else."""
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def readable(body: bytes, status: int) -> str:
    """Return a line for people out of a body that is no JSON we know."""
    text = body.decode("utf-8", "replace")
    if title := re.search(r"<title>(.*?)</title>", text, re.IGNORECASE | re.DOTALL):
        text = title[1]
    text = " ".join(re.sub(r"<[^>]*>", " ", text).split())
    return shortened(text) or f"the provider answered with status {status} and nothing else"


def shortened(message: str) -> str:
    """Return `message` at a length that fits a log."""
    return message if len(message) <= _MESSAGE_LIMIT else message[: _MESSAGE_LIMIT - 1] + "…"


def _date(text: str | None) -> datetime | None:
    try:
        date = parsedate_to_datetime(text or "")
    except ValueError:
        return None
    return date if date.tzinfo else date.replace(tzinfo=UTC)
