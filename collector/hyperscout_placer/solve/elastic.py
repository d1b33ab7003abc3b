"""Elastic gangs: parts of which there are at least and at most so many.

The number of workers comes before all lines of the objective. Where several parts are elastic, the first one
in the order of the request gets as many copies as possible while the later ones have their least number, then
the second one, and so on. If so many copies of a part fit, fewer of them fit too. So a binary search finds
the largest number.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TypeVar

from hyperscout_placer.cluster.answer import Placement, Refusal
from hyperscout_placer.cluster.capacity import Capacity, Mask
from hyperscout_placer.cluster.request import Group, Range, Request, RequestError, Workers, size
from hyperscout_placer.solve.place import NO_MASKS, find_place, place, refused
from hyperscout_placer.solve.tables import Work

_T = TypeVar("_T")

Counts = tuple[int, ...]  # of the elastic parts, in the order of the request


def elastic_parts(part: Group | Workers) -> Iterator[tuple[Group | Workers, Range]]:
    """The elastic parts in the order of the request, each before those inside it."""
    if part.elastic is not None:
        yield part, part.elastic
    if isinstance(part, Group):
        for inner in part.parts:
            yield from elastic_parts(inner)


def with_counts(request: Request, counts: Counts) -> Request:
    """The request with these numbers of its elastic parts; () = as it is."""
    if not counts:
        return request
    left = iter(counts)

    def of(part: Group | Workers) -> Group | Workers:
        number = part.count if part.elastic is None else next(left)
        if isinstance(part, Workers):
            return replace(part, count=number)
        return replace(part, count=number, parts=tuple(map(of, part.parts)))

    gang = of(request.gang)
    assert isinstance(gang, Group)  # noqa: S101 (a group becomes a group)
    return replace(request, gang=gang)


def at_least(request: Request) -> Request:
    """The request with the least numbers of its elastic parts."""
    return with_counts(request, tuple(limits.least for _, limits in elastic_parts(request.gang)))


def at_most(request: Request) -> Request:
    return with_counts(request, tuple(limits.most for _, limits in elastic_parts(request.gang)))


def counts_of(request: Request) -> Counts:
    return tuple(part.count for part, _ in elastic_parts(request.gang))


def place_elastic(
    capacity: Capacity, request: Request, masks: Mapping[str, Mask] = NO_MASKS
) -> Placement | Refusal:
    """As `place`, with as many copies of the elastic parts as fit, at most as many as `request` has.

    `Placement.counts` says how many. Raises RequestError.
    """
    if request.impossible or not any(elastic_parts(request.gang)):
        return place(capacity, request, masks)
    work = Work()  # limit for all steps together
    unsure = list[Counts]()  # numbers for which an incomplete search found no place

    def fits(counts: Counts) -> Placement | None:
        found, complete = find_place(capacity, with_counts(request, counts), masks, work)
        if found is None and not complete:
            unsure.append(counts)
        return found

    least = at_least(request)
    lower = counts_of(least)
    best = largest(lower, counts_of(request), fits)
    if best is None:
        answer = refused(capacity, least, masks, work, proven=lower not in unsure)
        number = size(least.gang)
        return replace(answer, reason=f"the minimum of {number} workers does not fit: {answer.reason}")
    counts, found = best
    if unsure:
        why = "more workers were not found within the search limit, but may fit"
        bound = found.bound or found.cost
        found = replace(found, exact=False, bound=bound, relaxed=(*found.relaxed, why))
    return replace(found, counts=counts)


def largest(lower: Counts, upper: Counts, fits: Callable[[Counts], _T | None]) -> tuple[Counts, _T] | None:
    """The largest counts that fit, and what `fits` returns for them. The first count comes first.

    None = not even `lower` fits. `fits` returns None for counts that do not fit; larger ones do not fit then.
    """
    if (found := fits(upper)) is not None:
        return upper, found
    if lower == upper or (found := fits(lower)) is None:
        return None
    counts, best = list(lower), found
    for i, most in enumerate(upper):
        low, high = lower[i], most if len(lower) == 1 else most + 1
        while high - low > 1:
            counts[i] = (low + high) // 2
            if (found := fits(tuple(counts))) is None:
                high = counts[i]
            else:
                low, best = counts[i], found
        counts[i] = low
    return tuple(counts), best


def counts_for(request: Request, workers: int) -> Counts:
    """The numbers of the elastic parts with which the gang has so many workers.

    To grow, the first part gets more copies first; to shrink, the last one loses copies first. Raises
    RequestError where no numbers within the limits of the parts have that sum.
    """
    counts = list(counts_of(request))
    parts = list(elastic_parts(request.gang))
    grows = workers > size(request.gang)
    for i in range(len(parts)) if grows else reversed(range(len(parts))):
        limits = parts[i][1]
        low, high = (counts[i], limits.most) if grows else (limits.least, counts[i])
        while low < high:  # the largest number that is not more than `workers`
            counts[i] = (low + high + 1) // 2
            if size(with_counts(request, tuple(counts)).gang) <= workers:
                low = counts[i]
            else:
                high = counts[i] - 1
        counts[i] = low
    found = tuple(counts)
    if (near := size(with_counts(request, found).gang)) != workers:
        low, high = size(at_least(request).gang), size(at_most(request).gang)
        if low == high:
            why = f"the gang has {low} workers, and its request gives no minimum below that"
        elif low <= workers <= high:
            why = (
                f"groups stay whole, and all copies of a group change together: expected {near} or another "
                "number that this allows"
            )
        else:
            why = f"expected {low} to {high}"
        raise RequestError(f"workers: {workers}: {why}")
    return found


def carried(before: Group | Workers, after: Group | Workers) -> list[int | None]:
    """For each rank of a gang with changed numbers of its elastic parts, the rank before; None = it is new.

    The first copies of a part stay.
    """
    found: list[int | None] = []

    def walk(old: Group | Workers | None, new: Group | Workers, start: int) -> int:
        """Append the ranks of all copies of `new`. Returns the first rank after `old`."""
        kept = 0 if old is None else min(old.count, new.count)
        if isinstance(new, Workers):
            found.extend(range(start, start + kept))
            found.extend([None] * (new.count - kept))
            return start + (0 if old is None else old.count)
        olds = old.parts if isinstance(old, Group) else (None,) * len(new.parts)
        at = start
        for copy in range(new.count):
            for inner_old, inner_new in zip(olds, new.parts, strict=True):
                at = walk(inner_old if copy < kept else None, inner_new, at)
        return start + (0 if old is None else size(old))

    walk(before, after, 0)
    return found
