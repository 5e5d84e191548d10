"""The port to whoever decides about tool calls."""

from collections.abc import Awaitable, Callable
from typing import Literal, TypeAlias

from holdfast.vocabulary.approvals import ApprovalRequest, Decision

Approver: TypeAlias = Callable[[ApprovalRequest], Awaitable[Decision]]
"""Asked once per tool call that needs approval; calls of one turn are asked at the same time.

Cancelled when the query is aborted. An exception counts as a denial.
"""

Unanswered: TypeAlias = Literal["stop", "deny"]
"""What happens to an approval without an approver: the query rests, or the call is denied."""
