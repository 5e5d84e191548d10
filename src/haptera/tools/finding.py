"""The tools that find things: glob finds files by their names, grep by what is in them."""

import json
import os
import stat
from typing import Annotated

import msgspec
from msgspec import Meta

from haptera.kernel.blocks.permission_rules.wildcards import alternatives, matches_file
from haptera.kernel.blocks.tool_registry.tool import AnyTool, tool
from haptera.ports.tools import ToolContext
from haptera.system.isolated_python import IsolatedProcess
from haptera.system.threads import run_in_thread
from haptera.tools.contained_paths import PathRefusedError, Root
from haptera.tools.hidden_files import fits_any, hidden_by_rules, left_out_note
from haptera.tools.output import Outputs
from haptera.tools.sandbox.private_beneath import PrivateBeneath
from haptera.tools.tree_walk import SKIPPED, walk_files

_MOST_FOUND = 1000
_MOST_LOOKED_AT = 200_000
_SEARCH_SECONDS = 30.0
_PROGRAM = "haptera.tools.search_program"

FoundLimit = Annotated[int, Meta(ge=1, le=_MOST_FOUND)]


class SearchError(Exception):
    """A search that cannot be made, or took too long."""


class _Search(msgspec.Struct, frozen=True):
    """What the process that searches is told."""

    pattern: str
    ignore_case: bool
    files: str | None
    limit: int
    start: str = "."
    """Where the search begins beneath the root; the patterns below begin at the root."""
    denied: tuple[str, ...] = ()
    asked: tuple[str, ...] = ()
    private: PrivateBeneath = PrivateBeneath()


class FindingTools:
    """What the tools that find things share."""

    def __init__(self, root: Root, outputs: Outputs, *, seconds: float = _SEARCH_SECONDS) -> None:
        self._root = root
        self._outputs = outputs
        self._seconds = seconds

    def tools(self) -> list[AnyTool]:
        """Make the tools."""
        return [
            tool(name="glob", effect="read", idempotent=True)(self.glob),
            tool(name="grep", effect="read", idempotent=True)(self.grep),
        ]

    async def glob(
        self,
        context: ToolContext,
        pattern: str,
        path: str = ".",
        *,
        limit: FoundLimit = _MOST_FOUND,
    ) -> str:
        """Find files by name beneath a folder; links are not followed.

        Args:
            pattern: `*` is any text in a name, `**` any folders, `{a,b}` either. Without a slash
                it is looked for in every folder.
            path: The folder to look in, from the root folder.
            limit: How many files to show.

        """
        _check_names(pattern)
        paths = await run_in_thread(lambda: self._glob(context, (path, pattern), limit))
        return await self._outputs.shown(context, paths)

    async def grep(
        self,
        context: ToolContext,
        pattern: str,
        path: str = ".",
        *,
        files: str | None = None,
        ignore_case: bool = False,
        limit: FoundLimit = 200,
    ) -> str:
        """Find lines in files by a regular expression (Python's), line by line.

        Args:
            pattern: What to look for.
            path: The folder or file to look in, from the root folder.
            files: Only files whose names fit, such as `*.py` or `src/**/*.{ts,tsx}`.
            ignore_case: Whether upper and lower case are the same.
            limit: How many lines to show.

        """
        _check_names(files or "")
        wanted = _Search(pattern, ignore_case, files, limit)
        matches = await run_in_thread(lambda: self._grep(context, path, wanted))
        return await self._outputs.shown(context, matches)

    def _glob(self, context: ToolContext, where: tuple[str, str], limit: int) -> str:
        path, pattern = where
        paths: list[str] = []
        note, left_out = "", 0
        with self._root.opened_folder(path) as folder:
            prefix = "" if folder.path == "." else f"{folder.path}/"
            hidden = hidden_by_rules(context, "glob", folder.path)
            walk = walk_files(folder.descriptor, frozenset(SKIPPED))
            for number, (file, _, _) in enumerate(walk):
                if context.signal.aborted or number >= _MOST_LOOKED_AT:
                    note = f"[stopped after {number} files]"
                    break
                # What is denied is not counted, either: the number would tell that it is there.
                if fits_any(hidden.denied, prefix + file) or self._is_closed(prefix + file):
                    continue
                if fits_any(hidden.asked, prefix + file):
                    left_out += 1
                    continue
                if not matches_file(pattern, file):
                    continue
                if len(paths) == limit:
                    note = f"[there are more than {limit}]"
                    break
                paths.append(prefix + file)
        shown = [*paths, note] if note else paths or ["[no file fits]"]
        return "\n".join([*shown, *left_out_note(left_out, hidden)])

    def _grep(self, context: ToolContext, path: str, wanted: _Search) -> str:
        # Opening a pipe must not wait for a writer, and a terminal must not become this process's
        # own.
        with self._root.opened(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY) as start:
            kind = os.fstat(start.descriptor).st_mode
            if not (stat.S_ISDIR(kind) or stat.S_ISREG(kind)):
                raise PathRefusedError(f"{start.path!r} is neither a folder nor a regular file")
            hidden = hidden_by_rules(context, "grep", start.path)
            wanted = msgspec.structs.replace(
                wanted,
                start=start.path,
                denied=hidden.denied,
                asked=hidden.asked,
                private=self._root.private_beneath(),
            )
            answer = _search(context, start.descriptor, wanted, seconds=self._seconds)
        lines = [json.loads(line) for line in answer.splitlines()]
        for message in lines:
            if "failed" in message:
                raise SearchError(message["failed"])
        shown = [
            f"{file}:{message['line']}: {message['text']}"
            for message in lines
            if "path" in message
            # Rules are checked by the process that searches; a guard of the caller's only here.
            and not self._is_closed(file := _joined(start.path, message["path"]))
        ]
        end = lines[-1] if lines else {}
        if end.get("more"):
            shown.append(f"[there are more than {wanted.limit}; look for something narrower]")
        notes = left_out_note(end.get("left_out", 0), hidden)
        return "\n".join([*(shown or ["[no line fits]"]), *notes])

    def _is_closed(self, path: str) -> bool:
        return self._root.is_refused("read", path)


def _check_names(pattern: str) -> None:
    try:
        alternatives(pattern)
    except ValueError as error:
        raise SearchError(f"the pattern of names is too large: {error}") from error


def _joined(start: str, path: str) -> str:
    return os.path.normpath(f"{start}/{path}") if path else start


def _search(context: ToolContext, start: int, wanted: _Search, *, seconds: float) -> bytes:
    """Let a process of its own search; kill it after `seconds`, or when the query is aborted."""
    search = IsolatedProcess(_PROGRAM, *SKIPPED, str(start), descriptors=(start,))
    forget = context.signal.add_listener(search.stop)
    try:
        # Not msgspec: the path may hold bytes that are no text, which `json` escapes.
        request = json.dumps(msgspec.to_builtins(wanted)).encode() + b"\n"
        answer = search.answer(request, seconds=seconds)
    except TimeoutError:
        message = f"the search took longer than {seconds:g} s; try a simpler pattern"
        raise SearchError(message) from None
    finally:
        forget()
    # An abort has killed it, or its own alarm has.
    if answer is None:
        raise SearchError("the search was stopped before it finished")
    return answer
