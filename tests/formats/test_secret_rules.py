"""Secrets are masked by rule: every common kind of them, and no words of prose or code."""

import base64
import random
import re
import string
import time
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from haptera.formats import secret_rules as module
from haptera.formats.redaction import Redactor
from haptera.formats.secret_rules import secret_rules

ROOT = Path(__file__).parents[2]
_chance = random.Random(19)


def made(count: int, alphabet: str = string.ascii_letters + string.digits) -> str:
    """Make up a secret that has a digit, as nearly all have."""
    return "".join(_chance.choices(alphabet, k=count - 2)) + _chance.choice("23456789") + "q"


HEX = "0123456789abcdef"
UPPER = string.ascii_uppercase + "234567"
URL_SAFE = string.ascii_letters + string.digits + "_-"
B64 = string.ascii_letters + string.digits + "+/"


def hexed(count: int) -> str:
    return "".join(_chance.choices(HEX, k=count))


def upper(count: int) -> str:
    return "".join(_chance.choices(UPPER, k=count))


PEM_BODY = "\n".join(made(64, B64) for _ in range(6))
PEM = f"-----BEGIN RSA PRIVATE KEY-----\n{PEM_BODY}\n-----END RSA PRIVATE KEY-----"
JWT = ".".join(
    base64.urlsafe_b64encode(each).decode().rstrip("=")
    for each in (b'{"alg":"HS256","typ":"JWT"}', b'{"sub":"1234567890"}', b"\x01\x7f\xfe" * 11)
)
KEY = f"AKIA{upper(16)}"
WORD = "Tr0ub4dor&3"

KINDS: dict[str, tuple[str, str]] = {
    "AWS access key": ("export AWS_ACCESS_KEY_ID={}", KEY),
    "AWS secret key": ("aws_secret_access_key = {}", made(40, B64)),
    "AWS session token": ('"SessionToken": "x", AWS_SESSION_TOKEN={}', made(300, B64)),
    "AWS signature": (
        "Authorization: AWS4-HMAC-SHA256 Credential=x/2026/s3, Signature={}",
        hexed(64),
    ),
    "signed URL": ("https://b.s3.amazonaws.com/x?X-Amz-Signature={}", hexed(64)),
    "PEM": ("the key:\n{}\n", PEM),
    "PEM in JSON": ('{{"private_key": "{}"}}', PEM.replace("\n", "\\n")),
    "PEM that was cut": ("{}", PEM[:200]),
    "OpenSSH key": ("{}", PEM.replace("RSA", "OPENSSH")),
    "PGP key": ("{}", PEM.replace("RSA PRIVATE KEY", "PGP PRIVATE KEY BLOCK")),
    "PuTTY key": ("Private-Lines: 2\n{}\nPrivate-MAC: 0", f"{made(64, B64)}\n{made(64, B64)}"),
    "password=": ("user=ana password={}", WORD),
    "password in quotes": ("password: '{}'", "correct-horse-battery"),
    "password in code": ('connect(host, password="{}")', "hunterhunter"),
    "password in YAML": ("db_password: {}", WORD),
    "password of an option": ("mysql --password={} shop", WORD),
    "password in an environment file": ("A=1\nDB_PASSWORD={}\nB=2", "correcthorse"),
    "password in a profile": ("export SMTP_PASS='{}'", WORD),
    "password of a variable": ("DB_PASS={} make", "q8sd7fkj2"),
    "password in JSON in JSON": ('{{"said": "{{\\"password\\": \\"{}\\"}}"}}', WORD),
    "PostgreSQL URL": ("postgresql://ana:{}@db.example/shop", WORD),
    "MySQL URL": ("mysql+pymysql://root:{}@10.0.0.1:3306/shop", WORD),
    "MongoDB URL": ("mongodb+srv://ana:{}@cluster0.example.net/?w=1", WORD),
    "Redis URL": ("redis://:{}@localhost:6379/0", WORD),
    "AMQP URL": ("amqp://ana:{}@mq.example/vhost", WORD),
    "URL of a repository": ("git clone https://ana:{}@git.example/x.git", WORD),
    "GitHub token": ("remote: ghp_{}", made(36)),
    "GitHub fine-grained token": ("token github_pat_{} works", made(82)),
    "GitHub app token": ("ghs_{}", made(36)),
    "GitLab token": ("glpat-{}", made(20)),
    "Slack bot token": (
        "SLACK=xoxb-{}",
        f"12345678901-123456789012-{made(24)}",
    ),
    "Slack user token": ("xoxp-{}", f"123456789012-123456789012-123456789012-{hexed(32)}"),
    "Slack webhook": ("https://hooks.slack.com/services/{}", f"T{upper(8)}/B{upper(8)}/{made(24)}"),
    "npm token": ("npm_{}", made(36)),
    "npm configuration": ("//registry.npmjs.org/:_authToken={}", made(36)),
    "PyPI token": ("password = pypi-AgEIcHlwaS5vcmc{}", made(100, URL_SAFE)),
    "Azure storage key": (
        "DefaultEndpointsProtocol=https;AccountName=a;AccountKey={}",
        f"{made(86, B64)}==",
    ),
    "Azure bus key": ("Endpoint=sb://x/;SharedAccessKey={}", f"{made(43, B64)}="),
    "Azure client secret": ("secret is {}", f"aB3{_chance.randrange(10)}Q~{made(33)}"),
    "Azure SAS": ("https://x.blob.core.windows.net/c?sp=r&sig={}", f"{made(40)}%3D"),
    "Cookie": ("Cookie: sid={}; theme=dark", made(32)),
    "Set-Cookie": ("set-cookie: session={}; HttpOnly", made(32)),
    "session cookie": ("PHPSESSID={}", made(26)),
    "cookie of curl": ("curl https://x.example -b 'sid={}'", made(32)),
    "bearer token": ("Authorization: Bearer {}", made(40)),
    "basic authentication": (
        "authorization: Basic {}",
        base64.b64encode(f"ana:{WORD}".encode()).decode(),
    ),
    "other authorization": ('-H "Authorization: token {}"', hexed(40)),
    "user of curl": ("curl -s -u ana:{} https://x.example", WORD),
    "base64 of a key": (
        "value: {}",
        base64.b64encode(f"sk-ant-api03-{made(60)}".encode()).decode(),
    ),
    "base64 of a key of AWS": ("data: {}", base64.b64encode(f"k={KEY}\n".encode()).decode()),
    "base64 of PEM": ("tls.key: {}", base64.b64encode(PEM.encode()).decode()),
    "base64 of PEM in lines": ("{}", base64.encodebytes(PEM.encode()).decode().strip()),
    "JSON web token": ("the answer was {}", JWT),
    "Google API key": ("key: AIza{}", made(35)),
    "Google client secret": ("GOCSPX-{}", made(28)),
    "Google access token": ("ya29.{}", made(100, URL_SAFE)),
    "Stripe key": ("sk_live_{}", made(40)),
    "Stripe webhook": ("whsec_{}", made(32)),
    "Twilio key": ("SK{}", hexed(32)),
    "SendGrid key": ("SG.{}", f"{made(22)}.{made(43)}"),
    "Mailgun key": ("mailgun_key=key-{}", hexed(32)),
    "Hugging Face token": ("hf_{}", "".join(_chance.choices(string.ascii_letters, k=34))),
    "Databricks token": ("dapi{}", hexed(32)),
    "DigitalOcean token": ("dop_v1_{}", hexed(64)),
    "Discord webhook": ("https://discord.com/api/webhooks/123456789012345678/{}", made(68)),
    "Telegram bot": ("telegram_token = {}", f"123456789:A{made(34, URL_SAFE)}"),
    "Docker token": ("dckr_pat_{}", made(27)),
    "Docker configuration": (
        '{{"auths": {{"x": {{"auth": "{}"}}}}}}',
        base64.b64encode(f"ana:{WORD}".encode()).decode(),
    ),
    "netrc": ("machine x.example login ana password {}", "correcthorse"),
    "hash of a password": ("root:{}:19000:0:99999:7:::", f"$6${made(16)}${made(86)}"),
    "Vault token": ("hvs.{}", made(96)),
    "Shopify token": ("shpat_{}", hexed(32)),
    "Linear key": ("lin_api_{}", made(40, string.ascii_lowercase + string.digits)),
    "age key": (
        "AGE-SECRET-KEY-1{}",
        "".join(_chance.choices("QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L", k=58)),
    ),
    "WireGuard key": ("PrivateKey = {}", f"{made(43, B64)}="),
    "one-time password": ("otpauth://totp/x:ana?secret={}&issuer=x", upper(32)),
    "client secret": ("client_secret={}", made(40)),
    "token of an address": ("https://x.example/hook?token={}", made(32)),
    "secret in the environment": ("JWT_SECRET={}", made(40)),
    "secret in JSON": ('{{"apiSecret": "{}"}}', made(40)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_secret_of_each_kind_is_masked_wherever_it_stands(kind: str) -> None:
    form, secret = KINDS[kind]
    text = form.format(secret)
    for around in ("{}", "I ran it:\n{}\nand that was it.", "({})", "see {}, too"):
        shown = Redactor().text(around.format(text))
        assert "****" in shown, shown
        for piece in (secret, secret[4:-4], *secret.split("\n")):
            assert len(piece) < 6 or piece not in shown, shown
        assert around.partition("{")[0] in shown


NO_SECRETS = """\
password = get_password()
first_pass=second_pass, tests_passed=12345678
password: str | None = None
self.password = password
connect(user=user, password=settings.password)
if password is None: raise ValueError("password: is required")
The password is stored in the keyring; a token is 32 bytes long.
token_count=4096 max_tokens: 8192 tokens_per_second=12.5
access_token=access_token, refresh_token=self._refresh_token
api_key = os.environ["ANTHROPIC_API_KEY"]
api_key=KeyReference(env="SHOP_KEY")
key = "primary_key_of_table"
secret_name: my-database-secret
secretKeyRef: {name: db, key: password}
postgresql://user:password@localhost/db
postgresql://USER:PASSWORD@host:5432/name
redis://:${REDIS_PASSWORD}@cache:6379
https://example.com:8080/path@2.0
git@github.com:haptera/haptera.git
Cookie: name=value
response.set_cookie("session", value, httponly=True)
Authorization: Bearer <token>
Authorization: Bearer $TOKEN
curl -u user:password https://x.example
curl -u $USER:$PASS https://x.example
-----BEGIN CERTIFICATE-----
commit 3f786850e387550fdab836ed7e6dc881de23001b
sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
id=01990a5c-0000-7000-8000-00000000a0b1
session_id=01990a5c-0000-7000-8000-00000000a0b1
test_a_session_without_anything_to_hide_is_told_as_it_was
org.springframework.security.authentication.UsernamePasswordAuthenticationToken
const PASSWORD_MIN_LENGTH = 12;
aria-label="Password" type="password" autocomplete="current-password"
The quick brown fox jumps over the lazy dog: 1234567890.
data = base64.b64encode(content).decode()
aGVsbG8gd29ybGQsIHRoaXMgaXMganVzdCB0ZXh0
git log --oneline main..HEAD
"""


@pytest.mark.parametrize("line", NO_SECRETS.splitlines())
def test_what_is_no_secret_stays(line: str) -> None:
    assert Redactor().text(line) == line


def _prose_and_code() -> Iterator[Path]:
    for pattern in ("*.md", "docs/**/*.md", "src/**/*.py", "examples/*.py", "scripts/*.py"):
        yield from ROOT.glob(pattern)
    # Programs of others, too.
    yield from sorted(Path(re.__file__).parents[1].glob("[a-m]*.py"))


@pytest.mark.slow
def test_in_the_documentation_and_the_source_nothing_is_masked() -> None:
    found: list[str] = []
    size = 0
    for path in _prose_and_code():
        if path.name == "secret_rules.py":  # is full of the shapes of secrets
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        size += len(text)
        masked = module.without_secrets_by_rule(text)
        if masked != text:
            lines = zip(text.splitlines(), masked.splitlines(), strict=False)
            found.append(f"{path.name}: {next((one for one, other in lines if one != other), '')}")
    assert size > 5_000_000
    assert found == []


def test_the_table_is_whole_and_says_what_it_leaves_out() -> None:
    content = Path(module.__file__).with_name("secret_rules.json").read_bytes()
    table = msgspec.json.decode(content)
    ids = [rule.id for rule in secret_rules()]
    assert len(ids) == len(set(ids)) > 220
    assert len(table["rules"]) == 203
    assert "generic-api-key" in table["refused"]
    assert not table["refused"].keys() & set(ids)
    assert all(len(reason) > 20 for reason in table["refused"].values())
    for rule in secret_rules():
        assert rule.keywords, rule.id
        assert all(word == word.lower() for word in rule.keywords), rule.id
        rule.pattern  # noqa: B018 - it compiles
    licence = Path(module.__file__).with_name("secret_rules_LICENSE.txt").read_text()
    assert "Permission is hereby granted" in licence
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    assert wheel["targets"]["wheel"]["packages"] == ["src/haptera"]


_FILLERS = ("", " ", "=", " = '", "a", "a0", "-", "_", "/", ":", "\n", ".", " " * 30, "a" * 40)


def _seconds(work: Callable[[str], object], text: str, *, times: int = 3) -> float:
    best = 60.0
    for _ in range(times):
        begun = time.thread_time()
        work(text)
        best = min(best, time.thread_time() - begun)
    return best


def _grows(work: Callable[[str], object], piece: str) -> bool:
    """Whether work takes much more than twice as long for twice as much."""
    small, large = (_seconds(work, piece * (size // len(piece))) for size in (8_000, 64_000))
    return large > 0.02 and large / small > 8**1.35


@pytest.mark.sweep
def test_each_rule_takes_linear_time() -> None:
    slow = [
        (rule.id, keyword + filler)
        for rule in secret_rules()
        for keyword in rule.keywords
        for filler in _FILLERS
        if _seconds(rule.masked, (keyword + filler) * (4_000 // len(keyword + filler)), times=1)
        > 0.003
        and _grows(rule.masked, keyword + filler)
    ]
    assert slow == []
    quadratic = re.compile(r"(?:a+b)?a+c")
    assert _grows(lambda text: quadratic.sub("", text), "a")


@pytest.mark.slow
@pytest.mark.parametrize(
    "piece",
    [
        *("aB3", "-----BEGIN RSA PRIVATE KEY-----", "\n", "password=", "a" * 20 + "\n", "key="),
        *("eyJ", "Cookie: a=", "curl -u a:b ", "/", "https://a:", "=", "aws_key=", "api_key="),
        "machine a login b ",
    ],
)
def test_all_rules_together_take_linear_time(piece: str) -> None:
    assert not _grows(module.without_secrets_by_rule, piece)
    assert not _grows(Redactor(["/work", "/srv/shop"]).text, piece)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (r"\b(p8e-(?i)[a-z]{2})$", r"\b(p8e-(?i:[a-z]{2}))\Z"),
        (r"a(?i)b|c", r"a(?i:b)|(?i:c)"),
        (r"^[$^]\$\z", r"\A[$^]\$\Z"),
        (r"(?P<alg>x)", r"(?:x)"),
        (r"(?i)[\w.-]{0,50}?(?:acme)(x)", r"(?i)(?:acme)(x)"),
        (r"[[a]", r"[\[a]"),
    ],
)
def test_expressions_of_go_are_translated(expression: str, expected: str) -> None:
    script = pytest.importorskip("scripts.build_secret_rules")
    assert script.translated(expression) == expected
