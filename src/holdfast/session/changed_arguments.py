"""Changed arguments: what a person gives a tool instead is held against it before it counts."""

from typing import TYPE_CHECKING

from holdfast.blocks.tool_registry.registry import InvalidInput
from holdfast.vocabulary.errors import ErrorCode, ToolError
from holdfast.vocabulary.ids import ApprovalId
from holdfast.vocabulary.json_types import Json
from holdfast.vocabulary.parts import ToolCallPart

if TYPE_CHECKING:
    from holdfast.session.live_session import LiveSession


def refuse_misfit(live: "LiveSession", approval_id: ApprovalId, arguments: Json) -> None:
    """Refuse arguments that the tool of an approval would not take.

    Raises:
        ToolError: TOOL_INVALID_INPUT saying why; the approval goes on waiting.

    """
    pending = live.fold.approvals.get(approval_id)
    if pending is None:
        return
    call = ToolCallPart(call_id=pending.call_id, name=pending.tool, arguments=arguments)
    resolution = live.tools.resolve(call)
    if isinstance(resolution, InvalidInput):
        raise ToolError(
            ErrorCode.TOOL_INVALID_INPUT,
            f"{pending.tool} does not take these arguments: {resolution.message}",
        )
