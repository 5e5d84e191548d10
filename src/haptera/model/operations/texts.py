"""Texts that clients send: how long each kind may be. A store may hold longer ones."""

from typing import Annotated

from msgspec import Meta

Name = Annotated[str, Meta(min_length=1, max_length=200, pattern=r"\S")]
ChosenText = Annotated[str, Meta(min_length=1, max_length=4000)]
