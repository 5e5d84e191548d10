"""NativeMirror: what a native agent says in one query, recorded as turns of ours.

The log gets the same entries as with a model that we ask ourselves, so the session is shown,
searched, exported and handed over like any other. It is never sent back to the agent.
"""

import asyncio
from collections.abc import Sequence
from decimal import Decimal

from haptera.kernel.blocks.stream_processor.processor import AnswerAssembler
from haptera.kernel.native.native_opening import system_digest
from haptera.kernel.native.native_reports import report_events, started_events, subagent_progress
from haptera.kernel.query.progress import TurnMeasurement
from haptera.kernel.query.query import Query, Turn
from haptera.model.canonical import arguments_hash
from haptera.model.events import (
    Busy,
    Event,
    SubagentChanged,
)
from haptera.model.ids import CallId, new_message_id, new_turn_id
from haptera.model.json_types import Json, JsonObject
from haptera.model.log.native import UsageReported
from haptera.model.log.sessions import SessionChanged
from haptera.model.log.tools import ToolEnded, ToolStarted
from haptera.model.log.turns import TurnDiscarded, TurnEnded, TurnStarted
from haptera.model.native_messages import (
    NativeAnswer,
    NativeBoundary,
    NativeMessage,
    NativeNotice,
    NativeReset,
    NativeResult,
    NativeRetry,
    NativeStarted,
    NativeSubagent,
    NativeToolResult,
)
from haptera.model.requests import ModelRequest
from haptera.model.settings import RuntimeSettings
from haptera.model.stream_parts import PartOpened
from haptera.model.usage import Usage
from haptera.ports.model_client import ModelCatalogue
from haptera.ports.telemetry import TurnBegun
from haptera.system.abort import query_stopped

_CALL_SECONDS = 10.0
"""How long a call waits for the answer that makes it; the agent has printed that before."""


class NativeMirror:
    """Records what one query gets from a native agent, in the order in which it comes."""

    def __init__(
        self,
        query: Query,
        *,
        provider: str,
        model: str,
        catalogue: ModelCatalogue,
        runtime: RuntimeSettings,
    ) -> None:
        self._query = query
        self._provider = provider
        self._model = model
        self._catalogue = catalogue
        self._runtime = runtime
        self._one_records = asyncio.Lock()
        self._out: list[Event] = []
        self._open: NativeAnswer | None = None
        """The first piece of the answer that is being written."""
        self._is_prompted = False
        """Whether the agent was sent something that the log does not say it has."""
        self._changed = asyncio.Event()
        self._base = query.fold.native.total_cost
        """The running total before this query."""
        self._joined: set[str] = set()
        self.result: NativeResult | None = None
        self._facts: JsonObject = {}
        self._usage = Usage()
        self._cost: Decimal | None = Decimal(0)

    def prompted(self) -> None:
        """Note that the agent is sent what was said last; it is recorded with its first answer."""
        self._is_prompted = True
        self.result = None

    async def take(self, batch: Sequence[NativeMessage]) -> None:
        """Record messages."""
        # Regular saves, and calls that end an answer, run beside this and change the same answer.
        async with self._one_records:
            for message in batch:
                await self._take(message)
            await self._flush()

    async def save(self) -> None:
        """Record what streamed since the last time."""
        async with self._one_records:
            turn = self._query.turn
            if turn is not None and self._open is not None and turn.answer.unsaved_bytes:
                turn.answer.checkpoint(self._out)
                await self._flush()

    async def until_known(self, call_id: str) -> bool:
        """Wait until a call is in the log, with the answer that makes it; False if it never is."""
        try:
            async with asyncio.timeout(_CALL_SECONDS):
                # The agent may ask about a call before the answer that makes it was read.
                while call_id not in self._query.fold.calls:
                    self._changed.clear()
                    if self._open is not None and self._open.whole:
                        await self._end_whole()
                    else:
                        await self._changed.wait()
        except TimeoutError:
            return False
        return True

    async def start_call(self, call_id: str, tool: str, arguments: Json) -> None:
        """Record that a tool of the agent's is about to run."""
        record = self._query.fold.calls.get(CallId(call_id))
        # A call may be announced and asked about: its start is recorded once.
        if record is not None and record.ended is None and record.state != "started":
            self._query.progress.tool_calls += 1
            started = ToolStarted(
                **self._query.turn_stamp(),
                call_id=CallId(call_id),
                tool=tool,
                arguments_hash=arguments_hash(tool, arguments),
            )
            await self._query.recorder.record([started])

    async def _flush(self) -> None:
        out, self._out = self._out, []
        if out:
            await self._query.recorder.record(out)
        self._changed.set()
        if self._query.hooks is not None:
            await self._query.hooks.saw(out)

    async def _take(self, message: NativeMessage) -> None:
        if self._query.abort.signal.aborted:
            raise query_stopped()  # its answer was closed by then
        match message:
            case NativeAnswer():
                await self._take_answer(message)
            case NativeToolResult():
                # The call has to be in the fold before its result looks for it there.
                await self._flush()
                self._take_tool_result(message)
            case NativeStarted(session_id=session_id):
                self._take_name(session_id)
                if message.facts != self._facts:  # it says them before each turn
                    self._facts = message.facts
                    self._out += started_events(message)
                if self._is_prompted:
                    self._note_through()  # it says so when it has taken the prompt
                await self._flush()
            case NativeResult():
                await self._take_result(message)
            case _:
                self._take_report(message)

    def _take_report(
        self, message: NativeBoundary | NativeRetry | NativeReset | NativeSubagent | NativeNotice
    ) -> None:
        """Record what an agent says of itself."""
        match message:
            case NativeReset():
                self._base = Decimal(0)
            case NativeNotice(name="turn_left", facts=facts):
                # What a turn cost whose consumer had left is no part of this query.
                self._base = Decimal(str(facts.get("total_cost_usd") or 0))
            case _:
                self._out += report_events(self._query, message, provider=self._provider)
        if isinstance(message, NativeSubagent):
            joined = self._joined
            (joined.discard if message.change == "left" else joined.add)(message.agent)

    def _change(self, changes: JsonObject) -> None:
        self._out.append(SessionChanged(**self._query.stamp(), changes=changes))

    def _take_name(self, session_id: str) -> None:
        """Record the native session, and once with which system prompt it began."""
        known = self._query.fold.native
        changes: JsonObject = {}
        if session_id and session_id != known.session_id:
            changes["native_session_id"] = session_id
        if session_id and (changes or known.system is None):
            changes["native_system"] = system_digest(self._query.settings)
        if changes:
            self._change(changes)

    def _note_through(self, result: NativeResult | None = None) -> None:
        """Record that the agent has the conversation up to here, and where its transcript is."""
        self._is_prompted = False
        tip = self._query.fold.conversation.tip
        if tip is None:
            return
        changes: JsonObject = {"native_through": tip.id}
        if result is not None and result.entry is not None:
            changes |= {"native_entry": result.entry, "native_entries": result.entries}
        self._change(changes)

    # Answers.

    async def _take_answer(self, message: NativeAnswer) -> None:
        if message.parent is not None:
            self._out += subagent_progress(message)
            return
        turn = self._query.turn
        if turn is None or self._open is None or self._open.message_id != message.message_id:
            if not any(isinstance(part, PartOpened) for part in message.parts) and message.whole:
                return  # the end of an answer that was ended here already
            await self._discard()
            turn = self._begin()
        self._open = message
        if turn.measurement.first_at is None:
            turn.measurement.see(message.parts)
        turn.answer.feed(message.parts, self._out)
        # What was said until then is in the log before the error ends the query.
        if turn.answer.failure is not None:
            await self._flush()
            raise turn.answer.failure
        if turn.answer.finished is not None:
            self._end(turn)

    def _begin(self) -> Turn:
        query, turn_id = self._query, new_turn_id()
        stamp = query.stamp.of_turn(turn_id)
        answer = AnswerAssembler(
            stamp=stamp,
            provider=self._provider,
            model=self._model,
            limits=query.settings.limits,
            checkpoint_bytes=self._runtime.checkpoint_bytes,
        )
        begun = TurnBegun(
            session_id=query.session.session_id,
            query_id=query.query_id,
            turn_id=turn_id,
            provider=self._provider,
            request=ModelRequest(model=self._model, messages=()),  # the agent's own is not seen
            attempt=1,
        )
        query.turn = turn = Turn(
            provider=self._provider,
            model=self._model,
            stamp=stamp,
            message_id=new_message_id(),
            answer=answer,
            measurement=TurnMeasurement(query.measurement, begun, answer),
        )
        if self._is_prompted:
            self._note_through()
        self._out.append(
            TurnStarted(
                **stamp(),
                message_id=turn.message_id,
                provider=self._provider,
                model=self._model,
            )
        )
        query.session.set_status(Busy())
        return turn

    async def _discard(self) -> None:
        """Take back an answer that the agent began again."""
        turn, self._open = self._query.turn, None
        # Before the fold is asked: the start of that turn may not be in it yet.
        await self._flush()
        if turn is not None and self._query.fold.open_turn is not None:
            self._out.append(
                TurnDiscarded(
                    **turn.stamp(),
                    message_id=turn.message_id,
                    reason="the agent began its answer again",
                )
            )

    async def _end_whole(self) -> None:
        """End an answer of whole parts: one of its calls is about to run, so it is complete."""
        async with self._one_records:
            turn = self._query.turn
            if turn is not None and self._open is not None and self._open.whole:
                self._end(turn)
                await self._flush()

    def _end(self, turn: Turn) -> None:
        self._open = None
        finished, query = turn.answer.finished, self._query
        usage = finished.usage if finished is not None else Usage()
        cost = self._catalogue.cost(self._provider, self._model, usage)
        query.progress.turns += 1
        query.progress.finish_reason = finished.reason if finished is not None else "tool_use"
        # Until the result comes, which also counts requests that the agent does not show.
        query.progress.add_usage(usage, cost)
        turn.measurement.ended = ended = TurnEnded(
            **turn.stamp(),
            message_id=turn.message_id,
            # Ended by one of its calls, before the agent has said why it stopped.
            finish=finished.kind if finished is not None else "tool_calls",
            finish_reason=query.progress.finish_reason,
            usage=usage,
            cost=cost,
            context_window=self._catalogue.context_window(self._provider, self._model),
        )
        self._out += [ended, *turn.measurement.end()]

    def _take_tool_result(self, message: NativeToolResult) -> None:
        """Record the end of a call, unless it is one of our own tools, which ended already."""
        call = self._query.fold.calls.get(CallId(message.call_id))
        if message.parent is not None or call is None or call.ended is not None:
            return
        if any(asked.call_id == call.part.call_id for asked in self._query.fold.approvals.values()):
            return  # the query rests on it: the call has no end yet
        stamp, tool = self._query.turn_stamp, call.part.name
        if call.state not in {"started", "denied"} and message.outcome != "denied":
            # It ran without a question, as what only reads does.
            self._query.progress.tool_calls += 1
            digest = arguments_hash(tool, call.part.arguments)
            self._out.append(
                ToolStarted(**stamp(), call_id=call.part.call_id, tool=tool, arguments_hash=digest)
            )
        self._out.append(
            ToolEnded(
                **stamp(),
                call_id=call.part.call_id,
                tool=tool,
                outcome="denied" if call.state == "denied" else message.outcome,
                content=message.content,
            )
        )

    # What the agent says of itself.

    async def _take_result(self, message: NativeResult) -> None:
        self.result = message
        for agent in sorted(self._joined):
            self._out.append(SubagentChanged(change="left", agent=agent))
        self._joined.clear()
        self._count(message)
        self._out.append(
            UsageReported(
                **self._query.stamp(),
                usage=message.usage,
                model_usage=message.model_usage,
                total_cost_usd=message.total_cost_usd,
            )
        )
        await self._flush()
        # Also one that failed before any answer: the agent has the prompt all the same.
        if self._is_prompted or self._query.fold.open_turn is None:
            self._note_through(message)

    def _count(self, message: NativeResult) -> None:
        """Say what the query used: the agent knows of requests that it does not show."""
        query, total = self._query, message.total_cost_usd
        if message.usage is not None:
            self._usage += message.usage
            query.progress.usage = self._usage
        if total is None or not message.cost_is_known:
            self._cost = None
        elif self._cost is not None:
            # A total below the last one means that the agent has begun to count again.
            self._cost += total - self._base if total >= self._base else total
        if total is not None:
            self._base = total
        query.progress.cost = self._cost
