"""Encodes and decodes how a standby collector names the leader to its clients.

A standby answers with gRPC status UNAVAILABLE, a text for users, and trailing metadata. The metadata always
has the key. Its value is the leader's host:port, or empty while no collector leads.
"""

import re
from collections.abc import Iterable

KEY = "hyperscout-leader"
_MAX_CHARS = 256
# A name, an IPv4 address or an IPv6 address in brackets, and a port. Other schemes ("unix:...") do not match.
_ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?):([0-9]{1,5})")

Metadata = tuple[tuple[str, str], ...]


def refusal(leader: str, problem: str | None = None) -> tuple[str, Metadata]:
    """Return status details and trailing metadata of a standby.

    `leader`: host:port, "" = no leader. `problem`: of the election, in one line; None = there is none.
    """
    if not is_address(leader):
        return f"standby; there is no leader yet{f': {problem}' if problem else ''}", ((KEY, ""),)
    return f"standby; the leader is {leader}", ((KEY, leader),)


def leader_in(metadata: Iterable[tuple[str, str | bytes]] | None) -> str | None:
    """Return the leader's host:port from trailing metadata.

    None = the metadata is not from a standby. "" = the standby knows no leader, or its value is invalid.
    """
    for key, value in metadata or ():
        if key == KEY:
            return value if isinstance(value, str) and is_address(value) else ""
    return None


def is_address(text: str) -> bool:
    """Return whether the text is host:port and nothing else."""
    found = _ADDRESS.fullmatch(text) if len(text) <= _MAX_CHARS else None
    return found is not None and 0 < int(found[3]) < 65536
