"""Keys go to the address they belong to, and nowhere else."""

from pathlib import Path

import pytest

from haptera.access.assembly.configuration import provider_variables
from haptera.access.config.connections import connection_to, missing_key
from haptera.access.config.environment import Environment
from haptera.access.config.file import ConfigFile, parse_config, user_config
from haptera.access.config.schema import KeyReference
from haptera.model.errors import ConfigError, ErrorCode

FILE = parse_config(
    """
[providers.openai]
key = { keyring = "openai/me" }
organization = "org-file"

[providers.house]
kind = "openai"
base_url = "https://house.example/v1"

[providers.proxy]
kind = "anthropic"
base_url = "https://proxy.example"
key = { env = "PROXY_KEY" }
dialect = "vllm"
"""
)


def variables(values: dict[str, str]) -> Environment:
    return Environment(values, provider_variables())


def test_a_provider_needs_nothing_but_its_variable() -> None:
    environment = variables({"GROQ_API_KEY": "x"})
    found = connection_to("groq", environment=environment, file=ConfigFile())
    assert (found.kind, found.base_url) == ("groq", None)
    assert found.key == KeyReference(env="GROQ_API_KEY")


def test_the_environment_goes_before_the_file() -> None:
    environment = variables({"OPENAI_API_KEY": "x", "OPENAI_ORG_ID": "org-env"})
    found = connection_to("openai", environment=environment, file=FILE)
    assert found.key == KeyReference(env="OPENAI_API_KEY")
    assert found.fields.organization == "org-env"
    alone = connection_to("openai", environment=variables({}), file=FILE)
    assert alone.key == KeyReference(keyring="openai/me")
    assert alone.fields.organization == "org-file"


def test_a_key_of_the_environment_is_not_sent_to_another_provider_of_the_same_kind() -> None:
    environment = variables({"OPENAI_API_KEY": "x", "OPENAI_BASE_URL": "https://other.example"})
    found = connection_to("house", environment=environment, file=FILE)
    assert (found.kind, found.key) == ("openai", None)
    assert found.base_url == "https://house.example/v1"


def test_a_key_of_the_file_is_not_sent_where_the_environment_points() -> None:
    environment = variables({"OPENAI_BASE_URL": "https://other.example"})
    with pytest.raises(ConfigError, match=r"line 3: providers.openai.key: would be sent to"):
        connection_to("openai", environment=environment, file=FILE)


def test_a_named_provider_carries_everything_its_table_says() -> None:
    found = connection_to("proxy", environment=variables({}), file=FILE)
    assert (found.kind, found.dialect) == ("anthropic", "vllm")
    assert found.key == KeyReference(env="PROXY_KEY")


def test_an_auth_token_is_told_by_its_variable() -> None:
    environment = variables({"ANTHROPIC_AUTH_TOKEN": "x"})
    found = connection_to("anthropic", environment=environment, file=ConfigFile())
    assert (found.key, found.auth_token) == (None, KeyReference(env="ANTHROPIC_AUTH_TOKEN"))


def test_an_address_that_is_none_names_its_variable() -> None:
    environment = variables({"OPENAI_BASE_URL": "localhost:8000"})
    with pytest.raises(ConfigError, match=r"OPENAI_BASE_URL: must begin with http") as caught:
        connection_to("openai", environment=environment, file=ConfigFile())
    assert caught.value.code is ErrorCode.CONFIG_INVALID


def test_a_missing_key_says_where_one_can_be_put() -> None:
    error = missing_key("gemini", environment=variables({}), file=ConfigFile(path=Path("/c.toml")))
    assert error.code is ErrorCode.CONFIG_MISSING
    assert error.message == (
        "there is no key for 'gemini': set GEMINI_API_KEY or GOOGLE_API_KEY, "
        "run `haptera login gemini`, "
        'write key = { env = "VARIABLE" } into [providers.gemini] of /c.toml, or pass api_key='
    )
    assert "set " not in missing_key("house", environment=variables({}), file=ConfigFile()).message


def written(path: Path, model: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"[defaults]\nmodel = '{model}'")
    path.chmod(0o600)


def test_the_file_is_the_one_that_was_asked_for(tmp_path: Path) -> None:
    home, cwd = tmp_path / "home", tmp_path / "work"
    written(home / "config.toml", "by/home")
    written(cwd / "named.toml", "by/path")
    written(cwd / "folder" / "config.toml", "by/folder")

    def model(values: dict[str, str], **options: str) -> str:
        environment = variables({"HAPTERA_HOME": str(home)} | values)
        file = user_config(environment, cwd=cwd, home=home, platform="linux", **options)
        return str(file.defaults["model"])

    assert model({}) == "by/home"
    assert model({"HAPTERA_CONFIG_DIR": "folder"}) == "by/folder"
    assert model({"HAPTERA_CONFIG_PATH": "named.toml"}) == "by/path"
    assert model({"HAPTERA_CONFIG_PATH": "named.toml"}, config_dir="folder") == "by/folder"
    assert model({"HAPTERA_CONFIG_DIR": "folder"}, config_path="named.toml") == "by/path"


def test_a_named_file_must_exist_and_the_usual_one_need_not(tmp_path: Path) -> None:
    nothing = user_config(variables({}), cwd=tmp_path, home=tmp_path, platform="linux")
    assert nothing == ConfigFile()
    environment = variables({"HAPTERA_CONFIG_PATH": "gone.toml"})
    with pytest.raises(ConfigError, match=r"gone.toml does not exist"):
        user_config(environment, cwd=tmp_path, home=tmp_path, platform="linux")


def test_a_second_name_of_an_account_goes_by_its_variables_and_its_table() -> None:
    environment = variables({"XAI_API_KEY": "x", "XAI_BASE_URL": "https://xai.example/v1"})
    found = connection_to("xai-responses", environment=environment, file=ConfigFile())
    assert (found.kind, found.base_url) == ("xai-responses", "https://xai.example/v1")
    assert found.key == KeyReference(env="XAI_API_KEY")
    shared = connection_to("openai-chat", environment=variables({}), file=FILE)
    assert (shared.kind, shared.provider) == ("openai-chat", "openai-chat")
    assert shared.key == KeyReference(keyring="openai/me")
    assert shared.fields.organization == "org-file"
    redirected = variables({"OPENAI_BASE_URL": "https://other.example"})
    with pytest.raises(ConfigError, match=r"line 3: providers.openai.key: would be sent to"):
        connection_to("openai-chat", environment=redirected, file=FILE)


def test_a_table_of_its_own_or_of_another_kind_is_not_shared() -> None:
    file = parse_config(
        """
[providers.xai]
key = { env = "ONE" }
[providers.xai-responses]
base_url = "https://two.example/v1"
[providers.deepseek]
kind = "vllm"
key = { env = "THREE" }
"""
    )
    own = connection_to("xai-responses", environment=variables({}), file=file)
    assert (own.kind, own.key) == ("xai-responses", None)
    assert own.base_url == "https://two.example/v1"
    other = connection_to("deepseek-responses", environment=variables({}), file=file)
    assert (other.kind, other.key) == ("deepseek-responses", None)
