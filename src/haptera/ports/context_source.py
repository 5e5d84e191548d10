"""The port to context files: what a project tells every model that works in it."""

from typing import Protocol

import msgspec

from haptera.model.context_files import ContextFile, Skill


class FoundContext(msgspec.Struct, frozen=True, kw_only=True):
    """What was found; two are equal when a model would be told the same."""

    files: tuple[ContextFile, ...] = ()
    skills: tuple[Skill, ...] = ()


NO_CONTEXT = FoundContext()


class ContextSource(Protocol):
    """Reads context files and lists skills.

    - It only reads: nothing that it finds is run, and nothing of it is a setting.
    - What cannot be read counts as not there; it does not raise.
    - How much it returns is bounded.
    """

    async def find(self) -> FoundContext:
        """Read what is there now."""
        ...

    async def load_skill(self, name: str) -> str | None:
        """Return the text of a skill, with the names of the files beside it; None without one."""
        ...
