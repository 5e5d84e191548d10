"""Refuses SQLite versions that can lose committed transactions in WAL mode.

Up to 3.51.2 a checkpoint that runs while another connection restarts the log can drop commits. The
fix is in 3.51.3 and was taken back into the 3.50 and 3.44 series.
"""

from holdfast.vocabulary.errors import ErrorCode, StoreError

_FIXED = (3, 51, 3)
_FIXED_SERIES = {(3, 50): 7, (3, 44): 6}


def is_safe_version(version: tuple[int, int, int]) -> bool:
    """Whether this SQLite has the fix."""
    if version >= _FIXED:
        return True
    first_fixed = _FIXED_SERIES.get(version[:2])
    return first_fixed is not None and version[2] >= first_fixed


def refuse_unsafe_version(text: str) -> None:
    """Raise VERSION_UNSUPPORTED unless this SQLite version is safe to write with."""
    major, minor, patch = (int(number) for number in text.split(".")[:3])
    if not is_safe_version((major, minor, patch)):
        raise StoreError(
            ErrorCode.VERSION_UNSUPPORTED,
            f"SQLite {text} can lose committed data in WAL mode; "
            "3.51.3 or newer is needed (or 3.50.7, 3.44.6): upgrade apsw",
        )
