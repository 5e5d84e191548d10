"""The page of providers names every one that there is, with its variables."""

from pathlib import Path

from holdfast.config.environment import PROVIDER_VARIABLES
from holdfast.providers.openai import RESPONSES_VENDORS
from holdfast.providers.openai_compatible import VENDORS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "providers.md"


def test_every_provider_has_a_row_with_its_variables() -> None:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    rows = {line.split("`")[1]: line for line in lines if line.startswith("| `")}
    assert rows.keys() == {*PROVIDER_VARIABLES, "compatible", "compatible-responses", "local"}
    for provider, variables in PROVIDER_VARIABLES.items():
        for name in (*variables.keys, *variables.base_url[:1]):
            assert f"`{name}`" in rows[provider]


def test_every_provider_with_a_key_can_be_reached_without_an_address() -> None:
    addressed = {name for name, vendor in VENDORS.items() if vendor.base_url}
    addressed |= {name for name, vendor in RESPONSES_VENDORS.items() if vendor.base_url}
    own = {"anthropic", "azure", "azure-responses", "gemini", "openai-chat", "vertex"}
    assert PROVIDER_VARIABLES.keys() - own <= addressed
