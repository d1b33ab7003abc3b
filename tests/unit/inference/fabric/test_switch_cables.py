"""What switches say of their ports: one cable for all witnesses, and which is believed where they differ."""

from dataclasses import replace
from itertools import product
from random import Random
from typing import Any

import pytest
from hyperscout_formats.facts.facts import LldpNeighbour, SwitchPort
from hyperscout_inference.fabric.inputs import FabricInputs, InferOptions
from hyperscout_inference.hierarchy import infer
from hyperscout_inference.hierarchy.fuse import fuse
from hyperscout_topology.objects import to_json
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples
from support.switched import (
    TWO_TIERS,
    Wiring,
    cable,
    chassis,
    clos,
    domains,
    ends,
    is_switch,
    links,
    mac,
    notes,
)

CLOS = Wiring(clos())
LEAF_SPINE = "leaf-1a/swp31 spine-1/swp1"
HOST_LEAF = "leaf-1a/swp1 h11/eth0"


def shown(wiring: Wiring) -> dict[frozenset[tuple[str, str]], tuple[str, ...]]:
    return dict(links(infer(wiring.inputs()).links))


def test_the_tier_above_comes_from_switches() -> None:
    topology = infer(CLOS.inputs())
    assert domains(topology) == TWO_TIERS
    assert topology.anomalies == ()
    assert {s.name: s.level for s in topology.switches} == {
        "leaf-1a": 1,
        "leaf-1b": 1,
        "leaf-2a": 1,
        "leaf-2b": 1,
        "spine-1": 2,
        "spine-2": 2,
    }
    assert topology.nodes_without_evidence == ()
    hosts_only = infer(replace(CLOS, agents=[f"h{u}{i}" for u, i in product((1, 2), (1, 2, 3))]).inputs())
    assert {tier for tier, _ in domains(hosts_only)} == {1}


def test_each_cable_is_one_link_with_all_its_witnesses() -> None:
    found = shown(CLOS)
    assert found == {
        ends(text): ("switch",) if all(is_switch(d) for d, _ in cable(text)) else ("lldp", "switch")
        for text in CLOS.cables
    }


@pytest.mark.parametrize(
    ("change", "sources"),
    [
        pytest.param({"agents": ["leaf-1a", "h11"]}, ("lldp", "switch"), id="both"),
        pytest.param({"agents": ["h11"]}, ("lldp",), id="only the host"),
        pytest.param(
            {"agents": ["leaf-1a", "h11"], "deaf": [("h11", "eth0")]},
            ("switch",),
            id="a host that hears nothing",
        ),
        pytest.param(
            {"agents": ["leaf-1a", "h11"], "deaf": [("leaf-1a", "swp1")]},
            ("lldp",),
            id="a switch that hears nothing",
        ),
        pytest.param({"agents": ["leaf-1a"]}, None, id="a host without an agent"),
    ],
)
def test_which_witnesses_saw_a_host_s_cable(
    change: dict[str, object], sources: tuple[str, ...] | None
) -> None:
    assert shown(replace(CLOS, **change)).get(ends(HOST_LEAF)) == sources  # type: ignore[arg-type]


def said(wiring: Wiring, reporter: str, end: str, **change: object) -> FabricInputs:
    """The inputs, with something else said of one port."""
    inputs = wiring.inputs()
    ports = tuple(replace(p, **change) if p.interface == end else p for p in inputs.switch_ports[reporter])  # type: ignore[arg-type]
    return replace(inputs, switch_ports={**inputs.switch_ports, reporter: ports})


NO_NEIGHBOUR: dict[str, object] = {"neighbours": ()}
DARK: dict[str, object] = {"neighbours": (), "carrier": False}


@pytest.mark.parametrize(
    ("leaf_says", "silent", "there"),
    [
        pytest.param({}, [], True, id="both say so"),
        pytest.param(DARK, [], False, id="the leaf has no carrier, the spine has not noticed yet"),
        pytest.param(NO_NEIGHBOUR, [], True, id="the leaf hears no neighbour: its lldpd may not receive"),
        pytest.param({}, ["switch/leaf-1a", "switch/spine-1"], True, id="both are silent"),
        pytest.param(DARK, ["switch/leaf-1a"], True, id="no carrier, but said long ago"),
        pytest.param(DARK, ["switch/spine-1"], False, id="the spine is silent, the leaf is not"),
        pytest.param(
            NO_NEIGHBOUR, ["switch/spine-1"], False, id="the leaf hears no neighbour, the spine is silent"
        ),
        pytest.param(NO_NEIGHBOUR, ["switch/leaf-1a"], True, id="the leaf is silent and heard no neighbour"),
        pytest.param(DARK, ["switch/leaf-1a", "switch/spine-1"], False, id="both are silent, one was dark"),
    ],
)
def test_when_the_ends_of_a_cable_differ(
    leaf_says: dict[str, object], silent: list[str], there: bool
) -> None:
    inputs = replace(said(CLOS, "switch/leaf-1a", "swp31", **leaf_says), silent=frozenset(silent))
    topology = infer(inputs)
    assert (ends(LEAF_SPINE) in dict(links(topology.links))) == there
    assert not [x for x in topology.anomalies if x.kind == "SourcesDisagree"]
    assert domains(topology) == TWO_TIERS


def test_a_spine_without_an_agent_is_known_by_the_leaves() -> None:
    topology = infer(replace(CLOS, agents=[d for d in _devices(CLOS) if not d.startswith("spine")]).inputs())
    assert domains(topology) == TWO_TIERS
    assert len(topology.links) == len(CLOS.cables)


def test_a_port_is_in_one_cable_and_what_contradicts_it_is_named() -> None:
    """A leaf, the first by its id, hears a spine's port that another leaf and that port say is theirs."""
    inputs = CLOS.inputs()
    heard = LldpNeighbour("mac", chassis("spine-1"), "ifname", "swp4", 120, capabilities=("Bridge",))
    ports = inputs.switch_ports["switch/leaf-1a"]
    odd_one = replace(ports[0], interface="swp40", port_id="swp40", neighbours=(heard,))
    topology = infer(
        replace(inputs, switch_ports={**inputs.switch_ports, "switch/leaf-1a": (*ports, odd_one)})
    )
    found = dict(links(topology.links))
    assert ends("leaf-2b/swp31 spine-1/swp4") in found
    assert notes(topology) == {
        ends("leaf-1a/swp40 spine-1/swp4"): "does not count: spine-1/swp4 is in another cable"
    }
    (odd,) = (x for x in topology.anomalies if x.kind == "SourcesDisagree")
    assert odd.message.startswith("leaf-1a/swp40 to spine-1/swp4 is reported, but another cable")


@pytest.mark.parametrize("leaf_reports", [True, False])
def test_a_moved_cable_leads_where_those_say_that_still_speak(leaf_reports: bool) -> None:
    """Plugged from spine-1/swp1 into spine-2/swp9, while spine-1's agent is silent."""
    moved = [x for x in CLOS.cables if x != LEAF_SPINE]
    agents = [d for d in _devices(CLOS) if leaf_reports or d != "leaf-1a"]
    now = Wiring([*moved, "leaf-1a/swp31 spine-2/swp9"], agents=agents).inputs()
    before = CLOS.inputs().switch_ports["switch/spine-1"]
    inputs = replace(now, switch_ports={**now.switch_ports, "switch/spine-1": before})
    topology = infer(replace(inputs, silent=frozenset({"switch/spine-1"})))
    found = dict(links(topology.links))
    assert ends("leaf-1a/swp31 spine-2/swp9") in found
    assert ends(LEAF_SPINE) not in found
    assert not [x for x in topology.anomalies if x.kind == "SourcesDisagree"]


def test_a_host_that_another_switch_hears_stays_where_it_hears_and_that_is_named() -> None:
    neighbour = LldpNeighbour("mac", mac(("h11", "eth0")), "mac", mac(("h11", "eth0")), 120)
    inputs = said(CLOS, "switch/leaf-2a", "swp1", neighbours=(neighbour,))
    topology = infer(inputs)
    found = dict(links(topology.links))
    assert found[ends(HOST_LEAF)] == ("lldp", "switch")
    assert set(notes(topology)) == {ends("leaf-2a/swp1 h11/eth0")}
    assert domains(topology) == TWO_TIERS
    (odd,) = (x for x in topology.anomalies if x.kind == "SourcesDisagree")
    assert odd.message == "leaf-2a/swp1 reports h11/eth0, which is on another cable"
    assert odd.subject.device == chassis("leaf-2a"), "leaf-1a confirms the host's cable"
    ports = {device: x for device, x in inputs.switch_ports.items() if device != "switch/leaf-1a"}
    (odd,) = (x for x in infer(replace(inputs, switch_ports=ports)).anomalies if x.kind == "SourcesDisagree")
    assert odd.subject.device == "h11", "no other switch reports the host's cable"
    stale = replace(inputs, silent=frozenset({"switch/leaf-1a"}))
    (odd,) = (x for x in infer(stale).anomalies if x.kind == "SourcesDisagree")
    assert odd.subject.device == "h11", "leaf-1a reported it before"
    quiet = infer(replace(inputs, silent=frozenset({"switch/leaf-2a"})))
    assert not [x for x in quiet.anomalies if x.kind == "SourcesDisagree"]


@pytest.mark.parametrize("silent", [False, True])
def test_a_host_without_carrier_is_not_cabled_whatever_a_switch_heard(silent: bool) -> None:
    now = CLOS.without(HOST_LEAF).inputs()
    before = CLOS.inputs().switch_ports["switch/leaf-1a"]
    inputs = replace(now, switch_ports={**now.switch_ports, "switch/leaf-1a": before})
    if silent:  # the host is: its agent has not seen that the cable is back
        inputs = replace(inputs, silent=frozenset({"h11"}))
    assert (ends(HOST_LEAF) in dict(links(infer(inputs).links))) == silent


@pytest.mark.parametrize(
    ("neighbour", "known_as"),
    [
        pytest.param(
            ("mac", mac(("h11", "eth0")), "mac", mac(("h11", "eth0"))), "eth0", id="the adapter's own agent"
        ),
        pytest.param(("mac", mac(("h11", "eth1")), "ifname", "eth0"), "eth0", id="the host's lldpd"),
        pytest.param(
            ("mac", mac(("h11", "eth1")), "local", "eth0"), "eth0", id="its interface, however it says so"
        ),
        pytest.param(
            ("mac", mac(("h11", "eth1")), "ifname", "bond0"), "bond0", id="an interface that is none of its"
        ),
        pytest.param(("local", "h11", "ifname", "eth0"), "eth0", id="only a name"),
        pytest.param(("mac", "02:ff:ff:ff:ff:ff", "mac", "02:ff:ff:ff:ff:fe"), None, id="a stranger"),
    ],
)
def test_a_host_is_known_by_its_addresses_and_by_its_name_last(
    neighbour: tuple[str, str, str, str], known_as: str | None
) -> None:
    heard = LldpNeighbour(*neighbour, 120, system_name="h11", capabilities=("Station",))
    wiring = replace(CLOS, deaf=[("h11", "eth0")])
    topology = infer(said(wiring, "switch/leaf-1a", "swp1", neighbours=(heard,)))
    device, port = ("h11", known_as) if known_as else (neighbour[1], neighbour[3])
    leaf = (chassis("leaf-1a"), "swp1")
    assert dict(links(topology.links))[frozenset([leaf, (device, port)])] == ("switch",)
    assert len(topology.links) == len(CLOS.cables)
    unknown = [x.subject.device for x in topology.anomalies if x.kind == "UnknownHost"]
    assert unknown == ([] if known_as else [neighbour[1]])
    (note,) = notes(topology).values() if not known_as else ("it announces the name h11, and has none",)
    assert note.startswith("it announces the name h11, and has none")


def test_an_address_that_two_nodes_have_names_neither() -> None:
    inputs = replace(CLOS, deaf=[("h11", "eth0")]).inputs()
    twin = tuple(
        replace(p, mac=mac(("h11", "eth0"))) if p.interface == "eth0" else p for p in inputs.lldp["h12"]
    )
    found = dict(links(infer(replace(inputs, lldp={**inputs.lldp, "h12": twin})).links))
    assert ends(HOST_LEAF) not in found


def test_a_linux_host_that_routes_and_has_no_agent_does_no_harm() -> None:
    """It talks like a switch (docker makes it one); it hangs on both leaves of a unit, as hosts do."""
    wiring = replace(
        CLOS,
        cables=[*CLOS.cables, "leaf-1a/swp20 box/eth0", "leaf-1b/swp20 box/eth1"],
        agents=_devices(CLOS),
        talkers=["box"],
    )
    topology = infer(wiring.inputs())
    assert [d for d in domains(topology) if d[0] == 1] == TWO_TIERS[:2]
    assert all("box" not in h.nodes for h in topology.hypernodes)


def test_a_switch_that_calls_itself_a_station_is_one_all_the_same() -> None:
    """lldpd says so where forwarding is off in the kernel; its own agent knows better."""
    inputs = CLOS.inputs()

    def modest(ports: tuple[object, ...]) -> tuple[object, ...]:
        return tuple(
            replace(p, neighbours=tuple(replace(n, capabilities=("Station",)) for n in p.neighbours))  # type: ignore[type-var, attr-defined]
            for p in ports
        )

    quiet = replace(
        inputs,
        lldp={name: modest(ports) for name, ports in inputs.lldp.items()},  # type: ignore[misc]
        switch_ports={name: modest(ports) for name, ports in inputs.switch_ports.items()},  # type: ignore[misc]
    )
    assert to_json(infer(quiet)) == to_json(infer(inputs))


def test_two_switches_with_one_chassis_id_are_named() -> None:
    inputs = CLOS.inputs()
    cloned = tuple(replace(p, chassis_id=chassis("leaf-1a")) for p in inputs.switch_ports["switch/leaf-1b"])

    def heard(ports: Any) -> Any:
        return tuple(
            replace(
                port,
                neighbours=tuple(
                    replace(n, chassis_id=chassis("leaf-1a")) if n.system_name == "leaf-1b" else n
                    for n in port.neighbours
                ),
            )
            for port in ports
        )

    both = replace(
        inputs,
        lldp={name: heard(ports) for name, ports in inputs.lldp.items()},
        switch_ports={
            name: heard(cloned if name == "switch/leaf-1b" else ports)
            for name, ports in inputs.switch_ports.items()
        },
    )
    messages = [x.message for x in infer(both).anomalies if "one chassis id" in x.message]
    assert len(messages) == 1
    assert messages[0].startswith("switch/leaf-1a, switch/leaf-1b announce one chassis id, ")
    renamed = infer(replace(both, silent=frozenset({"switch/leaf-1a"})))
    assert not [x for x in renamed.anomalies if "announce one chassis id" in x.message]


# --- which cables shape


MANAGED = Wiring(
    [
        *clos(),
        *(f"mgmt-{u}/swp{i} h{u}{i}/mgmt0" for u in (1, 2) for i in (1, 2, 3)),
        "mgmt-1/swp40 mgmt-core/swp1",
        "mgmt-2/swp40 mgmt-core/swp2",
        *(f"mgmt-{u}/swp4{n} leaf-{u}{rail}/eth0" for u in (1, 2) for n, rail in ((1, "a"), (2, "b"))),
        "mgmt-core/swp9 spine-1/eth0",
    ]
)
SLOW = {cable(text)[0]: 1000 for text in MANAGED.cables if text.startswith("mgmt")}


@pytest.mark.parametrize(
    ("wiring", "options"),
    [
        pytest.param(replace(MANAGED, speeds_mbps=SLOW), InferOptions(), id="by its speed"),
        pytest.param(MANAGED, InferOptions(compute_ports="^eth"), id="by a pattern on hosts' ports"),
    ],
)
def test_a_management_network_does_not_shape(wiring: Wiring, options: InferOptions) -> None:
    topology = infer(wiring.inputs(), options)
    assert domains(topology) == TWO_TIERS
    assert topology.anomalies == ()
    assert len(topology.links) == len(wiring.cables)
    levels = {s.name: s.level for s in topology.switches}
    assert (levels["spine-1"], levels["mgmt-1"]) == (2, 0)
    if wiring.speeds_mbps:
        assert levels["mgmt-core"] == 0


def test_a_management_switch_without_any_host_does_not_shape() -> None:
    """Every switch's management port hangs on it, so it would be above all of them."""
    switches = sorted(d for d in _devices(CLOS) if is_switch(d))
    management = [f"mgmt-1/swp{i} {name}/eth0" for i, name in enumerate(switches)]
    slow = {cable(text)[0]: 1000 for text in management}
    topology = infer(Wiring([*CLOS.cables, *management], speeds_mbps=slow).inputs())
    assert domains(topology) == TWO_TIERS
    assert {s.name: s.level for s in topology.switches}["mgmt-1"] == 0


def test_beside_infiniband_nothing_of_ethernet_shapes() -> None:
    from hyperscout_formats.infiniband.ibnetdiscover import parse
    from hyperscout_inference.fabric.inputs import SweepSeen
    from support.small_fabric import TEXT

    net = fuse(replace(CLOS.inputs(), sweeps=(SweepSeen(parse(TEXT)),)), InferOptions())
    assert {net.fabrics[f] for f, shapes in zip(net.fabric, net.shapes, strict=True) if shapes} == {
        "infiniband"
    }


def test_a_peer_link_between_leaves_makes_no_tier() -> None:
    peered = [*clos(spines=0), "leaf-1a/swp40 leaf-1b/swp40", "leaf-2a/swp40 leaf-2b/swp40"]
    topology = infer(Wiring(peered).inputs())
    assert domains(topology) == TWO_TIERS[:2]
    assert topology.anomalies == ()
    above = infer(Wiring([*CLOS.cables, *peered[-2:]]).inputs())
    assert domains(above) == TWO_TIERS
    assert above.anomalies == ()


# --- what is gone


def test_a_pulled_cable_between_switches_is_named_by_both_ends() -> None:
    before = infer(CLOS.inputs())
    after = infer(CLOS.without(LEAF_SPINE).inputs(), previous=before)
    (lost,) = after.anomalies
    assert (lost.kind, lost.sources) == ("MissingLink", ("switch",))
    assert {f"{e.name}/{e.port}" for e in (lost.subject, lost.peer) if e} == {"leaf-1a/swp31", "spine-1/swp1"}
    (unit,) = (h for h in after.hypernodes if h.name == lost.hypernode)
    assert (unit.tier, unit.nodes) == TWO_TIERS[0]
    degraded = next(c for c in unit.conditions if c.type == "Degraded")
    assert (degraded.status, degraded.reason) == ("True", "LinksDown")
    assert degraded.message.startswith("1 of 4 uplinks down: leaf-1a/swp31 -> spine-1/swp1, seen by switch")
    assert [h.name for h in after.hypernodes] == [h.name for h in before.hypernodes]
    again = infer(CLOS.inputs(), previous=after)
    assert again.anomalies == ()


def test_an_agent_that_is_silent_is_no_missing_cable() -> None:
    before = infer(CLOS.inputs())
    after = infer(replace(CLOS, silent=["leaf-1a", "spine-1", "spine-2"]).inputs(), previous=before)
    assert links(after.links) == links(before.links)
    assert after.anomalies == ()


# --- any evidence


@given(data=st.data())
def test_a_cable_that_either_end_reports_is_there_once(data: st.DataObject) -> None:
    """As long as one end of each cable speaks, and all hosts say what they are."""
    switches = sorted(d for d in _devices(CLOS) if is_switch(d))
    quiet = data.draw(st.sets(st.sampled_from(switches)))
    deaf = set()
    for text in CLOS.cables:
        a, b = cable(text)
        able = [end for end in (a, b) if end[0] not in quiet]
        if not able:
            quiet = quiet - {a[0], b[0]}
            able = [a, b]
        if len(able) == 2 and data.draw(st.booleans()):
            deaf.add(data.draw(st.sampled_from(able)))
    deaf = {end for end in deaf if not any(e in deaf or e[0] in quiet for e in _other(end))}
    wiring = replace(CLOS, agents=[d for d in _devices(CLOS) if d not in quiet], deaf=deaf)
    topology = infer(wiring.inputs())
    assert domains(topology) == TWO_TIERS
    assert {x for x, _ in links(topology.links)} == {ends(text) for text in CLOS.cables}
    assert len(topology.links) == len(CLOS.cables)
    assert topology.anomalies == ()


IDS = st.sampled_from(["", "a", "02:00:00:00:00:01", "02:00:00:00:00:02", "02:00:00:00:00:03"])
SUBTYPES = st.sampled_from(["mac", "ifname", "local"])
HEARD = st.builds(
    LldpNeighbour,
    SUBTYPES,
    IDS,
    SUBTYPES,
    IDS,
    st.just(120),
    system_name=IDS,
    capabilities=st.sampled_from([(), ("Station",), ("Bridge",), ("Bridge", "Station")]),
)
SAID = st.builds(
    SwitchPort,
    IDS,
    SUBTYPES,
    IDS,
    st.lists(HEARD, max_size=3).map(tuple),
    system_name=IDS,
    port_id_subtype=SUBTYPES,
    port_id=IDS,
    mac=IDS,
    carrier=st.booleans(),
    speed_mbps=st.sampled_from([0, 1000, 100_000]),
)


@pytest.mark.slow
@examples(3)
@given(
    said=st.dictionaries(st.sampled_from(["switch/a", "switch/b", "switch/c"]), st.lists(SAID, max_size=4)),
    silent=st.sets(st.sampled_from(["switch/a", "switch/b", "h11"])),
    seed=st.integers(0, 99),
)
def test_any_evidence_in_any_order_gives_the_same(
    said: dict[str, list[SwitchPort]], silent: set[str], seed: int
) -> None:
    hosts = CLOS.inputs().lldp
    rng = Random(seed)
    one = FabricInputs(
        lldp=hosts, switch_ports={n: tuple(p) for n, p in said.items()}, silent=frozenset(silent)
    )
    names = list(said)
    rng.shuffle(names)
    other = replace(
        one,
        lldp=dict(reversed(hosts.items())),
        switch_ports={n: tuple(said[n]) for n in names},
    )
    found = infer(one)
    assert to_json(found) == to_json(infer(other))
    ports = [
        end
        for x in found.links
        if x.sources == ("switch",)
        for end in ((x.a_device, x.a_port), (x.b_device, x.b_port))
    ]
    between = [p for p in ports if p[0] not in hosts]
    assert all(x.a_device != x.b_device or x.note for x in found.links)
    assert len(between) >= len(set(between))


def _devices(wiring: Wiring) -> list[str]:
    return sorted({device for text in wiring.cables for device, _ in cable(text)})


def _other(end: tuple[str, str]) -> list[tuple[str, str]]:
    return [b if end == a else a for a, b in map(cable, CLOS.cables) if end in (a, b)]
