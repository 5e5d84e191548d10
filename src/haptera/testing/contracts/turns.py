"""The contract of turn runners: one request and its answer, recorded in order."""

import asyncio
from collections.abc import Callable

from haptera.kernel.turns.turn_runner import TurnRunnerInterface
from haptera.model.errors import ErrorCode, ProviderError
from haptera.model.log.turns import PartEnded, TurnEnded, TurnStarted
from haptera.model.messages import AssistantMessage
from haptera.model.usage import Usage
from haptera.testing.contracts.samples import CheckStage, run_contract
from haptera.testing.promises import Report, require, require_same
from haptera.testing.scripted_provider import Gate, calls, says


async def check_an_answer_becomes_a_message(turns: TurnRunnerInterface) -> None:
    """Started, its parts, ended; and the message is in the conversation."""
    stage = CheckStage([says("Hel", "lo")], turn_runner=turns)
    outcome = await stage.held.run("hi")
    require_same(outcome.stop_reason, "complete", "the query is complete")
    kinds = [kind for kind in stage.seen.kinds if kind.startswith(("turn.", "part.", "text."))]
    grammar = ["turn.started", "part.started", "text.delta", "text.delta", "part.ended"]
    require_same(kinds, [*grammar, "turn.ended"], "the order of events")
    tip = stage.held.conversation.tip
    require(isinstance(tip, AssistantMessage) and tip.text == "Hello", "the answer is pushed")


async def check_the_start_is_recorded_before_the_client_is_asked(
    turns: TurnRunnerInterface,
) -> None:
    """Durable before effect: a request that may cost money is announced first."""
    seen_at_request: list[int] = []

    async def note() -> None:
        seen_at_request.append(stage.seen.counts["turn.started"])

    stage = CheckStage([[note, *says("ok")]], turn_runner=turns)
    await stage.held.run("hi")
    require_same(seen_at_request, [1], "turn.started comes before the request")


async def check_usage_is_recorded_once(turns: TurnRunnerInterface) -> None:
    """The end of a turn says what it used, and the query adds it up."""
    used = Usage(input=7, output=3)
    stage = CheckStage([says("ok", usage=used)], turn_runner=turns)
    await stage.held.run("hi")
    ended = [event for event in stage.seen.events if isinstance(event, TurnEnded)]
    require_same([event.usage for event in ended], [used], "the usage of the turn")
    require_same(stage.seen.ends[0].usage, used, "the usage of the query")
    require_same(stage.seen.ends[0].turns, 1, "one turn was counted")


async def check_a_turn_asks_once_and_runs_no_tools(turns: TurnRunnerInterface) -> None:
    """Each request is one turn; what it calls is for others to run."""
    ran: list[str] = []

    def look() -> str:
        """Look."""
        ran.append(stage.seen.kinds[-2])
        return "seen"

    stage = CheckStage([calls(("look", {})), says("ok")], tools=[look], turn_runner=turns)
    await stage.held.run("hi")
    require_same(len(stage.provider.requests), 2, "one request for each turn")
    started = sum(isinstance(event, TurnStarted) for event in stage.seen.events)
    require_same(started, 2, "one start for each turn")
    require_same(len(ran), 1, "the tool ran once")


async def check_the_request_has_the_conversation_and_the_extras(
    turns: TurnRunnerInterface,
) -> None:
    """What the fold would send, the model without its provider, and reminders."""
    stage = CheckStage([says("one"), says("two")], turn_runner=turns)
    await stage.held.run("first")
    await stage.held.run("second", reminders=("note",))
    request = stage.provider.requests[1]
    require_same(request.model, "any", "the name of the model without its provider")
    require_same(len(request.messages), 3, "the whole conversation")
    require("note" in stage.sent(1), "the reminder is sent")


async def check_an_answer_without_an_end_is_an_error(turns: TurnRunnerInterface) -> None:
    """It never looks complete, and what came is kept."""
    stage = CheckStage([says("half")[:-1]], turn_runner=turns)
    outcome = await stage.held.run("hi")
    code = outcome.error.code if outcome.error else None
    require_same(code, ErrorCode.STREAM_INTERRUPTED, "an answer that breaks off is an error")
    tip = stage.held.conversation.tip
    require(isinstance(tip, AssistantMessage) and tip.text == "half", "what came is kept")


async def check_an_empty_answer_adds_no_message(turns: TurnRunnerInterface) -> None:
    """A turn that holds nothing leaves no message."""
    empty = [says()[0], says()[-1]]
    stage = CheckStage([empty], turn_runner=turns)
    await stage.held.run("hi")
    require(not isinstance(stage.held.conversation.tip, AssistantMessage), "no message is added")


async def check_what_the_client_raises_is_raised(turns: TurnRunnerInterface) -> None:
    """As it is, after what came before it was recorded."""
    failure = ProviderError(ErrorCode.BAD_REQUEST, "no")
    stage = CheckStage([[*says("half")[:3], failure]], turn_runner=turns)
    outcome = await stage.held.run("hi")
    code = outcome.error.code if outcome.error else None
    require_same(code, ErrorCode.BAD_REQUEST, "the client's error")
    require("text.delta" in stage.seen.kinds, "what came before is shown")


async def check_the_stream_is_closed_however_it_ends(turns: TurnRunnerInterface) -> None:
    """Also when the query is aborted in the middle; what was streamed is kept."""
    gate = Gate()
    stage = CheckStage([[*says("half")[:3], gate]], turn_runner=turns)
    running = asyncio.ensure_future(stage.held.run("hi"))
    await gate.reached.wait()
    stage.held.abort()
    outcome = await running
    require_same(outcome.stop_reason, "aborted", "the query was aborted")
    require_same(stage.provider.open_streams, 0, "the stream is closed")
    ended = [event for event in stage.seen.events if isinstance(event, PartEnded)]
    require_same([getattr(event.part, "text", "") for event in ended], ["half"], "what was kept")


async def turn_runner_contract(make: Callable[[], TurnRunnerInterface]) -> Report:
    """Check a turn runner; `make` returns a new one."""
    return await run_contract(__name__, make)
