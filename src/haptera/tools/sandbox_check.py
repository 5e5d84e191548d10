"""A check of the sandbox: twelve attempts to get out of it, on this machine, with this kernel."""

import contextlib
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec.structs import replace

from haptera.system.isolated_python import PACKAGE_FOLDER, isolated_python
from haptera.tools.command_runner import CommandCall, CommandRunner, Finished, SandboxReport
from haptera.tools.contained_paths import Root
from haptera.tools.sandbox.policy import Sandbox

_SECONDS = 60.0
_PROGRAM = "haptera.tools.sandbox.probes"


class Probe(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt to get out, and what came of it."""

    name: str
    denied: bool
    detail: str


class SandboxCheck(msgspec.Struct, frozen=True, kw_only=True):
    """What confines commands here, and whether it held."""

    report: SandboxReport
    probes: tuple[Probe, ...] = ()

    @property
    def holds(self) -> bool:
        """Whether the sandbox is enough and every probe was denied."""
        denied = bool(self.probes) and all(probe.denied for probe in self.probes)
        return denied and self.report.is_available


async def check_sandbox(
    place: str | os.PathLike[str],
    *,
    sandbox: Sandbox | None = None,
    confined: bool = True,
    system: str = "/etc",
) -> SandboxCheck:
    """Run the probes in the sandbox, in a new folder in `place` that is removed afterwards.

    `place` should not be a folder for temporary files: the sandbox has its own, and what the probes
    aim at would not even be seen. With `confined=False` they run without a sandbox, which shows
    that the probes work at all; `system` is then a folder that may be written.
    """
    with _targets(place, system) as (folder, targets, listener):
        home = str(folder / "home")
        readable = (sys.prefix, sys.base_prefix, PACKAGE_FOLDER)
        wanted = replace(sandbox or Sandbox(), home=home)
        wanted = replace(wanted, readable=(*wanted.readable, *readable))
        root = Root(folder / "root")
        runner = CommandRunner(root, sandbox=wanted if confined else None)
        report = await runner.report()
        if confined and not report.layers:
            return SandboxCheck(report=report)
        output: list[bytes] = []

        def take(piece: bytes) -> bool:
            output.append(piece)
            return True

        argv = tuple(isolated_python(_PROGRAM, json.dumps(targets)))
        invocation = CommandCall(
            argv=argv,
            folder="work",
            timeout=_SECONDS,
            environment={"PATH": "/usr/bin:/bin"},
            may_run_unconfined=True,
        )
        finished = await runner.run(invocation, take)
        probes = _read(b"".join(output), finished)
        seen = _seen_from_outside(listener, folder, targets["canary"])
        return SandboxCheck(report=report, probes=tuple(_corrected(probes, seen)))


def _read(output: bytes, finished: Finished) -> list[Probe]:
    """Read what the probes said; a line that is none of theirs is told, not hidden."""
    try:
        lines = [json.loads(line) for line in output.decode().splitlines()]
    except ValueError:
        text = output.decode("utf-8", "replace").strip()
        return [Probe(name="start", denied=False, detail=f"{finished.ending.failure} {text}")]
    return [
        Probe(name=line["probe"], denied=not line["allowed"], detail=line["detail"])
        for line in lines
    ]


def _corrected(probes: list[Probe], seen: dict[str, str]) -> Iterator[Probe]:
    """Believe what was seen from outside over what a probe said."""
    for probe in probes:
        detail = seen.get(probe.name)
        yield probe if detail is None else replace(probe, denied=False, detail=detail)


def _seen_from_outside(listener: socket.socket, folder: Path, canary: str) -> dict[str, str]:
    seen = {}
    with contextlib.suppress(BlockingIOError):
        if listener.recv(1000) == canary.encode():
            seen["connect"] = "reached it by UDP"
    if (folder / "outside" / "escaped").exists():
        seen["follow_link"] = "wrote outside"
    return seen


@contextlib.contextmanager
def _targets(
    place: str | os.PathLike[str], system: str
) -> Iterator[tuple[Path, dict[str, str], socket.socket]]:
    """Make what the probes aim at: folders, a secret, a process, sockets."""
    folder = Path(os.path.realpath(tempfile.mkdtemp(prefix="haptera-check-", dir=place)))
    canary = f"canary-{secrets.token_hex(16)}"
    for name in ("root/work", "outside", "home/.ssh"):
        (folder / name).mkdir(parents=True)
    (folder / "home/.ssh/id_canary").write_text(canary, encoding="ascii")
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        tcp, udp, named, in_folder = (
            stack.enter_context(socket.socket(family, kind))
            for family, kind in (
                (socket.AF_INET, socket.SOCK_STREAM),
                (socket.AF_INET, socket.SOCK_DGRAM),
                (socket.AF_UNIX, socket.SOCK_STREAM),
                (socket.AF_UNIX, socket.SOCK_STREAM),
            )
        )
        for connection in (tcp, udp):
            connection.bind(("127.0.0.1", 0))
        udp.settimeout(0)
        named.bind(f"\0{canary}")
        path = str(folder / "outside/s")
        with contextlib.suppress(OSError):  # the path is longer than that of a socket may be
            in_folder.bind(path)
            in_folder.listen()
        tcp.listen()
        named.listen()
        victim = subprocess.Popen(["/bin/sleep", "600"], env={"CANARY": canary})
        # Called in reverse order: it is killed, then waited for.
        stack.callback(victim.wait)
        stack.callback(victim.kill)
        target = {
            "system": system,
            "secret": str(folder / "home/.ssh/id_canary"),
            "outside": str(folder / "outside"),
            "tcp": str(tcp.getsockname()[1]),
            "udp": str(udp.getsockname()[1]),
            "name": canary,
            "socket": path,
            "victim": str(victim.pid),
            "canary": canary,
        }
        yield folder, target, udp
