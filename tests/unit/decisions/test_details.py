"""Comparing cables, and keeping those whose loss is not shown yet."""

from dataclasses import replace

import numpy as np
import pytest
from hyperscout_collector.decisions.publication.details import same_details, sharing, with_waiting
from hyperscout_topology.json_reader import from_json
from hyperscout_topology.objects import to_json
from hyperscout_topology.topology import (
    Adapter,
    Anomaly,
    Endpoint,
    Link,
    LinkTable,
    Switch,
    Topology,
)

from .trees import leaves_of, lost_uplink, tree, uplink

LINKS = [uplink(k) for k in range(4)]
BASE = replace(tree(leaves_of(2), links=LINKS), adapters=(Adapter("g", "n0000", "mlx5_0"),))


def other_order(table: LinkTable) -> LinkTable:
    """The same rows, with the tables of texts turned round."""
    assert isinstance(table, LinkTable)
    last = len(table.devices) - 1
    return replace(
        table, devices=list(table.devices)[::-1], a=np.asarray(last - table.a), b=np.asarray(last - table.b)
    )


DIFFERENT = [
    ("one less", {"links": LinkTable.of(LINKS[1:])}),
    ("another port", {"links": LinkTable.of([replace(LINKS[0], a_port="99"), *LINKS[1:]])}),
    ("another device", {"links": LinkTable.of([replace(LINKS[0], b_device="x"), *LINKS[1:]])}),
    ("another witness", {"links": LinkTable.of([replace(LINKS[0], sources=("lldp",)), *LINKS[1:]])}),
    ("another note", {"links": LinkTable.of([replace(LINKS[0], note="x"), *LINKS[1:]])}),
    ("another fabric", {"links": LinkTable.of([replace(LINKS[0], fabric="x"), *LINKS[1:]])}),
    ("a switch", {"switches": BASE.switches[1:]}),
    ("a foreign endpoint", {"foreign_endpoints": ("storage",)}),
    ("an adapter", {"adapters": ()}),
    (
        "a HyperNode's switch",
        {"hypernodes": (replace(BASE.hypernodes[0], switches=("x",)), *BASE.hypernodes[1:])},
    ),
]


@pytest.mark.parametrize(("name", "change"), DIFFERENT, ids=[x[0] for x in DIFFERENT])
def test_different(name: str, change: dict[str, object]) -> None:
    assert not same_details(BASE, replace(BASE, **change))  # type: ignore[arg-type]


def test_same() -> None:
    assert isinstance(BASE.links, LinkTable)
    assert same_details(BASE, BASE)
    assert same_details(BASE, replace(BASE, links=tuple(LINKS), adapters=list(BASE.adapters)))
    assert same_details(BASE, replace(BASE, links=other_order(BASE.links)))
    assert same_details(BASE, from_json(to_json(BASE)))


PARTS = ("switches", "adapters", "links")


@pytest.mark.parametrize(("name", "change"), DIFFERENT, ids=[x[0] for x in DIFFERENT])
def test_what_is_the_same_is_shared_and_nothing_else(name: str, change: dict[str, object]) -> None:
    new = replace(BASE, **change)  # type: ignore[arg-type]
    shared = sharing(from_json(to_json(new)), BASE)
    assert same_details(shared, new)
    assert {part for part in PARTS if getattr(shared, part) is getattr(BASE, part)} == {*PARTS} - {*change}


def test_the_order_does_not_matter() -> None:
    more = Adapter("h", "n0001", "mlx5_0")
    there = replace(BASE, adapters=(*BASE.adapters, more))
    assert same_details(there, replace(there, links=LinkTable.of(LINKS[::-1]), adapters=there.adapters[::-1]))
    assert not same_details(there, replace(there, adapters=(more._replace(name="x"), *BASE.adapters)))


def ends(topology: Topology) -> set[tuple[str, str]]:
    return {(x.a_device, x.a_port) for x in topology.links}


def test_a_cable_stays_while_its_loss_waits() -> None:
    published = replace(
        BASE,
        links=LinkTable.of([*LINKS, Link("g", "1", "sw-l00", "40", "ib2", ("x",), "odd")]),
        adapters=(Adapter("g", "n0000", "mlx5_0"), Adapter("h", "n0001", "mlx5_0")),
    )
    offered = replace(BASE, links=LinkTable.of(LINKS[2:]), adapters=())
    kept = with_waiting(offered, published, BASE, [])
    assert kept == offered

    host = Anomaly("MissingLink", Endpoint("g", "n0000", "1"), Endpoint("sw-l00", "", "40"), 1, (), 1.0, "")
    kept = with_waiting(offered, published, BASE, [host])
    assert set(kept.links) == {*LINKS[2:], Link("g", "1", "sw-l00", "40", "ib2", ("x",), "odd")}
    assert kept.adapters == (Adapter("g", "n0000", "mlx5_0"),)

    # Which of parallel cables it is need not be known: all that are gone stay, and none is doubled.
    kept = with_waiting(offered, published, BASE, [lost_uplink(0)])
    assert sorted(kept.links) == LINKS


def test_a_switch_stays_while_its_loss_waits_or_a_hypernode_names_it() -> None:
    gone = Anomaly("MissingSwitch", Endpoint("sw-l00", ""), None, 1, (), 1.0, "")
    offered = replace(
        BASE,
        hypernodes=(replace(BASE.hypernodes[0], switches=()), *BASE.hypernodes[1:]),
        switches=(Switch("sw-l01", "", 1), Switch("sw-top", "", 2)),
        links=(),
    )
    for tree_ in (offered, BASE):
        kept = with_waiting(offered, BASE, tree_, [gone])
        assert kept.hypernodes == BASE.hypernodes
        assert [s.id for s in kept.switches] == ["sw-l00", "sw-l01", "sw-top"]
        assert sorted(kept.links) == LINKS
        told = with_waiting(offered, BASE, tree_, [])
        assert told.hypernodes == offered.hypernodes, (
            "the tree may be the one before: its switches are of now"
        )
        assert [s.id for s in told.switches] == ["sw-l01", "sw-top"]
        assert list(told.links) == []
    spine = replace(gone, subject=Endpoint("sw-top", ""))
    assert sorted(with_waiting(offered, BASE, offered, [spine]).links) == LINKS, "whichever end it is"
    # A HyperNode that is published still and offered no more.
    fewer = replace(offered, hypernodes=offered.hypernodes[1:])
    kept = with_waiting(fewer, BASE, BASE, [])
    assert kept.hypernodes == BASE.hypernodes
    assert [s.id for s in kept.switches] == ["sw-l00", "sw-l01", "sw-top"]
