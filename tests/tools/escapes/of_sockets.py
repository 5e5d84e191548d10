"""Attempts on sockets: by path, abstract, TCP, UDP, netlink, vsock and other families."""

import os
import socket
import struct

from tests.tools.escapes.attempt import Escape, Target, found

_STREAM, _DATAGRAM, _SEQUENCED = socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET
_SECONDS = 1.0
_MPTCP, _UDPLITE, _FAST_OPEN = 262, 136, 0x20000000
_GET_LINK, _GET_ADDRESS, _DIAGNOSE, _DUMP = 18, 22, 20, 0x301
_DIAGNOSIS = 4


def _connect(address: str, kind: int = _STREAM) -> None:
    with socket.socket(socket.AF_UNIX, kind) as opened:
        opened.connect(address)


def _send(address: str) -> None:
    with socket.socket(socket.AF_UNIX, _DATAGRAM) as opened:
        opened.sendto(b"escaped", address)


def _send_from_pair(address: str, kind: int = _DATAGRAM) -> None:
    one, other = socket.socketpair(socket.AF_UNIX, kind)
    with one, other:
        one.sendto(b"escaped", address)


def _connect_pair(address: str) -> None:
    one, other = socket.socketpair(socket.AF_UNIX, _DATAGRAM)
    with one, other:
        one.connect(address)


def _through_link(address: str) -> None:
    os.symlink(address, "l")
    _connect("l")


def _by_folder(address: str) -> None:
    folder = os.open(os.path.dirname(address), os.O_PATH | os.O_DIRECTORY)
    _connect(f"/proc/self/fd/{folder}/{os.path.basename(address)}")


PATHS = (
    Escape("sockets by path", "stream", lambda t: _connect(t.sockets["stream"])),
    Escape("sockets by path", "packets", lambda t: _connect(t.sockets["packets"], _SEQUENCED)),
    Escape("sockets by path", "datagram", lambda t: _send(t.sockets["datagram"])),
    Escape("sockets by path", "datagram pair", lambda t: _send_from_pair(t.sockets["datagram"])),
    Escape("sockets by path", "raw pair", lambda t: _send_from_pair(
        t.sockets["datagram"], socket.SOCK_RAW)),
    Escape("sockets by path", "connected pair", lambda t: _connect_pair(t.sockets["datagram"])),
    Escape("sockets by path", "symlink", lambda t: _through_link(t.sockets["stream"])),
    Escape("sockets by path", "relative", lambda t: _connect(os.path.relpath(
        t.sockets["stream"]))),
    Escape("sockets by path", "proc root", lambda t: _connect(
        f"/proc/self/root{t.sockets['stream']}")),
    Escape("sockets by path", "opened folder", lambda t: _by_folder(t.sockets["stream"])),
    Escape("sockets by path", "in the root", lambda t: _connect(t.sockets["root"])),
    Escape("sockets by path", "bound by a relative path", lambda t: _connect(
        t.sockets["relative"])),
    Escape("sockets by path", "bound through a link", lambda t: _connect(t.sockets["linked"])),
    Escape("sockets by path", "in tmp", lambda t: _connect(t.sockets["temporary"])),
    Escape("sockets by path", "in run", lambda t: _connect(t.sockets["run"]), needs="root"),
)  # fmt: skip

ABSTRACT = (
    Escape("abstract sockets", "stream", lambda t: _connect(f"\0{t.name}-stream")),
    Escape("abstract sockets", "packets", lambda t: _connect(f"\0{t.name}-packets", _SEQUENCED)),
    Escape("abstract sockets", "datagram", lambda t: _send(f"\0{t.name}-datagram")),
    Escape("abstract sockets", "pair", lambda t: _send_from_pair(f"\0{t.name}-datagram")),
)  # fmt: skip


def _tcp(address: str, port: int, protocol: int = 0) -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, _STREAM, protocol) as opened:
        opened.settimeout(_SECONDS)
        opened.connect((address, port))


def _fast_open(target: Target) -> None:
    with socket.socket(socket.AF_INET, _STREAM) as opened:
        # With a time limit the call would return before there is a connection.
        opened.sendto(b"escaped", _FAST_OPEN, ("127.0.0.1", target.tcp))


def _any_address(target: Target) -> str:
    found(target.addresses)
    return target.addresses[0]


def _udp(address: str, port: int, protocol: int = 0) -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, _DATAGRAM, protocol) as opened:
        opened.settimeout(_SECONDS)
        opened.connect((address, port))
        opened.send(b"escaped")
        found(opened.recv(100))


NETWORK = (
    Escape("TCP", "version 4", lambda t: _tcp("127.0.0.1", t.tcp)),
    Escape("TCP", "version 6", lambda t: _tcp("::1", t.tcp), needs="IPv6"),
    Escape("TCP", "mapped", lambda t: _tcp("::ffff:127.0.0.1", t.tcp), needs="IPv6"),
    Escape("TCP", "other address", lambda t: _tcp(_any_address(t), t.tcp), needs="a network"),
    Escape("TCP", "several paths", lambda t: _tcp("127.0.0.1", t.tcp, _MPTCP), needs="MPTCP"),
    Escape("TCP", "fast open", _fast_open),
    Escape("UDP", "version 4", lambda t: _udp("127.0.0.1", t.udp)),
    Escape("UDP", "version 6", lambda t: _udp("::1", t.udp), needs="IPv6"),
    Escape("UDP", "other address", lambda t: _udp(_any_address(t), t.udp), needs="a network"),
    Escape("UDP", "raw", lambda _: socket.socket(
        socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP), needs="root"),
)  # fmt: skip


def _ask(protocol: int, kind: int, body: bytes) -> bytes:
    """Send a request over netlink and return all that is answered."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, protocol) as opened:
        opened.settimeout(_SECONDS)
        opened.bind((0, 0))
        opened.send(struct.pack("=IHHII", 16 + len(body), kind, _DUMP, 1, 0) + body)
        answer = b""
        while True:
            piece = opened.recv(1 << 16)
            answer += piece
            if struct.unpack_from("=H", piece, 4)[0] in {2, 3} or piece[-20:-16] == b"\x14\0\0\0":
                return answer


def _sees_links() -> None:
    found([name for _, name in socket.if_nameindex() if name != "lo"])


def _sees_address(target: Target) -> None:
    packed = socket.inet_aton(_any_address(target))
    found(packed in _ask(socket.NETLINK_ROUTE, _GET_ADDRESS, bytes(8)))


def _sees_socket(target: Target) -> None:
    # Family, protocol, padding; all states; inode 0; show names; no cookie.
    body = struct.pack("=BBHIIIII", socket.AF_UNIX, 0, 0, 0xFFFFFFFF, 0, 1, 0, 0)
    found(target.name.encode() in _ask(_DIAGNOSIS, _DIAGNOSE, body))


def _sees_port(target: Target) -> None:
    body = struct.pack("=BBBBI48x", socket.AF_INET, socket.IPPROTO_TCP, 0, 0, 0xFFFFFFFF)
    port = struct.pack("!H", target.tcp)
    found(port in _ask(_DIAGNOSIS, _DIAGNOSE, body))


def _listens_to_devices() -> None:
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 9) as opened:  # audit
        opened.bind((0, 1))


NETLINK = (
    Escape("netlink", "links", lambda _: _sees_links(), needs="a network"),
    Escape("netlink", "addresses", _sees_address, needs="a network"),
    Escape("netlink", "sockets", _sees_socket),
    Escape("netlink", "ports", _sees_port, needs="inet_diag"),
    Escape("netlink", "audit", lambda _: _listens_to_devices(), needs="root"),
)  # fmt: skip

_FAMILIES = {
    "vsock": ("stream", 40, _STREAM), "vsock datagram": ("datagram", 40, _DATAGRAM),
    "packet": ("raw", 17, socket.SOCK_RAW), "ciphers": ("packets", 38, _SEQUENCED),
    "bluetooth": ("raw", 31, socket.SOCK_RAW), "tipc": ("datagram", 30, _DATAGRAM),
    "xdp": ("raw", 44, socket.SOCK_RAW), "can": ("raw", 29, socket.SOCK_RAW),
}  # fmt: skip


def _open_family(family: int, kind: int) -> None:
    socket.socket(family, kind).close()


def _pair_of_family(family: int) -> None:
    for opened in socket.socketpair(family, _STREAM):
        opened.close()


VSOCK = (
    *(
        Escape(
            "vsock and others",
            name,
            lambda _, family=family, kind=kind: _open_family(family, kind),  # type: ignore[misc]
            needs=f"{name} in the kernel",
        )
        for name, (_, family, kind) in _FAMILIES.items()
    ),
    Escape("vsock and others", "tipc pair", lambda _: _pair_of_family(30), needs="TIPC"),
    Escape("vsock and others", "device", lambda _: os.open("/dev/vsock", os.O_RDWR),
        needs="vsock in the kernel"),
)  # fmt: skip
