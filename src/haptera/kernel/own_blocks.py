"""OwnBlocks: the blocks that a program brings itself, instead of the default ones of an agent.

A module of its own because naming an agent loads it, and no engine: it imports for types only.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from haptera.kernel.blocks.approval_coordinator import MakeApprovals
    from haptera.kernel.blocks.control_channel import ControlChannelInterface
    from haptera.kernel.blocks.request_builder import RequestBuilder
    from haptera.kernel.blocks.stream_processor.processor import StreamProcessorInterface
    from haptera.kernel.blocks.tool_registry.registry import ToolRegistryInterface
    from haptera.kernel.query.query import Runner
    from haptera.kernel.turns.turn_runner import TurnRunnerInterface


class OwnBlocks:
    """Blocks of a program's own, each used instead of the default one; None is the default.

    The model client is one of `providers=`, and tools of any kind are `tools=`. The conversation of
    a session is what its log comes to, in every process that reads it: one of the program's own is
    for `blocks.hold`.
    """

    def __init__(
        self,
        *,
        request_builder: "RequestBuilder | None" = None,
        stream_processor: "StreamProcessorInterface | None" = None,
        tool_registry: "ToolRegistryInterface | None" = None,
        turn_runner: "TurnRunnerInterface | None" = None,
        query_runner: "Runner | None" = None,
        approvals: "MakeApprovals | None" = None,
        channel: "Callable[[], ControlChannelInterface] | None" = None,
    ) -> None:
        self.request_builder = request_builder
        self.stream_processor = stream_processor
        self.tool_registry = tool_registry
        """Offers the tools of all conversations that bring none of their own, not `tools=`."""
        self.turn_runner = turn_runner
        self.query_runner = query_runner
        """Answers every prompt, also those to native agents."""
        self.approvals = approvals
        """Called for each conversation, with the parameters of `ApprovalCoordinator`."""
        self.channel = channel
        """Called for each conversation."""
