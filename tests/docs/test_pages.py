"""The code of the README and of the guides runs as it stands, against a scripted model."""

import ast
import functools
import importlib
import re
import textwrap
from pathlib import Path
from typing import Any

import pytest

import haptera
import haptera.sync
from haptera import ErrorCode, ProviderError, building_blocks
from haptera.testing import Gate, ScriptedProvider, calls, says

# Loaded before a page runs: meanwhile `haptera.Agent` is another, and the server would keep that.
importlib.import_module("haptera.server")

_ROOT = Path(__file__).parents[2]

_SCRIPTS: dict[str, list[list[Any]]] = {
    "README.md": [
        [says("Paris.")],
        [says("Consistency, ", "availability"), says("Partitions")],
        [calls(("temperature", {"city": "Lisbon"})), says("It is 21.5 degrees.")],
        [says("Hello Ana."), says("Ana."), says("You are Ana.")],
        [calls(("delete_file", {"path": "notes.txt"})), says("It is deleted.")],
        [says("Roses are red")],
    ],
    "docs/tutorial/1-ask.md": [[says("Paris.")], [says("Roses are red")]],
    "docs/tutorial/2-stream.md": [
        [says("Consistency, ", "availability")],
        [says("Consistency, ", "availability")],
    ],
    "docs/tutorial/3-tools.md": [
        [calls(("temperature", {"city": "Lisbon"})), says("It is 21.5 degrees.")],
        [calls(("pay", {"to": "Ana", "amount": 20})), says("Ana has it.")],
    ],
    "docs/tutorial/4-sessions.md": [
        [says("Hello Ana."), says("Ana.")],
        [says("Tides and the people who follow them"), says("Tides"), says("The tides of the sea")],
    ],
    "docs/tutorial/5-crash.md": [
        [says("Tides follow the moon.")],
        [says("One, ", "two"), says("three")],
    ],
    "docs/built-in-tools.md": [
        [
            calls(("glob", {"pattern": "*.py"}), ("shell", {"command": "wc -l *.py"})),
            calls(("write", {"path": "hello.py", "content": "print('hello')\n"})),
            says("There is one now."),
        ],
        [],
        [],
    ],
    "docs/managing-sessions.md": [
        [says("It was sent twice.")],
        [],
        [says("20 euros."), says("30 euros.")],
        [says("Hello.")],
        [says("Hello.")],
        [says("Hello.")],
        [],
    ],
    "docs/building-blocks.md": [
        [calls(("temperature", {"city": "Lisbon"})), says("It is 21.5 degrees.")],
        [says("Hello."), says("Yes.")],
        [],
        [calls(("pay", {"amount": 20})), says("Paid.")],
        [says("Hello.")],
        [],
        [],
    ],
    "docs/custom-providers.md": [[], [], []],
    "docs/observability.md": [
        [says("Paris.")],
        [calls(("temperature", {"city": "Lisbon"})), says("It is 21.5 degrees.")],
    ],
    "docs/interactive-programs.md": [[], [], [says("A ", "tower.")]],
    "docs/serialising-events.md": [[says("Hel", "lo.")], []],
    "docs/web-apps.md": [[]],
    "docs/server.md": [[], [], []],
    "docs/hooks.md": [
        [
            calls(("delete_file", {"path": ".env"}), ("delete_file", {"path": "notes.txt"})),
            says("One is gone."),
        ],
        [says("Thank you.")],
        [says("Paris.")],
    ],
    "docs/logging.md": [[]],
    "docs/mcp.md": [
        [calls(("time__get_current_time", {"timezone": "Europe/Oslo"})), says("It is noon.")],
        [],
        [],
        [],
    ],
    "docs/permissions.md": [
        [calls(("write", {"path": "docs/tests.md", "content": "# Tests\n"})), says("It is there.")],
        [],
        [],
    ],
    "docs/file-snapshots.md": [
        [calls(("write", {"path": "plan.md", "content": "# Plan\n"})), says("It is written.")]
    ],
    "docs/context-files.md": [
        [calls(("load_skill", {"name": "release"})), says("Tag it, then push the tag.")],
    ],
    "docs/budgets.md": [
        [says("It is a tower.")],
        [calls(("fetch", {"page": page})) for page in (1, 2, 3)],
    ],
    "docs/compaction.md": [
        [says("On Monday."), says("# Objective\n- move the archive"), says("The boxes.")],
        [says("The boxes come first.")],
    ],
    "docs/queries.md": [
        [says("Deep, still water."), says("Deep and still, the fjord.")],
        [says('{"name": "Paris", "inhabitants": 2100000}')],
        [says("Milk.")],
        [],
        [],
        [says("Paris.")],
        [says("Par", "is.")],
        [says("Paris.")],
    ],
    "docs/sessions.md": [
        [says("Hello.")],
        [says("Hello."), says("Hard.")],
        [says("A long report.")],
        [says("Hello."), says("Noon.")],
        [],
    ],
    "docs/errors.md": [
        [says("Sales grew.")],
        [ProviderError(ErrorCode.QUOTA, "the account is empty"), says("Sales grew.")],
    ],
    "docs/sub-agents.md": [
        [
            calls(("research", {"prompt": "What is known about tides?"})),
            calls(("search", {"words": "tides"})),
            says("There are 3 documents about tides."),
            says("A report about tides."),
        ],
        [calls(("poet", {"prompt": "The sea"})), says("Blue ", "and wide"), says("Here it is.")],
        [
            calls(("editor", {"prompt": "The news"})),
            calls(("publish", {"text": "News!"})),
            says("It is published."),
            says("Done."),
        ],
        [],
    ],
    "docs/sync.md": [[says("Paris."), says("Pick ", "two.")]],
    "docs/testing.md": [[], [], [says("Hello.")]],
    "docs/tools.md": [
        [
            calls(("weather", {"city": "Oslo"}), ("crawl", {"pages": 2}), ("count", {"to": 3})),
            says("21 degrees, two pages, three."),
        ],
        [calls(("balance", {})), says("20."), calls(("balance", {})), says("7.")],
        [calls(("ping", {"host": "example.com"})), says("It is.")],
        [calls(("pay", {"amount": 20, "to": "Anna"})), says("Ana has it.")],
    ],
}
"""What a model says to each block of code of a page, in their order."""


def _blocks(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (_ROOT / page).read_text(), re.DOTALL)


@pytest.mark.parametrize("page", _SCRIPTS)
def test_every_block_of_code_has_a_script(page: str) -> None:
    assert len(_blocks(page)) == len(_SCRIPTS[page])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("page", "place"),
    [(page, place) for page, many in _SCRIPTS.items() for place in range(len(many))],
)
async def test_the_code_of_a_page_runs(
    page: str, place: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HAPTERA_HOME", str(tmp_path / "home"))
    provider = ScriptedProvider(_SCRIPTS[page][place], provider="anthropic")
    await _run_block(_blocks(page)[place], provider, monkeypatch)


async def test_the_observer_of_the_guide_sees_the_end_also_when_it_falls_behind(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (block,) = [each for each in _blocks("docs/sessions.md") if "ObserverLagged" in each]
    waits = "print(event.text); gate.open(); await session.wait_idle()"
    slow = block.replace('print(event.text, end="")', waits)
    gate, parts = Gate(), says(*"abcdefgh")
    provider = ScriptedProvider([[*parts[:3], gate, *parts[3:]]], provider="anthropic")
    few = {"observer_buffer": 1}
    await _run_block(slow, provider, monkeypatch, names={"gate": gate}, runtime=few)
    assert capsys.readouterr().out == "a\nabcdefgh\n"


async def _run_block(
    block: str,
    provider: ScriptedProvider,
    monkeypatch: pytest.MonkeyPatch,
    *,
    names: dict[str, Any] | None = None,
    **options: Any,
) -> None:
    """Run a block of code against a script, with more names and options of its agent."""
    monkeypatch.setattr(haptera, "Agent", functools.partial(_scripted, provider, **options))
    monkeypatch.setattr(
        building_blocks,
        "make_blocks",
        lambda _model, **options: _make_blocks(provider, **options),
    )
    monkeypatch.setattr(haptera.sync, "Agent", functools.partial(_scripted_sync, provider))
    for name in ("run_agent_result", "run_agent_stream"):
        once = functools.partial(_ONE_CALLS[name], providers=[provider])
        monkeypatch.setattr(haptera, name, once)
    source = "async def _run():\n" + textwrap.indent(block, "    ")
    names = dict(names or {})
    exec(compile(ast.parse(source), "a page", "exec"), names)  # noqa: S102 - our own pages
    await names["_run"]()
    provider.check()


_make_blocks = building_blocks.make_blocks
_ONE_CALLS: dict[str, Any] = {
    "run_agent_result": haptera.run_agent_result,
    "run_agent_stream": haptera.run_agent_stream,
}
_Agent = haptera.Agent
_SyncAgent = haptera.sync.Agent


def _scripted(provider: ScriptedProvider, model: str, **options: Any) -> haptera.Agent:
    """Make an agent that has no time to lose, and no other model than the script."""
    home = {"HAPTERA_HOME": str(Path.cwd() / "home")}
    return _Agent(model, **{"providers": [provider], "environment": home, **options})


def _scripted_sync(provider: ScriptedProvider, model: str, **options: Any) -> haptera.sync.Agent:
    return _SyncAgent(model, **{"providers": [provider], "environment": {}, **options})


def test_pages_link_only_to_files_that_exist() -> None:
    broken = [
        f"{page.name}: {link}"
        for page in [
            *_ROOT.glob("*.md"),
            *_ROOT.glob("docs/**/*.md"),
            *_ROOT.glob("benchmarks/*.md"),
        ]
        for link in re.findall(r"\]\(([^)#:]+)\)", page.read_text())
        if not (page.parent / link).exists()
    ]
    assert broken == []
