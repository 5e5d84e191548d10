"""Counts the tokens that a session would send, without sending anything to be answered."""

from holdfast.agent.keywords import Prompt, make_prompt
from holdfast.assembly.composition import Composition
from holdfast.blocks.conversation.fold import SessionFold
from holdfast.blocks.request_builder import RequestExtras, build_request, lead_with_reminders
from holdfast.vocabulary.ids import new_query_id
from holdfast.vocabulary.parts import media_of
from holdfast.vocabulary.requests import TokenCount


async def count_session_tokens(
    composition: Composition, fold: SessionFold, prompt: Prompt | None
) -> TokenCount:
    """Count what the next request would hold; with a prompt, if it were said now.

    Raises:
        SessionError: NOTHING_TO_SEND when nothing was said yet and there is no prompt.
        ConfigError: CONFIG_INVALID when the prompt holds media that the model does not take.

    """
    settings = fold.settings
    client, model = await composition.clients.route(settings.model)
    message = None
    if prompt is not None:
        message = make_prompt(prompt, {}, new_query_id())
        message = lead_with_reminders(message, settings.cached_reminders, fold.sent_view())
    tools = composition.registry.view(settings.allowed_tools, settings.denied_tools).wire_tools
    media = media_of(message.parts) if message is not None else ()
    extras = RequestExtras(model=model, tools=tools, fresh_media=media)
    return await client.count_tokens(build_request(settings, fold.sent_view(message), extras))
