"""Where a collector may be spoken to without TLS.

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


def check_target(target: str, *, insecure: bool) -> None:
    """Raise TargetError unless `target` is well formed and may be reached in plaintext."""
    if not target.startswith(("unix:", "unix-abstract:")):
        host, _, port = target.rpartition(":")
        if not host or not port.isdigit() or not 0 < int(port) < 65536:
            raise TargetError(
                f"collector address {target!r}: expected host:port, [v6 address]:port or unix:PATH"
            )
    if not insecure and not is_loopback(target):
        raise TargetError(
            f"collector address {target!r} is not on this machine, and the stream is not encrypted: "
            "set `insecure: true` if the network between is trusted"
        )
