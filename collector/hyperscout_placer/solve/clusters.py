"""Places a gang in one of several clusters. No gang spans clusters: they have schedulers of their own."""

from collections.abc import Mapping
from dataclasses import replace

from hyperscout_placer.cluster.answer import Placement, Refusal
from hyperscout_placer.cluster.capacity import Capacity, Mask
from hyperscout_placer.cluster.message_text import say_cluster
from hyperscout_placer.cluster.request import Request, size
from hyperscout_placer.solve.elastic import place_elastic, with_counts
from hyperscout_placer.solve.place import NO_MASKS


def place_in_cluster(
    capacity: Capacity, request: Request, masks: Mapping[str, Mask] = NO_MASKS
) -> Placement | Refusal:
    """As `place_elastic`, in one of `request.clusters`.

    The cluster has room for the most workers of an elastic gang; of such, the gang has the lowest top tier
    there. Of equal ones it is the collector's own cluster, else the first one by name. A `Placement` is
    `exact` in its cluster. Raises RequestError.
    """
    names = sorted(request.clusters or (request.cluster,))  # "" = the collector's own cluster
    best: Placement | None = None
    unsure, refusals = list[str](), dict[str, Refusal]()
    for name in names:
        answer = place_elastic(capacity, in_cluster(request, name), masks)
        if isinstance(answer, Refusal):
            refusals[name] = answer
            if not answer.proven:
                unsure.append(name)
        elif best is None or _order(answer) < _order(best):
            best = answer
            if answer.cost.top <= 1 and len(answer.nodes) == size(request.gang):
                break  # a later cluster would have to be better
    if best is None:
        return _refusal(refusals, several=bool(capacity.forest.clusters))
    if unsure:
        where = ", ".join(map(say_cluster, unsure))
        why = f"no place was found in {where} within the search limit, but one may exist"
        best = replace(best, relaxed=(*best.relaxed, why))
    return best


def in_cluster(request: Request, cluster: str) -> Request:
    """The request with this cluster alone as a candidate."""
    return replace(request, cluster=cluster, clusters=())


def as_placed(request: Request, answer: Placement) -> Request:
    """The request with the cluster and the numbers of elastic parts that were chosen."""
    return with_counts(in_cluster(request, answer.cluster) if request.clusters else request, answer.counts)


def _order(answer: Placement) -> tuple[int, int]:
    return -len(answer.nodes), answer.cost.top


def _refusal(found: Mapping[str, Refusal], *, several: bool) -> Refusal:
    """`several`: whether there are other clusters than the collector's own."""
    (first, *_), is_proven = found.values(), all(x.proven for x in found.values())
    if not several:
        return first
    reasons = [f"{say_cluster(name)}: {x.reason}" for name, x in found.items()]
    return Refusal(first.tier, "; ".join(reasons), is_proven)
