"""Checks a request by the types of the official package, down to the last field."""

import importlib
import pkgutil
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import openai.types.chat
import openai.types.shared_params
from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming
from pydantic import ConfigDict, TypeAdapter
from typing_extensions import is_typeddict


def modules_of(package: ModuleType) -> Iterator[ModuleType]:
    """Yield the modules right under a package."""
    for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        yield importlib.import_module(module.name)


def forbid_undeclared_fields() -> None:
    """Make the package's types refuse fields that they do not declare."""
    for package in (openai.types.chat, openai.types.shared_params):
        for module in modules_of(package):
            for kind in vars(module).values():
                if is_typeddict(kind):
                    kind.__pydantic_config__ = ConfigDict(extra="forbid")


forbid_undeclared_fields()
_STREAMED = TypeAdapter[Any](CompletionCreateParamsStreaming)


def check_official_types(body: dict[str, Any]) -> None:
    """Raise ValueError where the official types do not allow `body`."""
    _walk(_STREAMED.validate_python(body))


def _walk(value: Any) -> None:
    """Look at everything: what is declared as an iterable is only checked when it is read."""
    if isinstance(value, dict):
        for item in value.values():
            _walk(item)
    elif isinstance(value, Iterator | list):
        for item in value:
            _walk(item)
