"""Sub-agents: an agent as a tool of another one, which answers each call in a child session."""

import asyncio
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from haptera.agent.keywords import ResumeKeywords
from haptera.agent.outputs import output_spec
from haptera.agent.session import AgentSession
from haptera.kernel.blocks.tool_registry.keywords import ToolKeywords
from haptera.kernel.blocks.tool_registry.tool import AnyTool, make_tool
from haptera.kernel.session.session_descriptions import SessionOrigin, SessionRequest
from haptera.model.canonical import canonical_json
from haptera.model.errors import AgentError, ErrorCode, ToolError
from haptera.model.json_types import writable
from haptera.model.messages import AssistantMessage, Sender
from haptera.model.parts import ToolCallPart
from haptera.model.results import AgentResult, StopReason
from haptera.model.settings import Limits
from haptera.ports.child_sessions import ChildCall, ChildHost
from haptera.ports.runner import OutputSpec, SessionBindings
from haptera.ports.tools import Resting, ToolContext

if TYPE_CHECKING:
    from haptera.access.assembly.composition import Composition
    from haptera.agent.query_stream import QueryStream
    from haptera.model.log.session_fold import SessionFold

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
    composition: "Composition",
    like: SessionRequest,
    options: ToolKeywords,
    *,
    output_type: object,
) -> AnyTool:
    """Make the tool whose calls an agent answers; `like` is how its sessions start.

    It may be run again after a crash, because a call always finds the session that it began.

    Raises:
        ConfigError: CONFIG_INVALID when the name or the type of the answer cannot be used.

    """
    output_spec(output_type)  # a type that no model could be told of is refused now

    async def answer(prompt: str, context: ToolContext) -> object:
        call = context.child_call
        host: ChildHost[Composition] | None = context.surroundings.child_host
        if call is None or host is None:
            raise ToolError(ErrorCode.TOOL_FAILED, "a sub-agent needs a session to work for")
        sub_agent = _SubAgent(host.adopt(composition), like, call, output_type=output_type)
        return await sub_agent.answer(prompt, tool.name, context, at_once=host.at_once)

    tool: AnyTool = make_tool(answer, {**options, "idempotent": True})
    return tool


class _SubAgent:
    """One call of a sub-agent."""

    def __init__(
        self,
        joined: "Composition",
        like: SessionRequest,
        call: ChildCall,
        *,
        output_type: object,
    ) -> None:
        self._joined = joined
        self._like = like
        self._call = call
        self._output_type = output_type

    async def answer(self, prompt: str, name: str, context: ToolContext, *, at_once: int) -> object:
        """Return the answer, text or of the type that was asked for, or that the child rests.

        Raises:
            SubAgentError: saying why there is no answer.
            ToolError: TOOL_FAILED when nothing is left of a limit of the query.

        """
        call = self._call
        limits = call.limits(self._like.settings.limits)
        async with call.working(at_once=at_once, description=prompt):
            title = writable(f"{name}: {' '.join(prompt.split())[:_TITLE]}")
            child = ChildSession(self._joined, self._request(title, context))
            try:
                options: ResumeKeywords[Any] = {"signal": context.signal, "on_abort": "return"}
                if self._output_type is not None:
                    options["output_type"] = self._output_type  # type: ignore[typeddict-item]
                outcome = await child.work(call, prompt, options, limits=limits)
            except AgentError as error:
                # Withdraws the questions that the child does not wait for any more.
                await call.put(())
                raise _failed(f"{error.code}: {error.message}", error.result) from error
            finally:
                await child.close(force=True, abort=not context.signal.suspends)
            if isinstance(outcome, Resting):
                return outcome
            await call.put(())
            if self._output_type is not None and outcome.stop_reason == "complete":
                return outcome.output
            return _told(outcome)

    def _request(self, title: str, context: ToolContext) -> SessionRequest:
        """Return the request for the child session, which belongs to the owner of the caller."""
        configuration, own = self._joined.configuration, self._joined.inputs
        around = own.around
        return replace(
            self._like,
            reference=self._call.child_id,
            owner=configuration.resolved.agent.owner,
            project=configuration.project,
            bindings=SessionBindings(
                # What the sub-agent has of its own wins. Without an approver its questions go up to
                # the caller, whose session records and answers them.
                deps=context.deps if own.deps is None else own.deps,
                approver=self._call.approver if around.approver is None else None,
                unanswered="deny" if around.unanswered == "deny" else self._call.unanswered,
            ),
            # A run of this call that was stopped may still be closing the session.
            busy="wait",
            is_for_one_query=True,
            origin=SessionOrigin(
                title=title, spawned_by=context.session_id, spawned_by_call=context.call_id
            ),
        )


class ChildSession(AgentSession):
    """The session that answers one call of a sub-agent."""

    async def work(
        self, call: ChildCall, prompt: str, options: ResumeKeywords[Any], *, limits: Limits
    ) -> AgentResult[Any] | Resting:
        """Answer the prompt, or carry on what an earlier run of the call began.

        Raises:
            AgentError: what the query of the child fails with.

        """
        live = await self._live_session()
        fold = live.fold
        if limits != fold.settings.limits:
            options["limits"] = limits
        while True:
            # Every round looks at the fold anew: a query that was resumed may rest on another
            # question.
            if fold.is_resting() and fold.approvals:
                answers = await call.put(fold.pending_approvals())
                # They were given in the caller's session, perhaps while this one was closed.
                for approval_id, decision in answers.items():
                    await live.decide(approval_id, decision)
                if not answers:
                    return Resting()
            if fold.unfinished_query() is not None:
                stream = self.resume(**options)
            elif fold.last_query is None:
                stream = self.stream(prompt, sender=_SENDER, **options)
            else:
                # The call is run again after a crash, and the child had answered before that.
                return _recorded(fold, output_spec(options.get("output_type")))
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
        # The signal of the call was aborted before it was cancelled, so the child is ending.
        with suppress(AgentError):  # it may not have begun
            call.count(await stream.result())
        raise
    call.count(result)
    return result


def _recorded(fold: "SessionFold", output: OutputSpec | None) -> AgentResult[Any]:
    """Return what the child answered when the call ran before; nothing of it is counted again."""
    last = fold.last_query
    answers = [item for item in fold.messages() if isinstance(item, AssistantMessage)]
    text = answers[-1].text if answers else ""
    if last is not None and last.error is not None:
        raise AgentError.from_dict(msgspec.to_builtins(last.error))
    # Without usage and cost: the run that got the answer has counted them.
    result = AgentResult[Any](text=text, stop_reason=last.stop_reason if last else "error")
    if output is None or result.stop_reason != "complete":
        return replace(result, output=text)
    # Some models give an answer of a type as the arguments of a call.
    arguments = [part.arguments for part in answers[-1].parts if isinstance(part, ToolCallPart)]
    try:
        answer = output.parse(canonical_json(arguments[-1]).decode() if arguments else text)
    except ValueError as error:
        raise SubAgentError(f"its recorded answer does not fit: {error}") from error
    return replace(result, output=answer)


def _told(result: AgentResult[Any]) -> str:
    """Return what the model gets as the result of the call."""
    if result.stop_reason == "complete":
        return result.text
    note = _STOPPED.get(result.stop_reason)
    if note is None or not result.text:
        raise _failed(f"it stopped: {result.stop_detail or result.stop_reason}", result)
    return f"{result.text}\n\n[{note}]"


def _failed(why: str, result: AgentResult[Any] | None) -> SubAgentError:
    answer = f"\n\nWhat it had answered so far:\n{result.text}" if result and result.text else ""
    return SubAgentError(f"{why}{answer}")
