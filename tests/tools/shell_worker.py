"""A program that runs one long command with the shell tool, to be killed by a test."""

import asyncio
import sys
from typing import Any

from haptera.tools import coding_tools
from tests.tools.test_shell_tool import CONFINED
from tests.tools.toolbox import Toolbox


async def main() -> None:
    root, confined, mark = sys.argv[1:]
    tools = Toolbox(coding_tools(root, sandbox=CONFINED[confined]), is_approved=True)

    def tell(value: Any) -> None:
        sys.stdout.write("on\n")
        sys.stdout.flush()

    tools.watch = tell
    command = f"trap '' TERM; (setsid sleep {mark} &); echo on; sleep {mark}"
    await tools.call("shell", command=command)


if __name__ == "__main__":
    asyncio.run(main())
