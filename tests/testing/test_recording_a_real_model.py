"""A real model, recorded and replayed: the same parts without the model."""

from pathlib import Path

from haptera.providers.local.client import LocalModelClient
from haptera.stores.recording import RecordingClient
from haptera.testing.replay import ReplayClient
from tests.providers.local.asking import answer, ask
from tests.testing.test_replay import StepClock


async def test_a_real_answer_is_replayed_without_its_model(
    local_client: LocalModelClient, tmp_path: Path
) -> None:
    path = tmp_path / "smollm2.jsonl"
    live = await answer(RecordingClient(local_client, path, clock=StepClock()), ask("Say hello."))
    replay = ReplayClient(path)
    assert replay.provider == "local"
    assert await answer(replay, ask("Say hello.")) == live
