"""Addresses of settings, and a limit for connections that have sent nothing yet."""

import errno
import ipaddress
import socket
from collections import Counter
from collections.abc import Callable, Hashable

GRPC_PORT, HEALTH_PORT, REST_PORT = 50051, 50052, 50080  # the collector's, unless its settings say otherwise


def host_port(address: str) -> tuple[str, int]:
    """Return ("host", port) of "host:port" or "[v6]:port". Raises ValueError."""
    host, colon, port = address.rpartition(":")
    is_url = "://" in address
    if is_url or not colon or not host or not port.isdecimal() or int(port) > 65535:
        without = " without http://" if is_url else ""
        raise ValueError(f"{address!r}: expected host:port{without}, such as 127.0.0.1:{GRPC_PORT}")
    if host.startswith("[") != host.endswith("]") or (":" in host and not host.startswith("[")):
        raise ValueError(f"{address!r}: an IPv6 address goes in brackets, [::1]:{GRPC_PORT}")
    return host.strip("[]"), int(port)


def why_not_listening(setting: str, host: str, port: int, error: OSError | None) -> str:
    """Return why a process cannot listen at an address, and the setting to change.

    `error`: None = the cause is unknown.
    """
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    if error is not None and error.errno == errno.EADDRINUSE:
        return (
            f"{setting}: port {port} of {host} is in use: end the process that listens there "
            f"(`ss -ltnp 'sport = :{port}'` names it), or set {setting} to another port"
        )
    if error is not None and error.errno == errno.EACCES:
        return f"{setting}: {address}: this user may not listen at it: set {setting} to a port from 1024"
    why = "no cause is known" if error is None else error.strerror or str(error)
    return f"{setting}: cannot listen at {address}: {why}: set {setting} to an address of this machine"


def bind_error(host: str, port: int) -> OSError | None:
    """Try the address, for servers that do not tell why they cannot listen. None = it can be used."""
    try:
        for family, kind, _, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
            with socket.socket(family, kind) as tried:
                tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                tried.bind(address)
                tried.listen(1)
    except OSError as error:
        return error
    return None


def is_loopback(host: str) -> bool:
    """Return whether the address can only be reached from this machine."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class SilentConnections:
    """At most `limit` silent connections. A new one closes the oldest of the address that has the most.

    One address cannot lock out callers from other addresses. Many callers behind one translated address can
    also connect, because a connection is no longer silent when its request arrives.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._open: dict[Hashable, tuple[str, Callable[[], None]]] = {}

    def __len__(self) -> int:
        return len(self._open)

    def add(self, connection: Hashable, address: str, close: Callable[[], None]) -> None:
        """Add a connection. `close` is called when a new connection takes its place."""
        if len(self._open) >= self._limit:
            crowded, _ = Counter(address for address, _ in self._open.values()).most_common(1)[0]
            oldest = next(one for one, (address, _) in self._open.items() if address == crowded)
            self._open.pop(oldest)[1]()
        self._open[connection] = address, close

    def discard(self, connection: Hashable) -> None:
        """The connection has sent its request, or has ended."""
        self._open.pop(connection, None)
