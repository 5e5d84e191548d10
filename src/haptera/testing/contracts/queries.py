"""The contract of query runners: a prompt, answered to rest through turns and tools."""

import asyncio
from collections.abc import Callable
from typing import TypeAlias

import msgspec

from haptera.kernel.agent_blocks import AgentBlocks
from haptera.kernel.query.query import Runner
from haptera.model.events import QuerySummary
from haptera.model.ids import new_input_id, new_message_id
from haptera.model.messages import UserMessage
from haptera.model.operations.operation import new_command_id
from haptera.model.operations.session import SendPrompt
from haptera.model.parts import TextPart, ToolResultPart
from haptera.model.results import StopReason
from haptera.model.settings import Limits
from haptera.model.stream_parts import FinishKind
from haptera.testing.contracts.samples import SETTINGS, CheckStage, run_contract
from haptera.testing.promises import Report, require, require_same
from haptera.testing.scripted_provider import Gate, Step, calls, says

MakeRunner: TypeAlias = Callable[[AgentBlocks], Runner]

_GARBLED = calls()
"""An answer that promises tool calls and makes none."""


def look(place: str) -> str:
    """Look at a place."""
    return f"seen {place}"


async def check_a_prompt_is_recorded_before_the_model_is_asked(make: MakeRunner) -> None:
    """Durable before effect."""
    before: list[str] = []

    async def note() -> None:
        before.extend(stage.seen.kinds)

    stage = CheckStage([[note, *says("ok")]], make_runner=make)
    outcome = await stage.held.run("hi")
    require_same(outcome.stop_reason, "complete", "it is answered")
    require("query.started" in before, "the prompt is recorded first")
    require_same(stage.seen.counts["query.ended"], 1, "one terminal event")


async def check_tool_results_start_the_next_turn(make: MakeRunner) -> None:
    """Each call has its result, in one message, under its own id."""
    steps = [calls(("look", {"place": "a"}), ("look", {"place": "b"}), ids=("1", "2")), says("ok")]
    stage = CheckStage(steps, tools=[look], make_runner=make)
    await stage.held.run("hi")
    results = stage.provider.requests[1].messages[-1].parts
    answered = [(part.call_id, part.name) for part in results if isinstance(part, ToolResultPart)]
    require_same(answered, [("1", "look"), ("2", "look")], "results answer the calls by their ids")
    require("seen b" in stage.sent(1), "the next request has the results")


async def check_a_call_that_cannot_run_is_answered(make: MakeRunner) -> None:
    """An unknown tool and wrong arguments are told to the model, which goes on."""
    steps = [calls(("fly", {}), ("look", {"place": 3}), ids=("1", "2")), says("sorry")]
    stage = CheckStage(steps, tools=[look], make_runner=make)
    outcome = await stage.held.run("hi")
    require_same(outcome.stop_reason, "complete", "the model goes on")
    require_same(stage.seen.counts["tool.ended"], 2, "each call has an end")
    require_same(stage.seen.counts["tool.failed"], 1, "an unknown tool is the model's mistake")


async def check_reminders_are_sent_with_the_first_request_only(make: MakeRunner) -> None:
    """They are never stored."""
    stage = CheckStage(
        [calls(("look", {"place": "a"})), says("ok")], tools=[look], make_runner=make
    )
    await stage.held.run("hi", reminders=("a note",))
    require("a note" in stage.sent(0), "the first request has it")
    require("a note" not in stage.sent(1), "no other request has it")
    stored = msgspec.json.encode(stage.held.conversation.messages).decode()
    require("a note" not in stored, "the conversation does not have it")


async def check_a_summary_comes_before_every_turn(make: MakeRunner) -> None:
    """A consumer knows what is about to be sent."""
    stage = CheckStage(
        [calls(("look", {"place": "a"})), says("ok")], tools=[look], make_runner=make
    )
    await stage.held.run("hi")
    wanted = [
        event.kind
        for event in stage.seen.events
        if event.kind == "turn.started" or isinstance(event, QuerySummary)
    ]
    require_same(
        wanted, ["instrumentation.summary", "turn.started"] * 2, "a summary before every turn"
    )


async def check_every_finish_has_its_stop_reason(make: MakeRunner) -> None:
    """A pause goes on; everything else rests for a reason that the caller can tell."""
    reasons: dict[FinishKind, StopReason] = {
        "stop": "complete",
        "length": "max_tokens",
        "context_window": "max_tokens",
        "refusal": "refusal",
        "other": "complete",
    }
    for finish, reason in reasons.items():
        stage = CheckStage([says("ok", finish=finish)], make_runner=make)
        require_same((await stage.held.run("hi")).stop_reason, reason, f"finish {finish}")
    stage = CheckStage([says("a", finish="pause"), says("b")], make_runner=make)
    require_same((await stage.held.run("hi")).stop_reason, "complete", "a pause goes on")
    require_same(len(stage.provider.requests), 2, "with one more request")


async def check_an_answer_that_names_no_tool_is_tried_again(make: MakeRunner) -> None:
    """Twice; then it is an error, and nothing of it is kept."""
    stage = CheckStage([_GARBLED, says("ok")], make_runner=make)
    require_same((await stage.held.run("hi")).stop_reason, "complete", "the model tries again")
    stage = CheckStage([_GARBLED] * 3, make_runner=make)
    outcome = await stage.held.run("hi")
    require_same(outcome.stop_reason, "error", "after three times it is an error")
    require_same(len(stage.provider.requests), 3, "three requests were made")
    require_same(len(stage.held.conversation), 1, "only the prompt is left")


async def check_a_limit_of_turns_ends_the_query(make: MakeRunner) -> None:
    """The last turn has no tools, and the outcome names the limit."""
    limited = msgspec.structs.replace(SETTINGS, limits=Limits(turns=2))
    steps = [calls(("look", {"place": "a"})), says("that is all")]
    stage = CheckStage(steps, tools=[look], make_runner=make, settings=limited)
    outcome = await stage.held.run("hi")
    require_same((outcome.stop_reason, outcome.stop_detail), ("limit", "turns=2"), "the limit")
    require_same(stage.provider.requests[1].tools, (), "the last turn has no tools")


async def check_settings_are_read_for_every_turn(make: MakeRunner) -> None:
    """What was changed while a tool ran counts from the next request on."""

    def change() -> str:
        """Change the model."""
        stage.held.settings = msgspec.structs.replace(SETTINGS, model="scripted/other")
        return "done"

    stage = CheckStage([calls(("change", {})), says("ok")], tools=[change], make_runner=make)
    await stage.held.run("hi")
    models = [request.model for request in stage.provider.requests]
    require_same(models, ["any", "other"], "the model of each request")


async def check_a_prompt_can_join_a_running_query(make: MakeRunner) -> None:
    """It is in the next request."""
    gate = Gate()
    steps: list[Step] = [[gate, *calls(("look", {"place": "a"}))], says("ok")]
    stage = CheckStage(steps, tools=[look], make_runner=make)
    running = asyncio.ensure_future(stage.held.run("hi"))
    await gate.reached.wait()
    message = UserMessage(id=new_message_id(), parts=(TextPart(text="shorter please"),))
    stage.held.channel.submit(
        SendPrompt(id=new_command_id(), input_id=new_input_id(), message=message, delivery="steer")
    )
    gate.open()
    require_same((await running).stop_reason, "complete", "the query goes on")
    require("shorter please" in stage.sent(1), "the next request has it")


async def check_an_abort_answers_every_call(make: MakeRunner) -> None:
    """A call that ran is told to be cancelled, and the next query can be sent."""
    gate = asyncio.Event()

    async def wait() -> str:
        """Wait for ever."""
        gate.set()
        await asyncio.Event().wait()
        return "never"

    stage = CheckStage(
        [calls(("wait", {}), ids=("1",)), says("ok")], tools=[wait], make_runner=make
    )
    running = asyncio.ensure_future(stage.held.run("hi"))
    await gate.wait()
    stage.held.abort()
    require_same((await running).stop_reason, "aborted", "the query was aborted")
    require_same((await stage.held.run("go on")).stop_reason, "complete", "the next one works")
    results = [
        part.call_id
        for message in stage.provider.requests[1].messages
        for part in message.parts
        if isinstance(part, ToolResultPart)
    ]
    require_same(results, ["1"], "the call that was cancelled is answered")


async def check_two_queries_share_the_wiring(make: MakeRunner) -> None:
    """Handlers are subscribed once and see both; nothing of the first is left in the second."""
    stage = CheckStage([says("one"), says("two")], make_runner=make)
    await stage.held.run("first")
    await stage.held.run("second")
    require_same(stage.seen.counts["query.ended"], 2, "a handler sees both queries")
    require_same([event.turns for event in stage.seen.ends], [1, 1], "turns are counted anew")
    stage.held.channel.publish([])  # raises if a runner had closed it


async def query_runner_contract(make: MakeRunner) -> Report:
    """Check a query runner; `make` returns one that is made of these blocks."""
    return await run_contract(__name__, lambda: make)
