"""Missing recorded traffic skips a test at home and fails it where nothing may be skipped."""

from pathlib import Path

import pytest

from tests.fixtures_wire import require_wire, wire_root


def test_the_environment_says_where_the_recorded_traffic_is(tmp_path: Path) -> None:
    assert require_wire({"HAPTERA_WIRE": str(tmp_path)}) == tmp_path


def test_the_former_variable_is_read_where_the_new_one_is_not_set(tmp_path: Path) -> None:
    former = {"HOLDFAST_WIRE": str(tmp_path)}
    assert require_wire(former) == tmp_path
    assert wire_root({**former, "HAPTERA_WIRE": "/elsewhere"}) == Path("/elsewhere")


def test_without_a_word_it_is_expected_beside_the_clone() -> None:
    assert wire_root({}).parts[-2:] == ("shared", "wire")


def test_missing_traffic_skips_where_it_is_optional(tmp_path: Path) -> None:
    with pytest.raises(pytest.skip.Exception, match="HAPTERA_WIRE"):
        require_wire({"HAPTERA_WIRE": str(tmp_path / "gone")})


@pytest.mark.parametrize("demand", [{"CI": "true"}, {"HAPTERA_REQUIRE_ALL": "1"}], ids=str)
def test_missing_traffic_fails_where_it_is_required(tmp_path: Path, demand: dict[str, str]) -> None:
    with pytest.raises(pytest.fail.Exception, match="HAPTERA_WIRE"):
        require_wire({"HAPTERA_WIRE": str(tmp_path / "gone"), **demand})
