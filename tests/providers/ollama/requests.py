"""The requests that Ollama is tried with, by name; between them every option is used."""

from haptera.model.messages import Message
from haptera.model.parts import MediaPart, ReasoningPart
from haptera.model.requests import ModelRequest
from tests.providers.conversations import (
    CLOCK,
    WEATHER,
    assistant,
    call,
    everything,
    image,
    loop_history,
    result,
    user,
)


def own_history() -> tuple[Message, ...]:
    """Return a loop as this protocol's decoder leaves it."""
    return (
        user("Weather?"),
        assistant(
            ReasoningPart(text="Look."), call("get_weather", "c1", {"city": "Rome"}, id="c1")
        ),
        user(result("get_weather", "c1", "sunny")),
    )


REQUESTS = {
    "plain": ModelRequest(model="qwen3:4b", messages=(user("Hi"),)),
    "everything": everything("qwen3:4b"),
    "levels": everything("gpt-oss:20b", thinking="medium", require_tool=None),
    "own_history": ModelRequest(
        model="qwen3:4b", messages=own_history(), tools=(WEATHER, CLOCK), thinking="off"
    ),
    "other_history": ModelRequest(model="qwen3:4b", messages=loop_history()),
    "media": ModelRequest(
        model="gemma3",
        messages=(
            user("What?", image(), MediaPart(mime="image/png", url="https://example.org/a.png")),
        ),
        betas={"truncate": False},
    ),
}
