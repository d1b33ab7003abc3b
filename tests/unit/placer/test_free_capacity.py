"""What the placer reads of a generation with the tree of the one before, and what it leaves for later."""

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from hyperscout_placer.book import free_capacity
from hyperscout_placer.book.free_capacity import FreeCapacity
from hyperscout_placer.cluster import speeds
from hyperscout_placer.cluster.capacity import Capacity
from hyperscout_placer.cluster.forest import Forest
from hyperscout_placer.cluster.health import health_of
from hyperscout_placer.cluster.speeds import speeds_of
from hyperscout_topology.topology import Adapter, Anomaly, Rate, Topology
from hypothesis import given
from hypothesis import strategies as st
from support.topologies import HOST, LEAF, SECOND, SPINE, cabled, on_leaf_b, two_leaves

WORKER = {"workers": 1}
FAULTS = [
    on_leaf_b("MissingLink", HOST),
    on_leaf_b("MissingLink", SECOND),
    on_leaf_b("MissingLink", LEAF, SPINE),
    on_leaf_b("SlowLink", SECOND),
    on_leaf_b("MissingSwitch", LEAF, None),
]
NODES = tuple(node for h in two_leaves().hypernodes if h.tier == 1 for node in h.nodes)


def columns(forest: Forest) -> Iterator[object]:
    """Everything that a forest contains, in a form that can be compared."""
    for part in (forest, *forest.layers):
        for field in fields(part):
            value = getattr(part, field.name)
            if field.name not in ("layers", "generation"):
                yield value.tolist() if isinstance(value, np.ndarray) else value


def known(topology: Topology, free: FreeCapacity | None = None) -> FreeCapacity:
    free = free or FreeCapacity()
    free.set_default_unused(WORKER)
    free.set_topology(topology)
    return free


def capacity_of(free: FreeCapacity) -> Capacity:
    assert free.capacity is not None
    return free.capacity


@given(st.lists(st.tuples(st.sets(st.sampled_from(FAULTS)), st.sets(st.sampled_from(NODES))), max_size=5))
def test_a_later_generation_reads_as_if_it_were_the_first(
    generations: list[tuple[set[Anomaly], set[str]]],
) -> None:
    free = known(two_leaves())
    for number, (faults, absent) in enumerate(generations, 2):
        given_ = replace(
            two_leaves(),
            generation=number,
            anomalies=tuple(sorted(faults, key=lambda x: x.key)),
            nodes_without_evidence=tuple(sorted(absent)),
        )
        free.set_topology(given_)
        forest = capacity_of(free).forest
        assert forest.generation == number
        assert list(columns(forest)) == list(columns(Forest.of(given_)))
        health = health_of(given_)
        assert {
            node for node, is_down in zip(forest.nodes, forest.down, strict=True) if is_down
        } == health.down
        assert {
            node: n for node, n in zip(forest.nodes, forest.degraded.tolist(), strict=True) if n
        } == health.nodes
        assert list(free.speeds) == speeds_of(given_, forest)


async def test_the_same_tree_is_read_at_once_however_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(free_capacity, "IN_A_THREAD", 1)
    free = known(two_leaves())
    reading = asyncio.create_task(free.run())
    await asyncio.sleep(0)
    before = capacity_of(free)
    free.set_unused_of(NODES[0], {"workers": 3})
    free.set_topology(replace(two_leaves(), generation=2, anomalies=(FAULTS[0],)))
    after = capacity_of(free)
    assert (after.forest.generation, after.free_of(NODES[0])) == (2, {"workers": 3})
    free.set_unused_of(NODES[0], {"workers": 4})
    assert (before.free_of(NODES[0]), after.free_of(NODES[0])) == ({"workers": 3}, {"workers": 4})
    reading.cancel()
    with suppress(asyncio.CancelledError):
        await reading


def test_a_new_default_counts_on_the_same_tree() -> None:
    free = known(two_leaves())
    free.set_default_unused({"workers": 2})
    assert capacity_of(free).free_of(NODES[0]) == {"workers": 2}


async def test_a_new_default_counts_also_if_its_reading_is_overtaken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(free_capacity, "IN_A_THREAD", 1)
    free = known(two_leaves())
    reading = asyncio.create_task(free.run())
    await asyncio.sleep(0)
    free.set_default_unused({"workers": 2})
    free.set_topology(replace(two_leaves(), generation=2))
    while capacity_of(free).forest.generation != 2:
        await asyncio.sleep(0)
    assert capacity_of(free).free_of(NODES[0]) == {"workers": 2}
    reading.cancel()
    with suppress(asyncio.CancelledError):
        await reading


@pytest.mark.parametrize("is_named_first", [True, False])
def test_a_host_that_gets_or_loses_its_name_is_read_again(is_named_first: bool) -> None:
    guid = "0002c9030005f340"
    tree = two_leaves()
    hypernodes = tuple(
        replace(h, nodes=tuple(guid if node == NODES[0] else node for node in h.nodes))
        for h in tree.hypernodes
    )
    named = replace(tree, hypernodes=hypernodes, adapters=(Adapter("0000000000000001", guid, "mlx5_0"),))
    unnamed = replace(named, adapters=(Adapter(guid, guid, "mlx5_0"),))
    free = known(named if is_named_first else unnamed)
    assert (guid in capacity_of(free).forest.index) is is_named_first
    free.set_topology(unnamed if is_named_first else named)
    assert (guid in capacity_of(free).forest.index) is not is_named_first


def test_speeds_are_read_when_they_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []

    def counted(topology: Topology, forest: Forest) -> Any:
        read.append(topology.generation)
        return speeds_of(topology, forest)

    monkeypatch.setattr(speeds, "speeds_of", counted)
    free = FreeCapacity()
    for number in range(1, 4):
        known(replace(cabled(two_leaves(), Rate(100.0, 4)), generation=number), free)
    assert not read
    assert len(free.speeds) == 2 + capacity_of(free).forest.top
    assert [free.speeds[1].bandwidth_source, free.speeds[1:2][0].bandwidth_source] == ["read", "read"]
    assert read == [3]
