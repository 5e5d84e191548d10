"""Runs commands beneath a root: finds out how they can be confined, and sets each one up."""

import asyncio
import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Mapping

import msgspec

from holdfast.ports.threads import run_in_thread
from holdfast.tools.contained_paths import Root
from holdfast.tools.running_command import Ending, RunningCommand
from holdfast.tools.sandbox.placeholders import Placeholders
from holdfast.tools.sandbox.plan import TEMPORARY, Plan
from holdfast.tools.sandbox.policy import (
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
        self._temporary: str | None = None
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
        with tempfile.TemporaryDirectory(prefix="holdfast-") as folder:
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
        if self._temporary is None:  # not before: most processes run no command
            self._temporary = tempfile.mkdtemp(prefix="holdfast-")
            weakref.finalize(self, shutil.rmtree, self._temporary, ignore_errors=True)
        temporary = self._temporary
        names = sandbox.protected if "namespaces" in layers else ()
        with Placeholders(self._root.descriptor, names) as placeholders:
            # Only a mount needs something to be mounted on. Landlock leaves names out, whether they
            # exist or not.
            protected = placeholders.held if names else list(sandbox.protected)
            plan = await run_in_thread(
                lambda: self._plan(invocation, layers, protected, temporary=temporary)
            )
            running = RunningCommand(plan, take)
            return await _attend(running, invocation)

    def _plan(
        self,
        invocation: CommandCall,
        layers: tuple[str, ...],
        protected: list[str],
        *,
        temporary: str,
    ) -> Plan:
        with self._root.opened(invocation.folder, os.O_PATH | os.O_DIRECTORY) as folder:
            start = folder.path
        seen = TEMPORARY if "namespaces" in layers else temporary
        command = ConfinedCommand(
            argv=invocation.argv,
            environment={**invocation.environment, "TMPDIR": seen},
            root=self._root.path,
            root_identity=self._root.identity,
            folder=start,
            temporary=temporary,
        )
        return make_plan(command, self._sandbox or Sandbox(), layers=layers, protected=protected)


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
