"""ToolDispatcher: the tool calls of one turn, from resolving through approval to their ends."""

import asyncio
from collections.abc import Awaitable, Iterable
from typing import Any, Literal, TypeAlias

import msgspec

from holdfast.blocks.conversation.tool_calls import CallRecord
from holdfast.blocks.tool_registry.registry import InvalidInput, NotFound, Ready
from holdfast.engine.query_scope import QueryScope
from holdfast.engine.tool_execution import ToolExecution, record_end, record_failure
from holdfast.ports.abort import query_stopped
from holdfast.ports.logs import scrubbed_logger
from holdfast.ports.tools import Answer, BeforeTool, Block, Proceed, Verdict
from holdfast.serialization.canonical import arguments_hash, canonical_json
from holdfast.vocabulary.approvals import (
    ApprovalRequest,
    Approve,
    Decision,
    Deny,
    check_decision,
)
from holdfast.vocabulary.entries import (
    ApprovalRequested,
    ApprovalSettled,
    HookMessage,
)
from holdfast.vocabulary.errors import ErrorCode, HookError, ToolError, without_secrets
from holdfast.vocabulary.ids import ApprovalId, CallId, new_approval_id
from holdfast.vocabulary.json_types import Json
from holdfast.vocabulary.parts import TextPart, ToolCallPart, check_content

DispatchOutcome: TypeAlias = Literal["done", "approval", "loop"]

_logger = scrubbed_logger(__name__)

_SHOWN = 200
"""Characters of a repeated call's arguments that a result shows."""

_DENIED = "This call was not allowed. Do not try it again unless you are asked to."
_REPEATED = (
    "This call was not run: you made the same call several times in a row, and its result was the "
    "same each time. Do something else, or answer with what you have."
)
_OTHER_ARGUMENTS = "This call was not run: it is not the one that was asked about."


class _Candidate(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A call that can run: its tool exists and its input has been parsed."""

    call: ToolCallPart
    ready: Ready
    arguments: Json
    arguments_hash: str
    """The digest of the tool and the arguments, wherever this call is named."""


class _Question(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A call that must be approved before it runs."""

    candidate: _Candidate
    approval_id: ApprovalId
    answer: asyncio.Future[ApprovalSettled]
    """Done once the answer is in the log."""
    reason: str | None = None


class ToolDispatcher:
    """Brings every call of a turn to its end, or to rest.

    Owns the order: resolve all, ask for all approvals at once, run. Without approvals calls run in
    the model's order; approved ones in the order the answers arrive. An approval is used for
    exactly what was asked about. Does not own tools (the registry does), answers to approvals (the
    coordinator records them; what it has not recorded is not acted on) or what a result means (the
    model).
    """

    def __init__(self, *, execution: ToolExecution, before_tool: BeforeTool | None = None) -> None:
        self._execution = execution
        self._before_tool = before_tool

    async def dispatch(self, scope: QueryScope, calls: Iterable[CallRecord]) -> DispatchOutcome:
        """Run what may run of `calls`; those that ended already stay as they are."""
        prepared = await self._prepare_all(scope, [item for item in calls if item.ended is None])
        if prepared == "loop":
            return "loop"
        asking = [item for item in prepared if isinstance(item, _Question)]
        ready = [item for item in prepared if isinstance(item, _Candidate)]
        await self._ask_all(scope, asking)
        if scope.session.approver is not None:
            await self._run_as_approved(scope, ready, asking)
            return "done"
        await self._run_all(scope, ready)
        if asking and scope.session.unanswered == "stop":
            return "approval"
        for question in asking:
            await self._act(scope, question.candidate, await self._answer_to(scope, question))
        return "done"

    async def _prepare_all(
        self, scope: QueryScope, records: list[CallRecord]
    ) -> list[_Candidate | _Question] | Literal["loop"]:
        """Find out what each call needs, in the model's order.

        A question of an earlier query that was answered while other calls were prepared is not
        asked again: its call is prepared once more, by the answer.
        """
        prepared: dict[CallId, _Candidate | _Question] = {}
        unprepared = records
        while unprepared:
            for record in unprepared:
                found = await self._prepare(scope, record)
                if found == "loop":
                    return "loop"
                if found is None:
                    prepared.pop(record.part.call_id, None)
                else:
                    prepared[record.part.call_id] = found
            answered = {
                key
                for key, item in prepared.items()
                if isinstance(item, _Question) and item.answer.done()
            }
            unprepared = [record for record in records if record.part.call_id in answered]
        return list(prepared.values())

    async def _prepare(
        self, scope: QueryScope, record: CallRecord
    ) -> _Candidate | _Question | Literal["loop"] | None:
        """Find out what a call needs; a call that cannot or may not run is answered here."""
        call, known = record.part, record.state
        if record.state == "denied":
            await self._refuse(scope, call, record.reason)
            return None
        if not record.may_run:
            return None  # it may have taken effect, or not: the fold says so to the model
        if record.state == "approved":
            # What was approved is what runs, whatever a hook would say by now.
            candidate = await self._resolve(scope, call, record.approved)
            return await self._unless_other(scope, candidate, record.approved_hash)
        verdict = await self.consult_hook(scope, call)
        candidate = None
        if isinstance(verdict, Proceed):
            asked = _question_about(scope, call)
            # A question that was asked stands: what it asked about is what may run.
            changed = verdict.arguments if asked is None else asked.arguments
            candidate = await self._resolve(scope, call, changed)
            candidate = await self._unless_other(
                scope, candidate, asked.arguments_hash if asked else None
            )
        if candidate is not None and record.state != known:
            return await self._prepare(scope, record)  # it was answered while the hook was asked
        if candidate is not None:
            return await self._judge(scope, candidate)
        # A call that never runs can go in circles, too, and no approver could allow it.
        asked_for = call.arguments if call.invalid is None else call.invalid
        row = scope.loop.judge(call.call_id, arguments_hash(call.name, asked_for))
        if row == "repeated":
            scope.loop.refuse()
        return _loop_of(scope, call) if row == "insisting" else None

    async def _unless_other(
        self, scope: QueryScope, candidate: _Candidate | None, asked: str | None
    ) -> _Candidate | None:
        """Refuse a call that is not the one that was asked about, by the digest of the question."""
        if candidate is None or asked is None or candidate.arguments_hash == asked:
            return candidate
        await self._refuse(scope, candidate.call, _OTHER_ARGUMENTS)
        return None

    async def _judge(
        self, scope: QueryScope, candidate: _Candidate
    ) -> _Candidate | _Question | Literal["loop"] | None:
        """Say whether a call may run as it is, must be asked about, or goes in circles."""
        call = candidate.call
        row = scope.loop.judge(call.call_id, candidate.arguments_hash)
        looping = row != "fresh"
        if looping and (scope.session.approver is None or scope.settings.on_loop == "deny"):
            if row == "insisting":
                return _loop_of(scope, call)
            scope.loop.refuse()
            await self._refuse(scope, call, _REPEATED)
            return None
        if not looping and not self._must_ask(scope, candidate):
            return candidate
        asked = _question_about(scope, candidate.call)
        approval_id = new_approval_id() if asked is None else asked.approval_id
        return _Question(
            candidate=candidate,
            approval_id=approval_id,
            answer=scope.session.approvals.park(approval_id),
            reason="the same call had the same result several times" if looping else None,
        )

    async def consult_hook(self, scope: QueryScope, call: ToolCallPart) -> Verdict:
        """Ask the hook about a call; one that it blocks or answers is ended here.

        Raises:
            HookError: HOOK_FAILED when the hook does.

        """
        if self._before_tool is None:
            return Proceed()
        own = msgspec.structs.replace(call, arguments=msgspec.to_builtins(call.arguments))
        try:
            verdict = _check_verdict(await self._before_tool(own))
        except Exception as error:  # noqa: BLE001 - the user's, and may raise anything
            message = f"the hook before {call.name!r} failed: {type(error).__name__}"
            raise HookError(ErrorCode.HOOK_FAILED, message) from without_secrets(error)
        if scope.abort.signal.aborted:
            raise query_stopped()  # it may have ignored its cancellation
        if verdict.message is not None:
            said = HookMessage(**scope.stamp(), hook="before_tool", text=verdict.message)
            await scope.recorder.record([said])
        if isinstance(verdict, Block):
            await self._refuse(scope, call, verdict.reason)
        elif isinstance(verdict, Answer):
            await record_end(scope, call, outcome="ok", content=verdict.content)
        return verdict

    async def _resolve(
        self, scope: QueryScope, call: ToolCallPart, changed: Json | None
    ) -> _Candidate | None:
        """Find the tool and parse the input once; a call that cannot run is answered here."""
        settings = scope.settings
        offered = scope.tools.view(settings.allowed_tools, settings.denied_tools)
        resolution = offered.resolve(call, arguments=changed)
        if isinstance(resolution, Ready):
            arguments = call.arguments if changed is None else changed
            return _Candidate(
                call=call,
                ready=resolution,
                arguments=arguments,
                arguments_hash=arguments_hash(call.name, arguments),
            )
        await record_failure(scope, call, _why_not(resolution), arguments=changed)
        return None

    def _must_ask(self, scope: QueryScope, candidate: _Candidate) -> bool:
        asks = "ask" in (candidate.ready.rules.approval, scope.settings.approval)
        return asks and not scope.fold.is_allowed(candidate.call.name, scope.query_id)

    async def _ask_all(self, scope: QueryScope, questions: Iterable[_Question]) -> None:
        """Record every question at once, unless an earlier query asked it already."""
        requests = [
            ApprovalRequested(
                **scope.turn_stamp(),
                approval_id=item.approval_id,
                call_id=item.candidate.call.call_id,
                tool=item.candidate.call.name,
                arguments=item.candidate.arguments,
                arguments_hash=item.candidate.arguments_hash,
                effect=item.candidate.ready.rules.effect,
                reason=item.reason,
            )
            for item in questions
            if item.approval_id not in scope.fold.approvals
        ]
        if requests:
            await scope.recorder.record(requests)

    async def _run_as_approved(
        self, scope: QueryScope, ready: list[_Candidate], asking: list[_Question]
    ) -> None:
        """Run what needs no approval, and the rest in the order in which answers arrive."""
        arrivals: asyncio.Queue[tuple[_Candidate, ApprovalSettled]] = asyncio.Queue()

        async def bring(question: _Question) -> None:
            answer = await self._answer_to(scope, question)
            arrivals.put_nowait((question.candidate, answer))

        async with asyncio.TaskGroup() as group:
            for item in asking:
                group.create_task(bring(item))
            await self._run_all(scope, ready)
            for _ in asking:
                candidate, answer = await arrivals.get()
                work = self._act(scope, candidate, answer)
                if scope.settings.parallel_tools:
                    group.create_task(work)
                else:
                    await work

    async def _answer_to(self, scope: QueryScope, question: _Question) -> ApprovalSettled:
        """Ask the approver; the first answer decides, its own or one from elsewhere."""
        pending = scope.fold.pending_approvals()
        request = next((item for item in pending if item.id == question.approval_id), None)
        if request is not None:  # otherwise it is answered already
            await self.ask_approver(scope, request, question.answer)
        return await question.answer

    async def ask_approver(
        self,
        scope: QueryScope,
        request: ApprovalRequest,
        answer: "asyncio.Future[ApprovalSettled]",
    ) -> None:
        """Let the approver answer, unless an answer comes first."""
        approver, approvals = scope.session.approver, scope.session.approvals
        if approver is None:
            await approvals.settle(request.id, Deny("there is no approver"))
            return
        asking = scope.session.tasks.start(_ask_safely(approver(request)), name="holdfast-approver")
        try:
            either: set[asyncio.Future[Any]] = {answer, asking}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not answer.done():
                await approvals.settle(request.id, asking.result())
        finally:
            asking.cancel()

    async def _act(self, scope: QueryScope, candidate: _Candidate, answer: ApprovalSettled) -> None:
        """Do what a recorded answer says."""
        if answer.decision != "approved":
            await self._refuse(scope, candidate.call, answer.reason)
            return
        approved: _Candidate | None = candidate
        if answer.arguments is not None:
            approved = await self._resolve(scope, candidate.call, answer.arguments)
        if approved is not None:
            await self._run(scope, approved)

    async def _run_all(self, scope: QueryScope, candidates: Iterable[_Candidate]) -> None:
        if not scope.settings.parallel_tools:
            for item in candidates:
                await self._run(scope, item)
            return
        async with asyncio.TaskGroup() as group:
            for item in candidates:
                group.create_task(self._run(scope, item))

    async def _run(self, scope: QueryScope, candidate: _Candidate) -> None:
        await self._execution.run(
            scope, candidate.call, candidate.ready, arguments_hash=candidate.arguments_hash
        )

    async def _refuse(self, scope: QueryScope, call: ToolCallPart, reason: str | None) -> None:
        await record_end(scope, call, outcome="denied", content=(TextPart(text=reason or _DENIED),))


def _loop_of(scope: QueryScope, call: ToolCallPart) -> Literal["loop"]:
    """Note which call goes in circles."""
    shown = canonical_json(call.arguments if call.invalid is None else call.invalid).decode()
    more = "…" if len(shown) > _SHOWN else ""
    scope.repeated_call = f"{call.name}({shown[:_SHOWN]}{more})"
    return "loop"


def _question_about(scope: QueryScope, call: ToolCallPart) -> ApprovalRequested | None:
    """Return the question that was asked about a call and not answered yet."""
    pending = scope.fold.approvals.values()
    return next((item for item in pending if item.call_id == call.call_id), None)


def _why_not(resolution: NotFound | InvalidInput) -> ToolError:
    if isinstance(resolution, NotFound):
        return ToolError(ErrorCode.TOOL_NOT_FOUND, f"there is no tool {resolution.name!r}")
    return ToolError(
        ErrorCode.TOOL_INVALID_INPUT,
        f"the arguments do not fit: {resolution.message}. Correct them and call again.",
    )


def _check_verdict(verdict: Verdict) -> Verdict:
    """Return a verdict that is one: what a hook says goes into the log and to the model."""
    if not isinstance(verdict, Proceed | Block | Answer):
        raise TypeError(f"{type(verdict).__name__} is no verdict")
    for piece in verdict.content if isinstance(verdict, Answer) else ():
        check_content(piece)
    return msgspec.convert(msgspec.to_builtins(verdict), type(verdict))


async def _ask_safely(answer: Awaitable[Decision]) -> Decision:
    """Wait for an approver; one that fails has not approved.

    Raises:
        HookError: HOOK_FAILED when its answer is no decision: a mistake of the program, of which
            the model is not told.

    """
    try:
        decision = await answer
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
            ErrorCode.HOOK_FAILED, f"the approver returned what is no decision: {error}"
        ) from error
