"""Changed arguments: what a person gives a tool instead is held against it before it counts."""

from holdfast.blocks.tool_registry.registry import InvalidInput, ToolRegistry
from holdfast.vocabulary.approvals import Approve, Decision
from holdfast.vocabulary.entries import ApprovalRequested
from holdfast.vocabulary.errors import ErrorCode, ToolError
from holdfast.vocabulary.parts import ToolCallPart


def refuse_misfit(tools: ToolRegistry, asked: ApprovalRequested | None, decision: Decision) -> None:
    """Refuse an approval with arguments that the tool would not take.

    Raises:
        ToolError: TOOL_INVALID_INPUT saying why; the approval goes on waiting.

    """
    if asked is None or not isinstance(decision, Approve) or decision.arguments is None:
        return
    call = ToolCallPart(call_id=asked.call_id, name=asked.tool, arguments=decision.arguments)
    resolution = tools.current().resolve(call)
    if isinstance(resolution, InvalidInput):
        raise ToolError(
            ErrorCode.TOOL_INVALID_INPUT,
            f"{asked.tool} does not take these arguments: {resolution.message}",
        )
