"""Under which names this server may be asked, where nobody is asked who calls.

A page of any site can have its own name point at this machine once it is loaded (DNS rebinding), and then
read along as if it came from here. It cannot choose the header `Host`, which says the name that it used.
Where callers show tokens or certificates, such a page has none.
"""

import ipaddress
import socket
from collections.abc import Iterable

from starlette.requests import HTTPConnection

from hyperscout_collector.serve.http.problems import ProblemError


class Hosts:
    """`names`: besides this machine's own and addresses; None = any name."""

    def __init__(self, names: Iterable[str] | None) -> None:
        own = {"localhost", socket.gethostname().lower()}
        self._names = None if names is None else own | {name.lower() for name in names}

    def check(self, request: HTTPConnection) -> None:
        """Raises ProblemError."""
        if self._names is None:
            return
        sent = request.headers.getlist("host")
        host = _name(sent[0]) if len(sent) == 1 else ""
        if host not in self._names and not _is_address(host):
            raise ProblemError(
                403, "wrong-host", f"not for the host {host[:253]!r}: add it to rest_hosts, or ask by address"
            )


def _name(host: str) -> str:
    """Without the port."""
    name, colon, port = host.rpartition(":")
    return (name if colon and port.isdecimal() else host).strip("[]").lower()


def _is_address(host: str) -> bool:
    """No name, so none that could be pointed elsewhere."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
