"""Neither commands nor file tools get at stores, Haptera's own files or the secrets of a home."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from haptera.model.errors import ErrorCode
from haptera.system.own_places import UserFolders
from haptera.testing import says
from haptera.tools import Sandbox, coding_tools
from haptera.tools.sandbox import home_secrets
from tests.architecture.source_tree import ROOT
from tests.scripted_agents import make_agent
from tests.tools.toolbox import INTERPRETER, PYTHON, Toolbox

pytestmark = pytest.mark.slow

CANARY = "canary-5f1c0d"
BACKENDS = {
    "namespaces": Sandbox(),
    "landlock": Sandbox(layers=("landlock", "seccomp"), readable=INTERPRETER),
}
KNOWN = (
    ".ssh/id_ed25519", ".aws/credentials", ".netrc", ".npmrc", ".pypirc", ".docker/config.json",
    ".kube/config", ".bashrc", ".bash_profile", ".profile", ".zshenv", ".zshrc", ".zprofile",
    ".gitconfig", ".git-credentials", ".cargo/config.toml", ".cargo/credentials.toml",
    ".config/gh/hosts.yml", ".config/git/config", ".gnupg/private-keys-v1.d/k", ".pgpass",
    ".my.cnf", ".local/share/keyrings/login.keyring", ".local/share/other/auth",
    ".local/state/other/log", ".m2/settings.xml", ".gradle/gradle.properties",
    ".cache/huggingface/token", ".ivy2/.credentials", ".python_history",
)  # fmt: skip
BY_NAME = (
    "Downloads/credentials.json", "backup/netrc", "other/deploy.key", "other/keys/id_rsa",
    "notes/api-token.txt", "old/service-account-prod.json", ".cache/tool/auth.json",
    ".cargo/bin/.npmrc",
)  # fmt: skip
OF_PROGRAMS = {
    "XDG_CONFIG_HOME": ("gh/hosts.yml", "haptera/config.toml"),
    "XDG_DATA_HOME": ("keyrings/login.keyring", "haptera/credentials.json"),
    "XDG_STATE_HOME": ("other/log", "haptera/server.json"),
    "XDG_CACHE_HOME": ("huggingface/token", "haptera/models/x"),
}
OF_HAPTERA = (
    "config.toml", "data/credentials.json", "data/sessions.db", "data/sessions.db-wal",
    "data/permissions.json", "data/snapshots/1/objects/x", "state/server.json",
    "state/server-keys.json", "state/prompt_history", "cache/models/x",
)  # fmt: skip
SHOWN = "shown.txt"
"""Stands beside the canaries, in a folder that is not private."""
_READERS = """\
cat $(find {place} -type f) ; cp -r {place} copied ; tar cf packed.tar {place}
find {place} -name '*' -exec head -c 99 {{}} +
grep -r {canary} {place} ; strings {place}/* {place}/.*
for name in {names}; do cat {place}/$name; cp {place}/$name taken; done
{python} -c "
import os
for above, _, names in os.walk('{place}'):
    for name in names:
        try: print(open(os.path.join(above, name)).read())
        except OSError as error: print(error)
"
"""


def _is_covered(folder: Path) -> bool:
    return folder.is_relative_to("/tmp") or folder.is_relative_to("/var/tmp")


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that the sandbox does not replace by one of its own, as it does with /tmp."""
    (ROOT / ".cache").mkdir(exist_ok=True)
    places = (ROOT / ".cache", Path("/srv"), Path("/opt"))
    open_ones = [each for each in places if not _is_covered(each) and os.access(each, os.W_OK)]
    if not open_ones:
        pytest.skip("this clone is in /tmp, which the sandbox covers")
    folder = Path(tempfile.mkdtemp(dir=open_ones[0]))
    yield folder
    shutil.rmtree(folder)


def plant(folder: Path, names: tuple[str, ...]) -> None:
    """Put a canary under each name."""
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"{CANARY} {name}\n")


async def told_by_commands(tools: Toolbox, folder: Path, names: tuple[str, ...]) -> str:
    """Let a command read a folder in every way; returns all it said and took."""
    quoted = " ".join(f"'{name}'" for name in names)
    command = _READERS.format(place=folder, names=quoted, canary=CANARY[:-1] + ".", python=PYTHON)
    return await tools.call("shell", command=f"mkdir -p work; cd work\n{command}")


def taken(root: Path) -> str:
    """Return what a command has put into its folder."""
    work = root / "work"
    found = [path for path in work.rglob("*") if path.is_file()] if work.exists() else []
    return "".join(path.read_bytes().decode("utf-8", "replace") for path in found)


def make_root(place: Path) -> Path:
    root = place / "root"
    (root / "work").mkdir(parents=True)
    return root


PROGRAM_FILES = tuple(f"{kind}/{name}" for kind, names in OF_PROGRAMS.items() for name in names)
HOMES = {"HOME": KNOWN + BY_NAME, "XDG": PROGRAM_FILES, "HAPTERA_HOME": OF_HAPTERA}


def variables(kind: str, home: Path, place: Path) -> dict[str, str]:
    """Return the environment in which a folder is a home of this kind."""
    elsewhere = str(place / "elsewhere")
    if kind == "XDG":
        return {"HOME": elsewhere, **{name: str(home / name) for name in OF_PROGRAMS}}
    if kind == "HAPTERA_HOME":
        return {"HOME": elsewhere, "HAPTERA_HOME": str(home)}
    return {"HOME": str(home)}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", HOMES)
async def test_no_command_reads_a_canary_of_a_home_that_an_agent_was_told_of(
    kind: str, backend: str, place: Path
) -> None:
    home, root = place / "home", make_root(place)
    names = HOMES[kind]
    agent, _ = make_agent([], environment=variables(kind, home, place))
    plant(home, names)  # after: what is planted is no configuration
    tools = Toolbox(coding_tools(root, sandbox=BACKENDS[backend]), is_approved=True)
    told = await told_by_commands(tools, home, names)
    await agent.close()
    assert "exit status" in told
    assert CANARY not in told
    assert CANARY not in taken(root)


@pytest.mark.parametrize("backend", BACKENDS)
async def test_no_command_reads_a_canary_of_the_home_that_the_process_was_given(
    backend: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, root = place / "home", make_root(place)
    plant(home, KNOWN + BY_NAME)
    monkeypatch.setenv("HOME", str(home))
    tools = Toolbox(coding_tools(root, sandbox=BACKENDS[backend]), is_approved=True)
    told = await told_by_commands(tools, home, KNOWN + BY_NAME)
    assert CANARY not in told
    assert CANARY not in taken(root)


_IN_ANOTHER_HOME = """
import asyncio, ctypes, json, os, pwd, sys
from pathlib import Path
from haptera.tools import coding_tools
from haptera.tools.sandbox.kernel import NEW_MOUNTS, NEW_USER, unshare
from haptera.tools.sandbox.privileges import map_user
from tests.tools.test_private_files import BACKENDS, told_by_commands, taken
from tests.tools.toolbox import Toolbox
told = json.loads(sys.argv[1])
user, group = os.getuid(), os.getgid()
unshare(NEW_USER | NEW_MOUNTS)
map_user(user, group)
users = Path(told["root"], "users")
users.write_text(f"ana:x:{user}:{group}::{told['home']}:/bin/sh\\n")
bind = ctypes.c_ulong(4096)
libc = ctypes.CDLL(None, use_errno=True)
assert libc.mount(os.fsencode(users), b"/etc/passwd", None, bind, None) == 0
assert pwd.getpwuid(user).pw_dir == told["home"]
root = Path(told["root"])
tools = Toolbox(coding_tools(root, sandbox=BACKENDS[told["backend"]]), is_approved=True)
for folder in (told["home"], told["other"]):
    print(asyncio.run(told_by_commands(tools, Path(folder), tuple(told["names"]))))
print(taken(root))
"""


@pytest.mark.namespaces
@pytest.mark.parametrize("backend", BACKENDS)
def test_no_command_reads_a_canary_of_either_home_when_they_differ(
    backend: str, place: Path
) -> None:
    """The user's own home is another than HOME after `sudo -E`, and in many containers."""
    root, other = make_root(place), place / "other"
    for home in (place / "home", other):
        plant(home, KNOWN + BY_NAME)
    told = {
        "home": str(place / "home"), "root": str(root), "other": str(other), "backend": backend,
        "names": KNOWN + BY_NAME,
    }  # fmt: skip
    environment = {"PYTHONPATH": f"{Path(home_secrets.__file__).parents[3]}:{ROOT}"}
    done = subprocess.run(
        [sys.executable, "-c", _IN_ANOTHER_HOME, json.dumps(told)],
        env={**environment, "HOME": str(other)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.count("exit status") == 2, done.stderr
    assert CANARY not in done.stdout


@pytest.mark.namespaces
async def test_what_is_no_secret_stays_visible(place: Path) -> None:
    home, root = place / "home", make_root(place)
    shown = (
        ".cargo/bin/tool", ".rustup/settings.toml", ".pyenv/version", ".cache/pip/x",
        ".local/share/uv/x", ".local/bin/x", "project/keys.py", "project/tokenizer.json",
        "project/id_rsa.pub", "project/credentials_test.go",
    )  # fmt: skip
    plant(home, shown)
    agent, _ = make_agent([], environment={"HOME": str(home)})
    tools = Toolbox(coding_tools(root))
    told = await tools.call("shell", command=f"cd {home} && cat {' '.join(shown)}")
    await agent.close()
    assert told.count(CANARY) == len(shown)


async def told_by_file_tools(tools: Toolbox, names: tuple[str, ...]) -> str:
    """Let every file tool try every name; returns all they said."""
    said = [await tools.call("grep", pattern=CANARY[:5], path=".", limit=1)]
    for folder in dict.fromkeys(str(Path(name).parent) for name in names):
        said += [
            await tools.call("list", path=folder),
            await tools.call("grep", pattern="c.nary", path=folder),
        ]
    for name in names:
        said += [
            await tools.call("read", path=name),
            await tools.call("glob", pattern=Path(name).name, path="."),
            await tools.call("write", path=name, content="mine"),
            await tools.call("edit", path=name, edits=[{"old": CANARY, "new": "mine"}]),
            await tools.call("write", path=f"{name}/new", content="mine"),
        ]
    return "\n".join(said)


@pytest.mark.namespaces
@pytest.mark.parametrize("kind", ["HOME", "HAPTERA_HOME"])
@pytest.mark.parametrize("above", [False, True])
async def test_no_tool_reads_or_changes_a_canary_of_a_home_that_is_in_the_root(
    kind: str, above: bool, place: Path
) -> None:
    root = home = place / "home"
    names: tuple[str, ...] = HOMES[kind]
    agent, _ = make_agent([], environment=variables(kind, home, place))
    plant(home, names)
    if above:
        root, names = place, tuple(f"home/{name}" for name in names)
    plant(root, (SHOWN,))
    tools = Toolbox(coding_tools(root))
    told = await told_by_file_tools(tools, names)
    said = await told_by_commands(tools, root, names)
    await agent.close()
    # One line is asked for, and none of what is private stands in its way or is counted.
    assert told.startswith(f"{SHOWN}:1: {CANARY} {SHOWN}\n")
    assert f"{CANARY} {SHOWN}" in said
    for line in (told + said + taken(root)).splitlines():
        assert CANARY not in line or SHOWN in line
    for name in names:
        assert CANARY in (root / name).read_text()


STORES = ("sqlite:chat.db", "sqlite:data/chat.db", "jsonl:sessions", "jsonl:data/sessions")


@pytest.mark.namespaces
@pytest.mark.parametrize("store", STORES)
async def test_a_store_in_the_workspace_is_out_of_reach_of_every_tool(
    store: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = make_root(place)
    (root / "data").mkdir()
    monkeypatch.chdir(root)
    steps = [says("one"), says("two")]
    agent, _ = make_agent(steps, store=store, workspace=root, cwd=root)
    async with agent, agent.session("one") as session:
        await session.chat(CANARY)
        tools = Toolbox(coding_tools(root))
        files = tuple(
            str(path.relative_to(root))
            for path in root.rglob("*")
            if path.is_file() and CANARY.encode() in path.read_bytes()
        )
        assert files
        more = tuple(f"chat.db{end}" for end in ("-wal", "-shm", "-journal"))
        folder = "data/" if "data" in store else ""
        sides = tuple(f"{folder}{name}" for name in more) if "sqlite" in store else ()
        before = {name: (root / name).read_bytes() for name in files}
        told = await told_by_file_tools(tools, tuple(dict.fromkeys((*files, *sides))))
        said = await told_by_commands(tools, root, files)
        target = store.split(":")[1]
        destroyed = await tools.call(
            "shell",
            command=f"rm -rf {target}*; mv {target} aside; ln {target} x; echo bad > {target}; "
            f"mv {Path(target).parts[0]} moved; truncate -s 0 {target}*; ls moved; "
            f"for end in journal wal shm; do head -c 9999 /dev/urandom > {target}-$end; done",
        )
        assert CANARY not in told + said + taken(root) + destroyed
        assert {name: (root / name).read_bytes() for name in files} == before
        assert not [path for path in root.rglob("chat.db-journal") if path.stat().st_size]
        await session.chat("and now?")
        assert len(session.messages) == 4


async def test_a_hard_link_to_a_store_is_refused(place: Path) -> None:
    root = make_root(place)
    agent, _ = make_agent([says("yes")], store=f"sqlite:{place}/chat.db")
    async with agent:
        await agent.run(CANARY)
        os.link(place / "chat.db", root / "linked")
        tools = Toolbox(coding_tools(root))
        told = await tools.call("read", path="linked")
        told += await tools.call("grep", pattern="SQLite", path=".")
        told += await tools.call("write", path="linked", content="mine")
    assert told.count("is refused") == 2
    assert "[no line fits]" in told


@pytest.mark.namespaces
async def test_a_store_that_is_made_after_a_command_is_hidden_from_the_next(place: Path) -> None:
    root = make_root(place)
    tools = Toolbox(coding_tools(root))
    assert "nothing" in await tools.call("shell", command="cat later.db || echo nothing")
    agent, _ = make_agent([says("yes")], store=f"sqlite:{root}/later.db")
    async with agent:
        await agent.run(CANARY)
        told = await tools.call("shell", command="cat later.db* | wc -c")
        assert told == "0\n[exit status 0]"
        assert "is refused" in await tools.call("read", path="later.db")


_WITHOUT_NAMESPACES = """
import asyncio, os, sys
from haptera.testing import says
from haptera.tools.sandbox.kernel import NEW_USER, unshare
from haptera.tools.sandbox.privileges import map_user, write_file
user, group = os.getuid(), os.getgid()
unshare(NEW_USER)
map_user(user, group)
write_file("/proc/sys/user/max_user_namespaces", "0")
from tests.scripted_agents import make_agent
async def main():
    agent, _ = make_agent([says("done")], store=sys.argv[2], workspace=sys.argv[1])
    async with agent:
        try:
            print((await agent.run("hello")).text)
        except Exception as error:
            print(error)
asyncio.run(main())
"""


@pytest.mark.namespaces
@pytest.mark.parametrize("store", [STORES[0], STORES[3]])
def test_without_namespaces_a_store_in_the_workspace_is_refused(store: str, place: Path) -> None:
    root = make_root(place)
    kind, _, name = store.partition(":")
    (root / "data").mkdir()
    told = {}
    for folder in (root, place):
        command = [sys.executable, "-c", _WITHOUT_NAMESPACES, str(root)]
        environment = {"PYTHONPATH": f"{Path(home_secrets.__file__).parents[3]}:{ROOT}"}
        done = subprocess.run(
            [*command, f"{kind}:{folder / Path(name).name}"],
            env={**environment, "HOME": str(place / "home")},
            capture_output=True,
            text=True,
            check=False,
        )
        told[folder] = done.stdout
    assert told[place] == "done\n"
    assert told[root].startswith(f"{ErrorCode.CONFIG_INVALID}: the store ")
    assert "Keep the store elsewhere" in told[root]


async def test_the_name_of_the_user_reaches_git_in_a_command_and_nothing_else_of_the_file(
    place: Path,
) -> None:
    home, root = place / "home", make_root(place)
    home.mkdir()
    (home / ".gitconfig").write_text(
        f'[url "https://{CANARY}@example.com/"]\n\tinsteadOf = x\n'
        '[user] name = "Ada \\"L\\" Byron" ; me\n\temail = ada@example.com\n'
    )
    for sandbox in BACKENDS.values():
        own = {"HOME": str(home)}
        tools = Toolbox(coding_tools(root, environment=own, sandbox=sandbox), is_approved=True)
        told = await tools.call(
            "shell",
            folder="work",
            command="git init -q; git commit -q --allow-empty -m one; "
            "git log -1 --format='%an %ae %cn'; "
            "git config --list; git -c user.name=Own commit -q --allow-empty -m two; "
            "git log -1 --format=%an; echo '[alias]' >> $GIT_CONFIG_SYSTEM$GIT_CONFIG_GLOBAL",
        )
        told = told[told.index("Ada") :]
        assert told.startswith('Ada "L" Byron ada@example.com Ada "L" Byron\n')
        assert "\nOwn\n" in told
        assert CANARY not in told
        assert "Read-only" in told or "Permission denied" in told


def test_the_search_by_name_ends_at_its_bound_and_says_so(
    place: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(home_secrets, "_MOST_ENTRIES", 100)
    home = home_secrets.Home.of(UserFolders(home=str(place)))
    plant(place, ("near/deploy.key",))
    deep = place / "a/b/c/d"
    for number in range(12):
        (deep / f"{number}").mkdir(parents=True)
        plant(deep / f"{number}", tuple(str(file) for file in range(20)))
    plant(deep, ("11/e/f/late.key",))
    found = home_secrets.found_by_name([home], closed=(), left=())
    assert found == [str(place / "near/deploy.key")]
    assert "ended at its bounds" in caplog.text


def test_names_of_secrets_and_of_what_only_looks_so(place: Path) -> None:
    secret = ("id_rsa", "my_id_ed25519.bak", "NETRC", "_netrc", "aws-credentials.csv", "key.pem")
    public = ("id_rsa.pub", "cacert.pem", "tokenizer.json", "added_tokens.json", "keys.py", "key")
    plant(place, (*secret, *public))
    home = home_secrets.Home.of(UserFolders(home=str(place)))
    found = home_secrets.found_by_name([home], closed=(), left=())
    assert {Path(path).name for path in found} == {*secret}


async def test_a_missing_home_is_no_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", "/no/such/home")
    told = await Toolbox(coding_tools(tmp_path), is_approved=True).call(
        "shell", command="echo done"
    )
    assert told == "done\n[exit status 0]"
