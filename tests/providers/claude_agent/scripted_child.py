"""A program that speaks like the Claude Code CLI, by a script: `scripted_child.py FOLDER ARGS...`.

It reads `script.json` in the folder, a list of steps, and writes what it got to `received.jsonl`.
Control requests are answered at once by a thread. The standard library alone.
"""

import json
import os
import queue
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

FOLDER = Path(sys.argv[1])
PROMPTS: "queue.Queue[dict[str, Any]]" = queue.Queue()
ANSWERS: "queue.Queue[dict[str, Any]]" = queue.Queue()
OUT = threading.Lock()
SETTINGS: dict[str, Any] = {}


def emit(frame: dict[str, Any] | str) -> None:
    line = frame if isinstance(frame, str) else json.dumps(frame)
    with OUT:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def note(kind: str, value: object) -> None:
    with (FOLDER / "received.jsonl").open("a") as log:
        log.write(json.dumps([kind, value]) + "\n")


def answer(request_id: str, response: dict[str, Any]) -> None:
    said = {"subtype": "success", "request_id": request_id, "response": response}
    emit({"type": "control_response", "response": said})


def listen() -> None:
    for line in sys.stdin:
        frame = json.loads(line)
        if frame["type"] == "control_request":
            request = frame["request"]
            note("control", request["subtype"])
            if request["subtype"] in SETTINGS.get("silent", ()):
                continue
            answer(frame["request_id"], {})
            if request["subtype"] == "interrupt":
                for each in SETTINGS.get("on_interrupt", ()):
                    emit(each)
        elif frame["type"] == "control_response":
            note("answer", frame["response"])
            ANSWERS.put(frame["response"])
        else:
            note("user", frame["message"]["content"])
            PROMPTS.put(frame)
    note("eof", None)
    if not SETTINGS.get("ignore_eof"):
        os._exit(SETTINGS.get("exit", 0))


def stand_before(gate: str) -> None:
    """Say that the gate is reached, and wait until it is opened: both are named pipes."""
    reached = os.open(FOLDER / f"{gate}.reached", os.O_RDWR)
    os.write(reached, b"x")
    opened = os.open(FOLDER / f"{gate}.gate", os.O_RDWR)
    os.read(opened, 1)


def leave_a_process() -> None:
    """Start one that gets away from its group and session."""
    child = os.fork()
    if child == 0:
        os.setsid()
        signal.pause()
        os._exit(0)
    note("spawned", child)


def take(step: dict[str, Any]) -> None:
    match step:
        case {"expect": "user"}:
            PROMPTS.get()
        case {"emit": frame, **rest}:
            for number in range(int(rest.get("times", 1))):
                emit(json.loads(json.dumps(frame).replace("{n}", str(number))))
        case {"long": length, "frame": frame}:
            emit(json.dumps(frame).replace("{long}", "x" * length))
        case {"ask": request}:
            emit({"type": "control_request", "request_id": f"ask-{time.monotonic_ns()}", **request})
            ANSWERS.get()
        case {"gate": name}:
            stand_before(name)
        case {"say": text}:
            sys.stderr.write(text + "\n")
            sys.stderr.flush()
        case {"die": status}:
            os._exit(status)
        case {"spawn": _}:
            leave_a_process()


def main() -> None:
    script = json.loads((FOLDER / "script.json").read_text())
    SETTINGS.update(script["settings"])
    if SETTINGS.get("ignore_term"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    environment = dict(os.environ)  # noqa: TID251 - it reports what it was given
    note("start", {"argv": sys.argv[2:], "env": environment, "pid": os.getpid()})
    threading.Thread(target=listen, daemon=True).start()
    for step in script["steps"]:
        take(step)
    threading.Event().wait()


main()
