"""A domain that is kept for a waiting gang: which one, and that no other gang delays the waiting one."""

import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hyperscout_placer.book.drain import Drain, choose
from hyperscout_placer.book.placements import Placements
from hyperscout_placer.cluster.answer import Placement, Refusal
from hyperscout_placer.cluster.capacity import Capacity, Mask
from hyperscout_placer.cluster.numa_zones import Zone, ZoneDevices, in_one_zone
from hyperscout_placer.cluster.request import Group, Request, Spread, Workers
from hyperscout_placer.solve.place import place
from support.builders import gang
from support.examples import slow_after
from support.topologies import leaves, pods

NODES = ("a1", "a2", "a3", "b1", "b2", "b3")
TOPOLOGY = leaves(NODES[:3], NODES[3:])  # l1, l2
WAITING = "ns/Job/large"


class Book:
    """Placements with one worker on each node, and gangs on nodes of their own."""

    def __init__(self, topology: Any = TOPOLOGY, held: Mapping[str, tuple[str, int]] | None = None) -> None:
        """`held`: by gang its nodes, separated by blanks, and when it expires."""
        self.now_ns = 1
        self.calls: list[tuple[Request, Mapping[str, Mask]]] = []
        self.placements = Placements(clock_ns=lambda: self.now_ns, timer=lambda: 0.0, engine=self._engine)
        self.placements.set_topology(topology)
        self.placements.set_default_unused({"workers": 1})
        for name, (nodes, expires_ns) in (held or {}).items():
            others = frozenset(self.placements.capacity.forest.nodes) - set(nodes.split())
            request = replace(gang(len(nodes.split()), mode="soft"), avoid=others)
            self.placements.place(name, request, holder="api", expires_ns=expires_ns)
        assert len(self.placements) == len(held or {})
        self.calls.clear()

    def _engine(self, capacity: Capacity, request: Request, masks: Mapping[str, Mask]) -> Placement | Refusal:
        self.calls.append((request, masks))
        return place(capacity, request, masks)

    def drain(
        self, workers: int, tier: int | None = 1, prefer: str | None = None, **more: Any
    ) -> Drain | None:
        request = gang(workers, tier=tier, **more)
        placements = self.placements
        return choose(WAITING, request, {}, placements.booked(request), prefer)

    def nodes(self, gang_name: str, workers: int, **options: Any) -> tuple[str, ...] | str:
        """The nodes of a new gang, or why there are none."""
        answer = self.placements.place(gang_name, gang(workers, mode="soft"), holder="api", **options)
        return answer.nodes if isinstance(answer, Placement) else answer.reason


@pytest.mark.parametrize(
    ("held", "kept"),
    [
        pytest.param({"x": ("a1 a2 a3", 0), "y": ("b1", 0)}, "l2", id="the fewest workers have to end"),
        pytest.param({"x": ("a1 a2 a3", 50), "y": ("b1", 0)}, "l1", id="all expire"),
        pytest.param({"x": ("a1 a2 a3", 50), "y": ("b1 b2", 40)}, "l2", id="the soonest"),
        pytest.param(
            {"x": ("a1", 50), "z": ("a2", 90), "y": ("b1", 60), "w": ("b2", 70)}, "l2", id="the last"
        ),
        pytest.param({"x": ("a1 a2 a3", 0), "y": ("b1 b2 b3", 0)}, "l1", id="the first of equals"),
    ],
)
def test_the_domain_that_is_free_first_is_kept(held: dict[str, tuple[str, int]], kept: str) -> None:
    drain = Book(held=held).drain(3)
    assert drain is not None
    assert (drain.hypernode, drain.tier, drain.workers) == (kept, 1, 3)


@pytest.mark.parametrize(
    ("request_", "kept"),
    [
        pytest.param(gang(3), "core", id="the highest allowed tier"),
        pytest.param(gang(3, tier=1), "l1", id="the only allowed tier"),
        pytest.param(gang(3, mode="soft"), None, id="all islands together"),
        pytest.param(gang(Group(1, (Workers(3),), 1)), "l1", id="of groups: the lowest tier that holds them"),
        pytest.param(gang(Group(2, (Workers(3),), 1)), "core", id="of groups that are in two leaves"),
        pytest.param(gang(3, spread=Spread(1, 0)), "l1", id="of a spread: the lowest tier that holds it"),
        pytest.param(gang(3, spread=Spread(1, 0, required=False)), "core", id="a preferred spread"),
        pytest.param(Request(Group(1, (Workers(3),), even=1)), "l1", id="of an even split: the lowest, too"),
        pytest.param(gang(1, tier=0), "a1", id="one node"),
        pytest.param(gang(2, tier=0), "", id="no node holds it"),
        pytest.param(gang(4, tier=1), "", id="no leaf holds it, even when all gangs have ended"),
        pytest.param(gang(Group(1, (Workers(4),), 1)), "", id="no leaf holds a group"),
        pytest.param(gang(7), "", id="too many for the cluster"),
    ],
)
def test_the_tier_in_which_a_domain_is_kept(request_: Request, kept: str | None) -> None:
    book = Book(held={"x": ("a1 a2 a3", 0), "y": ("b1 b2 b3", 0)})
    drain = choose(WAITING, request_, {}, book.placements.booked(request_))
    assert ("" if drain is None else drain.hypernode) == kept


def test_a_gang_that_must_be_on_one_node_keeps_one_node() -> None:
    """Each node takes 8 workers. The gang does not fit although 8 workers fit on the nodes of l1 together."""
    placements = Book().placements
    placements.set_default_unused({"workers": 8})
    for node, workers in zip(NODES, (6, 6, 5, 6, 8, 8), strict=True):
        alone = replace(gang(workers, mode="soft"), avoid=frozenset(NODES) - {node})
        placements.place(f"on-{node}", alone, holder="Job")
    large = gang(8, tier=0)
    drain = placements.drain = choose("large", large, {}, placements.booked(large))
    assert drain is not None
    assert (drain.tier, drain.where, int(drain.kept.sum())) == (0, "node a3", 1)
    assert drain.fits(placements.capacity) == 3
    answer = placements.place("other", gang(3, tier=0), holder="api")
    assert isinstance(answer, Refusal)
    assert "kept for gang large" in answer.reason
    placements.release("on-a3")
    assert drain.fits(placements.capacity) == 8
    answer = placements.place("large", large, holder="Job", on_kept=True)
    assert isinstance(answer, Placement)
    assert set(answer.nodes) == {"a3"}


def test_a_gang_across_islands_keeps_the_whole_cluster() -> None:
    two_islands = replace(
        TOPOLOGY, hypernodes=tuple(replace(h, parent=None) for h in TOPOLOGY.hypernodes[:2])
    )
    drain = Book(two_islands, {"x": ("a1 a2 a3", 0)}).drain(6, tier=None, mode="soft")
    assert drain is not None
    assert (drain.hypernode, drain.where, int(drain.kept.sum())) == (None, "the whole cluster", 6)


def test_a_kept_domain_stays_while_it_can_hold_the_gang() -> None:
    book = Book(held={"x": ("a1 a2 a3", 0), "y": ("b1", 0)})
    stays, dies = book.drain(3, prefer="l1"), book.drain(3, prefer="gone")
    assert stays is not None
    assert dies is not None
    assert (stays.hypernode, dies.hypernode) == ("l1", "l2")


def test_only_nodes_that_the_gang_can_use_are_kept() -> None:
    book = Book(held={"x": ("a1", 0)})
    forest = book.placements.capacity.forest
    allowed = np.array([node not in ("a2", "b1") for node in forest.nodes])
    request = replace(gang(1, tier=1), avoid=frozenset({"b2"}))
    drain = choose(
        WAITING,
        request,
        {"worker": Mask("m", allowed)},
        book.placements.booked(request),
    )
    assert drain is not None
    assert [forest.nodes[at] for at in np.flatnonzero(drain.kept)] == ["a1", "a3"]


def test_other_gangs_are_placed_around_the_kept_domain() -> None:
    book = Book(held={"x": ("a1", 0), "y": ("b1", 0)})
    book.placements.drain = book.drain(3)
    assert book.nodes("small", 2) == ("b2", "b3")
    assert book.nodes("late", 1) == (
        "the gang fits only on nodes that are kept for gang ns/Job/large, which has waited longer "
        "(HyperNode l1): try again when that gang is placed"
    )
    assert "4 workers" in book.nodes("large", 4), "the reason is not the kept domain"
    assert book.nodes("first", 1, on_kept=True) == ("a2",)
    # Another topology: the same names are kept.
    book.placements.set_topology(leaves(("a1", "a3"), ("b1", "b2", "b3", "a2"), generation=2))
    assert "kept for gang" in book.nodes("late", 1)


def test_a_gang_that_ends_before_the_waiting_one_fits_may_use_kept_nodes() -> None:
    book = Book(held={"x": ("a1", 60), "y": ("b1 b2 b3", 0), "z": ("a2", 90)})
    drain = book.placements.drain = book.drain(2)
    assert drain is not None
    assert drain.hypernode == "l1"
    # Two of l1 are free when x has ended, so that is when the waiting gang fits.
    assert drain.free_at_ns(book.placements.booked(drain.request)) == 60
    assert "kept for gang" in book.nodes("without", 1)
    assert "kept for gang" in book.nodes("long", 1, expires_ns=61)
    assert book.nodes("short", 1, expires_ns=60) == ("a3",)
    for name in ("x", "z"):
        book.placements.release(name)
    assert "kept for gang" in book.nodes("short2", 1, expires_ns=60), "the waiting gang fits now"


def test_without_a_waiting_gang_the_solver_gets_what_it_got_before() -> None:
    book, request, masks = Book(), gang(2), {"worker": Mask("m", np.ones(6, np.bool_))}
    book.placements.place("x", request, holder="Job", masks=masks)
    assert book.calls == [(request, masks)]
    assert book.calls[0][1] is masks


GPU = "nvidia.com/gpu"
SINGLE = in_one_zone(((GPU, 4),))


@pytest.mark.parametrize(
    ("needs", "arrives"),
    [
        pytest.param(((GPU, 4),), False, id="any zones"),
        pytest.param(SINGLE, False, id="one zone each"),
        pytest.param(SINGLE, True, id="arrived"),
    ],
)
def test_workers_in_one_numa_zone_get_a_domain(needs: Any, arrives: bool) -> None:
    """Nodes of two zones with 4 GPUs each, all in use. Pods have arrived: the kubelet reports their zones."""
    nodes = ("a1", "a2")
    placements = Placements(clock_ns=lambda: 1, timer=lambda: 0.0)
    placements.set_topology(leaves(nodes))

    def unused(devices: int) -> None:
        placements.set_unused({node: {GPU: 2 * devices} for node in nodes})
        for node in nodes:
            placements.set_zones_of(node, [ZoneDevices(Zone(zone), {GPU: devices}) for zone in (0, 1)])

    unused(4)
    small, large = gang(Workers(4, needs), mode="soft"), gang(Workers(4, SINGLE), tier=1)
    placements.place("small", small, holder="Job")
    if arrives:
        placements.arrive("small", range(4))
        unused(0)
    assert isinstance(placements.place("large", large, holder="Job"), Refusal)
    drain = placements.drain = choose("large", large, {}, placements.booked(large))
    assert drain is not None
    assert (drain.hypernode, drain.workers, drain.fits(placements.capacity_for(large))) == ("l1", 4, 0)
    placements.release("small")
    unused(4)
    for number in range(32):  # as many kinds as nodes have amounts for
        placements.capacity_for(gang(Workers(1, in_one_zone(((GPU, number + 5),)))))
    assert drain.fits(placements.capacity_for(large)) == 4
    assert drain.free_at_ns(placements.booked(large)) == 0


@pytest.mark.parametrize("seed", slow_after(10, range(40)))
def test_no_later_gang_delays_the_waiting_one(seed: int) -> None:
    """Known ends come true, unknown ones at random. The waiting gang starts as early as without others."""
    rng = random.Random(seed)
    topology = pods(2, 2, nodes=3)
    names = list(Book(topology).placements.capacity.forest.nodes)
    rng.shuffle(names)
    ends: dict[str, int] = {}
    held: dict[str, tuple[str, int]] = {}
    while len(names) > rng.randint(0, 2):
        mine = [names.pop() for _ in range(min(len(names), rng.randint(1, 3)))]
        ends[f"g{len(held)}"] = end = rng.randint(2, 30)
        held[f"g{len(held)}"] = " ".join(mine), end if rng.random() < 0.5 else 0
    large, tier = rng.choice([(3, 1), (5, 2), (6, 2), (9, None)])
    starts = [
        _start(Book(topology, held), dict(ends), large, tier, random.Random(seed), later) for later in (0, 3)
    ]
    assert starts[0] == starts[1]


def _start(
    book: Book, ends: dict[str, int], large: int, tier: int | None, rng: random.Random, later: int
) -> int | None:
    """When the waiting gang starts, with so many later gangs a step."""
    placements = book.placements
    drain = placements.drain = book.drain(large, tier)
    if drain is None:
        return None
    inside = drain.kept
    for now in range(1, 60):
        book.now_ns = now
        for name in [name for name, end in ends.items() if end <= now and placements.get(name)]:
            placements.release(name)
        placements.expire()
        fits = choose(
            WAITING, drain.request, {}, replace(placements.booked(drain.request), held=()), drain.hypernode
        )
        if drain.fits(placements.capacity) == large:
            assert fits is not None
            return now
        for i in range(later):
            expires_ns = rng.choice([0, now + rng.randint(1, 30)])
            name = f"later-{now}-{i}"
            answer = placements.place(
                name, gang(rng.randint(1, 3), mode="soft"), holder="api", expires_ns=expires_ns
            )
            if isinstance(answer, Placement):
                at = [placements.capacity.forest.index[node] for node in answer.nodes]
                assert expires_ns or not inside[at].any()
                ends[name] = expires_ns or now + rng.randint(1, 30)
        held = [node for x in placements for node in x.placement.nodes]
        assert len(held) == len(set(held)), "a node is promised twice"
    raise AssertionError("it never starts")


@pytest.mark.parametrize(
    ("priority", "waiting", "placed"),
    [(0, 0, False), (1, 0, True), (-1, 0, False), (0, -5, True), (-5, -5, False), (2**31 - 1, 7, True)],
)
def test_a_higher_priority_may_use_kept_nodes(priority: int, waiting: int, placed: bool) -> None:
    placements = Book(held={"x": ("b1", 0)}).placements
    large = gang(3, tier=1)
    drain = choose("large", large, {}, placements.booked(large), priority=waiting)
    placements.drain = drain
    assert drain is not None
    other = replace(gang(1), avoid=frozenset(NODES) - set(NODES[:3]), priority=priority)
    kept = drain.hypernode
    assert kept == "l1"
    assert isinstance(placements.place("other", other, holder="api", dry_run=True), Placement) == placed
    _, trial = placements.trial(other)
    assert isinstance(trial().answer, Placement) == placed
