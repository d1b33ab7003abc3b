"""What two topologies differ in, as events."""

from dataclasses import replace

import pytest
from hyperscout_topology.diff import Diff
from hyperscout_topology.events import KINDS, Event, bounded, events, first_published, published, summary
from hyperscout_topology.topology import (
    Anomaly,
    Condition,
    Endpoint,
    Link,
    LinkTable,
    Switch,
    Topology,
)
from support.topologies import SINCE_NS, leaves, two_leaves

LEAF_A, LEAF_B, CORE = (
    replace(h, switches=(s.id,)) for h, s in zip(two_leaves().hypernodes, two_leaves().switches, strict=True)
)
OLD = replace(two_leaves(), hypernodes=(LEAF_A, LEAF_B, CORE))
UPLINK = Endpoint("s1", "leaf-a", "9"), Endpoint("s9", "spine", "1")
DOWN = Anomaly("MissingLink", *UPLINK, 1, ("ibnetdiscover",), 0.9, "no cable", "leaf-a", SINCE_NS)
DEGRADED = Condition("Degraded", "True", "LinksDown", "1 of 4 uplinks down", SINCE_NS + 1)


def without_uplink() -> Topology:
    links = [x for x in OLD.links if x.a_port != "9" or x.a_device != "s1"]
    return replace(OLD, links=LinkTable.of(links))


def told(old: Topology, new: Topology) -> list[tuple[str, ...]]:
    """Kind, HyperNode, node, what, before, after."""
    return [(x.kind, x.hypernode, x.node, x.what, x.before, x.after) for x in events(Diff(old, new))]


def with_conditions(*conditions: Condition) -> Topology:
    return replace(OLD, hypernodes=(replace(LEAF_A, conditions=conditions), LEAF_B, CORE))


READY = Condition("Ready", "True", "AllNodesReady", "2 of 2 nodes ready", SINCE_NS)


def not_ready(*nodes: str, message: str = "some are down") -> Condition:
    return Condition("Ready", "False", "NodesNotReady", message, SINCE_NS, nodes)


OTHER_NODES = (("n01", "n02"), ("n03", "n04"))


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        pytest.param(OLD, OLD, [], id="nothing"),
        pytest.param(
            OLD, without_uplink(), [("LinkRemoved", "leaf-a", "", "", "", "")], id="a cable between switches"
        ),
        pytest.param(without_uplink(), OLD, [("LinkAdded", "leaf-a", "", "", "", "")], id="it is back"),
        pytest.param(
            OLD,
            replace(OLD, links=[x for x in OLD.links if x.a_device != "a04"]),
            [("LinkRemoved", "leaf-b", "n04", "", "", "")],
            id="a host's cable",
        ),
        pytest.param(
            OLD,
            replace(OLD, links=LinkTable.of([replace(x, sources=("lldp",), note="?") for x in OLD.links])),
            [],
            id="other witnesses and notes are no other cable",
        ),
        pytest.param(
            OLD,
            replace(
                OLD,
                links=LinkTable.of(
                    [Link(x.b_device, x.b_port, x.a_device, x.a_port, x.fabric, x.sources) for x in OLD.links]
                ),
            ),
            [],
            id="nor is one that is told from its other end",
        ),
        pytest.param(
            OLD,
            replace(OLD, anomalies=(*OLD.anomalies, DOWN)),
            [("AnomalyAppeared", "leaf-a", "", "MissingLink", "", "")],
            id="an anomaly",
        ),
        pytest.param(
            OLD,
            replace(OLD, anomalies=()),
            [("AnomalyCleared", "leaf-b", "n03", "MissingLink", "", "")],
            id="an all-clear, of a host's cable",
        ),
        pytest.param(
            OLD,
            replace(OLD, anomalies=(replace(OLD.anomalies[0], message="other words", confidence=0.5),)),
            [],
            id="an anomaly in other words",
        ),
        pytest.param(
            OLD,
            with_conditions(READY, DEGRADED),
            [("ConditionChanged", "leaf-a", "", "Degraded", "False", "True")],
            id="a flip",
        ),
        pytest.param(
            with_conditions(READY, DEGRADED),
            with_conditions(READY, replace(DEGRADED, message="2 of 4", since_ns=9)),
            [],
            id="what anomalies tell is not told again",
        ),
        pytest.param(
            with_conditions(READY, DEGRADED),
            with_conditions(READY, replace(DEGRADED, reason="SwitchMissing")),
            [("ConditionChanged", "leaf-a", "", "Degraded", "True", "True")],
            id="another reason",
        ),
        pytest.param(
            with_conditions(not_ready("n01")),
            with_conditions(not_ready("n01", "n02")),
            [("ConditionChanged", "leaf-a", "n02", "Ready", "False", "False")],
            id="another node is not ready",
        ),
        pytest.param(
            OLD,
            replace(OLD, switches=OLD.switches[:2]),
            [("SwitchRemoved", "core", "", "", "", "")],
            id="a switch goes",
        ),
        pytest.param(
            OLD,
            replace(OLD, switches=(*OLD.switches, Switch("s3", "x", 1))),
            [("SwitchAdded", "", "", "", "", "")],
            id="a switch of no domain comes",
        ),
        pytest.param(
            leaves(("n01", "n02"), ("n03",)),
            leaves(("n01",), ("n02", "n03")),
            [("NodeMoved", "l2", "n02", "", "l1", "l2")],
            id="a node moves",
        ),
        pytest.param(
            leaves(*OTHER_NODES),
            replace(leaves(("n01", "n02"), ("n03",)), nodes_without_evidence=("n04", "n05")),
            [("NodeMoved", "l2", "n04", "", "l2", ""), ("NodeAdded", "", "n05", "", "", "")],
            id="a node that no fabric shows any more, and one that none ever did",
        ),
        pytest.param(
            leaves(*OTHER_NODES),
            leaves(("n01", "n02"), ("n04",)),
            [("NodeRemoved", "l2", "n03", "", "l2", "")],
            id="a node goes",
        ),
        pytest.param(
            leaves(("n01",)),
            leaves(("n01",), ("n02",)),
            [("NodeAdded", "l2", "n02", "", "", "l2"), ("HyperNodeAdded", "l2", "", "", "", "core")],
            id="a domain comes",
        ),
        pytest.param(
            OLD,
            replace(OLD, hypernodes=(LEAF_A, replace(LEAF_B, parent=None), CORE)),
            [("HyperNodeMoved", "leaf-b", "", "", "core", "")],
            id="a domain moves to the top",
        ),
        pytest.param(
            OLD,
            replace(OLD, hypernodes=(LEAF_A, LEAF_B, replace(CORE, tier=3))),
            [("HyperNodeMoved", "core", "", "", "", "")],
            id="a tier in between",
        ),
        pytest.param(
            replace(OLD, hypernodes=(LEAF_A, replace(CORE, children=("leaf-a",)))),
            OLD,
            [
                ("NodeAdded", "leaf-b", "n03", "", "", "leaf-b"),
                ("NodeAdded", "leaf-b", "n04", "", "", "leaf-b"),
                ("HyperNodeAdded", "leaf-b", "", "", "", "core"),
                ("ConditionChanged", "leaf-b", "n03", "Ready", "", "False"),
                ("ConditionChanged", "leaf-b", "", "Degraded", "", "True"),
            ],
            id="what is wrong with a new domain is told, what is well is not",
        ),
    ],
)
def test_what_changed(old: Topology, new: Topology, expected: list[tuple[str, ...]]) -> None:
    assert told(old, new) == expected


def test_a_condition_is_about_all_of_its_nodes() -> None:
    """The message names three of them."""
    nodes = [f"n{i:02}" for i in range(10)]
    (event,) = events(Diff(OLD, with_conditions(not_ready(*nodes))))
    assert (event.node, event.nodes) == ("", tuple(nodes))
    (event,) = events(
        Diff(with_conditions(not_ready(*nodes[:8])), with_conditions(not_ready(*nodes[1:8], "n09")))
    )
    assert (event.node, event.nodes) == ("", ("n00", "n09")), "two changed, the message did not"
    (event,) = events(Diff(with_conditions(not_ready(*nodes)), with_conditions(READY)))
    assert event.nodes == tuple(nodes), "they are ready again"


def test_a_condition_of_an_earlier_version_has_no_nodes() -> None:
    (event,) = events(
        Diff(with_conditions(not_ready()), with_conditions(not_ready("n01", message="n01 is down")))
    )
    assert event.node == "n01"


def test_an_anomaly_is_about_all_of_its_nodes() -> None:
    many = replace(DOWN, nodes=("n01", "n02", "n04"))
    (event,) = events(Diff(OLD, replace(OLD, anomalies=(*OLD.anomalies, many))))
    assert (event.node, event.nodes) == ("", ("n01", "n02", "n04"))


def test_an_all_clear_that_was_held_back_says_what_is_over() -> None:
    old = replace(
        OLD, anomalies=(replace(DOWN, message="up since then; before: no cable", flaps=2, clears_ns=9),)
    )
    (event,) = events(Diff(old, replace(OLD, anomalies=())))
    assert (event.kind, event.message) == ("AnomalyCleared", "over: no cable")


def test_what_flaps_is_one_thing_and_words_are_no_flip() -> None:
    (gone,), (back,) = events(Diff(OLD, without_uplink())), events(Diff(without_uplink(), OLD))
    assert gone.thing == back.thing != ""
    (worse,) = events(
        Diff(
            with_conditions(READY, DEGRADED),
            with_conditions(READY, replace(DEGRADED, reason="SwitchMissing")),
        )
    )
    (flip,) = events(Diff(OLD, with_conditions(READY, DEGRADED)))
    assert worse.thing == flip.thing
    assert (worse.is_flip, flip.is_flip, gone.is_flip) == (False, True, True)
    assert Event("GenerationPublished", "").thing == ""


def test_a_generation_says_what_is_in_it_and_ages_are_nothing() -> None:
    new = replace(without_uplink(), anomalies=(*OLD.anomalies, DOWN))
    event = published(Diff(OLD, new), events(Diff(OLD, new)))
    assert event is not None
    assert event.message == "1 link removed, 1 anomaly appeared"
    older = replace(OLD, anomalies=tuple(replace(x, since_ns=1) for x in OLD.anomalies), generation=9)
    assert published(Diff(OLD, older), events(Diff(OLD, older))) is None
    missed = published(Diff(OLD, older), [], missed=3)
    assert missed is not None
    assert "3 generations before it could not be recorded" in missed.message
    witnesses = replace(OLD, links=LinkTable.of([replace(x, sources=("lldp",)) for x in OLD.links]))
    assert (detail := published(Diff(OLD, witnesses), [])) is not None
    assert "links" in detail.message
    first = first_published(OLD)
    assert "first" in first.message


def test_kinds_are_in_order_and_many_of_one_are_cut() -> None:
    many = [Event("LinkRemoved", f"{i}") for i in range(5)] + [Event("LinkAdded", "x")]
    assert summary(many) == "5 links removed, 1 link added"
    cut = bounded(many, 3)
    assert [x.kind for x in cut] == ["LinkRemoved"] * 3 + ["LinkAdded"]
    assert cut[2].message.startswith("3 more")
    down = [Event("ConditionChanged", "", "h", f"n{i}", nodes=(f"m{i}", f"n{i}")) for i in range(3)]
    assert bounded(down, 2)[1].nodes == ("m1", "m2", "n1", "n2"), "of those that are cut, too"
    assert bounded(many, 5) == many
    every = {
        x.kind
        for old, new in ((OLD, leaves(("n01",))), (leaves(("n01",)), OLD))
        for x in events(Diff(old, new))
    }
    assert every <= set(KINDS)
