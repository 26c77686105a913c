"""Hosts, ports and the addresses of this host."""

from __future__ import annotations

import socket
import time


def split(address: str) -> tuple[str, int]:
    """HOST:PORT ↦ (HOST, PORT); an IPv6 address stands in brackets, as in [::1]:1234."""
    host, colon, port = address.rpartition(":")
    if not colon or not host:
        raise ValueError(f"{address} has no port; expected HOST:PORT, such as 10.0.0.1:1234.")
    if not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise ValueError(f"{address} has the port {port!r}; expected a number from 1 to 65535.")
    bracketed = host.startswith("[") and host.endswith("]")
    if ":" in host and not bracketed:
        raise ValueError(f"{address} leaves open where the port begins; expected an IPv6 address in brackets.")
    return host[1:-1] if bracketed else host, int(port)


def paste(host: str, port: int) -> str:
    """What `split` takes apart."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def numeric(host: str) -> str:
    """The first IP address of a host's name."""
    return str(socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][4][0])


def facing(host: str, port: int) -> str:
    """This host's address on the way to another; connecting a UDP socket sends nothing."""
    kind, _, _, _, target = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(kind, socket.SOCK_DGRAM) as probe:
        probe.connect(target)
        return str(probe.getsockname()[0])


def answers(host: str, port: int, seconds: float) -> bool:
    """Whether anyone takes a connection there, within a time."""
    end = time.monotonic() + seconds
    while True:
        try:
            socket.create_connection((host, port), timeout=2).close()
        except OSError:
            if time.monotonic() > end:
                return False
            time.sleep(0.2)
        else:
            return True


def is_here(address: str) -> bool:
    """Whether an IP address is one of this host's."""
    try:
        _bind(address, 0)
    except OSError:
        return False
    return True


def is_free(address: str, port: int) -> bool:
    """Whether nothing listens there yet."""
    try:
        _bind(address, port)
    except OSError:
        return False
    return True


def free_port(address: str) -> int:
    """A port to which nothing is bound at the moment."""
    return _bind(address, 0)


def _bind(address: str, port: int) -> int:
    """Binds to a port, lets it go again, and says which it was."""
    family, kind, protocol, _, target = socket.getaddrinfo(
        address, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST
    )[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections that are closing do not count
        probe.bind(target)
        return probe.getsockname()[1]
