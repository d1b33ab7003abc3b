"""Describes what a gang asks for: a tree of groups with workers at its leaves.

A gang of 128 in pipelines of 64, made of tensor-parallel runs of 8:

    Request(Group(1, (Group(2, (Group(8, (Workers(8),), tier=1),), tier=2),)))

A leader with seven workers, four times: Group(4, (Workers(1, role="leader"), Workers(7)), tier=1). Ranks
number the workers in the order of the tree, so each group is a run of consecutive ranks.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

from hyperscout_placer.cluster.numa_zones import shares_that_overlap

MAX_WORKERS = 1_000_000
MAX_DEPTH = 16  # levels of nested groups
MAX_PARTS = 64  # in one group
MAX_KINDS = 64  # kinds of workers in a gang; for each kind, a count per node is kept
MAX_RESOURCES = 32  # of one worker, and of all workers of a gang together

WORKERS = "workers"  # the resource that counts workers per node, where no other resource is known
ONE_WORKER = ((WORKERS, 1),)

Mode = Literal["hard", "soft"]


class RequestError(ValueError):
    """The request is invalid. The message names the field."""


@dataclass(frozen=True, slots=True)
class Spread:
    """At most `most` workers of the group in one domain of `tier` (0 = one node).

    `required` False: the placer drops the limit before it refuses the gang or raises its top tier.
    """

    most: int
    tier: int
    required: bool = True


@dataclass(frozen=True, slots=True)
class Workers:
    """`count` workers of one role. Each needs `resources`: (name, amount in base units), sorted by name.

    Base units are milli-CPU for "cpu", bytes for memory, else pieces.
    """

    count: int
    resources: tuple[tuple[str, int], ...] = ONE_WORKER
    role: str = "worker"


@dataclass(frozen=True, slots=True)
class Group:
    """`count` equal groups, each within one domain of `tier` or below (None = anywhere).

    `spread` applies within each of them.
    """

    count: int
    parts: "tuple[Group | Workers, ...]"
    tier: int | None = None
    spread: Spread | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """A placement request.

    `gang`: one group (count 1) of all workers; its `tier` is the highest allowed tier.

    `mode` hard: the gang is never placed above that tier. soft: the gang is placed as low as possible, and
    above that tier or across islands rather than refused. The tiers of inner groups bind in both modes.
    `avoid`: names of nodes and HyperNodes that are not used. `use_down`: nodes with a down link are used like
    others.
    """

    gang: Group
    mode: Mode = "hard"
    avoid: frozenset[str] = field(default_factory=frozenset)
    use_down: bool = False


def size(part: Group | Workers) -> int:
    """Number of workers in all copies of a part."""
    if isinstance(part, Workers):
        return part.count
    return part.count * sum(size(inner) for inner in part.parts)


def ends(part: Group | Workers) -> Iterator[Workers]:
    """The kinds of workers in order, once for each part that names them."""
    if isinstance(part, Workers):
        yield part
    else:
        for inner in part.parts:
            yield from ends(inner)


def ranks(part: Group | Workers) -> Iterator[Workers]:
    """For each rank what it needs: (size(part),)."""
    if isinstance(part, Workers):
        for _ in range(part.count):
            yield part
    else:
        for _ in range(part.count):
            for inner in part.parts:
                yield from ranks(inner)


def without_preferences(part: Group) -> Group:
    """The same group without preferred spreads."""
    spread = part.spread if part.spread is not None and part.spread.required else None
    inner = tuple(without_preferences(x) if isinstance(x, Group) else x for x in part.parts)
    return replace(part, parts=inner, spread=spread)


def with_preferences(part: Group) -> Group:
    """The same group with preferred spreads made required."""
    spread = replace(part.spread, required=True) if part.spread is not None else None
    inner = tuple(with_preferences(x) if isinstance(x, Group) else x for x in part.parts)
    return replace(part, parts=inner, spread=spread)


def checked(request: Request, tiers: int) -> Request:
    """The request, if it is valid on a hierarchy with `tiers` tiers. Raises RequestError."""
    gang = request.gang
    if gang.count != 1:
        raise RequestError(f"gang.count: {gang.count}: a request is for one gang")
    if request.mode not in ("hard", "soft"):
        raise RequestError(f"mode: {request.mode!r}: expected hard or soft")
    _check(gang, "gang", tiers, tiers + 1, 0, 1, 0)
    if size(gang) > MAX_WORKERS:
        raise RequestError(f"gang: {size(gang)} workers: at most {MAX_WORKERS}")
    names = {name for kind in ends(gang) for name, _ in kind.resources}
    if len(names) > MAX_RESOURCES:
        raise RequestError(f"gang: {len(names)} different resources: at most {MAX_RESOURCES}")
    if device := shares_that_overlap(kind.resources for kind in ends(gang)):
        raise RequestError(
            f"gang: different kinds of workers need {device}, and one needs it in one NUMA zone: give all of "
            "them the same resources and the same zone, or make them gangs of their own"
        )
    return request


def _check(
    part: Group | Workers, where: str, tiers: int, within: int, depth: int, repeated: int, kinds: int
) -> int:
    """Check one part; returns the number of kinds of workers up to and including it.

    `within`: the tier of the closest group around it. `repeated`: number of copies of that group. `kinds`:
    number of kinds before this part.
    """
    if not 1 <= part.count <= MAX_WORKERS:
        raise RequestError(f"{where}.count: {part.count}: expected 1 to {MAX_WORKERS}")
    if isinstance(part, Workers):
        if len(part.resources) > MAX_RESOURCES:
            raise RequestError(f"{where}.resources: {len(part.resources)} of them: at most {MAX_RESOURCES}")
        if not any(amount for _, amount in part.resources):
            raise RequestError(f"{where}.resources: expected at least one resource with an amount over 0")
        names = [name for name, _ in part.resources]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise RequestError(f"{where}.resources[{twice!r}]: listed twice")
        for name, amount in part.resources:
            if not 0 <= amount < 2**62:
                raise RequestError(f"{where}.resources[{name!r}]: {amount}: expected 0 or more")
        if kinds == MAX_KINDS:
            raise RequestError(f"{where}: more than {MAX_KINDS} kinds of workers in the gang")
        return kinds + 1
    if depth > MAX_DEPTH:
        raise RequestError(f"{where}: groups are nested {depth} deep: at most {MAX_DEPTH}")
    if not 1 <= len(part.parts) <= MAX_PARTS:
        raise RequestError(f"{where}.parts: {len(part.parts)}: expected 1 to {MAX_PARTS}")
    if part.tier is not None:
        if not 1 <= part.tier <= tiers:
            raise RequestError(f"{where}.tier: {part.tier}: the hierarchy has tiers 1 to {tiers}")
        if part.tier > within:
            raise RequestError(
                f"{where}.tier: {part.tier}: above the group around it, which is in tier {within}"
            )
        within = part.tier
    for i, inner in enumerate(part.parts):
        kinds = _check(inner, f"{where}.parts[{i}]", tiers, within, depth + 1, repeated * part.count, kinds)
    if part.spread is not None:
        _check_spread(part, part.spread, f"{where}.spread", within)
        if repeated * part.count > 1 and len(list(ends(part))) > 1:
            raise RequestError(
                f"{where}.spread: not possible in a group with several kinds of workers and a count over 1: "
                "put each kind into a group of its own, and the spread there, or spread the whole gang"
            )
    return kinds


def _check_spread(group: Group, spread: Spread, where: str, within: int) -> None:
    if spread.most < 1:
        raise RequestError(f"{where}.most: {spread.most}: expected 1 or more")
    if not 0 <= spread.tier < within:
        raise RequestError(
            f"{where}.tier: {spread.tier}: expected 0 to {within - 1}, below the group's own tier"
        )
    for inner in _bound(group.parts):
        if inner.tier is not None and inner.tier > spread.tier:
            raise RequestError(
                f"{where}.tier: {spread.tier}: below tier {inner.tier} of a group inside it; "
                "spread that group, or spread this one over a higher tier"
            )
        one = size(inner) // inner.count
        if spread.most < one:
            raise RequestError(
                f"{where}.most: {spread.most}: a group inside it has {one} workers, which stay in one domain"
            )


def _bound(parts: "tuple[Group | Workers, ...]") -> Iterator[Group]:
    """The outermost groups among the parts that have a tier."""
    for part in parts:
        if isinstance(part, Group):
            if part.tier is None:
                yield from _bound(part.parts)
            else:
                yield part
