"""Sub-agents: an agent as a tool of another one, which answers each call in a child session."""

import asyncio
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from holdfast.agent.query_options import QueryOptions
from holdfast.agent.session import AgentSession
from holdfast.blocks.tool_registry.tool import AnyTool, ToolOptions, make_tool
from holdfast.ports.abort import AbortSignal
from holdfast.ports.child_sessions import ChildCall, ChildHost
from holdfast.ports.tools import Resting, ToolContext
from holdfast.session.session_descriptions import SessionBindings, SessionRequest
from holdfast.vocabulary.errors import AgentError, ErrorCode, ToolError
from holdfast.vocabulary.json_types import writable
from holdfast.vocabulary.messages import AssistantMessage, Sender
from holdfast.vocabulary.results import AgentResult, StopReason
from holdfast.vocabulary.settings import Limits

if TYPE_CHECKING:
    from holdfast.agent.query_stream import QueryStream
    from holdfast.assembly.composition import Composition
    from holdfast.blocks.conversation.fold import SessionFold

_TITLE = 60
"""Characters of the prompt in the title of a child session."""
_STOPPED: dict[StopReason, str] = {
    "max_tokens": "The answer of the sub-agent was cut off here.",
    "limit": "The sub-agent was stopped here by a limit.",
}
"""What the model is told of an answer that is not complete. Other ends are failures."""
_SENDER = Sender(kind="agent")


class SubAgentError(Exception):
    """A sub-agent has no answer; the model is told why."""


def make_sub_agent(
    composition: "Composition", like: SessionRequest, options: ToolOptions
) -> AnyTool:
    """Make the tool whose calls an agent answers; `like` is how its sessions start.

    It may be run again after a crash, because a call always finds the session that it began.
    """
    name = options["name"]

    async def answer(prompt: str, context: ToolContext) -> object:
        call = context.child_call
        host: ChildHost[Composition] | None = context.surroundings.child_host
        if call is None or host is None:
            raise ToolError(ErrorCode.TOOL_FAILED, "a sub-agent needs a session to work for")
        sub_agent = _SubAgent(host.adopt(composition), like, call, at_once=host.at_once)
        return await sub_agent.answer(prompt, name, context)

    return make_tool(answer, {**options, "idempotent": True})


class _SubAgent:
    """One call of a sub-agent."""

    def __init__(
        self, joined: "Composition", like: SessionRequest, call: ChildCall, *, at_once: int
    ) -> None:
        self._joined = joined
        self._like = like
        self._call = call
        self._at_once = at_once

    async def answer(self, prompt: str, name: str, context: ToolContext) -> object:
        """Return the text of the answer, or that the child rests.

        Raises:
            SubAgentError: saying why there is no answer.
            ToolError: TOOL_FAILED when nothing is left of a limit of the query.

        """
        call = self._call
        limits = call.limits(self._like.settings.limits)
        async with call.working(at_once=self._at_once, description=prompt):
            title = writable(f"{name}: {' '.join(prompt.split())[:_TITLE]}")
            child = ChildSession(self._joined, self._request(title, context))
            try:
                outcome = await child.work(call, prompt, limits=limits, signal=context.signal)
            except AgentError as error:
                await call.put(())
                raise _failed(f"{error.code}: {error.message}", error.result) from error
            finally:
                await child.close(force=True)
            if isinstance(outcome, Resting):
                return outcome
            await call.put(())
            return _told(outcome)

    def _request(self, title: str, context: ToolContext) -> SessionRequest:
        """Return the request for the child session, which belongs to the owner of the caller."""
        configuration, own = self._joined.configuration, self._joined.inputs
        return replace(
            self._like,
            reference=self._call.child_id,
            owner=configuration.resolved.agent.owner,
            project=configuration.project,
            bindings=SessionBindings(
                deps=context.deps if own.deps is None else own.deps,
                approver=self._call.approver if own.approver is None else None,
                unanswered="deny" if own.unanswered == "deny" else self._call.unanswered,
            ),
            busy="wait",
            is_for_one_query=True,
            title=title,
            spawned_by=context.session_id,
            spawned_by_call=context.call_id,
        )


class ChildSession(AgentSession):
    """The session that answers one call of a sub-agent."""

    async def work(
        self, call: ChildCall, prompt: str, *, limits: Limits, signal: AbortSignal
    ) -> AgentResult[Any] | Resting:
        """Answer the prompt, or carry on what an earlier run of the call began.

        Raises:
            AgentError: what the query of the child fails with.

        """
        live = await self._live_session()
        fold = live.fold
        options: QueryOptions[None] = {"signal": signal, "on_abort": "return"}
        if limits != fold.settings.limits:
            options["limits"] = limits
        while True:
            if fold.is_resting() and fold.approvals:
                answers = await call.put(fold.pending_approvals())
                for approval_id, decision in answers.items():
                    await live.decide(approval_id, decision)
                if not answers:
                    return Resting()
            if fold.unfinished_query() is not None:
                stream = self.resume(**options)
            elif fold.last_query is None:
                options["sender"] = _SENDER
                stream = self.stream(prompt, **options)
            else:
                return _recorded(fold)
            result = await _follow(stream, call)
            if result.stop_reason != "approval":
                return result


async def _follow(stream: "QueryStream[Any]", call: ChildCall) -> AgentResult[Any]:
    """Run a query of the child to its end, show its events, and count what it used."""
    try:
        async with aclosing(stream.batches()) as batches:
            async for batch in batches:
                await call.show(batch)
        result = await stream.result()
    except AgentError as error:
        if error.result is not None:
            call.count(error.result)
        raise
    except asyncio.CancelledError:
        with suppress(AgentError):  # it may not have begun
            call.count(await stream.result())
        raise
    call.count(result)
    return result


def _recorded(fold: "SessionFold") -> AgentResult[Any]:
    """Return what the child answered when the call ran before; nothing of it is counted again."""
    last = fold.last_query
    answers = [item for item in fold.messages() if isinstance(item, AssistantMessage)]
    text = answers[-1].text if answers else ""
    if last is not None and last.error is not None:
        raise AgentError.from_dict(msgspec.to_builtins(last.error))
    return AgentResult(text=text, stop_reason=last.stop_reason if last else "error")


def _told(result: AgentResult[Any]) -> str:
    """Return what the model gets as the result of the call."""
    if result.stop_reason == "complete":
        return result.text
    note = _STOPPED.get(result.stop_reason)
    if note is None or not result.text:
        raise _failed(f"it stopped: {result.stop_detail or result.stop_reason}", result)
    return f"{result.text}\n\n[{note}]"


def _failed(why: str, result: AgentResult[Any] | None) -> SubAgentError:
    said = f"\n\nWhat it had answered so far:\n{result.text}" if result and result.text else ""
    return SubAgentError(f"{why}{said}")
