"""Calls that sub-agents answer: the id of the child session, its questions, its events, its use."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import cached_property
from typing import Any, Literal

from msgspec.structs import replace

from haptera.kernel.calls.call_questions import Candidate, answer_by_id
from haptera.kernel.query.query import Query
from haptera.kernel.session.left_children import child_id_of
from haptera.model.approvals import ApprovalRequest, Approve, ChildApproval, Decision, Deny
from haptera.model.errors import AgentError, ErrorCode, ToolError
from haptera.model.events import Event, Instrumented, SubagentChanged, SubagentEvent
from haptera.model.ids import ApprovalId, CallId, SessionId, new_approval_id
from haptera.model.log.approvals import ApprovalRequested, ApprovalSettled
from haptera.model.log.entry import Entry
from haptera.model.parts import ToolCallPart
from haptera.model.results import AgentResult
from haptera.model.settings import Limits
from haptera.ports.tools import Approver, Unanswered
from haptera.system.clock import Clock

_CLOSING_SECONDS = 2.0
"""How long a call that was stopped waits until its child session is closed."""
_VOID = "the sub-agent does not wait for it any more"
_STOPPED = "the query of the caller was stopped"
_DESCRIBED = 200
"""Characters of a sub-agent's prompt that `subagent` shows."""


def rests_on_children(query: Query) -> bool:
    """Whether a sub-agent of the query waits for an answer."""
    return any(asked.child is not None for asked in query.fold.approvals.values())


def has_rested(query: Query, candidate: Candidate) -> bool:
    """Whether a call is carried on after its sub-agent has rested: it may run, and did not stop."""
    call = candidate.call
    if not candidate.ready.rules.idempotent:
        return False  # it is no sub-agent
    asked = (item.call_id for item in query.fold.approvals.values() if item.child)
    answered = (item.call_id for item in query.fold.child_answers.values())
    # The ids of a child's questions begin with that of the call it answers.
    return any(each.startswith(f"{call.call_id}/") for each in (*asked, *answered))


class CallOfChild:
    """One run of a call, as the child session that answers it sees it; see `ChildCall`.

    A question of the child is an approval of the session of the call, too, with an id of its own:
    it is recorded there, can be answered there, and the child gets the answer. The id of its call
    is `<call of the sub-agent>/<call in the child>`, so that it is never taken for a question about
    the sub-agent's call itself.
    """

    def __init__(self, query: Query, call: ToolCallPart, *, clock: Clock) -> None:
        self._query = query
        self._call = call
        self._clock = clock
        self._is_used = False
        self._left: str = ""

    # Cached: the tip changes with the next turn, and the child of a call does not.
    @cached_property
    def child_id(self) -> SessionId:
        """The id of the child session of this call."""
        tip = self._query.fold.conversation.tip
        message_id = "" if tip is None else tip.id
        return child_id_of(self._query.session.session_id, message_id, self._call.call_id)

    @property
    def approver(self) -> Approver | None:
        """Asks the approver of the session of the call; None where there is none."""
        return None if self._query.session.bindings.approver is None else self._ask

    @property
    def unanswered(self) -> Unanswered:
        """What happens to a question of the child without an approver."""
        return self._query.session.bindings.unanswered or "stop"

    @asynccontextmanager
    async def working(self, *, at_once: int, description: str) -> AsyncIterator[None]:
        """Wait for a slot; tell consumers when the child begins and ends."""
        children = self._query.progress.children
        # The first sub-agent decides: all of a query share one semaphore.
        if children.slots is None:
            children.slots = asyncio.Semaphore(at_once)
        async with children.slots:
            self._is_used = True
            self._tell("joined", description=description[:_DESCRIBED])
            try:
                yield
            finally:
                self._tell("left", status=self._left)

    async def ended(self, running: "asyncio.Task[Any]") -> None:
        """Wait for a moment until a child session that was stopped is closed."""
        # Only for a call that has begun to use its child: any other tool is not waited for.
        if self._is_used and not running.done():
            await asyncio.wait({running}, timeout=_CLOSING_SECONDS)
            with suppress(AgentError):  # a query that was stopped itself withdraws all questions
                await self.put(())

    def limits(self, own: Limits) -> Limits:
        """Return a child's limits: its own, and no more than what is left of the query's.

        Raises:
            ToolError: TOOL_FAILED when nothing is left.

        """
        query, limits = self._query, self._query.settings.limits
        used = {
            "tokens": query.progress.usage.total + query.progress.children.usage.total,
            "cost": float(query.progress.cost or 0) + float(query.progress.children.cost or 0),
            "seconds": self._clock.now() - query.measurement.started_at,
        }
        bounds: dict[str, Any] = {}
        for name, amount in used.items():
            limit: float | None = getattr(limits, name)
            if limit is None:
                continue
            if amount >= limit:
                message = f"not run: the query has reached its limit {name}={limit:g}"
                raise ToolError(ErrorCode.TOOL_FAILED, message)
            least: float | None = getattr(own, name)
            bounds[name] = limit - amount if least is None else min(least, limit - amount)
        return replace(own, **bounds)

    async def show(self, events: Sequence[Event]) -> None:
        """Show events of the child with the call that they belong to, but no measurements."""
        child_id, call = self.child_id, self._call
        shown = [
            SubagentEvent(call_id=call.call_id, agent=call.name, session_id=child_id, event=event)
            for event in events
            if not isinstance(event, Instrumented)
        ]
        if shown:
            # Recorded although none is an entry: that waits for slow consumers, and so makes the
            # child wait, too.
            await self._query.recorder.record(shown)

    async def _ask(self, request: ApprovalRequest) -> Decision:
        """Have a question of the child answered; the first answer decides."""
        query = self._query
        # It was answered here while the query rested; the child records it only now.
        if (known := query.fold.child_answers.get(request.id)) is not None:
            return _decision(known)
        if query.abort.signal.aborted:
            return Deny(_STOPPED)  # the child is about to be stopped, too
        asked = self._asked(request.id) or self._question(request)
        # Parked before it is recorded, as in `make_question`.
        answer = query.session.approvals.park(asked.approval_id)
        if asked.approval_id not in query.fold.approvals:
            await query.recorder.record([asked])
        # What the child has just found out, and not what a log says of it.
        return _decision(await answer_by_id(query, asked.approval_id, answer, now=request))

    async def put(self, pending: Sequence[ApprovalRequest]) -> Mapping[ApprovalId, Decision]:
        """Ask what a resting child waits for, and return the answers that are there already.

        Questions that the child does not wait for any more are withdrawn.
        """
        answers = self._query.fold.child_answers
        entries: list[Entry] = [
            self._question(request)
            for request in pending
            if request.id not in answers and self._asked(request.id) is None
        ]
        entries += self._withdrawals(but={item.id for item in pending})
        if entries:
            await self._query.recorder.record(entries)
        return {item.id: _decision(answers[item.id]) for item in pending if item.id in answers}

    def _withdrawals(self, *, but: set[ApprovalId]) -> list[ApprovalSettled]:
        void = {
            item.approval_id
            for item in self._query.fold.approvals.values()
            if item.child is not None
            and item.child.call_id == self._call.call_id
            and item.child.approval_id not in but
        }
        # Questions whose answer is staged are not among the cancellations.
        cancelled = self._query.session.approvals.cancellations(_VOID) if void else ()
        return [entry for entry in cancelled if entry.approval_id in void]

    def count(self, result: AgentResult[Any]) -> None:
        """Count what a query of the child used, and its own children."""
        self._left = result.stop_reason
        self._query.progress.children.add(result.total_usage, result.total_cost)

    def _asked(self, approval_id: ApprovalId) -> ApprovalRequested | None:
        """Find the question of this session that stands for one of the child."""
        for item in self._query.fold.approvals.values():
            if item.child is not None and item.child.approval_id == approval_id:
                return item
        return None

    def _question(self, request: ApprovalRequest) -> ApprovalRequested:
        call_id = self._call.call_id
        return ApprovalRequested(
            **self._query.turn_stamp(),
            approval_id=new_approval_id(),
            call_id=CallId(f"{call_id}/{request.call_id}"),
            tool=request.tool,
            arguments=request.arguments,
            arguments_hash=request.arguments_hash,
            tool_digest=request.tool_digest,
            effect=request.effect,
            reason=request.reason,
            folder=request.folder,
            facts=request.facts,
            ruling=request.ruling,
            child=ChildApproval(session_id=self.child_id, approval_id=request.id, call_id=call_id),
        )

    def _tell(
        self, change: Literal["joined", "left"], *, status: str = "", description: str = ""
    ) -> None:
        changed = SubagentChanged(
            change=change,
            agent=self._call.name,
            call_id=self._call.call_id,
            session_id=self.child_id,
            status=status,
            description=description,
        )
        self._query.recorder.show([changed])


def _decision(settled: ApprovalSettled) -> Decision:
    """Return a recorded answer as a decision."""
    if settled.decision != "approved":
        return Deny(settled.reason, by=settled.by)
    return Approve(
        arguments=settled.arguments,
        scope=settled.scope,
        by=settled.by,
        feedback=settled.feedback,
    )
