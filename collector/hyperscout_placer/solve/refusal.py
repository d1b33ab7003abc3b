"""Explains a refusal: what is short, where, at which tier, and what would make the gang fit.

Where counting gives no answer, a remedy is tried: the gang is placed with one constraint less. A few such
trials are made, each only where a count shows that it may succeed.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import numpy as np
from hyperscout_formats.text.counts import are, first_few

from hyperscout_placer.cluster.answer import Placement, Refusal
from hyperscout_placer.cluster.capacity import Capacity, Mask
from hyperscout_placer.cluster.forest import say_tier
from hyperscout_placer.cluster.message_text import (
    figure,
    many,
    one,
    say_amount,
    say_any,
    say_domain,
)
from hyperscout_placer.cluster.numa_zones import is_zone_resource
from hyperscout_placer.cluster.request import (
    WORKERS,
    Group,
    Request,
    Spread,
    Workers,
    contradiction,
    counted,
    ends,
    size,
    unconstrained,
    without_preferences,
)
from hyperscout_placer.solve.estimate import Estimate

TRIES = 4  # trial placements for a refusal
NAMED = 3  # nodes named in a refusal

# Places the gang, or returns None without a reason.
Find = Callable[[Request, Mapping[str, Mask]], Placement | None]


def refusal(
    capacity: Capacity,
    request: Request,
    masks: Mapping[str, Mask],
    tops: int,
    find: Find,
    *,
    proven: bool,
) -> Refusal:
    """The refusal of a request that has no place up to tier `tops`.

    `find`: places a changed request. `proven`: False where the search stopped at its limit.
    """
    request = replace(request, gang=without_preferences(request.gang))
    return _Reasons(capacity, request, masks, tops, find, proven).refusal()


class _Reasons:
    def __init__(
        self,
        capacity: Capacity,
        request: Request,
        masks: Mapping[str, Mask],
        tops: int,
        find: Find,
        proven: bool,
    ) -> None:
        self._capacity = capacity
        self._forest = capacity.forest
        self._request = request
        self._masks = masks
        self._tops = tops
        self._find = find
        self._proven = proven
        self._tries = TRIES
        self._gang = request.gang
        self._workers = size(request.gang)
        self._avoided = self._forest.below(request.avoid)
        self._foreign = self._forest.barred(frozenset(), request.cluster)
        self._barred = self._avoided | self._foreign
        self._estimate = Estimate(capacity, request, masks, self._barred)
        self._taints = {node: text for mask in masks.values() for node, text in mask.taints.items()}
        self._tainted = np.zeros(len(self._forest.nodes), np.bool_)
        self._tainted[[*self._taints]] = True

    def refusal(self) -> Refusal:
        if not self._forest.layers:
            return Refusal(
                self._tops,
                "the topology has no HyperNodes: check `hyperscout status`, or the warnings of `infer`",
            )
        reason = self._never()
        if not reason:
            short, is_taints = self._short()
            reason = "; ".join((short, *self._remedies(is_taints)))
        if not self._proven:
            reason = f"no place was found within the search limit, but one may exist: {reason}"
        return Refusal(self._tops, reason, self._proven)

    # What is short

    def _closest(self) -> tuple[int, int, int]:
        """The number of the domain where most of the workers fit, how many fit there, and how many more
        would fit there without taints."""
        fits = self._estimate.workers(self._gang, self._tops)
        if self._proven:
            # A count is an upper bound: where all workers seem to fit, at least one group or worker does not.
            fits = np.minimum(fits, self._workers - min(self._pieces()))
        more = np.zeros_like(fits)
        if self._tainted.any():
            without = Estimate(self._capacity, *self._without_taints(), self._barred)
            more = np.minimum(without.workers(self._gang, self._tops), self._workers) - fits
        at = int(np.lexsort((-more, -fits))[0])
        return at, int(fits[at]), int(more[at])

    def _without_taints(self) -> tuple[Request, dict[str, Mask]]:
        """The request and masks, if no node had taints. Untainted nodes with a link down stay unusable."""
        usable = np.ones_like(self._tainted) if self._request.use_down else ~self._forest.down
        masks = {}
        for role in {kind.role for kind in ends(self._gang)}:
            mask = self._masks.get(role)
            allowed = usable if mask is None else usable & mask.allowed
            if mask is not None:
                allowed[[*mask.taints]] = True
            masks[role] = Mask.of(allowed, {})
        return replace(self._request, use_down=True), masks

    def _pieces(self) -> list[int]:
        """Sizes of the parts of the gang."""
        return [size(part) // part.count for part in self._gang.parts]

    def _never(self) -> str:
        """A shortage that no other place in the tree solves; "" where there is none."""
        if (found := contradiction(self._gang)) is not None:
            spread, group = found
            return (
                f"a spread allows at most {spread.most} in one {say_any(self._forest, spread.tier)}, but "
                f"groups of {size(group) // group.count} workers stay together there: allow more, or make "
                "the groups smaller"
            )
        kinds = list(ends(self._gang))
        for kind in kinds:
            if not self._anywhere(kind).any():
                return f"not one {one(kind.role)} fits on any node: {self._of_one_node(kind)}"
        for kind, count in counted(self._gang):
            there = int(self._anywhere(kind).sum())
            if there < count:
                return (
                    f"{many(count, kind.role)} {are(count)} requested, but all nodes together fit "
                    f"{there} now: capacity for {count - there} more must be freed"
                )
        return ""

    def _anywhere(self, kind: Workers) -> np.ndarray:
        """(nodes,) how many workers fit, on usable and unusable nodes of the cluster."""
        fits = self._capacity.fit(kind, None, use_down=True).nodes
        return np.where(self._foreign, 0, fits) if self._foreign.any() else fits

    def _of_one_node(self, kind: Workers) -> str:
        short = [
            (name, need, most)
            for name, need in kind.resources
            if need and (most := self._capacity.most_of(name)) < need
        ]
        if not short:
            wanted = " and ".join(say_amount(name, need) for name, need in kind.resources if need)
            return f"none has {wanted} free at the same time"
        if absent := [name for name, _, _ in short if name != WORKERS and not self._capacity.has(name)]:
            step = (
                "turn on their agents' probe pod_resources (agent.podResources.enabled), which reports zones"
                if any(map(is_zone_resource, absent))
                else "make their agents or device plugins report it"
            )
            return (
                f"no node that accepts work has any {' or '.join(absent)}: request what the nodes have, "
                f"or {step}"
            )
        return " and ".join(
            f"none has {say_amount(name, need)}{'' if name == WORKERS else ' free'}, "
            f"the most is {figure(name, most)}"
            for name, need, most in short
        )

    def _short(self) -> tuple[str, bool]:
        """What is short, and whether taints alone make it short."""
        for kind in ends(self._gang):
            if not self._estimate.fit(kind).any():
                nodes = np.flatnonzero(self._anywhere(kind)).tolist()
                return (
                    f"not one {one(kind.role)} fits on a node that may be used: "
                    f"it would fit on {self._named(nodes)}, but {self._why_not(nodes, kind)}"
                ), False
        for part in _groups(self._gang, self._tops):
            if part.tier is not None and not self._estimate.whole(part, part.tier):
                return self._of_group(part, part.tier), False
        gang = f"the {many(self._workers, 'worker')}" if self._workers > 1 else "the worker"
        domain, fits, more = self._closest()
        lack = self._workers - fits - more
        together = self._tops > self._forest.top
        where = "all islands together" if together else say_domain(self._forest, self._tops, domain)
        is_only = together or len(self._forest.names(self._tops)) == 1
        is_taints = False
        if int(self._estimate.workers(self._gang, self._tops).max()) >= self._workers:
            lacks, is_only = f"each part of them fits in {where}, but not all at once", together
        else:
            lacks = f"{where} {'fit' if together else 'fits'} {fits}"
            if not is_only:
                lacks = f"{where} comes closest and fits {fits}"
            if more:
                lacks += f", {more} more without {self._taints_in(domain)}"
            if lack:
                lacks += f", {lack} more must be freed{'' if is_only else ' there'}"
            lacks += self._in_groups()
            is_taints = not lack
        if is_only:
            return f"{gang} do{'' if self._workers > 1 else 'es'} not fit: {lacks}", is_taints
        return f"no {say_any(self._forest, self._tops)} holds {gang}: {lacks}", is_taints

    def _taints_in(self, domain: int) -> str:
        """The tainted nodes of a domain on which a worker fits, with their taints."""
        usable = self._tainted & ~self._barred
        usable &= np.any([self._anywhere(kind) > 0 for kind in ends(self._gang)], axis=0)
        usable &= self._forest.inside(self._tops, domain)
        return self._with_taints(np.flatnonzero(usable).tolist())

    def _with_taints(self, nodes: list[int]) -> str:
        named = [f"{self._forest.nodes[node]} ({self._taints[node]})" for node in nodes]
        return f"the taint{'' if len(nodes) == 1 else 's'} of {first_few(named, NAMED)}"

    def _in_groups(self) -> str:
        """A remark for the case that more workers would fit without whole groups and spreads."""
        loose = replace(unconstrained(self._gang), tier=self._gang.tier)
        if loose == self._gang:
            return ""
        fits = int(self._estimate.workers(loose, self._tops).max())
        best = int(self._estimate.workers(self._gang, self._tops).max())
        return f" ({min(fits, self._workers)} would fit one by one)" if fits > best else ""

    def _of_group(self, group: Group, tier: int) -> str:
        one = size(group) // group.count
        fits = self._estimate.workers(group, tier)
        at = int(fits.argmax())
        where = f"{'in' if tier else 'on'} {self._forest.names(tier)[at]}"
        text = (
            f"no {say_any(self._forest, tier)} fits a whole group of {one} workers, "
            f"the most is {fits[at]} {where}"
        )
        for higher in range(tier + 1, min(self._tops, self._forest.top) + 1):
            if self._estimate.whole(replace(group, tier=higher), higher):
                return f"{text}; {say_tier(self._forest, higher)} is the lowest that does"
        return text

    def _why_not(self, nodes: list[int], kind: Workers) -> str:
        """What keeps a kind of worker off these nodes, in words."""
        down = int(self._forest.down[nodes].sum()) if not self._request.use_down else 0
        avoided = int(self._avoided[nodes].sum())
        mask = self._masks.get(kind.role)
        tainted = [node for node in nodes if mask is not None and node in mask.taints]
        masked = int((~mask.allowed[nodes]).sum()) - len(tainted) if mask is not None else 0
        parts = [
            f"{count} {what}"
            for count, what in (
                (down, "has a link of its own down" if down == 1 else "have a link of their own down"),
                (avoided, f"{are(avoided)} avoided"),
                (masked, mask.why if mask and mask.why else f"may not be used by a {one(kind.role)}"),
            )
            if count
        ]
        if tainted:
            parts.append(f"{len(tainted)} may not be used because of {self._with_taints(tainted)}")
        return " and ".join(parts)

    def _named(self, nodes: list[int]) -> str:
        return first_few([self._forest.nodes[node] for node in nodes], NAMED)

    # What would help

    def _remedies(self, is_taints: bool) -> Iterator[str]:
        """Constraints that the request could drop to fit, in words.

        Of those about nodes only the first one is returned. `is_taints`: taints alone make the gang not fit,
        and were named.
        """
        request = self._request
        if (higher := self._higher()) is not None:
            tier, name = higher
            if tier > self._forest.top:
                yield "the gang fits across islands in soft mode"
            else:
                yield f"the gang fits if {say_tier(self._forest, tier)} is allowed, in {name}"
        yield from self._with_more_nodes(is_taints)
        if self._gang.even is not None and self._would(replace(request, gang=replace(self._gang, even=None))):
            yield f"the gang fits if it is not split evenly over {say_tier(self._forest, self._gang.even)}"
        spread = next(_spreads(self._gang), None)
        if spread is not None:
            loose = replace(request, gang=_without_spreads(self._gang))
            if self._would(loose):
                what = say_any(self._forest, spread.tier)
                yield f"the gang fits without the spread of at most {spread.most} to a {what}"

    def _higher(self) -> tuple[int, str | None] | None:
        """The lowest tier above the allowed ones where the gang fits, and the name of such a domain."""
        if self._tops > self._forest.top:
            return None
        if not _is_counted_exactly(self._gang):
            found = self._would(replace(self._request, mode="soft"))
            return None if found is None else (found.cost.top, found.hypernode)
        for tier in range(self._tops + 1, self._forest.top + 2):
            enough = np.flatnonzero(self._estimate.workers(self._gang, tier) >= self._workers)
            if len(enough):
                return tier, None if tier > self._forest.top else self._forest.names(tier)[enough[0]]
        return None

    def _with_more_nodes(self, is_taints: bool) -> Iterator[str]:
        request, forest = self._request, self._forest
        if not request.use_down and forest.down.any():
            found = self._would(replace(request, use_down=True))
            if found:
                used = {forest.index[node] for node in found.nodes}
                down = sorted(at for at in used if forest.down[at])
                what = "node with a link of its" if len(down) == 1 else "nodes with a link of their"
                yield f"{len(down)} {what} own down would be enough ({self._named(down)})"
                return
        if self._avoided.any() and (found := self._would(replace(request, avoid=frozenset()))):
            at = sorted({forest.index[node] for node in found.nodes})
            avoided = self._named([x for x in at if self._avoided[x]])
            yield f"the gang fits if these nodes are not avoided: {avoided}"
            return
        if is_taints:
            return
        if self._tainted.any() and (found := self._would(*self._without_taints())):
            tainted = sorted({i for i in map(forest.index.__getitem__, found.nodes) if self._tainted[i]})
            if tainted:
                yield f"the gang fits without {self._with_taints(tainted)}"
            return
        masked = any(not mask.allowed.all() for mask in self._masks.values())
        if masked and self._would(request, {}):
            yield "the gang fits on nodes that its pods may not use"

    def _would(self, request: Request, masks: Mapping[str, Mask] | None = None) -> Placement | None:
        """The placement of a changed request; None = there is none, or all trials are used."""
        masks = self._masks if masks is None else masks
        tops = self._forest.top + 1 if request.mode == "soft" else self._tops
        barred = self._barred if request.avoid else self._foreign
        might = Estimate(self._capacity, request, masks, barred).workers(request.gang, tops)
        if self._tries == 0 or int(might.max()) < self._workers:
            return None
        self._tries -= 1
        return self._find(request, masks)


def _is_counted_exactly(group: Group) -> bool:
    """Whether counting is exact: nested groups with one kind of worker, and at most one spread."""
    spread = 0 if group.even is None else 2
    part: Group | Workers = group
    while isinstance(part, Group):
        if len(part.parts) > 1:
            return False
        spread += part.spread is not None
        part = part.parts[0]
    return spread < 2


def _groups(group: Group, tops: int) -> Iterator[Group]:
    """The groups inside that are bound to a tier below `tops`, innermost first."""
    for part in group.parts:
        if isinstance(part, Group):
            yield from _groups(part, tops)
            if part.tier is not None and part.tier < tops:
                yield part


def _spreads(group: Group) -> Iterator[Spread]:
    if group.spread is not None:
        yield group.spread
    for part in group.parts:
        if isinstance(part, Group):
            yield from _spreads(part)


def _without_spreads(group: Group) -> Group:
    inner = tuple(_without_spreads(x) if isinstance(x, Group) else x for x in group.parts)
    return replace(group, parts=inner, spread=None)
