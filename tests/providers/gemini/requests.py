"""The requests that Gemini is tried with, by name; between them every option is used."""

from haptera.model.messages import Message
from haptera.model.parts import MediaPart, ProviderPart, ReasoningPart, TextPart
from haptera.model.requests import ModelRequest
from haptera.providers.schema_targets import SchemaAdapter
from haptera.providers.wire.gemini import PROTOCOL
from haptera.providers.wire.gemini.dialects import GEMINI_API, VERTEX, GeminiDialect
from haptera.providers.wire.gemini.request import RequestEncoder
from haptera.providers.wire.protocol import WireRequest
from tests.providers.conversations import (
    ANSWER,
    CLOCK,
    PDF,
    WEATHER,
    assistant,
    call,
    everything,
    image,
    loop_history,
    result,
    user,
)

SEAL = "c2VhbA=="


def encoded(request: ModelRequest, dialect: GeminiDialect = GEMINI_API) -> WireRequest:
    """Encode a request as a client does: its schemas are adapted to the model first."""
    targets = PROTOCOL.schema_targets(request.model)
    return RequestEncoder(dialect)(SchemaAdapter().adapt(request, targets))


def own_history(model: str) -> tuple[Message, ...]:
    """Return a loop as this protocol's decoder leaves it."""
    return (
        user("Weather?"),
        assistant(
            ReasoningPart(text="I should look."),
            ReasoningPart(text="Sealed thought.", signature=SEAL),
            TextPart(text="I will look.", native={"thoughtSignature": SEAL}),
            call("get_weather", "abc", {"city": "Rome"}, id="abc", thoughtSignature=SEAL),
            call("clock", "call_r_2"),
            model=model,
        ),
        user(
            result("get_weather", "abc", "sunny", image()),
            result("clock", "call_r_2", "", outcome="denied"),
        ),
        assistant(
            ProviderPart(
                provider="gemini",
                model=model,
                payload={"executableCode": {"language": "PYTHON", "code": "print(1)"}},
            ),
            "Done.",
            ProviderPart(
                provider="gemini", model=model, payload={"text": "", "thoughtSignature": SEAL}
            ),
            model=model,
        ),
        user("Thanks."),
    )


REQUESTS: dict[str, tuple[ModelRequest, GeminiDialect]] = {
    "plain": (ModelRequest(model="gemini-2.5-flash", messages=(user("Hi"),)), GEMINI_API),
    "everything": (everything("gemini-3-flash-preview"), GEMINI_API),
    "everything_before_3": (everything("gemini-2.5-pro"), GEMINI_API),
    "everything_long_ago": (everything("gemini-2.0-flash"), GEMINI_API),
    "own_history": (
        ModelRequest(model="gemini-3-pro-preview", messages=own_history("gemini-3-pro-preview")),
        GEMINI_API,
    ),
    "own_history_before_3": (
        ModelRequest(model="gemini-2.5-flash", messages=own_history("gemini-2.5-flash")),
        GEMINI_API,
    ),
    "other_model": (
        ModelRequest(model="gemini-3-pro-preview", messages=own_history("gemini-2.5-flash")),
        GEMINI_API,
    ),
    "other_history": (
        ModelRequest(model="gemini-3-flash-preview", messages=loop_history()),
        GEMINI_API,
    ),
    "media": (
        ModelRequest(
            model="gemini-2.5-flash",
            messages=(
                user(
                    "What is this?",
                    image(),
                    MediaPart(mime="application/pdf", data=PDF),
                    MediaPart(mime="video/mp4", url="gs://bucket/film.mp4"),
                ),
            ),
        ),
        GEMINI_API,
    ),
    "server_tools": (
        ModelRequest(
            model="gemini-3-flash-preview",
            messages=(user("News?"),),
            tools=(CLOCK,),
            betas={"google_search": True, "url_context": True, "code_execution": False},
        ),
        GEMINI_API,
    ),
    "schema": (
        ModelRequest(
            model="gemini-2.5-flash", messages=(user("City?"),), output_schema=ANSWER, seed=1
        ),
        GEMINI_API,
    ),
    "schema_long_ago": (
        ModelRequest(model="gemini-2.0-flash", messages=(user("City?"),), output_schema=ANSWER),
        GEMINI_API,
    ),
    "vertex": (
        ModelRequest(
            model="gemini-2.5-flash", messages=loop_history(), tools=(WEATHER,), thinking="off"
        ),
        VERTEX,
    ),
}
