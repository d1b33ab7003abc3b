"""A host that reports what is not on its cable: another host's switch port, a port that is not there, or a
spine as its own DPU."""

from dataclasses import replace

import pytest
from hyperscout_formats.facts.facts import LldpPort
from hyperscout_inference.fabric.few_findings import MOST
from hyperscout_inference.fabric.inputs import FabricInputs
from hyperscout_inference.hierarchy import infer
from hyperscout_topology.topology import Topology
from support.inference import tiers
from support.lldp_lies import at_port, evil_ports
from support.switched import Wiring, chassis, clos

CABLES = clos(units=3, hosts=2, spines=1, rails=1)
HONEST = Wiring(
    CABLES, agents=[*(f"h{u}{i}" for u in (1, 2, 3) for i in (1, 2)), "leaf-1a", "leaf-2a", "leaf-3a"]
)


def hearing(inputs: FabricInputs, liar: str, **changes: object) -> FabricInputs:
    """The host's only port hears a neighbour with other values."""
    (port,) = inputs.lldp[liar]
    lie: LldpPort = replace(port, neighbours=(replace(port.neighbours[0], **changes),))  # type: ignore[arg-type]
    return replace(inputs, lldp={**inputs.lldp, liar: (lie,)})


def accused(topology: Topology) -> list[str]:
    return sorted(x.subject.name for x in topology.anomalies if x.kind == "SourcesDisagree")


def test_a_host_that_reports_the_port_of_a_published_cable_is_named_alone() -> None:
    inputs = HONEST.inputs()
    before = infer(inputs)
    lie = hearing(inputs, "h32", chassis_id=chassis("leaf-1a"), port_id="swp1", system_name="leaf-1a")
    found = infer(lie, previous=before)
    victims = [h for h in before.hypernodes if h.tier == 1 and "h32" not in h.nodes and "h11" not in h.nodes]
    assert [h for h in found.hypernodes if h in victims] == victims
    assert "h11" not in accused(found)
    assert "h32" in accused(found)
    again = infer(lie, previous=found)
    assert accused(again) == accused(found)
    assert next(x.note for x in again.links if "h11" in (x.a_device, x.b_device)) == ""


def test_a_cable_that_takes_the_place_of_another_is_no_disagreement() -> None:
    before = infer(HONEST.inputs())
    moved = HONEST.without("leaf-1a/swp1 h11/eth0", "leaf-3a/swp2 h32/eth0")
    after = infer(replace(moved, cables=[*moved.cables, "leaf-1a/swp1 h32/eth0"]).inputs(), previous=before)
    assert accused(after) == []
    assert any({"h12", "h32"} == set(h.nodes) - {"h11"} for h in after.hypernodes if h.tier == 1)


def test_no_host_makes_a_spine_its_own_dpu() -> None:
    inputs = HONEST.inputs()
    before = infer(inputs)
    lie = hearing(
        inputs,
        "h32",
        chassis_id=chassis("spine-1"),
        port_id="p0",
        system_name="spine-1",
        capabilities=("Bridge", "Station"),
    )
    found = infer(lie, previous=before)
    assert [{d - {"h32"} for d in tier} - {frozenset()} for tier in tiers(found)] == [
        {d - {"h32"} for d in tier} for tier in tiers(before)
    ]


def test_no_host_is_on_a_port_that_two_switches_report_in_their_cable() -> None:
    inputs = replace(HONEST, agents=None).inputs()
    before = infer(inputs)
    (port,) = inputs.lldp["h32"]
    spine = inputs.switch_ports["switch/leaf-1a"][-1].neighbours[0]
    lie = replace(port, interface="eth7", mac="", neighbours=(spine,))
    found = infer(replace(inputs, lldp={**inputs.lldp, "h32": (port, lie)}), previous=before)
    assert tiers(found) == tiers(before)
    assert [x.message for x in found.anomalies] == [
        "h32/eth7 reports spine-1/swp1, which is in a cable between switches"
    ]
    stale = frozenset({"switch/leaf-1a", "switch/spine-1"})
    moved = infer(replace(inputs, lldp={**inputs.lldp, "h32": (port, lie)}, silent=stale), previous=before)
    assert "in a cable between switches" not in str([x.message for x in moved.anomalies])
    again = infer(replace(inputs, lldp={**inputs.lldp, "h32": (port, lie)}), previous=moved)
    assert accused(again) == ["h32"], "although it was published"


def claiming(inputs: FabricInputs, liar: str, *ends: str) -> FabricInputs:
    """The host reports these switch ports in place of its own."""
    ports = evil_ports(liar, map(at_port, ends))
    return replace(inputs, lldp={**inputs.lldp, liar: ports})


WHOLE = replace(HONEST, agents=None, dark=[("spine-1", "swp9"), ("leaf-1a", "swp9")])
BY_TABLES = replace(
    WHOLE,
    agents=[f"h{unit}{i}" for unit in (1, 2, 3) for i in (1, 2)],
    asked=["leaf-1a", "leaf-2a", "leaf-3a", "spine-1"],
)
SILENT = replace(WHOLE, silent=["leaf-1a"])
NO_PORT = "is no port that its switch reports"


@pytest.mark.parametrize(
    ("wiring", "end", "why"),
    [
        pytest.param(WHOLE, "leaf-1a/swp77", NO_PORT, id="no port"),
        pytest.param(WHOLE, "spine-1/swp77", NO_PORT, id="no port of a spine"),
        pytest.param(WHOLE, "leaf-1a/swp9", "is down, as its switch reports", id="a port that is down"),
        pytest.param(BY_TABLES, "leaf-1a/swp77", "", id="in no table, which may be incomplete"),
        pytest.param(BY_TABLES, "leaf-1a/swp9", "", id="down in a table, which may be minutes old"),
        pytest.param(SILENT, "leaf-1a/swp77", "", id="no port, as a stale agent reported"),
        pytest.param(SILENT, "leaf-1a/swp9", "", id="down, as a stale agent reported"),
    ],
)
def test_a_switch_denies_a_cable(wiring: Wiring, end: str, why: str) -> None:
    topology = infer(claiming(wiring.inputs(), "h32", end))
    (link,) = (x for x in topology.links if "evil0" in (x.a_port, x.b_port))
    assert link.note == (f"does not count: {end} {why}" if why else "")
    assert accused(topology) == (["h32"] if why else [])
    together = any({"h11", "h12", "h32"} <= set(h.nodes) for h in topology.hypernodes if h.tier == 1)
    assert together == (not why and "leaf" in end)


def test_a_host_that_lost_its_power_is_not_accused() -> None:
    """Its last report stays until it is stale, and its switch reports the port as down at once."""
    before = infer(WHOLE.inputs())
    off = WHOLE.without("leaf-1a/swp1 h11/eth0").inputs()
    last = replace(off, lldp={**off.lldp, "h11": WHOLE.inputs().lldp["h11"]})
    for inputs in (last, replace(last, silent=frozenset({"h11"}))):
        after = infer(inputs, previous=before)
        assert tiers(after) == tiers(before)
        assert accused(after) == []


def test_a_switch_that_announces_other_names_than_it_reports_denies_nothing() -> None:
    """It hears none of its host h32, and hears h31 on a port that h31 knows under another name."""
    inputs = replace(WHOLE, deaf=[("leaf-3a", "swp2")]).inputs()
    renamed = replace(
        inputs,
        switch_ports={
            switch: tuple(replace(x, interface=f"port {i}", port_id=f"port {i}") for i, x in enumerate(mine))
            for switch, mine in inputs.switch_ports.items()
        },
    )
    topology = infer(renamed)
    assert tiers(topology)[0] == tiers(infer(inputs))[0]
    assert accused(topology) == []


def test_many_denied_cables_are_few_findings() -> None:
    topology = infer(claiming(WHOLE.inputs(), "h32", *(f"leaf-1a/swp{i}" for i in range(100, 1100))))
    assert len(topology.anomalies) < 110
    texts = [x.message for x in topology.anomalies if x.kind == "SourcesDisagree"]
    assert sum(f"{1000 - MOST} more cables that this host reports are denied" in x for x in texts) == 1
