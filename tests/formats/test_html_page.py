"""The HTML page: nothing that a session holds becomes more than text, and it reads well."""

import io
import re
from decimal import Decimal
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from haptera.formats.html_page import write_html
from haptera.formats.html_style import STYLE
from haptera.formats.markdown import write_markdown
from haptera.formats.values import SessionExport
from haptera.model.parts import (
    CompactionPart,
    MediaPart,
    ProviderPart,
    ReasoningPart,
    ReminderPart,
    TextPart,
    ToolResultPart,
)
from haptera.model.usage import Usage
from tests.formats.conversations import (
    A_CONVERSATION,
    assistant,
    call,
    exported,
    heard_of,
    result,
    user,
)
from tests.formats.strategies import EXPORTS

TAGS = {
    *("html", "head", "meta", "title", "style", "body", "header", "main", "article", "h1", "h2"),
    *("h3", "p", "span", "a", "dl", "div", "dt", "dd", "details", "summary", "b", "em", "code"),
    *("pre", "strong", "figure", "img"),
}
ATTRIBUTES = {
    *("lang", "charset", "http-equiv", "content", "name", "id", "class", "href", "aria-label"),
    *("dir", "src", "alt"),
}
EMPTY = {"meta", "img"}


class Page(HTMLParser):
    """Reads a page as a browser would, and notes what is in it."""

    def __init__(self, raw: bytes) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text = io.StringIO()
        self.other: list[str] = []
        self.feed(raw.decode())
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self.text.write(" ")
        if tag not in EMPTY:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag
        self.text.write(" ")

    def handle_data(self, data: str) -> None:
        if self.open[-1:] != ["style"]:
            self.text.write(data)

    def handle_comment(self, data: str) -> None:
        self.other.append(data)

    def handle_pi(self, data: str) -> None:
        self.other.append(data)

    def unknown_decl(self, data: str) -> None:
        self.other.append(data)


def page_of(export: SessionExport) -> Page:
    return Page(b"".join(write_html(export)))


def assert_harmless(page: Page) -> None:
    assert page.open == []
    assert page.other == []
    assert {tag for tag, _ in page.tags} <= TAGS
    for tag, attributes in page.tags:
        assert set(attributes) <= ATTRIBUTES, tag
        for name, value in attributes.items():
            assert value is not None
            if name == "href":
                assert re.fullmatch(r"#m\d+", value)
            if name == "src":
                assert re.fullmatch(r"data:image/(png|jpeg|gif|webp);base64,[A-Za-z0-9+/=]+", value)
    policies = [each["content"] for _, each in page.tags if "http-equiv" in each]
    assert len(policies) == 1
    assert "default-src 'none'" in str(policies[0])
    assert "script-src" not in str(policies[0])
    assert [tag for tag, _ in page.tags].count("style") == 1


PAYLOADS = [
    "<script>alert(1)</script>",
    "</pre></code></details><script src=//evil.example/x.js></script>",
    "</style><script>alert(1)</script>",
    "</title><svg onload=alert(1)>",
    "<img src=x onerror=alert(1)>",
    '"><img src="https://evil.example/p.png">',
    "' onmouseover='alert(1)",
    "![x](https://evil.example/beacon.png)",
    "[click](javascript:alert(1))",
    "<iframe srcdoc='<script>alert(1)</script>'></iframe>",
    "<meta http-equiv=refresh content='0;url=https://evil.example'>",
    "<base href=https://evil.example><form action=//evil.example><input autofocus onfocus=x>",
    "<link rel=stylesheet href=https://evil.example/x.css>",
    "<style>@import url(https://evil.example/x.css)</style>",
    "<!--><script>alert(1)</script>-->",
    "<![CDATA[<script>alert(1)</script>]]>",
    "<?xml-stylesheet href='x'?>",
    "&lt;script&gt;&#60;script&#62;",
    "```html\n</code></pre><script>alert(1)</script>\n```",
    "`</code><script>alert(1)</script>` **</strong><script>**",
    "# <h1 onclick=alert(1)>",
    "\x00<scr\x00ipt>alert(1)</scr\x00ipt>",
    "\u202e\u2066<script>\u2069",
    "<details open ontoggle=alert(1)>",
    "<math><mtext></form><form><mglyph><style></math><img src onerror=alert(1)>",
]


def everywhere(payload: str) -> SessionExport:
    """Put a text into every place of a session that holds one."""
    media = MediaPart(mime=payload, url=payload, filename=payload)
    link = MediaPart(mime="image/png", url="https://evil.example/p.png", filename=payload)
    drawing = MediaPart(mime="image/svg+xml", data="PHN2Zy8+", filename=payload)
    odd = MediaPart(mime='image/png"onload="alert(1)', data="iVBORw0KGgo=", filename=payload)
    false = MediaPart(mime="image/png", data=f'iVBOR"{payload}', filename=payload)
    shown = MediaPart(mime="image/png", data="iVBORw0KGgo=", filename=payload)
    native = ProviderPart(provider=payload, model=payload, payload={payload: [payload]})
    answer = assistant(
        2,
        ReasoningPart(text=payload),
        payload,
        call(payload, payload, **{payload: payload, "x": {payload: 1}}),
        call("other", "unanswered", x=payload),
        native,
        CompactionPart(text=payload),
        provider=payload,
    )
    answer = replace(answer, model=payload, finish_reason=payload)
    told = result(payload, payload, payload, "error")
    with_media = ToolResultPart(
        call_id=result("x", "orphan", "").call_id,
        name=payload,
        content=(TextPart(text=payload), media, link, drawing, odd, false, shown),
    )
    return exported(
        user(1, payload, media, link, drawing, odd, false, shown, ReminderPart(text=payload)),
        answer,
        user(3, told, with_media, payload),
        title=payload,
        cwd=payload,
        model=payload,
        session_id=payload,
        system_prompts=(payload,),
        cost=Decimal(1),
        usage=Usage(input=1, output=1),
    )


@pytest.mark.parametrize("payload", PAYLOADS)
def test_a_page_of_hostile_content_holds_nothing_but_text(payload: str) -> None:
    page = page_of(everywhere(payload))
    assert_harmless(page)
    shown = re.sub("[\x00\u202e\u2066\u2069]", "\ufffd", payload)
    first = shown.split("\n", maxsplit=1)[0]
    assert first.strip("`*# ") in page.text.getvalue() or "`" in payload


@given(st.text(max_size=80), st.text(alphabet="<>\"'&`*#~-!/[]\n =x", max_size=80))
def test_no_text_becomes_anything_else(first: str, second: str) -> None:
    clean = first.encode("utf-8", "replace").decode()
    assert_harmless(page_of(everywhere(clean + second)))


@pytest.mark.slow
@given(EXPORTS)
def test_every_word_of_a_session_is_on_the_page(export: SessionExport) -> None:
    page = page_of(export)
    assert_harmless(page)
    words = set(re.findall(r"\w{3,}", page.text.getvalue()))
    for said in heard_of(export):
        text = said.what[2] if said.by == "result" else said.what if said.by != "call" else ""
        assert set(re.findall(r"\w{3,}", text)) <= words


def test_the_only_style_is_the_one_that_the_policy_names() -> None:
    raw = b"".join(write_html(exported(*A_CONVERSATION))).decode()
    assert f"<style>{STYLE}</style>" in raw
    assert "url(" not in STYLE
    assert "@import" not in STYLE
    assert "<" not in STYLE


def test_a_page_reads_well() -> None:
    export = exported(
        *A_CONVERSATION,
        title="Mountains",
        cwd="/home/ana",
        cost=Decimal("0.125"),
        usage=Usage(input=1200, output=30),
    )
    page = page_of(export)
    text = page.text.getvalue()
    assert "Mountains" in text
    assert "$0.1250" in text
    assert "1,200 in, 30 out" in text
    assert "2026-09-21 14:13 UTC" in text
    assert text.count("Assistant") == 3
    assert text.count("User") == 2  # a message of results alone is shown with the calls
    assert text.count("2469 m high") == 1
    folded = [attributes.get("class") for tag, attributes in page.tags if tag == "details"]
    assert folded == ["reasoning", "tool", "tool", "tool"]
    assert text.index("Glittertind") < text.index("the register is closed") < text.index("2452 m")
    assert '<em class="error">error</em>' in b"".join(write_html(export)).decode()


def test_code_and_stress_are_shown_as_such() -> None:
    said = "Try **this**:\n\n```python\nprint(1 < 2)\n```\n\nor `x < y`.\n\n## Why\n\nBecause."
    raw = b"".join(write_html(exported(user(1, said)))).decode()
    assert "<pre><code>print(1 &lt; 2)</code></pre>" in raw
    assert "<strong>this</strong>" in raw
    assert "<code>x &lt; y</code>" in raw
    assert '<p class="heading" dir="auto">Why</p>' in raw


def test_a_picture_is_shown_from_the_file_itself() -> None:
    picture = MediaPart(mime="image/png", blob="a" * 64, filename="shot.png")
    export = exported(user(1, picture), contents={"a" * 64: b"png"})
    raw = b"".join(write_html(export)).decode()
    assert '<img src="data:image/png;base64,cG5n" alt="shot.png">' in raw


def test_markdown_reads_well_and_its_fences_hold() -> None:
    export = exported(
        *A_CONVERSATION[:2],
        user(
            3, result("look_up", "call_1", "```\n````\nbreak out"), result("look_up", "call_2", "")
        ),
        title="Mountains\n# not a heading",
    )
    raw = b"".join(write_markdown(export)).decode()
    assert raw.startswith("# Mountains # not a heading\n")
    assert "\n## Assistant · made-up-1 · 2026-09-21 14:13 UTC · 12 in, 7 out\n" in raw
    assert "> **Reasoning**\n>\n> I do not know by heart." in raw
    assert "`````text\n```\n````\nbreak out\n`````" in raw
    assert raw.count("**Tool call** `look_up`") == 2
