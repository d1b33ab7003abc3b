"""The filter of lists by cluster."""

import pytest
from hyperscout_collector.serve.rest.kinds import KINDS, passes
from hyperscout_topology import objects
from hyperscout_topology.topology import Adapter, Link, Topology
from support.topologies import leaves

TREE = leaves(("n1", "east/n1"), ("east/n2", "west/n1"))
LINKED = Topology(
    1,
    TREE.hypernodes,
    adapters=(Adapter("g1", "n1", "mlx5_0"), Adapter("g2", "east/n1", "mlx5_0")),
    links=(Link("g1", "1", "s1", "1", "ib", ()), Link("g2", "1", "s1", "2", "ib", ())),
)


@pytest.mark.parametrize(
    ("kind", "clusters", "count"),
    [
        ("nodes", ("east",), 2),
        ("nodes", ("",), 1),
        ("nodes", ("east", "west"), 3),
        ("nodes", ("north",), 0),
        ("hypernodes", ("",), 2),
        ("hypernodes", ("east",), 3),
        ("links", ("",), 1),
        ("links", ("east",), 1),
        ("links", ("west",), 0),
    ],
)
def test_objects_of_clusters(kind: str, clusters: tuple[str, ...], count: int) -> None:
    keeps = passes(KINDS[kind], {"cluster": clusters})
    assert sum(map(keeps, objects.OF_TOPOLOGY[kind](LINKED))) == count


def test_placements_in_a_cluster() -> None:
    keeps = passes(KINDS["placements"], {"cluster": ("east",)})
    assert [keeps({"assignments": [{"node": node}]}) for node in ("east/n1", "n1")] == [True, False]
