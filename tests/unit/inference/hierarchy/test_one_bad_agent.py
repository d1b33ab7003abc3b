"""One agent reports anything within its probes: the domains, anomalies and conditions of all others stay."""

import hashlib
from dataclasses import replace
from typing import cast

import pytest
from hyperscout_collector.evidence.measurements import PairTables
from hyperscout_collector.evidence.rows import Row, row_of
from hyperscout_collector.evidence.snapshot import NO_EVIDENCE, resolve
from hyperscout_collector.evidence.sweep_texts import SweepTexts
from hyperscout_formats.facts.facts import (
    Gpu,
    InfinibandPort,
    LldpNeighbour,
    LldpPort,
    NvlinkFabric,
    SwitchPort,
)
from hyperscout_formats.infiniband.ibnetdiscover import Sweep, parse
from hyperscout_formats.text.reporters import switch_reporter
from hyperscout_inference.fabric.inputs import FabricInputs, InferOptions, SweepSeen
from hyperscout_inference.hierarchy import infer
from hyperscout_sim.fabric import shapes
from hyperscout_sim.fabric.fabric import Cable, SimAdapter, SimFabric
from hyperscout_sim.fabric.racks import RackCluster, racks
from hyperscout_sim.readings.sweep_text import sweep_text
from hyperscout_sim.readings.sysfs import port_facts
from hyperscout_topology.health import SURE
from hyperscout_topology.link_changes import table_of
from hyperscout_topology.topology import Topology
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples
from support.findings import T0, S, sweep
from support.lldp_lies import ALL, HOSTS, INVENTED, NAMES, NAMESAKES, NODES, PORTS, SWITCHES, any_neighbour
from support.rack_inputs import seen
from support.switched import chassis, mac
from support.unharmed import check_unharmed

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


# --- ids that LLDP announces


@pytest.mark.parametrize("known", ["the name of a host", "the GUID of an adapter", "the UUID of a GPU"])
def test_a_switch_with_the_id_of_another_device(known: str) -> None:
    if known != "the GUID of an adapter":
        honest, options, liar, taken = ALL.inputs(), NODES, HOSTS[0], HOSTS[5]
    if known == "the UUID of a GPU":
        (gpu, *_) = next(mine for mine in CLUSTERS["two racks of a leaf"].gpus.values() if mine)
        honest, taken = replace(honest, gpus={HOSTS[5]: (gpu,)}), gpu.uuid
    if known == "the GUID of an adapter":
        sweep = SweepSeen(parse(sweep_text(FABRIC)), observed_at_ns=1)
        honest, options, liar = FabricInputs(sweeps=(sweep,), infiniband=OWN_PORTS), OPTIONS, FABRIC.hosts[0]
        taken = f"{ADAPTERS[FABRIC.hosts[5]].guid:016x}"
    before = infer(honest, options)
    heard = LldpNeighbour("local", taken, "ifname", "swp1", 120, system_name="zzz", capabilities=("Bridge",))
    port = LldpPort("eth0", (heard,), mac((liar, "eth0")), True, 100_000)
    after = infer(replace(honest, lldp={**honest.lldp, liar: (port,)}), options, before)
    devices = table_of(after.links).devices
    assert f"{taken} (2)" in devices
    assert len(set(devices)) == len(devices)
    check_unharmed(before, after, [liar], {liar, mac((liar, "eth0")), f"{taken} (2)"})


@pytest.mark.parametrize("announces", ["chassis id", "system name"])
@pytest.mark.parametrize("kind", ["leaf", "adapter", "SHARP node"])
def test_infiniband_devices_keep_their_ids(kind: str, announces: str) -> None:
    """A device without an agent, which an Ethernet switch hears, announces the GUID."""
    leaf, sharp = FABRIC.switches[0], 0x5AA0000000000001
    fabric = replace(
        FABRIC,
        adapters=(
            *FABRIC.adapters,
            SimAdapter(sharp, sharp + 1, "", "", "Mellanox Technologies Aggregation Node"),
        ),
        cables=(*FABRIC.cables, Cable(sharp, 1, leaf.guid, 40)),
    )
    guid = {"leaf": leaf.guid, "adapter": FABRIC.adapters[0].guid, "SHARP node": sharp}[kind]
    texts = {"chassis id": (f"{guid:016x}", ""), "system name": ("abc", f"{guid:016x}")}
    chassis_id, name = texts[announces]
    sweep = SweepSeen(parse(sweep_text(fabric)), observed_at_ns=1)
    honest = FabricInputs(sweeps=(sweep,), infiniband=OWN_PORTS)
    before = infer(honest, OPTIONS)
    heard = LldpNeighbour(
        "local", chassis_id, "ifname", "x1", 120, system_name=name, capabilities=("Station",)
    )
    port = SwitchPort("swp9", "mac", INVENTED, (heard,), "eth-leaf", "ifname", "swp9", speed_mbps=100_000)
    false = replace(honest, switch_ports={switch_reporter("eth-leaf"): (port,)})
    after = before
    for _ in range(3):
        after = infer(false, OPTIONS, after)
        swept = [[x for x in found.links if x.fabric.startswith("infiniband")] for found in (before, after)]
        assert swept[0] == swept[1]
        check_unharmed(before, after, [], {INVENTED, chassis_id, f"{guid:016x} (2)"})


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
    check_unharmed(before, after, own, {chassis(liar), INVENTED, *NAMESAKES}, conditions=False)


# --- sweeps

SWITCH_GUIDS = [x.guid for x in FABRIC.switches]
HOST_CABLES = [c for c in FABRIC.cables if c.a not in SWITCH_GUIDS]
OWN_PORTS = {host: (port_facts(x, CABLES[x.guid]),) for host, x in ADAPTERS.items()}
INVENTED_GUID = 0x66660000
RARELY = st.sampled_from([False, False, False, True])


class Texts:
    """The texts of sweeps, already read."""

    def __init__(self) -> None:
        self.sweeps: dict[bytes, Sweep] = {}

    def put(self, text: bytes) -> bytes:
        digest = hashlib.sha256(text).digest()
        self.sweeps[digest] = parse(text)
        return digest

    def get(self, digest: bytes, _source: str, _probe: str) -> Sweep:
        return self.sweeps[digest]


def start(host: str) -> SimAdapter:
    return ADAPTERS.get(host) or SimAdapter(
        INVENTED_GUID, INVENTED_GUID + 1, host, "mlx5_0", f"{host} mlx5_0"
    )


@st.composite
def any_sweep(draw: st.DrawFn, liar: str) -> tuple[SimFabric, bool, bool]:
    """A false fabric, whether its sweep is partial, and whether it starts at another port than it says.

    Hosts are exchanged, cables and switches are left out, adapters of all hosts and cables between switches
    are invented.
    """
    kinds = draw(st.sets(st.sampled_from(["exchange", "cut", "off", "invent", "connect"]), min_size=1))
    order = draw(st.permutations(HOST_CABLES)) if "exchange" in kinds else HOST_CABLES
    pairs = zip(HOST_CABLES, order, strict=True)
    moved = [cable._replace(b=other.b, b_port=other.b_port) for cable, other in pairs]
    cables = [*moved, *(c for c in FABRIC.cables if c not in HOST_CABLES)]
    cut = draw(st.sets(st.integers(0, len(cables) - 1), max_size=6)) if "cut" in kinds else set()
    off = draw(st.sets(st.sampled_from(SWITCH_GUIDS), max_size=2)) if "off" in kinds else set()
    cables = [c for i, c in enumerate(cables) if i not in cut and c.a not in off and c.b not in off]
    on = [guid for guid in SWITCH_GUIDS if guid not in off]
    hosts = st.sampled_from([*FABRIC.hosts, "MT4129", "new"])
    names = draw(st.lists(hosts, max_size=4)) if "invent" in kinds else []
    free = iter(range(30, 40))
    adapters = [*FABRIC.adapters]
    if liar not in ADAPTERS:
        adapters.append(start(liar))
        cables.append(Cable(INVENTED_GUID, 1, draw(st.sampled_from(on)), next(free)))
    for i, name in enumerate(names):
        guid = INVENTED_GUID + 0x100 * (i + 1)
        adapters.append(SimAdapter(guid, guid + 1, name, f"mlx5_{i}", f"{name} mlx5_{i}"))
        cables.append(Cable(guid, 1, draw(st.sampled_from(on)), next(free)))
    ends = st.tuples(st.sampled_from(on), st.sampled_from(on))
    for one, other in draw(st.lists(ends, max_size=2)) if "connect" in kinds else []:
        if one != other:
            cables.append(Cable(one, next(free), other, next(free)))
    fabric = replace(FABRIC, adapters=tuple(adapters), cables=tuple(cables))
    return fabric, draw(RARELY), draw(RARELY)


@st.composite
def any_sweeps(draw: st.DrawFn) -> tuple[str, list[tuple[SimFabric, bool, bool]]]:
    liar = draw(st.sampled_from([*FABRIC.hosts, "liar"]))
    return liar, draw(st.lists(any_sweep(liar), min_size=1, max_size=3))


@given(any_sweeps(), RARELY)
@examples(1)
def test_sweeps(false: tuple[str, list[tuple[SimFabric, bool, bool]]], is_older: bool) -> None:
    """`is_older`: the sweep of the honest holder of the lease is newer than the false ones."""
    liar, sweeps = false
    honest = next(host for host in FABRIC.hosts if host != liar)
    texts = Texts()

    def row(host: str, text: bytes, seen_s: int, *, partial: bool = False, elsewhere: bool = False) -> Row:
        found = sweep(host, texts.put(text), T0 + seen_s * S, partial=partial)
        found.sweep.port_guid = 0x99 if elsewhere else start(host).port_guid
        return row_of(found, sent_ns=T0 + seen_s * S, received_ns=T0 + seen_s * S)

    def published(rows: list[Row], record: Topology | None) -> Topology:
        evidence = replace(NO_EVIDENCE, infiniband=agents, sweeps=tuple(rows), pair_tables=PairTables())
        resolved = resolve(evidence, cast(SweepTexts, texts), {}, record)
        return infer(resolved.inputs, replace(OPTIONS, cluster_nodes=frozenset(agents)), record)

    cable = Cable(INVENTED_GUID, 1, 0, 0)
    agents = OWN_PORTS if liar in OWN_PORTS else {**OWN_PORTS, liar: (port_facts(start(liar), cable),)}
    own = row(honest, sweep_text(FABRIC, start(honest).guid), 10)
    before = record = published([own], None)
    assert before.anomalies == ()
    devices = {f"{start(liar).guid:016x}"}
    for i, (fabric, partial, elsewhere) in enumerate(sweeps):
        text = sweep_text(fabric, start(liar).guid)
        rows = [row(liar, text, (1 if is_older else 11) + i, partial=partial, elsewhere=elsewhere)]
        for _ in range(2):
            record = published([own, *rows], record)
            check_unharmed(before, record, [liar], devices)


def test_agents_without_infiniband_ports_contradict_no_sweep() -> None:
    """The hosts of a fabric that one agent sweeps, while the others report LLDP or ports without GUIDs."""
    texts = Texts()
    first = sweep(FABRIC.hosts[0], texts.put(sweep_text(FABRIC, start(FABRIC.hosts[0]).guid)), T0)
    first.sweep.port_guid = start(FABRIC.hosts[0]).port_guid
    ports = {host: tuple(replace(x, node_guid=0, port_guid=0) for x in OWN_PORTS[host]) for host in ADAPTERS}
    evidence = replace(
        NO_EVIDENCE,
        infiniband={**ports, FABRIC.hosts[0]: OWN_PORTS[FABRIC.hosts[0]]},
        lldp={host: (LldpPort("eth0", (), mac((host, "eth0")), carrier=True),) for host in ADAPTERS},
        sweeps=(row_of(first, sent_ns=T0, received_ns=T0),),
        pair_tables=PairTables(),
    )
    record = None
    for _ in range(2):
        found = resolve(evidence, cast(SweepTexts, texts), {}, record)
        record = infer(found.inputs, OPTIONS, record)
        assert record.nodes_without_evidence == ()
        assert not [x.reason for x in found.held if x.reason]


# --- GPUs

CLUSTERS = {
    "no tier of leaves": racks(2, 1, trays=3, hgx=1),
    "two racks of a leaf": racks(2, 2, trays=2, hgx=2),
    "no tier nvlink": racks(2, 1, trays=1, hgx=2),
    "two racks of one tray": racks(2, 2, trays=1),
}


@st.composite
def any_gpus(draw: st.DrawFn, cluster: RackCluster) -> tuple[Gpu, ...]:
    """What GPUs of other hosts and adapters of the network report may be among it."""
    others = [gpu for mine in cluster.gpus.values() for gpu in mine]
    devices = (*cluster.fabric.adapters, *cluster.fabric.switches)
    ids = [*(x.uuid for x in others), *(f"{x.guid:016x}" for x in devices), *cluster.hosts, "", "GPU-1"]
    alone = NvlinkFabric("completed"), NvlinkFabric("completed", "", "aa", 1), NvlinkFabric("in-progress")
    fabrics = st.sampled_from([None, *alone, *{gpu.fabric for gpu in others}])
    fabric = draw(fabrics)
    nics = st.lists(st.sampled_from(["mlx5_0", "mlx5_1", "mlx5_9", "eth0"]), max_size=2, unique=True)
    return tuple(
        replace(
            others[0],
            uuid=draw(st.sampled_from(ids)),
            pci_address=f"0000:{i:02x}:00.0",
            nearest_nics=tuple(draw(nics)),
            fabric=draw(fabrics) if draw(RARELY) else fabric,
        )
        for i in range(draw(st.integers(0, 8)))
    )


@given(st.data(), st.sampled_from(sorted(CLUSTERS)), st.booleans(), st.booleans())
@examples(0.5)
def test_gpus(data: st.DataObject, kind: str, adds: bool, others_report: bool) -> None:
    """The reporter also hears a switch, and claims adapters when its GPUs are published. `adds`: to what it
    has. `others_report`: those with GPUs."""
    cluster = CLUSTERS[kind]
    liar = data.draw(st.sampled_from(cluster.hosts))
    own = cluster.gpus if others_report else dict.fromkeys(cluster.hosts, ())
    honest = seen(cluster, own)
    options = InferOptions(cluster_nodes=frozenset(cluster.hosts))
    before = infer(honest, options)
    heard = data.draw(st.lists(any_neighbour(), max_size=1).map(tuple))
    port = LldpPort("eth0", heard, mac((liar, "eth0")), True, 100_000)
    gpus = (tuple(own[liar]) if adds else ()) + data.draw(any_gpus(cluster))
    adapters = [x for x in cluster.fabric.adapters if x.host != liar]
    claims = tuple(
        replace(honest.infiniband[liar][0], device=f"x{i}", node_guid=x.guid, port_guid=x.port_guid)
        for i, x in enumerate(data.draw(st.lists(st.sampled_from(adapters), max_size=4)))
    )
    false = replace(honest, lldp={liar: (port,)}, gpus={**honest.gpus, liar: gpus})
    claiming = replace(false, infiniband={**honest.infiniband, liar: honest.infiniband[liar] + claims})
    after = before
    devices = {x.uuid for mine in (gpus, own[liar]) for x in mine} | {mac((liar, "eth0")), INVENTED, liar}
    devices |= {f"{x.guid:016x}" for x in cluster.fabric.adapters if x.host == liar} | NAMESAKES
    for inputs in (false, false, claiming, claiming):
        after = infer(inputs, options, after)
        # Of two hosts of a leaf, one may have a cable that the other lacks.
        check_unharmed(before, after, [liar], devices, least=SURE)
        owner = {x.id: x.node for x in after.adapters}
        assert {x.id: owner[x.id] for x in before.adapters if x.node != liar} == {
            x.id: x.node for x in before.adapters if x.node != liar
        }
