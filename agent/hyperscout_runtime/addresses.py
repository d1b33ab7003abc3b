"""Parses the addresses of settings."""

import ipaddress


def host_port(address: str) -> tuple[str, int]:
    """Return ("host", port) of "host:port" or "[v6]:port". Raises ValueError."""
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise ValueError(f"{address!r} is no host:port")
    if host.startswith("[") != host.endswith("]") or (":" in host and not host.startswith("[")):
        raise ValueError(f"{address!r}: an IPv6 address goes in brackets, [::1]:50051")
    return host.strip("[]"), int(port)


def is_loopback(host: str) -> bool:
    """Return whether the address can only be reached from this machine."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
