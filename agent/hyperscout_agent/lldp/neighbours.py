"""Who was heard on which port, and until when it counts (IEEE 802.1AB-2016, 9.2: the remote systems MIB).

Pure: no socket, no clock. A neighbour is told from others by its chassis id and port id; it is gone when
its TTL has passed, when it says goodbye (TTL 0), or when the port loses its carrier. A carrier that was away
so shortly that nobody saw the port without it takes nobody away by itself: most such cables are where they
were. But then the first newcomer that speaks takes the place of those who have not spoken since.
"""

from dataclasses import dataclass

from hyperscout_formats.facts.facts import LldpNeighbour

# More on one port are a storm, not a topology.
_MAX_NEIGHBOURS = 16
# How long a frame that could not be read is worth telling.
_TROUBLE_NS = 120 * 1_000_000_000
_MAX_TROUBLES = 256
_MAX_SENDERS = 4096

Identity = tuple[str, str, str, str]  # chassis subtype and id, port subtype and id


@dataclass(frozen=True, slots=True)
class _Known:
    neighbour: LldpNeighbour
    heard_ns: int
    since_ns: int  # heard without a pause

    @property
    def expires_ns(self) -> int:
        return self.heard_ns + self.neighbour.ttl_s * 1_000_000_000


class NeighbourTable:
    """All times are CLOCK_MONOTONIC in ns. Methods that change something say whether it shows."""

    def __init__(self) -> None:
        self._ports: dict[str, dict[Identity, _Known]] = {}
        self._senders: dict[tuple[str, bytes], LldpNeighbour] = {}  # what the last frame of each said
        self._troubles: dict[str, tuple[str, int]] = {}
        self._blinked_ns: dict[str, int] = {}

    def heard(self, port: str, sender: bytes, neighbour: LldpNeighbour, at_ns: int) -> bool:
        """A frame that was read. One with TTL 0 takes its sender away."""
        identity = _identity(neighbour)
        known = self._ports.setdefault(port, {})
        before = known.pop(identity, None)
        cleared = self._troubles.pop(port, None) is not None
        self._senders.pop((port, sender), None)
        if neighbour.ttl_s == 0:
            return before is not None or cleared
        if len(self._senders) >= _MAX_SENDERS:
            del self._senders[next(iter(self._senders))]  # the one that said something new longest ago
        self._senders[port, sender] = neighbour
        if len(known) >= _MAX_NEIGHBOURS:
            del known[min(known, key=lambda other: known[other].heard_ns)]
        known[identity] = _Known(neighbour, at_ns, before.since_ns if before else at_ns)
        replaced = self._replace(port, identity)
        return cleared or replaced or before is None or before.neighbour != neighbour

    def again(self, port: str, sender: bytes, at_ns: int) -> bool:
        """The same frame as last time: the neighbour counts for another TTL, and is back if it was gone
        (the listener sends a frame only once, however long the cable was out in between)."""
        neighbour = self._senders.get((port, sender))
        if neighbour is None:
            return False
        identity = _identity(neighbour)
        before = self._ports.get(port, {}).get(identity)
        if before is None:
            return self.heard(port, sender, neighbour, at_ns)
        self._ports[port][identity] = _Known(neighbour, max(at_ns, before.heard_ns), before.since_ns)
        return self._replace(port, identity)

    def _replace(self, port: str, identity: Identity) -> bool:
        """One who came after the carrier was away takes the place of those who were silent since."""
        if (blinked_ns := self._blinked_ns.get(port)) is None:
            return False
        known = self._ports[port]
        limit_ns = min(blinked_ns, known[identity].since_ns)
        gone = [other for other, one in known.items() if one.heard_ns < limit_ns]
        for other in gone:
            del known[other]
        return bool(gone)

    def unreadable(self, port: str, reason: str, at_ns: int) -> bool:
        """A frame that could not be read. It takes nobody away."""
        before = self._troubles.pop(port, None)
        if len(self._troubles) >= _MAX_TROUBLES:
            del self._troubles[next(iter(self._troubles))]
        self._troubles[port] = (reason, at_ns)
        return before is None or before[0] != reason

    def clear(self, port: str) -> None:
        """The port lost its carrier: whoever comes back may be somebody else."""
        self._ports.pop(port, None)
        self._troubles.pop(port, None)
        self._blinked_ns.pop(port, None)

    def blinked(self, port: str, at_ns: int) -> None:
        """The port lost its carrier some time before `at_ns`, and has it again."""
        if self._ports.get(port):
            self._blinked_ns[port] = at_ns

    def neighbours(self, port: str, now_ns: int) -> tuple[LldpNeighbour, ...]:
        """Those that count now, in a fixed order."""
        known = self._ports.get(port, {})
        for identity in [identity for identity, one in known.items() if one.expires_ns <= now_ns]:
            del known[identity]
        return tuple(known[identity].neighbour for identity in sorted(known))

    def trouble(self, port: str, now_ns: int) -> str:
        """Why the last frame on the port could not be read, "" when it could or that is long ago."""
        reason, at_ns = self._troubles.get(port, ("", 0))
        return reason if now_ns - at_ns < _TROUBLE_NS else ""

    def next_expiry_ns(self) -> int | None:
        """When the next neighbour is gone unless it is heard again."""
        return min((one.expires_ns for known in self._ports.values() for one in known.values()), default=None)


def _identity(neighbour: LldpNeighbour) -> Identity:
    return (
        neighbour.chassis_id_subtype,
        neighbour.chassis_id,
        neighbour.port_id_subtype,
        neighbour.port_id,
    )
