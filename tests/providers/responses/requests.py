"""The requests that OpenAI Responses is tried with, by name; between them every option is used."""

from haptera.model.compaction_settings import CompactionSettings
from haptera.model.json_types import JsonObject
from haptera.model.messages import AssistantMessage, Message
from haptera.model.parts import MediaPart, ProviderPart, ReasoningPart, TextPart
from haptera.model.requests import ModelRequest
from haptera.providers.wire.openai_responses.dialects import (
    AZURE,
    DEEPSEEK,
    OPENAI,
    OPENROUTER,
    PERPLEXITY,
    PLAIN,
    XAI,
    ResponsesDialect,
)
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

SEALED: JsonObject = {"id": "rs_1"}


def thought(text: str, *, seal: str | None = None, **native: object) -> ReasoningPart:
    """Make a piece of reasoning of one item."""
    return ReasoningPart(text=text, signature=seal, native=SEALED | native)


def own_answer() -> AssistantMessage:
    """Return an answer as this protocol's decoder leaves it."""
    return assistant(
        thought("First."),
        thought("Then.", seal="sealed-1"),
        TextPart(
            text="I will look.",
            native={"id": "msg_1", "phase": "commentary", "reasoning": "rs_1"},
        ),
        ProviderPart(
            provider="openai",
            model="gpt-5.5",
            payload={
                "type": "web_search_call",
                "id": "ws_1",
                "status": "completed",
                "action": {"type": "search", "query": "weather"},
            },
        ),
        call("get_weather", "call_1", {"city": "Paris"}, id="fc_1", reasoning="rs_1"),
        call("write_sql", "call_2", {"__input__": "SELECT 1"}, id="ct_1", type="custom_tool_call"),
    )


def own_history() -> tuple[Message, ...]:
    """Return a loop of the same model, with a cut answer at its end."""
    return (
        user("Weather?"),
        own_answer(),
        user(
            result("get_weather", "call_1", "sunny", image()),
            result("write_sql", "call_2", "1 row"),
        ),
        assistant(TextPart(text="Sunny.", native={"id": "msg_2", "annotations": [CITED]})),
        user("And tomorrow?"),
        assistant(thought("Hm", seal="sealed-2"), TextPart(text="")),
        user("Are you there?"),
    )


CITED: JsonObject = {
    "type": "url_citation",
    "start_index": 0,
    "end_index": 5,
    "title": "Weather",
    "url": "https://example.org/weather",
}


def kept_history() -> tuple[Message, ...]:
    """Return a loop whose last answer the provider keeps."""
    return (
        user("Hi"),
        assistant(TextPart(text="Hello", native={"id": "msg_1", "response_id": "resp_1"})),
        user("Time?"),
        assistant(call("clock", "call_1", {}, id="fc_1", response_id="resp_2")),
        user(result("clock", "call_1", "noon")),
    )


REQUESTS: dict[str, tuple[ModelRequest, ResponsesDialect]] = {
    "plain": (ModelRequest(model="gpt-4.1", messages=(user("Hi"),)), OPENAI),
    "everything": (everything("gpt-5.5"), OPENAI),
    "everything_without_reasoning": (everything("gpt-4.1"), OPENAI),
    "own_history": (ModelRequest(model="gpt-5.5", messages=own_history()), OPENAI),
    "other_history": (ModelRequest(model="gpt-5.5", messages=loop_history()), OPENAI),
    "media": (
        ModelRequest(
            model="gpt-5.5",
            messages=(
                user(
                    "What is this?",
                    image(),
                    MediaPart(mime="image/jpeg", url="https://example.org/a.jpg"),
                    MediaPart(mime="application/pdf", data=PDF, filename="a.pdf"),
                    MediaPart(mime="application/pdf", url="https://example.org/a.pdf"),
                ),
            ),
        ),
        OPENAI,
    ),
    "server_tools": (
        ModelRequest(
            model="gpt-5.5",
            messages=(user("News?"),),
            tools=(CLOCK,),
            betas={
                "web_search": True,
                "code_interpreter": True,
                "image_generation": True,
                "responses_beta": True,
            },
        ),
        OPENAI,
    ),
    "chained": (
        ModelRequest(
            model="gpt-5.5",
            messages=kept_history(),
            tools=(CLOCK,),
            betas={"previous_response_id": True},
        ),
        OPENAI,
    ),
    "background": (
        ModelRequest(model="gpt-5.5", messages=(user("Think."),), betas={"background": True}),
        OPENAI,
    ),
    "stored": (
        ModelRequest(
            model="gpt-5.5",
            messages=(user("Hi"),),
            thinking="off",
            compaction=CompactionSettings(enabled=True),
            betas={"store": True},
        ),
        OPENAI,
    ),
    "schema": (
        ModelRequest(model="gpt-4.1", messages=(user("City?"),), output_schema=ANSWER),
        OPENAI,
    ),
    "azure": (everything("gpt-5-mini"), AZURE),
    "openrouter": (everything("openai/gpt-5-mini"), OPENROUTER),
    "perplexity": (everything("perplexity/sonar"), PERPLEXITY),
    "perplexity_loop": (
        ModelRequest(
            model="openai/gpt-5.5",
            messages=(
                user("News?"),
                assistant(
                    ProviderPart(
                        provider="perplexity",
                        model="openai/gpt-5.5",
                        payload={"type": "search_results", "queries": ["news"], "results": []},
                    ),
                    TextPart(text="Some.", native={"id": "msg_1", "annotations": [CITED]}),
                    call("clock", "call_1", {}, id="fc_1"),
                ),
                user(result("clock", "call_1", "noon")),
            ),
            thinking="low",
        ),
        PERPLEXITY,
    ),
    "xai": (
        ModelRequest(
            model="grok-4.3",
            messages=loop_history(),
            tools=(WEATHER,),
            thinking="low",
            max_tokens=9,
        ),
        XAI,
    ),
    "deepseek": (
        ModelRequest(
            model="deepseek-v4-flash",
            messages=(
                user("Weather?"),
                assistant(
                    ReasoningPart(text="Look.", native={"id": "a-b", "raw": True}),
                    call("get_weather", "call_1", {"city": "Oslo"}, id="c-d", reasoning="a-b"),
                ),
                user(result("get_weather", "call_1", "rain")),
            ),
            tools=(WEATHER,),
            thinking="high",
        ),
        DEEPSEEK,
    ),
    "any_server": (
        ModelRequest(
            model="smollm2", messages=loop_history(), system=("Be brief.",), temperature=0.2
        ),
        PLAIN,
    ),
}
