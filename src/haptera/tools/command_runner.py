"""Runs commands beneath a root: finds out how they can be confined, and sets each one up."""

import asyncio
import os
import re
import shutil
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Mapping

import msgspec
from msgspec.structs import replace

from haptera.system.own_places import own_places
from haptera.system.threads import run_in_thread
from haptera.tools.contained_paths import Root
from haptera.tools.running_command import Ending, RunningCommand
from haptera.tools.sandbox.placeholders import Placeholders
from haptera.tools.sandbox.plan import TEMPORARY, Plan
from haptera.tools.sandbox.policy import (
    ConfinedCommand,
    Sandbox,
    SandboxError,
    can_confine,
    is_enough,
    make_plan,
)

# The end of a query that is stopped is recorded within half a second, whatever its tools do.
_WAIT_ON_ABORT = 0.45
_GRACE_ON_ABORT = 0.2
_WAIT_FOR_END = 5.0
_WAIT_FOR_START = 30.0
_OF_COMMANDS = "tmp"
"""The name of the commands' temporary folder in the one of the runner's own."""
_IDENTITY_SECONDS = 60.0
_SECTION = re.compile(r"\s*\[([^\]]*)\]")
_USER_VALUE = re.compile(r"\s*(name|email)\s*=\s*(.*)", re.IGNORECASE)
_LARGEST_GIT_FILE = 1 << 20


class SandboxReport(msgspec.Struct, frozen=True, kw_only=True):
    """What confines commands here, and what it does not keep from them."""

    layers: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()

    @property
    def backend(self) -> str:
        """The layers in one word."""
        return "+".join(self.layers) or "none"

    @property
    def is_available(self) -> bool:
        """Whether commands are confined well enough to run without being asked about."""
        return is_enough(self.layers)


class CommandCall(msgspec.Struct, frozen=True, kw_only=True):
    """One command as it is asked for."""

    argv: tuple[str, ...]
    folder: str = "."
    timeout: float
    grace: float = 2.0
    """Seconds between SIGTERM and SIGKILL when it takes too long."""
    environment: Mapping[str, str] = {}
    """All of its variables but TMPDIR."""
    may_run_unconfined: bool = False
    """Whether it may run although the sandbox is not enough, or there is none."""


_TRIAL = CommandCall(argv=("/bin/true",), timeout=30)


class Finished(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a command."""

    ending: Ending
    timed_out: bool = False


class CommandRunner:
    """Runs commands. Owns the temporary folder that they share, and what is known of the kernel.

    Does not own the root, the commands' output or who may run what.
    """

    def __init__(self, root: Root, *, sandbox: Sandbox | None) -> None:
        self._root = root
        self._sandbox = sandbox
        self._own_folder = ""
        self._identity_is_of = -1.0
        self._report: SandboxReport | None = None

    async def report(self) -> SandboxReport:
        """Find out what confines commands here, by running one that does nothing."""
        if self._report is None:
            self._report = await self._try_layers()
        return self._report

    async def run(self, invocation: CommandCall, take: Callable[[bytes], bool]) -> Finished:
        """Run a command to its end; `take` gets its output and says whether to go on.

        Raises:
            SandboxError: it could not be confined, and was not started.

        """
        layers: tuple[str, ...] = ()
        if self._sandbox is not None:
            report = await self.report()
            if not report.is_available and not invocation.may_run_unconfined:
                sandbox = "no full sandbox" if report.layers else "no sandbox"
                raise SandboxError(
                    f"{sandbox} is available here ({'; '.join(report.missing)}), "
                    "so the command was not run"
                )
            layers = report.layers
        return await self._run(invocation, take, layers)

    async def _try_layers(self) -> SandboxReport:
        """Try the layers in an empty folder.

        So only what the kernel lacks counts. What cannot be set up for a certain root is an error
        there, and never a reason to confine its commands less.
        """
        wanted = self._sandbox or Sandbox(layers=())
        layers = wanted.layers
        missing: list[str] = []
        with tempfile.TemporaryDirectory(prefix="haptera-") as folder:
            trial = CommandRunner(Root(folder), sandbox=Sandbox(network=wanted.network))
            while can_confine(layers):
                ending = (await trial._run(_TRIAL, lambda _: True, layers)).ending
                if ending.failure is None:
                    return SandboxReport(layers=layers, missing=(*missing, *ending.missing))
                missing.append(ending.failure)
                # A failure that names no layer takes them all away, so that the loop ends.
                layers = tuple(layer for layer in layers if layer != (ending.layer or layer))
        return SandboxReport(missing=tuple(missing) or ("it is switched off",))

    async def _run(
        self, invocation: CommandCall, take: Callable[[bytes], bool], layers: tuple[str, ...]
    ) -> Finished:
        sandbox = self._sandbox or Sandbox()
        if not self._own_folder:  # not before: most processes run no command
            # With a dot: a part of it is seen in the temporary folder of commands.
            self._own_folder = tempfile.mkdtemp(prefix=".haptera-")
            weakref.finalize(self, shutil.rmtree, self._own_folder, ignore_errors=True)
            os.mkdir(os.path.join(self._own_folder, _OF_COMMANDS), 0o700)
        names = sandbox.protected if "namespaces" in layers else ()
        with Placeholders(self._root.descriptor, names) as placeholders:
            # Only a mount needs something to be mounted on. Landlock leaves names out, whether they
            # exist or not.
            protected = placeholders.held if names else list(sandbox.protected)
            plan = await run_in_thread(lambda: self._plan(invocation, layers, protected))
            running = RunningCommand(plan, take)
            return await _attend(running, invocation)

    def _plan(self, invocation: CommandCall, layers: tuple[str, ...], protected: list[str]) -> Plan:
        with self._root.opened(invocation.folder, os.O_PATH | os.O_DIRECTORY) as folder:
            start = folder.path
        sandbox = self._sandbox or Sandbox()
        temporary = os.path.join(self._own_folder, _OF_COMMANDS)
        more = {"TMPDIR": TEMPORARY if "namespaces" in layers else temporary}
        if layers:
            identity = self._identity_file(invocation.environment)
            # Below what the user's own file and the repository say. Where the user's file cannot
            # be covered by an empty one, git would give up on it.
            kind = "SYSTEM" if "namespaces" in layers else "GLOBAL"
            more = {f"GIT_CONFIG_{kind}": identity, **more}
            sandbox = replace(sandbox, readable=(*sandbox.readable, identity))
        command = ConfinedCommand(
            argv=invocation.argv,
            environment={**more, **invocation.environment, "TMPDIR": more["TMPDIR"]},
            root=self._root.path,
            root_identity=self._root.identity,
            folder=start,
            temporary=temporary,
        )
        return make_plan(command, sandbox, layers=layers, protected=protected)

    def _identity_file(self, environment: Mapping[str, str]) -> str:
        """Return a file that tells git who the user is; their own is hidden from commands."""
        path = os.path.join(self._own_folder, "gitconfig")
        now = time.perf_counter() // _IDENTITY_SECONDS
        if now != self._identity_is_of:
            lines = ["[include]", "path = /etc/gitconfig", "[user]"]
            lines += _git_identity(environment)
            # Commands are prepared in threads, and two may write it at once.
            own = f"{path}.{threading.get_ident()}"
            with open(own, "w", encoding="utf-8", errors="surrogateescape") as file:
                file.write("\n".join([*lines, ""]))
            os.rename(own, path)
            self._identity_is_of = now
        return path


def _git_identity(environment: Mapping[str, str]) -> list[str]:
    """Return the name and the address in the user's own git configuration, as lines of a file.

    They are read, and git is not run: what it finds in the root was perhaps made by a command.
    """
    home = environment.get("HOME")
    if home is None:
        return []
    config = next((user.config for user in own_places().users if user.home == home), None)
    identity: dict[str, str] = {}
    for path in (f"{config or f'{home}/.config'}/git/config", f"{home}/.gitconfig"):
        section = ""
        for line in _lines_of(path):
            header = _SECTION.match(line)
            if header is not None:
                section = header[1].strip().lower()
            begin = header.end() if header else 0  # a value may stand behind the header
            if section == "user" and (match := _USER_VALUE.match(line, begin)) is not None:
                # As it stands there, quotes and comments included: git reads it again.
                identity[match[1].lower()] = match[2]
    return [f"{key} = {value}" for key, value in identity.items() if not value.endswith("\\")]


def _lines_of(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.read(_LARGEST_GIT_FILE).splitlines()
    except OSError:
        return []


async def _attend(running: RunningCommand, invocation: CommandCall) -> Finished:
    """Wait for a command; end it when time is up, when there is too much output, or on abort."""
    try:
        # Setting up the sandbox does not count as time of the command.
        await asyncio.wait({running.started}, timeout=_WAIT_FOR_START)
        await asyncio.wait({running.ended}, timeout=invocation.timeout)
        timed_out = not running.ended.done()
        if timed_out:
            running.end(grace=invocation.grace)
            await asyncio.wait({running.ended}, timeout=invocation.grace + _WAIT_FOR_END)
    except asyncio.CancelledError:
        running.end(grace=_GRACE_ON_ABORT)
        await asyncio.wait({running.ended}, timeout=_WAIT_ON_ABORT)
        raise
    finally:
        running.abandon()
    return Finished(ending=running.ended.result(), timed_out=timed_out)
