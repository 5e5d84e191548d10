"""The catalogue: what is known of models, and that nothing is known of others."""

import subprocess
import sys
from datetime import UTC, datetime
from decimal import Decimal
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from haptera.kernel.blocks.pricing import Pricing
from haptera.model.usage import Usage
from haptera.providers.catalogue import CatalogueFile
from haptera.providers.vendors import VENDORS, Vendor
from tests.fixtures_wire import is_everything_required

ROOT = Path(__file__).resolve().parents[2]
NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)
NOW_MS = int(NOW.timestamp() * 1000)


@pytest.fixture(scope="module")
def catalogue() -> CatalogueFile:
    return CatalogueFile()


def price_source() -> Any:
    """The package that the catalogue was generated from, if its very version is installed."""
    try:
        installed = f"genai-prices {version('genai-prices')}"
    except PackageNotFoundError:
        installed = "not installed"
    if installed == CatalogueFile().source:
        return pytest.importorskip("genai_prices")
    message = f"the catalogue is from {CatalogueFile().source}; here: {installed}"
    if is_everything_required():
        pytest.fail(message)
    pytest.skip(message)


def test_a_known_model_has_its_limits_abilities_and_prices(catalogue: CatalogueFile) -> None:
    facts = catalogue.find("anthropic", "claude-sonnet-4-5")
    assert facts is not None
    assert (facts.context_window, facts.max_output) == (200_000, 64_000)
    assert sorted(facts.abilities or ()) == ["document", "image", "reasoning"]
    assert facts.prices is not None
    assert facts.prices[0].rates.cache_write_1h == Decimal(6)
    assert facts.prices[0].rates_for(200_001).output == Decimal("22.5")


@pytest.mark.parametrize(
    ("provider", "model", "found"),
    [
        ("anthropic", "claude-sonnet-4-5-20250929", "claude-sonnet-4-5"),
        ("anthropic", "Claude-Haiku-4-5@20251001", "claude-haiku-4-5"),
        ("openai", "gpt-5-20250807", "gpt-5"),
        ("openai", "gpt-4.1-2031-12-24", "gpt-4.1"),
        ("claude-agent", "claude-opus-4-5", "claude-opus-4-5"),
        ("vertex", "gemini-2.5-pro", "gemini-2.5-pro"),
        ("openai-chat", "gpt-5", "gpt-5"),
        ("xai-responses", "grok-4", "grok-4-0709"),
        ("azure", "claude-opus-4-5", "claude-opus-4-5"),
    ],
)
def test_a_model_is_found_under_the_names_it_goes_by(
    catalogue: CatalogueFile, *, provider: str, model: str, found: str
) -> None:
    facts = catalogue.find(provider, model)
    assert facts is not None
    assert facts.model == found


@pytest.mark.parametrize(
    ("provider", "model"),
    [
        ("unknown", "gpt-5"),
        ("openai", "gpt-5-imaginary"),
        ("anthropic", ""),
        ("anthropic", "20250929"),
        ("openai", "-2025-09-29"),
    ],
)
def test_nothing_is_invented_for_an_unknown_model(
    catalogue: CatalogueFile, provider: str, model: str
) -> None:
    assert catalogue.find(provider, model) is None
    assert catalogue.prices(provider, model) is None


def test_a_provider_without_a_table_lists_no_models(catalogue: CatalogueFile) -> None:
    assert catalogue.models("unknown") == ()
    assert len(catalogue.models("openrouter")) > 300
    assert all(catalogue.models(maker) for maker in ("anthropic", "openai", "gemini"))


@pytest.mark.parametrize("provider", ["anthropic", "deepseek", "gemini", "groq", "openai", "xai"])
def test_every_listed_model_is_found_by_its_own_name(
    catalogue: CatalogueFile, provider: str
) -> None:
    lost = [
        facts.model
        for facts in catalogue.models(provider)
        if catalogue.find(provider, facts.model) is None
        and not facts.model.startswith("ft:")  # an entry for many models, named after none
    ]
    assert lost == []


def test_rates_are_the_written_decimals_and_not_floats() -> None:
    content = (
        b'{"source":"s","providers":{"p":{"models":[["m",null,9,[[[0.1,0.000000000000000003]]]]]}}}'
    )
    prices = CatalogueFile(content).prices("p", "m")
    assert prices is not None
    assert prices[0].rates.input == Decimal("0.1")
    assert prices[0].rates.output == Decimal("0.000000000000000003")


def test_the_data_file_is_small() -> None:
    assert len(files("haptera.providers").joinpath("catalogue.json").read_bytes()) < 300_000


@pytest.mark.parametrize("vendor", VENDORS.values(), ids=lambda row: row.name)
def test_a_vendor_has_prices_or_says_that_it_has_none(
    vendor: Vendor, catalogue: CatalogueFile
) -> None:
    priced = [each for each in catalogue.models(vendor.name) if each.prices is not None]
    assert bool(priced) == (vendor.catalogue_name is not None)


def test_a_vendor_that_the_source_does_not_have_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    price_source()
    script = pytest.importorskip("scripts.build_catalogue")
    monkeypatch.setitem(VENDORS, "acme", replace(VENDORS["groq"], name="acme"))
    with pytest.raises(SystemExit, match=r"the source does not have \['acme'\]"):
        script.build()
    monkeypatch.setitem(
        VENDORS, "acme", replace(VENDORS["groq"], name="acme", catalogue_name="ovhcloud")
    )
    assert b'"acme":{' in script.build()


def test_a_provider_that_has_a_row_is_not_listed_beside_the_rows() -> None:
    price_source()
    script = pytest.importorskip("scripts.build_catalogue")
    assert set(script.OTHERS.values()) & set(VENDORS) == set()


@pytest.mark.slow
def test_the_data_file_is_what_the_generator_writes() -> None:
    price_source()
    command = [sys.executable, str(ROOT / "scripts" / "build_catalogue.py"), "--check"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


PRICED = [
    ("anthropic", "claude-sonnet-4-5", "anthropic"),
    ("anthropic", "claude-opus-4-6", "anthropic"),
    ("openai", "gpt-5.4", "openai"),
    ("gemini", "gemini-2.5-pro", "google"),
    ("deepseek", "deepseek-chat", "deepseek"),
    ("xai", "grok-4.3", "x-ai"),
    ("openrouter", "perplexity/sonar-deep-research", "openrouter"),
]


SHARED = CatalogueFile()


@st.composite
def usages(draw: st.DrawFn) -> Usage:
    """Usages on both sides of every tier."""
    input_ = draw(st.integers(min_value=0, max_value=1_000_000))
    cached = draw(st.integers(min_value=0, max_value=input_))
    written = draw(st.integers(min_value=0, max_value=input_ - cached))
    output = draw(st.integers(min_value=0, max_value=200_000))
    return Usage(
        input=input_,
        output=output,
        cache_read=cached,
        cache_write=written,
        cache_write_1h=draw(st.integers(min_value=0, max_value=written)),
        reasoning=draw(st.integers(min_value=0, max_value=output)),
    )


@pytest.mark.slow
@pytest.mark.parametrize(("provider", "model", "theirs"), PRICED)
@given(usage=usages(), hour=st.integers(min_value=0, max_value=23))
def test_costs_agree_with_the_package_that_the_prices_come_from(
    *, provider: str, model: str, theirs: str, usage: Usage, hour: int
) -> None:
    genai_prices = price_source()
    at = NOW.replace(hour=hour)
    expected = genai_prices.calc_price(
        genai_prices.Usage(
            input_tokens=usage.input,
            output_tokens=usage.output,
            cache_read_tokens=usage.cache_read,
            cache_write_tokens=usage.cache_write,
            cache_write_1h_tokens=usage.cache_write_1h,
            output_reasoning_tokens=usage.reasoning,
        ),
        model_ref=model,
        provider_id=theirs,
        genai_request_timestamp=at,
    ).total_price
    pricing = Pricing(known=SHARED.prices)
    at_ms = int(at.timestamp() * 1000)
    assert pricing.cost(usage, model=f"{provider}/{model}", at_ms=at_ms) == expected
