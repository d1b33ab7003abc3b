"""Words for faults: what can be planted, and what is known about one that was."""

from dataclasses import dataclass
from enum import StrEnum

from hyperscout_sim.fabric.fabric import Cable


class Fault(StrEnum):
    """What can be planted."""

    HOST_LINK = "host-link"  # a cable between host and leaf is gone
    UPLINK = "uplink"  # a cable between two switches is gone
    SWAPPED_HOST_LINKS = "swapped-host-links"
    SWAPPED_UPLINKS = "swapped-uplinks"
    DEAD_RAIL = "dead-rail"  # an adapter is gone, its cable with it
    LEAF = "leaf"  # a whole switch is gone, by its level
    SPINE = "spine"
    CORE = "core"
    ONE_SIDED = "one-sided"  # one end of a cable has no record in the text
    FACTORY_ADAPTER = "factory-adapter"  # one adapter says what it is, not whose
    FACTORY_HOST = "factory-host"
    FACTORY_FABRIC = "factory-fabric"
    STORAGE = "storage"
    MANAGER = "manager"
    LOGIN = "login"
    SHARP = "sharp"
    RENAMED = "renamed"


class NotApplicableError(ValueError):
    """This fabric has nothing that could have this fault, or it would fall apart."""


@dataclass(frozen=True, slots=True)
class PlantedFault:
    """What was done. `before` are the cables as they should be, `now` those that took their place.

    `kinds`: anomaly kinds, any of which names the fault; empty for what is no anomaly at all. An adapter
    without its description is an UnknownHost only where no node map and no agent claims it.
    """

    fault: Fault
    kinds: tuple[str, ...] = ()
    before: tuple[Cable, ...] = ()
    now: tuple[Cable, ...] = ()
    switch: int | None = None  # GUID
    hosts: tuple[str, ...] = ()  # touched hosts; the new names where they were renamed
    adapters: tuple[int, ...] = ()  # GUIDs of adapters that are gone or lost their description
    foreign: tuple[str, ...] = ()  # names of foreign endpoints that were added
    leaves_trace: bool = False
    tied: tuple[str, ...] = ()  # touched hosts that no evidence places, at tier 1 or above
    outvoted: tuple[str, ...] = ()  # touched hosts whose evidence speaks for another domain
    cut_off: tuple[str, ...] = ()  # touched hosts without a cable

    @property
    def unplaced(self) -> frozenset[str]:
        """Hosts of which no observer could tell the true domain: compare the others."""
        return frozenset((*self.tied, *self.outvoted, *self.cut_off))

    def pairs(self) -> frozenset[frozenset[int]]:
        """The two devices (GUIDs) of every cable that an anomaly about this fault may name."""
        return frozenset(frozenset((c.a, c.b)) for c in (*self.before, *self.now))
