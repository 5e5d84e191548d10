"""Counts the tokens that a session would send, without sending anything to be answered."""

from holdfast.agent.keywords import Prompt, make_prompt
from holdfast.assembly.composition import Composition
from holdfast.blocks.conversation.fold import SessionFold
from holdfast.blocks.request_builder import RequestExtras, build_request, lead_with_reminders
from holdfast.vocabulary.ids import new_query_id
from holdfast.vocabulary.requests import TokenCount


async def count_session_tokens(
    composition: Composition, fold: SessionFold, prompt: Prompt | None
) -> TokenCount:
    """Count what the next request would hold; with a prompt, if it were said now.

    Raises:
        SessionError: NOTHING_TO_SEND when nothing was said yet and there is no prompt.

    """
    settings = fold.settings
    client, model = await composition.clients.route(settings.model)
    message = None
    if prompt is not None:
        message = make_prompt(prompt, {}, new_query_id())
        message = lead_with_reminders(message, settings.cached_reminders, fold.sent_view())
    tools = composition.registry.view(settings.allowed_tools, settings.denied_tools).wire_tools
    extras = RequestExtras(model=model, tools=tools)
    return await client.count_tokens(build_request(settings, fold.sent_view(message), extras))
