"""Checks the Host header of requests to a server without authentication, against DNS rebinding.

A site whose page a browser has loaded can let its own name resolve to this machine (DNS rebinding). The page
can then read this server as its own origin. It cannot change the `Host` header, which contains the site's
name, so the server rejects unknown names. With authentication the check is not needed: such a page has no
token and no certificate.
"""

import ipaddress
import socket
from collections.abc import Iterable

from starlette.requests import HTTPConnection

from hyperscout_collector.serve.http.problems import ProblemError


class Hosts:
    """The accepted host names.

    `names`: accepted in addition to this machine's names and to IP addresses; None = any name.
    """

    def __init__(self, names: Iterable[str] | None) -> None:
        own = {"localhost", socket.gethostname().lower()}
        self._names = None if names is None else own | {name.lower() for name in names}

    def check(self, request: HTTPConnection) -> None:
        """Raises ProblemError (403) if the request's host name is not accepted."""
        if self._names is None:
            return
        sent = request.headers.getlist("host")
        host = _name(sent[0]) if len(sent) == 1 else ""
        if host not in self._names and not _is_address(host):
            raise ProblemError(
                403,
                "wrong-host",
                f"host name {host[:253]!r} is not accepted: add it to rest_hosts, or use an IP address",
            )


def _name(host: str) -> str:
    """The host without the port and without brackets, in lower case."""
    name, colon, port = host.rpartition(":")
    return (name if colon and port.isdecimal() else host).strip("[]").lower()


def _is_address(host: str) -> bool:
    """Whether it is an IP address. DNS rebinding needs a name, so addresses are safe."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
