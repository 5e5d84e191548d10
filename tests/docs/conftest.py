"""The code of the pages keeps its stores in the home folder: here, in one of each test."""

import pytest


@pytest.fixture(autouse=True)
def _home_of_each_test(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path_factory.mktemp("user")))
