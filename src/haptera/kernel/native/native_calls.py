"""NativeCalls: answers what a native agent asks about its tool calls, on behalf of one query."""

import asyncio
from typing import Literal

import msgspec

from haptera.kernel.blocks.tool_registry.registry import Ready
from haptera.kernel.calls.call_permissions import CallPermissions, Judged
from haptera.kernel.calls.call_questions import Candidate, answer_to, ask_all, make_question
from haptera.kernel.calls.tool_dispatcher import DENIED, ToolDispatcher
from haptera.kernel.native.native_mirror import NativeMirror
from haptera.kernel.query.query import Query
from haptera.kernel.session.native_link import NativeQuestion
from haptera.model.canonical import arguments_hash, canonical_json
from haptera.model.events import ToolProgress
from haptera.model.ids import CallId
from haptera.model.json_types import Json, JsonObject
from haptera.model.log.approvals import ApprovalSettled
from haptera.model.parts import TextPart, ToolCallPart, text_of
from haptera.model.tools import ApprovalMode, Effect, ToolRules, ToolSpec
from haptera.ports.hooks import Answer, Block
from haptera.ports.native_agent import (
    Allow,
    CallResult,
    NativeAgent,
    NativeCall,
    Permission,
    Refuse,
)
from haptera.ports.tools import PreparedCall, ToolContext

_WAITS = "This call waits for approval. Stop here; you will be told when it is decided."
_READING: tuple[str, ...] = ("Read", "Glob", "Grep", "LS", "NotebookRead", "TodoWrite")
_WRITING: tuple[str, ...] = ("Write", "Edit", "MultiEdit", "NotebookEdit")
_EFFECTS: dict[str, Effect] = dict.fromkeys(_READING, "read")
_EFFECTS |= dict.fromkeys(_WRITING, "write")
"""What tools of Claude Code do to the world; any other one may reach elsewhere."""
_QUESTIONS = "AskUserQuestion"
"""The agent's tool whose answer comes with its approval."""


class NativeCalls:
    """Decides about the calls of one query. Owns no rules: they are the agent's and the session's.

    - A call of the agent's own tools is asked about when the agent asks, by our approver, or by an
      answer to our approval. A grant and the start of the call are recorded before the agent gets
      the answer.
    - A call of our tools is dispatched like any other: hook, approval, at most once, recorded.
    """

    def __init__(
        self,
        query: Query,
        *,
        agent: NativeAgent,
        mirror: NativeMirror,
        dispatcher: ToolDispatcher,
        permissions: CallPermissions,
        granted: dict[str, JsonObject],
    ) -> None:
        self._query = query
        self._agent = agent
        self._mirror = mirror
        self._dispatcher = dispatcher
        self._permissions = permissions
        self._granted = granted
        """Approvals that were given while the query rested, by the digest of the call."""
        self._one_runs = asyncio.Lock()
        self.rest: Literal["approval", "waiting", "loop", "denied"] | None = None
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
        query, call_id = self._query, call.call_id
        # Calls of the agent's own sub-agents are in no answer of the log: they are only shown.
        if call.agent is not None or call_id is None:
            shown = {"agent": call.agent, "tool": call.tool}
            progress = ToolProgress(call_id=CallId(call_id or ""), tool=call.tool, progress=shown)
            query.recorder.show([progress])
            judged = await self._permissions.judge(query, call.tool, _ready(call, approval="never"))
            return _opinion(judged, call)
        await self._mirror.until_known(call_id)
        part = ToolCallPart(call_id=CallId(call_id), name=call.tool, arguments=call.arguments)
        verdict = await self._dispatcher.consult_hook(query, part)
        if isinstance(verdict, Block):
            return Refuse(verdict.reason)
        if isinstance(verdict, Answer):
            return Refuse(f"Not run. The answer is: {text_of(tuple(verdict.content))}")
        if verdict.arguments is not None:
            call = msgspec.structs.replace(call, arguments=verdict.arguments)
        judged = await self._permissions.judge(query, call.tool, _ready(call, approval="never"))
        if verdict.arguments is not None and judged.ruling.action != "deny":
            return Allow(verdict.arguments)  # it is asked about then
        # The agent will not ask about this call, so its start is recorded here, before it runs.
        if judged.ruling.action == "allow" and self._agent.starts_unasked(call.tool):
            await self._mirror.start_call(call_id, call.tool, call.arguments)
        return _opinion(judged, call)

    async def _permit(self, call: NativeCall) -> Permission:
        # Another call of this turn has brought the query to rest: nothing more may start.
        if self.rest is not None:
            return Refuse(_WAITS, stop=True)
        if call.agent is None and call.call_id is not None:
            await self._mirror.until_known(call.call_id)
        digest = arguments_hash(call.tool, call.arguments)
        # Taken out: an approval is used once, and the same call later is a new question.
        if (granted := self._granted.pop(digest, None)) is not None:
            return await self._grant_approved(call, granted)
        ready = _ready(call, approval="ask")
        judged = await self._permissions.judge(self._query, call.tool, ready)
        if judged.ruling.action == "deny":
            return Refuse(judged.ruling.reason or DENIED)
        if judged.ruling.action == "allow":
            return await self._grant(call, call.arguments)
        candidate = Candidate(
            call=ToolCallPart(
                call_id=CallId(call.call_id or ""), name=call.tool, arguments=call.arguments
            ),
            ready=ready,
            arguments=call.arguments,
            arguments_hash=digest,
        )
        return await self._act(call, await self._ask(call, candidate, judged))

    async def _act(self, call: NativeCall, settled: ApprovalSettled | None) -> Permission:
        """Do what a recorded answer says; without one the query rests."""
        if settled is None:
            self.rest = "approval"
            return Refuse(_WAITS, stop=True)
        if settled.decision != "approved":
            return Refuse(settled.reason or DENIED)
        return await self._grant_approved(
            call, approved_arguments(call.tool, call.arguments, settled.arguments)
        )

    async def _grant_approved(self, call: NativeCall, arguments: JsonObject) -> Permission:
        """Let an approved call run as it was approved, unless it is denied all the same."""
        ready = _ready(msgspec.structs.replace(call, arguments=arguments), approval="ask")
        judged = await self._permissions.confirm(
            self._query, call.tool, ready, asked=None, answer=None
        )
        if judged.ruling.action == "deny":
            return Refuse(judged.ruling.reason or DENIED)
        return await self._grant(call, arguments)

    async def _grant(self, call: NativeCall, arguments: JsonObject) -> Permission:
        if call.call_id is not None and call.agent is None:
            await self._mirror.start_call(call.call_id, call.tool, arguments)
        return Allow(arguments)

    async def _ask(
        self, call: NativeCall, candidate: Candidate, judged: Judged
    ) -> ApprovalSettled | None:
        """Ask, and return the recorded answer; None when the query rests on the question."""
        query = self._query
        reason = None if call.agent is None else f"for the sub-agent {call.agent}"
        question = make_question(query, candidate, judged, reason=reason)
        await ask_all(query, [question])
        if query.session.bindings.approver is None and query.session.bindings.unanswered == "stop":
            return None
        return await answer_to(query, question)

    async def _run_tool(self, call: NativeCall) -> CallResult:
        # An agent may not say which call it means; calls of one tool are run in order.
        call_id = call.call_id or self._first_open(call.tool)
        if call_id is None or not await self._mirror.until_known(call_id):
            return _failed(f"there is no call of {call.tool} that could be run")
        # Looked at after the wait: a call beside this one may have brought the query to rest
        # meanwhile.
        if self.rest is not None:
            return _failed(_WAITS)
        if self._query.settings.parallel_tools:
            return await self._dispatch(call_id)
        # The agent asks for its calls side by side; the setting says one after the other.
        async with self._one_runs:
            return await self._dispatch(call_id)

    async def _dispatch(self, call_id: str) -> CallResult:
        query = self._query
        record = query.fold.calls[CallId(call_id)]
        outcome = await self._dispatcher.dispatch(query, [record])
        if outcome != "done":
            self.rest, self.must_interrupt = outcome, True
            return _failed(_WAITS if outcome == "approval" else "The same call was made again.")
        if record.ended is None:
            return _failed("This call may not be run again.")
        # As the runner for models does after the tools of a turn. Here every call ends by itself.
        result = record.ended.outcome, canonical_json(record.ended.content)
        query.checks.loop.end(record.part.call_id, result)
        return CallResult(record.ended.content, is_error=record.ended.is_error)

    def _first_open(self, tool: str) -> str | None:
        calls = self._query.fold.calls.values()
        found = (item for item in calls if item.part.name == tool and item.ended is None)
        return next((item.part.call_id for item in found), None)


def approved_arguments(tool: str, arguments: JsonObject, changed: Json | None) -> JsonObject:
    """Return what an approved call runs with; None as `changed` leaves its arguments."""
    if changed is None:
        return arguments
    # The approval holds only the answers; the tool needs its questions beside them.
    return {**arguments, **changed} if tool == _QUESTIONS else changed


class _AgentTool:
    """A tool that the agent runs itself, as the permission rules see it."""

    def __init__(self, name: str, *, approval: ApprovalMode) -> None:
        self.spec = ToolSpec(name=name)
        self.rules = ToolRules(approval=approval, effect=_EFFECTS.get(name, "external"))

    def prepare(self, arguments: JsonObject) -> PreparedCall:
        """Return what refuses to run: the agent runs it."""

        async def run(_context: ToolContext) -> object:
            raise TypeError(f"the agent runs {self.spec.name} itself, with {arguments}")

        return run


def _opinion(judged: Judged, call: NativeCall) -> Permission | None:
    """Return what the rules say of a call that the agent may not ask about."""
    if judged.ruling.action == "deny":
        return Refuse(judged.ruling.reason or DENIED)
    return (
        Allow(call.arguments) if judged.ruling.action == "ask" else None
    )  # then it is asked about


def _ready(call: NativeCall, *, approval: ApprovalMode) -> Ready:
    tool = _AgentTool(call.tool, approval=approval)
    return Ready(tool, call.arguments, tool.prepare(call.arguments))


def _failed(text: str) -> CallResult:
    return CallResult((TextPart(text=text),), is_error=True)
