"""The folder of weights: what a list shows, what removing takes away, and what is pinned."""

import re
from pathlib import Path

import msgspec
import pytest

from haptera.model.errors import AgentError, ErrorCode
from haptera.providers.local.weights import (
    WeightFiles,
    find_weights,
    list_local_models,
    load_catalogue,
    read_template,
    remove_local_model,
)

SMOLLM2 = find_weights("smollm2")


@pytest.mark.parametrize("name", load_catalogue())
def test_the_pieces_of_a_model_add_up(name: str) -> None:
    weights = find_weights(name)
    assert sum(part.member_size for part in weights.parts) == weights.size
    hashes = [weights.sha256, *(part.sha256 for part in weights.parts)]
    hashes += [part.member_sha256 for part in weights.parts]
    assert all(re.fullmatch(r"[0-9a-f]{64}", digest) for digest in hashes)
    assert len({part.requirement for part in weights.parts}) == len(weights.parts)
    assert weights.licence == "Apache-2.0"


def test_a_template_of_our_own_replaces_the_one_in_the_weights_where_it_is_named() -> None:
    assert read_template(SMOLLM2) == ""
    assert "<tool_response>" in read_template(find_weights("qwen2.5-coder-1.5b"))


def test_a_list_shows_what_is_here_and_what_could_be(tmp_path: Path) -> None:
    files = WeightFiles(tmp_path)
    assert not any(model.is_present for model in list_local_models(tmp_path))
    with files.path_of(SMOLLM2).open("wb") as file:
        file.truncate(SMOLLM2.size)
    files.partial_of(find_weights("qwen2.5-coder-1.5b")).write_bytes(b"12345")
    shown = {model.name: model for model in list_local_models(tmp_path)}
    assert shown["smollm2"].is_present
    assert shown["smollm2"].path == files.path_of(SMOLLM2)
    assert not shown["qwen2.5-coder-1.5b"].is_present
    assert shown["qwen2.5-coder-1.5b"].partial_bytes == 5


def test_a_file_of_another_size_does_not_pass_for_the_weights(tmp_path: Path) -> None:
    files = WeightFiles(tmp_path)
    files.path_of(SMOLLM2).write_bytes(b"half of it")
    assert not files.has(SMOLLM2)


def test_other_weights_under_the_same_name_do_not_pass_for_these(tmp_path: Path) -> None:
    files = WeightFiles(tmp_path)
    with files.path_of(SMOLLM2).open("wb") as file:
        file.truncate(SMOLLM2.size)
    assert not files.has(msgspec.structs.replace(SMOLLM2, sha256="0" * 64))


def test_removing_takes_everything_and_tells_how_much(tmp_path: Path) -> None:
    files = WeightFiles(tmp_path)
    files.path_of(SMOLLM2).write_bytes(b"12345")
    files.partial_of(SMOLLM2).write_bytes(b"123")
    assert remove_local_model("smollm2", folder=tmp_path) == 8
    assert remove_local_model("smollm2", folder=tmp_path) == 0
    assert [path.suffix for path in tmp_path.iterdir()] == [".lock"]


def test_removing_from_a_folder_that_is_not_there_removes_nothing(tmp_path: Path) -> None:
    assert remove_local_model("smollm2", folder=tmp_path / "nowhere") == 0


def test_what_is_being_fetched_cannot_be_removed(tmp_path: Path) -> None:
    with WeightFiles(tmp_path).locked(SMOLLM2) as ours:
        assert ours
        with pytest.raises(AgentError) as caught:
            remove_local_model("smollm2", folder=tmp_path)
    assert caught.value.code == ErrorCode.UNAVAILABLE


def test_an_unknown_model_cannot_be_removed(tmp_path: Path) -> None:
    with pytest.raises(AgentError, match="there are qwen") as caught:
        remove_local_model("gpt-9", folder=tmp_path)
    assert caught.value.code == ErrorCode.CONFIG_INVALID
