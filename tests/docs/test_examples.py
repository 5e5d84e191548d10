"""Every example runs as it stands, against a scripted model."""

import functools
import re
import runpy
from pathlib import Path
from typing import Any

import pytest

import haptera
from haptera import building_blocks
from haptera.testing import ScriptedProvider, calls, says

_make_blocks = building_blocks.make_blocks
_ROOT = Path(__file__).parents[2]
_EXAMPLES = _ROOT / "examples"
_MODULE = re.compile(
    r"(?:python3?|sys\.executable|\$\(RUN\)).*?"
    r"(?P<safe>-P\W+)?(?<!\w)-m[\"', ]+(?P<module>[a-z_.]+)"
)
# These are run in a clone of the project, and most are modules of it.
_OF_THE_CLONE = {"benchmarks", "tests", "scripts", "pytest", "ruff", "mypy", "mkdocs", "pip"}
_SCRIPTS: dict[str, list[Any]] = {
    "basic": [says("Paris.")],
    "streaming": [says("Pick ", "two."), says("Else, ", "latency.")],
    "tools": [
        calls(("read_temperature", {"city": "Lisbon"}), ("count_to", {"number": 3})),
        says("21.5 degrees, and three."),
    ],
    "session": [says("Hi Ana."), says("Ana."), says("anA."), says("Ana.")],
    "approval": [
        calls(("delete_file", {"path": "scratch/a.txt"})),
        says("Done."),
        calls(("delete_file", {"path": "scratch/b.txt"})),
        says("Done, too."),
    ],
    "deferred": [
        calls(("order_part", {"part": "pump"})),
        says("It comes in 3 days."),
    ],
    "sub_agents": [
        calls(("research", {"prompt": "What is known about tides?"})),
        calls(("search", {"words": "tides"})),
        says("There are 3 documents."),
        says("The sea ", "rises."),
    ],
    "hooks": [
        calls(
            ("delete_file", {"path": ".env"}),
            ("delete_file", {"path": "cache/a"}),
            ("delete_file", {"path": " notes.txt"}),
        ),
        says("One of them is gone."),
    ],
    "survives_kill": [says("Once, ", "a lighthouse.")],
    "custom_provider": [],
    "blocks": [
        calls(("temperature", {"city": "Lisbon"})),
        says("It is ", "21.5 degrees."),
        calls(("send", {"to": "Ana", "text": "21.5"})),
        says("Sent."),
    ],
    "abort": [says("One, ", "two, ", "three"), says("four")],
}


def test_no_program_that_is_shown_imports_from_the_working_folder() -> None:
    shown = [_ROOT / "README.md", _ROOT / "Makefile", *_ROOT.glob("docs/*.md")]
    code = [*_EXAMPLES.glob("*.py"), *_ROOT.glob("src/haptera/**/*.py")]
    found: list[str] = []
    for path in (*shown, *code):
        for line in path.read_text().splitlines():
            match = _MODULE.search(line)
            if match is not None and match["module"].partition(".")[0] not in _OF_THE_CLONE:
                found.append(f"{path.name}: {match['safe'] or ''}{match['module']}")
    assert len(found) > 5
    assert [each for each in found if ": -P" not in each] == []


def test_every_example_has_a_script() -> None:
    # Three are tested with what they need: test_claude_agent_page.py, test_serve_command.py and
    # test_rpc_command.py.
    elsewhere = {"claude_agent", "http_client", "rpc_client"}
    assert {path.stem for path in _EXAMPLES.glob("*.py")} == {*_SCRIPTS, *elsewhere}


@pytest.mark.parametrize("name", sorted(_SCRIPTS))
def test_the_example_runs(
    name: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    provider = ScriptedProvider(_SCRIPTS[name], provider="local")
    # Not the file of the user who runs the tests: the model that it names would be asked.
    own: Any = {"environment": {}, "config_dir": tmp_path}
    scripted = functools.partial(haptera.Agent, providers=[provider], **own)
    monkeypatch.setattr(haptera, "Agent", scripted)
    monkeypatch.setattr(
        building_blocks,
        "make_blocks",
        lambda _model, **options: _make_blocks(provider, **options),
    )
    runpy.run_path(str(_EXAMPLES / f"{name}.py"), run_name="__main__")
    provider.check()
    assert capsys.readouterr().out
