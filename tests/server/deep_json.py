"""Bodies of JSON that take many times their size, or steps for each byte, when they are read."""

from collections.abc import Callable

BODIES: dict[str, Callable[[int], bytes]] = {
    "numbers": lambda size: b"[" + b"1," * (size // 2) + b"1]",
    "objects": lambda size: b"[" + b"{}," * (size // 3) + b"1]",
    "lists": lambda size: b"[" + b"[]," * (size // 3) + b"1]",
    "texts": lambda size: b"[" + b'"",' * (size // 3) + b"1]",
    "texts after brackets": lambda size: b"[" * 70 + b'"",' * (size // 3) + b"1]",
    "depth": lambda size: b"[" * size,
    "depth in turns": lambda size: b"[" + (b"[" * 60 + b"]" * 60 + b",") * (size // 121) + b"1]",
    "escapes": lambda size: b"[" * 70 + b'"' + rb"\n" * (size // 2) + b'"',
    "backslashes": lambda size: b"[" * 70 + b'"' + rb"\\" * (size // 2) + b'"',
    "names": lambda size: b"{" + b",".join(b'"k%d":1' % each for each in range(size // 12)) + b"}",
    "one name": lambda size: b"{" + b'"":1,' * (size // 5) + b'"a":1}',
    "a long name": lambda size: b'{"' + b"k" * size + b'":1}',
    "a long number": lambda size: b"1" * size,
    "long numbers": lambda size: b"[" + (b"9" * 4000 + b",") * (size // 4001) + b"1]",
    "decimals": lambda size: b"[" + (b"9" * 300 + b".5,") * (size // 303) + b"1]",
    "large exponents": lambda size: b"[" + b"1e300," * 90_000 + b"1]",
    "few large exponents": lambda size: (
        b'{"text":"' + b"x" * size + b'","a":[' + b"1e300," * 999 + b"1]}"
    ),
    "ends": lambda size: b"]" * size,
    "an exponent": lambda size: b"1e" + b"9" * size,
}
"""Each makes one of about that many bytes."""
