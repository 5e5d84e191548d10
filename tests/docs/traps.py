"""A working folder that another person wrote: modules in it that no program may import."""

from pathlib import Path

_NAMES = ("haptera", "asyncio", "json", "subprocess", "msgspec", "mcp_server_time")


def folder_of_traps(folder: Path) -> Path:
    """Make a folder in which modules that programs import end the program instead."""
    folder.mkdir(exist_ok=True)
    for name in _NAMES:
        (folder / f"{name}.py").write_text("raise SystemExit('a module of the working folder ran')")
    return folder
