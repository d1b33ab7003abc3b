"""Random small clusters and requests for the placer: all that a request can say, small enough to count out.

An `Instance` is plain data (its repr can be pasted into a test). `forest()` numbers the tree by itself, from
the same description as `topology`, so that `Forest.of` is judged by it and not by its own work.
"""

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from hyperscout_placer.cluster.capacity import Capacity, Mask
from hyperscout_placer.cluster.forest import Forest, Layer, Longs
from hyperscout_placer.cluster.request import WORKERS, Group, Mode, Range, Request, Spread, Workers, ends
from hyperscout_placer.solve.elastic import elastic_parts
from hyperscout_topology.topology import Anomaly, Endpoint, HyperNode, Switch, Topology

from support.placer_gangs import Needs, random_gang

TIER_NAMES = ("nvlink", "leaf", "pod", "core", "site")
SPINE = ("spine", (9, None, ()))
GPU, CPU = "nvidia.com/gpu", "cpu"


@dataclass(frozen=True, slots=True)
class Instance:
    """`tree`: name -> (tier, parent or None, names of nodes at tier 1). `degraded`: by node or domain,
    besides those of `down` nodes that are down."""

    seed: int
    tree: Mapping[str, tuple[int, str | None, tuple[str, ...]]]
    free: Mapping[str, Mapping[str, int]]
    request: Request
    degraded: Mapping[str, int] = field(default_factory=dict)
    down: frozenset[str] = frozenset()
    allowed: Mapping[str, frozenset[str]] = field(default_factory=dict)  # by role
    lacking: Mapping[str, int] = field(default_factory=dict)  # by node, what it lacks for every role

    @property
    def tiers(self) -> int:
        return max(tier for tier, _, _ in self.tree.values())

    @property
    def topology(self) -> Topology:
        """As inference says it: HyperNodes, and an anomaly for each link that is degraded or down."""
        nodes = self._nodes_below()
        hypernodes = [
            HyperNode(
                name,
                tier,
                TIER_NAMES[tier - 1],
                parent,
                tuple(sorted(n for n, (_, p, _) in self.tree.items() if p == name)),
                tuple(sorted(nodes[name])),
                (f"sw-{name}",),
            )
            for name, (tier, parent, _) in self.tree.items()
        ]
        return Topology(
            1,
            tuple(sorted(hypernodes, key=lambda h: (h.tier, h.name))),
            tuple(
                Switch(f"sw-{name}", name, tier) for name, (tier, _, _) in [*sorted(self.tree.items()), SPINE]
            ),
            anomalies=tuple(sorted(self._anomalies(), key=lambda a: (a.kind, a.key))),
        )

    def _anomalies(self) -> Iterator[Anomaly]:
        leaf = {node: name for name, (_, _, nodes) in self.tree.items() for node in nodes}

        def one(kind: str, a: Endpoint, b: Endpoint, tier: int, domain: str) -> Anomaly:
            return Anomaly(kind, a, b, tier, ("ibnetdiscover",), 0.9, f"{kind} for a test", domain)

        for name, links in self.degraded.items():
            for port in range(1, links + 1):
                if name in leaf:
                    near, far = leaf[name], f"{leaf[name]}-{name}"
                    ends = Endpoint(name, name, str(port)), Endpoint(f"sw-{near}", near, f"{far}{port}")
                    yield one("SlowLink", *ends, 1, near)
                else:
                    ends = (
                        Endpoint(f"sw-{name}", name, f"up{port}"),
                        Endpoint("sw-spine", "spine", f"{name}{port}"),
                    )
                    yield one("ErroringLink", *ends, self.tree[name][0], name)
        for node in sorted(self.down):
            near = leaf[node]
            ends = Endpoint(node, node, "p0"), Endpoint(f"sw-{near}", near, f"{node}p0")
            yield one("MissingLink", *ends, 1, near)

    def _nodes_below(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {name: [] for name in self.tree}
        for name, (_, _, nodes) in self.tree.items():
            above: str | None = name
            while above is not None:
                found[above] += nodes
                above = self.tree[above][1]
        return found

    def forest(self) -> Forest:
        """Numbered here, and not by `Forest.of`."""
        order: list[list[str]] = [[] for _ in range(self.tiers + 1)]  # names by tier, in tree order

        def walk(name: str) -> None:
            tier, _, nodes = self.tree[name]
            order[tier].append(name)
            for child in sorted(n for n, (_, p, _) in self.tree.items() if p == name):
                walk(child)
            order[0] += sorted(nodes)

        for root in sorted(n for n, (_, p, _) in self.tree.items() if p is None):
            walk(root)
        below = {name: set(nodes) for name, nodes in self._nodes_below().items()}

        def run(names: list[str], inside: set[str]) -> tuple[int, int]:
            at = [i for i, name in enumerate(names) if name in inside]
            return at[0], at[-1] + 1

        layers = []
        for tier in range(1, self.tiers + 1):
            spans = [run(order[0], below[name]) for name in order[tier]]
            children = (
                spans
                if tier == 1
                else [
                    run(order[tier - 1], {n for n, (_, p, _) in self.tree.items() if p == name})
                    for name in order[tier]
                ]
            )
            parents = [self.tree[name][1] for name in order[tier]]

            def longs(values: Iterable[int]) -> Longs:
                return np.array(list(values), np.int64)

            layers.append(
                Layer(
                    tier,
                    TIER_NAMES[tier - 1],
                    tuple(order[tier]),
                    start=longs(a for a, _ in spans),
                    stop=longs(b for _, b in spans),
                    child=longs(a for a, _ in children),
                    child_stop=longs(b for _, b in children),
                    parent=longs(0 if p is None else order[tier + 1].index(p) for p in parents),
                    degraded=longs(self.degraded.get(name, 0) for name in order[tier]),
                    of_node=longs(
                        next(i for i, name in enumerate(order[tier]) if node in below[name])
                        for node in order[0]
                    ),
                )
            )
        nodes = tuple(order[0])
        return Forest(
            1,
            nodes,
            {name: i for i, name in enumerate(nodes)},
            tuple(layers),
            np.array([self.degraded.get(name, 0) + (name in self.down) for name in nodes], np.int64),
            np.array([name in self.down for name in nodes], np.bool_),
        )

    def capacity(self) -> Capacity:
        """The placer's own."""
        return Capacity(Forest.of(self.topology), self.free)

    def masks(self, forest: Forest) -> dict[str, Mask]:
        lacking = np.array([self.lacking.get(n, 0) for n in forest.nodes]) if self.lacking else None
        return {
            role: Mask(
                "of " + " ".join(sorted(names)),
                np.array([n in names for n in forest.nodes], np.bool_),
                lacking=lacking,
            )
            for role, names in self.allowed.items()
        }

    def renamed(self, names: Mapping[str, str]) -> "Instance":
        """The same where nodes and HyperNodes are called otherwise."""

        def new(name: str) -> str:
            return names.get(name, name)

        return replace(
            self,
            tree={
                new(name): (tier, None if parent is None else new(parent), tuple(map(new, nodes)))
                for name, (tier, parent, nodes) in self.tree.items()
            },
            free={new(name): amounts for name, amounts in self.free.items()},
            request=replace(self.request, avoid=frozenset(map(new, self.request.avoid))),
            degraded={new(name): links for name, links in self.degraded.items()},
            down=frozenset(map(new, self.down)),
            allowed={role: frozenset(map(new, nodes)) for role, nodes in self.allowed.items()},
            lacking={new(name): weight for name, weight in self.lacking.items()},
        )


def side_by_side(cases: Sequence[Instance]) -> Instance:
    """All their islands in one cluster; the request, and the domains it avoids, are the first one's."""

    def named(case: Instance, at: int) -> Instance:
        return case.renamed({name: f"{at:03}-{name}" for name in (*case.tree, *case.free)})

    many = [named(case, at) for at, case in enumerate(cases)]
    return replace(
        many[0],
        tree={name: what for case in many for name, what in case.tree.items()},
        free={name: what for case in many for name, what in case.free.items()},
        degraded={name: what for case in many for name, what in case.degraded.items()},
        down=frozenset().union(*(case.down for case in many)),
        allowed={
            role: frozenset().union(*(case.allowed.get(role, frozenset(case.free)) for case in many))
            for role in many[0].allowed
        },
        lacking={name: weight for case in many for name, weight in case.lacking.items()},
    )


def random_instance(
    seed: int, *, most_nodes: int = 11, most_workers: int = 14, huge: bool = False
) -> Instance:
    """The same for the same seed. `most_*` bound what a brute force has to count out. `huge`: amounts whose
    costs take several machine words."""
    rng = random.Random(seed)
    tree, nodes = _tree(rng, round(rng.triangular(2, most_nodes, 0.8 * most_nodes)))
    tiers = max(tier for tier, _, _ in tree.values())
    kinds, free = _resources(rng, nodes, huge)
    sick = rng.random() < 0.4
    links = rng.choice((1, 1, 2, 3))
    degraded = {name: rng.randint(1, links) for name in (*nodes, *tree) if sick and rng.random() < 0.3}
    down = frozenset(name for name in nodes if sick and rng.random() < 0.12)
    avoid: frozenset[str] = frozenset()
    if rng.random() < 0.2:
        avoid = frozenset(rng.sample([*nodes, *tree], rng.randint(1, 2)))
    # Mostly what fits: a refusal proves less than an optimum.
    room = sum(max(_fit(amounts, kind) for kind in kinds) for amounts in free.values())
    budget = max(1, min(most_workers, round(room * rng.choice((0.25, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1)))))
    gang = random_gang(rng, round(rng.triangular(1, budget, budget)), tiers, kinds)
    if huge:  # or one node would do
        gang = replace(gang, spread=Spread(rng.randint(1, 3), 0))
    mode: Mode = rng.choice(("hard", "soft"))
    request = Request(gang, mode, avoid, rng.random() < 0.2)
    roles = sorted({end.role for end in ends(gang)})
    allowed = {
        role: frozenset(name for name in nodes if rng.random() < 0.7) for role in roles if rng.random() < 0.12
    }
    lacking: dict[str, int] = {}
    if rng.random() < 0.2:  # the same for all roles, so that the set of nodes decides
        lacking = {name: rng.choice((0, 0, 10, 10, 60, 100)) for name in nodes}
        allowed = dict.fromkeys(roles, frozenset(name for name in nodes if rng.random() < 0.9))
    if rng.random() < 0.2:
        request = replace(request, packing="fragments")
    return Instance(seed, tree, free, request, degraded, down, allowed, lacking)


def elastic_instance(seed: int, most_nodes: int = 7, most_workers: int = 7) -> Instance | None:
    """An instance of `random_instance` some parts of which are elastic; None = no part can be."""
    rng = random.Random(seed)
    case = random_instance(seed, most_nodes=most_nodes, most_workers=most_workers)

    def of(part: Group | Workers, chance: float) -> Group | Workers:
        if isinstance(part, Group):
            part = replace(part, parts=tuple(of(inner, chance) for inner in part.parts))
        if part.count > 1 and rng.random() < chance:
            return replace(part, elastic=Range(rng.randint(1, part.count - 1), part.count))
        return part

    whole = case.request.gang
    elastic = replace(whole, parts=tuple(of(part, 0.8) for part in whole.parts))
    found = replace(case, request=replace(case.request, gang=elastic))
    return found if any(elastic_parts(elastic)) else None


def _tree(
    rng: random.Random, count: int
) -> tuple[dict[str, tuple[int, str | None, tuple[str, ...]]], list[str]]:
    tiers = rng.choice((1, 2, 2, 3, 3, 4))
    names = iter(rng.sample(range(100, 1000), 400))
    nodes = [f"node-{next(names)}" for _ in range(count)]
    tree: dict[str, tuple[int, str | None, tuple[str, ...]]] = {}
    below: list[str] = nodes
    islands = min(count, rng.choice((1, 1, 1, 2, 3)))
    for tier in range(1, tiers + 1):
        parts = islands if tier == tiers else rng.randint(islands, len(below))
        cuts = sorted(rng.sample(range(1, len(below)), parts - 1)) if parts > 1 else []
        groups = [below[a:b] for a, b in zip([0, *cuts], [*cuts, len(below)], strict=True)]
        above = [f"{TIER_NAMES[tier - 1]}-{next(names)}" for _ in groups]
        for name, members in zip(above, groups, strict=True):
            tree[name] = (tier, None, tuple(members) if tier == 1 else ())
            for member in members if tier > 1 else ():
                tree[member] = (tree[member][0], name, tree[member][2])
        below = above
    return tree, nodes


def _resources(
    rng: random.Random, nodes: list[str], huge: bool
) -> tuple[list[Needs], dict[str, dict[str, int]]]:
    """Kinds of workers, and what is free."""
    if huge:
        free = {n: {WORKERS: rng.randint(0, 2) * 400_000 + rng.randint(0, 2)} for n in nodes}
        return [((WORKERS, 1),)], free
    style = rng.choice(("one", "one", "few", "few", "some", "many", "gpus", "mixed", "mixed"))
    taken = rng.random() * 0.5

    def amount(most: int) -> int:
        return 0 if rng.random() < taken else rng.randint(0, most)

    if style in ("one", "few", "some", "many"):
        most = {"one": 1, "few": 2, "some": 4, "many": 8}[style]
        free = {n: {WORKERS: 1 if most == 1 and rng.random() > taken else amount(most)} for n in nodes}
        return [((WORKERS, 1),)] * 3 + [((WORKERS, 2),)] * (most > 2), free
    most = rng.choice((1, 4, 8))
    free = {n: {GPU: amount(most), CPU: amount(2 * most)} for n in nodes}
    if style == "gpus":
        return [((GPU, rng.choice((1, 2, 4))),)], free
    both = ((CPU, rng.randint(0, 3)), (GPU, rng.randint(1, 4)))
    return [((CPU, rng.randint(1, 4)),), both, ((GPU, rng.randint(1, 2)),)], free


def _fit(free: Mapping[str, int], kind: Needs) -> int:
    return min(free.get(name, 0) // need for name, need in kind if need)
