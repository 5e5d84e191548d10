"""The lock file names the public index and nothing of the machine that made it."""

import re

from tests.architecture.source_tree import ROOT

PLACE = re.compile(r"""["'](\w+)://([^/"']*)""")
PUBLIC = {("https", "pypi.org"), ("https", "files.pythonhosted.org")}


def test_the_lock_file_names_only_public_places() -> None:
    text = (ROOT / "uv.lock").read_text(encoding="utf-8")
    assert set(PLACE.findall(text)) == PUBLIC
    assert 'path = "' not in text
