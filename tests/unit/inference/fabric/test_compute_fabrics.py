"""Several InfiniBand fabrics: the planes and rails of one compute fabric, islands, and a storage fabric."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hyperscout_inference.fabric.inputs import FabricInputs, InferOptions
from hyperscout_inference.hierarchy import infer
from hyperscout_inference.hierarchy.fuse import fuse
from hyperscout_sim.fabric import shapes
from hyperscout_sim.fabric.fabric import SimFabric
from support.inference import inputs_of, tiers, truth

SHAPES: dict[str, Callable[[], SimFabric]] = {
    "rail-optimised": lambda: shapes.rail_optimised(2, 8, 4, 2),
    "rails apart": lambda: shapes.rail_only(2, 8, 4),
    "planes": lambda: shapes.multi_plane(4, 2, 8, 2),
}


def storage(hosts: tuple[str, ...], nics: int) -> SimFabric:
    """A fabric of its own in which odd and even hosts are on different pairs of leaves."""
    fabric = shapes.dual_homed(2, len(hosts) // 2, nics, 2, seed=77)
    new = dict(zip(fabric.hosts, [*hosts[::2], *hosts[1::2]], strict=True))
    adapters = [
        replace(
            x,
            host=new[x.host],
            device=f"mlx5_{20 + i % nics}",
            description=f"{new[x.host]} mlx5_{20 + i % nics}",
        )
        for i, x in enumerate(fabric.adapters)
    ]
    switches = [replace(s, name=f"stor-{s.name}", description=f"stor-{s.name}") for s in fabric.switches]
    return replace(fabric, adapters=tuple(adapters), switches=tuple(switches))


def both(compute: SimFabric, other: SimFabric) -> FabricInputs:
    return FabricInputs(sweeps=(*inputs_of(other).sweeps, *inputs_of(compute).sweeps))


@pytest.mark.parametrize("shape", SHAPES)
def test_the_storage_fabric_is_shown_and_does_not_shape(shape: str) -> None:
    compute = SHAPES[shape]()
    inputs = both(compute, storage(compute.hosts, 2))
    topology = infer(inputs)
    assert tiers(topology) == truth(compute)
    assert topology.anomalies == ()
    assert len(topology.links) == len(compute.cables) + len(storage(compute.hosts, 2).cables)


def test_a_pattern_makes_the_other_fabric_the_compute_fabric() -> None:
    compute = SHAPES["rail-optimised"]()
    inputs = both(compute, storage(compute.hosts, 2))
    topology = infer(inputs, InferOptions(compute_ports="mlx5_2[01]"))
    assert tiers(topology)[0] == {frozenset(compute.hosts[::2]), frozenset(compute.hosts[1::2])}
    net = fuse(inputs, InferOptions(compute_ports="mlx5_2[01]"))
    assert {net.fabrics[f] for f in net.fabric[net.shapes].tolist()} < set(net.fabrics)


@pytest.mark.parametrize("shape", ["rails apart", "planes"])
def test_planes_and_rails_all_compute(shape: str) -> None:
    net = fuse(inputs_of(SHAPES[shape]()), InferOptions())
    assert len(net.fabrics) > 1
    assert net.shapes.all()


def test_islands_without_a_common_host_all_compute() -> None:
    island = storage(tuple(f"other-{i}" for i in range(8)), 2)
    net = fuse(both(SHAPES["rail-optimised"](), island), InferOptions())
    assert net.shapes.all()


def test_a_miswired_cable_between_rails_takes_no_rail_out() -> None:
    """It joins two rails to one fabric, on which hosts have more ports than on the others."""
    fabric = shapes.rail_optimised(4, 4, 4, 2)
    leaves = [s.guid for s in fabric.switches if s.level == 1]
    one, other = (next(c for c in fabric.cables if c.a == leaf) for leaf in leaves[:2])
    crossed = {
        one: one._replace(b=other.b, b_port=other.b_port),
        other: other._replace(b=one.b, b_port=one.b_port),
    }
    net = fuse(
        inputs_of(replace(fabric, cables=tuple(crossed.get(c, c) for c in fabric.cables))), InferOptions()
    )
    assert len(net.fabrics) == 3
    assert net.shapes.all()
