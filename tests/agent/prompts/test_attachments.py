"""What is sent along with a prompt: files, content and addresses, checked before all else."""

import base64
import json
from pathlib import Path

import pytest

from haptera import Agent, AgentError, ErrorCode, MediaPart, run_agent
from haptera.access.assembly.agent_inputs import AttachmentInput
from haptera.model.json_types import JsonObject
from tests.providers.conversations import PIXEL
from tests.providers.exchanges import case
from tests.providers.faulty_server import faulty_server, replies

PICTURE = base64.b64decode(PIXEL)
ADDRESS = "https://example.org/a.jpg"


async def sent(*attachments: AttachmentInput, prompt: str = "Look.", cwd: Path) -> list[JsonObject]:
    """Return the content of the prompt that goes out to the provider."""
    async with faulty_server(replies(case("text"))) as server:
        agent = Agent(
            "anthropic/claude-sonnet-5",
            api_key="x",
            base_url=server.url,
            environment={},
            cwd=cwd,
            cache_ttl=None,
        )
        async with agent, agent.session() as session:
            await session.chat(prompt, attachments=attachments)
    content: list[JsonObject] = json.loads(server.requests[0].body)["messages"][0]["content"]
    return content


async def test_files_content_addresses_and_parts_are_sent_along(tmp_path: Path) -> None:
    (tmp_path / "dot.png").write_bytes(PICTURE)
    (tmp_path / "notes.txt").write_text("remember the milk", encoding="utf-8")
    part = MediaPart(mime="image/png", data=PIXEL)
    content = await sent(
        "dot.png", tmp_path / "dot.png", PICTURE, ADDRESS, part, "notes.txt", cwd=tmp_path
    )
    assert [block["type"] for block in content] == ["text", *["image"] * 5, "text"]
    inline = {"type": "base64", "media_type": "image/png", "data": PIXEL}
    assert [block["source"] for block in content[1:6]] == [
        *(inline, inline, inline),
        {"type": "url", "url": ADDRESS},
        inline,
    ]
    assert "remember the milk" in content[6]["text"]
    assert 'name="notes.txt"' in content[6]["text"]


async def test_an_attachment_may_be_all_that_is_said(tmp_path: Path) -> None:
    assert [block["type"] for block in await sent(PICTURE, prompt="", cwd=tmp_path)] == ["image"]


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("missing.png", "No such file"),
        (".", "Is a directory"),
        (b"\x00\x01\x02", "neither text nor a known picture"),
        (b"PK\x03\x04....\xff", "office document"),
        (b"", "is empty"),
        ("https://example.org/what", "say mime="),
        (b"\x89PNG\r\n\x1a\n" + b"\xff" * (20 * 1024 * 1024), "larger than 20 MiB"),
    ],
)
async def test_what_cannot_be_sent_is_named_and_nothing_is_asked_or_kept(
    tmp_path: Path, source: AttachmentInput, words: str
) -> None:
    async with faulty_server(replies(case("text"))) as server:
        agent = Agent("anthropic/m", api_key="x", base_url=server.url, environment={}, cwd=tmp_path)
        async with agent, agent.session() as session:
            with pytest.raises(AgentError, match=words) as caught:
                await session.chat("Look.", attachments=[source])
            assert session.messages == ()
    assert caught.value.code is ErrorCode.CONFIG_INVALID
    assert server.requests == []


async def test_one_call_takes_attachments_as_well(tmp_path: Path) -> None:
    (tmp_path / "dot.png").write_bytes(PICTURE)
    async with faulty_server(replies(case("text"))) as server:
        await run_agent(
            "Look.",
            model="anthropic/claude-sonnet-5",
            api_key="x",
            base_url=server.url,
            environment={},
            cwd=tmp_path,
            attachments=["dot.png"],
        )
    assert b'"image/png"' in server.requests[0].body


@pytest.mark.parametrize("wrong", ["dot.png", b"text", Path("dot.png"), [5], [None]])
async def test_what_is_no_list_of_attachments_is_refused_by_name(wrong: object) -> None:
    with pytest.raises(AgentError) as raised:
        await run_agent("Look.", model="anthropic/x", api_key="x", attachments=wrong)  # type: ignore[arg-type]
    assert raised.value.code is ErrorCode.CONFIG_INVALID
    assert "attachments" in raised.value.message
