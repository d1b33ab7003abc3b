"""A gang's reservation, the errors of the book of placements, and helpers."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from hyperscout_formats.text.counts import count

from hyperscout_placer.book.failed_nodes import Failed
from hyperscout_placer.cluster.answer import Placement, Refusal
from hyperscout_placer.cluster.capacity import Mask
from hyperscout_placer.cluster.forest import Forest
from hyperscout_placer.cluster.numa_zones import Zone, in_zone
from hyperscout_placer.cluster.request import Group, Request, RequestError, Workers, ranks, size
from hyperscout_placer.repair.defrag import Running
from hyperscout_placer.solve.elastic import carried

MAX_NAME_CHARS = 400  # "namespace/kind/name" has up to 383
MAX_GANGS = 10_000
MAX_RANKS = 1_000_000  # of all gangs together
MAX_FAILED_OF_GANG, MAX_FAILED = 1000, 100_000  # failed nodes that a gang, and all together, remember
_QUICK = 2_000  # workers; up to this number a simple request is decided on the event loop


class PlacementsError(Exception):
    """The operation is not done. The message contains the reason and the next step."""


class NotReadyError(PlacementsError):
    """No topology is published, or the unused resources are not known yet."""


class HeldError(PlacementsError):
    """The gang has a reservation already."""


class NoReservationError(PlacementsError):
    """The gang has no reservation."""


class TooManyError(PlacementsError):
    """The book is full. Release a reservation first."""


class NoRoomError(PlacementsError):
    """The decided placement or move does not fit any more. Decide again."""


@dataclass(frozen=True, slots=True)
class Reservation:
    """A gang's reservation of nodes. Times are Unix ns; `expires_ns` 0 = never.

    `holder`: "api", or the kind of the workload ("Job"). `arrived`: ranks with a pod that runs on its node,
    so that the unused resources of the node count it already. `failed`: nodes that no repair uses.
    """

    gang: str
    holder: str
    request: Request
    placement: Placement
    reserved_ns: int
    expires_ns: int = 0
    arrived: frozenset[int] = field(default_factory=frozenset)
    failed: Failed = ()


@dataclass(frozen=True, slots=True)
class Trial:
    """A decision without a reservation, and the seconds it took."""

    answer: Placement | Refusal
    seconds: float


def check_name(gang: str) -> None:
    """Raises RequestError."""
    if not 1 <= len(gang) <= MAX_NAME_CHARS or not gang.isprintable() or " " in gang:
        raise RequestError(
            f"gang: {gang[:MAX_NAME_CHARS]!r}: expected a name of 1 to {MAX_NAME_CHARS} printable characters"
        )


def check_new(gang: str, held: Reservation | None, gangs: int) -> None:
    """Check whether a gang can get a reservation. `held`: its present one. `gangs`: number of all.

    Raises RequestError, HeldError, TooManyError.
    """
    check_name(gang)
    if held is not None:
        raise HeldError(
            f"gang {gang!r} already holds {count(held.placement.cost.nodes, 'node')}: release it first, or "
            "choose another name"
        )
    if gangs >= MAX_GANGS:
        raise TooManyError(f"{gangs} gangs already hold nodes, which is the limit: release a gang")


def check_ranks(ranks_now: int, more: int) -> None:
    """Check whether so many more ranks can be reserved. Raises TooManyError."""
    if more > 0 and ranks_now + more > MAX_RANKS:
        raise TooManyError(
            f"{ranks_now} workers already hold nodes, the limit is {MAX_RANKS}: release a gang"
        )


def check_failed(gang: str, of_gang: int, of_all: int) -> None:
    """Check the numbers of failed nodes that a gang, and all gangs, would remember. Raises TooManyError."""
    for number, whose, limit in (
        (of_gang, f"gang {gang!r}", MAX_FAILED_OF_GANG),
        (of_all, "all gangs together", MAX_FAILED),
    ):
        if number > limit:
            raise TooManyError(
                f"{whose} would remember {number} failed nodes, the limit is {limit}: clear those that are "
                "repaired"
            )


def not_arrived(held: Reservation) -> Collection[int]:
    """Ranks that the unused resources of their nodes do not count yet."""
    all_ranks = range(len(held.placement.nodes))
    return [rank for rank in all_ranks if rank not in held.arrived] if held.arrived else all_ranks


def places(held: Reservation, which: Collection[int]) -> tuple[list[str], list[Workers]]:
    """Nodes of these ranks, and the workers that run there, with their NUMA zones."""
    nodes, needs, zones = held.placement.nodes, tuple(ranks(held.request.gang)), held.placement.zones
    if zones:
        needs = tuple(map(_in_zone, needs, zones))
    return [nodes[rank] for rank in which], [needs[rank] for rank in which]


def _in_zone(worker: Workers, zone: Zone | None) -> Workers:
    return worker if zone is None else replace(worker, resources=in_zone(worker.resources, zone))


def within_tiers(request: Request, tiers: int) -> Request:
    """The same request in a hierarchy that may have fewer tiers than the one for which it was made.

    Limits above the highest tier get that tier.
    """

    def of(group: Group) -> Group:
        limits = (None if x is None else min(x, tiers) for x in (group.tier, group.preferred))
        tier, preferred = limits
        parts = tuple(of(part) if isinstance(part, Group) else part for part in group.parts)
        return replace(group, parts=parts, tier=tier, preferred=preferred)

    return replace(request, gang=of(request.gang))


def avoiding_failed(held: Reservation, forest: Forest) -> Request:
    """The request of a gang for these tiers. It also avoids the nodes that the gang remembers as failed."""
    failed = forest.index.keys() & {x.node for x in held.failed}
    return replace(within_tiers(held.request, forest.top), avoid=held.request.avoid | failed)


def running_gangs(
    book: Iterable[Reservation], forest: Forest, masks: Callable[[Reservation], Mapping[str, Mask]]
) -> list[Running]:
    """The gangs of a book, as `defragment` takes them. `masks`: by role, the nodes that a gang may use."""
    return [Running(x.gang, avoiding_failed(x, forest), x.placement.nodes, masks=masks(x)) for x in book]


def is_where(held: Reservation, moved: Collection[int], placement: Placement) -> bool:
    """Whether `placement` differs from the reservation in these ranks only."""
    before, after = held.placement.nodes, placement.nodes
    return (
        len(before) == len(after)
        and all(0 <= rank < len(before) for rank in moved)
        and all(
            old == new or rank in moved for rank, (old, new) in enumerate(zip(before, after, strict=True))
        )
    )


def with_size(
    held: Reservation, request: Request, placement: Placement
) -> tuple[frozenset[int], Reservation, frozenset[int]]:
    """A reservation with another number of ranks. Ranks that stay keep their nodes and NUMA zones.

    Returns the ranks that leave, the reservation after that, and its new ranks. Raises NoRoomError where the
    placement has another node for a rank that stays.
    """
    came_from, nodes = carried(held.request.gang, request.gang), held.placement.nodes
    if any(
        old is not None and nodes[old] != node for old, node in zip(came_from, placement.nodes, strict=True)
    ):
        raise NoRoomError(f"gang {held.gang!r} has other nodes than its new size starts from: plan it again")
    if zones := held.placement.zones:
        placement = replace(placement, zones=tuple(None if old is None else zones[old] for old in came_from))
    arrived = frozenset(rank for rank, old in enumerate(came_from) if old in held.arrived)
    after = replace(held, request=request, placement=placement, arrived=arrived)
    new = frozenset(rank for rank, old in enumerate(came_from) if old is None)
    return frozenset(range(len(nodes))).difference(came_from), after, new


def is_quick(request: Request) -> bool:
    """Whether a decision takes milliseconds at most.

    This is so for nested groups with one kind of worker and at most `_QUICK` workers. Groups of several sizes
    take as long as several kinds of workers, an elastic gang as long as several gangs, and a gang with
    several clusters as long as one in each.
    """
    part: Group | Workers = request.gang
    while isinstance(part, Group):
        if len(part.parts) != 1 or part.elastic is not None:
            return False
        part = part.parts[0]
    return part.elastic is None and size(request.gang) * max(1, len(request.clusters)) <= _QUICK
