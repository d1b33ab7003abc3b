"""Where a collector may be spoken to without TLS, and where a token may be shown.

Findings name every cable of a cluster: they do not cross a network in the clear unless the
operator says so.
"""

import ipaddress


class TargetError(ValueError):
    """An address that is not usable; says which setting to change."""


def is_loopback(target: str) -> bool:
    """Whether a gRPC target ("host:port", "[v6]:port", "unix:path") stays on this machine."""
    if target.startswith(("unix:", "unix-abstract:")):
        return True
    host = target.rpartition(":")[0].strip("[]")
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_target(target: str, *, insecure: bool, tls: bool = False, token: bool = False) -> None:
    """Raise TargetError unless `target` is well formed and may be spoken to like this.

    `insecure`: plaintext was allowed; it never is for a token, which whoever listens could use.
    """
    if not target.startswith(("unix:", "unix-abstract:")):
        host, _, port = target.rpartition(":")
        if not host or not port.isdigit() or not 0 < int(port) < 65536:
            raise TargetError(
                f"collector address {target!r}: expected host:port, [v6 address]:port or unix:PATH"
            )
    if tls or is_loopback(target):
        return
    if token:
        raise TargetError(
            f"collector address {target!r} is not on this machine, and a token is never sent in the clear: "
            "give the CA of its certificate (tls_ca)"
        )
    if not insecure:
        raise TargetError(
            f"collector address {target!r} is not on this machine, and the stream is not encrypted: "
            "give the CA of its certificate (tls_ca), or set `insecure: true` if the network is trusted"
        )
