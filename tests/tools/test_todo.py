"""The to-do list is one per session, replaced as a whole, and shown with marks."""

from pathlib import Path

from haptera.tools import coding_tools
from tests.tools.toolbox import Toolbox


async def test_each_session_has_its_own_list(tmp_path: Path) -> None:
    shared = coding_tools(tmp_path)
    one, other = Toolbox(shared, session="ses_1"), Toolbox(shared, session="ses_2")
    items = [
        {"text": "look", "status": "done"},
        {"text": "fix", "status": "in_progress"},
        {"text": "test"},
    ]
    assert await one.call("todo", items=items) == "[x] look\n[>] fix\n[ ] test"
    assert await one.call("todo") == "[x] look\n[>] fix\n[ ] test"
    assert await other.call("todo") == "[the list is empty]"
    assert await one.call("todo", items=[]) == "[the list is empty]"


async def test_items_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    tools = Toolbox(coding_tools(tmp_path))
    assert "not run" in await tools.call("todo", items=[{"text": ""}])
    assert "not run" in await tools.call("todo", items=[{"text": "a", "status": "soon"}])
    assert "not run" in await tools.call("todo", items=[{"text": "a"}] * 201)
