"""Every row of docs/provider-errors.md, against what the protocols make of it."""

import json
import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from haptera.kernel.blocks.error_classification import GENERAL_CODES, TYPED_CODES, code_of_status
from haptera.model.errors import ErrorCode, ProviderError, RequestError
from haptera.model.errors import error_with_code as make_error
from haptera.providers.wire import gemini
from haptera.providers.wire.anthropic_messages.reply_format import ERRORS as ANTHROPIC_ERRORS
from haptera.providers.wire.chat_completions.reply_format import ERRORS as CHAT_ERRORS
from haptera.providers.wire.failures import FailureRules
from haptera.providers.wire.gemini.reply_format import ERRORS as GEMINI_ERRORS
from haptera.providers.wire.openai_responses.reply_format import ERRORS as RESPONSES_ERRORS
from tests.providers.error_tables import IN_STREAM, PEERS, ErrorRow, Peer, cells_of, rows_of

OWN = {
    "Anthropic Messages": ANTHROPIC_ERRORS,
    "Chat Completions": CHAT_ERRORS,
    "OpenAI Responses": RESPONSES_ERRORS,
    "Gemini generateContent": GEMINI_ERRORS,
}
EXAMPLES = [
    pytest.param(peer, row, id=f"{name}-{row.name}")
    for name, peer in PEERS.items()
    for row in (*rows_of("Examples"), *(rows_of(name) if name in OWN else ()))
    if name in OWN or not row.typed
]
every_peer = pytest.mark.parametrize("peer", PEERS.values(), ids=PEERS)
every_peer_with_codes = pytest.mark.parametrize("peer", [PEERS[name] for name in OWN], ids=OWN)


@pytest.mark.parametrize(("peer", "row"), EXAMPLES)
def test_an_error_becomes_what_its_row_says(peer: Peer, row: ErrorRow) -> None:
    error = peer.error(row.status, row.typed, row.message, {"Retry-After": "3"})
    assert (error.code, error.basis, error.message) == (row.code, row.basis, row.message)
    if row.status != IN_STREAM:
        assert (error.status, error.retry_after) == (row.status, 3.0)


def test_every_code_has_its_class_and_says_whether_to_try_again() -> None:
    rows = {code: (family, retryable) for code, family, retryable in cells_of("Codes")}
    assert set(rows) == ProviderError.codes | RequestError.codes
    for code, facts in rows.items():
        error = make_error(ErrorCode(code), "")
        assert facts == (type(error).__name__, "yes" if error.retryable else "no")


@every_peer
@pytest.mark.parametrize("row", cells_of("Statuses"), ids=lambda row: row[0])
def test_a_status_means_the_same_to_every_protocol(peer: Peer, row: list[str]) -> None:
    status, code = int(row[0]), row[1]
    plain = peer.error(status, "", "?")
    assert (plain.code, plain.basis) == (code, "status")
    assert code_of_status(status) == code
    telling = peer.error(status, "", "roles must alternate")
    is_heard = row[2] == "yes" and code != "BAD_REQUEST"
    assert (telling.code, telling.basis) == (
        ("BAD_REQUEST", "pattern") if is_heard else (code, "status")
    )


@every_peer_with_codes
@pytest.mark.parametrize("row", cells_of("Typed codes"), ids=lambda row: row[0])
def test_a_shared_code_means_the_same_to_every_protocol(peer: Peer, row: list[str]) -> None:
    typed, code, asked = row
    assert peer.error(IN_STREAM, typed, "?").code == code
    error = peer.error(418, typed, "?")
    assert (error.code, error.basis) == (
        (code, "code") if asked == "first" else ("BAD_REQUEST", "status")
    )


def test_every_shared_code_is_in_the_table() -> None:
    rows = cells_of("Typed codes")
    assert {row[0].lower() for row in rows if row[2] == "first"} == set(TYPED_CODES)
    assert {row[0] for row in rows if row[2] == "last"} == set(GENERAL_CODES)


@pytest.mark.parametrize(("heading", "rules"), OWN.items(), ids=OWN)
def test_a_protocol_s_own_codes_are_in_its_section_and_nowhere_else(
    heading: str, rules: FailureRules
) -> None:
    own = {*rules.codes, *rules.general_codes}
    assert own <= {row.typed.lower() for row in rows_of(heading)}
    assert not own & {*TYPED_CODES, *GENERAL_CODES}


@every_peer
@pytest.mark.parametrize(
    ("headers", "message", "seconds"),
    [
        ({"retry-after-ms": "3890", "retry-after": "14"}, "", 3.89),
        ({"Retry-After-Ms": "3890", "Retry-After": "14"}, "", 3.89),
        ({"Retry-After": "14"}, "", 14.0),
        ({"Retry-After": "14"}, "Please try again in 2m.", 14.0),
        (
            {
                "retry-after": "Mon, 02 Nov 2026 10:00:30 GMT",
                "date": "Mon, 02 Nov 2026 10:00:00 GMT",
            },
            "",
            30.0,
        ),
        ({}, "Please try again in 1.898s.", 1.898),
        ({}, "Please try again in 250ms.", 0.25),
        ({}, "Please retry after 6 seconds.", 6.0),
        ({}, "Please try again in 2m.", 120.0),
        ({}, "Please try again later.", None),
    ],
)
def test_the_time_to_wait_is_read_from_headers_first_and_words_last(
    peer: Peer, headers: dict[str, str], message: str, seconds: float | None
) -> None:
    assert peer.error(429, "", message, headers).retry_after == seconds


DIGITS = st.one_of(st.integers().map(str), st.sampled_from(["9" * 20, "9" * 400, "1e999", "nan"]))
DATES = st.builds(
    "Mon, {} Nov {} {}:00:30 {}".format, DIGITS, DIGITS, DIGITS, st.sampled_from(["GMT", "+9999"])
)
WAITS = st.one_of(DIGITS, DATES, st.text())


@every_peer
@given(
    headers=st.dictionaries(st.sampled_from(["retry-after", "retry-after-ms", "date"]), WAITS),
    message=st.builds("try again in {}{}".format, DIGITS, st.sampled_from(["ms", "s", "m"])),
)
@example(headers={"retry-after": f"Mon, 02 Nov {'9' * 20} 10:00:30 GMT"}, message="")
@example(headers={}, message=f"try again in {'9' * 400}s")
@example(headers={}, message=f"try again in {'9' * 308}m")
def test_a_time_to_wait_is_a_finite_number_whatever_a_provider_says(
    peer: Peer, headers: dict[str, str], message: str
) -> None:
    for status in (429, IN_STREAM):
        wait = peer.error(status, "", message, headers).retry_after
        assert wait is None or 0 <= wait < math.inf


def test_a_delay_without_end_in_a_body_is_none() -> None:
    details = [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "9" * 400 + "s"}]
    report = {"error": {"status": "RESOURCE_EXHAUSTED", "message": "", "details": details}}
    assert gemini.PROTOCOL.classify(429, {}, json.dumps(report).encode()).retry_after is None


def test_what_the_body_says_of_a_wait_goes_before_its_words() -> None:
    report = {
        "error": {
            "status": "RESOURCE_EXHAUSTED",
            "message": "retry in 9s",
            "details": [
                {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.4s"}
            ],
        }
    }
    assert gemini.PROTOCOL.classify(429, {}, json.dumps(report).encode()).retry_after == 34.4


@every_peer
@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "the provider answered with status 520 and nothing else"),
        (b"<html><head><title> 520:\n Web </title></head></html>", "520: Web"),
        (b"<p>plain <b>page</b></p>", "plain page"),
        (b'{"error":"in a string"}', "in a string"),
        (b'{"error":5}', '{"error":5}'),
        (b'["not an object"]', '["not an object"]'),
        (b"[]", "the provider answered with status 520 and nothing else"),
        (b"null", "the provider answered with status 520 and nothing else"),
        (b'"x"', '"x"'),
        (b"\xff\xfe", "��"),
        (b'{"error":{"message":"no \xff text"}}', "no � text"),
    ],
)
def test_a_body_of_any_kind_gives_a_line_for_people(peer: Peer, body: bytes, message: str) -> None:
    error = peer.protocol.classify(520, {"Request-Id": "req_2"}, body)
    assert (error.message, error.code) == (message, ErrorCode.SERVER_ERROR)
    assert error.request_id == "req_2"


LONG = 2**20
"""Of a text for which work in proportion to its square would take many minutes."""


@pytest.mark.slow
@every_peer
@pytest.mark.parametrize(
    ("repeated", "shown"),
    [
        ("<", "<<<"),
        ("<title>", "the provider answered with status 500"),
        ("<title>a</p>", "a a"),
        ("</title><", "<"),
        ("eyJ-", "eyJ-eyJ-"),
    ],
)
def test_a_body_that_never_ends_what_it_begins_takes_no_long_time(
    peer: Peer, repeated: str, shown: str
) -> None:
    body = repeated * (LONG // len(repeated))
    assert peer.protocol.classify(500, {}, body.encode()).message.startswith(shown)


@pytest.mark.slow
@pytest.mark.parametrize("words", ["input token count ", "eyJ-", "model "])
def test_a_message_that_never_ends_what_it_begins_takes_no_long_time(words: str) -> None:
    message = words * (LONG // len(words))
    error = PEERS["Gemini generateContent"].error(400, "", message)
    assert (error.code, error.message) == (ErrorCode.BAD_REQUEST, message[:499] + "…")


@every_peer
@pytest.mark.parametrize(
    ("page", "message"),
    [
        ("<TITLE>one</Title><title>two</title>", "one"),
        ("<title>one<title>two</title>", "one two"),
        ("</title>a<title>b", "a b"),
        ("a<b c>d<e", "a d<e"),
        ("a>b<c", "a>b<c"),
        ("a<b<c>d>e", "a d>e"),
    ],
)
def test_a_page_is_shown_without_its_tags(peer: Peer, page: str, message: str) -> None:
    assert peer.protocol.classify(520, {}, page.encode()).message == message


@every_peer
def test_a_success_that_cannot_be_read_is_no_refusal(peer: Peer) -> None:
    error = peer.protocol.classify(200, {}, b"<p>prompt is too long</p>")
    assert (error.code, error.basis, error.status) == (ErrorCode.PROTOCOL, "fallback", 200)


@every_peer
def test_a_long_message_is_cut(peer: Peer) -> None:
    assert len(peer.error(400, "", "x" * 9000).message) == 500
    assert len(peer.error(IN_STREAM, "", "x" * 9000).message) == 500


@every_peer
def test_a_number_inside_an_id_is_not_a_status(peer: Peer) -> None:
    assert peer.error(400, "req_429", "failed (req_0114290x)").code is ErrorCode.BAD_REQUEST


@every_peer
@pytest.mark.parametrize("name", ["request-id", "x-request-id", "Apim-Request-Id"])
def test_the_id_of_a_request_is_kept(peer: Peer, name: str) -> None:
    assert peer.error(500, "", "?", {name: "req_1"}).request_id == "req_1"


def test_the_id_in_the_body_goes_before_that_in_the_headers() -> None:
    peer = PEERS["Anthropic Messages"]
    body = json.dumps(peer.report("api_error", "?") | {"request_id": "req_1"}).encode()
    error = peer.protocol.classify(500, {"request-id": "req_2"}, body)
    assert error.request_id == "req_1"
