"""Tracks the neighbours of each port and their expiry (IEEE 802.1AB-2016, 9.2: the remote systems MIB).

Pure: no socket, no clock. Chassis id and port id identify a neighbour. A neighbour is removed when its TTL
has passed, when it sends a frame with TTL 0, or when the port loses its carrier. A carrier loss too short
to be observed on the port removes no neighbour, because most such cables return to the same port. After
it, the first new neighbour replaces those that have been silent since.
"""

from dataclasses import dataclass

from hyperscout_formats.facts.facts import LldpNeighbour
from hyperscout_runtime.units import NS

# Reasons for a port without neighbours. The doctor has a next step for each.
NO_CARRIER = "no carrier: no cable, the other end is off, or the port is set down"
NOTHING_YET = "nothing heard yet"
NOTHING_HEARD = (
    "nothing heard on a port that is up: LLDP is off on the switch, or the NIC's own LLDP agent keeps the "
    "frames (Intel: `ethtool --set-priv-flags PORT disable-fw-lldp on`; NVIDIA: `mlxconfig` with "
    "LLDP_NB_RX_MODE_P1=0)"
)
# More neighbours on one port are a storm, not a topology.
_MAX_NEIGHBOURS = 16
# How long an unreadable frame is reported.
_TROUBLE_NS = 120 * NS
_MAX_TROUBLES = 256
_MAX_SENDERS = 4096

Identity = tuple[str, str, str, str]  # chassis subtype and id, port subtype and id


@dataclass(frozen=True, slots=True)
class _Known:
    neighbour: LldpNeighbour
    heard_ns: int
    since_ns: int  # start of the uninterrupted period in the table

    @property
    def expires_ns(self) -> int:
        return self.heard_ns + self.neighbour.ttl_s * NS


class NeighbourTable:
    """Neighbours by port. All times are CLOCK_MONOTONIC in ns.

    Methods that return a bool return True when the visible neighbours or problems changed.
    """

    def __init__(self) -> None:
        self._ports: dict[str, dict[Identity, _Known]] = {}
        self._senders: dict[
            tuple[str, bytes], LldpNeighbour
        ] = {}  # the neighbour in each sender's last frame
        self._troubles: dict[str, tuple[str, int]] = {}
        self._blinked_ns: dict[str, int] = {}

    def heard(self, port: str, sender: bytes, neighbour: LldpNeighbour, at_ns: int) -> bool:
        """Record a readable frame. TTL 0 removes its neighbour."""
        identity = _identity(neighbour)
        known = self._ports.setdefault(port, {})
        before = known.pop(identity, None)
        cleared = self._troubles.pop(port, None) is not None
        self._senders.pop((port, sender), None)
        if neighbour.ttl_s == 0:
            return before is not None or cleared
        if len(self._senders) >= _MAX_SENDERS:
            del self._senders[next(iter(self._senders))]  # the sender with the oldest last new frame
        self._senders[port, sender] = neighbour
        if len(known) >= _MAX_NEIGHBOURS:
            del known[min(known, key=lambda other: known[other].heard_ns)]
        known[identity] = _Known(neighbour, at_ns, before.since_ns if before else at_ns)
        replaced = self._replace(port, identity)
        return cleared or replaced or before is None or before.neighbour != neighbour

    def again(self, port: str, sender: bytes, at_ns: int) -> bool:
        """Record a repeated frame: renew the neighbour for another TTL, or restore it if it was removed.

        The listener sends an unchanged frame only once, however long the cable was unplugged in between.
        """
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
        """Remove the neighbours that a new neighbour replaces after a short carrier loss.

        These are the ones last heard before both the carrier loss and the first frame of `identity`.
        """
        if (blinked_ns := self._blinked_ns.get(port)) is None:
            return False
        known = self._ports[port]
        limit_ns = min(blinked_ns, known[identity].since_ns)
        gone = [other for other, one in known.items() if one.heard_ns < limit_ns]
        for other in gone:
            del known[other]
        return bool(gone)

    def unreadable(self, port: str, reason: str, at_ns: int) -> bool:
        """Record an unreadable frame. It removes no neighbour."""
        before = self._troubles.pop(port, None)
        if len(self._troubles) >= _MAX_TROUBLES:
            del self._troubles[next(iter(self._troubles))]
        self._troubles[port] = (reason, at_ns)
        return before is None or before[0] != reason

    def clear(self, port: str) -> None:
        """Remove all neighbours of a port that lost its carrier. The next neighbour may be another one."""
        self._ports.pop(port, None)
        self._troubles.pop(port, None)
        self._blinked_ns.pop(port, None)

    def blinked(self, port: str, at_ns: int) -> None:
        """Record that the port lost its carrier some time before `at_ns` and has it again."""
        if self._ports.get(port):
            self._blinked_ns[port] = at_ns

    def neighbours(self, port: str, now_ns: int) -> tuple[LldpNeighbour, ...]:
        """Return the neighbours that have not expired, in a fixed order."""
        known = self._ports.get(port, {})
        for identity in [identity for identity, one in known.items() if one.expires_ns <= now_ns]:
            del known[identity]
        return tuple(known[identity].neighbour for identity in sorted(known))

    def trouble(self, port: str, now_ns: int) -> str:
        """Return why the last frame on the port was unreadable, or "" when it was readable or is old."""
        reason, at_ns = self._troubles.get(port, ("", 0))
        return reason if now_ns - at_ns < _TROUBLE_NS else ""

    def next_expiry_ns(self) -> int | None:
        """Return when the next neighbour expires if it is not heard again. None: there are no neighbours."""
        return min((one.expires_ns for known in self._ports.values() for one in known.values()), default=None)


def _identity(neighbour: LldpNeighbour) -> Identity:
    return (
        neighbour.chassis_id_subtype,
        neighbour.chassis_id,
        neighbour.port_id_subtype,
        neighbour.port_id,
    )
