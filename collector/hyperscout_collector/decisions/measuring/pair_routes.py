"""Matches the interfaces and addresses of two nodes that measure each other.

Interfaces with the same name form one rail. The remaining interfaces of both sides are matched in order:
rails are numbered alike, whatever the drivers name them.

Addresses come from agents and are not trusted. An address that is not a single host's (loopback, multicast,
unspecified, link-local) or that both ends claim would make a node measure itself, or send to strangers. IPv4
has precedence where both ends have both families, so that all pairs of a mixed cluster are measured alike.
Among several addresses the two with the longest common prefix are used: they are most likely in one subnet.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address

from hyperscout_formats.facts.facts import LatencyPort

MAX_RAILS = 16  # of one pair
MAX_ADDRESSES = 8  # used per interface


@dataclass(frozen=True, slots=True)
class Place:
    """One end of a route."""

    interface: str
    address: str
    udp_port: int


@dataclass(frozen=True, slots=True)
class Route:
    """One rail between two nodes. `rdma`: both ends have an RDMA port."""

    a: Place
    b: Place
    rdma: bool = False


def answers(port: LatencyPort) -> bool:
    """Whether the interface answers pings."""
    return 0 < port.udp_port < 65536 and bool(port.addresses)


def routes(a: Sequence[LatencyPort], b: Sequence[LatencyPort]) -> list[Route]:
    """Returns the rails of two nodes, at most MAX_RAILS, sorted by the interface of the first."""
    ours = {port.interface: port for port in a if answers(port)}
    theirs = {port.interface: port for port in b if answers(port)}
    both = ours.keys() & theirs.keys()
    rest = (sorted(ours.keys() - both), sorted(theirs.keys() - both))
    couples = sorted([*((name, name) for name in both), *zip(*rest, strict=False)])
    found = []
    for here, there in couples[:MAX_RAILS]:
        addresses = _addresses(ours[here].addresses, theirs[there].addresses)
        if addresses is not None:
            found.append(
                Route(
                    Place(here, addresses[0], ours[here].udp_port),
                    Place(there, addresses[1], theirs[there].udp_port),
                    bool(ours[here].rdma_port and theirs[there].rdma_port),
                )
            )
    return found


def _addresses(a: tuple[str, ...], b: tuple[str, ...]) -> tuple[str, str] | None:
    """Returns the best two addresses of one family; None if there are none."""
    best: tuple[int, int, int, str, str] | None = None
    for i, x in enumerate(_usable(a)):
        for j, y in enumerate(_usable(b)):
            if x.version == y.version and x != y:
                shared = x.max_prefixlen - (int(x) ^ int(y)).bit_length()
                rank = (x.version, -shared, i + j, str(x), str(y))
                best = rank if best is None else min(best, rank)
    return None if best is None else best[3:]


@lru_cache(maxsize=1 << 16)
def _usable(texts: tuple[str, ...]) -> tuple[IPv4Address | IPv6Address, ...]:
    found = []
    for text in texts[:MAX_ADDRESSES]:
        try:
            address = ip_address(text)
        except ValueError:
            continue
        mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
        address = mapped or address
        if not (
            address.is_loopback
            or address.is_multicast
            or address.is_unspecified
            or address.is_link_local
            or address == IPv4Address("255.255.255.255")
        ):
            found.append(address)
    return tuple(found)
