"""A session in several acts, each played by a process of its own that may die at any write.

Together they approve, deny, answer twice, steer, send from outside, go back, take that back, fork,
open with other settings, compact, do most of it from outside, and carry on after a crash. Tests
start this program as `crash_script KIND` and ask it line by line to have an act played in a folder
and killed: `NUMBER ACT FOLDER` is answered with `CODE CALLS`.
"""

import asyncio
import re
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from haptera import Agent, AgentSession, ApprovalRequest, Later, tool
from haptera.agent.remote import AgentRemote
from haptera.kernel.blocks.tool_registry.tool import AnyTool
from haptera.model.approvals import Decision
from haptera.model.log.tools import ToolStarted
from haptera.model.messages import AssistantMessage, UserMessage
from haptera.model.parts import TextPart
from haptera.model.requests import ModelRequest
from haptera.model.stream_parts import StreamPart
from haptera.ports.session_store import Store
from haptera.testing import ScriptedProvider, calls, says
from haptera.testing.promises import require, require_same
from tests.history_grammar import violations
from tests.kernel.session.answer_worker import die
from tests.kernel.session.kill_at_call import run_until_call
from tests.kernel.session.noting_session import (
    Acknowledged,
    Deed,
    Notes,
    NotingSession,
    answer_for,
    deliver_once,
    line_of,
    ref_of,
)
from tests.kernel.session.three_turns import LINGERING, line_writer
from tests.scripted_agents import live_of
from tests.stores.store_factories import open_store

TRUNK, BRANCH, TWIG = "trunk", "branch", "twig"
Act = Literal[
    "answer_at_rest",
    "answer_live",
    "go_back",
    "be_cut_off",
    "recover",
    "fork",
    "send_from_outside",
    "open_anew",
    "compact",
    "ask_from_outside",
    "be_suspended",
    "be_answered_later",
]
ACTS: tuple[Act, ...] = (
    "answer_at_rest",
    "answer_live",
    "go_back",
    "be_cut_off",
    "recover",
    "fork",
    "send_from_outside",
    "open_anew",
    "compact",
    "ask_from_outside",
    "be_suspended",
    "be_answered_later",
)
CUT_OFF: Act = "be_cut_off"
"""The act that ends with a death of its own."""

TOOLS = {"write": "write_line", "ask": "write_if_allowed", "later": "write_and_wait"}
"""The tool that a word of a prompt stands for."""
LEFT_RUNNING = {"linger", "u", "v"}
"""What a process that is cut off, and only one, asks to have written."""
WRITTEN = {*"abdfhijkmnopqrstwxz", "end", "aa", "bb", "cc", "dd", "ee", "ff", "gg", "hh", "ii"}
WRITTEN |= {"jj", "kk", "ll", "mm", "nn", "oo", "pp"}
"""What is written in the end. What was denied, or made void by a prompt, is not."""
_WISH = re.compile(rf"({'|'.join(TOOLS)}) (\w+)")


class DoAsAsked(ScriptedProvider):
    """Calls what prompts ask for and no answer has called for yet, then is content.

    So it goes on sensibly after any crash, and never calls twice for the same line. The ids of its
    calls are the same in every answer, as they are with some providers.
    """

    def stream(self, request: ModelRequest) -> AsyncGenerator[Sequence[StreamPart], None]:
        """Answer by what was asked for and called so far, in one read."""
        called = {
            line_of(call.arguments)
            for message in request.messages
            if isinstance(message, AssistantMessage)
            for call in message.tool_calls
        }
        wishes = [wish for wish in _wishes(request) if wish[1] not in called]
        is_summary = any("You summarise" in text for text in request.system)
        self.replace_rest([says("All was written.") if is_summary else _answer(wishes)])
        return super().stream(request)

    def check_requests(self) -> None:
        """Fail unless every request can be sent to a provider."""
        for request in self.requests:
            require_same(violations(request.messages), [], "requests that can be sent")


def _wishes(request: ModelRequest) -> list[tuple[str, str]]:
    texts = [
        part.text
        for message in request.messages
        if isinstance(message, UserMessage)
        for part in message.parts
        if isinstance(part, TextPart)
    ]
    return _WISH.findall(" ".join(texts))


def _answer(wishes: list[tuple[str, str]]) -> list[StreamPart]:
    if not wishes:
        return says("fine")
    ids = [f"call_{place}" for place in range(len(wishes))]
    return calls(*((TOOLS[word], {"line": line}) for word, line in wishes), ids=ids, text="I do. ")


def _waiting_writer(effects: Path) -> AnyTool:
    """Return a tool that writes a line, and whose answer comes later; that of `nn` is due."""
    write = line_writer(effects)

    @tool(name=TOOLS["later"])
    def write_and_wait(line: str) -> str:
        """Write a line, and wait for what becomes of it."""
        write(line)
        until = 0.0 if line == "nn" else None
        raise Later(ref=ref_of(line), until=until, otherwise=f"{line} is late")

    return write_and_wait


def script_agent(
    store: Store, folder: Path, provider: ScriptedProvider, *, lingers: bool = False, **options: Any
) -> Agent:
    """Return an agent with the tools of the script."""
    effects = folder / "effects"
    return Agent(
        "scripted/m",
        providers=[provider],
        tools=[
            line_writer(effects, name=TOOLS["write"], lingers=lingers),
            line_writer(effects, "ask", name=TOOLS["ask"]),
            _waiting_writer(effects),
        ],
        store=store,
        project="durable",
        **options,
    )


async def _wait_for_ever(_request: ApprovalRequest) -> Decision:
    await asyncio.Event().wait()
    raise AssertionError


class Script:
    """Plays acts on a store. Each act is a method, and can be the work of another process."""

    def __init__(self, store: Store, folder: Path) -> None:
        self._store = store
        self._folder = folder
        self._notes = Notes(folder)
        self._provider = DoAsAsked()

    async def play(self, act: Act) -> None:
        """Play one act to its end."""
        await getattr(self, act)()
        self._provider.check_requests()

    @asynccontextmanager
    async def _holding(self, name: str, **options: Any) -> AsyncIterator[NotingSession]:
        """Hold a session, and reach it from another agent, too."""
        agent = script_agent(self._store, self._folder, self._provider, **options)
        async with agent, agent.session(name) as session, self._other() as other:
            held = await self._noting(session, other)
            yield held
            await held.answer_again()

    def _other(self) -> Agent:
        return script_agent(self._store, self._folder, ScriptedProvider())

    async def _noting(self, session: AgentSession, other: Agent) -> NotingSession:
        live = await live_of(session)
        return NotingSession(session, await other.remote(live.session_id), self._notes)

    async def answer_at_rest(self) -> None:
        """Answer the questions of a query that rests, from here and from outside."""
        async with self._holding(TRUNK) as trunk:
            await trunk.chat("write a, ask b, ask c, ask d, ask e")
            await trunk.approve("b")
            await trunk.deny("c")
            await trunk.approve_from_outside("d")
            await trunk.deny_from_outside("e")
            await trunk.resume()

    async def answer_live(self) -> None:
        """Answer the questions of a query that runs, speak into it, and send a prompt after it."""
        holding = self._holding(TRUNK, approver=_wait_for_ever)
        async with holding as trunk, asyncio.TaskGroup() as group:
            chat = group.create_task(trunk.chat("write f, ask g, ask h, ask i"))
            await trunk.until_asked("g", "h", "i")
            await trunk.steer("write j")
            await trunk.deny("g")
            await trunk.approve("h")
            await trunk.approve_from_outside("i")
            await trunk.send("write k")
            await chat
            await trunk.until_idle()

    async def go_back(self) -> None:
        """Go back to answers whose calls have ended, or were only allowed, and undo that."""
        async with self._holding(TRUNK) as trunk:
            await trunk.rewind("a")
            await trunk.resume()
            await trunk.undo()
            await trunk.chat("ask l, ask m")
            await trunk.deny("l")
            await trunk.approve("m")
            await trunk.rewind("m")
            await trunk.resume()  # the permission was not used: it is asked for again
            await trunk.approve("m")
            await trunk.resume()
            await trunk.rewind("m")
            await trunk.resume()
            await trunk.undo()

    async def be_cut_off(self) -> None:
        """Die while a tool runs, right after an answer and a prompt were taken."""
        async with self._holding(TRUNK, lingers=True) as trunk, asyncio.TaskGroup() as group:
            started = asyncio.Event()
            trunk.session.on(ToolStarted, lambda _event: started.set())
            group.create_task(trunk.chat("write linger, ask u"))
            await started.wait()
            await trunk.approve("u")
            await trunk.steer("write v")
            # The tool was started; its thread may not have come to write yet.
            await asyncio.to_thread(LINGERING.wait)
            die()

    async def recover(self) -> None:
        """Carry on what was cut off, and go back to the call whose end is not recorded."""
        async with self._holding(TRUNK) as trunk:
            if trunk.session.unfinished.query_id is not None:
                await trunk.resume()
                await trunk.rewind("linger")
                await trunk.resume()
                await trunk.undo()

    async def fork(self) -> None:
        """Go on in forks from an answer whose calls are unfinished, and later from the same one."""
        async with self._holding(TRUNK) as trunk, self._other() as other:
            await trunk.chat("write n, ask o, ask p")
            await trunk.approve("o")
            async with await self._noting(await trunk.fork("n", BRANCH), other) as branch:
                await branch.chat("write q, ask r")
                await branch.approve("r")
                await branch.resume()
                await branch.rewind("n")
                await branch.chat("write s")
            await trunk.approve("p")
            await trunk.resume()
            async with await self._noting(await trunk.fork("n", TWIG), other) as twig:
                await twig.chat("write t")

    async def send_from_outside(self) -> None:
        """Send prompts to sessions that no process holds, that rest on an approval, or are idle."""
        async with self._other() as other:
            for name, prompt in ((TRUNK, "write w"), (BRANCH, "write x")):
                remote = await other.remote(name)
                await remote.send(prompt)
                self._note_from_outside(remote, "prompt", prompt)
        async with self._holding(BRANCH) as branch:
            await branch.resume()
            await branch.until_idle()
        async with self._holding(TRUNK) as trunk:
            await trunk.chat("ask y")
            await trunk.send("write z")
            await trunk.until_idle()
            await trunk.steer("write end")
            await trunk.until_idle()

    async def open_anew(self) -> None:
        """Open a session with other settings, and with what was approved and sent meanwhile."""
        async with self._holding(TRUNK, seed=1) as trunk:
            await trunk.configure("1.5")
            await trunk.chat("ask aa")
        async with self._other() as other:
            remote = await other.remote(TRUNK)
            (asked,) = await remote.pending()
            await remote.approve(asked.id)
            self._note_from_outside(remote, "approved", asked.id)
            await remote.send("write bb")
            self._note_from_outside(remote, "prompt", "write bb")
        async with self._holding(TRUNK, seed=2) as trunk:
            await trunk.chat("write cc")

    async def compact(self) -> None:
        """Send a summary instead of what was said, and open the session from there on."""
        async with self._holding(TRUNK) as trunk:
            await trunk.session.compact()
            await trunk.chat("write dd")
        async with self._holding(TRUNK) as trunk:
            await trunk.chat("write ee")

    async def ask_from_outside(self) -> None:
        """Go back, undo that, configure, compact and fork from outside, and without a holder."""
        async with self._holding(TRUNK) as trunk:
            await trunk.chat("write ff")
            await trunk.rewind_from_outside("ff")
            await trunk.undo_from_outside()
            await trunk.configure_from_outside("0.375")
            await trunk.compact_from_outside()
            await trunk.chat("write gg")
            await trunk.fork_from_outside("gg")
        async with self._other() as other:
            remote = await other.remote(TRUNK)
            await remote.configure(temperature=0.75)
            self._note_from_outside(remote, "configured", "0.75")

    async def be_suspended(self) -> None:
        """Close a session whose query waits for a person, and carry the query on."""
        agent = script_agent(self._store, self._folder, self._provider, approver=_wait_for_ever)
        async with agent, agent.session(TRUNK) as session, self._other() as other:
            trunk = await self._noting(session, other)
            session_id = (await live_of(session)).session_id
            prompt = "ask hh, ask ii"
            asking = asyncio.ensure_future(session.chat(prompt, on_abort="return"))
            await trunk.until_asked("hh", "ii")
            self._notes.add(Acknowledged(deed="prompt", session_id=session_id, subject=prompt))
            await session.close(force=True)
            require((await asking).suspended, "a query that is closed has no end")
        async with self._holding(TRUNK) as trunk:
            await trunk.approve("hh")
            await trunk.approve("ii")
            await trunk.resume()

    async def be_answered_later(self) -> None:
        """Answer calls that wait: here, from outside, without a holder, by time, or not at all."""
        async with self._holding(TRUNK) as trunk:
            await trunk.chat("later jj, write kk, later ll, later mm")
            await trunk.deliver("ll")
            await trunk.deliver_from_outside("jj")
        async with self._other() as other:
            remote = await other.remote(TRUNK)
            await deliver_once(remote, "mm")
            self._note_from_outside(remote, "delivered", answer_for("mm"))
        async with self._holding(TRUNK) as trunk:
            await trunk.resume()
            await trunk.chat("later nn, later oo")
            await trunk.chat("write pp")

    def _note_from_outside(self, remote: AgentRemote, deed: Deed, subject: str) -> None:
        self._notes.add(Acknowledged(deed=deed, session_id=remote.session_id, subject=subject))


def _play(kind: str, folder: Path, act: Act) -> None:
    async def play() -> None:
        store = open_store(kind, folder)
        await Script(store, folder).play(act)
        await store.close()

    asyncio.run(play())


def _serve(kind: str) -> None:
    """Have acts played by processes that are this one's children, so that they start at once."""
    import_module("haptera.access.assembly.composition")  # what each of them would import by itself
    for line in sys.stdin:
        number, name, folder = line.rstrip("\n").split(maxsplit=2)
        act = next(act for act in ACTS if act == name)
        ended = run_until_call(partial(_play, kind, Path(folder), act), int(number))
        sys.stdout.write(f"{ended.code} {ended.calls}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    _serve(sys.argv[1])
