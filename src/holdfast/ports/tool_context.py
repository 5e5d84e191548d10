"""What a running tool may know and say."""

from collections.abc import Callable

from holdfast.ports.abort import AbortSignal
from holdfast.vocabulary.ids import CallId, SessionId
from holdfast.vocabulary.json_types import Json


class ToolContext:
    """Handed to a tool that asks for it: who calls, whether to stop, and how to report progress."""

    def __init__(
        self,
        *,
        session_id: SessionId,
        call_id: CallId,
        signal: AbortSignal,
        report: Callable[[Json], None],
    ) -> None:
        self.session_id = session_id
        self.call_id = call_id
        self.signal = signal
        self._report = report

    def progress(self, value: Json) -> None:
        """Show consumers how far the tool is; safe from a tool's own thread."""
        self._report(value)
