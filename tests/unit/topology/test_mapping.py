"""A topology goes over the wire and comes back as it was; deltas rebuild the next one from the last."""

from dataclasses import replace
from typing import Any

import pytest
from hyperscout.v1 import topology_pb2 as pb
from hyperscout_topology.diff import Changes, Diff
from hyperscout_topology.figures import figures
from hyperscout_topology.json_reader import TopologyError, from_json
from hyperscout_topology.link_changes import link_changes
from hyperscout_topology.objects import to_json
from hyperscout_topology.proto import apply, delta_to_proto, topology_from_proto, topology_to_proto
from hyperscout_topology.topology import (
    Adapter,
    Anomaly,
    Condition,
    Endpoint,
    HyperNode,
    Link,
    LinkTable,
    Measured,
    Switch,
    Tier,
    Topology,
)
from hypothesis import given
from hypothesis import strategies as st
from support.any_topologies import same
from support.topologies import measured, two_leaves


def test_nothing_is_lost_on_the_wire() -> None:
    topology = replace(
        measured(),
        anomalies=(
            *two_leaves().anomalies,
            Anomaly("UnknownHost", Endpoint("ff", "ff"), None, None, (), 0.25, "unknown host"),
            Anomaly("Miswired", Endpoint("a", "a", ""), Endpoint("b", "b"), 2, ("lldp",), 1.0, "", "core", 1),
        ),
    )
    message = pb.Topology.FromString(topology_to_proto(topology).SerializeToString())
    assert to_json(topology_from_proto(message)) == to_json(topology)
    assert topology_from_proto(message).anomalies == topology.anomalies
    assert topology_from_proto(message).hypernodes == topology.hypernodes
    assert topology_from_proto(message).tiers == topology.tiers


def test_nodes_of_conditions_and_anomalies_figures_and_flaps_go_along() -> None:
    nodes, whole = tuple(f"n{i}" for i in range(7)), two_leaves()
    details = ("", *(f"1970-01-01T00:00:0{i}Z" for i in range(1, 9)))
    condition = Condition(
        "Stale", "True", "EvidenceStale", "n0 and 6 more", 10**9, nodes, ("s1", "s2"), details
    )
    topology = replace(
        whole,
        hypernodes=(replace(whole.hypernodes[0], conditions=(condition,)), *whole.hypernodes[1:]),
        anomalies=(
            replace(whole.anomalies[0], nodes=nodes, figures=figures(rtt_us=14.2, pairs=128)),
            replace(whole.anomalies[0], kind="Flapping", flaps=7, changed_ns=8 * 10**9, clears_ns=9 * 10**9),
        ),
    )
    message = pb.Topology.FromString(topology_to_proto(topology).SerializeToString())
    for found in (topology_from_proto(message), from_json(to_json(topology))):
        assert found.hypernodes[0].conditions == (condition,)
        assert found.anomalies == topology.anomalies


def test_a_collector_that_knows_no_sources_means_wires() -> None:
    (h,) = topology_from_proto(pb.Topology(hypernodes=[pb.HyperNode(name="a", tier=1)])).hypernodes
    assert (h.source, h.confidence, h.latency_us, h.bandwidth_gbps) == ("wires", 1.0, None, None)


def test_links_and_whose_ends_they_are_can_be_left_out() -> None:
    message = topology_to_proto(two_leaves(), omit_links=True)
    assert (len(message.links), len(message.adapters), len(message.hypernodes)) == (0, 0, 3)


def taken_in(old: Topology, change: pb.TopologyDelta) -> Topology:
    """What a reader makes of a delta."""
    part = topology_from_proto(
        pb.Topology(
            generation=change.generation,
            hypernodes=change.hypernodes,
            switches=change.switches,
            anomalies=change.anomalies,
            links=change.added_links,
            adapters=change.added_adapters,
            tiers=change.tiers,
        )
    )
    hypernodes = {h.name: h for h in (*old.hypernodes, *part.hypernodes)}
    switches = {s.id: s for s in (*old.switches, *part.switches)}
    gone = topology_from_proto(pb.Topology(links=change.removed_links, adapters=change.removed_adapters))
    return Topology(
        change.generation,
        tuple(
            sorted(
                (h for h in hypernodes.values() if h.name not in change.removed_hypernodes),
                key=lambda h: (h.tier, h.name),
            )
        ),
        tuple(
            sorted((s for s in switches.values() if s.id not in change.removed_switches), key=lambda s: s.id)
        ),
        tuple(sorted({*old.adapters, *part.adapters} - {*gone.adapters})),
        tuple(sorted({*old.links, *part.links} - {*gone.links})),
        part.anomalies,
        tuple(change.nodes_without_evidence),
        tuple(change.foreign_endpoints),
        part.tiers,
    )


names = st.sampled_from([f"x{i}" for i in range(6)])
links = st.builds(
    Link,
    *[names] * 5,
    st.tuples(names),
    st.sampled_from(["", "odd"]),
    st.sampled_from([0.0, 56.25]),
    st.sampled_from([0, 4]),
)
numbers = st.none() | st.builds(
    Measured,
    *[st.floats(0.125, 8.0, width=32)] * 2,
    st.integers(0, 9),
    st.integers(0, 2).map(lambda s: s * 10**9),
)
topologies = st.builds(
    lambda generation, hypernodes, switches, adapters, cables, lists, tiers: Topology(
        generation,
        tuple(sorted({h.name: h for h in hypernodes}.values(), key=lambda h: (h.tier, h.name))),
        tuple(sorted({s.id: s for s in switches}.values(), key=lambda s: s.id)),
        tuple(sorted(set(adapters))),
        LinkTable.of(sorted(set(cables))),
        (),
        *lists,
        tuple(tiers),
    ),
    st.integers(1, 9),
    st.lists(
        st.builds(
            HyperNode,
            names,
            st.integers(1, 2),
            names,
            names,
            st.just(()),
            st.tuples(names),
            st.just(()),
            st.just(()),
            st.sampled_from(["wires", "nvlink", "latency"]),
            st.floats(0.0, 1.0),
            numbers,
            numbers,
        )
    ),
    st.lists(st.builds(Switch, names, names, st.integers(0, 3))),
    st.lists(st.builds(Adapter, names, names, names)),
    st.lists(links),
    st.tuples(*[st.lists(names, unique=True).map(tuple)] * 2),
    st.lists(st.builds(Tier, st.integers(1, 3), names, numbers, numbers)),
)


@given(topologies, topologies)
def test_a_delta_makes_the_new_generation_of_the_old(old: Topology, new: Topology) -> None:
    delta = delta_to_proto(Diff(old, new))
    assert to_json(taken_in(old, delta)) == to_json(new)
    assert same(apply(old, [delta])) == same(new)
    assert same(apply(topology_from_proto(topology_to_proto(old)), [delta])) == same(new)
    back = delta_to_proto(Diff(new, old))
    assert same(apply(old, [delta, back])) == same(apply(apply(old, [delta]), [back])) == same(old)


some_adapters = st.lists(
    st.builds(Adapter, st.sampled_from("abcdefghij"), st.sampled_from("nm"), st.just("x")),
    max_size=12,
    unique=True,
)


@given(some_adapters, some_adapters)
def test_adapters_are_compared_wherever_they_stand(old: list[Adapter], new: list[Adapter]) -> None:
    both = list(dict.fromkeys(old + new))
    for a, b in ((old, new), (old, old), (both, new), (both, both[1:]), (both[::2], both)):
        changes = Diff(Topology(1, adapters=a), Topology(2, adapters=b)).adapters
        assert changes == Changes(tuple(sorted({*b} - {*a})), tuple(sorted({*a} - {*b})))


@given(topologies)
def test_a_delta_to_the_same_is_all_but_empty(topology: Topology) -> None:
    change = delta_to_proto(Diff(topology, topology))
    lists = ("hypernodes", "switches", "added_links", "removed_links", "removed_hypernodes", "added_adapters")
    assert [len(getattr(change, name)) for name in lists] == [0] * len(lists)


@pytest.mark.parametrize(
    "change",
    [
        *({field: "x"} for field in ("a_device", "a_port", "b_device", "b_port", "fabric", "note")),
        {"sources": ("x",)},
        {"speed_gbps": 25.0},
        {"width": 1},
    ],
)
def test_links_that_differ_in_one_field_are_different(change: dict[str, Any]) -> None:
    one = Link("a", "1", "b", "2", "ib", ("lldp",))
    other = replace(one, **change)
    assert link_changes([one], [other]) == ([other], [one])
    swapped = replace(one, a_device="b", a_port="2", b_device="a", b_port="1")
    assert link_changes([one], [swapped]) == ([swapped], [one])


@pytest.mark.parametrize(
    ("field", "value"), [("speedGbps", -1.0), ("speedGbps", 2e6), ("width", -1), ("width", 256)]
)
def test_a_speed_or_width_that_cannot_be_is_named(field: str, value: float) -> None:
    found = to_json(two_leaves())
    found["links"][1][field] = value
    with pytest.raises(TopologyError, match=rf"^links\[1\]\.{field}: expected a number from 0 to "):
        from_json(found)
