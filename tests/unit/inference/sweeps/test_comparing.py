"""What is kept of sweeps and of the record changes no comparison."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from hyperscout_formats.infiniband.ibnetdiscover import Sweep, parse
from hyperscout_inference.fabric.inputs import FabricInputs, SweepSeen
from hyperscout_inference.hierarchy import infer
from hyperscout_inference.sweeps.comparing import Comparison, compare
from hyperscout_sim.fabric.fabric import SimFabric
from hyperscout_sim.fabric.shapes import clos2
from hyperscout_sim.readings.sweep_text import sweep_text
from hyperscout_topology.topology import Topology
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples
from support.inference import without

FABRIC = clos2(leaves=2, hosts_per_leaf=4, spines=2)
OWN = [cable for cable in FABRIC.cables if cable.a in FABRIC.node_map()]


def in_order(order: Sequence[int]) -> SimFabric:
    """The i-th host is on the cable of the host `order[i]`."""
    moved = {x: x._replace(b=OWN[i].b, b_port=OWN[i].b_port) for x, i in zip(OWN, order, strict=True)}
    return replace(FABRIC, cables=tuple(moved.get(x, x) for x in FABRIC.cables))


SWEPT = [
    parse(sweep_text(fabric, fabric.adapters[0].guid))
    for fabric in (
        FABRIC,
        in_order([4, 5, 6, 7, 0, 1, 2, 3]),
        in_order([4, 1, 2, 3, 0, 5, 6, 7]),
        without(FABRIC, OWN[-1]),
        clos2(leaves=1, hosts_per_leaf=2, spines=1),
    )
]
RECORDS = [None, *(infer(FabricInputs(sweeps=(SweepSeen(one),))) for one in SWEPT)]


def listed(found: Sequence[Comparison]) -> list[tuple[object, ...]]:
    return [
        tuple(x.tolist() if isinstance(x, np.ndarray) else x for x in (*one[:-1], *one.swept))
        for one in found
    ]


@given(
    st.lists(
        st.tuples(st.lists(st.sampled_from(SWEPT), max_size=3), st.sampled_from(RECORDS)),
        min_size=2,
        max_size=6,
    )
)
@examples(4)
def test_what_is_kept_changes_no_comparison(steps: list[tuple[list[Sweep], Topology | None]]) -> None:
    warm = [listed(compare(sweeps, record)) for sweeps, record in steps]
    cold = []
    for sweeps, record in steps:
        compare((), None)  # drops what is kept
        cold.append(listed(compare(sweeps, record)))
    assert warm == cold
