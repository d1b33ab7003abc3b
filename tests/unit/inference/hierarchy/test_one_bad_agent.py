"""One agent reports anything within its probes: the domains, anomalies and conditions of all others stay."""

from collections.abc import Collection
from dataclasses import replace

from hyperscout_formats.facts.facts import InfinibandPort, LldpNeighbour, LldpPort, SwitchPort
from hyperscout_formats.infiniband.ibnetdiscover import parse
from hyperscout_formats.text.reporters import switch_reporter
from hyperscout_inference.fabric.inputs import FabricInputs, InferOptions, SweepSeen
from hyperscout_inference.hierarchy import infer
from hyperscout_sim.fabric import shapes
from hyperscout_sim.readings.sweep_text import sweep_text
from hyperscout_sim.readings.sysfs import port_facts
from hyperscout_topology.topology import Anomaly, Topology
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples
from support.switched import Wiring, chassis, clos, mac

NAMES = st.sampled_from(["leaf-1a", "leaf-2a", "spine-1", "spine-2", "zzz", ""])


def check_unharmed(
    before: Topology,
    after: Topology,
    own: Collection[str],
    devices: Collection[str],
    *,
    conditions: bool = True,
) -> None:
    """`own`: the nodes that the liar may harm. `devices`: the ids of its own devices. `conditions`: those of
    domains without the liar stay, too."""
    harmed = frozenset(own)

    def members(topology: Topology) -> set[tuple[int, frozenset[str]]]:
        found = {(h.tier, frozenset(h.nodes) - harmed) for h in topology.hypernodes}
        return {(tier, nodes) for tier, nodes in found if nodes}

    def is_about_the_liar(x: Anomaly) -> bool:
        ends = [x.subject, *([x.peer] if x.peer else [])]
        return any(end.device in devices or end.name in harmed for end in ends)

    assert members(after) == members(before)
    kept = {h.name: h for h in after.hypernodes}
    for h in before.hypernodes:
        # The liar may move itself, and its reports count against the domain that it is in.
        mine = harmed & {*h.nodes, *(kept[h.name].nodes if h.name in kept else h.nodes)}
        if not mine and not set(devices) & set(h.switches):
            assert kept[h.name] == h or not conditions
    odd = [x for x in after.anomalies if x not in before.anomalies and not is_about_the_liar(x)]
    assert odd == []
    assert set(after.nodes_without_evidence) <= harmed


# --- adapters and the states of their ports

FABRIC = shapes.clos2(3, 3, 2)
ADAPTERS = {x.host: x for x in FABRIC.adapters}
CABLES = {c.a: c for c in FABRIC.cables}
OPTIONS = InferOptions(cluster_nodes=frozenset(FABRIC.hosts))
GUIDS = st.sampled_from(
    [x.guid for x in FABRIC.adapters]
    + [x.port_guid for x in FABRIC.adapters]
    + [x.guid for x in FABRIC.switches]
    + [0, 77]
)


@st.composite
def any_adapters(draw: st.DrawFn) -> tuple[InfinibandPort, ...]:
    base = port_facts(FABRIC.adapters[0], FABRIC.cables[0])
    return tuple(
        replace(
            base,
            device=f"mlx5_{i}",
            port=draw(st.integers(1, 6)),
            node_guid=draw(GUIDS),
            port_guid=draw(GUIDS),
            state=draw(st.sampled_from(["ACTIVE", "DOWN", "INIT"])),
        )
        for i in range(draw(st.integers(0, 12)))
    )


@given(any_adapters(), st.sampled_from(FABRIC.hosts), st.booleans(), st.booleans())
@examples(0.5)
def test_adapters_and_port_states(
    ports: tuple[InfinibandPort, ...], liar: str, described: bool, adds: bool
) -> None:
    """`adds`: to what it has. Without descriptions the published topology is the witness."""
    fabric = (
        FABRIC
        if described
        else replace(FABRIC, adapters=tuple(replace(x, description="MT4129") for x in FABRIC.adapters))
    )
    own = {host: (port_facts(x, CABLES[x.guid]),) for host, x in ADAPTERS.items()}
    sweep = SweepSeen(parse(sweep_text(fabric)), observed_at_ns=1)
    honest = FabricInputs(sweeps=(sweep,), infiniband=own, infiniband_at_ns=dict.fromkeys(own, 2))
    before = infer(honest, OPTIONS)
    false = {**own, liar: (own[liar] if adds else ()) + ports}
    after = infer(replace(honest, infiniband=false), OPTIONS, before)
    check_unharmed(before, after, [liar], {f"{ADAPTERS[liar].guid:016x}"})


# --- LLDP

WIRING = clos(units=3, hosts=4, spines=2, rails=1)
HOSTS = [f"h{unit}{i}" for unit in (1, 2, 3) for i in (1, 2, 3, 4)]
SWITCHES = ["leaf-1a", "leaf-2a", "leaf-3a", "spine-1", "spine-2"]
INVENTED = "02:00:00:00:00:77"
ALL = Wiring(WIRING)
NODES = InferOptions(cluster_nodes=frozenset(HOSTS))
PORTS = st.sampled_from([f"swp{i}" for i in (1, 2, 3, 9, 31, 32)])
CHASSIS = st.sampled_from([*(chassis(name) for name in SWITCHES), INVENTED])


@st.composite
def any_neighbour(draw: st.DrawFn) -> LldpNeighbour:
    return LldpNeighbour(
        "mac",
        draw(CHASSIS),
        "ifname",
        draw(PORTS),
        120,
        system_name=draw(NAMES),
        capabilities=draw(st.sampled_from([("Bridge", "Router"), ("Station",), ()])),
    )


@given(st.lists(any_neighbour(), max_size=2), st.sampled_from(HOSTS))
@examples(0.5)
def test_lldp_of_a_host(heard: list[LldpNeighbour], liar: str) -> None:
    honest = ALL.inputs()
    before = infer(honest, NODES)
    ports = tuple(
        LldpPort(f"eth{i}", (neighbour,), mac((liar, f"eth{i}")), True, 100_000)
        for i, neighbour in enumerate(heard)
    )
    false = replace(honest, lldp={**honest.lldp, liar: ports})
    after = infer(false, NODES, before)
    for found in (after, infer(false, NODES, after)):
        check_unharmed(before, found, [liar], {liar, mac((liar, "eth0")), INVENTED})


@st.composite
def any_switch_ports(draw: st.DrawFn) -> tuple[SwitchPort, ...]:
    ports = []
    for i in range(draw(st.integers(0, 8))):
        name = draw(st.sampled_from(SWITCHES))
        heard = tuple(draw(st.lists(any_neighbour(), max_size=2)))
        own = chassis(name), heard, draw(NAMES), "ifname", draw(PORTS)
        ports.append(SwitchPort(f"swp{i}", "mac", *own, carrier=draw(st.booleans()), speed_mbps=100_000))
    return tuple(ports)


@given(any_switch_ports(), st.sampled_from(SWITCHES), st.booleans())
@examples(0.5)
def test_reports_of_a_switch(ports: tuple[SwitchPort, ...], liar: str, adds: bool) -> None:
    honest = ALL.inputs()
    before = infer(honest, NODES)
    reporter = switch_reporter(liar)
    own = honest.switch_ports[reporter] if adds else ()
    after = infer(replace(honest, switch_ports={**honest.switch_ports, reporter: own + ports}), NODES, before)
    # A switch decides about its own cables: it may cut off its hosts, and a link of another switch is down.
    own = [host for host in HOSTS if liar == f"leaf-{host[1]}a"]
    check_unharmed(before, after, own, {chassis(liar), INVENTED}, conditions=False)
