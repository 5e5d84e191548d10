"""The table of attempts to get out of the sandbox, by family."""

from tests.tools.escapes.attempt import Escape
from tests.tools.escapes.of_files import ATTRIBUTES, FILES, GIT, MOUNTS, SET_ID
from tests.tools.escapes.of_kernel import DEVICES, KERNEL, NAMESPACES, TERMINALS
from tests.tools.escapes.of_processes import LIMITS, PROC, PTRACE, SHM, SIGNALS, SURVIVORS
from tests.tools.escapes.of_sockets import ABSTRACT, NETLINK, NETWORK, PATHS, VSOCK

ESCAPES: tuple[Escape, ...] = (
    *FILES, *ATTRIBUTES, *GIT, *PATHS, *ABSTRACT, *NETWORK, *NETLINK, *VSOCK, *SIGNALS, *PTRACE,
    *PROC, *NAMESPACES, *MOUNTS, *KERNEL, *SET_ID, *TERMINALS, *DEVICES, *SHM, *LIMITS, *SURVIVORS,
)  # fmt: skip
