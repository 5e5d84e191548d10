"""The demo does what the README's first command promises, however often it is run."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.traps import folder_of_traps
from tests.samples import sampled

pytestmark = pytest.mark.timeout(180)


def _run_demo(folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-P", "-m", "haptera.demo"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@sampled(1, 2)
def test_the_demo_streams_stops_and_goes_on_in_another_process(
    sample: int, smollm2: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HAPTERA_HOME", str(tmp_path))
    models = tmp_path / "cache" / "models"
    models.mkdir(parents=True)
    (models / smollm2.name).symlink_to(smollm2)
    workspace = folder_of_traps(tmp_path / "workspace")
    shown = ""
    for _ in range(sample):
        shown = _run_demo(workspace)
        assert "not for wisdom" in shown
        assert "[complete" in shown
        assert "[aborted] kept in the log: '" in shown
        # Each run has a session of its own: one that grows would not fit the model some day.
        assert "found 4 messages" in shown
        # The second process answers from what the first one was asked.
        assert "Paris" in shown.partition("2. ")[2].partition("3. ")[0]
        assert "Rome" in shown.partition("3. ")[2]
        assert str(tmp_path / "data" / "demo.db") in shown
        assert "claude-sonnet-5" in shown
    monkeypatch.delenv("HAPTERA_HOME")
    (command,) = (line for line in shown.splitlines() if line.endswith('-p "Name three colours."'))
    done = subprocess.run(
        ["/bin/sh", "-c", command], stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
