"""Defines the kinds of faults that can be planted, and the record of a planted fault."""

from dataclasses import dataclass
from enum import StrEnum

from hyperscout_sim.fabric.fabric import Cable


class Fault(StrEnum):
    """A kind of fault that can be planted."""

    HOST_LINK = "host-link"  # a cable between a host and a leaf is missing
    UPLINK = "uplink"  # a cable between two switches is missing
    SWAPPED_HOST_LINKS = "swapped-host-links"
    SWAPPED_UPLINKS = "swapped-uplinks"
    DEAD_RAIL = "dead-rail"  # an adapter and its cable are missing
    LEAF = "leaf"  # a whole switch is missing, by its level
    SPINE = "spine"
    CORE = "core"
    ONE_SIDED = "one-sided"  # one end of a cable has no record in the text
    FACTORY_ADAPTER = "factory-adapter"  # the description of one adapter names its model, not its host
    FACTORY_HOST = "factory-host"
    FACTORY_FABRIC = "factory-fabric"
    STORAGE = "storage"
    MANAGER = "manager"
    LOGIN = "login"
    SHARP = "sharp"
    RENAMED = "renamed"


class NotApplicableError(ValueError):
    """The fabric has no place for this fault, or every place would split the fabric."""


@dataclass(frozen=True, slots=True)
class PlantedFault:
    """Record of a planted fault. `before` are the correct cables, `now` the cables that replaced them.

    `kinds` are anomaly kinds, each of which identifies the fault. It is empty if the fault is not an anomaly.
    An adapter without its description is an UnknownHost only if no node map and no agent identifies its host.
    """

    fault: Fault
    kinds: tuple[str, ...] = ()
    before: tuple[Cable, ...] = ()
    now: tuple[Cable, ...] = ()
    switch: int | None = None  # GUID
    hosts: tuple[str, ...] = ()  # touched hosts; their new names if they were renamed
    adapters: tuple[int, ...] = ()  # GUIDs of adapters that are missing or lost their description
    foreign: tuple[str, ...] = ()  # names of foreign endpoints that were added
    leaves_trace: bool = False
    tied: tuple[str, ...] = ()  # touched hosts that no evidence places, at tier 1 or above
    outvoted: tuple[str, ...] = ()  # touched hosts with evidence for another domain
    cut_off: tuple[str, ...] = ()  # touched hosts without a cable

    @property
    def unplaced(self) -> frozenset[str]:
        """Hosts for which the true domain cannot be inferred. Compare only the other hosts."""
        return frozenset((*self.tied, *self.outvoted, *self.cut_off))

    def pairs(self) -> frozenset[frozenset[int]]:
        """Return the two devices (GUIDs) of every cable that an anomaly about this fault may name."""
        return frozenset(frozenset((c.a, c.b)) for c in (*self.before, *self.now))
