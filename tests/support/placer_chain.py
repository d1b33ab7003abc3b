"""A third oracle, for one kind of workers on hundreds of nodes: all counts of each domain, none left out.

Where groups hold groups hold workers of one kind, and nothing is spread, a placement is one where each domain
of tier t holds a multiple of the largest group that is bound to tier t or below. What that costs at best is
added up domain by domain; costs are tuples, and the least is the least tuple.
"""

import random
from collections.abc import Mapping
from dataclasses import replace

from hyperscout_placer.cluster.answer import Cost
from hyperscout_placer.cluster.capacity import Mask
from hyperscout_placer.cluster.request import WORKERS, Group, Mode, Packing, Request, Workers, checked, size

from support.placer_facts import NO_MASKS, Facts, Room
from support.placer_instances import TIER_NAMES, Instance

Table = dict[
    int, tuple[int, ...]
]  # workers -> domains below the top by tier, nodes, degraded, what is left over


def chain_cost(room: Room, request: Request, masks: Mapping[str, Mask] = NO_MASKS) -> Cost | None:
    """The least cost, without the widths of groups; None = there is no place."""
    checked(request, len(room.forest.layers))
    facts = Facts(room, request, masks)
    bound: dict[int, int] = {}  # tier -> the largest group bound to it
    part: Group | Workers = request.gang
    while isinstance(part, Group):
        assert len(part.parts) == 1, "one kind of workers"
        assert part.spread is None, "nothing is spread"
        if part is not request.gang and part.tier is not None:
            bound[part.tier] = max(bound.get(part.tier, 1), size(part) // part.count)
        part = part.parts[0]
    total = size(request.gang)
    for top in range(1, max(1, facts.highest) + 1):
        whole = [max([size for t, size in bound.items() if t <= tier], default=1) for tier in range(top)]
        costs = (_at_top(facts, top, domain, whole, total) for domain in sorted(set(facts.domain_of[top])))
        found = [cost for cost in costs if cost is not None]
        if found:
            return min(found)
    return None


def _children(facts: Facts, tier: int, domain: int) -> list[int]:
    """The domains of the tier below that are in a domain."""
    pairs = zip(facts.domain_of[tier - 1], facts.domain_of[tier], strict=True)
    return sorted({inner for inner, around in pairs if around == domain})


def _at_top(facts: Facts, top: int, domain: int, whole: list[int], total: int) -> Cost | None:
    found = _inside(facts, top, top, domain, whole, total).get(total)
    if found is None:
        return None
    counts, degraded, left, whole = found[: top - 1], found[top + 1], found[top + 2 : -1], found[-1]
    if top <= facts.tiers:
        degraded += int(facts.forest.layers[top - 1].degraded[domain])
    rest = (facts.fit_in[top][domain], *left)
    node = facts.domain_of[top].index(domain)
    above = (facts.fit_in[t][facts.domain_of[t][node]] for t in range(facts.tiers, top, -1))
    lefts = tuple(x - total for x in rest), tuple(x - total for x in above)
    whole += facts.is_whole(top, domain)
    first = lefts[0] if facts.request.packing == "fragments" else ()
    more = {"unpreferred": found[top], "fragments": first}
    return Cost(top, counts, found[top - 1], degraded, *lefts, whole, **more)


def _inside(facts: Facts, top: int, tier: int, domain: int, whole: list[int], total: int) -> Table:
    """Of all children of a domain together."""
    zero = (0,) * (2 * top + 3)
    found: Table = {0: zero}
    for child in _children(facts, tier, domain):
        own = _table(facts, top, tier - 1, child, whole, total)
        after: Table = {}
        for a, x in found.items():
            for b, y in own.items():
                if a + b <= total:
                    cost = tuple(map(int.__add__, x, y))
                    if a + b not in after or _key(facts, top, cost) < _key(facts, top, after[a + b]):
                        after[a + b] = cost
        found = after
    return found


def _key(facts: Facts, top: int, cost: tuple[int, ...]) -> tuple[object, ...]:
    """By which costs are compared."""
    return (cost[top + 2 : -1], cost) if facts.request.packing == "fragments" else cost


def _table(facts: Facts, top: int, tier: int, domain: int, whole: list[int], total: int) -> Table:
    """Of a domain, or a node, below the top."""
    own = [0] * (2 * top + 3)
    own[top - 1 - tier] = 1
    layers = facts.forest.layers
    own[top] = sum(lacks[domain] for lacks, _ in facts.lacking.values()) if tier == 0 else 0
    own[top + 1] = int(layers[tier - 1].degraded[domain] if tier else facts.forest.degraded[domain])
    own[2 * top + 1 - tier] = facts.fit_in[tier][domain]
    own[-1] = int(tier > 0 and facts.is_whole(tier, domain))
    if tier == 0:
        inside: Table = {n: (0,) * len(own) for n in range(min(total, facts.fit_in[0][domain]) + 1)}
    else:
        inside = _inside(facts, top, tier, domain, whole, total)
    used = {
        count: tuple(map(int.__add__, cost, own))
        for count, cost in inside.items()
        if count and count % whole[tier] == 0
    }
    return {0: (0,) * len(own), **used}


def random_chain(seed: int, *, most_nodes: int = 60) -> Instance:
    """One kind of workers in groups of groups, where domains have nearly as much room as each other."""
    rng = random.Random(seed)
    tiers = rng.choice((2, 3, 3, 4))
    nodes = [f"node-{i:04}" for i in range(rng.randint(12, most_nodes))]
    tree: dict[str, tuple[int, str | None, tuple[str, ...]]] = {}
    below = nodes
    for tier in range(1, tiers + 1):
        parts = max(1, round(len(below) / rng.choice((2, 3, 4, 6, 8))))
        if tier == tiers and rng.random() < 0.7:
            parts = 1
        cuts = sorted(rng.sample(range(1, len(below)), parts - 1)) if parts > 1 else []
        above = [f"{TIER_NAMES[tier - 1]}-{i:03}" for i in range(parts)]
        for name, a, b in zip(above, [0, *cuts], [*cuts, len(below)], strict=True):
            tree[name] = (tier, None, tuple(below[a:b]) if tier == 1 else ())
            for member in below[a:b] if tier > 1 else ():
                tree[member] = (tree[member][0], name, tree[member][2])
        below = above
    most, style = rng.choice((1, 1, 1, 2, 3, 8)), rng.choice(("any", "any", "near", "same"))
    room = {"any": range(most + 1), "near": (most, most, most - 1), "same": (most,)}[style]
    free = {node: {WORKERS: rng.choice(room)} for node in nodes}
    wanted = max(1, round(sum(x[WORKERS] for x in free.values()) * rng.uniform(0.05, 0.8)))
    part: Group | Workers = Workers(wanted)
    least = 0  # of the tiers that groups around may be bound to
    while wanted > 1 and rng.random() < 0.6:
        each = rng.choice([n for n in (2, 3, 4, 6, 8) if n <= wanted])
        wanted //= each
        tier = rng.choice((None, rng.randint(least, tiers)))
        least = least if tier is None else tier
        part = Group(wanted, (replace(part, count=each),), tier)
    gang = Group(1, (part,), rng.choice((None, tiers, tiers)))
    sick = rng.choice((0.0, 0.0, 0.1, 0.3, 0.7))
    degraded = {name: rng.choice((1, 1, 2)) for name in (*nodes, *tree) if rng.random() < sick}
    mode: Mode = rng.choice(("hard", "soft"))
    lacking: dict[str, int] = {}
    if rng.random() < 0.3:
        lacking = {name: rng.choice((0, 10, 10, 60)) for name in nodes}
    allowed = {"worker": frozenset(nodes)} if lacking else {}
    packing: Packing = "fragments" if rng.random() < 0.25 else "compact"
    request = Request(gang, mode, packing=packing)
    return Instance(seed, tree, free, request, degraded, allowed=allowed, lacking=lacking)
