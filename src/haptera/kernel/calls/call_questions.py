"""Questions about tool calls: asked all at once, and settled by the first answer to each."""

import asyncio
from collections.abc import Awaitable, Iterable
from typing import Any

import msgspec

from haptera.kernel.blocks.tool_registry.registry import Ready
from haptera.kernel.calls.call_permissions import Judged
from haptera.kernel.query.query import Query
from haptera.model.approvals import (
    ApprovalRequest,
    Approve,
    Decision,
    Deny,
    check_decision,
)
from haptera.model.errors import ErrorCode, HookError
from haptera.model.ids import ApprovalId, new_approval_id
from haptera.model.json_types import Json
from haptera.model.log.approvals import ApprovalRequested, ApprovalSettled
from haptera.model.parts import ToolCallPart
from haptera.system.logs import scrubbed_logger

_logger = scrubbed_logger(__name__)


class Candidate(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A call that can run: its tool exists and its input has been parsed."""

    call: ToolCallPart
    ready: Ready
    arguments: Json
    arguments_hash: str
    """The digest of the tool and the arguments, wherever this call is named."""
    judged: Judged | None = None
    """Why it may run; None until that is decided."""
    feedback: str | None = None
    """What the person who approved it has to say to the model."""


class Question(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A call that must be approved before it runs."""

    candidate: Candidate
    request: ApprovalRequested
    """What is asked, with what the call would do now; an earlier query may have asked it."""
    answer: asyncio.Future[ApprovalSettled]
    """Done once the answer is in the log."""


def question_about(query: Query, call: ToolCallPart) -> ApprovalRequested | None:
    """Return the question that was asked about a call and not answered yet."""
    pending = query.fold.approvals.values()
    return next((item for item in pending if item.call_id == call.call_id), None)


def make_question(
    query: Query, candidate: Candidate, judged: Judged, *, reason: str | None
) -> Question:
    """Make the question about a call, or take the one that an earlier query asked.

    What the call would do is what was found out now: a log is not asked about it.
    """
    known = question_about(query, candidate.call)
    request = ApprovalRequested(
        **query.turn_stamp(),
        approval_id=new_approval_id() if known is None else known.approval_id,
        call_id=candidate.call.call_id,
        tool=candidate.call.name,
        arguments=candidate.arguments,
        arguments_hash=candidate.arguments_hash,
        tool_digest=judged.tool_digest,
        effect=candidate.ready.rules.effect,
        reason=reason if known is None else known.reason,
        folder=judged.folder,
        facts=judged.facts,
        ruling=judged.ruling,
    )
    # Parked before it is recorded: an answer may come as soon as the question can be seen.
    answer = query.session.approvals.park(request.approval_id)
    return Question(candidate=candidate, request=request, answer=answer)


async def ask_all(query: Query, questions: Iterable[Question]) -> None:
    """Record every question at once, unless an earlier query asked it already."""
    requests = [
        item.request for item in questions if item.request.approval_id not in query.fold.approvals
    ]
    if requests:
        await query.recorder.record(requests)


async def answer_to(query: Query, question: Question) -> ApprovalSettled:
    """Ask the approver; the first answer decides, its own or one from elsewhere."""
    asked = question.request
    return await answer_by_id(query, asked.approval_id, question.answer, now=asked)


async def answer_by_id(
    query: Query,
    asked: ApprovalId,
    answer: "asyncio.Future[ApprovalSettled]",
    *,
    now: ApprovalRequested | ApprovalRequest,
) -> ApprovalSettled:
    """Ask the approver about a recorded question, with what is known `now` of its call."""
    pending = query.fold.pending_approvals()
    request = next((item for item in pending if item.id == asked), None)
    if request is not None:  # otherwise it is answered already
        shown = msgspec.structs.replace(
            request,
            tool_digest=now.tool_digest,
            effect=now.effect,
            folder=now.folder,
            facts=now.facts,
            ruling=now.ruling,
        )
        await _ask_approver(query, shown, answer)
    return await answer


async def _ask_approver(
    query: Query,
    request: ApprovalRequest,
    answer: "asyncio.Future[ApprovalSettled]",
) -> None:
    """Let the approver answer, unless an answer comes first."""
    approver, approvals = query.session.bindings.approver, query.session.approvals
    if approver is None:
        await approvals.settle(request.id, Deny("there is no approver"))
        return
    # A task of its own: an answer from elsewhere ends the wait, whatever the approver does.
    asking = query.session.tasks.start(_ask_safely(approver(request)), name="haptera-approver")
    try:
        either: set[asyncio.Future[Any]] = {answer, asking}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            # If another answer was staged first, this one is refused: `answer` gets that one.
            await approvals.settle(request.id, asking.result())
    finally:
        # Whatever ended the wait: a person must not be asked on about what is settled.
        asking.cancel()


async def _ask_safely(answer: Awaitable[Decision]) -> Decision:
    """Wait for an approver; one that fails has not approved.

    Raises:
        HookError: HOOK_FAILED when its answer is no decision: a mistake of the program, of which
            the model is not told.

    """
    try:
        decision = await answer
    # SystemExit, too: raised in a task, it would end the event loop.
    except (Exception, SystemExit) as error:
        _logger.exception("an approver failed; the call is denied")
        return Deny(f"the approver failed: {type(error).__name__}")
    if not isinstance(decision, Approve | Deny):
        raise HookError(
            ErrorCode.HOOK_FAILED,
            f"the approver returned {type(decision).__name__}; it must return Approve or Deny",
        )
    try:
        return check_decision(decision)
    except ValueError as error:
        raise HookError(
            ErrorCode.HOOK_FAILED, f"the approver returned an invalid decision: {error}"
        ) from error
