"""PgBouncer in transaction mode, as Debian packages it. It refuses root, as the server does."""

import contextlib
import shutil
import socket
import subprocess

from tests.stores.postgresql.server import APP_ROLE, PostgresServer, as_server_user

_PORT = 6432
_SETTINGS = """
[databases]
* = host={server}
[pgbouncer]
listen_addr =
listen_port = {port}
unix_socket_dir = {folder}
auth_type = trust
auth_file = {folder}/users
pool_mode = transaction
max_client_conn = 500
default_pool_size = 5
server_idle_timeout = 5
logfile = {folder}/log
pidfile = {folder}/pid
"""


class PgBouncer:
    """A pooler before a server."""

    def __init__(self, program: str, postgres: PostgresServer) -> None:
        self._program = program
        self._server = postgres.folder
        self.folder = PostgresServer.new_folder()
        self._process: subprocess.Popen[bytes] | None = None

    def url(self, database: str, *, role: str) -> str:
        """Return the URL of a database behind the pooler."""
        return f"postgresql://{role}@/{database}?host={self.folder}&port={_PORT}"

    def start(self) -> None:
        """Start it and wait until it takes connections."""
        settings = _SETTINGS.format(server=self._server, folder=self.folder, port=_PORT)
        (self.folder / "settings").write_text(settings)
        (self.folder / "users").write_text(f'"postgres" ""\n"{APP_ROLE}" ""\n')
        self._process = subprocess.Popen(
            [self._program, "-q", str(self.folder / "settings")],
            cwd=self.folder,
            **as_server_user(),
        )
        for _ in range(600):
            with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as trial:
                trial.connect(str(self.folder / f".s.PGSQL.{_PORT}"))
                return
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = self._process.wait(timeout=0.05)
                raise AssertionError(f"it ended with {code}")
        raise AssertionError("the pooler does not start")

    def remove(self) -> None:
        """End it and remove its folder."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)
