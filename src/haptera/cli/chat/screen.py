"""What a chat shows: finished blocks that scroll away, and a live region above the prompt.

The live region is the end of the answer that is coming, the tools that run and the approval that
waits. `Screen` keeps it as text; the prompt draws it and asks again whenever something changed.
"""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from haptera.access.descriptions import SessionStats
from haptera.cli.chat.markdown import MarkdownBlocks, Renderer
from haptera.cli.terminal import Sanitiser, guard, safe, safe_line
from haptera.model.errors import AgentError
from haptera.model.events import Event, ReasoningDelta, TextDelta, ToolProgress
from haptera.model.log.entry import Entry
from haptera.model.log.queries import QueryEnded, QueryStarted
from haptera.model.log.tools import ToolEnded, ToolStarted
from haptera.model.log.turns import PartEnded, TurnEnded, TurnStarted
from haptera.model.messages import UserMessage
from haptera.model.parts import TextPart, ToolCallPart, lines_of
from haptera.model.usage import Usage

_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_LIVE_LINES = 8
_RESULT_LINES = 6


@dataclass
class RunningTool:
    """A tool call that has not ended."""

    name: str
    started: float
    progress: str = ""


@dataclass
class Counts:
    """What the status line says."""

    usage: Usage = field(default_factory=Usage)
    is_usage_whole: bool = True
    """Whether the tokens of every turn are known; providers report them at the end of an answer."""
    cost: float = 0.0
    is_cost_whole: bool = True
    """Whether the cost of every turn is known; that of an interrupted one is not."""
    context_used: int = 0
    context_window: int | None = None


class Screen:
    """Turns the events of a session into what is printed and what is shown live."""

    def __init__(
        self, renderer: Renderer, *, write: Callable[[str], object], changed: Callable[[], object]
    ) -> None:
        self.renderer = renderer
        self.counts = Counts()
        self.is_busy = False
        self._write, self._changed = write, changed
        self._answer = MarkdownBlocks()
        self._thought = ""
        self._clean = Sanitiser()
        self._tools: dict[str, RunningTool] = {}
        self._arguments: dict[str, str] = {}
        self._own: set[str] = set()
        self.last_answer = ""

    def print(self, text: str = "") -> None:
        """Print a finished text above the prompt."""
        self._write(text + "\n")

    def note(self, text: str) -> None:
        """Print a remark of the program's own."""
        self.print(self.renderer.dim(self.renderer.wrapped(safe(text))))

    def complain(self, text: str) -> None:
        """Print an error."""
        self.print(self.renderer.bad(self.renderer.wrapped(safe(text))))

    def fail(self, error: AgentError) -> None:
        """Print the error that a call raised, unless it is that of a query: its end shows it."""
        if error.result is None:
            self.complain(f"{error.code}: {error.message}")

    def prompt_shown(self, text: str) -> None:
        """Remember a prompt that stands on the screen because it was typed there."""
        self._own.add(text)

    def live(self) -> str:
        """Return the live region: what changes until it is finished and printed."""
        lines: list[str] = []
        if self._thought:
            lines += [self.renderer.dim(line) for line in _tail(self._thought, self.renderer.width)]
        lines += _tail(safe(self._answer.rest), self.renderer.width)
        now = time.perf_counter()
        lines += [self._tool_line(tool, now) for tool in self._tools.values()]
        if self.is_busy and not lines:
            lines.append(self.renderer.dim(f"{_spinner(now)} thinking"))
        return "".join(f"{line}\n" for line in lines)

    def show(self, event: Event) -> None:
        """Show one event."""
        match event:
            # First, because almost all events are deltas.
            case TextDelta(text=text):
                self._end_thought()
                for block in self._answer.feed(self._clean.feed(text)):
                    self.print(self.renderer.markdown(block) + "\n")
            case ReasoningDelta(text=text):
                self._thought += safe(text)
            case ToolProgress(call_id=call_id, progress=progress):
                if call_id in self._tools:
                    self._tools[call_id].progress = _last_line(progress)
            case QueryStarted(message=message):
                self._begin(message)
            case _:
                self._show_entry(event)
        self._changed()

    def _show_entry(self, event: Event) -> None:
        match event:
            case TurnStarted():
                self._flush()
            case PartEnded(part=ToolCallPart(call_id=call_id, arguments=arguments)):
                self._arguments[call_id] = msgspec.json.encode(arguments).decode()
            case PartEnded(part=TextPart(text=text)):
                self.last_answer = text
            case TurnEnded():
                self._flush()
                self._count(event)
            case ToolStarted(call_id=call_id, tool=tool):
                self._tools[call_id] = RunningTool(name=tool, started=time.perf_counter())
            case ToolEnded():
                self._end_tool(event)
            case QueryEnded():
                self._end_query(event)
            case Entry() if (line := event.transcript_line()) is not None:
                self.note(line)

    def _begin(self, message: UserMessage | None) -> None:
        self.is_busy = True
        text = lines_of(message.parts) if message is not None else ""
        if text in self._own:
            self._own.discard(text)
        elif text:  # it was sent from elsewhere, or waited in the queue
            self.print(self.renderer.accent("> ") + safe(text))

    def _end_thought(self) -> None:
        if self._thought:
            self.print("\n".join(map(self.renderer.dim, self._thought.rstrip().split("\n"))) + "\n")
            self._thought = ""

    def _flush(self) -> None:
        self._end_thought()
        self._answer.feed(self._clean.end())
        if (left := self._answer.end()).strip():
            self.print(self.renderer.markdown(left) + "\n")

    def _end_tool(self, ended: ToolEnded) -> None:
        self._flush()
        running = self._tools.pop(ended.call_id, None)
        elapsed = f" {time.perf_counter() - running.started:.1f} s" if running else ""
        mark = self.renderer.accent("●") if ended.outcome == "ok" else self.renderer.bad("●")
        arguments = self._arguments.pop(ended.call_id, "")
        head = safe_line(f"{ended.tool} {arguments}", width=self.renderer.width - 14)
        self.print(
            f"{mark} {self.renderer.bold(head)} {self.renderer.dim(ended.outcome + elapsed)}"
        )
        text = lines_of(ended.content)
        if _is_difference(text):
            self.print(self.renderer.difference(text))
        elif lines := _tail(safe(text), self.renderer.width - 2, keep=_RESULT_LINES):
            self.print("\n".join(self.renderer.dim(f"  {line}") for line in lines))

    def _end_query(self, ended: QueryEnded) -> None:
        self._flush()
        # A query that was aborted leaves calls without an end.
        self._tools.clear()
        self.is_busy = False
        if (line := ended.transcript_line()) is not None:
            is_failure = ended.error is not None and ended.stop_reason != "aborted"
            (self.complain if is_failure else self.note)(line)

    def _count(self, ended: TurnEnded) -> None:
        self.counts.usage += ended.usage
        if ended.interrupted and not ended.usage.total:
            self.counts.is_usage_whole = False
        if ended.cost is None:
            self.counts.is_cost_whole = False
        else:
            self.counts.cost += float(ended.cost)
        if ended.context_window:
            # Of this turn and not the sum: each request holds the whole conversation.
            used = ended.context_tokens
            self.counts.context_used = ended.usage.total if used is None else used
            self.counts.context_window = ended.context_window

    def count_from(self, stats: SessionStats) -> None:
        """Begin the status line with what a session has come to."""
        has_cost = stats.cost is not None
        self.counts = Counts(usage=stats.usage, is_cost_whole=has_cost, cost=float(stats.cost or 0))

    def _tool_line(self, tool: RunningTool, now: float) -> str:
        elapsed = f"{now - tool.started:.0f} s"
        line = safe_line(f"{tool.name} {elapsed} {tool.progress}", width=self.renderer.width - 2)
        return f"{self.renderer.accent(_spinner(now))} {line}"


def status_line(screen: Screen, *, model: str, name: str) -> str:
    """Return the line at the bottom: model, tokens, cost and how much of the context is left."""
    counts = screen.counts
    parts = [safe_line(model), _at_least(f"{counts.usage.total} tokens", counts.is_usage_whole)]
    # Before anything was used it is not known yet whether the model has a price.
    if counts.cost or (counts.is_cost_whole and counts.usage.total):
        parts.append(_at_least(f"${counts.cost:.4f}", counts.is_cost_whole))
    if counts.context_window:
        left = 100 - min(100, 100 * counts.context_used // counts.context_window)
        parts.append(f"{left} % context left")
    if name:
        parts.insert(0, safe_line(name))
    return " · ".join(parts)


def _at_least(amount: str, is_whole: bool) -> str:  # noqa: FBT001 - the only other argument
    return amount if is_whole else f"{amount} and more"


def write_above_prompt(text: str) -> None:
    """Write to standard output as it is now: a prompt that is being edited replaces it."""
    # Looked up at each call: `patch_stdout` puts another stream there while a prompt is shown.
    guard(sys.stdout).write_styled(text)


def _tail(text: str, width: int, *, keep: int = _LIVE_LINES) -> list[str]:
    """Return the last lines of a text as they are on the screen, the longest ones cut."""
    lines = text.rstrip("\n").split("\n") if text.strip() else []
    return [line if len(line) <= width else line[: width - 1] + "…" for line in lines[-keep:]]


def _spinner(now: float) -> str:
    return _SPINNER[int(now * 10) % len(_SPINNER)]


def _last_line(progress: object) -> str:
    text = progress if isinstance(progress, str) else msgspec.json.encode(progress).decode()
    lines = text.strip().split("\n")
    return lines[-1]


def _is_difference(text: str) -> bool:
    return text.startswith(("--- ", "diff ")) and "\n+++ " in text
