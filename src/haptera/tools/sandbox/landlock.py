"""Landlock: an allow-list of folders that the kernel keeps for a process and all that it starts.

Standard library only: the launcher imports this without the rest of the package.
"""

import os
import stat
import struct
from collections.abc import Iterable

from haptera.tools.sandbox.kernel import call

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION_FLAG, _PATH_BENEATH = 1, 1

EXECUTE, WRITE_FILE, READ_FILE, READ_FOLDER = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_MAKE_CHARACTER_DEVICE, _MAKE_FILE, _MAKE_BLOCK_DEVICE = 1 << 6, 1 << 8, 1 << 11
_TRUNCATE, _DEVICE_IOCTL = 1 << 14, 1 << 15
_ON_FILES = EXECUTE | WRITE_FILE | READ_FILE | _TRUNCATE | _DEVICE_IOCTL
"""Rights that a rule on something other than a folder may hold."""
# The kernel refuses a set of rules with a right that its version does not know.
_FILE_RIGHTS_BY_VERSION = {1: 13, 2: 14, 3: 15, 4: 15}
_FILE_RIGHTS_NOW = 16

READ = EXECUTE | READ_FILE | READ_FOLDER
WRITE = ((1 << _FILE_RIGHTS_NOW) - 1) & ~(_MAKE_CHARACTER_DEVICE | _MAKE_BLOCK_DEVICE)
USE_DEVICE = READ_FILE | READ_FOLDER | WRITE_FILE | _TRUNCATE | _DEVICE_IOCTL

_TCP_RIGHTS = 0b11
_SCOPES = 0b11
"""No abstract Unix sockets and no signals to what is outside."""
TRUNCATION_SINCE, _TCP_SINCE, SCOPES_SINCE = 3, 4, 6
"""The version that first knows each; before, it is allowed everywhere."""


def kernel_version() -> int:
    """Return the version of Landlock that the kernel has; 0 when it has none."""
    try:
        return call("landlock", _CREATE_RULESET, None, 0, _VERSION_FLAG)
    except OSError:
        return 0


def restrict(rules: Iterable[tuple[str, int]], *, tcp: bool) -> None:
    """Keep this process to `rules` (a path and its rights), for good; needs no_new_privs.

    A path that does not exist is left out. Without `tcp` neither bind nor connect is allowed.
    """
    version = kernel_version()
    handled = (1 << _FILE_RIGHTS_BY_VERSION.get(version, _FILE_RIGHTS_NOW)) - 1
    attributes = [handled]
    if version >= _TCP_SINCE:
        attributes.append(0 if tcp else _TCP_RIGHTS)
    if version >= SCOPES_SINCE:
        attributes.append(_SCOPES)
    # The structure has grown over the versions. Its length says which one is meant.
    packed = struct.pack(f"{len(attributes)}Q", *attributes)
    ruleset = call("landlock_create_ruleset", _CREATE_RULESET, packed, len(packed), 0)
    try:
        for path, rights in rules:
            _add_rule(ruleset, path, rights & handled)
        call("landlock_restrict_self", _RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)


def _add_rule(ruleset: int, path: str, rights: int) -> None:
    # A symbolic link that replaces a folder meanwhile must not open up its target.
    follow = os.O_NOFOLLOW if rights & _MAKE_FILE else 0
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC | follow)
    except OSError:
        return
    try:
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            rights &= _ON_FILES
        packed = struct.pack("=Qi", rights, descriptor)
        call("landlock_add_rule", _ADD_RULE, ruleset, _PATH_BENEATH, packed, 0)
    finally:
        os.close(descriptor)
