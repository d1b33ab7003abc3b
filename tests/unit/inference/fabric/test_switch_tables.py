"""Switches that a crawler asked: tiers without agents on them, witnesses, and rows that are in doubt."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hyperscout_formats.facts.facts import LldpNeighbour, SwitchPort, SwitchTable
from hyperscout_inference.ethernet import switch_cables
from hyperscout_inference.ethernet.fusion import ethernet
from hyperscout_inference.fabric.inputs import FabricInputs, InferOptions, SwitchTableSeen
from hyperscout_inference.hierarchy import infer
from hyperscout_topology.objects import to_json
from hyperscout_topology.topology import Topology
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

CABLES = clos()
DEVICES = sorted({device for text in CABLES for device, _ in cable(text)})
SWITCHES = [d for d in DEVICES if is_switch(d)]
HOSTS = [d for d in DEVICES if not is_switch(d)]
ASKED = Wiring(CABLES, agents=HOSTS, asked=SWITCHES)
FILES = replace(ASKED, agents=[], named=HOSTS, asked_at_ns=0)
LEAF_SPINE, HOST_LEAF = "leaf-1a/swp31 spine-1/swp1", "leaf-1a/swp1 h11/eth0"


def shown(topology: Topology) -> dict[frozenset[tuple[str, str]], tuple[str, ...]]:
    return dict(links(topology.links))


def odd(topology: Topology, kind: str = "SourcesDisagree") -> list[str]:
    return [x.message for x in topology.anomalies if x.kind == kind]


def with_port(inputs: FabricInputs, switch: str, port: str, **change: object) -> FabricInputs:
    """Something else is said of one port in the table of a switch."""

    def changed(seen: SwitchTableSeen) -> SwitchTableSeen:
        if seen.table.ports[0].system_name != switch:
            return seen
        ports = tuple(replace(p, **change) if p.interface == port else p for p in seen.table.ports)  # type: ignore[arg-type]
        return replace(seen, table=replace(seen.table, ports=ports))

    return replace(inputs, tables=tuple(map(changed, inputs.tables)))


def renamed(inputs: FabricInputs, new: Callable[[SwitchPort], SwitchPort]) -> FabricInputs:
    """Each port of each table as `new` has it; its neighbours as they were."""
    return replace(
        inputs,
        tables=tuple(
            replace(seen, table=replace(seen.table, ports=tuple(map(new, seen.table.ports))))
            for seen in inputs.tables
        ),
    )


# --- witnesses


@pytest.mark.parametrize("wiring", [ASKED, FILES], ids=["hosts with agents", "walks alone"])
def test_two_tiers_from_switches_that_were_asked(wiring: Wiring) -> None:
    topology = infer(wiring.inputs())
    assert domains(topology) == TWO_TIERS
    assert topology.anomalies == ()
    assert {s.name: s.level for s in topology.switches} == {
        **dict.fromkeys(("leaf-1a", "leaf-1b", "leaf-2a", "leaf-2b"), 1),
        **dict.fromkeys(("spine-1", "spine-2"), 2),
    }
    assert topology.nodes_without_evidence == ()
    assert topology.foreign_endpoints == ()
    by = ("snmp",) if wiring is FILES else ("lldp", "snmp")
    assert shown(topology) == {
        ends(text): ("snmp",) if all(is_switch(d) for d, _ in cable(text)) else by for text in CABLES
    }
    assert notes(topology) == {}


def test_a_cable_has_three_witnesses() -> None:
    """Its host, the switch's own agent, and the crawler that asked the switch."""
    topology = infer(replace(ASKED, agents=None).inputs())
    assert set(shown(topology).values()) == {("lldp", "snmp", "switch"), ("snmp", "switch")}
    assert len(topology.links) == len(CABLES)
    netq = replace(ASKED, agents=None).inputs()
    tables = (*netq.tables, *(replace(seen, source="netq") for seen in netq.tables))
    assert shown(infer(replace(netq, tables=tables)))[ends(HOST_LEAF)] == ("lldp", "netq", "snmp", "switch")


@pytest.mark.parametrize(
    ("asked", "cables"),
    [
        pytest.param([s for s in SWITCHES if s.startswith("leaf")], CABLES, id="the spines do not answer"),
        pytest.param([s for s in SWITCHES if s.startswith("spine")], CABLES, id="the leaves do not answer"),
        pytest.param([s for s in SWITCHES if s != "leaf-1a"], CABLES, id="one leaf does not"),
        pytest.param(
            ["leaf-1a", "core-1"],
            [*CABLES, "spine-1/swp40 core-1/swp1", "spine-2/swp40 core-1/swp2"],
            id="a spine between two that do",
        ),
    ],
)
def test_a_switch_that_does_not_answer_is_one_all_the_same(asked: list[str], cables: list[str]) -> None:
    topology = infer(replace(ASKED, cables=cables, asked=asked).inputs())
    seen = [t for t in cables if any(d in asked or not is_switch(d) for d, _ in cable(t))]
    assert set(shown(topology)) == {ends(text) for text in seen}
    named = {s.name for s in topology.switches}
    assert named == {d for t in seen for d, _ in cable(t) if is_switch(d)}
    if cables is CABLES:
        assert domains(topology) == TWO_TIERS


# --- what is gone, and which witness is believed


@pytest.mark.parametrize("late", ["leaf-1a", "spine-1", None])
def test_a_pulled_cable_is_named_by_both_ends_as_soon_as_one_was_asked_again(late: str | None) -> None:
    """`late`: of this switch the table is still the one from before."""
    before = infer(ASKED.inputs())
    was, now = ASKED.inputs(), ASKED.without(LEAF_SPINE).inputs()
    old = {seen.table.ports[0].system_name: seen for seen in was.tables}
    tables = tuple(old[late] if seen.table.ports[0].system_name == late else seen for seen in now.tables)
    topology = infer(replace(now, tables=tables), previous=before)
    (lost,) = topology.anomalies
    assert lost.kind == "MissingLink"
    assert {f"{e.name}/{e.port}" for e in (lost.subject, lost.peer) if e} == {"leaf-1a/swp31", "spine-1/swp1"}
    (unit,) = (h for h in topology.hypernodes if h.name == lost.hypernode)
    degraded = next(c for c in unit.conditions if c.type == "Degraded")
    assert degraded.message.startswith("1 of 4 uplinks down: leaf-1a/swp31 -> spine-1/swp1, seen by snmp")
    assert [h.name for h in topology.hypernodes] == [h.name for h in before.hypernodes]
    assert infer(ASKED.inputs(), previous=topology).anomalies == ()


def test_a_moved_host_cable_is_named_and_its_host_stays() -> None:
    wider = Wiring(clos(hosts=4, rails=4), agents=None)
    devices = {d for t in wider.cables for d, _ in cable(t)}
    wider = replace(
        wider, agents=[d for d in devices if not is_switch(d)], asked=[d for d in devices if is_switch(d)]
    )
    moved = [t for t in wider.cables if t != HOST_LEAF] + ["leaf-2a/swp20 h11/eth0"]
    topology = infer(replace(wider, cables=moved).inputs(), previous=infer(wider.inputs()))
    assert [n for h in topology.hypernodes if "h11" in h.nodes and h.tier == 1 for n in h.nodes] == [
        "h11",
        "h12",
        "h13",
        "h14",
    ]
    assert odd(topology, "Miswired")[0].startswith("h11/eth0 is plugged into leaf-2a/swp20")
    (unit,) = (h for h in topology.hypernodes if "h11" in h.nodes and h.tier == 1)
    assert {c.type: c.status for c in unit.conditions}["Consistent"] == "False"


def test_a_table_that_is_silent_gives_way_and_is_no_missing_cable() -> None:
    before = infer(ASKED.inputs())
    silent = infer(replace(ASKED, silent=["leaf-1a", "spine-1"]).inputs(), previous=before)
    assert silent.anomalies == ()
    assert links(silent.links) == links(before.links)
    moved = [t for t in CABLES if t != LEAF_SPINE] + ["leaf-1a/swp31 spine-2/swp9"]
    now = replace(ASKED, cables=moved).inputs()
    old = replace(ASKED, silent=["spine-1"]).inputs()
    tables = tuple(
        next(t for t in old.tables if t.silent) if seen.table.ports[0].system_name == "spine-1" else seen
        for seen in now.tables
    )
    topology = infer(replace(now, tables=tables))
    assert ends(LEAF_SPINE) not in shown(topology)
    assert ends("leaf-1a/swp31 spine-2/swp9") in shown(topology)
    assert odd(topology) == []


def test_a_neighbour_still_heard_on_a_port_that_is_down_is_gone() -> None:
    """The switch has not forgotten its neighbour yet."""
    inputs = with_port(
        replace(ASKED, asked=["leaf-1a", "leaf-1b"]).inputs(), "leaf-1a", "swp31", carrier=False
    )
    topology = infer(inputs)
    assert ends(LEAF_SPINE) not in shown(topology)
    assert notes(topology) == {}


def test_a_switch_s_own_agent_knows_better_than_an_old_table() -> None:
    agents = replace(ASKED, agents=None)
    inputs = replace(agents.without(LEAF_SPINE).inputs(), tables=agents.inputs().tables)
    topology = infer(inputs, previous=infer(agents.inputs()))
    assert ends(LEAF_SPINE) not in shown(topology)
    assert [x.kind for x in topology.anomalies] == ["MissingLink"]


def test_in_files_no_time_says_which_was_first_so_a_dark_port_is_noted() -> None:
    inputs = with_port(FILES.inputs(), "leaf-1a", "swp31", neighbours=(), carrier=False)
    topology = infer(inputs)
    assert notes(topology) == {ends(LEAF_SPINE): "does not count: leaf-1a/swp31 is down"}
    assert len(topology.links) == len(CABLES)
    assert odd(topology, "MissingLink")  # it does not shape, so its peers tell that it is missing
    both = infer(with_port(FILES.inputs(), "leaf-1a", "swp31", carrier=False))
    assert notes(both) == {ends(LEAF_SPINE): "does not count: leaf-1a/swp31 is down"}


# --- names and numbers that do not fit


def test_a_port_that_neighbours_hear_under_another_name_is_one_cable() -> None:
    """The leaves' tables call their ports otherwise than the leaves announce them."""

    def numbered(said: SwitchPort) -> SwitchPort:
        if not said.system_name.startswith("leaf"):
            return said
        return replace(said, port_id=f"5{said.port_id[3:]}", port_id_subtype="local")

    topology = infer(renamed(ASKED.inputs(), numbered))
    assert domains(topology) == TWO_TIERS
    assert len(topology.links) == len(CABLES)  # the interface is what they announce
    assert topology.anomalies == ()
    strange = renamed(ASKED.inputs(), lambda said: replace(numbered(said), interface=f"x{said.interface}"))
    topology = infer(strange)
    assert domains(topology) == TWO_TIERS
    assert len(topology.links) == len(CABLES)
    leaf = chassis("leaf-1a")
    between = frozenset([(leaf, "531"), (chassis("spine-1"), "swp1")])
    assert notes(topology)[between] == "spine-1/swp1 reports the other end as port swp31"
    host = frozenset([(leaf, "51"), ("h11", "eth0")])
    assert notes(topology)[host] == "h11/eth0 reports this port as swp1"
    assert shown(topology)[host] == ("lldp", "snmp")


def test_each_end_under_another_name_is_one_cable_where_there_is_one_only() -> None:
    one = Wiring(["leaf-1/swp1 spine-1/swp1", "leaf-2/swp1 spine-1/swp2"], [], asked=["leaf-1", "spine-1"])
    inputs = renamed(
        one.inputs(), lambda said: replace(said, port_id=f"9{said.port_id}", interface=f"x{said.port_id}")
    )
    topology = infer(inputs)
    assert len(topology.links) == 2
    assert next(note for note in notes(topology).values()).startswith("each end reports an unknown port")


def test_ports_that_share_a_port_id_go_by_their_interface() -> None:
    inputs = renamed(FILES.inputs(), lambda said: replace(said, port_id="same"))
    topology = infer(inputs)
    assert len(topology.links) == len(CABLES)
    assert domains(topology) == TWO_TIERS


@pytest.mark.parametrize("sign", ["address", "name", "cable", "mac"])
def test_a_switch_that_keeps_its_chassis_id_to_itself_is_the_one_that_is_heard(sign: str) -> None:
    """All leaves' tables go by made-up names, and nothing but one sign tells which switches they are."""

    def nameless(seen: SwitchTableSeen) -> SwitchTableSeen:
        name = seen.table.ports[0].system_name
        if not name.startswith("leaf"):
            return seen
        ports = tuple(
            replace(
                p,
                chassis_id=f"walk-{name}",
                chassis_id_subtype="",
                system_name=name if sign == "name" else "",
                mac=chassis(name) if sign == "mac" and i == 3 else "",
                interface=p.interface if sign == "cable" else f"x{p.interface}",
                port_id=p.port_id if sign == "cable" else f"x{p.port_id}",
            )
            for i, p in enumerate(seen.table.ports)
        )
        return replace(
            seen, table=replace(seen.table, ports=ports, addresses=seen.table.addresses * (sign == "address"))
        )

    inputs = ASKED.inputs()
    topology = infer(replace(inputs, tables=tuple(map(nameless, inputs.tables))))
    assert domains(topology) == TWO_TIERS
    assert len(topology.links) == len(CABLES)
    assert {s.id for s in topology.switches} == {chassis(s) for s in SWITCHES}
    assert topology.anomalies == ()


def test_a_device_without_a_chassis_id_is_no_switch_s_namesake() -> None:
    """A switch that does not tell its id, and a neighbour of it that has its name and no id either."""
    own = SwitchPort(
        "swp1", "", "walk", (LldpNeighbour("", "", "local", "?", 120, system_name="x"),), "x", "", "swp1"
    )
    topology = infer(FabricInputs(tables=(SwitchTableSeen(SwitchTable((own,))),)))
    assert [s.id for s in topology.switches] == ["walk"]


def test_two_switches_of_one_name_are_told_apart() -> None:
    def alike(said: SwitchPort) -> SwitchPort:
        return replace(
            said, system_name="leaf" if said.system_name in ("leaf-1a", "leaf-2b") else said.system_name
        )

    topology = infer(renamed(ASKED.inputs(), alike))
    assert domains(topology) == TWO_TIERS
    assert len({s.name for s in topology.switches}) == 6
    assert {s.name for s in topology.switches if s.id == chassis("leaf-1a")} == {"leaf-2d3161"}
    (message,) = odd(topology)
    assert message == (
        "2 switches announce the name leaf: here they are leaf-2d3161 (02:61:66:2d:31:61), "
        "leaf-2d3262 (02:61:66:2d:32:62)"
    )


def test_a_switch_in_another_s_place_keeps_the_name() -> None:
    inputs = replace(ASKED, silent=["leaf-2b"]).inputs()
    topology = infer(
        renamed(
            inputs,
            lambda p: replace(p, system_name="leaf-1a" if p.system_name == "leaf-2b" else p.system_name),
        )
    )
    assert {s.id: s.name for s in topology.switches}[chassis("leaf-1a")] == "leaf-1a"
    assert odd(topology) == []


def test_a_chassis_id_that_two_tables_have_under_two_names_is_named() -> None:
    inputs = ASKED.inputs()
    cloned = tuple(
        replace(p, chassis_id=chassis("leaf-1a"))
        for seen in inputs.tables
        for p in seen.table.ports
        if p.system_name == "leaf-1b"
    )
    tables = (*inputs.tables, SwitchTableSeen(SwitchTable(cloned, ("10.0.0.9",)), observed_at_ns=1))
    messages = odd(infer(replace(inputs, tables=tables)))
    assert any(m.startswith("leaf-1a, leaf-1b announce one chassis id, ") for m in messages)
    again = (
        *inputs.tables,
        replace(inputs.tables[0], table=replace(inputs.tables[0].table, addresses=("::1",))),
    )
    assert infer(replace(inputs, tables=again)).anomalies == ()  # one switch at two addresses


# --- hosts without agents


@pytest.mark.parametrize("how", ["by name", "by chassis id"])
def test_a_host_without_an_agent_is_known_by_its_name_else_by_its_chassis_id(how: str) -> None:
    wiring = replace(
        ASKED, agents=[h for h in HOSTS if h != "h13"], named=["h13"] if how == "by name" else []
    )
    topology = infer(wiring.inputs())
    if how == "by name":
        assert domains(topology) == TWO_TIERS
        assert topology.anomalies == ()
        return
    strangers = {mac(("h13", "eth0")), mac(("h13", "eth1"))}
    (unit,) = (h for h in topology.hypernodes if h.tier == 1 and "h11" in h.nodes)
    assert set(unit.nodes) == {"h11", "h12", *strangers}
    assert {x.subject.device for x in topology.anomalies if x.kind == "UnknownHost"} == strangers
    assert "leaf-1a/swp3 is claimed by no agent" in " ".join(odd(topology, "UnknownHost"))
    assert {x.kind for x in topology.anomalies} == {"UnknownHost"}


def test_a_node_that_the_cluster_lists_is_known_by_its_name_even_if_it_routes() -> None:
    wiring = replace(ASKED, agents=[h for h in HOSTS if h != "h13"], named=["h13"], talkers=["h13"])
    topology = infer(wiring.inputs(), InferOptions(cluster_nodes=frozenset(HOSTS)))
    assert domains(topology) == TWO_TIERS
    unlisted = infer(wiring.inputs())
    assert "h13" not in {n for h in unlisted.hypernodes for n in h.nodes}


@pytest.mark.parametrize(
    ("neighbour", "what"),
    [
        (("mac", "02:00:00:00:00:99", "ifname", "eth0", "nfs-01", ("Station",)), "foreign"),
        (("mac", "02:00:00:00:00:99", "ifname", "eth0", "SEP0011", ("Tel",)), "foreign"),
        (("mac", "02:00:00:00:00:99", "ifname", "eth0", "h99", ("Station",)), "host"),
        (("mac", "02:00:00:00:00:99", "ifname", "eth0", "localhost", ("Station",)), "unknown"),
        (("mac", "02:00:00:00:00:99", "mac", "02:00:00:00:00:99", "", ()), "unknown"),
        (("mac", "02:00:00:00:00:99", "ifname", "swp1", "edge", ()), "switch"),
        (("mac", "junk", "ifname", "eth0", "h99", ("Station",)), "foreign"),
        (("", "10.0.0.1", "local", "unknown at swp20", "", ()), "foreign"),
        (("", "", "local", "", "", ()), "foreign"),
        (("", "", "local", "unknown at swp20", "", ("Bridge",)), "switch"),
    ],
)
def test_which_device_is_in_a_leaf_s_port(
    neighbour: tuple[str, str, str, str, str, tuple[str, ...]], what: str
) -> None:
    *identity, name, can = neighbour
    heard = LldpNeighbour(*identity, 120, system_name=name, capabilities=can)  # type: ignore[arg-type]
    leaf = replace(
        ASKED.inputs().tables[0].table.ports[0], interface="swp20", port_id="swp20", neighbours=(heard,)
    )
    inputs = ASKED.inputs()
    first = inputs.tables[0]
    more = replace(first, table=replace(first.table, ports=(*first.table.ports, leaf)))
    topology = infer(replace(inputs, tables=(more, *inputs.tables[1:])))
    assert len(topology.links) == len(CABLES) + 1
    nodes = {n for h in topology.hypernodes for n in h.nodes} - set(HOSTS)
    assert nodes == {"host": {"h99"}, "unknown": {neighbour[1]}}.get(what, set())
    assert bool(topology.foreign_endpoints) == (what == "foreign")
    assert len(topology.switches) == 6 + (what == "switch")
    kinds = {x.kind for x in topology.anomalies} - {"MissingLink"}  # of a host with one cable
    assert kinds == ({"UnknownHost"} if what == "unknown" else set())


def test_a_name_that_two_machines_have_names_neither() -> None:
    heard = [
        LldpNeighbour(
            "mac",
            f"02:00:00:00:00:9{i}",
            "ifname",
            "eth0",
            120,
            system_name="ubuntu",
            capabilities=("Station",),
        )
        for i in range(2)
    ]
    inputs = FILES.inputs()
    first = inputs.tables[0]
    more = tuple(
        replace(first.table.ports[0], interface=f"swp2{i}", port_id=f"swp2{i}", neighbours=(n,))
        for i, n in enumerate(heard)
    )
    table = replace(first.table, ports=(*first.table.ports, *more))
    topology = infer(replace(inputs, tables=(replace(first, table=table), *inputs.tables[1:])))
    assert {x.subject.device for x in topology.anomalies} == {n.chassis_id for n in heard}


def test_a_host_s_file_and_a_switch_s_walk_tell_of_one_cable() -> None:
    """What `lldpctl` prints has no addresses of the host's own ports: the cable itself identifies it."""
    inputs = replace(ASKED, asked_at_ns=0).inputs()
    lldp = {node: tuple(replace(p, mac="") for p in ports) for node, ports in inputs.lldp.items()}
    topology = infer(replace(inputs, lldp=lldp))
    assert topology.anomalies == ()
    assert set(shown(topology)) == {ends(text) for text in CABLES}
    assert shown(topology)[ends(HOST_LEAF)] == ("lldp", "snmp")


def test_of_several_hosts_in_one_port_it_is_none_without_an_address_of_theirs() -> None:
    inputs = ASKED.inputs()
    lldp = {node: tuple(replace(p, mac="") for p in ports) for node, ports in inputs.lldp.items()}
    twice = replace(inputs, lldp={**lldp, "h12": (lldp["h11"][0], *lldp["h12"][1:])})
    heard = [x for x in infer(twice).links if (chassis("leaf-1a"), "swp1") == (x.b_device, x.b_port)]
    assert {(x.a_device, x.sources) for x in heard} == {
        ("h11", ("lldp",)),
        ("h12", ("lldp",)),
        (mac(("h11", "eth0")), ("snmp",)),
    }


def test_the_ports_of_a_bond_are_told_apart_by_their_cables() -> None:
    """Both have the bond's address, and so the switches hear one address on two ports."""
    inputs = replace(ASKED, deaf=[]).inputs()
    own = mac(("h11", "eth0"))
    bond = tuple(replace(p, mac=own) for p in inputs.lldp["h11"])
    heard = (LldpNeighbour("mac", own, "mac", own, 120, capabilities=("Station",)),)
    inputs = with_port(
        replace(inputs, lldp={**inputs.lldp, "h11": bond}), "leaf-1b", "swp1", neighbours=heard
    )
    topology = infer(inputs)
    assert topology.anomalies == ()
    assert shown(topology)[ends("leaf-1b/swp1 h11/eth1")] == ("lldp", "snmp")


# --- too many


@pytest.mark.slow
def test_many_neighbours_on_one_port_are_all_there_and_named_once() -> None:
    count = 10_000
    crowd = tuple(
        LldpNeighbour(
            "mac",
            f"02:00:00:00:{i >> 8:02x}:{i & 255:02x}",
            "ifname",
            "eth0",
            120,
            system_name=f"box{i}",
            capabilities=("Station",),
        )
        for i in range(count)
    )
    inputs = with_port(ASKED.inputs(), "leaf-1a", "swp31", neighbours=crowd)
    topology = infer(inputs)
    assert domains(topology) == TWO_TIERS
    assert len(topology.links) == len(CABLES) + count  # the spine still hears the leaf
    assert (
        sum("reports several neighbours" in n or "is in another cable" in n for n in notes(topology).values())
        == count
    )
    assert len(topology.anomalies) < 20
    (message,) = (m for m in odd(topology) if "10000 neighbours" in m)
    assert message.startswith("leaf-1a/swp31 reports 10000 neighbours: ")


def test_many_hosts_on_one_switch_port_are_named_in_few_words() -> None:
    inputs = FabricInputs(
        lldp={f"n{i}": ASKED.inputs().lldp["h11"][:1] for i in range(200)},
    )
    topology = infer(inputs)
    assert len(topology.anomalies) == 4
    assert topology.anomalies[0].message.endswith("; 199 other hosts' ports report it, too")


def test_the_cable_that_both_ends_report_stands_beside_what_else_is_heard() -> None:
    inputs = ASKED.inputs()
    first = next(t for t in inputs.tables if t.table.ports[0].system_name == "leaf-1a")
    spine = next(p.neighbours[0] for p in first.table.ports if p.interface == "swp31")
    other = next(p.neighbours[0] for p in first.table.ports if p.interface == "swp32")
    topology = infer(with_port(inputs, "leaf-1a", "swp31", neighbours=(other, spine)))
    assert domains(topology) == TWO_TIERS
    assert "leaf-1a/swp31 is in another cable" in notes(topology)[ends("leaf-1a/swp31 spine-2/swp1")]
    assert ends(LEAF_SPINE) not in notes(topology)


def test_of_two_switches_on_one_port_neither_is_believed() -> None:
    inputs = replace(ASKED, asked=["leaf-1a", "leaf-1b"]).inputs()
    spine = next(p.neighbours[0] for p in inputs.tables[0].table.ports if p.interface == "swp31")
    both = (spine, replace(spine, chassis_id="02:00:00:00:00:77", system_name="spine-7"))
    topology = infer(with_port(inputs, "leaf-1a", "swp31", neighbours=both))
    assert set(notes(topology).values()) == {"does not count: leaf-1a/swp31 reports several neighbours"}
    assert len(notes(topology)) == 2
    assert any("reports 2 neighbours: spine-1/swp1, spine-7/swp1" in m for m in odd(topology))
    assert {s.level for s in topology.switches if s.name == "spine-7"} == {0}


# --- any evidence

IDS = st.sampled_from(
    ["", "a", "walk", chassis("leaf-1a"), chassis("spine-1"), "02:00:00:00:00:01", mac(("h11", "eth0"))]
)
SUBTYPES = st.sampled_from(["mac", "ifname", "local", ""])
PORTS = st.sampled_from(["", "swp1", "swp31", "eth0", "7"])
NAMES = st.sampled_from(["", "h11", "h12", "leaf-1a", "box", "nfs-1"])
HEARD = st.builds(
    LldpNeighbour,
    SUBTYPES,
    IDS,
    SUBTYPES,
    PORTS,
    st.just(120),
    system_name=NAMES,
    capabilities=st.sampled_from([(), ("Station",), ("Bridge",), ("Tel",)]),
    management_addresses=st.sampled_from([(), ("10.0.0.1",)]),
)


@st.composite
def tables(draw: st.DrawFn) -> SwitchTableSeen:
    """Any table that has a chassis id. Without one, what a table is taken for can depend on the order."""
    own, kind, name = draw(IDS.filter(bool)), draw(SUBTYPES), draw(NAMES)
    ports = draw(
        st.lists(
            st.builds(
                SwitchPort,
                PORTS,
                st.just(kind),
                st.just(own),
                st.lists(HEARD, max_size=3).map(tuple),
                system_name=st.just(name),
                port_id_subtype=SUBTYPES,
                port_id=PORTS,
                mac=IDS,
                carrier=st.booleans(),
                speed_mbps=st.sampled_from([0, 1000, 100_000]),
                doubt=st.sampled_from(["", "is a guess"]),
            ),
            max_size=4,
        )
    )
    return SwitchTableSeen(
        SwitchTable(tuple(ports), draw(st.sampled_from([(), ("10.0.0.1",)]))),
        draw(st.sampled_from(["snmp", "netq"])),
        draw(st.booleans()),
        draw(st.integers(0, 2)),
    )


@pytest.mark.slow
@examples(1)
@given(said=st.lists(tables(), max_size=4), agents=st.booleans())
def test_any_tables_in_any_order_give_the_same(said: list[SwitchTableSeen], agents: bool) -> None:
    base = replace(ASKED, agents=HOSTS if agents else [], asked=["spine-1"]).inputs()
    one = infer(replace(base, tables=(*base.tables, *said)))
    other = infer(replace(base, tables=(*reversed(said), *base.tables)))
    assert to_json(one) == to_json(other)
    # Whatever contradicts another cable, or itself, says so.
    at: dict[tuple[str, str], list[str]] = {}
    for x in one.links:
        for end in ((x.a_device, x.a_port), (x.b_device, x.b_port)):
            at.setdefault(end, []).append(x.note)
    switches = {s.id for s in one.switches}
    assert all(notes.count("") < 2 for end, notes in at.items() if end[0] in switches)


@examples(1)
@given(
    said=st.lists(tables(), max_size=3),
    quiet=st.sets(st.sampled_from(DEVICES), max_size=6),
    unasked=st.sets(st.sampled_from(SWITCHES), max_size=3),
    silent=st.sets(st.sampled_from(["leaf-1a", "spine-1", "h11"])),
    pulled=st.sets(st.sampled_from(sorted(CABLES)), max_size=3),
    deaf=st.sets(st.sampled_from([end for text in CABLES for end in cable(text)]), max_size=4),
    moved=st.sampled_from(
        [
            "",
            "leaf-1a/swp1 h21/eth0",
            "leaf-1a/swp9 h21/eth0",
            "leaf-1a/swp8 leaf-1a/swp9",
            "leaf-1a/swp1 leaf-1b/swp1",
            "leaf-2a/swp31 spine-1/swp1",
        ]
    ),
    guessed=st.sets(st.sampled_from(["swp1", "swp2", "swp31"])),
    down=st.sets(st.sampled_from(["swp2", "swp3", "swp32"]), max_size=1),
    impostor=st.booleans(),
    asked_at_ns=st.integers(0, 1),
)
@pytest.mark.slow
def test_clear_cables_are_what_settling_all_of_them_gives(
    said: list[SwitchTableSeen],
    quiet: set[str],
    unasked: set[str],
    silent: set[str],
    pulled: set[str],
    deaf: set[tuple[str, str]],
    moved: str,
    guessed: set[str],
    down: set[str],
    impostor: bool,
    asked_at_ns: int,
) -> None:
    """Undisputed cables are not gone through; that changes nothing."""
    wiring = replace(
        ASKED,
        agents=[d for d in DEVICES if d not in quiet],
        asked=[s for s in SWITCHES if s not in unasked],
        silent=silent - quiet,
        deaf=deaf,
        asked_at_ns=asked_at_ns,
    )
    inputs = renamed(
        wiring.without(*sorted(pulled)).inputs(),
        lambda port: replace(
            port,
            doubt="is a guess" if port.port_id in guessed else "",
            carrier=port.carrier and port.port_id not in down,
        ),
    )
    # What another reporter saw at another time.
    if moved:
        seen = {device for device, _ in cable(moved) if is_switch(device)}
        others = replace(ASKED, cables=[moved], agents=[], asked=sorted(seen), silent=silent)
        said = [*others.inputs().tables, *said]
    if impostor:
        stranger = "02:00:00:00:00:01"
        heard = LldpNeighbour(
            "mac", stranger, "mac", stranger, 120, system_name="h11", capabilities=("Station",)
        )
        own = chassis("leaf-1a")
        said.append(
            SwitchTableSeen(SwitchTable((SwitchPort("swp99", "mac", own, (heard,), port_id="swp99"),)))
        )
    inputs = replace(inputs, tables=(*inputs.tables, *said))
    found = infer(inputs)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(switch_cables, "undisputed", lambda fars, reports, hosts: ([], [], fars))
        assert to_json(infer(inputs)) == to_json(found)


def test_the_newest_report_names_a_device_on_two_switches() -> None:
    """An older reading of the first switch lacks the port, and the second switch is read in between."""
    disk = mac(("disk", ""))

    def port(switch: str, name: str, *neighbours: LldpNeighbour) -> SwitchPort:
        chassis_id = mac((switch, ""))
        return SwitchPort(name, "mac", chassis_id, neighbours, switch, "ifname", name, speed_mbps=1000)

    def device(name: str) -> LldpNeighbour:
        return LldpNeighbour(
            "mac", disk, "ifname", "eth0", 120, system_name=name, capabilities=("Telephone",)
        )

    readings = (
        ("netq", [port("leaf-1", "swp1")]),
        ("snmp", [port("leaf-2", "swp1", device("storage-b"))]),
        ("snmp", [port("leaf-1", "swp1"), port("leaf-1", "swp2", device("storage-a"))]),
    )
    tables = tuple(
        SwitchTableSeen(SwitchTable(tuple(ports), ("192.0.2.1",)), source, False, at_ns)
        for at_ns, (source, ports) in enumerate(readings, 1)
    )
    found = ethernet(FabricInputs(tables=tables), InferOptions())
    assert found is not None
    assert dict(zip(found.part.ids, found.part.names, strict=True))[disk] == "storage-a"
