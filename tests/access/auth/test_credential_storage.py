"""Stored credentials: in the keyring where there is one, else in a private file."""

import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from msgspec import json

from haptera import Agent
from haptera.access.assembly.agent_inputs import ConfigurationSources
from haptera.access.assembly.configuration import Configuration
from haptera.access.auth.credential_storage import CredentialStorage, StoredCredential
from haptera.access.credentials import (
    find_credentials,
    log_out,
    store_key,
    stored_credentials,
)
from haptera.model.errors import ConfigError, ErrorCode, StoreError
from haptera.model.secrets import Secret
from tests.synced_disk import SyncedDisk

KEY = "made-up-key-of-anthropic"


class Ring(ModuleType):
    """Stands in for the `keyring` package."""

    def __init__(self, *, priority: float = 5, refuses: bool = False) -> None:
        super().__init__("keyring")
        self.kept: dict[tuple[str, str], str] = {}
        self.priority = priority
        self.refuses = refuses

    def get_keyring(self) -> SimpleNamespace:
        return SimpleNamespace(priority=self.priority)

    def get_password(self, service_name: str, username: str) -> str | None:
        return self.kept.get((service_name, username))

    def set_password(self, service_name: str, username: str, password: str) -> None:
        if self.refuses:
            raise RuntimeError(f"locked: {password}")
        self.kept[service_name, username] = password

    def delete_password(self, service_name: str, username: str) -> None:
        if self.refuses:
            raise RuntimeError("locked")
        del self.kept[service_name, username]


@pytest.fixture
def sources(tmp_path: Path) -> ConfigurationSources:
    variables = {"HAPTERA_HOME": str(tmp_path), "HOME": str(tmp_path)}
    return ConfigurationSources(environment=variables, cwd=tmp_path)


@pytest.fixture(autouse=True)
def ring(monkeypatch: pytest.MonkeyPatch) -> Ring:
    made = Ring()
    monkeypatch.setitem(sys.modules, "keyring", made)
    return made


def path_in(sources: ConfigurationSources) -> Path:
    return Path(str(sources.cwd)) / "data" / "credentials.json"


def test_a_key_goes_into_the_keyring_and_the_file_only_names_it(
    sources: ConfigurationSources, ring: Ring
) -> None:
    assert store_key("anthropic", KEY, sources=sources).source == "login, key in keyring"
    assert ring.kept == {("haptera", "anthropic"): KEY}
    assert KEY not in path_in(sources).read_text()
    assert stored_credentials(sources) == {"anthropic": "keyring"}
    assert log_out("anthropic", sources) is True
    assert ring.kept == {}


@pytest.mark.parametrize(
    "ring_of_machine",
    [None, Ring(priority=0.5), Ring(refuses=True)],
    ids=["not installed", "only a plain file", "locked"],
)
def test_without_a_usable_keyring_a_key_goes_into_a_private_file(
    sources: ConfigurationSources,
    monkeypatch: pytest.MonkeyPatch,
    ring_of_machine: Ring | None,
) -> None:
    monkeypatch.setitem(sys.modules, "keyring", ring_of_machine)
    found = store_key("anthropic", f"  {KEY}\n", sources=sources)
    path = path_in(sources)
    assert found.source == f"login, key in {path}"
    assert KEY in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600
    assert sorted(each.name for each in path.parent.iterdir()) == [
        "credentials.json",
        "credentials.lock",
    ]


def test_a_key_that_was_stored_survives_a_power_cut(
    tmp_path: Path, sources: ConfigurationSources, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "keyring", None)
    disk = SyncedDisk(tmp_path, monkeypatch)
    for key in (KEY, KEY + "2"):
        store_key("anthropic", key, sources=sources)
        assert disk.keeps(path_in(sources))


def test_a_key_that_moves_to_the_file_leaves_the_keyring(
    sources: ConfigurationSources, ring: Ring
) -> None:
    store_key("anthropic", KEY, sources=sources)
    store_key("anthropic", KEY, keyring=False, sources=sources)
    assert ring.kept == {}
    assert stored_credentials(sources) == {"anthropic": "file"}


def test_a_keyring_that_does_not_remove_a_key_is_said(
    sources: ConfigurationSources, ring: Ring
) -> None:
    store_key("anthropic", KEY, sources=sources)
    ring.refuses = True
    with pytest.raises(StoreError):
        log_out("anthropic", sources)
    assert stored_credentials(sources) == {"anthropic": "keyring"}


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644])
def test_a_file_that_others_can_read_or_write_is_refused(
    sources: ConfigurationSources, mode: int
) -> None:
    store_key("anthropic", KEY, keyring=False, sources=sources)
    path_in(sources).chmod(mode)
    for use in (
        lambda: stored_credentials(sources),
        lambda: log_out("anthropic", sources),
        lambda: store_key("anthropic", KEY, sources=sources),
    ):
        with pytest.raises(ConfigError, match="chmod 600") as caught:
            use()
        assert KEY not in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"{", b'{"credentials": 7}', b'{"version": 2}', b"\xff"])
def test_a_damaged_file_is_an_error_that_quotes_nothing(
    sources: ConfigurationSources, content: bytes
) -> None:
    store_key("anthropic", KEY, keyring=False, sources=sources)
    path_in(sources).write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        stored_credentials(sources)
    assert caught.value.code is ErrorCode.CONFIG_INVALID
    assert str(path_in(sources)) in caught.value.message


@pytest.mark.parametrize(
    "text", ["", "short", "two words of a key", "a" * 20_000, "key-\x1b[31mred"]
)
def test_what_cannot_be_a_key_is_refused_without_being_quoted(
    sources: ConfigurationSources, text: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        store_key("anthropic", text, sources=sources)
    assert not text or text not in caught.value.message
    assert stored_credentials(sources) == {}


def test_a_variable_and_the_file_go_before_a_stored_key(tmp_path: Path) -> None:
    variables = {"HAPTERA_HOME": str(tmp_path)}
    sources = ConfigurationSources(environment=variables, cwd=tmp_path)
    store_key("openai", KEY, sources=sources)
    stored, *_ = find_credentials(sources)
    assert stored.source == "login, key in keyring"
    (tmp_path / "config.toml").write_text('[providers.openai]\nkey = { env = "OTHER" }\n')
    (tmp_path / "config.toml").chmod(0o600)
    filed, *_ = find_credentials(sources)
    assert filed.source == "configuration file, variable OTHER"
    variables["OPENAI_API_KEY"] = "from-the-environment"
    named, *_ = find_credentials(sources)
    assert named.source == "variable OPENAI_API_KEY"


async def test_a_stored_key_decides_the_default_model(
    sources: ConfigurationSources, tmp_path: Path
) -> None:
    variables = dict(sources.environment or {})
    async with Agent(environment=variables, cwd=tmp_path) as agent:
        assert agent.settings.model.startswith("local/")
    store_key("openai", KEY, sources=sources)
    async with Agent(environment=variables, cwd=tmp_path) as agent:
        assert agent.settings.model.startswith("openai/")
    with_key = {**variables, "ANTHROPIC_API_KEY": "from-the-environment"}
    async with Agent(environment=with_key, cwd=tmp_path) as agent:
        assert agent.settings.model.startswith("anthropic/")


async def test_a_stored_key_is_not_sent_to_another_url(
    sources: ConfigurationSources, tmp_path: Path
) -> None:
    store_key("openai", KEY, sources=sources)
    variables = {**(sources.environment or {}), "OPENAI_BASE_URL": "http://127.0.0.1:9"}
    async with Agent("openai/gpt-5", environment=variables, cwd=tmp_path) as agent:
        with pytest.raises(ConfigError, match="`haptera login openai`"):
            await agent.run("hi")
    moved = ConfigurationSources(environment=variables, cwd=tmp_path)
    found, *_ = find_credentials(moved)
    assert found.problem is not None
    store_key("openai", KEY, sources=moved)
    found, *_ = find_credentials(moved)
    assert found.problem is None


def test_a_provider_goes_by_the_login_of_its_account(sources: ConfigurationSources) -> None:
    store_key("xai", KEY, sources=sources)
    assert {each.provider for each in find_credentials(sources)} == {"xai", "xai-responses"}
    connection = Configuration({}, sources).connection("xai-responses")
    assert connection.stored_as == "xai"


def test_what_is_known_of_a_credential_holds_no_secret(sources: ConfigurationSources) -> None:
    store_key("openai", KEY, keyring=False, sources=sources)
    connection = Configuration({}, sources).connection("openai")
    assert type(connection.stored) is StoredCredential
    assert KEY not in f"{connection!r}{json.encode(connection.stored)!r}"


def test_a_credential_that_cannot_be_used_says_why(tmp_path: Path) -> None:
    storage = CredentialStorage(tmp_path, keyring=lambda: None)
    with pytest.raises(ConfigError, match="none is stored"):
        storage.key("openai")
    storage.save_key("openai", Secret(KEY), StoredCredential(kind="key", place="file"))
    with pytest.raises(ConfigError, match="of the kind 'key', not 'oauth'"):
        storage.tokens("openai")
    kept = storage.path.read_text()
    storage.path.write_text(kept.replace(f'"{KEY}"', "null"))
    with pytest.raises(ConfigError, match=r"credentials\.json does not hold its secret"):
        storage.key("openai")
    storage.path.write_text(kept.replace(f'"{KEY}"', "null").replace('"file"', '"keyring"'))
    with pytest.raises(ConfigError, match="the keyring does not give it out"):
        storage.key("openai")


WRITER = """
import sys
from pathlib import Path
from haptera.access.auth.credential_storage import CredentialStorage, StoredCredential
from haptera.model.secrets import Secret
storage = CredentialStorage(Path(sys.argv[1]), keyring=lambda: None)
for number in range(20):
    facts = StoredCredential(kind="key", place="file")
    storage.save_key(f"{sys.argv[2]}-{number}", Secret("made-up-key"), facts)
"""


def test_processes_that_store_at_once_lose_nothing(tmp_path: Path) -> None:
    running = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path), name]) for name in ("a", "b")
    ]
    assert [each.wait(60) for each in running] == [0, 0]
    storage = CredentialStorage(tmp_path, keyring=lambda: None)
    assert len(storage.credentials()) == 40


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    storage = CredentialStorage(tmp_path / "file", keyring=lambda: None)
    facts = StoredCredential(kind="key", place="file")
    with pytest.raises(StoreError) as caught:
        storage.save_key("anthropic", Secret(KEY), facts)
    assert caught.value.code is ErrorCode.UNAVAILABLE
    assert KEY not in str(caught.value)
    assert (caught.value.__cause__, caught.value.__context__) == (None, None)
