"""The chat itself: a prompt that stays usable while the model works, and the session behind it."""

import asyncio
import contextlib
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from prompt_toolkit import PromptSession
from prompt_toolkit.application import get_app_or_none
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import ANSI
from prompt_toolkit.history import FileHistory, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.output import ColorDepth
from prompt_toolkit.patch_stdout import patch_stdout

from haptera import Agent, AgentError, AgentSession, UserMessage
from haptera.access.administration import project_file, state_folder
from haptera.cli.chat.approvals import Approvals, approval_card
from haptera.cli.chat.markdown import Renderer
from haptera.cli.chat.screen import Screen, status_line, write_above_prompt
from haptera.cli.chat.slash_commands import SlashCommands
from haptera.cli.choices import Choices, open_agent, open_chosen_session
from haptera.cli.outcomes import Exit
from haptera.cli.prompt_input import missing_files, named_files
from haptera.cli.session_texts import counted, short_time, shown_titles
from haptera.cli.terminal import drawing_screen, guarding_streams, safe, safe_line, styled
from haptera.model.errors import ErrorCode, SessionError
from haptera.model.events import Busy, ObserverLagged
from haptera.model.parts import lines_of

_TWICE = 2.0
"""Seconds within which a second Ctrl-C leaves."""
_TAIL_MESSAGES = 4
_LISTED = 15


class Chat:
    """One conversation at a terminal. Owns the prompt and the task that follows the session."""

    def __init__(self, agent: Agent, session: AgentSession, approvals: Approvals) -> None:
        self.agent = agent
        self.session = session
        self.approvals = approvals
        self.leaving = False
        self._ended_by: Exit | None = None
        """What a signal that ended the chat gives as exit code."""
        # So long ago that the first Ctrl-C is never taken for the second.
        self._last_interrupt = -_TWICE
        self._typed: asyncio.Queue[str] = asyncio.Queue()
        self._tasks = asyncio.TaskGroup()
        self._following: asyncio.Task[None] | None = None
        self.screen = Screen(
            Renderer(width=shutil.get_terminal_size().columns),
            write=write_above_prompt,
            changed=redraw,
        )
        self.commands = SlashCommands(self)
        self._prompt: PromptSession[str] = PromptSession(
            message=self._message,
            bottom_toolbar=self._toolbar,
            history=_history(),
            key_bindings=self._keys(),
            # A prompt may have line breaks; Enter is bound to sending below.
            multiline=True,
            # There are no completions; the empty lines would push the conversation up.
            reserve_space_for_menu=0,
            refresh_interval=0.3,
            enable_open_in_editor=True,
            color_depth=None if self.screen.renderer.colour else ColorDepth.DEPTH_1_BIT,
            prompt_continuation="  ",
        )
        # Esc waits for a key that may belong to it, by default 1.5 s: too long for a stop button.
        self._prompt.app.ttimeoutlen, self._prompt.app.timeoutlen = 0.05, 0.3

    async def run(self, first: str | None) -> Exit:
        """Read prompts until the person leaves."""
        async with self._tasks:
            await self.follow(self.session)
            try:
                self._greet()
                # Raw, because what is printed has colours of our own; guarded again, because the
                # streams of `patch_stdout` are new ones, which log handlers write to, too.
                with patch_stdout(raw=True), guarding_streams(), self._ended_by_signals():
                    if first:
                        await self.say(first)
                    await self._read_prompts()
            finally:
                await self._leave()
        return self._ended_by or Exit.OK

    @contextlib.contextmanager
    def _ended_by_signals(self) -> Iterator[None]:
        """Let SIGTERM and SIGHUP end the chat: its query is suspended, and not aborted."""
        loop = asyncio.get_running_loop()
        exits = {signal.SIGTERM: Exit.TERMINATED, signal.SIGHUP: Exit.HUNG_UP}

        def end(number: signal.Signals) -> None:
            self._ended_by = exits[number]
            if self._prompt.app.is_running:
                self._prompt.app.exit(exception=EOFError)

        for number in exits:
            loop.add_signal_handler(number, end, number)
        try:
            yield
        finally:
            for number in exits:
                loop.remove_signal_handler(number)

    async def _read_prompts(self) -> None:
        """Keep one prompt on the screen until the person leaves.

        Between two prompts the terminal would be in its line mode, where an Enter that was pressed
        early means something else.
        """
        taking = self._tasks.create_task(self._take_lines())
        try:
            await self._prompt.prompt_async()
        except EOFError:
            return
        finally:
            taking.cancel()

    async def _take_lines(self) -> None:
        while not self.leaving:
            await self._take(await self._typed.get())
        self._prompt.app.exit(result="")

    async def follow(self, session: AgentSession) -> None:
        """Make a session the one that is shown; the one before is closed."""
        if session is not self.session:
            # A close alone would wait for a running query.
            self.session.abort("the chat went on to another session")
            await self.session.close()
        if self._following is not None:
            if session is not self.session:
                # So that the end of the query is still shown.
                await asyncio.wait({self._following}, timeout=1)
            self._following.cancel()
            # Awaited, so that no event of the old session is shown after the new one begins.
            with contextlib.suppress(asyncio.CancelledError):
                await self._following
        self.session = session
        session_id = session.session_id or ""
        # Events from here on: what was before is shown as messages, by `show_tail`.
        head = (await self.agent.sessions.get(session_id)).head
        self.screen.count_from(await self.agent.sessions.stats(session_id))
        self._following = self._tasks.create_task(self._watch(session, head))

    async def say(self, text: str, *, delivery: str = "steer") -> None:
        """Send a prompt; while a query runs it joins it, or waits with `queue`."""
        self.screen.prompt_shown(text)
        for path in missing_files(text):
            self.screen.note(f"there is no file {str(path)!r}; nothing is attached for it")
        options: dict[str, Any] = {"delivery": delivery, "attachments": named_files(text)}
        try:
            await self.session.send(text, **options)
        except AgentError as error:
            self.screen.fail(error)

    def carry_on(self) -> None:
        """Carry the query on that was cut off."""
        self._tasks.create_task(self._resume())

    async def _resume(self) -> None:
        try:
            await self.session.resume(on_abort="return")
        except AgentError as error:
            self.screen.fail(error)

    @property
    def is_busy(self) -> bool:
        """Whether a query runs."""
        return isinstance(self.session.status, Busy) or self.screen.is_busy

    def show_tail(self) -> None:
        """Show the last messages of a session that goes on."""
        messages = self.session.messages
        if not messages:
            return
        if len(messages) > _TAIL_MESSAGES:
            self.screen.note(f"… {counted(len(messages) - _TAIL_MESSAGES, 'earlier message')}")
        for message in messages[-_TAIL_MESSAGES:]:
            text = lines_of(message.parts)
            if not text:
                continue
            if isinstance(message, UserMessage):
                self.screen.print(self.screen.renderer.accent("> ") + safe(text))
            else:
                self.screen.print(self.screen.renderer.markdown(text) + "\n")

    async def _watch(self, session: AgentSession, after: int) -> None:
        """Show every event of the session, also those that others caused."""
        while True:
            async with contextlib.aclosing(session.events(after=after)) as events:
                async for event in events:
                    if isinstance(event, ObserverLagged):
                        after = event.resume_after
                        break
                    self.screen.show(event)
                else:
                    return

    async def _take(self, text: str) -> None:
        """Do what was typed: answer a question, run a slash command, or send a prompt."""
        asking = self.approvals.asking
        if self.approvals.current is not None and asking == "reason":
            self.approvals.no(text)
        elif self.approvals.current is not None and asking == "arguments":
            if wrong := self.approvals.change(text):
                self.screen.complain(wrong)
                # What was typed comes back to be corrected.
                self._prompt.default_buffer.document = Document(text, len(text))
        elif text.strip().startswith("/"):
            await self.commands.run(text.strip())
        elif text.strip():
            await self.say(text.strip())

    def _greet(self) -> None:
        renderer = self.screen.renderer
        self.screen.print(
            renderer.bold("haptera") + renderer.dim("  /help for commands, Ctrl-D to leave")
        )
        project = project_file()
        if project is not None and not project.is_trusted:
            self.screen.note(f"{project.path} is not trusted: ignored (see `haptera trust`)")
        self.show_tail()
        if self.session.unfinished.query_id is not None:
            self.screen.note("the last query was cut off; /resume carries it on")

    async def _leave(self) -> None:
        if self._following is not None:
            self._following.cancel()
        # Otherwise the close would wait for the query to end by itself.
        if self._ended_by is None:
            self.session.abort("the terminal was left")
        await self.session.close(force=True)

    # The prompt.

    def _message(self) -> ANSI:
        self.screen.renderer.width = max(20, shutil.get_terminal_size().columns)
        asked = self.approvals.current
        card = approval_card(asked, self.approvals.asking, self.screen.renderer) if asked else ""
        return ANSI(styled(self.screen.live() + card + self.screen.renderer.accent("> ")))

    def _toolbar(self) -> str:
        settings = self.session.settings
        line = status_line(self.screen, model=settings.model, name=self.commands.session_name)
        hint = " · Esc interrupts" if self.is_busy else ""
        width = self.screen.renderer.width
        return line if len(line + hint) > width else line + hint

    def _keys(self) -> KeyBindings:
        keys = KeyBindings()
        busy = Condition(lambda: self.is_busy)
        chooses = Condition(self._is_choosing)

        @keys.add("enter")
        def _(event: KeyPressEvent) -> None:
            self._enter(event.current_buffer)

        # Most terminals send the same code for Shift-Enter as for Enter, so it needs a key of its
        # own.
        @keys.add("c-j")
        def _(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text("\n")

        @keys.add("escape", "enter")
        def _(event: KeyPressEvent) -> None:
            if self.is_busy and event.current_buffer.text.strip():
                text, event.current_buffer.text = event.current_buffer.text.strip(), ""
                self._tasks.create_task(self.say(text, delivery="queue"))
                self.screen.note(f"queued: {text}")
            else:
                event.current_buffer.insert_text("\n")

        @keys.add("escape", filter=busy)
        def _(event: KeyPressEvent) -> None:
            self._stop(event.current_buffer)

        @keys.add("c-c")
        def _(event: KeyPressEvent) -> None:
            self._interrupt(event)

        @keys.add("c-g")
        def _(event: KeyPressEvent) -> None:
            event.current_buffer.open_in_editor()

        for key, do in self._choices().items():
            keys.add(key, filter=chooses)(do)
        return keys

    def _enter(self, buffer: Buffer) -> None:
        """Take what was typed; the prompt stays for more."""
        text = buffer.text
        buffer.append_to_history()
        buffer.reset()
        if text.strip():
            lines = safe(text).split("\n")
            self.screen.print("\n".join([self.screen.renderer.accent("> ") + lines[0], *lines[1:]]))
        self._typed.put_nowait(text)

    def _choices(self) -> dict[str, Callable[[KeyPressEvent], None]]:
        """Return the keys that answer an approval."""

        def edit(event: KeyPressEvent) -> None:
            text = self.approvals.arguments_text()
            event.current_buffer.document = Document(text, len(text))
            self.approvals.ask_for("arguments")

        def view(_event: KeyPressEvent) -> None:
            if self.approvals.current is not None:
                self.screen.print(self.approvals.current.whole(self.screen.renderer))

        return {
            "y": lambda _event: self.approvals.yes(),
            "a": lambda _event: self.approvals.always(),
            "n": lambda _event: self.approvals.ask_for("reason"),
            "e": edit,
            "v": view,
        }

    def _is_choosing(self) -> bool:
        app = get_app_or_none()
        is_empty = app is not None and not app.current_buffer.text
        return is_empty and self.approvals.current is not None and self.approvals.asking == "choice"

    def _interrupt(self, event: KeyPressEvent) -> None:
        now = time.perf_counter()
        if now - self._last_interrupt < _TWICE:
            event.app.exit(result="")
            return
        self._last_interrupt = now
        if self.is_busy:
            self._stop(event.current_buffer)
        else:
            event.current_buffer.reset()
        self.screen.note("Ctrl-C again leaves")

    def _stop(self, buffer: Buffer) -> None:
        """Stop the query; arguments or a reason that were being typed are not the next prompt."""
        if self.approvals.current is not None and self.approvals.asking != "choice":
            buffer.reset()
        self.session.abort("interrupted by the person at the terminal")


def redraw() -> None:
    """Draw the prompt again, because the live region changed."""
    app = get_app_or_none()
    if app is not None:
        app.invalidate()


def _history() -> FileHistory | InMemoryHistory:
    folder = state_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = folder / "prompt_history"
        # Made before prompt_toolkit does, which would let others read it.
        path.touch(mode=0o600)
    except OSError:
        return InMemoryHistory()
    return FileHistory(str(Path(path)))


async def _chat(choices: Choices, first: str | None) -> Exit:
    approvals = Approvals(redraw)
    async with open_agent(choices, approver=approvals.ask) as agent:
        if choices.resume is not None and not choices.resume.strip():
            choices = replace(choices, resume=await _pick_session(agent))
        session = await open_chosen_session(agent, choices)
        # prompt_toolkit moves the cursor; what it shows of others, it writes out itself.
        with drawing_screen():
            chat = Chat(agent, session, approvals)
            code = await chat.run(first)
    if chat.session.messages and not choices.no_session:
        chat.screen.note(f"continue it with: haptera -r {chat.session.session_id}")
    return code


async def _pick_session(agent: Agent) -> str:
    """Show the last sessions of this folder and ask for one of them.

    Raises:
        SessionError: NOT_FOUND when there is none.

    """
    sessions = await agent.sessions.list(limit=_LISTED)
    if not sessions:
        raise SessionError(ErrorCode.NOT_FOUND, "there is no session in this folder to resume")
    titles = await shown_titles(agent, sessions)
    for number, each in enumerate(sessions, 1):
        title = safe_line(titles[each.id], width=50)
        write_above_prompt(f"{number:3}  {short_time(each.updated)}  {title}\n")
    chosen = click.prompt("Which one", type=click.IntRange(1, len(sessions)), default=1)
    return sessions[int(chosen) - 1].id


def run_chat(choices: Choices, first: str | None) -> Exit:
    """Chat until the person leaves; returns the exit code."""
    return asyncio.run(_chat(choices, first))
