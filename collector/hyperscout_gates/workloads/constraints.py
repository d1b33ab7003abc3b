"""Constraints of a gang from annotations of its workload or pods, and the request built from them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TypeVar, cast

from hyperscout_placer.cluster.forest import Tiers
from hyperscout_placer.cluster.numa_zones import in_one_zone
from hyperscout_placer.cluster.quantity import is_extended
from hyperscout_placer.cluster.request import (
    MAX_DEPTH,
    MAX_WORKERS,
    Group,
    Mode,
    Packing,
    Range,
    Request,
    RequestError,
    Spread,
    Workers,
    checked,
    size,
)
from hyperscout_runtime.errors import did_you_mean

from hyperscout_gates.state.gang import (
    EVEN,
    GROUPS,
    HIGHEST_TIER,
    MIN_COUNT,
    MODE,
    NUMA,
    PACKING,
    PREFER_GROUPS,
    PREFER_SPREAD,
    SPREAD,
    GangError,
)
from hyperscout_gates.workloads.objects import is_number

ANNOTATIONS = (
    MODE,
    HIGHEST_TIER,
    GROUPS,
    PREFER_GROUPS,
    SPREAD,
    PREFER_SPREAD,
    EVEN,
    NUMA,
    PACKING,
    MIN_COUNT,
)
_PREFIX = "hyperscout.io/"
# What gated pods and their workloads may also have: the collector's own annotations, and labels.
_OTHERS = frozenset(
    f"{_PREFIX}{name}"
    for name in (
        *("placed", "rank", "ranks", "coordinator", "numa-zone", "nics", "checkpoint-hook"),
        *("gang", "gang-size", "role", "gates"),
    )
)
# The fields of a request that are built from them.
_FIELDS = (
    (SPREAD, "gang.spread"),
    (PREFER_SPREAD, "gang.spread"),
    (HIGHEST_TIER, "gang.tier"),
    (GROUPS, "gang.parts"),
    (PREFER_GROUPS, "gang.parts"),
    (EVEN, "gang.even"),
)


_T = TypeVar("_T", bound=str)


@dataclass(frozen=True, slots=True)
class Constraint:
    """A constraint: its annotation, its `text`, and the object `on` which it is set."""

    annotation: str
    text: str
    on: str

    def wrong(self, why: str) -> GangError:
        return GangError(f"{self.on}: annotation {self.annotation}: {self.text[:80]!r}: {why}")


Constraints = Mapping[str, Constraint]  # by annotation


@dataclass(frozen=True, slots=True)
class _Level:
    """Runs of `length` ranks in one domain of a tier, as an annotation asks for them."""

    length: int
    tier: int | None
    preferred: int | None
    constraint: Constraint


def constraints_of(
    owner: tuple[str, Mapping[str, object]] | None, pods: Iterable[tuple[str, Mapping[str, object]]]
) -> Constraints:
    """Collect the constraints by annotation. Each object is given as (name, annotations).

    If the owner does not have an annotation, all pods that have it must agree. Raises GangError.
    """
    found: dict[str, Constraint] = {}
    for on, annotations in pods:
        for annotation in ANNOTATIONS:
            text = annotations.get(annotation)
            if not isinstance(text, str):
                continue
            known = found.setdefault(annotation, Constraint(annotation, text, on))
            if known.text != text and not (owner and annotation in owner[1]):
                raise known.wrong(f"but {on} has {text[:80]!r}: write the same on all pods")
    for annotation in ANNOTATIONS if owner else ():
        text = owner[1].get(annotation) if owner else None
        if isinstance(text, str) and owner:
            found[annotation] = Constraint(annotation, text, owner[0])
    return found


def check_names(objects: Iterable[tuple[str, Mapping[str, object]]]) -> None:
    """Refuse annotations that hyperscout does not know. Each object is given as (name, annotations).

    Raises GangError.
    """
    for on, annotations in objects:
        for name in annotations:
            if name.startswith(_PREFIX) and name not in ANNOTATIONS and name not in _OTHERS:
                known = [one.removeprefix(_PREFIX) for one in ANNOTATIONS]
                meant = did_you_mean(name.removeprefix(_PREFIX), known) or f": expected {', '.join(known)}"
                raise GangError(f"{on}: unknown annotation {name[:80]}{meant}")


def request_of(
    what: str,
    parts: Sequence[tuple[Workers, bool]],
    constraints: Constraints,
    tiers: Tiers,
    missing: int | None = None,
) -> Request:
    """Build the request. `parts`: workers in rank order, and whether to group them. Raises GangError.

    `missing`: number of the last ranks that the gang can do without; None = it is not elastic. Groups stay
    whole.
    """
    highest = constraints.get(HIGHEST_TIER)
    tier = None if highest is None else _tier(highest, highest.text, tiers)
    even = constraints.get(EVEN)
    parts = [(_in_one_zone(workers, constraints), in_groups) for workers, in_groups in parts]
    gang = Group(
        1,
        _elastic(tuple(_grouped(parts, constraints, tiers)), missing),
        tier,
        _spread(constraints, tiers),
        even=None if even is None else _tier(even, even.text, tiers),
    )
    try:
        mode: Mode = _choice(constraints, MODE, ("hard", "soft"), "soft" if tier is None else "hard")
        packing: Packing = _choice(constraints, PACKING, ("compact", "fragments"), "compact")
        return checked(Request(gang, mode, packing=packing, replaced=tiers.replaced), tiers.top)
    except RequestError as error:
        text = "; ".join((str(error), *tiers.replaced))
        for annotation, field in _FIELDS:
            if annotation in constraints and text.startswith(field):
                raise constraints[annotation].wrong(text) from error
        raise GangError(f"{what}: {text}") from error


def _elastic(parts: tuple[Group | Workers, ...], missing: int | None) -> tuple[Group | Workers, ...]:
    if missing is None:
        return parts
    *others, last = parts
    least = max(1, last.count - missing * last.count // size(last))
    return (*others, replace(last, elastic=Range(least, last.count)))


def least_of(constraints: Constraints, pods: int) -> int | None:
    """Return the least number of pods of a gang of so many; None = none is given. Raises GangError."""
    constraint = constraints.get(MIN_COUNT)
    if constraint is None:
        return None
    if not (is_number(constraint.text) and 1 <= int(constraint.text) <= pods):
        raise constraint.wrong(f"expected 1 to {pods}, the number of pods of the gang")
    return int(constraint.text)


def _in_one_zone(workers: Workers, constraints: Constraints) -> Workers:
    """Return the workers; with the annotation NUMA, those with devices need them in one NUMA zone."""
    is_single = _choice(constraints, NUMA, ("single",), "")
    if not (is_single and any(is_extended(name) for name, _ in workers.resources)):
        return workers
    return replace(workers, resources=in_one_zone(workers.resources))


def _choice(constraints: Constraints, annotation: str, values: Sequence[_T], default: _T) -> _T:
    """Return the value of an annotation that has one of these values. Raises GangError."""
    constraint = constraints.get(annotation)
    if constraint is None:
        return default
    if constraint.text not in values:
        raise constraint.wrong(f"write {' or '.join(values)}")
    return cast(_T, constraint.text)


def _spread(constraints: Constraints, tiers: Tiers) -> Spread | None:
    required, preferred = constraints.get(SPREAD), constraints.get(PREFER_SPREAD)
    if required and preferred:
        raise preferred.wrong(f"and {SPREAD} is there too: write one of them")
    if (constraint := required or preferred) is None:
        return None
    most, tier = _numbered(constraint, constraint.text, "2:leaf, at most 2 in one leaf")
    return Spread(most, _tier(constraint, tier, tiers), required=constraint is required)


def _grouped(
    parts: Sequence[tuple[Workers, bool]], constraints: Constraints, tiers: Tiers
) -> Iterator[Group | Workers]:
    levels = _levels(constraints, tiers)
    stretch: list[tuple[Workers, int]] = []
    for workers, in_groups in parts:
        if in_groups and levels:
            stretch.append((replace(workers, count=1), workers.count))
            continue
        yield from _stretch(stretch, levels)
        stretch = []
        yield workers
    yield from _stretch(stretch, levels)


def _levels(constraints: Constraints, tiers: Tiers) -> list[_Level]:
    """The nested groups, the innermost first: those of both annotations, joined where they have one size."""
    found: dict[int, _Level] = {}
    texts: dict[int, str] = {}
    for annotation in (GROUPS, PREFER_GROUPS):
        constraint = constraints.get(annotation)
        if constraint is None:
            continue
        for text in constraint.text.split(",", MAX_DEPTH):
            length, name = _numbered(constraint, text, "8:node,64:pod, runs of 8 on one node, of 64 in a pod")
            tier = _tier(constraint, name, tiers)
            level = found.get(length, _Level(length, None, None, constraint))
            required = annotation == GROUPS
            if (level.tier if required else level.preferred) is not None:
                raise constraint.wrong(f"{length}: listed twice")
            found[length] = replace(level, tier=tier) if required else replace(level, preferred=tier)
            texts[tier] = name
    levels = sorted(found.values(), key=lambda level: level.length)
    for inner, outer in pairwise(levels):
        if outer.length % inner.length:
            raise outer.constraint.wrong(
                f"{outer.length}: expected 2 times {inner.length} or more, innermost first"
            )
    if len(levels) >= MAX_DEPTH:
        raise levels[-1].constraint.wrong(f"expected fewer than {MAX_DEPTH} groups within groups")
    _check_order(levels, constraints, tiers, texts)
    return levels


def _check_order(
    levels: Sequence[_Level], constraints: Constraints, tiers: Tiers, texts: Mapping[int, str]
) -> None:
    """Refuse a group in a tier above that of a group around it. `texts`: the tiers as they were named."""
    highest = constraints.get(HIGHEST_TIER)
    within = None if highest is None else _tier(highest, highest.text, tiers)
    limit = "" if highest is None else f"{highest.text.strip()}, the highest tier allowed"
    for level in reversed(levels):
        for annotation, tier in ((GROUPS, level.tier), (PREFER_GROUPS, level.preferred)):
            if tier is None:
                continue
            if within is not None and tier > within:
                text = f"{level.length}: tier {texts[tier]} is above tier {limit}"
                raise constraints[annotation].wrong(text)
            if annotation == GROUPS:
                within, limit = tier, f"{texts[tier]} of the groups of {level.length}"


def _stretch(workers: Sequence[tuple[Workers, int]], levels: Sequence[_Level]) -> Iterator[Group | Workers]:
    """Yield consecutive workers, nested in groups."""
    items: list[tuple[Group | Workers, int]] = list(workers)
    inner = 1
    for level in levels:
        runs = list(_runs(items, level.length // inner))
        total = sum(number * size(kind) for kind, number in items)
        if total % level.length:
            raise level.constraint.wrong(f"{total} pods are not a multiple of the group size {level.length}")
        items = _merged(
            [(Group(1, run, level.tier, preferred=level.preferred), number) for run, number in runs]
        )
        inner = level.length
    for kind, number in items:
        yield replace(kind, count=number)


def _runs(
    items: Sequence[tuple[Group | Workers, int]], length: int
) -> Iterator[tuple[tuple[Group | Workers, ...], int]]:
    """Cut items into runs of `length`. Yields the contents of a run and how many such runs follow."""
    part: list[Group | Workers] = []
    lack = length
    for kind, number in items:
        left = number
        if part:
            took = min(lack, left)
            part.append(replace(kind, count=took))
            lack -= took
            left -= took
            if not lack:
                yield tuple(part), 1
                part, lack = [], length
        if left >= length:
            yield (replace(kind, count=length),), left // length
            left %= length
        if left:
            part.append(replace(kind, count=left))
            lack -= left


def _merged(items: Sequence[tuple[Group, int]]) -> list[tuple[Group | Workers, int]]:
    found: list[tuple[Group | Workers, int]] = []
    for kind, number in items:
        before = found.pop()[1] if found and found[-1][0] == kind else 0
        found.append((kind, before + number))
    return found


def _numbered(constraint: Constraint, text: str, like: str) -> tuple[int, str]:
    """Parse a number and a name, for example "8:leaf"."""
    number, colon, name = (part.strip() for part in text.partition(":"))
    if not (colon and name and is_number(number)):
        raise constraint.wrong(f"write like {like}")
    if not 1 <= int(number) <= MAX_WORKERS:
        raise constraint.wrong(f"{number}: expected 1 to {MAX_WORKERS}")
    return int(number), name


def _tier(constraint: Constraint, text: str, tiers: Tiers) -> int:
    read = tiers.over if constraint.annotation in (SPREAD, PREFER_SPREAD, EVEN) else tiers.at_most
    try:
        return read(text.strip())
    except ValueError as error:
        raise constraint.wrong(str(error)) from error
