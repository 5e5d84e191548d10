"""The keywords that are written for type checkers are those that the declarations give."""

import pytest

from haptera.agent.query_options import QUERY
from haptera.options.declarations import options_of
from scripts.write_keywords import FILES, SOURCE, formatted, text_of, typed_text


@pytest.mark.parametrize("name", FILES)
def test_a_file_of_keywords_is_what_the_declarations_give(name: str) -> None:
    written = (SOURCE / name).read_text(encoding="utf-8")
    assert written == formatted(text_of(FILES[name])), "run `make keywords`"


def test_a_keyword_has_the_type_that_a_program_writes() -> None:
    types = {name: typed_text(QUERY, name) for name in options_of(QUERY)}
    assert types["stop"] == "Sequence[str]"  # kept as a tuple
    assert types["system_prompt"] == "str | Sequence[str] | None"  # of another name and type
    assert types["tools"] == "Iterable[ToolInput] | None"  # declared by an alias
    assert types["timeout"] == "float | None"  # declared where the log keeps it
