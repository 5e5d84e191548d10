"""A field of a provider's table reaches the requests of a vendor that takes it, or is refused."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from haptera import Agent, AgentError, ErrorCode
from haptera.model.vendors import VENDOR_FIELDS
from haptera.providers.transport.protocol import HttpRequest
from haptera.providers.vendors import VENDORS, Vendor
from tests.agent.models.test_named_providers import CHAT, GEMINI, OLLAMA, RESPONSES
from tests.agent.queries.test_first_steps import write_config
from tests.providers.exchanges import case
from tests.providers.test_vendors import KeptRequests

ANSWERS = {
    "messages": case("text"),
    "responses": RESPONSES,
    "chat": CHAT,
    "generate_content": GEMINI,
    "ollama": OLLAMA,
}
VALUE = "value-of-the-field"
TAKEN = [(vendor, field) for vendor in VENDORS.values() for field in vendor.more_variables]
OTHERS = [
    (vendor, field, provider)
    for vendor in VENDORS.values()
    for field in VENDOR_FIELDS
    if field not in vendor.more_variables
    for provider in (("", "house") if vendor.is_remote else ("",))
]


async def sent(
    vendor: Vendor,
    folder: Path,
    *,
    fields: dict[str, str],
    variables: dict[str, str],
    provider: str = "",
) -> HttpRequest:
    """Return what a prompt sends to a vendor, whose table has these fields."""
    transport = KeptRequests(ANSWERS.get(vendor.protocol, b""))
    kind = f'kind = "{vendor.name}"\n' if provider else ""
    text = "".join(f'{field} = "{value}"\n' for field, value in fields.items())
    config = write_config(folder, f"[providers.{provider or vendor.name}]\n{kind}{text}")
    environment = {"HOME": str(folder), **variables}
    async with Agent(
        f"{provider or vendor.name}/m",
        api_key="key",
        base_url=None if vendor.url_form == "vertex" else "https://models.example.org",
        environment=environment,
        config_dir=config,
        transport=lambda: transport,
    ) as agent:
        await agent.run("Hi")
    return transport.requests[0]


def name_of(each: Vendor | str) -> str:
    return each if isinstance(each, str) else each.name


def others_needed(vendor: Vendor, field: str) -> dict[str, str]:
    return {needed: "other" for needed in vendor.needs if needed != field}


@pytest.mark.parametrize(("vendor", "field"), TAKEN, ids=name_of)
async def test_a_field_that_a_vendor_takes_is_sent(
    vendor: Vendor, field: str, tmp_path: Path
) -> None:
    others = others_needed(vendor, field)
    request = await sent(vendor, tmp_path, fields={field: VALUE, **others}, variables={})
    assert VALUE in f"{request.url} {request.headers}"
    for variable in vendor.more_variables[field]:
        request = await sent(vendor, tmp_path, fields=others, variables={variable: VALUE})
        assert VALUE in f"{request.url} {request.headers}"


@pytest.mark.parametrize(("vendor", "field", "provider"), OTHERS, ids=name_of)
async def test_a_field_that_a_vendor_does_not_take_is_refused(
    vendor: Vendor, field: str, provider: str, tmp_path: Path
) -> None:
    fields = {field: VALUE, **others_needed(vendor, field)}
    with pytest.raises(AgentError) as caught:
        await sent(vendor, tmp_path, fields=fields, variables={}, provider=provider)
    assert caught.value.code is ErrorCode.CONFIG_INVALID
    table = provider or vendor.name
    told = f"providers.{table}.{field}: {vendor.name!r} does not take {field!r}"
    assert told in caught.value.message


async def test_a_second_name_of_an_account_leaves_fields_of_the_account_s_table_alone(
    tmp_path: Path,
) -> None:
    text = '[providers.azure]\nbase_url = "https://models.example.org"\napi_version = "1"\n'
    transport = KeptRequests(RESPONSES)
    async with Agent(
        "azure-responses/m",
        environment={"HOME": str(tmp_path), "AZURE_OPENAI_API_KEY": "key"},
        config_dir=write_config(tmp_path, text),
        transport=lambda: transport,
    ) as agent:
        await agent.run("Hi")
    assert transport.requests[0].url == "https://models.example.org/openai/v1/responses"


@pytest.mark.parametrize(
    "vendor", [row for row in VENDORS.values() if row.is_remote], ids=lambda row: row.name
)
async def test_a_vendor_without_fields_is_asked_at_a_whole_url_or_says_what_it_needs(
    vendor: Vendor, tmp_path: Path
) -> None:
    if vendor.needs:
        with pytest.raises(AgentError, match=f"{vendor.name} needs a {vendor.needs[0]}: "):
            await sent(vendor, tmp_path, fields={}, variables={})
        return
    assert "None" not in (await sent(vendor, tmp_path, fields={}, variables={})).url


@pytest.mark.parametrize("variables", [("ACME_PROJECT",), ()])
async def test_a_field_that_is_needed_and_missing_is_named(
    variables: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    row = replace(
        VENDORS["compatible"],
        name="acme",
        more_variables={"project": variables},
        needs=("project",),
    )
    monkeypatch.setitem(VENDORS, "acme", row)
    with pytest.raises(AgentError, match="acme needs a project: ") as caught:
        await sent(row, tmp_path, fields={}, variables={})
    assert caught.value.code is ErrorCode.CONFIG_MISSING
    assert ("set ACME_PROJECT, or" in caught.value.message) == bool(variables)
    assert "write project into [providers.acme]" in caught.value.message


@pytest.mark.parametrize(
    "declared",
    [{"more_variables": {"region": ("ACME_REGION",)}}, {"needs": ("region",)}],
)
def test_a_row_cannot_name_a_field_that_is_not_declared(declared: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="acme: 'region'"):
        replace(VENDORS["compatible"], name="acme", **declared)


# A row without a dialect.


@pytest.mark.parametrize(
    ("dialect", "sent_as"),
    [
        ("", '"seed"'),
        ('dialect = { seed_field = "random_seed" }', '"random_seed"'),
        ('dialect = "mistral"', '"random_seed"'),
    ],
)
async def test_a_row_without_a_dialect_has_the_protocol_s_own(
    dialect: str, sent_as: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    row = Vendor(name="acme", protocol="chat", base_url="https://a.example", needs_key=False)
    monkeypatch.setitem(VENDORS, "acme", row)
    transport = KeptRequests(CHAT)
    async with Agent(
        "acme/m",
        seed=7,
        environment={"HOME": str(tmp_path)},
        config_dir=write_config(tmp_path, f"[providers.acme]\n{dialect}\n"),
        transport=lambda: transport,
    ) as agent:
        await agent.run("Hi")
    assert sent_as in (transport.requests[0].body or b"").decode()
