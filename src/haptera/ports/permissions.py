"""The ports around permissions: what tools say of calls and may reach, and what projects keep."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

import msgspec

from haptera.model.approvals import CallFacts, Grant
from haptera.model.json_types import JsonObject
from haptera.ports.child_sessions import ChildHost
from haptera.ports.session_store import Blobs

PathGuard: TypeAlias = Callable[[Literal["read", "write"], str], str | None]
"""Asked about the real path of a file beneath a tool's root; returns why it is refused, or None."""


class HiddenPaths(msgspec.Struct, frozen=True):
    """Patterns of the files that a tool leaves out when it looks through a folder."""

    denied: tuple[str, ...] = ()
    """Left out without a word."""
    asked: tuple[str, ...] = ()
    """Left out and counted: a person can approve a call that names one of them."""


HidesPaths: TypeAlias = Callable[[str, str], HiddenPaths]
"""Gets a tool's name and the real path of a folder that it looks through."""


class ToolSurroundings(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """What an agent gives to the tools that come with Haptera; a tool need not use any of it."""

    environment: Mapping[str, str] | None = None
    """The agent's variables; a tool picks by name what a command may see."""
    blobs: Callable[[], Blobs] | None = None
    """Returns where long output is kept: with the session."""
    refuses_path: PathGuard | None = None
    """The permission rules that deny files, whatever name they are reached by."""
    hides_paths: HidesPaths | None = None
    """The permission rules that keep files out of what `list`, `glob` and `grep` show."""
    may_run_unconfined: bool = False
    """Whether a person approved that this command runs without a sandbox that is enough."""
    child_host: ChildHost[Any] | None = None
    """The agent, as sub-agents see it."""

    def __repr__(self) -> str:
        return "ToolSurroundings()"


NO_SURROUNDINGS = ToolSurroundings()


@runtime_checkable
class InspectedTool(Protocol):
    """A tool that can say what a call would do.

    `facts` has no effect. What it cannot say it leaves out. What it raises makes the call one that
    a person is asked about.
    """

    async def facts(self, arguments: JsonObject) -> CallFacts:
        """Say what a call with these arguments would really do now."""
        ...


class ProjectGrants(Protocol):
    """Keeps approvals that hold for a whole project, outside of its folder.

    - `find` returns what was added before by any process of this user, and does not raise: what
      cannot be read holds nothing.
    - When `add` returns, the approval is kept. It raises a `StoreError` when it cannot be.
    """

    async def find(self, folder: str) -> Sequence[Grant]:
        """Return the approvals that were given for a folder."""
        ...

    async def add(self, grant: Grant) -> None:
        """Keep an approval."""
        ...
