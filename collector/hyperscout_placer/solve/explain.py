"""Explains why a gang was placed where it is, or nowhere: the candidates, and why each lost.

A candidate is a domain of the tier that the gang needs. The gang is placed once more with only that domain
allowed, and the first part in which the two costs differ is the reason. For domains of lower tiers the
explanation contains how much of the gang fits. A bound on the cost selects which candidates are tried.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from hyperscout_formats.text.counts import count
from hyperscout_topology.figures import digits

from hyperscout_placer.cluster.allreduce import Predicted, predict
from hyperscout_placer.cluster.answer import Cost, Placement, Refusal, cost_of
from hyperscout_placer.cluster.capacity import Capacity, Mask, narrowed
from hyperscout_placer.cluster.forest import Forest, Longs, say_tier
from hyperscout_placer.cluster.kinds import reference_of
from hyperscout_placer.cluster.message_text import many
from hyperscout_placer.cluster.request import Request, ends, size, within_node, without_preferences
from hyperscout_placer.cluster.speeds import TierSpeed, default_speeds
from hyperscout_placer.solve.clusters import as_placed
from hyperscout_placer.solve.elastic import at_least
from hyperscout_placer.solve.estimate import Estimate
from hyperscout_placer.solve.place import place

MAX_BOUNDS = 1000  # domains for which a bound is computed
LOWER = 3  # domains of lower tiers in an explanation
ALL_ISLANDS = "all islands"
FEWER = "meets fewer preferences"
NOT_AT_ONCE = "fits each part of the gang, but not all at once"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A domain that could hold the gang, or came close.

    `cost` None: the gang does not fit there. `why`: the reason against it ("4 leaf domains instead of 3"), ""
    for the chosen domain.
    """

    hypernode: str
    tier: int
    free: int  # workers of the gang's most numerous role that fit
    cost: Cost | None
    predicted: Predicted | None
    why: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """The reasons for an answer.

    `candidates`: the chosen one first, then by cost, then those that do not fit; at most `limit`.
    `considered`: number of domains that were considered. `text`: the same in a few sentences.
    """

    answer: Placement | Refusal
    candidates: tuple[Candidate, ...]
    considered: int
    predicted: Predicted | None
    text: str


def explain(
    capacity: Capacity,
    request: Request,
    answer: Placement | Refusal,
    masks: Mapping[str, Mask],
    *,
    limit: int = 10,
    speeds: Sequence[TierSpeed] = (),
) -> Explanation:
    """Explain an answer that `place` or `place_in_cluster` gave on this capacity.

    `speeds`: as `speeds.speeds_of` returns them; empty = defaults.
    """
    request = at_least(request) if isinstance(answer, Refusal) else as_placed(request, answer)
    return _Explainer(capacity, request, masks, max(1, limit), speeds).explanation(answer)


def say_why(forest: Forest, cost: Cost, best: Cost) -> str:
    """The first part in which a cost is higher than the best one, in words."""
    if cost.top != best.top:
        return f"needs {say_tier(forest, cost.top)} instead of {best.top}"
    if cost.fragments != best.fragments:
        return _say_left(forest, cost, best)
    for i, (mine, its) in enumerate(zip(cost.domains, best.domains, strict=True)):
        if mine != its:
            return f"{mine} {_domains(forest, best.top - 1 - i)} instead of {its}"
    if cost.nodes != best.nodes:
        return f"{count(cost.nodes, 'node')} instead of {best.nodes}"
    if cost.unpreferred != best.unpreferred:
        return f"nodes lack preferences of weight {cost.unpreferred} instead of {best.unpreferred or 'none'}"
    if cost.degraded != best.degraded:
        return f"{count(cost.degraded, 'degraded link')} instead of {best.degraded or 'none'}"
    if cost.fragmentation != best.fragmentation:
        return _say_left(forest, cost, best)
    for tier, mine, its in zip(range(forest.top, best.top, -1), cost.above, best.above, strict=True):
        if mine != its:
            around = say_tier(forest, tier)
            return f"leaves capacity for {count(mine, 'more worker')} around it in {around} instead of {its}"
    if cost.whole != best.whole:
        return f"{count(cost.whole, 'domain')} in which all nodes are free instead of {best.whole or 'none'}"
    for mine, its in zip(cost.widths, best.widths, strict=True):
        if mine != its:
            return f"groups spread over {say_tier(forest, mine)} instead of {its}"
    return "equal, but later in the order of names"


def _say_left(forest: Forest, cost: Cost, best: Cost) -> str:
    """The first tier of the used domains in which more workers still fit."""
    pairs = enumerate(zip(cost.fragmentation, best.fragmentation, strict=True))
    i, mine, its = next((i, mine, its) for i, (mine, its) in pairs if mine != its)
    tier = best.top - i
    where = "on its nodes" if tier == 0 else "in it" if i == 0 else f"in its {_domains(forest, tier)}"
    return f"leaves capacity for {count(mine, 'more worker')} {where} instead of {its or 'none'}"


def _domains(forest: Forest, tier: int) -> str:
    name = forest.layers[tier - 1].tier_name if tier <= forest.top else ""
    return f"{name} domains" if name else f"domains of tier {tier}"


class _Explainer:
    def __init__(
        self,
        capacity: Capacity,
        request: Request,
        masks: Mapping[str, Mask],
        limit: int,
        speeds: Sequence[TierSpeed],
    ) -> None:
        # The trials must not evict what the real capacity remembers.
        self._capacity = capacity.copy()
        self._forest = capacity.forest
        self._request = request
        self._masks = masks
        self._limit = limit
        self._speeds = speeds or default_speeds(self._forest)
        self._gang = without_preferences(within_node(request).gang)
        self._prefers = without_preferences(request.gang) != request.gang
        self._workers = size(request.gang)
        self._estimate = Estimate(
            self._capacity, request, masks, self._forest.barred(request.avoid, request.cluster)
        )
        self._reference, self._alike = reference_of(request.gang, masks)

    def explanation(self, answer: Placement | Refusal) -> Explanation:
        if isinstance(answer, Refusal):
            tier = min(answer.tier, self._forest.top)
            found = list(self._too_small(tier, self._limit)) if self._forest.layers else []
            considered = len(self._forest.names(tier))
            return Explanation(answer, tuple(found), considered, None, self._refused(answer, found))
        top = answer.cost.top
        predicted = self._predict(answer)
        chosen = Candidate(
            answer.hypernode or ALL_ISLANDS, top, self._free_of(answer), answer.cost, predicted, ""
        )
        others, fitting = self._others(answer)
        others_most = self._limit - 1
        lower = [
            x
            for tier in range(min(top, self._forest.top + 1) - 1, 0, -1)
            for x in self._too_small(tier, LOWER)
        ]
        few = min(len(lower), LOWER, others_most // 2)
        others = others[: others_most - few]
        candidates = (chosen, *others, *lower[: others_most - len(others)])
        considered = sum(len(layer) for layer in self._forest.layers[:top]) + (answer.hypernode is None)
        text = self._placed(answer, others, fitting, predicted)
        return Explanation(answer, candidates, considered, predicted, text)

    # Candidates

    def _free_of(self, answer: Placement) -> int:
        if answer.hypernode is None or answer.tier is None:
            return int(self._estimate.fit(self._reference).sum())
        at = self._forest.layers[answer.tier - 1].names.index(answer.hypernode)
        return int(self._free(answer.tier)[at])

    def _free(self, tier: int) -> Longs:
        return self._estimate.summed(self._estimate.fit(self._reference), 0, tier)

    def _others(self, answer: Placement) -> tuple[list[Candidate], int]:
        """Other domains of the answer's tier that fit the gang, best first; and how many may fit it."""
        top = answer.cost.top
        if top > self._forest.top:
            return [], 0
        names, free = self._forest.names(top), self._free(top)
        fits = self._estimate.workers(self._gang, top)
        might = [x for x in np.flatnonzero(fits >= self._workers).tolist() if names[x] != answer.hypernode]
        might = sorted(might, key=lambda x: (int(free[x]), x))[:MAX_BOUNDS]
        holds = [self._estimate.workers(self._gang, tier) for tier in range(top)]
        bounds = sorted((self._bound(top, x, holds, int(free[x])), x) for x in might)
        fitting: list[tuple[Cost, Candidate]] = []
        not_fitting = []
        for _, domain in bounds[: self._limit - 1]:
            name, left = names[domain], int(free[domain])
            there = place(self._capacity, self._request, self._only(top, domain))
            if isinstance(there, Refusal):
                not_fitting.append(Candidate(name, top, left, None, None, NOT_AT_ONCE))
                continue
            cost = self._cost(there)
            if there.relaxed != answer.relaxed:
                why = FEWER
            elif cost < answer.cost:
                why = "better, but the search had reached its limit"
            else:
                why = say_why(self._forest, cost, answer.cost)
            fitting.append((cost, Candidate(name, top, left, cost, self._predict(there), why)))
        fitting.sort(key=lambda pair: pair[0])
        return [candidate for _, candidate in fitting] + not_fitting, len(might)

    def _cost(self, there: Placement) -> Cost:
        """The cost of a placement that was found with one domain alone, beside the others."""
        fits, nodes = self._estimate.fit(self._reference), [self._forest.index[x] for x in there.nodes]
        cost = cost_of(self._forest, fits, nodes, self._alike)
        first = cost.fragmentation if there.cost.fragments else ()
        return replace(cost, unpreferred=there.cost.unpreferred, widths=there.cost.widths, fragments=first)

    def _bound(self, top: int, domain: int, holds: Sequence[Longs], free: int) -> tuple[int, ...]:
        """A lower bound of the gang's cost in a domain, by counting.

        In order: the fewest domains of each lower tier that together fit it, the domain's own degraded links,
        and what is free in it.
        """
        layer = self._forest.layers[top - 1]
        start, stop = int(layer.start[domain]), int(layer.stop[domain])
        fewest = []
        for tier in range(top - 1, -1, -1):
            first, last = start, stop
            if tier:
                below = self._forest.layers[tier - 1].start
                first, last = (int(x) for x in np.searchsorted(below, (start, stop)))
            most = np.cumsum(np.sort(holds[tier][first:last])[::-1])
            fewest.append(int(np.searchsorted(most, self._workers)) + 1)
        parts = *fewest, int(layer.degraded[domain]), free
        return (free, *parts) if self._request.packing == "fragments" else parts

    def _only(self, tier: int, domain: int) -> dict[str, Mask]:
        """Masks that allow one domain only."""
        name, inside = self._forest.layers[tier - 1].names[domain], self._forest.inside(tier, domain)
        return narrowed(self._masks, {kind.role for kind in ends(self._gang)}, Mask(name, inside))

    def _too_small(self, tier: int, most: int) -> Iterator[Candidate]:
        """Domains of a tier that come closest to fitting the gang, but do not."""
        fits, free = self._estimate.workers(self._gang, tier), self._free(tier)
        names = self._forest.names(tier)
        for at in np.argsort(-fits, kind="stable")[:most].tolist():
            if fits[at] < self._workers:
                why = f"fits {fits[at]} of the {self._workers} workers"
            else:
                why = NOT_AT_ONCE
            yield Candidate(names[at], tier, int(free[at]), None, None, why)

    # Text

    def _predict(self, placement: Placement) -> Predicted:
        return predict(self._forest, self._speeds, placement.nodes)

    def _refused(self, answer: Refusal, found: Sequence[Candidate]) -> str:
        tier = min(answer.tier, self._forest.top)
        closest = "; ".join(f"{x.hypernode} {x.why}" for x in found[:LOWER])
        hint = f" Closest of {say_tier(self._forest, tier)}: {closest}." if closest else ""
        return f"Not placed: {answer.reason or 'there is no place'}.{hint}"

    def _placed(
        self, answer: Placement, others: Sequence[Candidate], might: int, predicted: Predicted
    ) -> str:
        forest, cost = self._forest, answer.cost
        text = f"{many(self._workers)} on {count(cost.nodes, 'node')}"
        if answer.hypernode is not None:
            text += f" in {answer.hypernode}, {say_tier(forest, cost.top)}"
        else:
            text += " across islands"
        if cost.domains:
            tiers = range(cost.top - 1, 0, -1)
            text += ": " + ", ".join(
                f"{n} {_domains(forest, t)}" if n > 1 else f"1 {_domains(forest, t)[:-1]}"
                for n, t in zip(cost.domains, tiers, strict=True)
            )
        sentences = [text]
        if cost.top > 1:
            closest = next(self._too_small(min(cost.top - 1, forest.top), 1), None)
            if closest is not None:
                where = say_tier(forest, closest.tier)
                sentences.append(f"No lower tier holds it: of {where} {closest.hypernode} {closest.why}")
        if cost.top <= forest.top:
            sentences.append(self._rivals(others, might, cost.top))
        if cost.degraded:
            sentences.append(f"{count(cost.degraded, 'degraded link')} in what is used")
        sentences += [x[:1].upper() + x[1:] for x in answer.relaxed]
        if cost.unpreferred:
            sentences.append(f"The nodes lack preferences of weight {cost.unpreferred}")
        affinity = any(mask.lacking is not None for mask in self._masks.values())
        sentences.append(_say_proof(answer, preferred=self._prefers, affinity=affinity))
        if self._workers > 1:
            sentences.append(_say_predicted(predicted))
        return ". ".join(sentences) + "."

    def _rivals(self, others: Sequence[Candidate], might: int, tier: int) -> str:
        total = len(self._forest.layers[tier - 1])
        where = say_tier(self._forest, tier)
        if not might:
            if total == 1:
                return f"It is the only one of {where}"
            return f"None of the {total - 1} others of {where} holds it"
        some = f"{might} of the {total - 1}" if might < total - 1 else f"All {might}"
        text = (
            f"{some} others of {where} might hold it"
            if total > 2
            else f"The other one of {where} might hold it"
        )
        if others:
            text += f"; the next best, {others[0].hypernode}: {others[0].why}"
        return text


def _say_proof(answer: Placement, *, preferred: bool, affinity: bool) -> str:
    """What was compared, in the order in which it counts."""
    if not answer.exact:
        return "It is not proven that nothing is better"
    groups = ", then width of groups" if answer.cost.widths else ""
    asked = ", preferences" if preferred else ""
    parts = [f"domains, nodes{', preferred affinity' if affinity else ''}, degraded links", "capacity left"]
    if answer.cost.fragments:
        parts.reverse()
    return f"Nothing is better by tier{asked}, {', '.join(parts)}{groups}"


def _say_predicted(predicted: Predicted) -> str:
    size_text = f"{predicted.message_bytes / (1 << 30):.3g} GiB"
    ring, tree = (f"{digits(x * 1000, 3)} ms" for x in (predicted.ring_s, predicted.tree_s))
    return f"An all-reduce of {size_text} takes {ring} in a ring, {tree} in a tree ({predicted.sources})"
