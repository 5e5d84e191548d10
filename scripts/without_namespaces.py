"""Runs a command where the kernel refuses user namespaces, as it does in many containers.

A filter of system calls, which the command and all that it starts inherit, refuses to make them.
"""

import ctypes
import errno
import os
import struct
import sys

_NEW_USER = 0x10000000
_NUMBERS = {"x86_64": (56, 272), "aarch64": (220, 97)}
"""Of clone and unshare, whose first argument has the flags."""
_CLONE3 = 435
_LOAD, _EQUALS, _HAS_BITS, _RETURN = 0x20, 0x15, 0x45, 0x06
_NUMBER_AT, _FLAGS_AT = 0, 16
_ALLOW, _FAIL_WITH = 0x7FFF0000, 0x00050000
_NO_NEW_PRIVILEGES, _SET_FILTER, _FILTER_MODE = 38, 22, 2


def main() -> None:
    """Set up the filter and become the command."""
    code = b"".join(_program())
    buffer = ctypes.create_string_buffer(code, len(code))
    header = struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(buffer))
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    if libc.prctl(_SET_FILTER, _FILTER_MODE, header, 0, 0):
        sys.exit(f"no filter could be set up: {os.strerror(ctypes.get_errno())}")
    if libc.unshare(_NEW_USER) == 0:
        sys.exit("user namespaces are not refused")
    os.execvp(sys.argv[1], sys.argv[1:])  # noqa: S606 - what it is for


def _program() -> list[bytes]:
    def step(operation: int, operand: int, *, skip_if: int = 0, skip_unless: int = 0) -> bytes:
        return struct.pack("HBBI", operation, skip_if, skip_unless, operand)

    steps = [step(_LOAD, _NUMBER_AT)]
    # Programs fall back to clone, whose flags a filter can see.
    steps += [step(_EQUALS, _CLONE3, skip_unless=1), step(_RETURN, _FAIL_WITH | errno.ENOSYS)]
    for number in _NUMBERS[os.uname().machine]:
        steps += [
            step(_EQUALS, number, skip_unless=4),
            step(_LOAD, _FLAGS_AT),
            step(_HAS_BITS, _NEW_USER, skip_unless=1),
            step(_RETURN, _FAIL_WITH | errno.EPERM),
            step(_RETURN, _ALLOW),
        ]
    return [*steps, step(_RETURN, _ALLOW)]


if __name__ == "__main__":
    main()
