"""Python processes of our own that import a module of this package and nothing else of it.

The launcher of shell commands and the search with patterns are such processes. They start fast,
see no environment, no user's site-packages and no working folder.
"""

import sys
from pathlib import Path

_BOOTSTRAP = """\
import sys, types
folder, module = sys.argv[1:3]
for name, path in (("holdfast", folder), ("holdfast.tools", folder + "/tools")):
    package = types.ModuleType(name)
    package.__path__ = [path]
    sys.modules[name] = package
__import__(module)
sys.modules[module].main()
"""
"""The packages are put in place without running what they import."""

PACKAGE_FOLDER = str(Path(__file__).resolve().parents[1])


def isolated_python(module: str, *arguments: str) -> list[str]:
    """Return the command line of a process that runs `main` of a module of `holdfast.tools`."""
    return [sys.executable, "-I", "-S", "-c", _BOOTSTRAP, PACKAGE_FOLDER, module, *arguments]
