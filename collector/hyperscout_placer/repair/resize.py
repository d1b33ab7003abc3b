"""Grows and shrinks a running gang in place: no rank that stays moves.

New ranks are placed as a repair places ranks: around those that run, so that the gang as a whole costs least.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from hyperscout_formats.text.counts import count

from hyperscout_placer.cluster.answer import Placement, Refusal
from hyperscout_placer.cluster.capacity import Capacity, Mask
from hyperscout_placer.cluster.request import Request, RequestError, Workers, checked, ranks, size
from hyperscout_placer.repair.moving import Moved, Nowhere, add
from hyperscout_placer.repair.repair import bound_to, placement_at, read_gang
from hyperscout_placer.solve.elastic import Counts, carried, counts_of, largest, with_counts


@dataclass(frozen=True, slots=True)
class Resized:
    """`request`: with the new counts. `placement`: the gang afterwards. `lacking`: how many workers of those
    that were asked for have a place, and why no more; "" = all of them have one.

    `placement.exact`: no more ranks fit beside those that run, and no choice of nodes for the new ones costs
    less. Where no rank is new, nothing is known: it has no `bound` either.
    """

    request: Request
    placement: Placement
    lacking: str = ""


def resize(
    capacity: Capacity,
    request: Request,
    running: Sequence[str],
    counts: Counts,
    masks: Mapping[str, Mask],
) -> Resized | Refusal:
    """The gang with these numbers of its elastic parts; with fewer than that where not all have a place.

    `running`: nodes by rank; their resources are taken from `capacity` already. The last copies of a part are
    released first, also from nodes that are not in the topology any more. No part shrinks because another one
    has no place. Refusal: nothing that is to grow has a place. Raises RequestError.
    """
    checked(with_counts(request, counts), capacity.forest.top)
    if len(running) != size(request.gang):
        raise RequestError(f"running: {len(running)} nodes for {size(request.gang)} workers")
    lower = tuple(map(min, counts_of(request), counts))
    stay = (rank for rank in carried(request.gang, with_counts(request, lower).gang) if rank is not None)
    if gone := [running[rank] for rank in stay if running[rank] not in capacity.forest.index]:
        raise RequestError(f"node {gone[0]} of the gang is not in the topology: repair the gang first")
    refusals: list[Refusal] = []

    def placed(wanted: Counts) -> Resized | None:
        found = _with(capacity, request, running, wanted, masks)
        if isinstance(found, Resized):
            return found
        refusals.append(found)
        return None

    best = largest(lower, counts, placed)
    proven = all(x.proven for x in refusals)
    if best is None or (best[0] == lower != counts):
        first = refusals[-1]
        return replace(first, proven=proven)
    found = best[1]
    if best[0] != counts:
        asked, got = size(with_counts(request, counts).gang), len(found.placement.nodes)
        have = "has" if got == 1 else "have"
        found = replace(found, lacking=f"{got} of {asked} workers {have} a place: {refusals[-1].reason}")
    if proven:
        return found
    placement = found.placement
    bound = placement.bound or placement.cost
    return replace(found, placement=replace(placement, exact=False, bound=bound))


def _with(
    capacity: Capacity, request: Request, running: Sequence[str], counts: Counts, masks: Mapping[str, Mask]
) -> Resized | Refusal:
    wanted = with_counts(request, counts)
    from_ranks = carried(request.gang, wanted.gang)
    stay = {rank for rank in from_ranks if rank is not None}
    needs: list[Workers] = list(ranks(request.gang))
    known = (rank for rank, name in enumerate(running) if name in capacity.forest.index)
    if released := [rank for rank in known if rank not in stay]:
        capacity = capacity.copy()
        capacity.give([running[rank] for rank in released], [needs[rank] for rank in released])
    before = ["" if rank is None else running[rank] for rank in from_ranks]
    gang, layout = read_gang(capacity, wanted, before, masks)
    new = frozenset(rank for rank, old in enumerate(from_ranks) if old is None)
    if not new:
        stays = Moved(gang.before, gang.cost(layout, gang.before), exact=False)
        return Resized(wanted, replace(placement_at(gang, stays), bound=None))
    found = add(gang, new)
    if isinstance(found, Nowhere):
        role = layout.kinds[layout.kind[found.rank]].role
        beside = f"beside {count(len(stay), 'running worker')}"
        text = f"no place for one more {role} {beside}{bound_to(gang, layout, found.rank)}"
        return replace(found.refusal, reason=text)
    return Resized(wanted, placement_at(gang, found))
