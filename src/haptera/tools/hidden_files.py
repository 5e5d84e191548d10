"""Files that permission rules keep out of what `list`, `glob` and `grep` show."""

from collections.abc import Iterable

from haptera.kernel.blocks.permission_rules.wildcards import matches_path
from haptera.ports.permissions import HiddenPaths
from haptera.ports.tools import ToolContext

_NONE = HiddenPaths()


def hidden_by_rules(context: ToolContext, tool: str, folder: str) -> HiddenPaths:
    """Return what the agent's rules hide from a tool that looks through a folder."""
    hides = context.surroundings.hides_paths
    return _NONE if hides is None else hides(tool, folder)


def fits_any(patterns: Iterable[str], path: str) -> bool:
    """Whether a path beneath the root, or a folder above it, fits one of the patterns."""
    return any(matches_path(pattern, path) for pattern in patterns)


def left_out_note(count: int, hidden: HiddenPaths) -> list[str]:
    """Say how many were left out and what to do about it; nothing when there were none.

    Every hidden file beneath the folder counts, whether or not it would have been found: otherwise
    the number would tell what is in the files, and how they are named.
    """
    if not count:
        return []
    files, them = ("1 file or folder is", "it") if count == 1 else (f"{count} are", "them")
    return [
        f"[{files} left out: permission rules ask about {', '.join(hidden.asked)}. To request "
        f"approval for {them}, name the path in a call]"
    ]
