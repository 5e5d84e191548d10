"""What `haptera` runs without a command: imported when it is first used.

A module of its own because it is data: a table of names that are used through the module, as in
`late.run_chat(...)`.
"""

from typing import TYPE_CHECKING

from haptera.model.late_names import late_names

if TYPE_CHECKING:
    from haptera.cli.chat.client import run_chat
    from haptera.cli.models_commands import prepare_model
    from haptera.cli.one_shot import run_one_shot
    from haptera.cli.prompt_input import missing_files, piped_text, read_prompt

__all__ = [
    "missing_files",
    "piped_text",
    "prepare_model",
    "read_prompt",
    "run_chat",
    "run_one_shot",
]

_PROMPT_INPUT = "haptera.cli.prompt_input"

if not TYPE_CHECKING:
    __getattr__ = late_names(
        __name__,
        {
            "missing_files": _PROMPT_INPUT,
            "piped_text": _PROMPT_INPUT,
            "prepare_model": "haptera.cli.models_commands",
            "read_prompt": _PROMPT_INPUT,
            "run_chat": "haptera.cli.chat.client",
            "run_one_shot": "haptera.cli.one_shot",
        },
    )
