"""The side-by-side asks both sides for the same: as many pods, as many nodes, one leaf a gang."""

import asyncio
from types import ModuleType

import numpy as np
import pytest
from bench.gates.driver import decide, opening
from bench.gates.pods import at_once, gated, grouped, node
from hyperscout_gates.state.gang import GATE
from support.modules import module_of
from support.real import ROOT


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    return module_of(ROOT / "tests" / "bench" / "bench_gates.py", "bench_gates")


def test_the_shape_is_that_of_the_fabric(bench: ModuleType) -> None:
    fabric = bench.fabric_of(1000)
    shape = bench.shape_of(fabric)
    assert shape.names == fabric.hosts
    for tier, column in ((1, shape.leaf), (2, shape.pod)):
        true = fabric.truth.domain_of(tier)
        pairs = {(true[name], domain) for name, domain in zip(shape.names, column.tolist(), strict=True)}
        assert len(pairs) == len({a for a, _ in pairs}) == len({b for _, b in pairs}) > 1


def test_gangs_that_are_decided_lie_in_a_leaf_each_and_share_no_node(bench: ModuleType) -> None:
    shape = bench.shape_of(bench.fabric_of(400))
    decided = decide(shape, 20, 4, 1)
    index = {name: i for i, name in enumerate(shape.names)}
    assert all(shape.top(np.array([index[name] for name in nodes])) == 1 for nodes in decided.nodes)
    assert len({name for nodes in decided.nodes for name in nodes}) == 80


def test_both_sides_ask_for_the_same() -> None:
    """But for the program that places it."""
    ours = [body for path, body in gated("g", 4, "leaf") if path.endswith("/pods")]
    theirs = [body for path, body in grouped("g", 4, "leaf-label") if path.endswith("/pods")]
    assert len(ours) == len(theirs) == 4
    assert [pod["spec"].pop("schedulingGates", None) for pod in ours[:1]] == [[{"name": GATE}]]
    assert [pod["spec"].pop("schedulingGroup") for pod in theirs[:1]] == [{"podGroupName": "g"}]
    assert ours[0]["spec"] == theirs[0]["spec"]
    assert [pod["metadata"]["name"] for pod in ours] == [pod["metadata"]["name"] for pod in theirs]


def test_what_the_collector_uses_at_rest_is_not_counted_for_pods(bench: ModuleType) -> None:
    before, after = {"etcd": 1.0, "collector": 5.0}, {"etcd": 1.5, "collector": 6.0}
    found = bench.cpu_ms_of(before, after, 100, rest_s=0.25)
    assert found == {"etcd": 5.0, "collector": 7.5, "collector at rest": 2.5}
    assert bench.cpu_ms_of(before, after, 100, rest_s=0.0) == {"etcd": 5.0, "collector": 10.0}


def test_one_patch_opens_our_gate_alone_and_pins_the_node() -> None:
    spec = opening("n1")["spec"]
    assert spec["schedulingGates"] == [{"$patch": "delete", "name": GATE}]
    assert "n1" in str(spec["affinity"])


def test_nodes_are_noted_as_the_controller_manager_would() -> None:
    notes = [node("n", {}, size)[1]["metadata"]["annotations"] for size in (100, 101, 1000, 5000)]
    assert [note["node.alpha.kubernetes.io/ttl"] for note in notes] == ["0", "15", "30", "300"]


async def test_no_more_at_once_than_connections() -> None:
    running, most = 0, 0

    async def one() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1

    await at_once([one] * 50, connections=7)
    assert (running, most) == (0, 7)
