"""What the environment says, and that it never says a secret."""

import re
from pathlib import Path

import pytest

from haptera.access.assembly.configuration import provider_variables
from haptera.access.config.environment import (
    LOCATION_VARIABLES,
    PREFIX,
    VARIABLES,
    Environment,
    locate,
    read,
)
from haptera.model.errors import ConfigError, ErrorCode

CANARY = "sk-canary-0123456789"
PROVIDERS = provider_variables()
ROOT = Path(__file__).resolve().parents[3]
SOURCE = ROOT / "src" / "haptera"


def test_a_variable_that_is_set_to_nothing_counts_as_not_set() -> None:
    environment = Environment({"GEMINI_API_KEY": " ", "GOOGLE_API_KEY": CANARY}, PROVIDERS)
    assert environment.provider("gemini").key_variable == "GOOGLE_API_KEY"
    assert environment.get("GEMINI_API_KEY") is None
    assert read({"A": "", "B": " b "}, "A", "B") == "b"


def test_of_a_key_only_the_name_of_its_variable_is_said() -> None:
    variables = {"ANTHROPIC_API_KEY": CANARY, "ANTHROPIC_AUTH_TOKEN": CANARY}
    environment = Environment(variables, PROVIDERS)
    found = environment.provider("anthropic")
    assert found.key_variable == "ANTHROPIC_API_KEY"
    assert found.token_variable == "ANTHROPIC_AUTH_TOKEN"
    assert CANARY not in f"{environment!r} {found!r}"


def test_every_provider_is_found_by_each_of_its_keys() -> None:
    for name, known in PROVIDERS.items():
        for key in known.keys:
            environment = Environment({key: CANARY}, PROVIDERS)
            assert environment.provider(name).key_variable == key
            assert name in environment.providers_with_keys()


def test_an_unknown_provider_has_nothing_in_the_environment() -> None:
    found = Environment({"HOUSE_API_KEY": CANARY}, PROVIDERS).provider("house")
    assert (found.key_variable, found.base_url, found.more) == (None, None, {})


def test_addresses_and_versions_are_found() -> None:
    variables = {"AZURE_OPENAI_ENDPOINT": "https://a.example", "OPENAI_API_VERSION": "2026-01-01"}
    azure = Environment(variables, PROVIDERS).provider("azure")
    assert azure.base_url == "https://a.example"
    assert azure.more == {"api_version": "2026-01-01"}


def test_a_host_becomes_a_url_where_the_provider_takes_hosts() -> None:
    environment = Environment({"OLLAMA_HOST": "box"}, PROVIDERS)
    assert environment.provider("ollama").base_url == "http://box:11434"


def test_options_become_nested_values_of_their_types() -> None:
    environment = Environment(
        {
            "HAPTERA_MODEL": "openai/gpt-5",
            "HAPTERA_MAX_TURNS": "7",
            "HAPTERA_MAX_COST": "0.5",
            "HAPTERA_ALLOWED_TOOLS": "read, list ,",
            "HAPTERA_SYSTEM_PROMPT": "Be brief, please.",
        }
    )
    assert environment.values() == {
        "model": "openai/gpt-5",
        "limits": {"turns": 7, "cost": 0.5},
        "allowed_tools": ["read", "list"],
        "system_prompts": ["Be brief, please."],
    }


def test_a_number_that_is_none_names_its_variable() -> None:
    with pytest.raises(ConfigError, match="HAPTERA_MAX_TOKENS must be a whole number") as caught:
        Environment({"HAPTERA_MAX_TOKENS": "many"}).values()
    assert caught.value.code is ErrorCode.CONFIG_INVALID


def test_every_variable_that_the_code_or_a_page_names_is_declared() -> None:
    known = {PREFIX + name for name in (*VARIABLES, *LOCATION_VARIABLES)}
    documents = [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", *SOURCE.rglob("*.py")]
    for path in documents:
        named = re.findall(rf"\b{PREFIX}[A-Z_]+[A-Z]", path.read_text(encoding="utf-8"))
        assert set(named) <= known, path


def test_no_variable_of_ours_is_looked_up_by_a_literal() -> None:
    literal = re.compile(rf"""["']{PREFIX}[A-Z_]+["']""")
    found = [path for path in SOURCE.rglob("*.py") if literal.search(path.read_text("utf-8"))]
    assert found == []


@pytest.mark.parametrize("name", LOCATION_VARIABLES)
def test_a_variable_says_where_files_are(name: str) -> None:
    variable = LOCATION_VARIABLES[name]
    environment = Environment({PREFIX + name: "/there"})
    assert environment.location(variable.path) == "/there"
    assert environment.values() == {}


HOME = Path("/home/ana")


@pytest.mark.parametrize(
    ("platform", "variables", "config", "cache"),
    [
        ("linux", {}, "/home/ana/.config/haptera", "/home/ana/.cache/haptera"),
        (
            "linux",
            {"XDG_CONFIG_HOME": "/x", "XDG_CACHE_HOME": "relative"},
            "/x/haptera",
            "/home/ana/.cache/haptera",
        ),
        (
            "darwin",
            {},
            "/home/ana/Library/Application Support/haptera",
            "/home/ana/Library/Caches/haptera",
        ),
        (
            "win32",
            {"APPDATA": "/roaming", "LOCALAPPDATA": "/local"},
            "/roaming/haptera",
            "/local/haptera/cache",
        ),
        ("linux", {"HAPTERA_HOME": "/roof"}, "/roof", "/roof/cache"),
        (
            "linux",
            {"HAPTERA_HOME": "/roof", "HAPTERA_CONFIG_DIR": "/conf"},
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
    environment = Environment({"HAPTERA_CONFIG_DIR": "/conf"})
    found = locate(environment, home=HOME, platform="linux", config_dir=Path("/mine"))
    assert found.config == Path("/mine")
