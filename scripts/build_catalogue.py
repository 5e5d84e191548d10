"""Generate the model catalogue from the installed `genai-prices` package.

python scripts/build_catalogue.py            write the data file
python scripts/build_catalogue.py --check    fail if the data file is not what would be written
"""

import argparse
import sys
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec
from genai_prices import types as source
from genai_prices.data import providers as all_providers

from haptera.providers.vendors import names_in_the_catalogue

ROOT = Path(__file__).resolve().parent.parent
CATALOGUE = ROOT / "src" / "haptera" / "providers" / "catalogue.json"
ADDITIONS = ROOT / "scripts" / "catalogue_additions.toml"

_SAME_NAMES = ("baseten", "cloudflare", "databricks", "github-copilot", "minimax", "novita")
OTHERS = {"aws": "bedrock"} | {name: name for name in _SAME_NAMES}
"""Providers that have no row, but that a table of the configuration file may be named after: the
source's names and ours. All further ones would only make the file larger."""

RATE_KEYS = (
    *("input_mtok", "output_mtok", "cache_read_mtok", "cache_write_mtok", "cache_write_1h_mtok"),
    "output_reasoning_mtok",
)
"""In the order of the fields of a price row."""

UNCOUNTED_KEYS = frozenset(
    {"requests_kcount", "input_text_messages_kcount", "audio_hours", "input_audio_hours"}
    | {"input_mchars", "output_citation_mtok"}
)
"""Charges for what our usage does not count: with one of them no cost could be right."""

MARKS: dict[type, str] = {
    source.ClauseEquals: "=",
    source.ClauseStartsWith: "^",
    source.ClauseEndsWith: "$",
    source.ClauseContains: "~",
    source.ClauseRegex: "/",
}

SPECIALISED = ("-audio", "-embedding", "-image", "-live", "-realtime", "-search", "-tts")
"""Parts of the names of models that do something else than the family they are named after."""

Row = list[Any]


def trimmed(row: Row) -> Row:
    """Leave out the empty end of a row; readers fill it with defaults."""
    while row and row[-1] is None:
        row.pop()
    return row


def match_rules(clause: object, *, inside: bool = False) -> list[Any]:
    """Write a match clause as marked strings; any may hold, in a nested list all must."""
    match clause:
        case source.ClauseOr() if not inside:
            return [rule for part in clause.or_ for rule in match_rules(part)]
        case source.ClauseAnd():
            return [[rule for part in clause.and_ for rule in match_rules(part, inside=True)]]
    for kind, mark in MARKS.items():
        if isinstance(clause, kind):
            (text,) = vars(clause).values()
            return [mark + (text if mark == "/" else text.lower())]
    raise SystemExit(f"a match clause of a new shape: {clause!r}")


def rates_at(prices: Mapping[str, Any], input_tokens: int | None) -> Row:
    """Return the row of rates for a call of that much input; None means below every tier."""
    row: Row = []
    for key in RATE_KEYS:
        rate = prices.get(key)
        if isinstance(rate, source.TieredPrices):
            reached = [
                t for t in rate.tiers if input_tokens is not None and t.start <= input_tokens
            ]
            rate = reached[-1].price if reached else rate.base
        row.append(None if rate is None else plain(rate))
    return trimmed(row)


def plain(rate: Decimal) -> Decimal:
    """Write a rate without an exponent and without zeros at its end."""
    return Decimal(f"{rate.normalize():f}")


def price_row(conditional: source.ConditionalPrice) -> Row | None:
    """Return one price as a row, or None if a cost could not be right with it."""
    prices = {k: v for k, v in vars(conditional.prices).items() if v is not None}
    if UNCOUNTED_KEYS & prices.keys() or not {"input_mtok", "output_mtok"} <= prices.keys():
        return None
    tiered = [prices[k] for k in RATE_KEYS if isinstance(prices.get(k), source.TieredPrices)]
    starts = sorted({tier.start for rate in tiered for tier in rate.tiers})
    tiers = [[start, rates_at(prices, start)] for start in starts]
    day = hours = None
    match conditional.constraint:
        case source.StartDateConstraint(start_date=start_date):
            day = start_date.isoformat()
        case source.TimeOfDateConstraint(start_time=start_time, end_time=end_time):
            hours = [f"{moment:%H:%M:%S}" for moment in (start_time, end_time)]
    return trimmed([rates_at(prices, None), tiers or None, day, hours])


def price_rows(model: source.ModelInfo) -> list[Row]:
    """Return all prices of a model, or none at all if one of them could not be right."""
    listed = model.prices
    if isinstance(listed, source.ModelPrice):
        listed = [source.ConditionalPrice(prices=listed)]
    rows = [price_row(price) for price in listed]
    return [row for row in rows if row] if None not in rows else []


def abilities_of(table: Mapping[str, list[str]], model: str) -> list[str] | None:
    """Return what a model is known to take and do: by the longest prefix that fits its name."""
    fitting = [prefix for prefix in table if model.startswith(prefix)]
    if not fitting or any(word in model for word in SPECIALISED):
        return None
    return table[max(fitting, key=len)]


def model_rows(
    name: str, models: Iterable[source.ModelInfo], additions: Mapping[str, Any]
) -> list[Row]:
    """Return the rows of one provider's models, in the order in which they are matched."""
    rows = []
    for model in models:
        prices = price_rows(model)
        if not prices and model.context_window is None:
            continue
        rules = match_rules(model.match)
        rows.append(
            trimmed(
                [
                    model.id,
                    None if rules == ["=" + model.id] else rules,
                    model.context_window,
                    prices or None,
                    additions["max_output"].get(name, {}).get(model.id),
                    abilities_of(additions["abilities"].get(name, {}), model.id),
                    model.deprecated or None,
                ]
            )
        )
    return rows


def build() -> bytes:
    """Return the data file's content."""
    additions = tomllib.loads(ADDITIONS.read_text(encoding="utf-8"))
    names = OTHERS | names_in_the_catalogue()
    tables = {}
    for provider in all_providers:
        if provider.id in names:
            name = names[provider.id]
            others = [names.get(other, other) for other in provider.fallback_model_providers or ()]
            tables[name] = {"also": others, "models": model_rows(name, provider.models, additions)}
    missing = set(names.values()) - tables.keys()
    if missing:
        raise SystemExit(
            f"the source does not have {sorted(missing)}: give their rows a catalogue_name, or None"
        )
    catalogue = {"source": f"genai-prices {version('genai-prices')}", "providers": tables}
    encoder = msgspec.json.Encoder(decimal_format="number", order="deterministic")
    # One model a line, so that a new price is one changed line.
    text = encoder.encode(catalogue).decode().replace('],["', '],\n["')
    return text.encode() + b"\n"


def main(arguments: Sequence[str]) -> int:
    """Write the data file, or check it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    content = build()
    if not parser.parse_args(arguments).check:
        CATALOGUE.write_bytes(content)
        print(f"{CATALOGUE.relative_to(ROOT)}: {len(content):,} bytes")
        return 0
    if CATALOGUE.exists() and CATALOGUE.read_bytes() == content:
        return 0
    print(f"{CATALOGUE.relative_to(ROOT)} differs: run scripts/build_catalogue.py", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
