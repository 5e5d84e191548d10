"""The tables of providers in the documentation say what the table of vendors says."""

import re
from pathlib import Path

from haptera.providers.vendors import VENDORS, Vendor

DOCS = Path(__file__).resolve().parents[2] / "docs"
TITLES = {
    "messages": "Messages",
    "responses": "Responses",
    "chat": "Chat Completions",
    "generate_content": "generateContent",
    "ollama": "Ollama's own",
    "native": "Claude Code's own",
    "process": "its own process",
}


def rows_of(page: str, header: str) -> dict[str, list[str]]:
    """Return the rows of the table under a header, by what its first cell names."""
    lines = (DOCS / page).read_text(encoding="utf-8").splitlines()
    rows: dict[str, list[str]] = {}
    for line in lines[lines.index(header) + 2 :]:
        if not line.startswith("|"):
            break
        first, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        rows[first.strip("`")] = cells
    return rows


def variables_in(cell: str) -> list[str]:
    return re.findall(r"`([A-Z][A-Z0-9_]+)`", cell)


def more_of(vendor: Vendor) -> list[str]:
    return [name for names in vendor.more_variables.values() for name in names]


def test_the_page_of_providers_has_every_vendor_in_the_order_of_the_table() -> None:
    rows = rows_of("providers.md", "| provider | protocol | key | URL | default model | notes |")
    assert list(rows) == list(VENDORS)
    for name, vendor in VENDORS.items():
        protocol, key, url, model, notes = rows[name]
        assert protocol == TITLES[vendor.protocol]
        assert variables_in(key) == [*vendor.key_variables, *vendor.token_variables]
        assert ("none needed" in key) == (not vendor.needs_key)
        assert variables_in(url) == list(vendor.url_variables)
        assert model == (f"`{vendor.default_model}`" if vendor.default_model else "")
        if not vendor.account:
            assert variables_in(notes) == more_of(vendor)


def test_the_page_of_configuration_has_every_variable_of_every_account() -> None:
    rows = rows_of("configuration.md", "| provider | key | URL and more |")
    accounts = [
        vendor
        for vendor in VENDORS.values()
        if not vendor.account and (vendor.key_variables or more_of(vendor))
    ]
    assert list(rows) == [vendor.name for vendor in accounts]
    for vendor in accounts:
        key, more = rows[vendor.name]
        assert variables_in(key) == list(vendor.key_variables)
        assert variables_in(more) == [
            *vendor.url_variables,
            *vendor.token_variables,
            *more_of(vendor),
        ]


def test_second_names_of_an_account_are_named_beside_its_variables() -> None:
    page = (DOCS / "configuration.md").read_text(encoding="utf-8")
    sentence = page.partition("go by\nthe variables of their account")[0].rpartition("\n\n")[2]
    named = re.findall(r"`([a-z-]+)`", sentence)
    assert named == [vendor.name for vendor in VENDORS.values() if vendor.account]
