"""A program that speaks like the Claude Code CLI and keeps transcripts: `keeping_child.py FOLDER`.

It answers by what its model would see: its transcript and the prompt. `view` answers with every
mark (`#name`) in sight; `pay #x` calls our tool `pay`, unless it is told that this has happened or
may have. At the step in FOLDER/die it kills the program that runs it, and itself.
The standard library alone.
"""

import json
import os
import queue
import re
import signal
import sys
import threading
import uuid
from pathlib import Path
from typing import Any

FOLDER = Path(sys.argv[1])
OPTIONS = dict(each.lstrip("-").partition("=")[::2] for each in sys.argv[2:])
PROMPTS: "queue.Queue[dict[str, Any]]" = queue.Queue()
ANSWERS: "queue.Queue[dict[str, Any]]" = queue.Queue()
OUT = threading.Lock()
MARK = re.compile(r"#\w+")


def emit(**frame: Any) -> None:
    with OUT:
        sys.stdout.write(json.dumps(frame) + "\n")
        sys.stdout.flush()


def listen() -> None:
    for line in sys.stdin:
        frame = json.loads(line)
        if frame["type"] == "control_request":
            response = {"subtype": "success", "request_id": frame["request_id"], "response": {}}
            emit(type="control_response", response=response)
        elif frame["type"] == "control_response":
            ANSWERS.put(frame["response"])
        else:
            PROMPTS.put(frame)
    os._exit(0)


def step(name: str, prompt: str) -> None:
    """Die here with the whole machine, if that is the plan for this prompt."""
    plan = FOLDER / "die"
    is_meant = "#cut" in prompt or "Go on from where you stopped." in prompt
    if plan.exists() and plan.read_text() == name and is_meant:
        plan.unlink()
        os.kill(int((FOLDER / "machine").read_text()), signal.SIGKILL)
        os._exit(9)


class Transcript:
    """The conversation in a file, and what was not told to the program yet."""

    def __init__(self) -> None:
        home = Path(os.environ["CLAUDE_CONFIG_DIR"])  # noqa: TID251 - as the CLI does
        self.session_id = OPTIONS.get("resume") or OPTIONS["session-id"]
        key = re.sub(r"[^A-Za-z0-9]", "-", str(Path.cwd()))
        found = sorted(home.glob(f"projects/*/{self.session_id}.jsonl"))
        self.path = found[0] if found else home / "projects" / key / f"{self.session_id}.jsonl"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        content = self.path.read_text().splitlines() if found else []
        self.lines: list[dict[str, Any]] = [json.loads(line) for line in content]
        self.told = len(self.lines)

    def add(self, kind: str, content: Any, uuid_: str | None = None) -> None:
        message = {"role": kind, "content": content}
        parent = self.lines[-1]["uuid"] if self.lines else None
        named = uuid_ or str(uuid.uuid4())
        line = {"type": kind, "uuid": named, "parentUuid": parent, "message": message}
        self.lines.append(line)
        with self.path.open("a") as file:
            file.write(json.dumps(line) + "\n")

    def mirror(self) -> None:
        fresh, self.told = self.lines[self.told :], len(self.lines)
        emit(type="transcript_mirror", filePath=str(self.path), entries=fresh)

    @property
    def text(self) -> str:
        return "\n".join(json.dumps(line["message"]["content"]) for line in self.lines)


def ask(**request: Any) -> dict[str, Any]:
    emit(type="control_request", request_id=str(uuid.uuid4()), request=request)
    return ANSWERS.get()


def speak(block: dict[str, Any], session_id: str) -> None:
    """Stream an answer of one block."""

    def event(**inner: Any) -> None:
        emit(type="stream_event", session_id=session_id, parent_tool_use_id=None, event=inner)

    head = {"id": f"msg_{uuid.uuid4()}", "model": "claude-sonnet-4-6", "usage": {"input_tokens": 1}}
    event(type="message_start", message=head)
    is_text = block["type"] == "text"
    empty = {**block, "text": ""} if is_text else {**block, "input": {}}
    more = json.dumps(block.get("input"))
    delta = {"type": "input_json_delta", "partial_json": more}
    if is_text:
        delta = {"type": "text_delta", "text": block["text"]}
    event(type="content_block_start", index=0, content_block=empty)
    event(type="content_block_delta", index=0, delta=delta)
    event(type="content_block_stop", index=0)
    stop = {"stop_reason": "end_turn" if is_text else "tool_use"}
    event(type="message_delta", delta=stop, usage={"output_tokens": 1})
    event(type="message_stop")


def pay(kept: Transcript, prompt: str, mark: str) -> None:
    """Call our tool, as the CLI does: hook, MCP, and the result in the transcript."""
    call_id, arguments = f"toolu_{uuid.uuid4().hex}", {"mark": mark}
    block = {"type": "tool_use", "id": call_id, "name": "mcp__haptera__pay", "input": arguments}
    speak(block, kept.session_id)
    step("asked", prompt)
    kept.add("assistant", [block])
    said = {"tool_name": block["name"], "tool_input": arguments, "tool_use_id": call_id}
    ask(subtype="hook_callback", callback_id="hook_0", tool_use_id=call_id, input=said)
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}}
    hello["clientInfo"] = {"name": "x", "version": "1"}

    def message(**inner: Any) -> None:
        ask(subtype="mcp_message", server_name="haptera", message={"jsonrpc": "2.0", **inner})

    message(id=0, method="initialize", params=hello)
    message(method="notifications/initialized")
    message(id=1, method="tools/call", params={"name": "pay", "arguments": arguments})
    step("ran", prompt)
    result = {"type": "tool_result", "tool_use_id": call_id, "content": f"paid {mark}"}
    kept.add("user", [result])
    emit(
        type="user",
        message={"role": "user", "content": [result]},
        parent_tool_use_id=None,
        session_id=kept.session_id,
    )
    kept.mirror()
    step("told", prompt)


def answer(kept: Transcript, frame: dict[str, Any]) -> None:
    content = frame["message"]["content"]
    prompt = content if isinstance(content, str) else json.dumps(content)
    goes_on = "Go on from where you stopped." in prompt and "pay #" not in prompt
    step("got", prompt)
    kept.add("user", content, frame.get("uuid"))
    step("kept", prompt)
    emit(
        type="system",
        subtype="init",
        session_id=kept.session_id,
        model="claude-sonnet-4-6",
        tools=[],
    )
    step("began", prompt)
    kept.mirror()
    step("mirrored", prompt)
    asked = kept.text if goes_on else prompt
    wanted = re.findall(r"pay (#\w+)", asked.rpartition("</conversation>")[2])
    knows = kept.text
    if wanted and f"paid {wanted[-1]}" not in knows and "[pay: unknown" not in knows:
        pay(kept, prompt, wanted[-1])
    said = " ".join(["seen", *sorted(set(MARK.findall(kept.text)))])
    speak({"type": "text", "text": said}, kept.session_id)
    step("said", prompt)
    kept.add("assistant", [{"type": "text", "text": said}])
    step("wrote", prompt)
    kept.mirror()
    step("stored", prompt)
    emit(
        type="result",
        subtype="success",
        is_error=False,
        duration_ms=5,
        duration_api_ms=3,
        session_id=kept.session_id,
        num_turns=1,
        result=said,
        stop_reason="end_turn",
        total_cost_usd=0.25,
        usage={"input_tokens": 1, "output_tokens": 1},
        modelUsage={},
    )
    step("ended", prompt)


def main() -> None:
    threading.Thread(target=listen, daemon=True).start()
    kept = Transcript()
    while True:
        answer(kept, PROMPTS.get())


main()
