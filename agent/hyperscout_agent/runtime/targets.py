"""Decides which collector addresses may be used without TLS or with a token.

Findings describe every link of a cluster. They do not cross a network unencrypted unless the operator
permits it.
"""

import ipaddress


class TargetError(ValueError):
    """The address is not usable. The message names the setting to change."""


def is_loopback(target: str) -> bool:
    """Whether a gRPC target ("host:port", "[v6]:port", "unix:path") is on this machine."""
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
    """Raise TargetError unless `target` is well formed and permitted with these options.

    `insecure`: the operator permits plaintext. A token is never sent in plaintext to another machine, because
    an eavesdropper could use it.
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
