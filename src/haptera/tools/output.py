"""Long output: what a model is shown of it, and where the rest is kept until it asks for more."""

import hashlib
from collections import OrderedDict

from haptera.kernel.blocks.tool_registry.tool import AnyTool, tool
from haptera.model.errors import ErrorCode, SessionError
from haptera.model.ids import SessionId
from haptera.ports.session_store import Blobs
from haptera.ports.tools import ToolContext

MOST_SHOWN = 30_000
"""Characters of one result that a model is shown at once."""
_HEAD = 20_000
_PAGE = 20_000
_MOST_KEPT = 64 << 20
_LATER_BYTES = range(0x80, 0xC0)
"""The bytes of a UTF-8 character after its first one."""


class RecentBlobs:
    """Keeps content in memory and drops the oldest first; the default of `coding_tools`.

    The blobs of a store are kept as long as their session, and by every process that opens it.
    """

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[SessionId, str], bytes] = OrderedDict()
        self._size = 0

    async def put(self, session_id: SessionId, content: bytes) -> str:
        """Keep content and return its name."""
        name = hashlib.sha256(content).hexdigest()
        if (session_id, name) not in self._kept:
            self._kept[session_id, name] = content
            self._size += len(content)
        # The newest stays, whatever its size: the model is about to be told its name.
        while self._size > _MOST_KEPT and len(self._kept) > 1:
            self._size -= len(self._kept.popitem(last=False)[1])
        return name

    async def get(self, session_id: SessionId, name: str) -> bytes:
        """Return content; raises NOT_FOUND."""
        try:
            return self._kept[session_id, name]
        except KeyError:
            message = f"there is no output {name!r}; it may have been dropped"
            raise SessionError(ErrorCode.NOT_FOUND, message) from None


class Outputs:
    """Cuts long results, and hands out the pages of what was cut."""

    def __init__(self, blobs: Blobs | None = None) -> None:
        self._given = blobs
        self._memory = RecentBlobs()

    def _blobs(self, context: ToolContext) -> Blobs:
        """Return where output is kept: as the tools were told, else where the agent keeps it."""
        if self._given is not None:
            return self._given
        of_agent = context.surroundings.blobs
        return self._memory if of_agent is None else of_agent()

    async def shown(self, context: ToolContext, text: str, *, reader: str = "read_output") -> str:
        """Return a text as it is, or its beginning and end and where the whole of it is kept.

        `reader` is the tool that pages through what is kept.
        """
        if len(text) <= MOST_SHOWN:
            return text
        content = text.encode("utf-8", "replace")
        name = await self._blobs(context).put(context.session_id, content)
        tail = MOST_SHOWN - _HEAD
        left_out = len(text) - MOST_SHOWN
        return (
            f"{text[:_HEAD]}\n"
            f"[{left_out} of {len(text)} characters are left out here. All of it is kept: "
            f'{reader}(name="{name}", offset={len(text[:_HEAD].encode("utf-8", "replace"))})]\n'
            f"{text[-tail:]}"
        )

    async def page(self, context: ToolContext, name: str, offset: int) -> str:
        """Return some of what was kept, from the character at a byte on."""
        content = await self._blobs(context).get(context.session_id, name)
        offset = _start_of_character(content, offset)
        end = _start_of_character(content, offset + _PAGE)
        text = content[offset:end].decode("utf-8", "replace")
        if end >= len(content):
            return f"{text}\n[the end, at byte {len(content)}]"
        return f"{text}\n[{len(content) - end} bytes follow, from offset={end} on]"


def _start_of_character(content: bytes, at: int) -> int:
    """Return where the UTF-8 character begins that holds a byte."""
    for start in range(at, max(at - 4, -1), -1):
        if start >= len(content) or content[start] not in _LATER_BYTES:
            return start
    return at


def read_output_tool(outputs: Outputs, *, named: str = "read_output") -> AnyTool:
    """Make the tool that pages through kept output."""

    @tool(name=named, effect="read", idempotent=True)
    async def read_output(context: ToolContext, name: str, offset: int = 0) -> str:
        """Read more of a long result, which was cut when it was shown.

        Args:
            name: The name that the cut result gives.
            offset: The byte to begin at.

        """
        return await outputs.page(context, name, max(offset, 0))

    return read_output
