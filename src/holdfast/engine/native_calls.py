"""NativeCalls: answers what a native agent asks about its tool calls, on behalf of one query."""

import asyncio
from typing import Any, Literal

from holdfast.engine.native_link import NativeQuestion
from holdfast.engine.native_mirror import NativeMirror
from holdfast.engine.query_scope import QueryScope
from holdfast.engine.tool_dispatcher import ToolDispatcher
from holdfast.ports.native_agent import (
    Allow,
    CallResult,
    NativeAgent,
    NativeCall,
    Permission,
    Refuse,
)
from holdfast.ports.tools import Answer, Block
from holdfast.serialization.canonical import arguments_hash, canonical_json
from holdfast.vocabulary.approvals import Deny
from holdfast.vocabulary.entries import ApprovalRequested, ApprovalSettled
from holdfast.vocabulary.events import ToolProgress
from holdfast.vocabulary.ids import CallId, new_approval_id
from holdfast.vocabulary.json_types import JsonObject
from holdfast.vocabulary.parts import TextPart, ToolCallPart, text_of

_WAITS = "This call waits for approval. Stop here; you will be told when it is decided."
_NOT_ALLOWED = "This call was not allowed. Do not try it again unless you are asked to."
_QUESTIONS = "AskUserQuestion"
"""The agent's tool whose answer comes with its approval."""


class NativeCalls:
    """Decides about the calls of one query. Owns no rules: they are the agent's and the session's.

    - A call of the agent's own tools is asked about when the agent asks, by our approver or anyone
      who answers our approval. A grant is recorded before the agent hears of it, and so is the
      start of the call.
    - A call of our tools is dispatched like any other: hook, approval, at most once, recorded.
    """

    def __init__(
        self,
        scope: QueryScope,
        *,
        agent: NativeAgent,
        mirror: NativeMirror,
        dispatcher: ToolDispatcher,
        granted: dict[str, JsonObject],
    ) -> None:
        self._scope = scope
        self._agent = agent
        self._mirror = mirror
        self._dispatcher = dispatcher
        self._granted = granted
        """Approvals that were given while the query rested, by the digest of the call."""
        self._one_runs = asyncio.Lock()
        self.rest: Literal["approval", "loop"] | None = None
        """Why the query ends with this turn."""
        self.must_interrupt = False
        """Whether the agent would go on, and is to be stopped."""

    async def answer(self, question: NativeQuestion) -> None:
        """Answer one question."""
        call = question.call
        value: object
        if question.asked == "announce":
            value = await self._announce(call)
        elif question.asked == "permit":
            value = await self._permit(call)
        else:
            value = await self._run_tool(call)
        question.settle(value)

    async def _announce(self, call: NativeCall) -> Permission | None:
        scope, call_id = self._scope, call.call_id
        if call.agent is not None or call_id is None:
            shown = {"agent": call.agent, "tool": call.tool}
            progress = ToolProgress(call_id=CallId(call_id or ""), tool=call.tool, progress=shown)
            scope.recorder.show([progress])
            return None
        await self._mirror.until_known(call_id)
        part = ToolCallPart(call_id=CallId(call_id), name=call.tool, arguments=call.arguments)
        verdict = await self._dispatcher.consult_hook(scope, part)
        if isinstance(verdict, Block):
            return Refuse(verdict.reason)
        if isinstance(verdict, Answer):
            return Refuse(f"Not run. The answer is: {text_of(tuple(verdict.content))}")
        if verdict.arguments is not None:
            return Allow(verdict.arguments)  # it is asked about then
        if scope.settings.approval == "ask":
            return Allow(call.arguments)  # every call is asked about, also one that only reads
        if self._agent.starts_unasked(call.tool):
            await self._mirror.start_call(call_id, call.tool, call.arguments)
        return None

    async def _permit(self, call: NativeCall) -> Permission:
        if self.rest is not None:
            return Refuse(_WAITS, stop=True)
        if call.agent is None and call.call_id is not None:
            await self._mirror.until_known(call.call_id)
        digest = arguments_hash(call.tool, call.arguments)
        if (granted := self._granted.pop(digest, None)) is not None:
            return await self._grant(call, granted)
        if self._scope.fold.is_allowed(call.tool, self._scope.query_id):
            return await self._grant(call, call.arguments)
        settled = await self._ask(call, digest)
        if settled is None:
            self.rest = "approval"
            return Refuse(_WAITS, stop=True)
        if settled.decision != "approved":
            return Refuse(settled.reason or _NOT_ALLOWED)
        changed: Any = settled.arguments
        if changed is not None and call.tool == _QUESTIONS:
            changed = {**call.arguments, **changed}
        return await self._grant(call, call.arguments if changed is None else changed)

    async def _grant(self, call: NativeCall, arguments: JsonObject) -> Permission:
        if call.call_id is not None and call.agent is None:
            await self._mirror.start_call(call.call_id, call.tool, arguments)
        return Allow(arguments)

    async def _ask(self, call: NativeCall, digest: str) -> ApprovalSettled | None:
        """Ask, and return the recorded answer; None when the query rests on the question."""
        scope, approvals = self._scope, self._scope.session.approvals
        approval_id = new_approval_id()
        answer = approvals.park(approval_id)
        asked = ApprovalRequested(
            **scope.turn_stamp(),
            approval_id=approval_id,
            call_id=CallId(call.call_id or ""),
            tool=call.tool,
            arguments=call.arguments,
            arguments_hash=digest,
            reason=None if call.agent is None else f"for the sub-agent {call.agent}",
        )
        await scope.recorder.record([asked])
        if scope.session.approver is None:
            if scope.session.unanswered == "stop":
                return None
            await approvals.settle(approval_id, Deny("there is no approver"))
            return await answer
        pending = scope.fold.pending_approvals()
        request = next((item for item in pending if item.id == approval_id), None)
        if request is not None:  # otherwise it is answered already
            await self._dispatcher.ask_approver(scope, request, answer)
        return await answer

    async def _run_tool(self, call: NativeCall) -> CallResult:
        call_id = call.call_id or self._first_open(call.tool)
        if call_id is None or not await self._mirror.until_known(call_id):
            return _failed(f"there is no call of {call.tool} that could be run")
        if self.rest is not None:
            return _failed(_WAITS)
        if self._scope.settings.parallel_tools:
            return await self._dispatch(call_id)
        async with self._one_runs:
            return await self._dispatch(call_id)

    async def _dispatch(self, call_id: str) -> CallResult:
        scope = self._scope
        record = scope.fold.calls[CallId(call_id)]
        outcome = await self._dispatcher.dispatch(scope, [record])
        if outcome != "done":
            self.rest, self.must_interrupt = outcome, True
            return _failed(_WAITS if outcome == "approval" else "The same call was made again.")
        if record.ended is None:
            return _failed("This call may not be run again.")
        result = record.ended.outcome, canonical_json(record.ended.content)
        scope.loop.end(record.part.call_id, result)
        return CallResult(record.ended.content, is_error=record.ended.is_error)

    def _first_open(self, tool: str) -> str | None:
        calls = self._scope.fold.calls.values()
        found = (item for item in calls if item.part.name == tool and item.ended is None)
        return next((item.part.call_id for item in found), None)


def _failed(text: str) -> CallResult:
    return CallResult((TextPart(text=text),), is_error=True)
