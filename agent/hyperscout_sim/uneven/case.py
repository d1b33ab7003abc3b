"""One generated case: an uneven fabric with its truth, and the files in which tools report it."""

from dataclasses import dataclass, field
from random import Random
from typing import Final

from hyperscout_formats.infiniband.ibnetdiscover import MAX_PORT

from hyperscout_sim.fabric.fabric import SimFabric, Truth
from hyperscout_sim.readings.lldp import PLAIN_HOSTS, Hearing
from hyperscout_sim.uneven.cabling import build
from hyperscout_sim.uneven.shapes import SHAPES
from hyperscout_sim.uneven.site import Site, UnsuitableError, draw_site
from hyperscout_sim.uneven.traits import TRAITS

KINDS: Final = (*TRAITS, "storage fabric", *SHAPES)
_TRIES: Final = 50
_MOST_TRAITS: Final = 4


@dataclass(frozen=True, slots=True)
class Defect:
    """A planted fault. `what` is the row of the report, `kind` the kind of the anomaly that names it.

    `ends`: device GUID, and port where it matters. For a switch that is down, the first is the switch, the
    others are all that was cabled to it.
    """

    what: str
    kind: str
    ends: tuple[tuple[int, int | None], ...]


@dataclass(frozen=True, slots=True)
class Uneven:
    """A generated fabric. `fabric.truth` and `alternatives` are right; without `tree`, only its tier 1 is.

    `may_be_missing`: hosts that the tree may leave out if this is reported. `defects`: planted faults.
    """

    seed: int
    kind: str  # the trait or shape that the seed selects
    traits: tuple[str, ...]
    fabric: SimFabric
    alternatives: tuple[Truth, ...] = ()
    tree: bool = True
    ethernet: bool = False
    node_map: str = ""
    walks_only: bool = False
    hearing: Hearing = PLAIN_HOSTS
    racks: dict[str, tuple[str, int]] = field(default_factory=dict)
    may_be_missing: frozenset[str] = frozenset()
    defects: tuple[Defect, ...] = ()

    @property
    def foreign(self) -> frozenset[str]:
        """Names of endpoints that do not compute."""
        guests = (guest for names in self.hearing.guests.values() for guest in names)
        return frozenset((*(x.host for x in self.fabric.adapters if x.foreign), *guests))

    @property
    def causes(self) -> frozenset[int]:
        """Numbers of the causes of wrong inference that the fabric contains, see docs/accuracy.md."""
        found = [TRAITS[name].causes if name in TRAITS else SHAPES[name].causes for name in self.traits]
        return frozenset(cause for causes in found for cause in causes)


def healthy(seed: int, kind: str = "") -> Uneven:
    """Return a healthy fabric. The seed selects the kind in turn, unless `kind` names one."""
    kind = kind or KINDS[seed % len(KINDS)]
    rng = Random(f"uneven {seed}")  # noqa: S311 - draws fabrics, not secrets
    if kind in SHAPES:
        shape = SHAPES[kind]
        return Uneven(seed, kind, (kind,), shape.make(rng, seed), tree=shape.tree)
    while True:
        site = _site(kind, rng, large=seed % 50 == 49)
        built = build(site, seed)
        if site.ethernet or max(port for cable in built.fabric.cables for _, port in cable.ends) <= MAX_PORT:
            break
    return Uneven(
        seed,
        kind,
        tuple(site.traits),
        built.fabric,
        built.alternatives,
        ethernet=site.ethernet,
        node_map=site.node_map,
        walks_only=site.walks_only,
        hearing=site.hearing,
        racks=site.racks,
        may_be_missing=site.hearing.routes if site.walks_only else frozenset(),
    )


def _site(kind: str, rng: Random, *, large: bool) -> Site:
    """Draw a site with the trait `kind` and up to three others that fit."""
    for _ in range(_TRIES):
        site = draw_site(rng, TRAITS[kind].needs, large=large)
        others = [] if kind == "regular" else rng.sample(list(TRAITS)[1:], rng.choice((0, 2, 4, 6)))
        for name in (n for n in TRAITS if n == kind or n in others):
            _apply(name, site, rng, leave_room=name != kind)
        if kind in site.traits:
            return site
    raise UnsuitableError(f"no site fits the trait {kind!r}")


def _apply(name: str, site: Site, rng: Random, *, leave_room: bool) -> None:
    """Apply a trait if it fits. `leave_room`: the site keeps place for the trait that it is drawn for."""
    trait = TRAITS[name]
    groups = {TRAITS[other].group for other in site.traits} - {""}
    most = _MOST_TRAITS - leave_room
    if len(site.traits) >= most or trait.group in groups or not trait.needs.fit(site):
        return
    try:
        trait.apply(site, rng)
    except UnsuitableError:
        return
    site.traits.append(name)
