"""A secret is not printed, logged or stored; only `reveal` returns it."""

import json
import logging
import pickle

import msgspec
import pytest

from haptera.model.errors import ConfigError, ErrorCode
from haptera.model.secrets import REDACTED, Secret, mask, scrub

VALUE = "sk-ant-0123456789abcdefghij"


@pytest.mark.parametrize("length", range(41))
def test_a_mask_never_crashes_and_never_shows_half(length: int) -> None:
    value = (VALUE * 2)[:length]
    shown = mask(value)
    assert shown.endswith(REDACTED)
    kept = shown.removesuffix(REDACTED)
    assert value.startswith(kept)
    assert len(kept) * 2 < max(length, 1)


def test_a_secret_is_never_printed() -> None:
    secret = Secret(VALUE)
    texts = [str(secret), repr(secret), f"{secret}", f"{secret:>40}", "%s" % secret, str([secret])]  # noqa: UP031 - it is one way to show it
    assert not any(VALUE in text for text in texts)
    assert secret.reveal() == VALUE


def test_a_secret_is_never_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        logging.getLogger(__name__).info("using %s", Secret(VALUE))
    assert VALUE not in caplog.text
    assert REDACTED in caplog.text


def test_a_secret_is_never_stored() -> None:
    secret = Secret(VALUE)
    assert VALUE.encode() not in pickle.dumps(secret)
    assert pickle.loads(pickle.dumps(secret)).reveal() == REDACTED  # noqa: S301 - our own bytes
    assert VALUE not in json.dumps({"key": secret}, default=str)
    with pytest.raises(TypeError):
        msgspec.json.encode(secret)


def test_secrets_are_compared_by_value() -> None:
    assert Secret("a") == Secret("a") != Secret("b")
    assert Secret("a") != "a"
    assert len({Secret("a"), Secret("a")}) == 1
    assert not Secret("")


PREFIXES = ("sk", "RK", "pk", "gsk", "xai", "ghp", "gho", "GHS", "hf", "glpat")


@pytest.mark.parametrize(
    "text",
    [
        "invalid key my-own-key given",
        "Authorization: Bearer abcdefgh12345678",
        'x-api-key: "abcdefgh12345678"',
        "key sk-proj-abcdefgh12345678 is wrong",
        "AIzaSyA1234567890abcdefghij",
        "eyJhbGciOi12345678.eyJzdWIiOi12345678.c2lnbmF012345678",
        "for-eyJhbGciOi12345678.eyJzdWIiOi12345678.c2lnbmF012345678",
        "eyJ.eyJhbGciOi12345678.eyJzdWIiOi12345678.c2lnbmF012345678",
        "Basic dXNlcjpwYXNz12345678==",
        *(f"{prefix}{sign}abcdefgh12345678" for prefix in PREFIXES for sign in "-_"),
        *(f"{name}=abcdefgh12345678" for name in ("API_KEY", "access-token", "secretkey")),
    ],
)
def test_whatever_looks_like_a_credential_is_taken_out(text: str) -> None:
    clean = scrub(text, [Secret("my-own-key"), Secret("")])
    assert REDACTED in clean
    assert not any(key in clean for key in ("my-own-key", "12345678", "1234567890"))


NO_TEXT = "key-\udcff-of-bytes"
"""What a variable that is not valid UTF-8 has."""


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("100% sure", "100% sure"),
        (f"100% sure of {NO_TEXT}", f"100% sure of {REDACTED}"),
        ("the key \ufffd-of", "the key \ufffd-of"),
        ("100% sure of key-\ufffd-of-bytes", f"100% sure of {REDACTED}"),
        ("100% sure of key--of-bytes", f"100% sure of {REDACTED}"),
        ("?key=key-%EF%BF%BD-of-bytes", f"?key={REDACTED}"),
        ("?key=key-%ED%B3%BF-of-bytes", f"?key={REDACTED}"),
    ],
)
def test_a_secret_that_is_no_text_is_taken_out_like_any_other(text: str, clean: str) -> None:
    secret = Secret(NO_TEXT)
    assert scrub(text) == clean
    assert ConfigError(ErrorCode.CONFIG_INVALID, text).message == clean
    assert secret == Secret(NO_TEXT) != Secret("another")


def test_plain_text_is_left_alone() -> None:
    text = "prompt is too long: 213462 tokens > 200000 maximum (basic plan)"
    assert scrub(text) == text
