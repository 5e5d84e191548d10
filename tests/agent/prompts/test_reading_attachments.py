"""Attachments: known by their content, measured before they are read, refused by name."""

import base64
import contextlib
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haptera.access.assembly.attachments import attachment_part
from haptera.model.errors import ConfigError, ErrorCode
from haptera.model.parts import MediaPart, TextPart
from haptera.providers.media_content import ContentLimits, media_type_of

PNG = b"\x89PNG\r\n\x1a\n" + b"\x00" * 16
SAMPLES = {
    "image/png": PNG,
    "image/jpeg": b"\xff\xd8\xff\xe0\x00\x10JFIF\x00",
    "image/gif": b"GIF89a\x01\x00\x01\x00\x80\x00\x00",
    "image/webp": b"RIFF\x24\x00\x00\x00WEBPVP8 \x00",
    "image/bmp": b"BM\x00\x00\x00\x00\x00",
    "image/tiff": b"II*\x00\x08\x00",
    "image/heic": b"\x00\x00\x00\x18ftypheic\x00",
    "application/pdf": b"%PDF-1.7\nplain text so far",
    "audio/wav": b"RIFF\x24\x00\x00\x00WAVEfmt \x00",
    "audio/mpeg": b"ID3\x04\x00\x00\x00",
    "audio/ogg": b"OggS\x00\x02",
    "audio/flac": b"fLaC\x00\x00\x00",
    "audio/mp4": b"\x00\x00\x00\x20ftypM4A \x00",
}


@pytest.mark.parametrize(("mime", "content"), SAMPLES.items(), ids=list(SAMPLES))
def test_media_is_known_by_its_first_bytes_whatever_its_name(
    tmp_path: Path, mime: str, content: bytes
) -> None:
    (tmp_path / "notes.txt").write_bytes(content)
    part = attachment_part("notes.txt", cwd=tmp_path)
    assert isinstance(part, MediaPart)
    assert (part.mime, part.filename) == (mime, "notes.txt")
    assert base64.b64decode(part.data or "") == content


def test_a_text_becomes_text_under_its_name(tmp_path: Path) -> None:
    path = tmp_path / 'a"<b>.py'
    path.write_text("print('hé')", encoding="utf-8")
    part = attachment_part(path, cwd=Path("/"))
    assert isinstance(part, TextPart)
    assert part.text == "<attachment name=\"a__b_.py\">\nprint('hé')\n</attachment>"


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_a_text_with_a_mark_is_read_in_its_encoding(encoding: str) -> None:
    part = attachment_part("héllo".encode(encoding), cwd=Path())
    assert isinstance(part, TextPart)
    assert "\nhéllo\n" in part.text


@pytest.mark.parametrize("text", ["BMW is a car", "FORM 27b", "ID3 is a tag", "PK is no archive"])
def test_a_text_that_begins_like_a_medium_stays_a_text(text: str) -> None:
    assert isinstance(attachment_part(text.encode(), cwd=Path()), TextPart)


def test_bytes_without_a_name_have_none() -> None:
    part = attachment_part(PNG, cwd=Path())
    assert isinstance(part, MediaPart)
    assert part.filename is None


def test_an_address_is_handed_on_and_not_fetched() -> None:
    part = attachment_part("https://example.org/a/plot.PNG?x=1", cwd=Path())
    assert part == MediaPart(
        mime="image/png", url="https://example.org/a/plot.PNG?x=1", filename="plot.PNG"
    )


def test_a_data_address_is_content() -> None:
    encoded = base64.b64encode(PNG).decode()
    part = attachment_part(f"data:image/jpeg;base64,{encoded}", cwd=Path())
    assert part == MediaPart(mime="image/png", data=encoded)
    assert attachment_part(f"DATA:image/jpeg;base64,{encoded}", cwd=Path()) == part
    text = attachment_part("data:text/plain;charset=utf-8,a%20b", cwd=Path())
    assert isinstance(text, TextPart)
    assert "\na b\n" in text.text


REFUSED: list[tuple[str | bytes, str]] = [
    ("missing.png", "'missing.png': cannot be read: No such file"),
    ("folder", "'folder': cannot be read: Is a directory"),
    ("pipe", "'pipe': is not a plain file"),
    ("large.png", "'large.png': is larger than"),
    ("large.txt", "'large.txt': is a text and is larger than"),
    ("empty", "'empty': is empty"),
    ("a\x00b", "is not a path"),
    (b"PK\x03\x04\x14\x00\xff", "an office document; send a PDF"),
    (b"\x7fELF\x02\x00\xff", "is a program"),
    (b"\x00\x01\x02\xff", "neither text nor a known picture"),
    (b"zeros \x00 inside", "neither text nor a known picture"),
    ("https://example.org/page", "does not show what it is: say mime="),
    ("https:///x.png", "only http, https and data"),
    ("https://[x/a.png", "is not a URL"),
    ("file:///etc/passwd", "cannot be read: No such file"),
    ("https://me:word@example.org/a.png", "holds a user or password"),
    ("data:image/png;base64,@@@@", "its base64 is broken"),
    ("data:nothing", "is not a data address"),
    ("data:," + "a" * 10_000, "is larger than"),
]


@pytest.mark.parametrize(("source", "reason"), REFUSED)
def test_what_cannot_be_sent_is_refused_with_its_name(
    tmp_path: Path, source: str | bytes, reason: str
) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "large.png").write_bytes(PNG + b"\x00" * 3000)
    (tmp_path / "large.txt").write_text("x" * 900)
    (tmp_path / "empty").write_bytes(b"")
    limits = ContentLimits(media=2000, text=800)
    with pytest.raises(ConfigError) as caught:
        attachment_part(source, cwd=tmp_path, limits=limits)
    assert caught.value.code is ErrorCode.CONFIG_INVALID
    assert reason in caught.value.message


def test_a_password_in_an_address_is_not_repeated() -> None:
    with pytest.raises(ConfigError) as caught:
        attachment_part("https://me:word@example.org/a.png", cwd=Path())
    assert "word@" not in caught.value.message


@given(st.binary(max_size=64))
def test_any_bytes_are_either_a_part_or_refused(content: bytes) -> None:
    with contextlib.suppress(ConfigError):
        part = attachment_part(content, cwd=Path())
        assert isinstance(part, TextPart) or part.mime == media_type_of(content)
