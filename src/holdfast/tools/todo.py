"""The to-do list: what a model plans and what is done, for itself and for those who watch.

A module of its own because a tool is looked for under its name.
"""

from collections import OrderedDict
from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta

from holdfast.blocks.tool_registry.tool import AnyTool, tool
from holdfast.ports.tools import ToolContext
from holdfast.vocabulary.ids import SessionId

_MOST_ITEMS = 200
_MOST_SESSIONS = 1000
_MARKS = {"pending": "[ ]", "in_progress": "[>]", "done": "[x]"}

TodoStatus: TypeAlias = Literal["pending", "in_progress", "done"]


class TodoItem(msgspec.Struct, frozen=True):
    """One thing to do."""

    text: Annotated[str, Meta(min_length=1, max_length=500)]
    status: TodoStatus = "pending"


def todo_tool() -> AnyTool:
    """Make the tool; it keeps one list per session, in memory.

    Every list is in the log as well, with the call that wrote it.
    """
    lists: OrderedDict[SessionId, list[TodoItem]] = OrderedDict()

    @tool(effect="read", idempotent=True)
    async def todo(
        context: ToolContext,
        items: Annotated[list[TodoItem], Meta(max_length=_MOST_ITEMS)] | None = None,
    ) -> str:
        """Keep a list of what is to be done in a task of several steps.

        Args:
            items: The whole list, which replaces the one before; without it the list is shown.

        """
        if items is not None:
            lists[context.session_id] = items
            lists.move_to_end(context.session_id)
            if len(lists) > _MOST_SESSIONS:
                lists.popitem(last=False)
        kept = lists.get(context.session_id, [])
        shown = [f"{_MARKS[item.status]} {item.text}" for item in kept]
        return "\n".join(shown) or "[the list is empty]"

    return todo
