"""The recorded Chat Completions traffic: where it is, whose it is, and what is expected of it."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from haptera.model.errors import ErrorCode
from haptera.model.usage import Usage
from haptera.providers.wire.chat_completions.dialects import DIALECTS, Dialect
from tests.fixtures_wire import wire_files, wire_root

DIALECT_OF_FOLDER = {
    "openai-chat": "openai",
    "azure-chat": "azure",
    "compat-chat": "compatible",
    "deepseek-chat": "deepseek",
    "groq-chat": "groq",
    "llamacpp-chat": "llamacpp",
    "mistral-chat": "mistral",
    "ollama-chat": "ollama",
    "openrouter-chat": "openrouter",
    "xai-chat": "xai",
}

REPORTED_IN_STREAM = {
    "pydantic-ai.test_tool_use_failed_error_streaming_with_text.0": ErrorCode.BAD_REQUEST,
    "pydantic-ai.test_openrouter_stream_error.0": ErrorCode.BAD_REQUEST,
}
"""What the errors inside streams of status 200 have to be."""

ERROR_CODES = {
    "openai-chat/braintrust-sdk-python.test_openai_client_async_error": ErrorCode.MODEL_NOT_FOUND,
    "openai-chat/dd-trace-py.chat_completion_error": ErrorCode.AUTH,
    "openai-chat/dd-trace-py.llama_index_chat_error": ErrorCode.AUTH,
    "openai-chat/openinference.TestInputValueImageHiding": ErrorCode.BAD_REQUEST,
    "openai-chat/openllmetry.test_vision_base64": ErrorCode.BAD_REQUEST,
    "openai-chat/opentelemetry-python-contrib.test_async_chat": ErrorCode.MODEL_NOT_FOUND,
    "openai-chat/pydantic-ai.test_model_name_suggestion": ErrorCode.MODEL_NOT_FOUND,
    "openai-chat/pydantic-ai.test_multimodal_tool_return": ErrorCode.BAD_REQUEST,
    "openai-chat/pydantic-ai.test_openai_o1_mini_system_role": ErrorCode.BAD_REQUEST,
    "openai-chat/reported.rate_limit_429_tpm": ErrorCode.RATE_LIMITED,
    "openai-chat/rig.error_identity_edge": ErrorCode.BAD_REQUEST,
    "openai-chat/weave.test_simple_client_create_with_exception": ErrorCode.AUTH,
    "azure-chat/openllmetry.test_chat_reasoning": ErrorCode.MODEL_NOT_FOUND,
    "azure-chat/ruby_llm.chat_error_handling": ErrorCode.AUTH,
    "compat-chat/reported.perplexity_502": ErrorCode.OVERLOADED,
    "compat-chat/rig.error_envelope_nonexistent_model": ErrorCode.MODEL_NOT_FOUND,
    "compat-chat/rig.error_matrix_invalid_temperature": ErrorCode.BAD_REQUEST,
    "compat-chat/ruby_llm.chat_error_handling": ErrorCode.AUTH,
    "compat-chat/ruby_llm.chat_real_error_scenarios": ErrorCode.CONTEXT_LENGTH,
    "deepseek-chat/reported.insufficient_balance_402": ErrorCode.QUOTA,
    "deepseek-chat/rig.wire_shape_matrix_blocking": ErrorCode.BAD_REQUEST,
    "deepseek-chat/rig.wire_shape_matrix_chat_completion_rejects": ErrorCode.AUTH,
    "deepseek-chat/ruby_llm.chat_error_handling": ErrorCode.AUTH,
    "deepseek-chat/ruby_llm.chat_real_error_scenarios": ErrorCode.CONTEXT_LENGTH,
    "groq-chat/pydantic-ai.test_model_name_suggestion": ErrorCode.MODEL_NOT_FOUND,
    "groq-chat/pydantic-ai.test_tool_regular_error": ErrorCode.MODEL_NOT_FOUND,
    "groq-chat/pydantic-ai.test_tool_use_failed": ErrorCode.BAD_REQUEST,
    "groq-chat/rig.response_identity_edge_auth": ErrorCode.AUTH,
    "groq-chat/rig.response_identity_edge_provider": ErrorCode.MODEL_NOT_FOUND,
    "llamacpp-chat/rig.error_matrix_context_overflow": ErrorCode.CONTEXT_LENGTH,
    "llamacpp-chat/rig.error_matrix_malformed": ErrorCode.BAD_REQUEST,
    "llamacpp-chat/rig.multimodal_matrix_malformed": ErrorCode.BAD_REQUEST,
    "llamacpp-chat/rig.multimodal_matrix_unfetchable": ErrorCode.SERVER_ERROR,
    "mistral-chat/rig.logprobs_rejection": ErrorCode.BAD_REQUEST,
    "mistral-chat/rig.response_identity_edge_blocking_error": ErrorCode.MODEL_NOT_FOUND,
    "mistral-chat/rig.response_identity_edge_blocking_unauthorized": ErrorCode.AUTH,
    "mistral-chat/ruby_llm.chat_error_handling": ErrorCode.AUTH,
    "ollama-chat/ruby_llm.chat_error_handling": ErrorCode.AUTH,
    "openrouter-chat/pydantic-ai.test_openrouter_errors_raised": ErrorCode.RATE_LIMITED,
    "openrouter-chat/rig.response_identity_edge_routed": ErrorCode.MODEL_NOT_FOUND,
    "openrouter-chat/ruby_llm.chat_error_handling": ErrorCode.AUTH,
}
"""What each recorded error has to be, by the start of its name; written down before the code."""


@dataclass(frozen=True)
class Recording:
    """One recorded reply and what the vendor's own package makes of it."""

    folder: Path
    meta: dict[str, Any]
    expect: dict[str, Any]

    @property
    def name(self) -> str:
        """The provider's folder and the case."""
        return f"{self.folder.parent.name}/{self.folder.name}"

    @property
    def dialect(self) -> Dialect:
        """The dialect that the reply was spoken in."""
        return DIALECTS[DIALECT_OF_FOLDER[self.folder.parent.name]]

    @property
    def body(self) -> bytes:
        """The bytes as they came."""
        return (self.folder / str(self.meta["body_file"])).read_bytes()

    @property
    def is_stream(self) -> bool:
        """Whether the reply is an answer, however it ended."""
        return bool(self.meta["kind"] == "stream")

    @property
    def is_cut(self) -> bool:
        """Whether the answer broke off although the package takes it for complete."""
        cautions = self.expect.get("caution") or ()
        return any("ends without a stop reason" in caution for caution in cautions)

    @property
    def error_code(self) -> ErrorCode:
        """What the error has to be."""
        found = [code for start, code in ERROR_CODES.items() if self.name.startswith(start)]
        assert len(found) == 1, f"{self.name} has no row of its own"
        return found[0]


def load(meta_file: Path) -> Recording:
    """Read one recording."""
    folder = meta_file.parent
    return Recording(
        folder=folder,
        meta=json.loads(meta_file.read_text()),
        expect=json.loads((folder / "expect.json").read_text()),
    )


def all_recordings() -> list[object]:
    """Return every recording as a test parameter; one that skips or fails when there are none."""
    found = [
        file for folder in DIALECT_OF_FOLDER for file in wire_files(f"open/{folder}/*/meta.json")
    ]
    return found if wire_root().is_dir() else found[:1]


def expected_usage(reported: dict[str, Any] | None) -> Usage:
    """Map a reported usage to ours, as docs/chat-completions.md says."""
    if not reported:
        return Usage()
    prompt, completion = reported["prompt_tokens"], reported["completion_tokens"]
    prompt_details = reported.get("prompt_tokens_details") or {}
    reasoning = (reported.get("completion_tokens_details") or {}).get("reasoning_tokens", 0)
    reasoning_is_outside = reported["total_tokens"] == prompt + completion + reasoning
    return Usage(
        input=prompt,
        output=completion + (reasoning if reasoning_is_outside else 0),
        cache_read=prompt_details.get("cached_tokens") or 0,
        cache_write=prompt_details.get("cache_write_tokens") or 0,
        reasoning=reasoning,
    )
