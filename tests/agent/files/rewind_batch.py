"""Lives in random workspaces, in a process of its own: `rewind_batch PLACE FIRST LAST`."""

import sys
import tempfile

from tests.agent.files.test_rewinding_any_workspace import live_often

tempfile.tempdir = sys.argv[1]
live_often(range(int(sys.argv[2]), int(sys.argv[3])))
