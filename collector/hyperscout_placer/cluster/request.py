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
Packing = Literal["compact", "fragments"]


class RequestError(ValueError):
    """The request is invalid. The message names the field."""


@dataclass(frozen=True, slots=True)
class Spread:
    """At most `most` workers of the group in one domain of `tier` (0 = one node).

    `required` False: the placer drops the limit before it refuses the gang or raises its top tier. `least`: a
    domain with any has at least so many; only of the whole gang.
    """

    most: int
    tier: int
    required: bool = True
    least: int = 0


@dataclass(frozen=True, slots=True)
class Range:
    """How many copies an elastic part has at least and at most. Its `count` is how many it has now."""

    least: int
    most: int


@dataclass(frozen=True, slots=True)
class Workers:
    """`count` workers of one role. Each needs `resources`: (name, amount in base units), sorted by name.

    Base units are milli-CPU for "cpu", bytes for memory, else pieces.
    """

    count: int
    resources: tuple[tuple[str, int], ...] = ONE_WORKER
    role: str = "worker"
    elastic: Range | None = None


@dataclass(frozen=True, slots=True)
class Group:
    """`count` equal groups, each within one domain of `tier` or below (0 = one node, None = anywhere).

    `spread` applies within each of them. `preferred`: a lower tier for each of them, or else the lowest one
    above it at which the gang has a place without a higher top tier. `even`, only of the whole gang: the used
    domains of that tier hold equally many of the units that stay whole there (or one more), and are as few as
    possible.
    """

    count: int
    parts: "tuple[Group | Workers, ...]"
    tier: int | None = None
    spread: Spread | None = None
    preferred: int | None = None
    even: int | None = None
    elastic: Range | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """A placement request.

    `gang`: one group (count 1) of all workers; its `tier` is the highest allowed tier.

    `mode` hard: the gang is never placed above that tier. soft: the gang is placed as low as possible, and
    above that tier or across islands rather than refused. The tiers of inner groups bind in both modes.
    `avoid`: names of nodes and HyperNodes that are not used. `use_down`: nodes with a down link are used like
    others.

    `demands`: by role, what it demands of nodes: JSON of the fields of a pod's spec. `priority`: as that of a
    pod. `packing` "fragments": what still fits in the used domains and nodes is compared before their number.
    `cluster`: only its nodes are used; "" = the collector's own. `clusters`: candidates for it; () = only it.
    `replaced`: the tiers that do not exist, and what replaces them, in words. `impossible`: why there is no
    place in this hierarchy, "" = there may be one. Requests that differ only in these two are equal.
    """

    gang: Group
    mode: Mode = "hard"
    avoid: frozenset[str] = field(default_factory=frozenset)
    use_down: bool = False
    demands: tuple[tuple[str, str], ...] = ()
    priority: int = 0
    packing: Packing = "compact"
    cluster: str = ""
    clusters: tuple[str, ...] = ()
    replaced: tuple[str, ...] = field(default=(), compare=False)
    impossible: str = field(default="", compare=False)

    @property
    def on_node(self) -> bool:
        """Whether the gang must stay on one node."""
        return self.mode == "hard" and self.gang.tier == 0


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


def groups_in(group: Group) -> Iterator[Group]:
    """The groups inside, in the order of the request: each before those inside it."""
    for part in group.parts:
        if isinstance(part, Group):
            yield part
            yield from groups_in(part)


def counted(group: Group) -> Iterator[tuple[Workers, int]]:
    """Each kind of worker, with its number in all copies of the group."""
    for part in group.parts:
        if isinstance(part, Workers):
            yield part, part.count * group.count
        else:
            for kind, count in counted(part):
                yield kind, count * group.count


def ranks(part: Group | Workers) -> Iterator[Workers]:
    """For each rank what it needs: (size(part),)."""
    if isinstance(part, Workers):
        for _ in range(part.count):
            yield part
    else:
        for _ in range(part.count):
            for inner in part.parts:
                yield from ranks(inner)


def bounded(group: Group, tier: int) -> Group | None:
    """The same group within one domain of that tier. None where its spread makes that impossible.

    Inner groups that may be in higher tiers get that tier as their limit.
    """
    within = tier if group.tier is None else min(group.tier, tier)
    spread = group.spread
    if spread is not None and spread.tier >= within:
        if spread.most < size(group) // group.count:
            return None
        spread = None
    parts: list[Group | Workers] = []
    for part in group.parts:
        inner = bounded(part, within) if isinstance(part, Group) else part
        if inner is None:
            return None
        parts.append(inner)
    return replace(group, parts=tuple(parts), tier=None if group.tier is None else within, spread=spread)


def narrowed(gang: Group, number: int, tier: int) -> Group | None:
    """The same gang with one of its inner groups, in the order of the request, in domains of that tier.

    None where a spread makes that impossible.
    """
    left = number

    def of(group: Group) -> Group | None:
        nonlocal left
        parts: list[Group | Workers] = []
        for part in group.parts:
            new: Group | Workers | None = part
            if isinstance(part, Group):
                left -= 1
                new = bounded(replace(part, tier=tier), tier) if left == -1 else of(part)
            if new is None:
                return None
            parts.append(new)
        return replace(group, parts=tuple(parts))

    return of(gang)


def unconstrained(part: Group) -> Group:
    """The same workers in the same groups, which may be anywhere."""
    inner = tuple(unconstrained(x) if isinstance(x, Group) else x for x in part.parts)
    return replace(part, parts=inner, tier=None, spread=None, preferred=None, even=None)


def without_preferences(part: Group) -> Group:
    """The same group without preferred spreads and tiers."""
    spread = part.spread if part.spread is not None and part.spread.required else None
    inner = tuple(without_preferences(x) if isinstance(x, Group) else x for x in part.parts)
    return replace(part, parts=inner, spread=spread, preferred=None)


def with_spreads(part: Group) -> Group:
    """The same group with preferred spreads made required, and without preferred tiers."""
    spread = replace(part.spread, required=True) if part.spread is not None else None
    inner = tuple(with_spreads(x) if isinstance(x, Group) else x for x in part.parts)
    return replace(part, parts=inner, spread=spread, preferred=None)


def with_preferences(gang: Group) -> Group | None:
    """The same gang with all preferences made required; None where they contradict each other."""
    found: Group | None = with_spreads(gang)
    for number, group in enumerate(groups_in(gang)):
        if group.preferred is not None and found is not None:
            found = narrowed(found, number, group.preferred)
    return found


def within_node(request: Request) -> Request:
    """The same request, with a gang that must stay on one node as one group on a node of tier 1."""
    if not request.on_node:
        return request
    return replace(request, gang=Group(1, (Group(1, request.gang.parts, 0),), 1))


def checked(request: Request, tiers: int) -> Request:
    """The request, if it is valid on a hierarchy with `tiers` tiers. Raises RequestError."""
    gang = request.gang
    if gang.count != 1:
        raise RequestError(f"gang.count: {gang.count}: a request is for one gang")
    if request.mode not in ("hard", "soft"):
        raise RequestError(f"mode: {request.mode!r}: expected hard or soft")
    _check(gang, "gang", tiers, tiers + 1, 0, 1, 0)
    if gang.even is not None:
        if not 0 <= gang.even <= tiers:
            raise RequestError(f"gang.even: {gang.even}: the hierarchy has tiers 0 (node) to {tiers}")
        if gang.spread is not None:
            raise RequestError("gang.even: the whole gang has a spread too: give one of them")
        whole = list(_whole_parts(gang.parts, gang.even))
        if len(whole) > 1 and any(_holds_elastic(part) for part in whole):
            raise RequestError("gang.even: min_count inside of groups that stay whole: give it to the groups")
        sizes = {size(part) // part.count for part in whole}
        if len(sizes) > 1:
            raise RequestError(
                f"gang.even: {gang.even}: groups of {max(sizes)} stay whole there beside groups or workers "
                f"of {min(sizes)}: an even split needs groups of one size"
            )
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
    if part.elastic is not None and not 1 <= part.elastic.least <= part.count <= part.elastic.most:
        raise RequestError(f"{where}.min_count: {part.elastic.least}: expected 1 to {part.elastic.most}")
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
        if not 0 <= part.tier <= tiers:
            raise RequestError(f"{where}.tier: {part.tier}: the hierarchy has tiers 0 (node) to {tiers}")
        if part.tier > within:
            raise RequestError(
                f"{where}.tier: {part.tier}: above the group around it, which is in tier {within}"
            )
        within = part.tier
    if part.preferred is not None and not 0 <= part.preferred <= within:
        raise RequestError(
            f"{where}.preferred: tier {part.preferred}: expected at most tier {within}, "
            "the tier of the group or of one around it"
        )
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
    if within == 0:
        raise RequestError(f"{where}: a group that stays on one node has no spread")
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


def _whole_parts(parts: "tuple[Group | Workers, ...]", tier: int) -> "Iterator[Group | Workers]":
    """The parts that stay whole in one domain of a tier: groups bound to it or below it, and workers."""
    for part in parts:
        if isinstance(part, Workers) or (part.tier is not None and part.tier <= tier):
            yield part
        else:
            yield from _whole_parts(part.parts, tier)


def _holds_elastic(part: "Group | Workers") -> bool:
    inside = part.parts if isinstance(part, Group) else ()
    return any(inner.elastic is not None or _holds_elastic(inner) for inner in inside)


def splits(gang: Group) -> Iterator[Group]:
    """The gang with the limits of an even split over 1, 2, ... domains, without repetitions."""
    if gang.even is None:
        yield gang
        return
    unit = next(_whole_parts(gang.parts, gang.even))
    one = size(unit) // unit.count
    units = size(gang) // one
    limits = {(-(-units // domains), units // domains): None for domains in range(1, units + 1)}
    for most, least in limits:
        yield replace(gang, spread=Spread(most * one, gang.even, True, least * one), even=None)


def contradiction(group: Group) -> tuple[Spread, Group] | None:
    """A required spread, and a group inside that stays in one domain but has more workers than it allows."""
    spread = group.spread
    if spread is not None and spread.required:
        for inner in _bound(group.parts):
            if spread.most < size(inner) // inner.count:
                return spread, inner
    inside = (contradiction(part) for part in group.parts if isinstance(part, Group))
    return next((found for found in inside if found is not None), None)


def _bound(parts: "tuple[Group | Workers, ...]") -> Iterator[Group]:
    """The outermost groups among the parts that have a tier."""
    for part in parts:
        if isinstance(part, Group):
            if part.tier is None:
                yield from _bound(part.parts)
            else:
                yield part
