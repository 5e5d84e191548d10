"""Lives in random workspaces, in a process of its own: `rewind_batch FIRST LAST`."""

import sys

from tests.agent.test_rewinding_any_workspace import live_often

live_often(range(int(sys.argv[1]), int(sys.argv[2])))
