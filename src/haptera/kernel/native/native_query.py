"""NativeTurns: the turns of a query with an agent that keeps its own session."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Literal

import msgspec

from haptera.kernel.blocks.error_classification import (
    TYPED_CODES,
    code_of_known_text,
    code_of_status,
)
from haptera.kernel.blocks.request_builder import lead_with_reminders
from haptera.kernel.blocks.tool_registry.registry import ready_tools
from haptera.kernel.calls.call_permissions import CallPermissions
from haptera.kernel.calls.file_snapshots import FileSnapshots
from haptera.kernel.calls.tool_dispatcher import ToolDispatcher
from haptera.kernel.native.native_calls import NativeCalls, approved_arguments
from haptera.kernel.native.native_mirror import NativeMirror
from haptera.kernel.native.native_opening import (
    NativeOpener,
    OpenedNative,
    calls_text,
    cut_off_at,
    prompt_id,
    so_far_text,
)
from haptera.kernel.query.query import Query
from haptera.kernel.session.native_link import NativeLive, NativeQuestion
from haptera.kernel.session.native_turns import TurnTimes
from haptera.kernel.turns.turn_guards import TurnGuards
from haptera.kernel.turns.typed_output import take_output
from haptera.model.canonical import arguments_hash, canonical_json
from haptera.model.errors import (
    AgentError,
    ConfigError,
    ErrorCode,
    RequestError,
    error_with_code,
)
from haptera.model.ids import DEFAULT_OWNER, InputId
from haptera.model.json_types import JsonObject
from haptera.model.log.native import holds_prompt
from haptera.model.messages import Message
from haptera.model.native_messages import NativeMessage, NativeResult
from haptera.model.native_settings import ResumePolicy
from haptera.model.parts import MediaPart, Part, ReminderPart, TextPart
from haptera.model.requests import OutputSchema
from haptera.model.results import StopReason
from haptera.model.settings import RuntimeSettings
from haptera.ports.model_client import ModelCatalogue
from haptera.ports.native_agent import NativeAgent, NativeOpening, NativeRoute
from haptera.ports.runner import QueryOutcome
from haptera.system.clock import Clock

_STOP_REASONS: dict[str, StopReason] = {"max_tokens": "max_tokens", "refusal": "refusal"}
_GO_ON = "Go on from where you stopped."
_LIMITS = {"error_max_turns": "turns", "error_max_budget_usd": "cost"}
_AGENT_CODES = {
    "authentication_failed": ErrorCode.AUTH,
    "billing_error": ErrorCode.QUOTA,
    "rate_limit": ErrorCode.RATE_LIMITED,
    "server_error": ErrorCode.SERVER_ERROR,
    "invalid_request": ErrorCode.BAD_REQUEST,
    "max_output_tokens": ErrorCode.CONTEXT_LENGTH,
}
"""The agent's own words for errors; the HTTP status says more where there is one."""


class NativeBlocks(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """What queries with native agents need."""

    route: NativeRoute
    dispatcher: ToolDispatcher
    permissions: CallPermissions
    catalogue: ModelCatalogue
    clock: Clock
    runtime: RuntimeSettings
    guards: TurnGuards
    files: FileSnapshots
    resume: ResumePolicy = "native"
    send_timeout: float | None = None
    """Seconds until a prompt must be taken."""
    result_timeout: float | None = None
    """Seconds until a query must be answered."""


class NativeQueries:
    """What native agents have of sessions, and their part in queries. Keeps nothing of any query.

    Does not own what is recorded of an agent (NativeMirror) or its calls (NativeCalls).
    """

    def __init__(self, blocks: NativeBlocks) -> None:
        self._blocks = blocks

    def remember(self, query: Query) -> None:
        """Note the prompt of a query, and what was before it, before both are joined.

        The conversation joins the two where the query before was not answered.
        """
        fold, share = query.fold, query.native
        share.is_remembered = True
        share.before, share.state = fold.messages(), fold.native
        prompt = query.input.message
        if query.input.input_id is not None:
            queued = fold.inputs.get(InputId(query.input.input_id))
            prompt = queued.message if queued is not None else None
        if prompt is not None:
            led = lead_with_reminders(prompt, query.settings.cached_reminders, fold.sent_view())
            prompt = fold.notes.lead(led)
        share.prompt = prompt

    async def turns_of(self, query: Query) -> "NativeTurns | None":
        """Return the turns of a query with an agent; None where a model is asked.

        An agent that is open is closed then.
        """
        found = await self._blocks.route(query.settings.model)
        if found is not None:
            agent, model = found
            return NativeTurns(query, agent, model=model, blocks=self._blocks)
        await query.session.native.clear()
        if query.fold.native.session_id and query.fold.native.knows(query.native.before):
            query.native.resume = "replay"  # the conversation comes from a native session
        return None


class NativeTurns:
    """The turns of one query with a native agent: prompts to it, and what it does with each.

    An agent reads context files itself, and runs tools inside its turn, so files are recorded
    around its whole query.
    """

    def __init__(
        self, query: Query, agent: NativeAgent, *, model: str, blocks: NativeBlocks
    ) -> None:
        self._query = query
        self._agent = agent
        self._model = model
        self._blocks = blocks
        self._mirror = NativeMirror(
            query,
            provider=agent.provider,
            model=model,
            catalogue=blocks.catalogue,
            runtime=blocks.runtime,
        )
        self._wrong_answers = 0
        self._limit: str | None = None
        """The limit that the query has reached, as `cost=1`."""
        self._granted: dict[str, JsonObject] = {}
        self._opened: OpenedNative | None = None
        self._parts: tuple[Part, ...] = ()
        """What the agent is sent next."""

    async def begin(self) -> QueryOutcome | None:
        """Open the agent; returns how the query rests where there is nothing to answer."""
        query, blocks = self._query, self._blocks
        if (refused := await blocks.guards.before_turn(query)) is not None:
            return refused
        await query.recorder.record(())  # what is staged: an agent is asked what is in the log
        _refuse_unsupported(query)
        if query.input.resumes is not None and query.fold.is_answered():
            return QueryOutcome(stop_reason="complete")  # only its end was not recorded
        # The agent does not say beforehand which of its tools write.
        await blocks.files.before_tool(query, "external")
        # Collected before the first turn, which settles the calls in the fold.
        query.native.is_asked = True
        self._granted = _granted_calls(query)
        times = TurnTimes(send=blocks.send_timeout, result=blocks.result_timeout)
        self._opened = opened = await NativeOpener(
            query,
            self._agent,
            opening=await self._opening(),
            resume=blocks.resume,
            times=times,
        ).open()
        self._parts = self._first_parts(opened)
        return None

    async def next(self) -> QueryOutcome | None:
        """Let the agent answer what it is sent; returns how the query rests, or None."""
        outcome = await self._outcome()
        if outcome is not None:
            await self._blocks.files.after_tools(self._query)
        return outcome

    async def _outcome(self) -> QueryOutcome | None:
        query, opened = self._query, self._opened
        if opened is None:
            raise RuntimeError("the turns of an agent begin with `begin`")
        rest, result = await self._turn(opened, self._parts, self._granted)
        if self._limit is not None:
            return QueryOutcome(stop_reason="limit", stop_detail=self._limit)
        if rest == "denied":
            return QueryOutcome(stop_reason="refusal", stop_detail=query.checks.denied_call)
        if rest is not None:
            return QueryOutcome(stop_reason=rest, stop_detail=query.checks.repeated_call)
        outcome = _judge(query, result, provider=self._agent.provider)
        following = await self._following(outcome)
        if following is None:
            return outcome
        self._parts = following
        return None

    async def _opening(self) -> NativeOpening:
        query, settings = self._query, self._query.settings
        offer = query.offer
        offer.tools = await ready_tools(offer.registry, settings.allowed_tools)
        offered = offer.tools.view(settings.allowed_tools, settings.denied_tools)
        return NativeOpening(
            model=self._model,
            settings=settings,
            tools=offered.wire_tools,
            owner=query.fold.opened.owner if query.fold.opened is not None else DEFAULT_OWNER,
        )

    def _first_parts(self, opened: OpenedNative) -> tuple[Part, ...]:
        """Return what the agent is sent: the prompt, and what it must know before it."""
        query = self._query
        self._mirror.prompted()
        before: list[Part] = [ReminderPart(text=note) for note in query.input.reminders]
        if opened.hand_over is not None:
            before.insert(0, TextPart(text=opened.hand_over))
        said = list(query.native.prompt.parts) if query.native.prompt is not None else []
        if not any(isinstance(part, TextPart | MediaPart | ReminderPart) for part in said):
            said = _carried_on(query, opened.cut_off)
        output = query.input.output
        if output is not None and output.schema is not None:
            said.append(TextPart(text=_wanted_output(output.schema)))
        return (*before, *said)

    async def _turn(
        self, opened: OpenedNative, parts: Sequence[Part], granted: dict[str, JsonObject]
    ) -> tuple[Literal["approval", "waiting", "loop", "denied"] | None, NativeResult]:
        """Send a prompt and record everything up to the result."""
        live, mirror = opened.live, self._mirror
        calls = NativeCalls(
            self._query,
            agent=self._agent,
            mirror=mirror,
            dispatcher=self._blocks.dispatcher,
            permissions=self._blocks.permissions,
            granted=granted,
        )
        try:
            async with asyncio.TaskGroup() as group:
                helpers = [group.create_task(self._save_regularly())]
                if (seconds := self._query.settings.limits.seconds) is not None:
                    helpers.append(group.create_task(self._end_in_time(live, seconds)))

                def take(question: NativeQuestion) -> None:
                    helpers.append(task := group.create_task(calls.answer(question)))
                    # An agent that stops waiting has given up the call.
                    question.answer.add_done_callback(
                        lambda answer: task.cancel() if answer.cancelled() else None
                    )

                live.link.begin(take)
                async with aclosing(self._messages(live, parts)) as stream:
                    async for batch in stream:
                        await mirror.take(batch)
                        if calls.must_interrupt or self._reaches_limit():
                            calls.must_interrupt = False
                            # In a task: the loop must go on reading, because the interrupt ends the
                            # turn with a result.
                            helpers.append(group.create_task(live.driver.session.interrupt()))
                # Saving never ends by itself, and the group waits for all of its tasks.
                for helper in helpers:
                    helper.cancel()
        finally:
            live.link.end()
        if mirror.result is None:
            raise RequestError(ErrorCode.STREAM_INTERRUPTED, "the agent ended without a result")
        return calls.rest, mirror.result

    def _messages(
        self, live: NativeLive, parts: Sequence[Part]
    ) -> AsyncGenerator[Sequence[NativeMessage], None]:
        query = self._query
        prompts = [message.id for message in query.fold.messages() if holds_prompt(message)]
        sent = prompt_id(query.query_id, prompts[-1]) if prompts else None
        return live.driver.turn(parts, within=query.input.timeout or None, prompt_id=sent)

    def _reaches_limit(self) -> bool:
        """Whether an answer begins that a limit does not allow; said once."""
        query = self._query
        if self._limit is not None or query.fold.open_turn is None or not query.progress.turns:
            return False
        limits = msgspec.structs.replace(query.settings.limits, turns=None)  # it counts them itself
        seconds = self._blocks.clock.now() - query.measurement.started_at
        self._limit = query.progress.limit_reached(limits, seconds=seconds)
        return self._limit is not None

    async def _end_in_time(self, live: NativeLive, seconds: float) -> None:
        left = seconds - (self._blocks.clock.now() - self._query.measurement.started_at)
        await self._blocks.clock.sleep(max(0.0, left))
        self._limit = f"seconds={seconds:g}"
        await live.driver.session.interrupt()

    async def _save_regularly(self) -> None:
        while True:
            await self._blocks.clock.sleep(self._blocks.runtime.checkpoint_seconds)
            await self._mirror.save()

    async def _following(self, outcome: QueryOutcome) -> tuple[Part, ...] | None:
        """Return what is to be said next in this query: what came meanwhile, or a correction."""
        query = self._query
        if steers := await query.promote_steers():
            self._mirror.prompted()
            return tuple(part for item in steers for part in item.message.parts)
        if outcome.stop_reason != "complete":
            return None
        output, wrong = query.input.output, await take_output(query)
        if output is None or wrong is None:
            return None
        self._wrong_answers += 1
        if self._wrong_answers >= output.attempts:
            raise wrong.error(output, provider=self._agent.provider)
        message = await query.say(wrong.correction)
        self._mirror.prompted()
        return message.parts


def _refuse_unsupported(query: Query) -> None:
    if query.input.require_tool is not None:
        raise ConfigError(
            ErrorCode.CONFIG_INVALID,
            "require_tool is not possible with an agent that chooses its own tools",
        )
    if query.input.compact is not None:  # begun with a model, and resumed with an agent
        told = "a native agent compacts its own history; resume the compaction with a model"
        raise ConfigError(ErrorCode.CONFIG_INVALID, told)


def _granted_calls(query: Query) -> dict[str, JsonObject]:
    """Return the calls that were approved while the query rested, by their digest."""
    granted: dict[str, JsonObject] = {}
    for record in query.fold.calls.values() if query.input.resumes is not None else ():
        if record.state == "approved":
            tool, asked = record.part.name, record.question
            # By what it does, as it was asked about: the agent makes the call again, under another
            # id, and a hook may change it again.
            arguments = record.part.arguments if asked is None else asked.arguments
            digest = arguments_hash(tool, arguments)
            granted[digest] = approved_arguments(tool, arguments, record.approved)
    return granted


def _carried_on(query: Query, cut_off: Sequence[Message]) -> list[Part]:
    """Return what goes on with a query: its prompt, if the agent lacks it, and what is known."""
    said: list[Part] = [
        part
        for message in cut_off
        if holds_prompt(message)
        for part in message.parts
        if isinstance(part, TextPart | MediaPart | ReminderPart)
    ]
    carry_on = _carry_on(query)
    rests = carry_on != _GO_ON
    so_far = so_far_text(cut_off)
    if not cut_off and not rests:  # the agent has its own words, but perhaps not all outcomes
        so_far = calls_text(query.native.before[cut_off_at(query) :])
    if so_far is not None:
        said.append(TextPart(text=so_far))
    if rests or not cut_off:
        said.append(TextPart(text=carry_on))
    return said


def _carry_on(query: Query) -> str:
    """Say what became of the calls that a query rested on; the agent makes them again."""
    told: list[str] = []
    for record in query.fold.calls.values():
        call = f"{record.part.name}({canonical_json(record.part.arguments).decode()})"
        if record.state == "approved":
            told.append(f"The call {call} is approved now: make exactly this call again.")
        elif record.state == "denied":
            told.append(f"The call {call} was not approved: {record.reason or 'do without it'}.")
    return "\n".join([*told, _GO_ON])


def _wanted_output(output: OutputSchema) -> str:
    schema = canonical_json(output.schema).decode()
    return f"Answer with JSON only, without any other text, that fits this JSON Schema: {schema}"


def _judge(query: Query, result: NativeResult, *, provider: str) -> QueryOutcome:
    """Say how a turn ended; an error is one whatever its subtype.

    Raises:
        AgentError: what the agent failed with.

    """
    if limit := _LIMITS.get(result.subtype):
        allowed = getattr(query.settings.limits, limit)
        return QueryOutcome(stop_reason="limit", stop_detail=f"{limit}={allowed}")
    if result.stop_reason == "refusal":
        return QueryOutcome(stop_reason="refusal")
    if not result.is_error:
        return QueryOutcome(stop_reason=_STOP_REASONS.get(result.stop_reason or "", "complete"))
    raise _error_of(result, provider)


def _error_of(result: NativeResult, provider: str) -> AgentError:
    text = "; ".join(result.errors) or result.text or result.subtype
    if result.terminal_reason is not None and result.terminal_reason.startswith("aborted"):
        return RequestError(ErrorCode.ABORTED, "the agent was interrupted", provider=provider)
    # A known text says more than a status, which many errors share.
    code = code_of_known_text(text)
    if code is None and result.status is not None:
        code = code_of_status(result.status)
    word = result.error or ""
    code = code or _AGENT_CODES.get(word) or TYPED_CODES.get(word) or ErrorCode.SERVER_ERROR
    return error_with_code(
        code, f"the agent failed: {text}", status=result.status, provider=provider
    )
