"""Refusals: what they say of each kind of shortage, and that they never say what is not so."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import pytest
from hyperscout_placer.cluster.answer import Placement, Refusal
from hyperscout_placer.cluster.capacity import Capacity, Mask
from hyperscout_placer.cluster.forest import Forest
from hyperscout_placer.cluster.message_text import say_amount
from hyperscout_placer.cluster.request import Group, Request, Spread, Workers
from hyperscout_placer.solve.place import highest, place
from hyperscout_placer.solve.refusal import TRIES, refusal
from hyperscout_topology.topology import Endpoint, Topology
from support.builders import anomaly, gang, worker_capacity
from support.placer_instances import random_instance
from support.topologies import leaves, pods

Masks = Mapping[str, Mask]
GPU = "nvidia.com/gpu"
LEADER = Workers(1, role="leader")


def find(capacity: Capacity) -> Callable[[Request, Masks], Placement | None]:
    def found(request: Request, masks: Masks) -> Placement | None:
        answer = place(capacity, request, masks)
        return answer if isinstance(answer, Placement) else None

    return found


def nowhere(request: Request, masks: Masks) -> None:
    """Finds no place for a changed request."""


def refused(capacity: Capacity, request: Request, masks: Masks | None = None) -> Refusal:
    masks = masks or {}
    assert isinstance(place(capacity, request, masks), Refusal)
    return refusal(capacity, request, masks, highest(capacity.forest, request), find(capacity), proven=True)


def down(topology: Topology, *nodes: str) -> Topology:
    ends_of = [Endpoint(node, node, "eth0") for node in nodes]
    lost = tuple(anomaly("MissingLink", end) for end in ends_of)
    return replace(topology, anomalies=lost)


# Two pods of two leaves of four nodes, n0000 to n0015; n0000 and n0001 are taken.
FREE = {f"n{i:04}": 1 for i in range(2, 16)}
PODS = worker_capacity(Forest.of(pods(2, 2)), FREE)


def gpus(*free: int, cpu: int = 10**6, memory: int = 2**40) -> Capacity:
    """One leaf of nodes a, b, c ... with so many GPUs free."""
    names = tuple(chr(ord("a") + i) for i in range(len(free)))
    room = {name: {GPU: n, "cpu": cpu, "memory": memory} for name, n in zip(names, free, strict=True)}
    return Capacity(Forest.of(leaves(names)), room)


def of(count: int, role: str = "worker", **resources: int) -> Workers:
    return Workers(count, tuple(sorted((k.replace("gpu", GPU), v) for k, v in resources.items())), role)


def text(lines: str) -> str:
    return " ".join(lines.split())


CASES: dict[str, tuple[Capacity, Request, str]] = {
    "a node is too small, a leaf is not": (
        gpus(4, 8),
        gang(of(10, gpu=1), tier=0),
        """no node holds the 10 workers: node b comes closest and fits 8, 2 more must be freed there; the gang
        fits if tier 1 (leaf) is allowed, in l1""",
    ),
    "a node is too small for a group": (
        gpus(4, 4),
        gang(Group(1, (of(5, gpu=1),), tier=0)),
        """no node fits a whole group of 5 workers, the most is 4 on a; tier 1 (leaf) is the lowest that
        does""",
    ),
    "a spread that the groups contradict": (
        gpus(8, 8),
        gang(Group(2, (of(4, gpu=1),), tier=0), spread=Spread(3, 0)),
        """a spread allows at most 3 in one node, but groups of 4 workers stay together there: allow more, or
        make the groups smaller""",
    ),
    "a leaf is too small, a pod is not": (
        PODS,
        gang(Workers(6), tier=1),
        """no HyperNode of tier 1 (leaf) holds the 6 workers: HyperNode pod0-l01 comes closest and fits
        4, 2 more must be freed there; the gang fits if tier 2 (pod) is allowed, in pod0""",
    ),
    "all there is, and one more": (
        PODS,
        gang(Workers(15)),
        """15 workers are requested, but all nodes together fit 14 now: capacity for 1 more must be freed""",
    ),
    "whole groups": (
        PODS,
        gang(Group(3, (Workers(3),), tier=1), tier=2),
        """no HyperNode of tier 2 (pod) holds the 9 workers: HyperNode pod1 comes closest and fits 6, 3
        more must be freed there (8 would fit one by one); the gang fits if tier 3 (core) is allowed,
        in core""",
    ),
    "whole groups, at the root": (
        PODS,
        gang(Group(4, (Workers(3),), tier=1)),
        """the 12 workers do not fit: HyperNode core fits 9, 3 more must be freed (12 would
        fit one by one)""",
    ),
    "one group is too large for its tier": (
        PODS,
        gang(Group(2, (Workers(5),), tier=1)),
        """no HyperNode of tier 1 (leaf) fits a whole group of 5 workers, the most is 4 in pod0-l01;
        tier 2 (pod) is the lowest that does""",
    ),
    "a group within a group": (
        PODS,
        gang(Group(1, (Group(2, (Workers(5),), tier=1), Workers(1)), tier=2)),
        """no HyperNode of tier 1 (leaf) fits a whole group of 5 workers, the most is 4 in pod0-l01;
        tier 2 (pod) is the lowest that does""",
    ),
    "a spread": (
        PODS,
        gang(Workers(4), tier=2, spread=Spread(1, 1)),
        """no HyperNode of tier 2 (pod) holds the 4 workers: HyperNode pod0 comes closest and fits 2, 2
        more must be freed there (4 would fit one by one); the gang fits if tier 3 (core) is allowed,
        in core; the gang fits without the spread of at most 1 to a HyperNode of tier 1 (leaf)""",
    ),
    "a spread over nodes": (
        worker_capacity(Forest.of(leaves(("a", "b"))), {"a": 4, "b": 4}),
        gang(Workers(6), spread=Spread(2, 0)),
        """the 6 workers do not fit: HyperNode core fits 4, 2 more must be freed (6 would fit
        one by one); the gang fits without the spread of at most 2 to a node""",
    ),
    "soft": (
        PODS,
        gang(Group(4, (Workers(3),), tier=1), mode="soft"),
        """the 12 workers do not fit: all islands together fit 9, 3 more must be freed (12
        would fit one by one)""",
    ),
    "no node is large enough": (
        gpus(8, 4),
        gang(of(2, gpu=16)),
        "not one worker fits on any node: none has 16 nvidia.com/gpu free, the most is 8",
    ),
    "two of its resources": (
        gpus(8, cpu=500, memory=2**30),
        gang(of(2, gpu=16, cpu=1500, memory=2**37)),
        """not one worker fits on any node: none has 1.5 cpu free, the most is 0.5 and none has 128Gi memory
        free, the most is 1Gi and none has 16 nvidia.com/gpu free, the most is 8""",
    ),
    "a resource that no node has": (
        gpus(8),
        gang(of(1, role="leader", rdma=1), of(1, gpu=1)),
        """not one worker of role leader fits on any node: no node that accepts work has any rdma: request
        what the nodes have, or make their agents or device plugins report it""",
    ),
    "never at once": (
        Capacity(Forest.of(leaves(("a", "b"))), {"a": {GPU: 8}, "b": {"cpu": 4000}}),
        gang(of(1, gpu=1, cpu=1000)),
        "not one worker fits on any node: none has 1 cpu and 1 nvidia.com/gpu free at the same time",
    ),
    "no place is free": (
        worker_capacity(Forest.of(leaves(("a",))), {}),
        gang(Workers(1)),
        "not one worker fits on any node: none has capacity for 1 worker, the most is 0",
    ),
    "a role": (
        gpus(8, 1),
        gang(of(3, role="leader", gpu=4), of(1, gpu=1)),
        """3 workers of role leader are requested, but all nodes together fit 2 now: capacity for 1 more
        must be freed""",
    ),
    "roles that share": (
        gpus(8),
        gang(of(1, role="leader", gpu=4), of(5, gpu=1)),
        "the 6 workers do not fit: HyperNode core fits 5, 1 more must be freed",
    ),
    "roles that have room one by one": (
        gpus(4, 4),
        gang(of(2, role="leader", gpu=3), of(1, gpu=2)),
        """no HyperNode of tier 2 (core) holds the 3 workers: each part of them fits in HyperNode core, but
        not all at once""",
    ),
    "groups that lose nothing": (
        PODS,
        gang(Group(5, (Workers(2),), tier=1), tier=2),
        """no HyperNode of tier 2 (pod) holds the 10 workers: HyperNode pod1 comes closest and fits 8, 2
        more must be freed there; the gang fits if tier 3 (core) is allowed, in core""",
    ),
    "avoided": (
        PODS,
        gang(Workers(4), tier=1, avoid=frozenset({"pod0-l01", "pod1", "n0003"})),
        """no HyperNode of tier 1 (leaf) holds the 4 workers: HyperNode pod0-l00 comes closest and fits
        1, 3 more must be freed there; the gang fits if these nodes are not avoided: n0004,
        n0005, n0006 and 1 more""", ),
    "all that would do are avoided": (
        worker_capacity(Forest.of(leaves(("a", "b"), ("c",))), {"a": 1, "b": 1}),
        gang(Workers(1), avoid=frozenset({"l1"})),
        """not one worker fits on a node that may be used: it would fit on a, b, but 2 are avoided; the
        gang fits if these nodes are not avoided: a""",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_what_it_says(name: str) -> None:
    capacity, request, reason = CASES[name]
    assert refused(capacity, request).reason == text(reason)


def test_nodes_with_a_link_down_are_told_apart_from_taken_ones() -> None:
    topology = down(pods(2, 2), "n0004", "n0005", "n0008", "n0012")
    capacity = worker_capacity(Forest.of(topology), FREE)
    assert refused(capacity, gang(Workers(4), tier=1)).reason == text(
        """no HyperNode of tier 1 (leaf) holds the 4 workers: HyperNode pod1-l00 comes closest and fits
        3, 1 more must be freed there; the gang fits if tier 2 (pod) is allowed, in pod0; 1 node with a
        link of its own down would be enough (n0008)"""
    )
    both = gang(Workers(4), tier=1, avoid=frozenset({"pod0", "pod1-l00"}))
    assert refused(capacity, both).reason.endswith(
        "; 1 node with a link of its own down would be enough (n0012)"
    )
    only = worker_capacity(Forest.of(topology), {"n0004": 1})
    assert refused(only, gang(Workers(1))).reason == text(
        """not one worker fits on a node that may be used: it would fit on n0004, but 1 has a link of its own
        down; 1 node with a link of its own down would be enough (n0004)"""
    )


def test_nodes_that_pods_may_not_use() -> None:
    allowed = np.zeros(16, np.bool_)
    allowed[:4] = True
    masks = {"worker": Mask("first", allowed)}
    assert refused(PODS, gang(Workers(3)), masks).reason == text(
        """the 3 workers do not fit: HyperNode core fits 2, 1 more must be freed; the gang fits on
        nodes that its pods may not use"""
    )
    masks = {"worker": Mask("none", np.zeros(16, np.bool_))}
    assert refused(PODS, gang(Workers(3)), masks).reason == text(
        """not one worker fits on a node that may be used: it would fit on n0002, n0003, n0004 and 11 more,
        but 14 may not be used by a worker; the gang fits on nodes that its pods may not use"""
    )


DEGRADED = "hyperscout.io/degraded:NoSchedule"


def tainted(forest: Forest, *nodes: str, not_allowed: tuple[str, ...] = ()) -> Masks:
    allowed = np.array([node not in (*nodes, *not_allowed) for node in forest.nodes], np.bool_)
    return {"worker": Mask.of(allowed, {forest.index[node]: DEGRADED for node in nodes})}


@pytest.mark.parametrize(
    ("downs", "taints", "not_allowed", "request_", "reason"),
    [
        pytest.param(
            ("n0009",),
            ("n0003", "n0009", "n0013"),
            ("n0005",),
            gang(Workers(4), tier=1),
            f"""no HyperNode of tier 1 (leaf) holds the 4 workers: HyperNode pod1-l00 comes closest and fits
            3, 1 more without the taint of n0009 ({DEGRADED}); the gang fits if tier 2 (pod) is allowed,
            in pod0""",
            id="taints alone, on a node with a link down",
        ),
        pytest.param(
            ("n0008", "n0009"),
            ("n0009",),
            ("n0003", "n0004", "n0005", "n0012", "n0013"),
            gang(Workers(4), tier=1),
            f"""no HyperNode of tier 1 (leaf) holds the 4 workers: HyperNode pod1-l00 comes closest and fits
            2, 1 more without the taint of n0009 ({DEGRADED}), 1 more must be freed there; the gang fits if
            tier 2 (pod) is allowed, in pod1; the gang fits on nodes that its pods may not use""",
            id="another node has a link down",
        ),
        pytest.param(
            (),
            ("n0002",),
            ("n0004", "n0008", "n0012"),
            gang(Workers(4), tier=1),
            """no HyperNode of tier 1 (leaf) holds the 4 workers: HyperNode pod0-l01 comes closest and fits
            3, 1 more must be freed there; the gang fits if tier 2 (pod) is allowed, in pod0; the gang fits on
            nodes that its pods may not use""",
            id="the pods themselves exclude the nodes",
        ),
        pytest.param(
            (),
            tuple(f"n{i:04}" for i in range(2, 8)),
            tuple(f"n{i:04}" for i in range(8, 15)),
            gang(Workers(8), tier=2),
            """no HyperNode of tier 2 (pod) holds the 8 workers: HyperNode pod1 comes closest and fits 1, 7
            more must be freed there; the gang fits on nodes that its pods may not use""",
            id="no taint in the closest domain",
        ),
        pytest.param(
            (),
            ("n0002", "n0006", "n0007"),
            ("n0014",),
            gang(Workers(14), tier=3),
            f"""the 14 workers do not fit: HyperNode core fits 10, 3 more without the taints of n0002
            ({DEGRADED}), n0006 ({DEGRADED}), n0007 ({DEGRADED}), 1 more must be freed; the gang fits on
            nodes that its pods may not use""",
            id="taints, and something else",
        ),
        pytest.param(
            (),
            ("n0004", "n0005"),
            ("n0015",),
            gang(Workers(4), tier=1, avoid=frozenset({"pod1-l00"})),
            """no HyperNode of tier 1 (leaf) holds the 4 workers: HyperNode pod1-l01 comes closest and fits
            3, 1 more must be freed there; the gang fits if tier 2 (pod) is allowed, in pod0; the gang fits
            if these nodes are not avoided: n0008, n0009, n0010 and 1 more""",
            id="of remedies about nodes the first one",
        ),
        pytest.param(
            (),
            ("n0004", "n0005"),
            ("n0008", "n0015"),
            gang(Workers(4), tier=1),
            f"""no HyperNode of tier 1 (leaf) holds the 4 workers: HyperNode pod1-l00 comes closest and fits
            3, 1 more must be freed there; the gang fits if tier 2 (pod) is allowed, in pod0; the gang fits
            without the taints of n0004 ({DEGRADED}), n0005 ({DEGRADED})""",
            id="taints in another domain than the closest",
        ),
        pytest.param(
            ("n0002",),
            ("n0002", "n0003"),
            tuple(f"n{i:04}" for i in range(4, 16)),
            gang(Workers(1)),
            f"""not one worker fits on a node that may be used: it would fit on n0002, n0003, n0004 and 11
            more, but 1 has a link of its own down and 12 may not be used by a worker and 2 may not be used
            because of the taints of n0002 ({DEGRADED}), n0003 ({DEGRADED}); the gang fits without the taint
            of n0003 ({DEGRADED})""",
            id="no node may be used",
        ),
        pytest.param(
            (),
            ("n0004",),
            ("n0008", "n0012"),
            gang(Group(1, (Workers(4),), tier=1), tier=2),
            f"""no HyperNode of tier 1 (leaf) fits a whole group of 4 workers, the most is 3 in pod0-l01;
            tier 2 (pod) is the lowest that does; the gang fits without the taint of n0004 ({DEGRADED})""",
            id="a group",
        ),
    ],
)  # fmt: skip
def test_taints_are_named_with_their_nodes(
    downs: tuple[str, ...],
    taints: tuple[str, ...],
    not_allowed: tuple[str, ...],
    request_: Request,
    reason: str,
) -> None:
    capacity = worker_capacity(Forest.of(down(pods(2, 2), *downs)), FREE)
    masks = tainted(capacity.forest, *taints, not_allowed=not_allowed)
    assert refused(capacity, request_, masks).reason == text(reason)


def test_islands() -> None:
    two = leaves(("a", "b"), ("c",))
    islands = Forest.of(replace(two, hypernodes=tuple(replace(h, parent=None) for h in two.hypernodes[:2])))
    assert refused(worker_capacity(islands), gang(Workers(3))).reason == text(
        """no HyperNode of tier 1 (leaf) holds the 3 workers: HyperNode l1 comes closest and fits 2, 1
        more must be freed there; the gang fits across islands in soft mode"""
    )
    bare = worker_capacity(Forest.of(Topology(1)), {})
    assert isinstance(place(bare, gang(Workers(1))), Refusal)
    assert refusal(bare, gang(Workers(1)), {}, 0, nowhere, proven=True).reason.startswith(
        "the topology has no HyperNodes: check `hyperscout status`"
    )


def test_the_closest_is_named() -> None:
    found = refused(PODS, gang(Group(2, (Workers(2),), tier=1), Workers(1), tier=1))
    assert found.tier == 1
    assert "HyperNode pod0-l01 comes closest and fits 4, 1 more must be freed there" in found.reason
    assert found.proven


@pytest.mark.parametrize("seed", range(100))
def test_the_tier_at_which_it_would_fit_is_the_one_at_which_it_does(seed: int) -> None:
    """By counting alone, for gangs of one kind of worker."""
    instance = random_instance(seed)
    capacity = instance.capacity()
    request, masks = instance.request, instance.masks(capacity.forest)
    if not isinstance(place(capacity, request, masks), Refusal):
        return
    tops = highest(capacity.forest, request)
    soft = place(capacity, replace(request, mode="soft"), masks)
    reason = refusal(capacity, request, masks, tops, nowhere, proven=True).reason
    for part, there in (
        (" across islands", "the gang fits across"),
        ("fits if tier ", " is allowed, in "),
    ):
        if part in reason:
            assert isinstance(soft, Placement)
            assert there in reason
            assert (soft.tier is None) == (part == " across islands")
            assert soft.tier is None or f"fits if tier {soft.tier} (" in reason


def test_where_all_seems_to_fit_one_piece_does_not() -> None:
    request = gang(of(2, role="leader", gpu=3), of(1, gpu=2))
    assert "fits in HyperNode core, but not all at once" in refused(gpus(4, 4), request).reason


def test_what_is_only_preferred_is_short_of_nothing() -> None:
    capacity = worker_capacity(Forest.of(leaves(("a",), ("b",))), {"a": 4, "b": 4})
    found = refused(capacity, gang(Workers(5), tier=1, spread=Spread(1, 0, required=False)))
    assert "comes closest and fits 4, 1 more must be freed there" in found.reason


def test_a_search_that_ended_at_its_limit_says_so() -> None:
    found = refusal(PODS, gang(Workers(6), tier=1), {}, 1, nowhere, proven=False)
    assert not found.proven
    assert found.reason.startswith("no place was found within the search limit, but one may exist: no ")


def test_tries_are_bounded_and_only_made_where_they_may_help() -> None:
    tried: list[tuple[Request, Masks]] = []

    def never(request: Request, masks: Masks) -> None:
        tried.append((request, masks))

    capacity = worker_capacity(Forest.of(down(pods(2, 2), "n0004")), FREE)
    masks = {"worker": Mask("some", np.arange(16) % 3 > 0)}
    parts = (Workers(1), LEADER)  # several kinds: counting does not tell
    request = gang(*parts, tier=2, spread=Spread(1, 0), avoid=frozenset({"n0013"}))
    refusal(capacity, request, masks, 2, never, proven=True)
    assert tried == [
        (replace(request, mode="soft"), masks),
        (replace(request, use_down=True), masks),
        (replace(request, avoid=frozenset()), masks),
        (request, {}),
    ]
    assert len(tried) == TRIES
    tried.clear()
    refusal(PODS, gang(Group(4, (Workers(3),), tier=1)), {}, 3, never, proven=True)
    assert not tried


@pytest.mark.parametrize(
    ("resource", "amount", "text"),
    [
        (GPU, 16, "16 nvidia.com/gpu"),
        ("cpu", 1500, "1.5 cpu"),
        ("memory", 64 << 30, "64Gi memory"),
        ("memory", 3 << 19, "1.5Mi memory"),
        ("memory", 100, "100 memory"),
        ("hugepages-1Gi", 1 << 30, "1Gi hugepages-1Gi"),
        ("workers", 1, "capacity for 1 worker"),
        ("workers", 2, "capacity for 2 workers"),
    ],
)
def test_amounts(resource: str, amount: int, text: str) -> None:
    assert say_amount(resource, amount) == text


@pytest.mark.parametrize("seed", range(60))
def test_random_refusals_have_words_and_bounded_ones(seed: int) -> None:
    instance = random_instance(seed)
    capacity = instance.capacity()
    masks = instance.masks(capacity.forest)
    if isinstance(place(capacity, instance.request, masks), Refusal):
        found = refused(capacity, instance.request, masks)
        assert found.reason
        assert len(found.reason) < 1000
