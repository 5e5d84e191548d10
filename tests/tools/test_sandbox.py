"""A command in the sandbox gets at nothing outside of it, whatever it tries."""

import shutil
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from haptera.tools import Sandbox, check_sandbox, coding_tools
from haptera.tools.command_runner import CommandRunner, SandboxReport
from haptera.tools.contained_paths import Root
from haptera.tools.sandbox.confinement import not_held
from haptera.tools.sandbox.plan import Plan
from tests.architecture.source_tree import ROOT
from tests.fixtures_report import Report
from tests.tools.toolbox import INTERPRETER, PYTHON, Toolbox, names_beneath

pytestmark = pytest.mark.slow

BACKENDS = {
    "namespaces+landlock+seccomp": Sandbox(),
    "landlock+seccomp": Sandbox(layers=("landlock", "seccomp"), readable=INTERPRETER),
    "namespaces+seccomp": Sandbox(layers=("namespaces", "seccomp")),
}
EACH_BACKEND = [
    pytest.param(name, marks=pytest.mark.namespaces) if "namespaces" in name else name
    for name in BACKENDS
]
PROBES = {
    "write_system", "read_secret", "connect", "trace", "look_at_processes", "kill", "follow_link",
    "push_input", "mount", "nest_namespace", "change_user", "use_device",
}  # fmt: skip


@pytest.fixture
def place() -> Path:
    """A folder of this clone, where a sandbox covers it by its own only if the clone is in /tmp."""
    folder = ROOT / ".cache"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture
def uncovered(place: Path) -> Path:
    """A folder that the sandbox does not replace by one of its own, as it does with /tmp."""
    if place.is_relative_to("/tmp"):
        pytest.skip("this clone is in /tmp, which the sandbox covers")
    return place


@pytest.fixture
def root(place: Path) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(dir=place))
    yield folder
    shutil.rmtree(folder)


def tools_in(root: Path, sandbox: Sandbox | None = None) -> Toolbox:
    is_approved = sandbox is not None and sandbox.layers == ("landlock", "seccomp")
    return Toolbox(coding_tools(root, sandbox=sandbox or Sandbox()), is_approved=is_approved)


@pytest.mark.parametrize("backend", EACH_BACKEND)
async def test_the_twelve_probes_are_denied(backend: str, place: Path, report: Report) -> None:
    check = await check_sandbox(place, sandbox=BACKENDS[backend])
    assert check.report.backend == backend
    assert check.report.is_available == check.holds == ("namespaces" in backend)
    assert bool(check.report.missing) == (not check.holds)
    assert {probe.name for probe in check.probes} == PROBES
    assert [probe for probe in check.probes if not probe.denied] == []
    report(f"sandbox probes: {len(check.probes)} of 12 denied by {check.report.backend}")


async def test_without_a_sandbox_the_same_probes_get_out(place: Path, tmp_path: Path) -> None:
    check = await check_sandbox(place, confined=False, system=str(tmp_path))
    assert {probe.name for probe in check.probes} == PROBES
    escaped = {probe.name for probe in check.probes if not probe.denied}
    # The others need root, or a kernel that lets terminals be typed into.
    assert escaped >= {
        "write_system", "read_secret", "connect", "look_at_processes", "kill", "follow_link",
        "change_user",
    }  # fmt: skip
    assert not check.report.is_available


@pytest.mark.namespaces
async def test_only_the_root_and_a_temporary_folder_are_written(
    root: Path, uncovered: Path
) -> None:
    tools = tools_in(root)
    told = await tools.call(
        "shell",
        command=f"touch here /tmp/there /var/tmp/too; touch {uncovered}/out /usr/out ~/out /out; "
        "mkdir /dev/out; ln -s /etc/passwd link; echo x > link; cat /tmp/there && echo kept",
    )
    assert told.count("Read-only file system") == 6
    assert "kept" in told
    assert {"here", "link"} == names_beneath(root)
    assert await tools.call("shell", command="ls /tmp") == "there\ntoo\n[exit status 0]"
    assert not Path("/tmp/there").exists()
    assert not (uncovered / "out").exists()


@pytest.mark.parametrize("backend", EACH_BACKEND)
async def test_secrets_of_the_home_folder_are_not_seen(
    backend: str, root: Path, place: Path
) -> None:
    home = Path(tempfile.mkdtemp(dir=place))
    for name in (".ssh/id", ".aws/credentials", ".cargo/credentials.toml", ".netrc", ".config/gh"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text("SECRET")
    try:
        sandbox = Sandbox(layers=BACKENDS[backend].layers, home=str(home))
        told = await tools_in(root, sandbox).call(
            "shell", command=f"cat $(find {home} -type f); grep -r SECRET {home}; cat {home}/.netrc"
        )
    finally:
        shutil.rmtree(home)
    assert "SECRET" not in told


@pytest.mark.namespaces
async def test_toolchains_in_the_home_folder_are_seen(root: Path, uncovered: Path) -> None:
    home = Path(tempfile.mkdtemp(dir=uncovered))
    for name in (".cargo/bin/tool", "notes.txt", ".local/share/uv/x", ".local/share/keyrings/k"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(name)
    try:
        told = await tools_in(root, Sandbox(home=str(home))).call(
            "shell", command=f"cd {home}; find . -type f | sort"
        )
    finally:
        shutil.rmtree(home)
    assert told == "./.cargo/bin/tool\n./.local/share/uv/x\n./notes.txt\n[exit status 0]"


@pytest.mark.namespaces
async def test_what_may_be_read_in_a_temporary_folder_is_seen_and_not_changed(
    root: Path, tmp_path: Path
) -> None:
    for name in ("shown/notes.txt", "shown/secret/key", "other/notes.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"{name}\n")
    shown = tmp_path / "shown"
    sandbox = Sandbox(readable=(str(shown),), hidden=(str(shown / "secret"),))
    told = await tools_in(root, sandbox).call(
        "shell",
        command=f"cd {tmp_path}; cat */*.txt; ls shown/secret; touch shown/new; chmod 600 shown",
    )
    assert told.startswith("shown/notes.txt\n")
    assert "key" not in told
    assert told.count("Read-only file system") == 2
    assert sorted(path.name for path in shown.iterdir()) == ["notes.txt", "secret"]


CREATED = [
    ".git/hooks/post-checkout", ".git/config", ".git/info/attributes", ".haptera/config.toml",
    ".haptera/hooks/run", ".holdfast/config.toml",
]  # fmt: skip
WAYS = [
    "mkdir -p $(dirname {path}); echo evil > {path}",
    "mkdir -p x/hooks; echo evil > x/f; mv x $(echo {path} | cut -d/ -f1)",
    "rm -rf $(echo {path} | cut -d/ -f1); ln -s /tmp $(echo {path} | cut -d/ -f1); ls {path}",
    "mv $(echo {path} | cut -d/ -f1) aside; mkdir -p $(dirname {path}); echo evil > {path}",
    "umount $(echo {path} | cut -d/ -f1); mkdir -p $(dirname {path}); echo evil > {path}",
    "cd $(echo {path} | cut -d/ -f1) && mkdir -p hooks && echo evil > hooks/x",
    "exec 3< .; cd /proc/self/fd/3; mkdir -p $(dirname {path}); echo evil > {path}",
    "chmod -R 777 .; echo evil > {path}",
]


@pytest.mark.namespaces
@pytest.mark.parametrize("exists", [True, False])
async def test_what_others_would_run_is_neither_made_nor_changed(exists: bool, root: Path) -> None:
    if exists:
        for path in CREATED:
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text("mine")
    before = {path: (root / path).read_text() for path in names_beneath(root)}
    tools = tools_in(root)
    for path in CREATED if exists else (CREATED[0], CREATED[3], CREATED[5]):
        ways = "; ".join(f"( {way} )" for way in WAYS)
        told = await tools.call("shell", command=ways.replace("{path}", path))
        assert "[not started" not in told
    after = {
        path: (root / path).read_text()
        for path in names_beneath(root)
        if path.startswith((".git/", ".haptera/", ".holdfast/"))
    }
    assert after == before
    if not exists:
        assert not (root / ".git").exists()
        assert not (root / ".haptera").exists()
        assert not (root / ".holdfast").exists()


@pytest.mark.namespaces
async def test_without_protection_the_same_ways_do_make_them(root: Path) -> None:
    tools = tools_in(root, Sandbox(protected=()))
    ways = "; ".join(f"( {way} )" for way in WAYS)
    await tools.call("shell", command=ways.replace("{path}", CREATED[0]))
    assert (root / CREATED[0]).read_text() == "evil\n"


async def test_where_only_landlock_is_there_protected_names_are_kept_all_the_same(
    root: Path,
) -> None:
    (root / ".git").mkdir()
    (root / "src").mkdir()
    tools = tools_in(root, BACKENDS["landlock+seccomp"])
    told = await tools.call(
        "shell", command="touch src/a; touch .git/config; mkdir .haptera; ls -A $TMPDIR"
    )
    assert told.count("Permission denied") == 2
    assert names_beneath(root) == {"src/a"}
    assert not (root / ".haptera").exists()


@pytest.mark.parametrize("backend", EACH_BACKEND)
async def test_a_protected_name_that_is_a_link_stops_the_command(backend: str, root: Path) -> None:
    (root / "repo").mkdir()
    (root / ".git").symlink_to("repo")
    told = await tools_in(root, BACKENDS[backend]).call("shell", command="echo done")
    assert told.startswith("[not started: ")
    assert "symbolic link" in told


@pytest.mark.namespaces
async def test_placeholders_of_a_crash_are_removed_by_the_next_command(root: Path) -> None:
    (root / ".git").mkdir()
    (root / ".git").chmod(stat.S_ISVTX | 0o555)
    await tools_in(root).call("shell", command="true")
    assert list(root.iterdir()) == []
    (root / ".git").mkdir()
    await tools_in(root).call("shell", command="true")
    assert list(root.iterdir()) == [root / ".git"]  # one of the user's own is not touched


@pytest.mark.namespaces
async def test_there_is_no_network_but_a_loopback_of_its_own(root: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        (root / "probe.py").write_text(
            "import socket, threading\n"
            "s = socket.create_server(('127.0.0.1', 0))\n"
            "socket.create_connection(s.getsockname(), 5); print('own loopback')\n"
            f"try: socket.create_connection(('127.0.0.1', {port}), 5); print('reached')\n"
            "except OSError as e: print('refused')\n"
            "for f in (socket.AF_PACKET, socket.AF_VSOCK, socket.AF_ALG):\n"
            "    try: socket.socket(f, socket.SOCK_RAW); print('opened', f)\n"
            "    except OSError: pass\n"
        )
        told = await tools_in(root).call("shell", command=f"{PYTHON} probe.py")
        assert told == "own loopback\nrefused\n[exit status 0]"
        told = await tools_in(root, Sandbox(network=True)).call(
            "shell", command=f"{PYTHON} probe.py"
        )
        assert "reached" in told


@pytest.mark.namespaces
async def test_sockets_of_the_machine_are_not_seen(root: Path, place: Path) -> None:
    told = await tools_in(root).call("shell", command="ls -A /run /dev/shm")
    assert told == "/dev/shm:\n\n/run:\n[exit status 0]"


@pytest.mark.namespaces
async def test_a_command_has_limits(root: Path) -> None:
    sandbox = Sandbox(limits={"RLIMIT_FSIZE": 1 << 20, "RLIMIT_NOFILE": 64})
    told = await tools_in(root, sandbox).call(
        "shell", command="ulimit -n; ulimit -c; dd if=/dev/zero of=big bs=1M count=4 2>&1"
    )
    assert told.startswith("64\n0\n")
    assert "exit status 153" in told or "File too large" in told
    assert (root / "big").stat().st_size == 1 << 20


@pytest.mark.namespaces
async def test_more_can_be_written_and_hidden(root: Path, place: Path) -> None:
    other = Path(tempfile.mkdtemp(dir=place))
    (other / "hidden").mkdir()
    (other / "hidden/file").write_text("SECRET")
    try:
        sandbox = Sandbox(writable=(str(other),), hidden=(str(other / "hidden"),))
        told = await tools_in(root, sandbox).call(
            "shell", command=f"touch {other}/made; cat {other}/hidden/file"
        )
        assert (other / "made").exists()
    finally:
        shutil.rmtree(other)
    assert "SECRET" not in told


@pytest.mark.namespaces
async def test_root_cannot_read_what_only_root_can_read(root: Path) -> None:
    told = await tools_in(root).call("shell", command="cat /etc/shadow /etc/gshadow | wc -c")
    assert "\n0\n" in f"\n{told}"


@pytest.mark.parametrize("backend", EACH_BACKEND)
async def test_no_file_that_runs_as_its_owner_is_left_outside(backend: str, root: Path) -> None:
    (root / "src").mkdir()
    (root / "src/probe.py").write_text(
        "import ctypes, os\n"
        "def tried(work):\n"
        "    try: work()\n"
        "    except OSError: pass\n"
        "os.umask(0)\n"
        "open('a', 'w').close()\n"
        "tried(lambda: os.chmod('a', 0o4755))\n"
        "tried(lambda: os.chmod('a', 0o2755))\n"
        "fd = os.open('a', os.O_RDWR)\n"
        "tried(lambda: os.fchmod(fd, 0o6755))\n"
        "tried(lambda: os.close(os.open('b', os.O_CREAT | os.O_WRONLY, 0o4755)))\n"
        "tried(lambda: os.mknod('c', 0o104755))\n"
        "libc = ctypes.CDLL(None)\n"
        "libc.syscall(452, -100, b'a', 0o4755, 0)\n"
        "how = (ctypes.c_uint64 * 3)(os.O_CREAT | os.O_WRONLY, 0o4755, 0)\n"
        "libc.syscall(437, -100, b'd', how, 24)\n"
        "os.chmod('a', 0o1755)\n"
        "print('done')\n"
    )
    told = await tools_in(root, BACKENDS[backend]).call(
        "shell", command=f"{PYTHON} -B probe.py", folder="src"
    )
    assert told == "done\n[exit status 0]"
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (root / "src").iterdir()}
    assert [name for name, mode in modes.items() if mode & 0o6000] == []
    assert modes["a"] == 0o1755


async def report_of(root: Path, sandbox: Sandbox | None) -> SandboxReport:
    return await CommandRunner(Root(root), sandbox=sandbox).report()


async def test_what_is_missing_is_said_and_nothing_runs(root: Path) -> None:
    sandbox = Sandbox(layers=("seccomp",))
    report = await report_of(root, sandbox)
    assert not report.is_available
    assert report.backend == "none"
    told = await tools_in(root, sandbox).call("shell", command="touch made")
    assert "no sandbox is available" in told
    assert list(root.iterdir()) == []


_WITHOUT_NAMESPACES = """
import asyncio, os, sys
from haptera.tools import Sandbox, coding_tools
from haptera.tools.sandbox.kernel import NEW_USER, unshare
from haptera.tools.sandbox.privileges import map_user, write_file
user, group = os.getuid(), os.getgid()
unshare(NEW_USER)
map_user(user, group)
write_file("/proc/sys/user/max_user_namespaces", "0")
from tests.tools.toolbox import Toolbox
from tests.tools.test_sandbox import report_of
from pathlib import Path
root = Path(sys.argv[1])
report = asyncio.run(report_of(root, Sandbox()))
print(report.backend, report.missing)
tools = Toolbox(coding_tools(root), is_approved=True)
print(asyncio.run(tools.call("shell", command="touch src/a /etc/b; ls src")))
"""


@pytest.mark.namespaces
def test_a_layer_that_the_kernel_refuses_is_left_out_and_named(root: Path) -> None:
    (root / "src").mkdir()
    command = [sys.executable, "-c", _WITHOUT_NAMESPACES, str(root)]
    environment = {"PYTHONPATH": f"{ROOT}:{ROOT}/src"}
    told = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    first, rest = told.stdout.split("\n", 1)
    assert first.startswith("landlock+seccomp ('namespaces: ")
    assert "cannot touch '/etc/b': Permission denied" in rest
    assert rest.endswith("a\n[exit status 0]\n")


@pytest.mark.namespaces
async def test_what_cannot_be_set_up_for_one_root_is_never_confined_less(root: Path) -> None:
    sandbox = Sandbox(writable=("/no/such/folder",))
    report = await report_of(root, sandbox)
    assert report.backend == "namespaces+landlock+seccomp"
    told = await tools_in(root, sandbox).call("shell", command="echo done")
    assert told.startswith("[not started: namespaces: mounts: ")


async def test_what_cannot_be_hidden_without_namespaces_is_an_error(root: Path) -> None:
    (root / "secret").mkdir()
    sandbox = Sandbox(layers=("landlock", "seccomp"), hidden=(str(root / "secret"),))
    told = await tools_in(root, sandbox).call("shell", command="cat secret/*")
    assert "needs namespaces" in told


NO_PLAN = Plan(
    argv=[], environment={}, root="/", root_identity=[], folder=".", temporary="/tmp", writable=[],
    protected=[], hidden=[], exposed=[], readable=[], network=False, layers=[], limits={},
)  # fmt: skip


@pytest.mark.parametrize(
    ("layers", "network", "version", "named"),
    [
        ("namespaces landlock seccomp", False, 7, ""),
        ("namespaces landlock seccomp", True, 7, ""),
        ("namespaces seccomp", False, 7, ""),
        ("namespaces landlock seccomp", False, 1, ""),
        ("namespaces seccomp", True, 7, "abstract sockets"),
        ("namespaces landlock seccomp", True, 5, "abstract sockets"),
        ("landlock seccomp", False, 7, "modes|seen|priority|number of processes"),
        ("landlock seccomp", False, 5, "modes|seen|priority|number of processes|signalled"),
        ("landlock seccomp", True, 2,
            "modes|seen|priority|number of processes|truncated|signalled"),
        ("namespaces landlock", False, 7, "run as their owner|keyrings"),
    ],
)  # fmt: skip
def test_what_layers_do_not_hold_is_named(
    layers: str, network: bool, version: int, named: str
) -> None:
    plan = NO_PLAN._replace(layers=layers.split(), network=network)
    told = not_held(plan, landlock_version=version)
    assert len(told) == len(named.split("|") if named else [])
    assert all(word in line for word, line in zip(named.split("|"), told, strict=False))


async def test_without_the_filter_of_calls_the_sandbox_is_not_enough(root: Path) -> None:
    report = await report_of(root, Sandbox(layers=("namespaces", "landlock")))
    assert not report.is_available
    assert (await report_of(root, Sandbox(layers=("seccomp",)))).missing != ()
    assert (await report_of(root, None)).missing == ("it is switched off",)


@pytest.mark.parametrize("backend", EACH_BACKEND)
async def test_another_folder_of_the_roots_name_is_not_taken_for_it(
    backend: str, root: Path, tmp_path: Path
) -> None:
    tools = tools_in(root, BACKENDS[backend])
    root.rename(tmp_path / "moved")
    # It has all that would be protected, so that nothing else stops the command.
    for name in ("bait", ".git", ".haptera", ".holdfast"):
        (root / name).mkdir(parents=True)
    told = await tools.call("shell", command="touch bait/made")
    assert told.startswith("[not started: ")
    assert "is not the folder that it was" in told
    assert names_beneath(root) == set()


_TCP = """
import socket, sys
from haptera.tools.sandbox import landlock, privileges
server = socket.create_server(("127.0.0.1", 0))
privileges.refuse_new_privileges()
landlock.restrict([("/", landlock.READ)], tcp=sys.argv[1] == "open")
for attempt in (
    lambda: socket.create_connection(server.getsockname()),
    lambda: socket.create_server(("127.0.0.1", 0)),
):
    try: attempt(); print("reached")
    except PermissionError: print("refused")
"""


@pytest.mark.parametrize(("tcp", "told"), [("open", "reached"), ("closed", "refused")])
def test_landlock_closes_tcp_by_itself(tcp: str, told: str) -> None:
    command = [sys.executable, "-c", _TCP, tcp]
    environment = {"PYTHONPATH": f"{ROOT}/src"}
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert run.stdout.split() == [told, told]


@pytest.mark.namespaces
async def test_what_only_looks_like_a_socket_of_the_machine_is_not_hidden(root: Path) -> None:
    """A program chooses what the kernel lists of its socket, a line of its own included."""
    (root / "kept").write_text("kept")
    with socket.socket(socket.AF_UNIX) as forged, socket.socket(socket.AF_UNIX) as real:
        forged.bind(f"\0x\n0: 2 0 10000 1 1 1 {root}/kept")
        real.bind(f"{root}/real")
        real.listen()
        told = await tools_in(root).call(
            "shell", command="cat kept; [ -S real ] || echo hidden; [ -c real ] && cat real"
        )
        assert told == "kepthidden\n[exit status 0]"
    assert stat.S_ISSOCK((root / "real").stat().st_mode)


async def test_without_namespaces_a_pair_of_stream_sockets_stays(root: Path) -> None:
    (root / "src").mkdir()
    (root / "src/probe.py").write_text(
        "import resource, socket\n"
        "for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET):\n"
        "    one, other = socket.socketpair(socket.AF_UNIX, kind)\n"
        "    one.send(b'x'); print(other.recv(1))\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))\n"
        "print(resource.getrlimit(resource.RLIMIT_NOFILE))\n"
    )
    told = await tools_in(root, BACKENDS["landlock+seccomp"]).call(
        "shell", command=f"{PYTHON} -B src/probe.py"
    )
    assert told == "b'x'\nb'x'\n(64, 64)\n[exit status 0]"
