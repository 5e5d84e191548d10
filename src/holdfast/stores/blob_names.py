"""Names of big payloads: the SHA-256 of the content, checked on the way out."""

import hashlib
import re

from holdfast.vocabulary.errors import AgentError, ErrorCode, SessionError, StoreError
from holdfast.vocabulary.ids import SessionId

_NAME = re.compile(r"[0-9a-f]{64}")


def name_of_content(content: bytes) -> str:
    """Return the name that content has in every store."""
    return hashlib.sha256(content).hexdigest()


def is_blob_name(name: str) -> bool:
    """Whether this can be the name of any content."""
    return _NAME.fullmatch(name) is not None


def verified(name: str, content: bytes) -> bytes:
    """Return content that matches its name; raises CORRUPT."""
    if name_of_content(content) != name:
        raise StoreError(ErrorCode.CORRUPT, f"the content of blob {name} does not match its name")
    return content


def no_such_blob(session_id: SessionId, name: str) -> AgentError:
    """Make the error of content that is not there."""
    return SessionError(ErrorCode.NOT_FOUND, f"session {session_id} has no blob {name!r}")
