"""Every logger of the package takes secrets out of its records."""

from pathlib import Path

import haptera

SOURCE = Path(haptera.__file__).parent


def test_every_logger_is_made_where_records_are_scrubbed() -> None:
    makers = {
        str(path.relative_to(SOURCE))
        for path in SOURCE.rglob("*.py")
        if "getLogger(" in path.read_text(encoding="utf-8")
    }
    assert makers == {"system/logs.py"}
