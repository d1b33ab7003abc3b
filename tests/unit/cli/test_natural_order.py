"""People read names in the order of their numbers: n2 before n10, in every table, tree and list."""

import re
from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest
from hyperscout_cli.offline.infer import _diagnose
from hyperscout_cli.place.placement_text import placements_table
from hyperscout_cli.remote.live_names import names_of_topology
from hyperscout_cli.shared.dot import dot
from hyperscout_cli.shared.kinds import TABLES
from hyperscout_cli.shared.tree import tree
from hyperscout_cli.show.differences import differences
from hyperscout_inference.hierarchy.conditions import with_conditions
from hyperscout_topology import objects
from hyperscout_topology.topology import Endpoint, HyperNode, Link, LinkTable, Switch, Topology
from support.builders import anomaly, hypernode
from support.placement_service import placed

NUMBERS = (1, 2, 10)


def numbered() -> Topology:
    """Three leaves with a host each; inference sorts their names as texts."""
    names = sorted(f"leaf{i}" for i in NUMBERS)
    below = tuple(
        hypernode(name, [name.replace("leaf", "n")], parent="core", switches=[name.replace("leaf", "s")])
        for name in names
    )
    nodes = sorted(f"n{i}" for i in NUMBERS)
    core = hypernode("core", nodes, tier=2, tier_name="core", children=names, switches=["s10", "s2", "s1"])
    texts = sorted(map(str, NUMBERS))
    return Topology(
        1,
        (*below, core),
        switches=tuple(Switch(f"s{i}", f"leaf{i}", 1) for i in texts),
        links=LinkTable.of(
            [
                *(Link(f"n{i}", "eth0", f"s{i}", "1", "eth", ("lldp",)) for i in texts),
                *(Link("n1", "eth1", "s1", port, "eth", ("lldp",)) for port in texts),
            ]
        ),
        anomalies=tuple(
            anomaly(subject=Endpoint(f"s{i}", f"leaf{i}", port)) for i in texts for port in texts
        ),
    )


def cells(kind: str, *columns: int) -> Callable[[Topology], list[str]]:
    return lambda t: [" ".join(row.cells[i] for i in columns) for row in TABLES[kind](t, 0).rows]


def rows(kind: str, key: str) -> Callable[[Topology], list[str]]:
    return lambda t: [str(row.data[key]) for row in TABLES[kind](t, 0).rows]


def found(pattern: str, text: Iterable[str]) -> list[str]:
    return re.findall(pattern, "".join(text))


def of_core(topology: Topology) -> list[str]:
    """The HyperNodes of the switches, in the list of JSON."""
    return [name for s in objects.switches(topology) for name in s["hypernodes"] if name != "core"]


LEAVES, NODES, SWITCHES = (tuple(f"{x}{i}" for i in NUMBERS) for x in ("leaf", "n", "s"))


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (cells("hypernodes", 0), (*LEAVES, "core")),
        (rows("hypernodes", "name"), (*LEAVES, "core")),
        (cells("nodes", 0), NODES),
        (rows("nodes", "name"), NODES),
        (cells("switches", 0), LEAVES),
        (of_core, LEAVES),
        (
            cells("links", 0, 1, 3),
            ("n1 eth0 1", "n1 eth1 1", "n1 eth1 2", "n1 eth1 10", "n2 eth0 1", "n10 eth0 1"),
        ),
        (cells("anomalies", 1), tuple(f"leaf{i}/{port}" for i in NUMBERS for port in NUMBERS)),
        (lambda t: found(r"leaf\d+", tree(t)), LEAVES),
        (lambda t: found(r'cluster_\d+" \{\s+label="(leaf\d+)', dot(t)), LEAVES),
        (lambda t: found(r"\+ hypernode (leaf\d+)", differences(Topology(0), t)), LEAVES),
        (lambda t: found(r"- hypernode (leaf\d+)", differences(t, Topology(0))), LEAVES),
        (
            lambda t: found(r"~ hypernode (leaf\d+)", differences(t, replace(t, hypernodes=moved(t)))),
            LEAVES,
        ),
        (lambda t: found(r"\+ link (n\d+)/eth0", differences(Topology(0), t)), NODES),
        (lambda t: found(r"\+ anomaly MissingLink (leaf\d+)/1:", differences(Topology(0), t)), LEAVES),
        (lambda t: names_of_topology(t)["nodes"], NODES),
        (lambda t: names_of_topology(t)["hypernodes"], ("core", *LEAVES)),
        (lambda t: names_of_topology(t)["switches"], LEAVES),
        (
            lambda t: [r.name for r in placements_table([placed(n, n) for n in ("n10", "n1", "n2")], 0).rows],
            NODES,
        ),
    ],
)
def test_names_are_in_the_order_of_their_numbers(
    shown: Callable[[Topology], list[str]], expected: tuple[str, ...]
) -> None:
    assert tuple(shown(numbered())) == expected


def test_warnings_and_conditions_name_ports_in_the_order_of_their_numbers(
    capsys: pytest.CaptureFixture[str],
) -> None:
    ports = [
        anomaly(
            subject=Endpoint("s1", "leaf1", port), hypernode="leaf1", message=f"no link from leaf1/p{port}"
        )
        for port in sorted(map(str, NUMBERS))
    ]
    topology = with_conditions(replace(numbered(), anomalies=tuple(ports)))
    [leaf] = [h for h in topology.hypernodes if h.name == "leaf1"]
    [message] = [c.message for c in leaf.conditions if c.type == "Degraded"]
    assert re.findall(r"leaf1/p(\d+)", message) == ["1", "2", "10"]
    _diagnose(topology, (), "tree")
    assert re.findall(r"leaf1/p(\d+)", capsys.readouterr().err) == ["1", "2", "10"]


def moved(topology: Topology) -> tuple[HyperNode, ...]:
    return tuple(replace(h, source="latency") for h in topology.hypernodes)


def test_published_objects_keep_their_order() -> None:
    names = [h["name"] for h in objects.to_json(numbered())["hypernodes"]]
    assert names == ["leaf1", "leaf10", "leaf2", "core"]
