"""How a collector that does not lead says who does: gRPC status UNAVAILABLE, words for people, and metadata.

The key is there whenever it is a standby that answers; its value is the leader's host:port, or empty while
nobody leads.
"""

import re
from collections.abc import Iterable

KEY = "hyperscout-leader"
_MAX_CHARS = 256
# A name, an IPv4 address or an IPv6 address in brackets, and a port: never another scheme ("unix:...").
_ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?):([0-9]{1,5})")

Metadata = tuple[tuple[str, str], ...]


def refusal(leader: str) -> tuple[str, Metadata]:
    """Status details and trailing metadata of a standby. `leader`: host:port, "" = nobody leads."""
    if not is_address(leader):
        return "standby; nobody leads yet", ((KEY, ""),)
    return f"standby; the leader is {leader}", ((KEY, leader),)


def leader_in(metadata: Iterable[tuple[str, str | bytes]] | None) -> str | None:
    """What trailing metadata says. None: no standby spoke. "": it knows no leader, or said nothing usable."""
    for key, value in metadata or ():
        if key == KEY:
            return value if isinstance(value, str) and is_address(value) else ""
    return None


def is_address(text: str) -> bool:
    """Whether it is host:port and nothing else."""
    found = _ADDRESS.fullmatch(text) if len(text) <= _MAX_CHARS else None
    return found is not None and 0 < int(found[3]) < 65536
