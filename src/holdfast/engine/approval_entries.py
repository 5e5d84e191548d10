"""The entries that settle approvals, made in one way whoever decides."""

from holdfast.ports.stamps import Stamp
from holdfast.vocabulary.approvals import Approve, Decision
from holdfast.vocabulary.entries import ApprovalRequested, ApprovalSettled
from holdfast.vocabulary.ids import ApprovalId, CallId


def settled(
    stamp: Stamp, decision: Decision, *, approval_id: ApprovalId, call_id: CallId
) -> ApprovalSettled:
    """Say how somebody decided."""
    if isinstance(decision, Approve):
        return ApprovalSettled(
            **stamp(),
            approval_id=approval_id,
            call_id=call_id,
            decision="approved",
            arguments=decision.arguments,
            scope=decision.scope,
            by=decision.by,
        )
    return ApprovalSettled(
        **stamp(),
        approval_id=approval_id,
        call_id=call_id,
        decision="denied",
        reason=decision.reason,
        by=decision.by,
    )


def cancelled(stamp: Stamp, asked: ApprovalRequested, reason: str) -> ApprovalSettled:
    """Say that an answer would come too late."""
    return ApprovalSettled(
        **stamp(),
        approval_id=asked.approval_id,
        call_id=asked.call_id,
        decision="cancelled",
        reason=reason,
    )
