"""Places by labels of nodes: alone, beside wires, against wires, as time goes by."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hyperscout_inference.fabric.inputs import FabricInputs, InferOptions
from hyperscout_inference.hierarchy import infer
from hyperscout_sim.fabric.fabric import SimFabric
from hyperscout_sim.fabric.shapes import clos2, clos3, rail_optimised
from hyperscout_topology.topology import Topology
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples
from support.inference import inputs_of, tiers, truth

Labels = Mapping[str, tuple[str, ...]]


def inferred(labels: Labels, previous: Topology | None = None, **more: object) -> Topology:
    return infer(replace(FabricInputs(), labels=labels), InferOptions(**more), previous)  # type: ignore[arg-type]


def said(topology: Topology) -> list[set[tuple[str, ...]]]:
    return [{tuple(sorted(domain)) for domain in tier} for tier in tiers(topology)]


def labels_of(fabric: SimFabric, of: Sequence[str] | None = None) -> dict[str, tuple[str, ...]]:
    """What a cloud would say that runs this fabric: the farthest domain first."""
    by_tier = [fabric.truth.domain_of(tier) for tier in range(len(fabric.truth.tiers), 0, -1)]
    return {
        host: tuple(f"nn-{depth}-{domain[host]}" for depth, domain in enumerate(by_tier))
        for host in (fabric.hosts if of is None else of)
    }


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        pytest.param(
            {"a": ("x", "1"), "b": ("x", "1"), "c": ("x", "2"), "d": ("x", "2")},
            [{("a", "b"), ("c", "d")}, {("a", "b", "c", "d")}],
            id="two tiers",
        ),
        pytest.param(
            {"a": ("x", "1"), "b": ("x", "1"), "c": ("y", "1"), "d": ("y", "1")},
            [{("a", "b"), ("c", "d")}],
            id="a subblock's name counts within its block alone",
        ),
        pytest.param(
            {"a": ("r", "z", "1"), "b": ("r", "z", "1"), "c": ("r", "z", "2")},
            [{("a", "b"), ("c",)}, {("a", "b", "c")}],
            id="a region with one zone groups nothing more",
        ),
        pytest.param(
            {"a": ("x", "1", "h1"), "b": ("x", "1", "h2"), "c": ("x", "2", "h3")},
            [{("a", "b"), ("c",)}, {("a", "b", "c")}],
            id="a domain for each host groups nothing",
        ),
        pytest.param(
            {
                "a": ("x", "1", "p", "q"),
                "b": ("x", "1", "p", "q"),
                "c": ("x", "1", "r"),
                "d": ("x", "1", "r"),
            },
            [{("a", "b"), ("c", "d")}, {("a", "b", "c", "d")}],
            id="three layers beside four",
        ),
        pytest.param({"a": ("z",), "b": ("z",)}, [{("a", "b")}], id="a zone"),
        pytest.param({"a": ("y",), "b": ("z",)}, [{("a",), ("b",)}], id="zones of one host"),
        pytest.param({"a": ("y",), "b": ()}, [{("a",)}], id="a host without labels"),
        pytest.param({}, [], id="none"),
    ],
)
def test_nothing_but_labels(labels: Labels, expected: list[set[tuple[str, ...]]]) -> None:
    found = inferred(labels)
    assert said(found) == expected
    assert {h.source for h in found.hypernodes} <= {"labels"}
    assert {
        (c.status, c.reason) for h in found.hypernodes for c in h.conditions if c.type == "Consistent"
    } <= {("True", "Labelled")}
    assert not found.anomalies


shapes = st.sampled_from([clos2(3, 5, 2), clos3(2, 2, 4, 2, 2), rail_optimised(3, 5, 4, 2)])


@examples(0.5)
@given(shapes, st.data())
def test_the_truth_in_labels_beside_wires(fabric: SimFabric, data: st.DataObject) -> None:
    """Hosts that have both stay where they are; those with labels alone go to their wired neighbours."""
    cut = {data.draw(st.sampled_from(sorted(domain))) for domain in fabric.truth.tiers[0]}
    mine = {x.guid for x in fabric.adapters if x.host in cut}
    wires = replace(
        fabric,
        adapters=tuple(x for x in fabric.adapters if x.guid not in mine),
        cables=tuple(x for x in fabric.cables if x.a not in mine),
    )
    found = infer(replace(inputs_of(wires), labels=labels_of(fabric)))
    assert tiers(found) == truth(fabric)
    assert not [x for x in found.anomalies if "labels" in x.sources]
    everything = infer(replace(inputs_of(fabric), labels=labels_of(fabric)))
    alone = infer(inputs_of(fabric))
    assert replace(everything, links=()) == replace(alone, links=())


@examples(0.5)
@given(shapes)
def test_labels_alone_give_the_fabrics_truth(fabric: SimFabric) -> None:
    found = inferred(labels_of(fabric))
    assert tiers(found) == truth(fabric)
    again = inferred(dict(reversed(labels_of(fabric).items())))
    assert replace(found, links=()) == replace(again, links=())


def test_domains_that_no_wire_shows_stand_beside_wired_ones() -> None:
    fabric = clos2(2, 3, 2)
    cloud = {f"cloud-{n}": ("region", f"rack-{n % 2}") for n in range(4)}
    found = infer(replace(inputs_of(fabric), labels=cloud))
    assert {h.source for h in found.hypernodes} == {"wires", "labels"}
    assert {tuple(h.nodes) for h in found.hypernodes if h.source == "labels"} == {
        ("cloud-0", "cloud-2"),
        ("cloud-1", "cloud-3"),
        ("cloud-0", "cloud-1", "cloud-2", "cloud-3"),
    }
    assert len({h.tier for h in found.hypernodes}) == 2
    depth = {h.name: h for h in found.hypernodes}
    assert all(depth[h.parent].tier == h.tier + 1 for h in found.hypernodes if h.parent)


def unwired(labels: Labels, wired: Mapping[str, tuple[str, ...]]) -> tuple[list[set[str]], Topology]:
    """The leaves of hosts without cables, beside a fabric of 4 leaves with 4 hosts each, and the topology."""
    found = infer(replace(inputs_of(clos2(4, 4, 2)), labels={**labels, **wired}))
    leaves = [set(h.nodes) for h in found.hypernodes if h.tier == 1]
    return [leaf for leaf in leaves if leaf & set(labels)], found


def test_a_label_that_spans_several_leaves_puts_no_host_into_one_of_them() -> None:
    fabric = clos2(4, 4, 2)
    dark = {f"dark-{n}": ("zone",) for n in range(3)}
    leaves, found = unwired(dark, dict.fromkeys(fabric.hosts, ("zone",)))
    assert leaves == [set(dark)]
    (top,) = [h for h in found.hypernodes if not h.parent]
    assert set(top.nodes) == {*fabric.hosts, *dark}


def test_one_wired_host_places_no_others() -> None:
    fabric = clos2(4, 4, 2)
    dark = {f"dark-{n}": ("block", "rack") for n in range(8)}
    labels = {host: ("block", f"rack of {host}") for host in fabric.hosts}
    leaves, _ = unwired(dark, {**labels, fabric.hosts[0]: ("block", "rack")})
    assert leaves == [set(dark)]
    leaves, _ = unwired(dark, {**labels, **dict.fromkeys(fabric.hosts[:2], ("block", "rack"))})
    assert leaves == [{*fabric.hosts[:4], *dark}]


@pytest.mark.parametrize(
    "odd", [pytest.param(("x", "1", "more"), id="more"), pytest.param(("x", "1", "h9"), id="a copy")]
)
def test_the_labels_of_one_node_make_no_tier_for_all(odd: tuple[str, ...]) -> None:
    own = odd[-1] != "more"
    labels = {f"h{n}": ("x", str(n % 2), *([f"h{n}"] if own else [])) for n in range(16)}
    expected = said(inferred(labels))
    assert len(expected) == 2
    assert said(inferred({**labels, "h1": odd})) == expected


@pytest.mark.parametrize("odd", [("r", "z2"), ("r", "z2", "q"), ("r", "z", "b2"), ("s",)])
@pytest.mark.parametrize("host", ["node-0001", "dark-1"])
def test_the_label_of_one_node_makes_no_tier_above_wired_hosts(host: str, odd: tuple[str, ...]) -> None:
    fabric = clos3(2, 4, 4, 2, 2)
    labels = {name: ("r", "z", *path) for name, path in labels_of(fabric).items()}
    labels |= dict.fromkeys(("dark-1", "dark-2"), ("r", "z", *labels_of(fabric)[fabric.hosts[0]]))
    usual = infer(replace(inputs_of(fabric), labels=labels))
    found = infer(replace(inputs_of(fabric), labels={**labels, host: odd}))
    assert [t.name for t in found.tiers] == [t.name for t in usual.tiers]


def test_a_host_whose_cables_lead_elsewhere_is_named() -> None:
    fabric = clos3(2, 2, 4, 2, 2)
    host, other = fabric.hosts[0], fabric.hosts[-1]
    labels = labels_of(fabric)
    labels[host] = labels[other]
    found = infer(replace(inputs_of(fabric), labels=labels))
    (told,) = found.anomalies
    assert (told.kind, told.subject.name, told.sources) == ("SourcesDisagree", host, ("labels",))
    assert f"by the labels of its node {host} is in {labels[other][-1]} with" in told.message
    assert tiers(found) == truth(fabric)
    home = next(h for h in found.hypernodes if h.tier == 1 and host in h.nodes)
    assert told.hypernode == home.name
    assert [c.reason for c in home.conditions if c.type == "Consistent" and c.status == "False"] == [
        "SourcesDisagree"
    ]


@pytest.mark.parametrize(
    "labels",
    [
        pytest.param(lambda host, number: ("region", "zone"), id="one zone for all"),
        pytest.param(lambda host, number: (f"island-{number % 2}",), id="nothing to do with the wires"),
        pytest.param(lambda host, number: (host,), id="one for each"),
    ],
)
def test_labels_that_say_nothing_of_the_wires_accuse_no_node(labels: object) -> None:
    fabric = clos2(4, 4, 2)
    said_of = {host: labels(host, n) for n, host in enumerate(fabric.hosts)}  # type: ignore[operator]
    found = infer(replace(inputs_of(fabric), labels=said_of))
    assert not found.anomalies
    assert tiers(found) == truth(fabric)


def test_names_live_on_as_nodes_come_and_go() -> None:
    first = inferred({"a": ("x", "1"), "b": ("x", "2"), "c": ("x", "2")})
    name = {tuple(h.nodes): h.name for h in first.hypernodes}
    grown = inferred({"a": ("x", "1"), "d": ("x", "1"), "b": ("x", "2"), "c": ("x", "2")}, first)
    now = {tuple(h.nodes): h.name for h in grown.hypernodes}
    assert now["a", "d"] == name[("a",)]
    assert now["b", "c"] == name["b", "c"]
    assert now["a", "b", "c", "d"] == name["a", "b", "c"]
    replaced = inferred({"e": ("x", "1"), "f": ("x", "1"), "b": ("x", "2"), "c": ("x", "2")}, grown)
    assert {tuple(h.nodes): h.name for h in replaced.hypernodes}["b", "c"] == name["b", "c"]


def test_the_cluster_may_be_a_part_of_it() -> None:
    labels = labels_of(clos2(3, 4, 2))
    whole = inferred(labels)
    part = inferred(labels, cluster_nodes=frozenset(list(labels)[:6]))
    kept = [
        {domain & frozenset(list(labels)[:6]) for domain in tier} - {frozenset()} for tier in tiers(whole)
    ]
    assert tiers(part) == kept


def test_half_and_half_accuses_no_node() -> None:
    fabric = clos2(4, 4, 2)
    labels = labels_of(fabric)
    for host in fabric.hosts[2:6]:
        labels[host] = (labels[host][0], "between two leaves")
    found = infer(replace(inputs_of(fabric), labels=labels))
    assert not found.anomalies


def test_a_domain_is_named_after_what_the_cloud_calls_it() -> None:
    """Whichever host is in it first."""

    def ends(hosts: Sequence[str]) -> set[str]:
        return {h.name.rpartition("-")[2] for h in inferred({h: ("x", f"{h[0]}") for h in hosts}).hypernodes}

    assert ends(["a1", "a2", "b1", "b2"]) == ends(["a7", "a8", "b9", "b6"])
