"""What the environment says, and that it never says a secret."""

from pathlib import Path

import pytest

from holdfast.config.environment import OPTIONS, PROVIDER_VARIABLES, Environment, read
from holdfast.config.locations import locate, private_folder
from holdfast.vocabulary.errors import ConfigError, ErrorCode

CANARY = "sk-canary-0123456789"
DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "configuration.md"


def test_a_variable_that_is_set_to_nothing_counts_as_not_set() -> None:
    environment = Environment({"GEMINI_API_KEY": " ", "GOOGLE_API_KEY": CANARY})
    assert environment.provider("gemini").key_variable == "GOOGLE_API_KEY"
    assert environment.get("GEMINI_API_KEY") is None
    assert read({"A": "", "B": " b "}, "A", "B") == "b"


def test_of_a_key_only_the_name_of_its_variable_is_said() -> None:
    environment = Environment({"ANTHROPIC_API_KEY": CANARY, "ANTHROPIC_AUTH_TOKEN": CANARY})
    found = environment.provider("anthropic")
    assert found.key_variable == "ANTHROPIC_API_KEY"
    assert found.more == {"auth_token": "ANTHROPIC_AUTH_TOKEN"}
    assert CANARY not in f"{environment!r} {found!r}"


def test_every_provider_is_found_by_each_of_its_keys() -> None:
    for name, known in PROVIDER_VARIABLES.items():
        for key in known.keys:
            environment = Environment({key: CANARY})
            assert environment.provider(name).key_variable == key
            assert name in environment.providers_with_keys()


def test_an_unknown_provider_has_nothing_in_the_environment() -> None:
    found = Environment({"HOUSE_API_KEY": CANARY}).provider("house")
    assert (found.key_variable, found.base_url, found.more) == (None, None, {})


def test_addresses_and_versions_are_found() -> None:
    azure = Environment(
        {"AZURE_OPENAI_ENDPOINT": "https://a.example", "OPENAI_API_VERSION": "2026-01-01"}
    ).provider("azure")
    assert azure.base_url == "https://a.example"
    assert azure.more == {"api_version": "2026-01-01"}


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("localhost", "http://localhost:11434"),
        ("0.0.0.0", "http://127.0.0.1:11434"),  # noqa: S104
        ("0.0.0.0:8080", "http://127.0.0.1:8080"),
        (":9000", "http://127.0.0.1:9000"),
        ("https://ollama.example/", "https://ollama.example"),
        ("http://box:1234", "http://box:1234"),
        ("http://box", "http://box:11434"),
        ("[::1]", "http://[::1]:11434"),
        ("[::1]:99", "http://[::1]:99"),
    ],
)
def test_the_host_of_ollama_is_read_as_ollama_reads_it(host: str, url: str) -> None:
    assert Environment({"OLLAMA_HOST": host}).provider("ollama").base_url == url


def test_options_become_nested_values_of_their_types() -> None:
    environment = Environment(
        {
            "HOLDFAST_MODEL": "openai/gpt-5",
            "HOLDFAST_MAX_TURNS": "7",
            "HOLDFAST_MAX_COST": "0.5",
            "HOLDFAST_ALLOWED_TOOLS": "read, list ,",
            "HOLDFAST_SYSTEM_PROMPT": "Be brief, please.",
        }
    )
    assert environment.values() == {
        "model": "openai/gpt-5",
        "limits": {"turns": 7, "cost": 0.5},
        "allowed_tools": ["read", "list"],
        "system_prompts": ["Be brief, please."],
    }


def test_a_number_that_is_none_names_its_variable() -> None:
    with pytest.raises(ConfigError, match="HOLDFAST_MAX_TOKENS must be a number") as caught:
        Environment({"HOLDFAST_MAX_TOKENS": "many"}).values()
    assert caught.value.code is ErrorCode.CONFIG_INVALID


def test_variables_with_our_prefix_that_mean_nothing_can_be_told() -> None:
    environment = Environment({"HOLDFAST_MODLE": "x", "HOLDFAST_MODEL": "y", "HOME": "z"})
    assert environment.unknown_options() == ("HOLDFAST_MODLE",)


def test_the_documentation_names_every_variable() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    names = {name for known in PROVIDER_VARIABLES.values() for name in known.keys + known.base_url}
    names |= {n for k in PROVIDER_VARIABLES.values() for more in k.more.values() for n in more}
    assert [name for name in sorted(names) if f"`{name}`" not in text] == []
    written = (f"`HOLDFAST_{name}`" in text or f"`_{name}`" in text for name in OPTIONS)
    assert all(written)


HOME = Path("/home/ana")


@pytest.mark.parametrize(
    ("platform", "variables", "config", "cache"),
    [
        ("linux", {}, "/home/ana/.config/holdfast", "/home/ana/.cache/holdfast"),
        (
            "linux",
            {"XDG_CONFIG_HOME": "/x", "XDG_CACHE_HOME": "relative"},
            "/x/holdfast",
            "/home/ana/.cache/holdfast",
        ),
        (
            "darwin",
            {},
            "/home/ana/Library/Application Support/holdfast",
            "/home/ana/Library/Caches/holdfast",
        ),
        (
            "win32",
            {"APPDATA": "/roaming", "LOCALAPPDATA": "/local"},
            "/roaming/holdfast",
            "/local/holdfast/cache",
        ),
        ("linux", {"HOLDFAST_HOME": "/roof"}, "/roof", "/roof/cache"),
        (
            "linux",
            {"HOLDFAST_HOME": "/roof", "HOLDFAST_CONFIG_DIR": "/conf"},
            "/conf",
            "/roof/cache",
        ),
    ],
)
def test_folders_are_where_the_platform_has_them(
    *, platform: str, variables: dict[str, str], config: str, cache: str
) -> None:
    found = locate(Environment(variables), home=HOME, platform=platform)
    assert (found.config, found.cache) == (Path(config), Path(cache))
    assert found.config_file == Path(config) / "config.toml"


def test_an_argument_for_the_folder_goes_before_the_environment() -> None:
    environment = Environment({"HOLDFAST_CONFIG_DIR": "/conf"})
    found = locate(environment, home=HOME, platform="linux", config_dir=Path("/mine"))
    assert found.config == Path("/mine")


def test_folders_are_made_for_their_owner_only(tmp_path: Path) -> None:
    folder = private_folder(tmp_path / "a" / "b")
    assert folder.stat().st_mode & 0o777 == 0o700
    assert private_folder(folder) == folder


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="file/b cannot be made"):
        private_folder(tmp_path / "file" / "b")
