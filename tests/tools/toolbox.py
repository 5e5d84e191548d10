"""Calls built-in tools the way the runtime does: input parsed from JSON, result as text."""

import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from haptera.kernel.blocks.tool_registry.registry import FunctionFailed, Ready, Succeeded, ToolSet
from haptera.kernel.blocks.tool_registry.tool import AnyTool
from haptera.model.ids import CallId, SessionId
from haptera.model.parts import MediaPart, TextPart, ToolCallPart
from haptera.ports.permissions import ToolSurroundings
from haptera.ports.tools import ToolContext
from haptera.system.abort import AbortSignal

PYTHON = os.path.realpath(sys.executable)
"""An interpreter that commands can run; `INTERPRETER` is what of it they must be able to read."""
INTERPRETER = (sys.base_prefix,)


class Toolbox:
    """A set of tools in one session.

    `is_approved`: a person approved what commands do where the sandbox is not enough.
    """

    def __init__(
        self, tools: Iterable[AnyTool], *, session: str = "ses_1", is_approved: bool = False
    ) -> None:
        self._tools = ToolSet(tools)
        self._surroundings = ToolSurroundings(may_run_unconfined=is_approved)
        self._session = SessionId(session)
        self.progress: list[Any] = []
        self.watch: Callable[[Any], None] = lambda value: None

    async def call(self, name: str, /, **arguments: Any) -> str:
        """Return what a model gets: the text, `media` for a picture, or `failed:` and why."""
        ready = self._tools.resolve(
            ToolCallPart(call_id=CallId("c1"), name=name, arguments=arguments)
        )
        if not isinstance(ready, Ready):
            return f"not run: {ready}"
        context = ToolContext(
            session_id=self._session,
            call_id=CallId("c1"),
            signal=AbortSignal(),
            report=self._take_progress,
            surroundings=self._surroundings,
        )
        outcome = await ready.run(context)
        if isinstance(outcome, FunctionFailed):
            return f"failed: {outcome.message}"
        assert isinstance(outcome, Succeeded)
        parts = outcome.content
        assert all(isinstance(part, TextPart | MediaPart) for part in parts)
        return "".join(
            part.text if isinstance(part, TextPart) else f"media {part.mime}" for part in parts
        )

    def _take_progress(self, value: Any) -> None:
        self.progress.append(value)
        self.watch(value)


def names_beneath(folder: Path) -> set[str]:
    """Return every file beneath a folder, links not followed."""
    return {
        str((Path(above) / name).relative_to(folder))
        for above, _, names in os.walk(folder)
        for name in names
    }
