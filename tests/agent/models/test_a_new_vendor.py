"""A vendor is one row: its variables, its table in the file and its URL work through it alone."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from haptera import Agent, AgentError, ErrorCode
from haptera.access.assembly.agent_inputs import ConfigurationSources
from haptera.access.mcp_servers import add_mcp_server
from haptera.providers.vendors import VENDORS, Vendor
from tests.agent.models.test_named_providers import CHAT, RESPONSES
from tests.agent.queries.test_first_steps import write_config
from tests.providers.faulty_server import faulty_server, replies
from tests.providers.test_vendors import KeptRequests

ROW = Vendor(
    name="acme",
    protocol="chat",
    dialect="compatible",
    base_url="https://api.acme.invalid/v1",
    key_header="x-acme-key",
    key_variables=("ACME_API_KEY", "ACME_KEY"),
    url_variables=("ACME_BASE_URL",),
    same_models_as="openai",
    default_model="gpt-5",
)
SECOND = replace(ROW, name="acme-responses", protocol="responses", dialect="plain", account="acme")


@pytest.fixture(autouse=True)
def _one_row_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(VENDORS, ROW.name, ROW)


@pytest.mark.parametrize("variable", ROW.key_variables)
async def test_a_row_is_reached_by_its_variables_alone(variable: str, tmp_path: Path) -> None:
    async with faulty_server(replies(CHAT)) as server:
        environment = {"HOME": str(tmp_path), variable: "key", "ACME_BASE_URL": f"{server.url}/v1"}
        async with Agent(environment=environment) as agent:
            result = await agent.run("Hi")
    assert (result.provider, result.model, result.text) == ("acme", "gpt-5", "Yes")
    assert result.cost is not None
    assert server.requests[0].path == "/v1/chat/completions"
    assert server.requests[0].headers["x-acme-key"] == "key"


async def test_a_row_knows_its_own_url(tmp_path: Path) -> None:
    transport = KeptRequests(CHAT)
    environment = {"HOME": str(tmp_path), "ACME_API_KEY": "key"}
    async with Agent("acme/m", environment=environment, transport=lambda: transport) as agent:
        await agent.run("Hi")
    assert transport.requests[0].url == "https://api.acme.invalid/v1/chat/completions"


@pytest.mark.parametrize(("table", "kind"), [("acme", ""), ("work", 'kind = "acme"')])
async def test_a_row_is_reached_by_a_table_of_the_file(
    table: str, kind: str, tmp_path: Path
) -> None:
    async with faulty_server(replies(CHAT)) as server:
        text = (
            f'[providers.{table}]\n{kind}\nbase_url = "{server.url}/v1"\nkey = {{ env = "MY" }}\n'
        )
        folder = write_config(tmp_path, text)
        environment = {"HOME": str(tmp_path), "MY": "key"}
        async with Agent(f"{table}/m", environment=environment, config_dir=folder) as agent:
            assert (await agent.run("Hi")).provider == table
    assert server.requests[0].headers["x-acme-key"] == "key"


async def test_a_row_without_its_key_says_which_variables_it_has(tmp_path: Path) -> None:
    async with Agent("acme/m", environment={"HOME": str(tmp_path)}) as agent:
        with pytest.raises(
            AgentError, match="set ACME_API_KEY or ACME_KEY, run `haptera login acme`"
        ) as caught:
            await agent.run("Hi")
    assert caught.value.code is ErrorCode.CONFIG_MISSING


@pytest.mark.parametrize("table", ["acme", "work"])
def test_a_literal_key_in_the_header_of_a_row_is_refused(table: str, tmp_path: Path) -> None:
    text = f'[providers.{table}.headers]\nX-Acme-Key = "sk-literal"\n'
    folder = write_config(tmp_path, text)
    with pytest.raises(AgentError, match="secrets are not written into this file") as caught:
        Agent("acme/m", environment={"HOME": str(tmp_path)}, config_dir=folder)
    assert caught.value.code is ErrorCode.CONFIG_INVALID
    assert f"line 2: providers.{table}.headers.X-Acme-Key" in caught.value.message
    sources = ConfigurationSources(environment={"HOME": str(tmp_path)}, config_dir=tmp_path / "new")
    with pytest.raises(AgentError, match="secrets are not written into this file"):
        add_mcp_server("x", {"url": "https://a.test", "headers": {"x-acme-key": "sk"}}, sources)


async def test_a_second_row_of_the_account_goes_by_the_first_ones_table(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(VENDORS, SECOND.name, SECOND)
    async with faulty_server(replies(RESPONSES)) as server:
        text = f'[providers.acme]\nbase_url = "{server.url}/v1"\nkey = {{ env = "MY" }}\n'
        folder = write_config(tmp_path, text)
        environment = {"HOME": str(tmp_path), "MY": "key"}
        async with Agent("acme-responses/m", environment=environment, config_dir=folder) as agent:
            assert (await agent.run("Hi")).provider == "acme-responses"
    assert server.requests[0].path == "/v1/responses"
    assert server.requests[0].headers["x-acme-key"] == "key"
