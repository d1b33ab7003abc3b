"""Workers that need all their devices in one NUMA zone, and how many of them fit on a node.

Such a worker needs one more resource, its `zone_share`, for example 1 "NUMA zone of 4 nvidia.com/gpu". A node
has as many of it as such workers fit: the sum over its zones of floor(free / need). So the solver treats it
like any resource. A booking names the zone: 4 "nvidia.com/gpu in NUMA zone 1".
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from hyperscout_placer.cluster.quantity import Needs, is_extended

_SHARE = "NUMA zone of "
_IN = " in NUMA zone "
_AND = " and "
_NOTHING: Mapping[str, int] = {}


@dataclass(frozen=True, slots=True)
class Zone:
    """A NUMA zone of a node. `number`: None = of devices whose device plugin reports no zone.

    `nics`: names of the RDMA devices (else network interfaces) in the zone, sorted.
    """

    number: int | None
    nics: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ZoneDevices:
    """The devices of a zone that no container uses: number by resource."""

    zone: Zone
    unused: Mapping[str, int] = field(default_factory=dict)


def in_one_zone(needs: Needs) -> Needs:
    """The needs of a worker whose devices must be in one zone. Raises ValueError if it needs no device."""
    devices = [f"{amount} {name}" for name, amount in needs if amount and is_extended(name)]
    if not devices:
        raise ValueError("no device is requested, such as nvidia.com/gpu")
    return tuple(sorted((*needs, (_SHARE + _AND.join(devices), 1))))


def is_zone_resource(name: str) -> bool:
    """Whether the name stands for devices of a zone; no request and no file may contain it."""
    return name.startswith(_SHARE) or _IN in name


def zone_share(needs: Needs) -> str | None:
    """The resource that stands for one zone; None: the devices may be in any zones."""
    return next((name for name, _ in needs if name.startswith(_SHARE)), None)


@lru_cache(maxsize=256)
def devices_of_share(share: str) -> Mapping[str, int]:
    """The devices that a worker needs in one zone. The caller must not change the result."""
    parts = (part.partition(" ") for part in share.removeprefix(_SHARE).split(_AND))
    return {name: int(amount) for amount, _, name in parts}


def without_share(needs: Needs) -> Needs:
    """The needs as they were requested."""
    return tuple(need for need in needs if not need[0].startswith(_SHARE))


def in_zone(needs: Needs, zone: Zone) -> Needs:
    """The needs of a worker that has its zone."""
    share = zone_share(needs)
    if share is None:
        return needs
    there = ((_name_in(zone.number, name), amount) for name, amount in devices_of_share(share).items())
    return (*without_share(needs), *there)


class FreeInZones:
    """What is free in the zones of a node.

    `free`: what is free on the node. `booked`: bookings by resource.

    Devices that are not free, and for which neither the kubelet nor a booking names the zone, may be in any
    zone. They count as used in each of them, until the kubelet reports their zones.
    """

    def __init__(
        self, zones: Sequence[ZoneDevices], free: Mapping[str, int], booked: Mapping[str, int] = _NOTHING
    ) -> None:
        self._zones = [
            (
                one.zone,
                {
                    name: max(0, unused - booked.get(_name_in(one.zone.number, name), 0))
                    for name, unused in one.unused.items()
                },
            )
            for one in zones
        ]
        sums: dict[str, int] = {}
        for _, there in self._zones:
            for name, unused in there.items():
                sums[name] = sums.get(name, 0) + unused
        self._elsewhere = {name: max(0, total - free.get(name, 0)) for name, total in sums.items()}
        self._have_zones = {name for one in zones if one.zone.number is not None for name in one.unused}

    def fits(self, share: str) -> int:
        """How many workers with this share fit."""
        devices, zones = self._choices(share)
        return sum(self._fits_in(there, devices) for _, there in zones)

    def take(self, share: str) -> Zone | None:
        """Take the devices of one worker; None: it fits in no zone.

        The zone is the first one in which they are free, as the kubelet's Topology Manager chooses it (policy
        single-numa-node). For workers with equal needs no other choice would leave capacity for more of them.
        """
        devices, zones = self._choices(share)
        for zone, there in zones:
            if self._fits_in(there, devices):
                for name, amount in devices.items():
                    there[name] -= amount
                return zone
        return None

    def _choices(self, share: str) -> tuple[Mapping[str, int], list[tuple[Zone, dict[str, int]]]]:
        """The devices that decide, and the zones to choose from.

        Devices without a zone do not decide if others have one. The kubelet aligns only devices with a zone.
        """
        devices = devices_of_share(share)
        decide = {name: amount for name, amount in devices.items() if name in self._have_zones}
        have_number = bool(decide)
        zones = [one for one in self._zones if (one[0].number is not None) == have_number]
        return decide or devices, zones

    def _fits_in(self, there: Mapping[str, int], devices: Mapping[str, int]) -> int:
        return min(
            max(0, there.get(name, 0) - self._elsewhere.get(name, 0)) // amount
            for name, amount in devices.items()
        )


def shares_that_overlap(kinds: Iterable[Needs]) -> str | None:
    """A device that kinds of workers share although one of them needs it in one zone; None: there is none.

    How many fit together would depend on the zones, which the solver does not see.
    """
    different = list(dict.fromkeys(kinds))
    for i, needs in enumerate(different):
        share = zone_share(needs)
        if share is None:
            continue
        devices = devices_of_share(share).keys()
        for j, other in enumerate(different):
            if j != i and share != zone_share(other) and (both := devices & {n for n, a in other if a}):
                return min(both)
    return None


def _name_in(zone: int | None, resource: str) -> str:
    return f"{resource}{_IN}{'of no number' if zone is None else zone}"
