"""Reads the tables of docs/provider-errors-*.md, which say what becomes of each error."""

from pathlib import Path
from typing import NamedTuple

DOCS = Path(__file__).resolve().parents[2] / "docs"


class ErrorRow(NamedTuple):
    """One row: what comes in, and what it becomes."""

    status: int | None
    typed: str
    words: str
    code: str
    is_retryable: bool
    basis: str

    @property
    def name(self) -> str:
        return f"{self.status}-{self.typed}-{self.words[:20]}-{self.code}"


def rows_of(name: str) -> list[ErrorRow]:
    """Return the rows of one table; a table without typed codes has a column less."""
    text = (DOCS / f"provider-errors-{name}.md").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line.startswith("| ")][1:]
    rows = []
    for line in lines:
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        status, *typed, words, code, retryable, basis = cells
        rows.append(
            ErrorRow(
                status=None if status == "none" else int(status) if status != "*" else 400,
                typed="" if not typed or typed[0] == "*" else typed[0],
                words="" if words == "*" else words,
                code=code,
                is_retryable=retryable == "yes",
                basis=basis,
            )
        )
    assert len(rows) > 10
    return rows
