"""The settings of compaction: each field is the one declaration of an option.

A module of its own because `settings.py` is as long as a module may be.
"""

from typing import Annotated, Literal, TypeAlias

import msgspec

from haptera.model.option import Option

CompactionStrategy: TypeAlias = Literal["summarise", "server", "off"]


class CompactionSettings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a conversation that grows too long is made shorter."""

    strategy: Annotated[
        CompactionStrategy,
        Option(
            "Who shortens it: `summarise`: a model is asked for a summary of the earlier messages; "
            "`server`: the provider does it itself, where it can; `off`: nothing does."
        ),
    ] = "summarise"
    enabled: Annotated[
        bool, Option("Whether the provider may compact; the same as the strategy `server`.")
    ] = False
    input_tokens: Annotated[
        int | None,
        Option(
            "Tokens of input from which on it is compacted; None: what the window of the model "
            "leaves, or the provider's own number.",
            least=1,
        ),
    ] = None
    pause_after: Annotated[bool, Option("Whether the query ends after a compaction.")] = False
    context_window: Annotated[
        int | None,
        Option("Tokens that the model can hold; None: what is known of the model.", least=256),
    ] = None
    model: Annotated[
        str | None,
        Option("The model that writes summaries, as `provider/model`; None: the session's."),
    ] = None
    prune: Annotated[
        bool,
        Option(
            "Whether results of tools that are old and large are replaced by a placeholder in what "
            "is sent, before a summary is asked for."
        ),
    ] = True
