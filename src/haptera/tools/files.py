"""The file tools: read, write, edit and list, kept to one root folder."""

import os
import stat
from typing import Annotated

import msgspec
from msgspec import Meta

from haptera.kernel.blocks.tool_registry.running import image
from haptera.kernel.blocks.tool_registry.tool import AnyTool, tool
from haptera.model.ids import SessionId
from haptera.model.json_types import JsonObject
from haptera.model.parts import MediaPart
from haptera.ports.tools import ToolContext
from haptera.system.threads import run_in_thread
from haptera.tools.contained_paths import NameInFolder, PathRefusedError, Root
from haptera.tools.editing import Edit, EditError, apply_edits, difference
from haptera.tools.file_contents import (
    MOST_EDITED,
    FileContent,
    SeenFiles,
    StaleFileError,
    picture_kind,
    read_at,
    read_lines,
    read_whole,
    replace_content,
)
from haptera.tools.hidden_files import fits_any, hidden_by_rules, left_out_note
from haptera.tools.output import Outputs

_MOST_LINES = 2000
_LONGEST_LINE = 2000
_MOST_ENTRIES = 1000
_MOST_PICTURE = 4 << 20

Lines = Annotated[int, Meta(ge=1, le=_MOST_LINES)]
"""How many lines are asked for."""


class FileTools:
    """What the file tools share: the root, and what sessions have seen."""

    def __init__(self, root: Root, outputs: Outputs, seen: SeenFiles) -> None:
        self._root = root
        self._outputs = outputs
        self._seen = seen

    def tools(self) -> list[AnyTool]:
        """Make the tools."""
        return [
            tool(name="read", effect="read", idempotent=True)(self.read_file),
            tool(name="write", approval="ask", effect="write")(self.write_file),
            tool(name="edit", approval="ask", effect="write")(self.edit_file),
            tool(name="list", effect="read", idempotent=True)(self.list_folder),
        ]

    async def read_file(
        self,
        context: ToolContext,
        path: str,
        *,
        offset: Annotated[int, Meta(ge=1)] = 1,
        limit: Lines = _MOST_LINES,
    ) -> str | MediaPart:
        """Read a file beneath the root folder: its lines with their numbers, or a picture.

        Args:
            path: Where it is, from the root folder.
            offset: The first line to show, from 1.
            limit: How many lines to show.

        """
        shown = await run_in_thread(lambda: self._read(context, path, (offset, limit)))
        return await self._outputs.shown(context, shown) if isinstance(shown, str) else shown

    async def write_file(self, context: ToolContext, path: str, content: str) -> str:
        """Write a whole file; folders above it are made. One that exists must have been read.

        Args:
            path: Where it is to be, from the root folder.
            content: All of its text.

        """
        done = await run_in_thread(lambda: self._write(context.session_id, path, content))
        return await self._outputs.shown(context, done)

    async def edit_file(self, context: ToolContext, path: str, edits: list[Edit]) -> str:
        """Replace pieces of a file that has been read: all of them, or none if one does not fit.

        Args:
            path: Where it is, from the root folder.
            edits: What to replace, in order; `old` is copied exactly and occurs once, or `all` is
                set.

        """
        done = await run_in_thread(lambda: self._edit(context.session_id, path, edits))
        return await self._outputs.shown(context, done)

    async def list_folder(self, context: ToolContext, path: str = ".") -> str:
        """List a folder: folders end with a slash, links show where they lead, files their size.

        Args:
            path: Where it is, from the root folder.

        """
        return await self._outputs.shown(
            context, await run_in_thread(lambda: self._list(context, path))
        )

    def preview(self, name: str, arguments: JsonObject) -> str | None:
        """Return the difference that a call of write or edit would make now; None if it fails."""
        try:
            return self._preview(name, arguments)
        except FileNotFoundError:  # not even its folder is there
            if name != "write":
                return None
            path = self._root.real_path(str(arguments["path"]))
            return difference("", str(arguments["content"]), path)
        except (OSError, KeyError, EditError, PathRefusedError, msgspec.ValidationError):
            return None

    def _preview(self, name: str, arguments: JsonObject) -> str | None:
        with self._root.located(str(arguments["path"])) as target:
            try:
                before = read_at(target)
            except FileNotFoundError:
                before = FileContent(target.path, b"")
            if before is None or before.text is None:
                return None
            if name == "write":
                return difference(before.text, str(arguments["content"]), target.path)
            edits = msgspec.convert(arguments["edits"], list[Edit])
            text, after, _ = _edited(before.text, edits)
            return difference(text, after, target.path)

    def _read(self, context: ToolContext, path: str, lines: tuple[int, int]) -> str | MediaPart:
        file = read_whole(self._root, path)
        if file is None:
            return self._read_large(context, path, lines)
        kind = picture_kind(file.content)
        if kind is not None and len(file.content) <= _MOST_PICTURE:
            return image(file.content, kind)
        if file.text is None and b"\0" in file.content:
            return f"{file.path} is not text: {len(file.content)} bytes, SHA-256 {file.digest}"
        self._seen.remember(context.session_id, file.path, file.digest)
        # Not `splitlines`, for which a CR alone ends a line, too.
        pieces = file.content.split(b"\n")
        if not pieces[-1]:
            pieces.pop()
        offset, limit = lines
        shown = [
            _numbered(offset + at, piece) for at, piece in enumerate(pieces[offset - 1 :][:limit])
        ]
        return "\n".join([*shown, *_notes(file, offset, shown=len(shown), total=len(pieces))])

    def _read_large(self, context: ToolContext, path: str, lines: tuple[int, int]) -> str:
        offset, limit = lines
        shown, number = [], 0
        for number, piece in enumerate(read_lines(self._root, path, context.signal), 1):
            if number >= offset + limit:
                break
            if number >= offset:
                shown.append(_numbered(number, piece))
        note = f"[more than {MOST_EDITED >> 20} MiB: it can be read and not edited]"
        more = f"[more lines follow, from offset={offset + limit} on]"
        return "\n".join([*shown, more if number >= offset + limit else "[the end]", note])

    def _write(self, session: SessionId, path: str, content: str) -> str:
        self._root.make_folders(path)
        with self._root.located(path) as target:
            before = self._existing(session, target)
            data = content.encode("utf-8", "replace")
            replace_content(target, data, before=before)
            self._remember(session, target.path, data)
        if before is None:
            return f"{target.path} is new: {len(content.splitlines())} lines, {len(data)} bytes"
        changed = difference(before.text or "", content, target.path)
        return changed or f"{target.path} was like this already"

    def _edit(self, session: SessionId, path: str, edits: list[Edit]) -> str:
        with self._root.located(path) as target:
            before = self._existing(session, target)
            if before is None:
                raise FileNotFoundError(f"{target.path!r} does not exist; write it")
            if before.text is None:
                raise StaleFileError(f"{target.path!r} is not UTF-8 text and cannot be edited")
            text, after, written = _edited(before.text, edits)
            data = written.encode("utf-8", "replace")
            replace_content(target, data, before=before)
            self._remember(session, target.path, data)
        return difference(text, after, target.path)

    def _existing(self, session: SessionId, target: NameInFolder) -> FileContent | None:
        """Return what is to be replaced, if it is what the session has seen."""
        try:
            before = read_at(target)
        except FileNotFoundError:
            return None
        if before is None:
            raise StaleFileError(f"{target.path!r} is larger than {MOST_EDITED >> 20} MiB")
        self._seen.check(session, before)
        return before

    def _remember(self, session: SessionId, path: str, data: bytes) -> None:
        # What a session wrote it has seen: its next edit needs no new read.
        self._seen.remember(session, path, FileContent(path, data).digest)

    def _list(self, context: ToolContext, path: str) -> str:
        with self._root.opened_folder(path) as folder:
            hidden = hidden_by_rules(context, "list", folder.path)
            names, left_out = [], 0
            for name in sorted(os.listdir(folder.descriptor)):
                real = os.path.normpath(f"{folder.path}/{name}")
                if self._root.private_beneath().holds(real):
                    continue
                if fits_any(hidden.asked, real) and not fits_any(hidden.denied, real):
                    left_out += 1
                elif not fits_any(hidden.denied, real):
                    names.append(name)
            lines = [_described(folder.descriptor, name) for name in names[:_MOST_ENTRIES]]
        if len(names) > _MOST_ENTRIES:
            lines.append(f"[{len(names) - _MOST_ENTRIES} more]")
        return "\n".join([*lines, *left_out_note(left_out, hidden)]) or "[empty]"


def _numbered(number: int, line: bytes) -> str:
    text = line.removesuffix(b"\r").decode("utf-8", "replace")
    if len(text) > _LONGEST_LINE:
        text = f"{text[:_LONGEST_LINE]} [{len(text) - _LONGEST_LINE} more characters]"
    return f"{number}\t{text}"


def _notes(file: FileContent, offset: int, *, shown: int, total: int) -> list[str]:
    """Say what the lines do not show."""
    notes = []
    if not total:
        notes.append("[the file is empty]")
    elif not shown:
        notes.append(f"[the file has {total} lines]")
    elif offset + shown <= total:
        notes.append(
            f"[{total - offset - shown + 1} lines follow, from offset={offset + shown} on]"
        )
    if file.text is None:
        notes.append("[not UTF-8: some characters are replaced, and it cannot be edited]")
    elif file.content and not file.content.endswith(b"\n"):
        notes.append("[no newline at the end]")
    if b"\r\n" in file.content:
        notes.append("[lines end with CR LF]")
    return notes


def _edited(text: str, edits: list[Edit]) -> tuple[str, str, str]:
    """Return a text before and after edits, as it is shown, and what is to be written.

    Models copy lines with plain ends: where all lines end with CR LF, edits are compared without
    CR, and the file gets it back.
    """
    if "\r\n" not in text or text.count("\n") != text.count("\r\n"):
        after = apply_edits(text, edits)
        return text, after, after
    plain = text.replace("\r\n", "\n")
    after = apply_edits(plain, [_plain_edit(edit) for edit in edits])
    return plain, after, after.replace("\n", "\r\n")


def _plain_edit(edit: Edit) -> Edit:
    return Edit(edit.old.replace("\r\n", "\n"), edit.new.replace("\r\n", "\n"), edit.all)


def _described(folder: int, name: str) -> str:
    """Describe one entry without following it."""
    try:
        state = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if stat.S_ISLNK(state.st_mode):
            return f"{name} -> {os.readlink(name, dir_fd=folder)}"
    except OSError:  # it is gone by now
        return name
    if stat.S_ISDIR(state.st_mode):
        return f"{name}/"
    return f"{name} ({state.st_size} bytes)" if stat.S_ISREG(state.st_mode) else f"{name} (special)"
