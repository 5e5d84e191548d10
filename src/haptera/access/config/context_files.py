"""Finds instruction files and skills: in the workspace, above it up to its root, and the user's.

The author of the workspace wrote these files. They are read as text, within bounds, and a link in
the workspace is followed only as far as the project goes: what is read is sent to a provider.
"""

import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from haptera.model.context_files import ContextFile, Skill
from haptera.model.json_types import writable
from haptera.model.late_names import late_module
from haptera.ports.context_source import FoundContext
from haptera.system.threads import run_in_thread

LARGEST_CONTEXT_FILE = 32 * 1024
LARGEST_TOTAL = 64 * 1024
SKILL_FILE = "SKILL.md"
_MOST_SKILLS = 100
_MOST_NAMES = 100
_LONGEST_DESCRIPTION = 1024
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_FRONT = re.compile(r"\A---[ \t]*\r?\n(.*?)^---[ \t]*$", re.DOTALL | re.MULTILINE)
_FIELD = re.compile(r"^(name|description):[ \t]*+(.*)$")


class ContextFolders:
    """The `ContextSource` of one workspace. Keeps nothing: every look reads the files anew."""

    def __init__(
        self,
        workspace: Path,
        *,
        files: Sequence[str],
        skills: Sequence[str],
        user: Path,
        environment: Mapping[str, str],
    ) -> None:
        self._workspace = workspace.resolve()
        self._home = Path(environment.get("HOME") or Path.home())
        self._files = tuple(files)
        self._skills = tuple(skills)
        self._user = user
        self._environment = environment

    async def find(self) -> FoundContext:
        """Read what is there now."""
        return await run_in_thread(self.look)

    async def load_skill(self, name: str) -> str | None:
        """Return the text of a skill, with the names of the files beside it."""
        return await run_in_thread(lambda: self._load(name))

    def look(self) -> FoundContext:
        """Read what is there now; blocks."""
        files, left = list[ContextFile](), LARGEST_TOTAL
        for path, root in self._paths():
            content = _read(path, root, most=min(LARGEST_CONTEXT_FILE, left))
            if content is None or not content[0].strip():
                continue
            raw, is_cut = content
            left -= len(raw)
            files.append(_context_file(self._shown(path), raw, is_cut=is_cut))
            if left <= 0:
                break
        return FoundContext(files=tuple(files), skills=tuple(self._list_skills()))

    def _paths(self) -> Iterator[tuple[Path, Path | None]]:
        """Yield the files to read, the most general first, and the folder that they must be in."""
        names = [name for name in self._files if not _is_path(name)]
        folders = [(self._user, None), *((folder, self._root) for folder in self._folders())]
        for folder, root in folders:
            for name in names:
                if (folder / name).is_file():
                    yield folder / name, root
                    break  # several names in one folder are several copies of one text
        for name in self._files:
            if _is_path(name):
                yield self._expanded(name), None

    @property
    def _root(self) -> Path:
        return self._folders()[0]

    def _folders(self) -> list[Path]:
        """Return the folders from the root of the project down to the workspace."""
        folders: list[Path] = []
        for folder in (self._workspace, *self._workspace.parents):
            # A home folder that is a repository itself is not the root of the projects in it.
            if folder == self._home and folders:
                break
            # The user chose the workspace, and perhaps not what stands above it.
            if folders and _is_open_to_others(folder):
                break
            folders.insert(0, folder)
            if (folder / ".git").exists():
                return folders
        return [self._workspace]

    def _expanded(self, name: str) -> Path:
        """Return a path that the user named: `~/`, `${NAME}`, or relative to the workspace."""
        variables = self._environment

        def value(match: "re.Match[str]") -> str:
            # A variable that is not set stays as it is written, and such a path leads nowhere.
            return variables.get(match[1], match[0])

        text = re.sub(r"\$\{(\w+)\}", value, name)
        if text.startswith("~/"):
            return self._home / text[2:]
        return self._workspace / text

    def _shown(self, path: Path) -> str:
        if path.is_relative_to(self._root):
            return writable(str(path.relative_to(self._root)))
        if path.is_relative_to(self._home):
            return writable(f"~/{path.relative_to(self._home)}")
        return writable(str(path))

    def _skill_files(self) -> Iterator[tuple[Path, Path | None]]:
        """Yield every `SKILL.md`; the user's own come first, and win over the project's."""
        skill_folders: list[tuple[Path, Path | None]] = [(self._user / "skills", None)]
        for folder in reversed(self._folders()):
            skill_folders += [(folder / name, self._root) for name in self._skills]
        for skill_folder, root in skill_folders if self._skills else ():
            try:
                folders = sorted(skill_folder.iterdir())[:_MOST_SKILLS]
            except OSError:
                continue
            yield from ((folder / SKILL_FILE, root) for folder in folders)

    def _list_skills(self) -> Iterator[Skill]:
        seen: set[str] = set()
        for path, root in self._skill_files():
            content = _read(path, root, most=LARGEST_CONTEXT_FILE)
            if content is None:
                continue
            fields = _front_matter(_text(content[0]))
            name = fields.get("name", path.parent.name)
            if name in seen or not _NAME.fullmatch(name) or len(seen) >= _MOST_SKILLS:
                continue
            seen.add(name)
            description = fields.get("description", "")[:_LONGEST_DESCRIPTION]
            yield Skill(name=name, description=description, path=self._shown(path))

    def _load(self, name: str) -> str | None:
        # Several folders may have a skill of this name. The one that the model was shown counts.
        wanted = next((skill for skill in self._list_skills() if skill.name == name), None)
        for path, root in self._skill_files():
            if wanted is None or self._shown(path) != wanted.path:
                continue
            content = _read(path, root, most=LARGEST_TOTAL)
            if content is not None:
                cut = f"\n[cut after {LARGEST_TOTAL} bytes]" if content[1] else ""
                beside = ", ".join(_names_beside(path)) or "none"
                return (
                    f"Skill {name}, from {wanted.path}. Files beside it: {beside}.\n\n"
                    f"{_text(content[0])}{cut}"
                )
        return None


def _is_open_to_others(folder: Path) -> bool:
    """Whether a stranger may have put a `.git` and instructions there, as every user can in `/tmp`.

    The sticky bit keeps others from removing files, not from adding them.
    """
    if os.name != "posix":
        return False
    try:
        facts = folder.stat()
    except OSError:
        return True
    return bool(facts.st_mode & stat.S_IWOTH) or facts.st_uid not in {os.geteuid(), 0}


def _is_path(name: str) -> bool:
    return "/" in name or name.startswith(("~", "$"))


def _read(path: Path, root: Path | None, *, most: int) -> tuple[bytes, bool] | None:
    """Read the beginning of a regular file, and whether it goes on; None when there is none.

    With a root, a file that is really elsewhere is not read, whatever links lead to it.
    """
    try:
        real = path.resolve(strict=True)
        if root is not None and not real.is_relative_to(root):
            return None
        # `real` was no link. One that was put there since is refused, and a named pipe is not
        # waited for.
        descriptor = os.open(real, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except (OSError, RuntimeError):  # RuntimeError: links that lead in a circle
        return None
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        content = file.read(most + 1)
    return content[:most], len(content) > most


def _text(raw: bytes) -> str:
    return raw.decode("utf-8-sig", "replace")


def _context_file(path: str, raw: bytes, *, is_cut: bool) -> ContextFile:
    text = _text(raw) + (f"\n[cut after {len(raw)} bytes]" if is_cut else "")
    # It brings OpenSSL's digests, which most agents do not need.
    digest = late_module("hashlib").sha256(text.encode()).hexdigest()
    return ContextFile(path=path, sha256=digest, text=text, is_cut=is_cut)


def _front_matter(text: str) -> dict[str, str]:
    """Read `name` and `description` of the lines between `---`; the rest is not for us.

    A value is the rest of its line, without quotes, or the indented lines that follow it.
    """
    match = _FRONT.match(text)
    fields: dict[str, str] = {}
    last: str | None = None
    for line in match[1].splitlines() if match else ():
        field = _FIELD.match(line)
        if field is not None:
            last, value = field[1], field[2].strip()
            fields[last] = "" if value in {"|", ">", "|-", ">-"} else value.strip("\"'")
        elif last is not None and line[:1] in {" ", "\t"}:
            fields[last] = f"{fields[last]} {line.strip()}".strip()
        else:
            last = None
    return {name: writable(value) for name, value in fields.items() if value}


def _names_beside(path: Path) -> list[str]:
    try:
        names = sorted(entry.name for entry in path.parent.iterdir())
    except OSError:
        return []
    return [writable(name) for name in names if name != SKILL_FILE][:_MOST_NAMES]
