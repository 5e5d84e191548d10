"""The configuration file: what it says, and where it is wrong."""

import re
from decimal import Decimal
from pathlib import Path

import pytest

from haptera.access.assembly.configuration import provider_variables
from haptera.access.config.environment import Environment
from haptera.access.config.file import ConfigFile, load_config, parse_config
from haptera.access.config.resolution import resolve
from haptera.access.config.schema import KeyReference
from haptera.model.errors import ConfigError, ErrorCode
from haptera.model.settings import ModelStep
from haptera.providers.vendors import VENDORS

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "configuration.md"
CANARY = "sk-canary-0123456789"


def documented_file() -> str:
    match = re.search(r"```toml\n(\[defaults\].*?)```", DOCUMENT.read_text("utf-8"), re.DOTALL)
    assert match is not None
    return match.group(1)


def test_the_documented_example_says_what_the_documentation_says() -> None:
    file = parse_config(documented_file())
    resolved = resolve({}, environment=Environment({}), file=file)
    assert resolved.settings.model == "anthropic/claude-sonnet-5"
    assert resolved.settings.thinking == "high"
    assert resolved.settings.limits.turns == 30
    assert resolved.settings.timeouts.first_byte == 90
    assert resolved.settings.fallbacks == (
        ModelStep(model="openai/gpt-5"),
        ModelStep(model="groq/llama-3.3-70b-versatile", max_attempts=1),
    )
    assert resolved.runtime.buffer_size == 200
    assert resolved.agent.store == "sqlite:~/chats.db"
    assert file.models["house"].context_window == 131_072
    house = file.providers["house"]
    assert house.key == KeyReference(command=("pass", "show", "house/key"))
    assert house.headers["X-Gate"] == KeyReference(env="GATE_TOKEN")
    (price,) = file.prices["house/qwen3-coder"]
    assert price.rates.input == Decimal("0.20")
    assert price.rates_for(32_001).output == Decimal("1.60")
    assert price.rates_for(32_001).cache_read == Decimal("0.02")


def test_a_file_that_is_not_there_says_nothing(tmp_path: Path) -> None:
    assert load_config(tmp_path / "config.toml") == ConfigFile()


def test_a_file_that_was_asked_for_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist") as caught:
        load_config(tmp_path / "config.toml", required=True)
    assert caught.value.code is ErrorCode.CONFIG_MISSING


WRONG = {
    "[prices.'p/m']\noutput = 1\ninput = -1": 'line 3: prices."p/m".input: must be zero',
    "[prices.'p/m']\ninput=1\noutput=1\ntiers=[{above=-1}]": 'prices."p/m".tiers[0].above: must',
    "[providers.x.oauth]\nauthorize_url='https://x.example/a'\ntoken_url='https://x.example/t'\n"
    "client_id='c'\nredirect_port=65536": "oauth.redirect_port: must be 0 to 65535, not 65536",
    "[providers.x.headers]\nB = {command = ['x']}": "line 2: providers.x.headers.B: say where",
    '[providers.x.headers]\nA = "a\\nb"': "line 2: providers.x.headers.A: holds a line break",
    "[providers.x.headers]\n'A B' = 'a'": 'line 2: providers.x.headers."A B": is not the name of a',
    "[fallbacks]\na = [{model = 'p/m', max_attempts = -1}]": "line 2: fallbacks.a[0].max_attempts",
    "[fallbacks]\na = [{model = 'p/m', tries = 1}]": "line 2: fallbacks.a[0].tries: unknown",
    "[defaults]\nthinkin = 'high'": "line 2: defaults.thinkin: unknown; did you mean 'thinking'?",
    "[defaults]\n\nthinking = 'hard'": "line 3: defaults.thinking: 'hard' is not",
    "[defaults.limits]\nturns = 'x'": "line 2: defaults.limits.turns: Expected `int`, got `str`",
    "[defaults.limits]\nturn = 1": "line 2: defaults.limits.turn: unknown; did you mean 'turns'?",
    "[defaults]\nmax_tokens = -1": "line 2: defaults.max_tokens: must be at least 0, not -1",
    "[defaults]\nloop_threshold = 1": "line 2: defaults.loop_threshold: must be at least 2, not 1",
    "[defaults]\nfallbacks = []": "defaults.fallbacks: belongs in the table [fallbacks]",
    "[defaults.permissions]\ndeny = ['a', 'b((']": "defaults.permissions.deny[1]: permission rule",
    "[defaults.permissions]\ndenied = ['a']": "defaults.permissions.denied: unknown",
    "[defaults]\npermission_mode = 'yolo'": "line 2: defaults.permission_mode: 'yolo' is not",
    "[runtime]\nbuffer_size = -1": "line 2: runtime.buffer_size: must be at least 0",
    "[runtime]\nobserver_buffer = 0": "line 2: runtime.observer_buffer: must be at least 1",
    "[provider.x]\nkind = 'a'": "line 1: provider: unknown; did you mean 'providers'?",
    "providers = 3": "line 1: providers: must be a table",
    "[providers]\nx = 3": "line 2: providers.x: must be a table",
    "[providers.x]\nkin = 'a'": "line 2: providers.x.kin: unknown; did you mean 'kind'?",
    "[providers.x]\nbase_url = 'example.org'": "line 2: providers.x.base_url: must begin with http",
    "[providers.x]\nbase_url = 'https://e.org/?a'": "providers.x.base_url: must hold neither",
    "[providers.x]\nbase_url = 'https://[e/'": "providers.x.base_url: is not a URL",
    "[providers.x]\nkey = {}": "line 2: providers.x.key: give exactly one of env",
    "[providers.x]\nkey = {env = ''}": "line 2: providers.x.key: env must not be empty",
    "[providers.x]\nkey = {keyring = 'a'}": 'keyring must be written as "service/user"',
    "[providers.x]\nkey = {command = 'pass x'}": "line 2: providers.x.key.command: Expected",
    "[providers.x]\nkey = {file = 'a'}": "line 2: providers.x.key.file: unknown",
    "[models.a]\nmodel = 'gpt-5'": 'line 2: models.a.model: must be written as "provider/model"',
    "[models.a]\nthinking = 'low'": "line 1: models.a: Object missing required field `model`",
    "[models.a]\nmodel = 'p/m'\ncontext_window = 0": "line 3: models.a.context_window: must be at",
    "[models.'a/b']\nmodel = 'p/m'": 'line 1: models."a/b": a short name must not contain a slash',
    "[fallbacks]\na = 'p/m'": "line 2: fallbacks.a: must be a list of models",
    "[fallbacks]\na = ['p/m', 3]": "line 2: fallbacks.a[1]: Expected `table`, got `int`",
    "[prices.'p/m']\ninput = 1": 'line 1: prices."p/m": Object missing required field `output`',
    "[prices.'p/m']\ninput = 1\noutput = -1": 'prices."p/m".output: must be zero or more',
    "[prices.'p/m']\ninput = 1\noutput = nan": 'line 3: prices."p/m".output: must be zero',
    "[prices.'p/m']\ninput=1\noutput=1\n[[prices.'p/m'.tiers]]\ninput=2": "line 4",
    "[prices.m]\ninput = 1\noutput = 1": 'line 1: prices.m: must be named "provider/model"',
    "[defaults\nmodel = 1": "is not valid TOML",
}


@pytest.mark.parametrize(("text", "message"), WRONG.items(), ids=list(WRONG.values()))
def test_a_mistake_names_file_line_and_field(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "config.toml"
    path.write_text(text, encoding="utf-8")
    path.chmod(0o600)
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    assert caught.value.code is ErrorCode.CONFIG_INVALID
    assert caught.value.message.startswith(str(path))
    assert message in caught.value.message


@pytest.mark.parametrize(
    "text",
    [
        f"[providers.x]\nkey = '{CANARY}'",
        f"[providers.x]\napi_key = '{CANARY}'",
        f"[providers.x]\ntoken = '{CANARY}'",
        f"[providers.x]\nheaders = {{ Authorization = 'Bearer {CANARY}' }}",
        f"[providers.x]\nbase_url = 'https://me:{CANARY}@example.org'",
    ],
)
def test_a_secret_in_the_file_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(ConfigError, match="say where the secret is instead") as caught:
        parse_config(text)
    assert CANARY not in caught.value.message


@pytest.mark.parametrize("section", ["[providers.x]", "[mcpServers.x]\nurl = 'https://a.test'"])
@pytest.mark.parametrize("header", sorted({row.key_header for row in VENDORS.values()}))
def test_the_header_of_any_vendor_s_key_holds_no_literal(header: str, section: str) -> None:
    headers = Environment({}, provider_variables()).key_headers
    text = f"{section}\nheaders = {{ {header.title()} = '{CANARY}' }}"
    with pytest.raises(ConfigError, match="say where the secret is instead") as caught:
        parse_config(text, key_headers=headers)
    assert CANARY not in caught.value.message
    parse_config(text.replace(f"'{CANARY}'", '{ env = "MINE" }'), key_headers=headers)


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_file_that_others_can_write_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "config.toml"
    path.write_text("")
    path.chmod(mode)
    with pytest.raises(ConfigError, match=r"can be written by others.*chmod 600"):
        load_config(path)


def test_a_file_that_others_can_read_is_accepted(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text("[defaults]\nmodel = 'p/m'")
    path.chmod(0o644)
    assert load_config(path).defaults == {"model": "p/m"}


def test_a_byte_order_mark_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_bytes(b"\xef\xbb\xbf[defaults]\nseed = 1")
    path.chmod(0o600)
    assert load_config(path).defaults == {"seed": 1}


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"\xff\xfe", "is not UTF-8 text"), (b"#" * (2**20 + 1), "is larger than")],
)
def test_a_file_that_cannot_be_text_is_refused(
    tmp_path: Path, content: bytes, message: str
) -> None:
    path = tmp_path / "config.toml"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(ConfigError, match=message):
        load_config(path)


def test_a_folder_instead_of_a_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        load_config(tmp_path)


def test_later_errors_can_point_into_the_file() -> None:
    file = parse_config("[providers.x]\nkind = 'quantum'")
    error = file.error(("providers", "x", "kind"), "no such protocol")
    assert error.message == "configuration, line 2: providers.x.kind: no such protocol"
