"""What a session is doing right now."""

from typing import Literal, TypeAlias

import msgspec

from holdfast.vocabulary.errors import ErrorReport


class _Status(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type"):
    """What all statuses share."""


class Idle(_Status, frozen=True, kw_only=True, tag="idle"):
    """Nothing runs."""

    approvals: int = 0
    """Tool calls that wait for an answer."""
    waiting: int = 0
    """Prompts that wait. Behind a query that rests on an approval they start when it is resumed,
    or when a new prompt is sent."""


class Busy(_Status, frozen=True, kw_only=True, tag="busy"):
    """A query runs."""


class Retrying(_Status, frozen=True, kw_only=True, tag="retry"):
    """A model call failed and will be repeated."""

    attempt: int
    message: str
    next_at: int
    """Wall-clock milliseconds of the next attempt."""
    account_limited: bool = False


class Failed(_Status, frozen=True, kw_only=True, tag="error"):
    """The last query failed; a new prompt may still be sent."""

    error: ErrorReport


SessionStatus: TypeAlias = Idle | Busy | Retrying | Failed

StreamPhase: TypeAlias = Literal[
    "idle", "connecting", "connected", "reconnecting", "closed", "error"
]
"""What the stream of one query is doing."""
