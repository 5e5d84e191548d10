"""Rules by which secrets are found in texts that others get to see: those of gitleaks, and ours.

A rule is looked at only if one of its words is in the text, as gitleaks does it; that is what makes
two hundred of them affordable. Each takes linear time. `scripts/build_secret_rules.py` makes the
table of gitleaks; ours are for what it has no rule for, or none that is linear.
"""

import binascii
import math
import re
from collections import Counter
from collections.abc import Sequence
from functools import cache, cached_property, lru_cache
from pathlib import Path

import msgspec

from haptera.model.secrets import REDACTED, scrub

_SHORTEST = 8
"""Characters of the shortest text in which a secret is looked for."""


class SecretRule(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """How secrets of one kind are found. What a group of the expression has is the secret."""

    id: str
    regex: str
    keywords: tuple[str, ...]
    """In lower case; a text without any of them has no such secret."""
    entropy: float = 0.0
    """Bits per character; what has less is a word, or stands for a secret in an example."""
    allowed: tuple[str, ...] = ()
    """Expressions for what is found and is no secret."""
    is_random: bool = True
    """Whether such secrets are at least 12 signs in a row that are no words, near their keyword."""

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """The expression, compiled when a text has one of the words."""
        return re.compile(self.regex, re.ASCII)

    def masked(self, text: str) -> str:
        """Return a text without the secrets of this kind."""
        return self.pattern.sub(self._mask, text)

    def _mask(self, match: re.Match[str]) -> str:
        group = next((n for n, value in enumerate(match.groups(), 1) if value), 0)
        secret = match[group]
        if not secret or self._is_none(secret):
            return match[0]
        start, end = (place - match.start() for place in match.span(group))
        return match[0][:start] + REDACTED + match[0][end:]

    def _is_none(self, secret: str) -> bool:
        table = _gitleaks()
        if any(word in secret.lower() for word in table.stopwords):
            return True
        if any(pattern.search(secret) for pattern in _compiled((*table.allowed, *self.allowed))):
            return True
        return self.entropy > 0 and _entropy(secret) <= self.entropy


class _Table(msgspec.Struct, frozen=True, kw_only=True):
    """The table of gitleaks as it is kept."""

    rules: tuple[SecretRule, ...]
    allowed: tuple[str, ...]
    stopwords: tuple[str, ...]


_NAME_END = r"[\"'\\]{0,3}\s{0,3}(?::=|=>|=|:)\s{0,3}"
_QUOTE = r"\\?[\"'`]"
_PLAIN = r"[^\s\"'`,;&<>(){}\[\]|\\$]"
_WORDS = r"(?:password|passwd|passwort|passphrase|pwd|(?<=_)pass(?![a-z]))"
_KEY = (
    r"(?:secret|client_?secret|secret_?key|private_?key|signing_?key|encryption_?key|master_?key"
    r"|access_?key|account_?key|api_?key|api_?secret|auth_?token|access_?token|refresh_?token"
    r"|session_?token|id_?token|deploy_?token|webhook_?secret|token)"
)
_STAND_INS = (
    r"(?i)\A(?:\W*|.{0,2}(?:pass(?:word|wd|phrase)?|pwd|pass|pw|secret|token|key|user|name|str|none"
    r"|null|true|false|example|changeme|required|optional|invalid|missing|wrong|redacted|hidden"
    r"|masked|string|bytes|text|value|not[_ -]set|unset|empty).{0,2})\Z",
    r"\A[.*xX_…-]+\Z|\A(.)\1*\Z",
    r"\A[<$%{\[(]|[>})\]]\Z|\$\{?\w|\{\w*\}|%\(|\A%\w+%?\Z|\*\*\*",
    r"(?i)\byour[-_]|[-_]here\b|\bmy[-_]|_(?:password|passwd|token|secret|key)\Z|\A(?:the|a)[-_]",
)
"""What documentation and programs write where a secret would be."""
_NO_CODE = (
    # A name, a call, a path of a module, a flag: what programs write behind `=` and `:`.
    r"\A[A-Za-z_]+\Z|\A[A-Za-z_][\w-]*(?:\.[A-Za-z_][\w-]*)+\Z|\A[a-z_]+[0-9]?\Z|\A[\d.,:+-]+\Z",
    r"\A[./~]|://|\A-",
)

OWN_RULES = (
    SecretRule(
        id="key-in-pem",
        is_random=False,
        regex=(
            r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
            r"(?:(?:[^-]|-(?!----)){0,65536}+-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
            r"|(?:(?:\s|\\[nr])*+[A-Za-z0-9+/=]{16,}+)+)"
        ),
        keywords=("private key",),
    ),
    SecretRule(
        id="key-of-putty",
        is_random=False,
        regex=r"Private-Lines:\s*\d+\s+((?:[A-Za-z0-9+/=]{4,}\s+)+)",
        keywords=("private-lines",),
    ),
    SecretRule(
        id="password-in-url",
        is_random=False,
        regex=r"\b[A-Za-z][A-Za-z0-9+.-]{1,20}://[^\s:/@\"'<>]{0,128}:([^\s/@\"'<>]{1,256})@",
        keywords=("://",),
        allowed=(*_STAND_INS, r"\A\d{1,5}\Z"),
    ),
    SecretRule(
        id="secret-in-query",
        is_random=False,
        regex=(
            r"(?i)[?&;](?:access_?token|auth_?token|token|api_?key|key|password|passwd|pwd|secret"
            r"|client_?secret|sig|signature|x-amz-signature|x-amz-security-token"
            r"|x-goog-signature|code)=([\w%.+/~=-]{8,4096})"
        ),
        keywords=("token=", "key=", "pass", "pwd=", "secret", "sig=", "signature=", "code=", "amz"),
        entropy=2.5,
        allowed=(*_STAND_INS, *_NO_CODE),
    ),
    SecretRule(
        id="quoted-password",
        is_random=False,
        regex=rf"(?i){_WORDS}\w{{0,20}}{_NAME_END}{_QUOTE}([^\s\"'`\\]{{6,256}}){_QUOTE}",
        keywords=("pass", "pwd"),
        allowed=_STAND_INS,
    ),
    SecretRule(
        id="password",
        is_random=False,
        regex=rf"(?i){_WORDS}\w{{0,20}}{_NAME_END}({_PLAIN}{{6,256}})",
        keywords=("pass", "pwd"),
        allowed=(*_STAND_INS, *_NO_CODE),
    ),
    SecretRule(
        id="password-in-environment",
        is_random=False,
        regex=(
            r"(?m)^[ \t]*(?:export[ \t]+)?[A-Z0-9_]{0,60}"
            r"(?:(?:PASSWORD|PASSWD|PASSPHRASE|PWD)[A-Z0-9_]{0,20}|_PASS)"
            rf"=({_PLAIN}{{6,256}})[ \t]*$"
        ),
        keywords=("password", "passwd", "passphrase", "pwd", "_pass="),
        allowed=(*_STAND_INS, r"\A[./~]"),
    ),
    SecretRule(
        id="named-key",
        regex=(
            rf"(?i)(?<![a-z]){_KEY}(?:_[a-z]\w{{0,20}})?{_NAME_END}{_QUOTE}?"
            r"([\w.+/~!@#%^*-]{12,1024}+={0,3})(?![\w(\[])"
        ),
        keywords=("secret", "key", "token"),
        entropy=3.0,
        allowed=(*_STAND_INS, *_NO_CODE, r"\A[^\d]*\Z|\A[\w.-]*[a-z]{9}[\w.-]*\Z"),
    ),
    SecretRule(
        id="signature-of-aws",
        is_random=False,
        regex=r"(?i)\bAWS4-HMAC-SHA256\s.{0,400}?Signature=([0-9a-f]{64})",
        keywords=("aws4-hmac-sha256",),
    ),
    SecretRule(
        id="authorization",
        is_random=False,
        regex=(
            r"(?i)\bauthorization[\"'\\]{0,3}\s{0,3}[:=]\s{0,3}[\"'\\]{0,3}(?:[a-z-]{2,20}\s+)?"
            r"([A-Za-z0-9._~+/=:-]{8,4096})"
        ),
        keywords=("authorization",),
        allowed=(*_STAND_INS, *_NO_CODE),
    ),
    SecretRule(
        id="cookie",
        is_random=False,
        regex=(
            r"(?i)\b(?:set-)?cookie[\"'\\]{0,3}\s{0,3}[:=]\s{0,3}[\"'\\]{0,3}"
            r"([\w.-]{1,64}=[^\r\n\"'`\\]{8,8192})"
        ),
        keywords=("cookie",),
        allowed=(r"\A[^\d]*\Z|[<{$…]",),
    ),
    SecretRule(
        id="cookie-of-session",
        regex=(
            r"(?i)\b(?:PHPSESSID|JSESSIONID|ASP\.NET_SessionId|connect\.sid|_?csrf_?token|xsrf-token"
            r"|laravel_session|sessionid)=([\w%.+/~=-]{16,4096})"
        ),
        keywords=("sessid", "sessionid", "_session=", "connect.sid", "csrf", "xsrf"),
        allowed=_STAND_INS,
    ),
    SecretRule(
        id="user-of-curl",
        is_random=False,
        regex=(
            r"(?i)\s(?:-u|--user|--proxy-user)[ =]{0,3}[\"']?"
            r"[^\s:\"']{1,128}:([^\s\"']{3,256})"
        ),
        keywords=("curl",),
        allowed=(*_STAND_INS, r"\A\d{1,5}\Z"),
    ),
    SecretRule(
        id="cookie-of-curl",
        is_random=False,
        regex=r"(?i)\s(?:-b|--cookie)[ =]{0,3}[\"']?([\w.-]{1,64}=[^\s\"']{8,4096})",
        keywords=("curl",),
        allowed=(r"[<{$…]",),
    ),
    SecretRule(
        id="netrc",
        is_random=False,
        regex=r"(?i)\bmachine\s{1,9}\S{1,256}\s{1,9}login\s{1,9}\S{1,256}\s{1,9}password\s{1,9}([^\s\"'`<>(){}\[\],;]{1,256})",
        keywords=("machine",),
        allowed=_STAND_INS,
    ),
    SecretRule(
        id="key-of-aws",
        regex=(
            r"(?i)aws.{0,20}?(?:key|token)\w{0,20}[\"'\\]{0,3}\s{0,3}[=:]\s{0,3}[\"'\\]{0,3}"
            r"([A-Za-z0-9/+]{40,2048}={0,2})"
        ),
        keywords=("aws",),
        entropy=3.0,
    ),
    SecretRule(
        id="key-of-azure",
        regex=r"(?i)\b(?:AccountKey|SharedAccessKey|SharedSecretValue)=([A-Za-z0-9+/]{40,128}={0,2})",
        keywords=("accountkey", "sharedaccesskey", "sharedsecretvalue"),
    ),
    SecretRule(
        id="token-with-a-mark",
        regex=(
            r"\b(ya29\.[\w-]{20,2048}|GOCSPX-[\w-]{20,64}|1//0[\w-]{30,256}|whsec_[A-Za-z0-9+/=]{24,128}"
            r"|dckr_(?:pat|oat)_[\w-]{20,64}|sbp_[0-9a-f]{40}|r8_[A-Za-z0-9]{37}"
            r"|ntn_[A-Za-z0-9]{40,64}|figd_[\w-]{30,64}|tskey-[a-z]{3,8}-[\w-]{16,128}"
            r"|github_pat_\w{40,255}|gh[pousr]_[A-Za-z0-9]{30,255}|xox[a-z]-[\w-]{10,255}"
            r"|pypi-[\w-]{40,512}|npm_[A-Za-z0-9]{30,64}|glsa_[\w]{30,64}|hvs\.[\w-]{24,255})"
        ),
        keywords=(
            *("ya29.", "gocspx-", "1//0", "whsec_", "dckr_", "sbp_", "r8_", "ntn_"),
            *("figd_", "tskey-", "github_pat_", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "xox"),
            *("pypi-", "npm_", "glsa_", "hvs."),
        ),
        entropy=2.5,
    ),
    SecretRule(
        id="webhook-of-discord",
        regex=r"https://(?:\w{1,20}\.)?discord(?:app)?\.com/api/webhooks/\d{10,30}/([\w-]{40,128})",
        keywords=("/api/webhooks/",),
    ),
    SecretRule(
        id="registry-token",
        is_random=False,
        regex=r":_(?:authToken|auth|password)\s{0,3}=\s{0,3}[\"']?([^\s\"'$]{8,1024})",
        keywords=(":_",),
    ),
    SecretRule(
        id="auth-of-docker",
        regex=r"\"auth\"\s{0,3}:\s{0,3}\"([A-Za-z0-9+/]{12,1024}={0,2})\"",
        keywords=('"auth"',),
    ),
    SecretRule(
        id="hash-of-password",
        regex=r"(\$(?:[156]|2[aby]|y|argon2(?:id|i|d)|pbkdf2-sha\d+)\$[\w./$=,+-]{20,256})",
        keywords=("$1$", "$5$", "$6$", "$2a$", "$2b$", "$2y$", "$y$", "$argon2", "$pbkdf2"),
    ),
    SecretRule(
        id="key-of-wireguard",
        regex=r"(?i)\b(?:Private|Preshared)Key\s{0,3}=\s{0,3}([A-Za-z0-9+/]{43}=)",
        keywords=("privatekey", "presharedkey"),
    ),
    SecretRule(
        id="one-time-password",
        regex=r"otpauth://[^\s\"'<>]{0,256}?[?&]secret=([A-Z2-7]{16,128})",
        keywords=("otpauth://",),
    ),
)

_RANDOM = re.compile(
    r"(?<![\w+/=.~:%$-])(?=[\w+/=.~:%$-]{12})[a-z_+/=.~:%$-]*+[A-Z0-9][\w+/=.~:%$-]*+", re.ASCII
)
_BEFORE, _BEHIND = 80, 20
_BASE64 = re.compile(r"(?<![\w+/=-])[\w+/-]{20,}+(?:\r?\n[\w+/-]{20,}+)*+={0,2}", re.ASCII)
_FOR_URLS = str.maketrans("-_", "+/", "\r\n")


def secret_rules() -> tuple[SecretRule, ...]:
    """Return all rules, in the order in which they are applied."""
    return _all_rules()


@cache
def _all_rules() -> tuple[SecretRule, ...]:
    return (*OWN_RULES, *_gitleaks().rules)


@cache
def _gitleaks() -> _Table:
    content = Path(__file__).with_name("secret_rules.json").read_bytes()
    return msgspec.json.decode(content, type=_Table)


@cache
def _by_keyword(*, is_random: bool) -> dict[str, list[SecretRule]]:
    """Return the rules that are looked at where a word is found."""
    rules: dict[str, list[SecretRule]] = {}
    for rule in secret_rules():
        for keyword in rule.keywords if rule.is_random is is_random else ():
            rules.setdefault(keyword, []).append(rule)
    return rules


@lru_cache(maxsize=64)
def _compiled(expressions: Sequence[str]) -> tuple[re.Pattern[str], ...]:
    return tuple(re.compile(each, re.ASCII) for each in expressions)


def without_secrets_by_rule(text: str) -> str:
    """Return a text without what a rule finds, also where it stands as base64."""
    if len(text) < _SHORTEST:
        return text
    return _BASE64.sub(_mask_encoded, _masked(text))


def _masked(text: str) -> str:
    for rule in _rules_for(text, is_random=False):
        text = rule.masked(text)
    # Most rules are for what looks random, and most of a text does not.
    near = _near_random(text)
    for rule in _rules_for(near, is_random=True) if near else ():
        if rule.pattern.search(near) is not None:
            text = rule.masked(text)
    return text


def _rules_for(text: str, *, is_random: bool) -> list[SecretRule]:
    """Return the rules one of whose words is in a text, in their order."""
    lowered, by_keyword = text.lower(), _by_keyword(is_random=is_random)
    # Not a loop: this is what every text pays.
    keywords = list(filter(lowered.__contains__, by_keyword))
    named = {rule.id for keyword in keywords for rule in by_keyword[keyword]}
    return [rule for rule in secret_rules() if rule.id in named] if named else []


def _near_random(text: str) -> str:
    """Return what looks random in a text, with what stands around it."""
    spans: list[list[int]] = []
    for match in _RANDOM.finditer(text):
        start, end = max(match.start() - _BEFORE, 0), match.end() + _BEHIND
        if spans and start <= spans[-1][1]:
            spans[-1][1] = end
        else:
            spans.append([start, end])
    return "\n".join(text[start:end] for start, end in spans)


def _mask_encoded(match: re.Match[str]) -> str:
    encoded = match[0].translate(_FOR_URLS).rstrip("=")
    # One sign too many is the beginning of what was cut.
    whole = encoded[:-1] if len(encoded) % 4 == 1 else encoded
    try:
        raw = binascii.a2b_base64(whole + "=" * (-len(whole) % 4))
    except binascii.Error:
        return match[0]
    if not raw.isascii():
        return match[0]
    text = raw.decode()
    return REDACTED if scrub(_masked(text)) != text else match[0]


def _entropy(text: str) -> float:
    """Return the bits per character that Shannon's formula gives."""
    return -sum(
        count / len(text) * math.log2(count / len(text)) for count in Counter(text).values()
    )
