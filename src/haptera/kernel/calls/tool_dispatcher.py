"""ToolDispatcher: the tool calls of one turn, from resolving through approval to their ends."""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Literal, TypeAlias

import msgspec

from haptera.kernel.blocks.tool_registry.registry import InvalidInput, NotFound, Ready
from haptera.kernel.calls.call_permissions import CallPermissions, Judged
from haptera.kernel.calls.call_questions import (
    Candidate,
    Question,
    answer_to,
    ask_all,
    make_question,
    question_about,
)
from haptera.kernel.calls.child_calls import has_rested, rests_on_children
from haptera.kernel.calls.tool_execution import (
    Clearance,
    ToolExecution,
    record_end,
    record_failure,
)
from haptera.kernel.query.query import Query
from haptera.model.approvals import Ruling
from haptera.model.canonical import arguments_hash, canonical_json
from haptera.model.errors import ErrorCode, ToolError
from haptera.model.ids import CallId
from haptera.model.json_types import Json
from haptera.model.log.approvals import ApprovalRequested, ApprovalSettled
from haptera.model.log.tools import CallRecord
from haptera.model.parts import TextPart, ToolCallPart
from haptera.ports.hooks import Answer, Block, Proceed, Verdict
from haptera.system.logs import scrubbed_logger

_logger = scrubbed_logger(__name__)

DispatchOutcome: TypeAlias = Literal["done", "approval", "waiting", "loop", "denied"]

_SHOWN = 200
"""Characters of a repeated call's arguments that a result shows."""

DENIED = "This call was not allowed. Do not try it again unless you are asked to."
_REPEATED = (
    "This call was not run: you made the same call several times in a row, and its result was the "
    "same each time. Do something else, or answer with what you have."
)
_OTHER_ARGUMENTS = "This call was not run: it is not the one that was asked about."
_ANOTHER_DENIED = "This call was not run: another call of the same answer was denied."
_LOOPS = "the same call had the same result several times"


class ToolDispatcher:
    """Brings every call of a turn to its end, or to rest.

    Owns the order: resolve all, ask for all approvals at once, run. Without approvals calls run in
    the model's order; approved ones in the order the answers arrive. An approval is used for
    exactly what was asked about. Does not own tools (the registry does), what may run
    (`CallPermissions`), answers to approvals (the coordinator records them; what it has not
    recorded is not acted on) or what a result means (the model).
    """

    def __init__(self, *, execution: ToolExecution, permissions: CallPermissions) -> None:
        self._execution = execution
        self.permissions = permissions

    async def dispatch(self, query: Query, calls: Sequence[CallRecord]) -> DispatchOutcome:
        """Run what may run of `calls`; those that ended already stay as they are.

        The query rests on calls whose answer comes later once nothing else is left to run.
        """
        outcome = await self._dispatch(query, calls)
        return "waiting" if outcome == "done" and any(item.waits for item in calls) else outcome

    async def _dispatch(self, query: Query, calls: Sequence[CallRecord]) -> DispatchOutcome:
        open_calls = [item for item in calls if item.ended is None and not item.waits]
        prepared = await self._prepare_all(query, open_calls)
        if prepared == "loop":
            return "loop"
        asking = [item for item in prepared if isinstance(item, Question)]
        ready = [item for item in prepared if isinstance(item, Candidate)]
        # A call was denied while the others were prepared: none of this answer runs.
        if _is_stopped(query):
            for candidate in (*ready, *(question.candidate for question in asking)):
                await self._refuse(query, candidate.call, _ANOTHER_DENIED, source="on_deny")
            return "denied"
        await ask_all(query, asking)
        if query.session.bindings.approver is not None:
            await self._run_as_approved(query, ready, asking)
        else:
            await self._run_all(query, ready)
            # Calls that need no answer have run; the query rests on the others.
            rests = asking or rests_on_children(query)
            if rests and query.session.bindings.unanswered == "stop":
                return "approval"
            # Without an approver each of them is denied by this.
            for question in asking:
                await self._act(query, question, await answer_to(query, question))
        return "denied" if _is_stopped(query) else "done"

    async def _prepare_all(
        self, query: Query, records: list[CallRecord]
    ) -> list[Candidate | Question] | Literal["loop"]:
        """Find out what each call needs, in the model's order.

        A question of an earlier query that was answered while other calls were prepared is not
        asked again: its call is prepared once more, by the answer.
        """
        prepared: dict[CallId, Candidate | Question] = {}
        unprepared = records
        while unprepared:
            for record in unprepared:
                found = await self._prepare(query, record)
                if found == "loop":
                    return "loop"
                if found is None:
                    prepared.pop(record.part.call_id, None)
                else:
                    prepared[record.part.call_id] = found
            answered = {
                key
                for key, item in prepared.items()
                if isinstance(item, Question) and item.answer.done()
            }
            unprepared = [record for record in records if record.part.call_id in answered]
        return list(prepared.values())

    async def _prepare(
        self, query: Query, record: CallRecord
    ) -> Candidate | Question | Literal["loop"] | None:
        """Find out what a call needs; a call that cannot or may not run is answered here."""
        call, known = record.part, record.state
        # First of all: hooks are told the end of a call that is refused below, too.
        if query.hooks is not None:
            query.hooks.expect(call)
        if record.state == "denied":
            await self._deny(query, call, record.reason)
            return None
        if not record.may_run:
            return None  # it may have taken effect, or not: the fold says so to the model
        if record.state == "approved":
            # What was approved is what runs, whatever a hook would say by now.
            candidate = await self._resolve(query, call, record.approved)
            candidate = await self._unless_other(query, candidate, record.approved_hash)
            return await self._confirmed(
                query, candidate, asked=record.question, answer=record.settled
            )
        verdict = await self.consult_hook(query, call)
        candidate = None
        if isinstance(verdict, Proceed):
            asked = question_about(query, call)
            # A question that was asked stands: what it asked about is what may run.
            changed = verdict.arguments if asked is None else asked.arguments
            candidate = await self._resolve(query, call, changed)
            candidate = await self._unless_other(
                query, candidate, asked.arguments_hash if asked else None
            )
        if candidate is not None:
            judged = await self.permissions.judge(query, call.name, candidate.ready)
            if record.state != known:
                return await self._prepare(query, record)  # it was answered meanwhile
            return await self._judge(query, candidate, judged)
        # A call that never runs can go in circles, too, and no approver could allow it.
        asked_for = call.arguments if call.invalid is None else call.invalid
        row = query.checks.loop.judge(call.call_id, arguments_hash(call.name, asked_for))
        if row == "repeated":
            query.checks.loop.refuse(call.call_id)
        return _loop_of(query, call) if row == "insisting" else None

    async def _unless_other(
        self, query: Query, candidate: Candidate | None, asked: str | None
    ) -> Candidate | None:
        """Refuse a call that is not the one that was asked about, by the digest of the question."""
        if candidate is None or asked is None or candidate.arguments_hash == asked:
            return candidate
        await self._refuse(query, candidate.call, _OTHER_ARGUMENTS, source="approval")
        return None

    async def _judge(
        self, query: Query, candidate: Candidate, judged: Judged
    ) -> Candidate | Question | Literal["loop"] | None:
        """Say whether a call may run as it is, must be asked about, or goes in circles."""
        call = candidate.call
        action = judged.ruling.action
        row = query.checks.loop.judge(call.call_id, candidate.arguments_hash)
        if row == "insisting":
            return _loop_of(query, call)
        looping = row == "repeated"
        is_asked = query.session.bindings.approver is not None and query.settings.on_loop == "ask"
        if looping and (action == "deny" or not is_asked):
            query.checks.loop.refuse(call.call_id)
            await self._refuse(query, call, _REPEATED, source="loop")
            return None
        if action == "deny":
            await self._deny(query, call, judged.ruling)
            return None
        if not looping and (action == "allow" or has_rested(query, candidate)):
            return msgspec.structs.replace(candidate, judged=judged)
        of_tool = judged.ruling.source == "tool"
        reason = _LOOPS if looping else None if of_tool else judged.ruling.reason
        return make_question(query, candidate, judged, reason=reason)

    async def _confirmed(
        self,
        query: Query,
        candidate: Candidate | None,
        *,
        asked: ApprovalRequested | None,
        answer: ApprovalSettled | None,
    ) -> Candidate | None:
        """Return an approved call, unless it may not run all the same."""
        if candidate is None:
            return None
        judged = await self.permissions.confirm(
            query, candidate.call.name, candidate.ready, asked=asked, answer=answer
        )
        if judged.ruling.action == "deny":
            await self._deny(query, candidate.call, judged.ruling)
            return None
        feedback = None if answer is None else answer.feedback
        return msgspec.structs.replace(candidate, judged=judged, feedback=feedback)

    async def consult_hook(self, query: Query, call: ToolCallPart) -> Verdict:
        """Ask hooks about a call; one that they block or answer is ended here.

        Raises:
            HookError: HOOK_FAILED when a hook fails.

        """
        if query.hooks is None:
            return Proceed()
        verdict = await query.hooks.before_tool(call)
        if isinstance(verdict, Block):
            await self._refuse(query, call, verdict.reason, source="hook")
        elif isinstance(verdict, Answer):
            await record_end(query, call, outcome="ok", content=verdict.content)
        return verdict

    async def _resolve(
        self, query: Query, call: ToolCallPart, changed: Json | None
    ) -> Candidate | None:
        """Find the tool and parse the input once; a call that cannot run is answered here."""
        settings = query.settings
        offered = query.offer.tools.view(settings.allowed_tools, settings.denied_tools)
        resolution = offered.resolve(call, arguments=changed)
        if isinstance(resolution, Ready):
            arguments = call.arguments if changed is None else changed
            return Candidate(
                call=call,
                ready=resolution,
                arguments=arguments,
                arguments_hash=arguments_hash(call.name, arguments),
            )
        # Those of a question that was asked earlier may be the model's own.
        is_changed = changed is not None and changed != call.arguments
        failure = _why_not(resolution, is_changed=is_changed)
        await record_failure(query, call, failure, arguments=changed)
        return None

    async def _run_as_approved(
        self, query: Query, ready: list[Candidate], asking: list[Question]
    ) -> None:
        """Run what needs no approval, and the rest in the order in which answers arrive."""
        arrivals: asyncio.Queue[tuple[Question, ApprovalSettled]] = asyncio.Queue()

        async def bring(question: Question) -> None:
            answer = await answer_to(query, question)
            arrivals.put_nowait((question, answer))

        async with asyncio.TaskGroup() as group:
            # All are asked before anything runs, so that people can answer while tools work.
            for item in asking:
                group.create_task(bring(item))
            await self._run_all(query, ready)
            for _ in asking:
                question, answer = await arrivals.get()
                work = self._act(query, question, answer)
                if query.settings.parallel_tools:
                    group.create_task(work)
                else:
                    await work

    async def _act(self, query: Query, question: Question, answer: ApprovalSettled) -> None:
        """Do what a recorded answer says."""
        call = question.candidate.call
        if _is_stopped(query):
            await self._refuse(query, call, _ANOTHER_DENIED, source="on_deny")
            return
        if answer.decision != "approved":
            if question.request.reason == _LOOPS:
                query.checks.loop.refuse(call.call_id)
            await self._deny(query, call, answer.reason)
            if _is_stopped(query):
                # Wakes the calls that still wait for an answer; each of them is refused above.
                voided = query.session.approvals.cancellations(_ANOTHER_DENIED)
                await query.recorder.record(voided)
            return
        approved: Candidate | None = question.candidate
        if answer.arguments is not None:
            approved = await self._resolve(query, call, answer.arguments)
        approved = await self._confirmed(query, approved, asked=question.request, answer=answer)
        if approved is not None:
            await self._run(query, approved)

    async def _run_all(self, query: Query, candidates: Iterable[Candidate]) -> None:
        if not query.settings.parallel_tools:
            for item in candidates:
                await self._run(query, item)
            return
        async with asyncio.TaskGroup() as group:
            for item in candidates:
                group.create_task(self._run(query, item))

    async def _run(self, query: Query, candidate: Candidate) -> None:
        # The last look: the objects that hold the arguments were in other hands since.
        if arguments_hash(candidate.call.name, candidate.ready.arguments) != (
            candidate.arguments_hash
        ):
            await self._refuse(query, candidate.call, _OTHER_ARGUMENTS, source="approval")
            return
        judged = candidate.judged
        clearance = Clearance(
            arguments_hash=candidate.arguments_hash,
            ruling=None if judged is None else judged.ruling,
            is_unconfined=judged is not None and judged.is_unconfined,
            feedback=candidate.feedback,
        )
        await self._execution.run(query, candidate.call, candidate.ready, clearance=clearance)

    async def _deny(self, query: Query, call: ToolCallPart, ruling: Ruling | str | None) -> None:
        """Refuse a call by a ruling or a person's reason: that may end the query, too."""
        query.checks.denied_call = _shown(call)
        reason = ruling.reason if isinstance(ruling, Ruling) else ruling
        content = (TextPart(text=reason or DENIED),)
        kept = ruling if isinstance(ruling, Ruling) else None  # what a person said is in the log
        await record_end(query, call, outcome="denied", content=content, ruling=kept)

    async def _refuse(self, query: Query, call: ToolCallPart, reason: str, *, source: str) -> None:
        """Refuse a call for a reason that is no permission."""
        ruling = Ruling(action="deny", reason=reason, source=source)
        content = (TextPart(text=reason),)
        await record_end(query, call, outcome="denied", content=content, ruling=ruling)


def _loop_of(query: Query, call: ToolCallPart) -> Literal["loop"]:
    """Note which call goes in circles."""
    query.checks.repeated_call = _shown(call)
    return "loop"


def _shown(call: ToolCallPart) -> str:
    """Write a call down for people."""
    shown = canonical_json(call.arguments if call.invalid is None else call.invalid).decode()
    more = "…" if len(shown) > _SHOWN else ""
    return f"{call.name}({shown[:_SHOWN]}{more})"


def _is_stopped(query: Query) -> bool:
    """Whether the query ends because a call was denied."""
    return query.checks.denied_call is not None and query.settings.on_deny == "stop"


def _why_not(resolution: NotFound | InvalidInput, *, is_changed: bool) -> ToolError:
    if isinstance(resolution, NotFound):
        return ToolError(ErrorCode.TOOL_NOT_FOUND, f"there is no tool {resolution.name!r}")
    if is_changed:  # by the program: the model must not take it for its own mistake
        _logger.warning(
            "tool %s was not run: the arguments that an approver or a hook gave it do not fit",
            resolution.name,
        )
        return ToolError(
            ErrorCode.TOOL_INVALID_INPUT,
            "the call was not run: its arguments were changed after you made it, by a person or by "
            f"the program, and the changed ones do not fit: {resolution.message}. Your own "
            "arguments were not the reason.",
        )
    return ToolError(
        ErrorCode.TOOL_INVALID_INPUT,
        f"the arguments do not fit: {resolution.message}. Correct them and call again.",
    )
