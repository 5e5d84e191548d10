"""What can happen to a session in a race, at moments drawn by chance."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Literal

from haptera import AgentSession
from haptera.agent.remote import AgentRemote
from haptera.model.errors import AgentError, ErrorCode
from tests.kernel.session.race_laws import Answer, Delivery, untrue_offers
from tests.kernel.session.race_remote import COMPACTION_REFUSALS, REMOTE_HAPPENINGS
from tests.kernel.session.race_troubles import TROUBLES
from tests.kernel.session.race_world import KNOWN_STEPS, UNKNOWN, World

_NO_APPROVAL = "apr_of_yesterday"


async def happen(world: World, happening: str, related: Sequence[str]) -> None:
    """Let one thing happen at a drawn moment, and one after the other what follows from it.

    What something may be refused with is no failure.
    """
    await world.wait(world.moment())
    world.note(happening)
    await _HAPPENINGS[happening](world)
    while related and world.by_chance(0.4):
        await world.wait(world.chance.choice((0, 0.1, 0.5)))
        following = world.chance.choice(related)
        world.note(following)
        await _HAPPENINGS[following](world)


# What a caller does to the session that it holds.


async def _abort(world: World) -> None:
    if world.by_chance(0.3):
        await (await world.away.remote(world.name)).abort("chance")
    else:
        world.session.abort("chance")


async def _close(world: World) -> None:
    await world.close(world.session, force=world.by_chance(0.5), abort=world.by_chance(0.3))


async def _steer(world: World) -> None:
    text = world.new_prompt("steer")
    delivery = world.chance.choice(("steer", "steer", "queue", "interrupt"))
    try:
        await world.session.send(text, delivery=delivery)  # type: ignore[arg-type]
    except AgentError as error:
        if world.refused(error) not in UNKNOWN:
            world.story.prompts[text] = "refused"
    else:
        world.keep(text)


async def _prompt(world: World) -> None:
    """Ask for an answer, however busy the session is; the caller may give up."""
    text = world.new_prompt("local")
    delivery = world.chance.choice(("queue", "steer", "interrupt", "reject"))
    asking = asyncio.ensure_future(world.session.chat(text, delivery=delivery))  # type: ignore[arg-type]
    seconds = world.chance.choice((0, 0.2, 2, 30))
    await asyncio.wait({asking}, timeout=seconds)
    asking.cancel()
    await asyncio.wait({asking})
    if not asking.cancelled() and asking.exception() is None:
        world.keep(text)


async def _drain(world: World) -> None:
    """Take out every prompt that waits; none of them is answered any more."""
    try:
        messages = await world.session.drain_queue()
    except AgentError as error:
        if world.refused(error) in UNKNOWN:  # those that wait were taken out, or were not
            prompts = world.story.prompts
            prompts.update({text: "logged" for text, each in prompts.items() if each == "kept"})
    else:
        world.story.prompts.update({message.text: "drained" for message in messages})


async def _rewind(world: World) -> None:
    await world.until_idle()
    session = world.session
    # The summary that a conversation begins with after a compaction is no message of the log.
    messages = [item for item in session.messages if not item.id.endswith("_summary")]
    if messages:
        target = world.chance.choice(messages[-3:] if world.by_chance(0.7) else messages).id
        # What a model is told of calls without an end, in the place of their results, is not in the
        # log, either.
        codes = (ErrorCode.MESSAGE_NOT_FOUND,) if target.endswith("_results") else ()
        await _move(world, session, lambda: session.rewind(to=target), *codes)


async def _undo(world: World) -> None:
    await world.until_idle()
    session = world.session
    await _move(world, session, session.undo_rewind, ErrorCode.NOT_FOUND)


async def _move(
    world: World, session: AgentSession, move: Callable[[], Awaitable[object]], *codes: ErrorCode
) -> None:
    """Go somewhere else in the conversation, unless a query runs in it."""
    try:
        await move()
    except AgentError as error:
        world.refused(error, ErrorCode.BUSY, *codes)
    else:
        world.story.moves += 1
        world.story.found += untrue_offers(session.messages, world.story.runs)


async def _fork(world: World) -> None:
    """Go on in a branch: it knows of every call that was started before."""
    known, messages = frozenset(world.story.runs), world.session.messages
    after = world.chance.choice(messages).id if messages and world.by_chance(0.7) else None
    outside = KNOWN_STEPS.set(known)
    try:
        branch = await world.session.fork(after=after)
        async with branch:
            world.branches.append(str(branch.session_id))
            world.story.found += untrue_offers(branch.messages, known)
            if world.by_chance(0.5):
                await branch.chat("and here?")
    except AgentError as error:
        world.refused(error, ErrorCode.MESSAGE_NOT_FOUND, ErrorCode.BAD_REQUEST)
    finally:
        KNOWN_STEPS.reset(outside)


async def _resume(world: World) -> None:
    await world.until_idle()
    with suppress(AgentError):
        await world.session.resume()


async def _configure(world: World) -> None:
    """Change a setting, whatever runs."""
    temperature = world.new_temperature()
    try:
        await world.session.configure(temperature=temperature)
    except AgentError as error:
        world.refused(error)
    else:
        world.story.configured.append(temperature)


async def _compact(world: World) -> None:
    await world.until_idle()
    try:
        made = await world.session.compact()
    except AgentError as error:
        world.refused(error, *COMPACTION_REFUSALS)
    else:
        world.story.compactions.append(made.id)


async def _reopen(world: World) -> None:
    """Close the session and open it again, while others may wait for it.

    A setting that is named for the opening holds, and those that were configured stay.
    """
    async with world.one_reopens:  # two would wait for each other to close
        await world.close(world.session, force=world.by_chance(0.5))
        named = {"seed": len(world.story.happenings)} if world.by_chance(0.5) else {}
        session = world.home.session(world.name, busy="wait", **named)  # type: ignore[arg-type]
        await session.open()
        if named and session.settings.seed != named["seed"]:
            world.story.found.append(f"opened with {named}, and it has {session.settings.seed}")
        world.session = session
    if world.by_chance(0.5):
        await _resume(world)


# Answers to approvals.


async def answer(
    world: World,
    session: AgentSession,
    approval_id: str,
    decision: Literal["approved", "denied"],
) -> None:
    """Answer an approval, in time or too late, and note how that was received."""
    given = Answer(f"answer {len(world.story.answers)}", approval_id, decision)
    world.story.answers.append(given)
    try:
        if decision == "approved":
            await session.approve(approval_id, by=given.by)
        else:
            await session.deny(approval_id, "no", by=given.by)
    except AgentError as error:
        code = world.refused(error, ErrorCode.NOT_FOUND)
        given.outcome = "open" if code in UNKNOWN else code
    else:
        given.outcome = "settled"


async def _question(world: World) -> str:
    """Return an approval that waits; most of the time wait for one, and then a moment more."""
    if world.by_chance(0.8):
        await world.until(lambda: _waiting_questions(world), within=world.chance.uniform(0, 2))
        await world.turns(world.chance.choice((0, 0, 1, 3, 10)))
    questions = _waiting_questions(world)
    return world.chance.choice(questions) if questions else _NO_APPROVAL


def _waiting_questions(world: World) -> list[str]:
    return [request.id for request in world.session.unfinished.approvals]


async def _approve(world: World) -> None:
    await answer(world, world.session, await _question(world), "approved")


async def _deny(world: World) -> None:
    await answer(world, world.session, await _question(world), "denied")


async def _two_answers(world: World) -> None:
    """Give two or three answers to one question at once; one caller may give up."""
    question = await _question(world)
    decisions = world.chance.choices(("approved", "denied"), k=world.chance.choice((2, 2, 3)))
    answers = [
        asyncio.ensure_future(answer(world, world.session, question, decision))  # type: ignore[arg-type]
        for decision in decisions
    ]
    if world.by_chance(0.3):
        await world.turns(world.chance.randint(0, 6))
        answers[0].cancel()
    await asyncio.wait(answers)
    for given in answers:
        if not given.cancelled():
            given.result()


async def _remote_approve(world: World) -> None:
    await _remote_answer(world, "approved")


async def _remote_deny(world: World) -> None:
    await _remote_answer(world, "denied")


async def _remote_answer(world: World, decision: Literal["approved", "denied"]) -> None:
    question = await _question(world)
    remote = await world.away.remote(world.name)
    if decision == "approved":
        await remote.approve(question)
    else:
        await remote.deny(question, "not from here either")


# Answers of calls that wait.


async def deliver(world: World, to: AgentSession | AgentRemote, call: str, text: str) -> None:
    """Deliver the answer of a call, in time or too late, and note how that was received."""
    given = Delivery(text)
    world.story.deliveries.append(given)
    try:
        await to.deliver(call, text)
    except AgentError as error:
        codes = (ErrorCode.NOT_FOUND, ErrorCode.CONFLICT)
        given.outcome = "open" if world.refused(error, *codes) in UNKNOWN else error.code
    else:
        given.outcome = "settled"


async def _call(world: World) -> str:
    """Return a call that waits, by its id or its ref; most of the time wait for one."""
    if world.by_chance(0.8):
        within = world.chance.uniform(0, 2)
        await world.until(lambda: world.session.unfinished.waiting, within=within)
        await world.turns(world.chance.choice((0, 0, 1, 3, 10)))
    calls = world.session.unfinished.waiting
    names = [name for each in calls for name in (each.call_id, each.ref) if name]
    return world.chance.choice(names) if names else "call of yesterday"


async def _deliver(world: World) -> None:
    await deliver(world, world.session, await _call(world), world.new_answer())


async def _deliver_twice(world: World) -> None:
    """Deliver two answers at once; the same one again later; one caller may give up."""
    call, session = await _call(world), world.session
    texts = [world.new_answer() for _ in range(2)]
    answers = [asyncio.ensure_future(deliver(world, session, call, text)) for text in texts]
    if world.by_chance(0.3):
        await world.turns(world.chance.randint(0, 6))
        answers[0].cancel()
    await asyncio.wait(answers)
    for given in answers:
        if not given.cancelled():
            given.result()
    taken = [each for each in world.story.deliveries if each.outcome == "settled"]
    if taken and taken[-1].text in texts:
        # The call may have come again on another path meanwhile, or the session be another.
        with suppress(AgentError):
            await world.session.deliver(call, taken[-1].text)


async def _remote_deliver(world: World) -> None:
    remote = await world.away.remote(world.name)
    await deliver(world, remote, await _call(world), world.new_answer())


# What others do.


async def _remote_prompts(world: World) -> None:
    """Send one prompt or several in a row, while the holder may close."""
    remote = await world.away.remote(world.name)
    for _ in range(world.chance.choice((1, 1, 3))):
        text = world.new_prompt("remote")
        delivery = world.chance.choice(("queue", "queue", "steer", "interrupt", "reject"))
        await remote.send(text, delivery=delivery)  # type: ignore[arg-type]
        if delivery != "reject":
            world.keep(text)


async def _look(world: World) -> None:
    """Read the session from outside: nothing that was started is called not run."""
    remote = await world.away.remote(world.name)
    known = frozenset(world.story.runs)
    world.story.found += untrue_offers(await remote.messages(), known)
    settled = {item.approval_id for item in world.story.answers if item.outcome == "settled"}
    if asked := settled & {request.id for request in await remote.pending()}:
        world.story.found.append(f"{asked} were answered, and wait for an answer")
    await remote.status()


async def _cancelled_open(world: World) -> None:
    """Give an opening up at any step: of a session of one's own, or of one that is held."""
    held, agent = world.by_chance(0.6), world.chance.choice((world.home, world.away))
    name = world.name if held else f"aside {len(world.story.happenings)}"
    session = agent.session(name, busy="wait" if held else "reject")
    opening = asyncio.ensure_future(session.open())
    if world.by_chance(0.5):
        await world.turns(world.chance.randint(0, 12))
    else:
        await world.wait(world.chance.uniform(0, 2 if held else 0.2))
    for _ in range(world.chance.choice((1, 1, 2))):
        opening.cancel()
        await world.turns(world.chance.randint(0, 3))
    await asyncio.wait({opening})
    if session.session_id is not None:
        await _hold_for_a_while(world, session)
    await world.close(session)
    if not held:
        await world.check_free(agent, name)


async def _hold_for_a_while(world: World, session: AgentSession) -> None:
    """Be the next holder of a session whose opening came before it was given up."""
    world.story.found += untrue_offers(session.messages, world.story.runs)
    if world.by_chance(0.5):
        with suppress(AgentError):
            await session.resume()


_HAPPENINGS: dict[str, Callable[[World], Awaitable[object]]] = {
    "abort": _abort,
    "close": _close,
    "approve": _approve,
    "deny": _deny,
    "steer": _steer,
    "prompt": _prompt,
    "drain": _drain,
    "cancelled open": _cancelled_open,
    "two answers": _two_answers,
    "deliver": _deliver,
    "deliver twice": _deliver_twice,
    "remote deliver": _remote_deliver,
    "remote prompt": _remote_prompts,
    "remote approve": _remote_approve,
    "remote deny": _remote_deny,
    "rewind": _rewind,
    "undo": _undo,
    "fork": _fork,
    "resume": _resume,
    "reopen": _reopen,
    "configure": _configure,
    "compact": _compact,
    "look": _look,
    **REMOTE_HAPPENINGS,
    **TROUBLES,
}

HAPPENINGS = (*_HAPPENINGS, "result", "error", "timeout")

THEMES: dict[str, Sequence[str]] = {
    "anything": (),
    "answers": (
        "approve",
        "deny",
        "two answers",
        "remote approve",
        "remote deny",
        "resume",
        "look",
    ),
    "deliveries": (
        *("deliver", "deliver twice", "remote deliver", "abort"),
        *("approve", "resume", "prompt", "rewind", "reopen"),
    ),
    "prompts": ("prompt", "steer", "remote prompt", "drain", "close", "reopen", "cancelled open"),
    "openings": ("reopen", "configure", "remote prompt", "approve", "remote approve", "prompt"),
    "branches": ("rewind", "undo", "fork", "resume", "approve", "two answers"),
    "commands": (
        *REMOTE_HAPPENINGS,
        "compact",
        "close",
        "reopen",
        "remote prompt",
        "cancelled open",
    ),
    "troubles": (*TROUBLES, "reopen", "remote prompt", "cancelled open", "close", "prompt"),
}
"""What belongs together: things that meet more often than others in the same race."""


def draw(world: World, theme: str | None) -> tuple[list[str], Sequence[str]]:
    """Draw what is to happen in one race, and what may follow from it."""
    related = THEMES[theme or world.chance.choice(tuple(THEMES))]
    world.defers = world.defers or "deliver" in related
    rare, often = (0.15, 0.5) if related else (0.3, 0.3)
    wanted = [name for name in _HAPPENINGS if world.by_chance(often if name in related else rare)]
    return wanted, related
