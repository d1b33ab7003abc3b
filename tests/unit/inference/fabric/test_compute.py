"""Which ports compute: a pattern, else the NICs nearest to GPUs, else InfiniBand, else the fastest class."""

from collections.abc import Collection
from dataclasses import replace

import numpy as np
import pytest
from hyperscout_formats.facts.facts import Gpu, LldpNeighbour
from hyperscout_formats.infiniband.ibnetdiscover import parse
from hyperscout_inference.ethernet.compute import Ports, gpu_models, near_gpus
from hyperscout_inference.fabric.inputs import (
    FabricInputs,
    InferOptions,
    SweepSeen,
    SwitchTableSeen,
)
from hyperscout_inference.hierarchy import infer
from hyperscout_inference.hierarchy.fuse import fuse
from hyperscout_sim.fabric import shapes
from hyperscout_sim.fabric.fabric import SimFabric, Truth
from hyperscout_sim.readings.sweep_text import sweep_text
from support.ethernet import inputs_of as over_ethernet
from support.inference import inputs_of, tiers, truth
from support.switched import TWO_TIERS, Wiring, cable, clos, domains, is_switch, roce

HOSTS = [f"h{u}{i}" for u in (1, 2) for i in (1, 2, 3)]
# Two rails that compute, and a storage network of the same speed that groups the hosts otherwise.
STORAGE = [
    *(f"edge-{1 + i % 2}/swp{i} {host}/stor0" for i, host in enumerate(HOSTS)),
    "edge-1/swp40 core-9/swp1",
    "edge-2/swp40 core-9/swp2",
]
WIRING = Wiring([*clos(), *STORAGE])


def gpus(nics: Collection[str], hosts: Collection[str] = HOSTS) -> dict[str, tuple[Gpu, ...]]:
    """One GPU for each NIC that it is nearest to."""
    return {
        host: tuple(
            Gpu(f"{host}-{i}", "H200", f"0000:{i:02x}:00.0", nearest_nics=(nic,))
            for i, nic in enumerate(nics)
        )
        for host in hosts
    }


def test_without_a_word_on_them_all_of_one_speed_compute() -> None:
    """The storage network contradicts the rails, and nothing tells which of them is meant."""
    assert infer(WIRING.inputs()).anomalies


@pytest.mark.parametrize("named", ["interfaces", "RDMA devices", "RDMA devices with an EUI-64"])
def test_the_nics_nearest_to_gpus_compute(named: str) -> None:
    inputs = WIRING.inputs()
    if named == "interfaces":
        inputs = replace(inputs, gpus=gpus(["eth0", "eth1"]))
    else:
        devices = {"mlx5_0": "stor0", "mlx5_1": "eth0", "mlx5_2": "eth1"}
        inputs = replace(
            inputs,
            gpus=gpus(["mlx5_1", "mlx5_2"]),
            infiniband={
                host: tuple(roce(host, d, i, "EUI" in named) for d, i in devices.items()) for host in HOSTS
            },
        )
    topology = infer(inputs)
    assert domains(topology) == TWO_TIERS
    assert topology.anomalies == ()
    assert len(topology.links) == len(WIRING.cables)
    levels = {s.name: s.level for s in topology.switches}
    assert (levels["edge-1"], levels["core-9"], levels["spine-1"]) == (0, 0, 2)


def test_a_pattern_says_otherwise() -> None:
    inputs = replace(WIRING.inputs(), gpus=gpus(["eth0", "eth1"]))
    found = domains(infer(inputs, InferOptions(compute_ports="^stor")))
    assert found[:2] == [(1, ("h11", "h13", "h22")), (1, ("h12", "h21", "h23"))]


def test_hosts_without_gpus_compute_by_their_fastest_ports() -> None:
    wiring = Wiring(clos(hosts=3), speeds_mbps={})
    inputs = replace(wiring.inputs(), gpus=gpus(["eth0", "eth1"], HOSTS[:5]))
    assert domains(infer(inputs)) == TWO_TIERS


def test_a_gpu_that_is_lost_takes_no_port_with_it() -> None:
    inputs = replace(WIRING.inputs(), gpus=gpus(["eth0", "eth1"]) | gpus(["eth0"], ["h11"]))
    topology = infer(inputs)
    assert domains(topology) == TWO_TIERS
    assert topology.anomalies == ()


@pytest.mark.parametrize(
    ("ports", "near", "found"),
    [
        ([("a", "x"), ("a", "y")], {"a": {"x"}}, [True, False]),
        ([("a", "x"), ("b", "x"), ("c", "x")], {"a": {"x"}, "b": {"x"}, "c": {"z"}}, [True, True, True]),
        ([("a", "x"), ("b", "x")], {"a": {"x"}, "b": {"z"}}, [True, False]),
        ([(None, "x"), ("a", "x")], {}, [False, False]),
        ([("a", "x"), ("b", "x")], {"a": {"x"}}, [True, False]),
    ],
)
def test_near_gpus(ports: list[tuple[str | None, str]], near: dict[str, set[str]], found: list[bool]) -> None:
    hosts, names = [*{host for host, _ in ports}], [*{name for _, name in ports}]
    host = np.array([hosts.index(host) for host, _ in ports], np.int32)
    name = np.array([names.index(name) for _, name in ports], np.int32)
    models = gpu_models({node: gpus(["x"], [node])[node] for node in near})
    assert near_gpus(Ports(hosts, host, names, name), near, models).tolist() == found


def test_slow_ports_that_happen_to_be_near_do_not_compute() -> None:
    slow = {cable(text)[0]: 1000 for text in STORAGE}
    inputs = replace(WIRING, speeds_mbps=slow).inputs()
    assert domains(infer(replace(inputs, gpus=gpus(["eth0", "eth1", "stor0"])))) == TWO_TIERS


def plugged(
    inputs: FabricInputs, switch: str, *heard: LldpNeighbour, speed_mbps: int = 100_000
) -> FabricInputs:
    """More on a switch that was asked, each on a port of its own."""

    def more(seen: SwitchTableSeen) -> SwitchTableSeen:
        first = seen.table.ports[0]
        if first.system_name != switch:
            return seen
        ports = [
            replace(first, interface=f"x{i}", port_id=f"x{i}", neighbours=(n,), speed_mbps=speed_mbps)
            for i, n in enumerate(heard)
        ]
        return replace(seen, table=replace(seen.table, ports=(*seen.table.ports, *ports)))

    return replace(inputs, tables=tuple(map(more, inputs.tables)))


ASKED = Wiring(
    [*clos(), "mgmt-1/swp90 h11/mgmt0"],
    HOSTS,
    asked=["leaf-1a", "leaf-1b", "spine-1", "mgmt-1"],
    speeds_mbps={("mgmt-1", "swp90"): 1000},
)
STORES = [
    LldpNeighbour(
        "mac",
        f"02:00:00:00:00:{i:02x}",
        "ifname",
        "eth0",
        120,
        system_name=f"nfs-{i}",
        capabilities=("Station",),
    )
    for i in range(3)
]


@pytest.mark.parametrize(("switch", "computes"), [("leaf-1a", True), ("spine-1", False), ("mgmt-1", False)])
def test_what_is_foreign_takes_a_port_of_a_leaf_and_else_changes_nothing(switch: str, computes: bool) -> None:
    inputs = plugged(ASKED.inputs(), switch, *STORES)
    topology = infer(inputs)
    assert domains(topology) == TWO_TIERS
    assert topology.foreign_endpoints == tuple(n.system_name for n in STORES)
    assert topology.anomalies == ()
    net = fuse(inputs, InferOptions())
    foreign = [
        bool(mine)
        for a, mine in zip(net.a, net.shapes, strict=True)
        if net.host[a] < 0 and not net.is_switch[a]
    ]
    assert foreign == [computes] * 3


def test_what_servers_are_managed_by_is_no_unknown_host() -> None:
    """More of them than hosts with an agent: a slow port each, and nothing but an address to tell."""
    managed = [
        LldpNeighbour("mac", f"02:00:00:00:00:{i:02x}", "mac", f"02:00:00:00:00:{i:02x}", 120)
        for i in range(20)
    ]
    topology = infer(plugged(ASKED.inputs(), "mgmt-1", *managed, speed_mbps=1000))
    assert domains(topology) == TWO_TIERS
    assert topology.anomalies == ()


# --- beside InfiniBand

FABRIC = shapes.clos2(2, 3, 2)  # other hosts together than by Ethernet
NAMES = dict(zip(FABRIC.hosts, ["h11", "h21", "h12", "h22", "h13", "h23"], strict=True))
SWEEP = SweepSeen(
    parse(
        sweep_text(
            replace(
                FABRIC,
                adapters=tuple(
                    replace(x, host=NAMES[x.host], description=f"{NAMES[x.host]} {x.device}")
                    for x in FABRIC.adapters
                ),
            )
        )
    )
)
BY_INFINIBAND = [(1, ("h11", "h12", "h21")), (1, ("h13", "h22", "h23"))]


@pytest.mark.parametrize(
    ("nics", "by_ethernet"),
    [
        pytest.param([], False, id="nothing is known of GPUs: InfiniBand computes"),
        pytest.param(["mlx5_0"], False, id="InfiniBand is nearest"),
        pytest.param(["eth0", "eth1"], True, id="RoCE is nearest, InfiniBand is for storage"),
    ],
)
def test_roce_beside_infiniband(nics: list[str], by_ethernet: bool) -> None:
    inputs = replace(Wiring(clos()).inputs(), sweeps=(SWEEP,), gpus=gpus(nics) if nics else {})
    topology = infer(inputs)
    assert domains(topology)[:2] == (TWO_TIERS[:2] if by_ethernet else BY_INFINIBAND)
    assert {x.fabric for x in topology.links} == {"infiniband", "ethernet"}
    assert topology.anomalies == ()


@pytest.mark.parametrize(
    ("reporting", "by_ethernet"),
    [(HOSTS[:1], False), (HOSTS[:3], False), (HOSTS[:4], True)],
    ids=["one host", "half of the hosts", "most hosts"],
)
@pytest.mark.parametrize("others", ["with GPUs", "without GPUs"])
def test_most_hosts_decide_which_fabric_computes(
    reporting: list[str], by_ethernet: bool, others: str
) -> None:
    """The others have GPUs of which no nearest NIC is known, as with agents of an earlier version."""
    known = gpus(["eth0", "eth1"], reporting)
    if others == "with GPUs":
        known = {host: (Gpu(f"{host}-0", "H200", "0000:00:00.0"),) for host in HOSTS} | known
    elif len(reporting) == 3:
        by_ethernet = True  # all hosts that report GPUs
    topology = infer(replace(Wiring(clos()).inputs(), sweeps=(SWEEP,), gpus=known))
    assert domains(topology)[:2] == (TWO_TIERS[:2] if by_ethernet else BY_INFINIBAND)
    assert topology.anomalies == ()
    assert topology.nodes_without_evidence == ()


def test_the_only_host_of_infiniband_decides_for_itself() -> None:
    lone = replace(FABRIC, cables=tuple(c for c in FABRIC.cables if c.a == FABRIC.adapters[0].guid))
    sweep = SweepSeen(parse(sweep_text(lone, FABRIC.adapters[0].guid)))
    host = FABRIC.hosts[0]
    wiring = Wiring([f"leaf-1a/swp1 {host}/eth0", "leaf-1a/swp9 spine-1/swp1"])
    topology = infer(replace(wiring.inputs(), sweeps=(sweep,), gpus=gpus(["eth0"], [host])))
    (lowest,) = (h for h in topology.hypernodes if h.tier == 1)
    assert (lowest.nodes, lowest.name.split("-")[:2]) == ((host,), ["leaf", "1a"])


@pytest.mark.parametrize(("swept", "heard"), [(4, 2), (2, 4)], ids=["InfiniBand has more", "RoCE has more"])
def test_partitions_of_either_fabric(swept: int, heard: int) -> None:
    """Hosts with one fabric alone compute by it, whichever fabric has more hosts."""

    def partition(name: str, hosts_per_unit: int) -> SimFabric:
        fabric = shapes.rail_optimised(3, hosts_per_unit, 2, shared_spines=2, seed=hosts_per_unit)
        new = {host: f"{name}-{i:02}" for i, host in enumerate(fabric.hosts)}
        adapters = [
            replace(x, host=new[x.host], description=f"{new[x.host]} {x.device}") for x in fabric.adapters
        ]
        units = [{frozenset(new[host] for host in domain) for domain in tier} for tier in fabric.truth.tiers]
        return replace(fabric, adapters=tuple(adapters), truth=Truth(tuple(map(tuple, units))))

    ib, roce = partition("ib", swept), partition("roce", heard)
    known = gpus(["mlx5_0", "mlx5_1"], ib.hosts) | gpus(["eth0", "eth1"], roce.hosts)
    topology = infer(replace(over_ethernet(roce, None), sweeps=inputs_of(ib).sweeps, gpus=known))
    assert tiers(topology) == [a | b for a, b in zip(truth(ib), truth(roce), strict=True)]
    assert topology.anomalies == ()


def test_one_host_without_infiniband_adds_no_tier() -> None:
    """Its Ethernet has three tiers, but no other host tells that Ethernet computes."""
    roce = over_ethernet(shapes.rail_optimised(2, 2, 2, 2, pods=2), None)
    known = gpus(["eth0", "eth1"], [min(roce.lldp)])
    swept = tiers(infer(FabricInputs(sweeps=(SWEEP,))))
    found = infer(replace(roce, sweeps=(SWEEP,), gpus=known))
    assert len(tiers(found)) == len(swept)
    assert all(domain in tiers(found)[0] for domain in swept[0])


@pytest.mark.parametrize("count", [0, 1, 6, 7, 12])
def test_most_hosts_decide_which_infiniband_fabric_computes(count: int) -> None:
    """Storage has more ports, and groups the hosts otherwise. Nearest NICs come with new agents."""
    compute = shapes.rail_optimised(4, 3, 1, shared_spines=2)
    storage = shapes.rail_optimised(2, 6, 2, shared_spines=2, seed=5)
    far = 1 << 40  # GUIDs of another fabric
    other = dict(zip(storage.hosts, compute.hosts[::2] + compute.hosts[1::2], strict=True))
    devices = {"mlx5_0": "mlx5_1", "mlx5_1": "mlx5_2"}
    storage = replace(
        storage,
        adapters=tuple(
            replace(
                x,
                guid=x.guid + far,
                port_guid=x.port_guid + far,
                host=other[x.host],
                device=devices[x.device],
                description=f"{other[x.host]} {devices[x.device]}",
            )
            for x in storage.adapters
        ),
        switches=tuple(
            replace(x, guid=x.guid + far, name=f"st-{x.name}", description=f"st-{x.name}")
            for x in storage.switches
        ),
        cables=tuple(c._replace(a=c.a + far, b=c.b + far) for c in storage.cables),
    )
    hosts = compute.hosts
    known = {host: (Gpu(f"{host}-0", "H200", "0000:00:00.0"),) for host in hosts}
    known |= gpus(["mlx5_0"], hosts[:count])
    topology = infer(FabricInputs(sweeps=inputs_of(compute).sweeps + inputs_of(storage).sweeps, gpus=known))
    assert topology.nodes_without_evidence == ()
    if count in (0, 1, 6):
        assert tiers(topology)[0] == {
            frozenset(other[h] for h in domain) for domain in storage.truth.tiers[0]
        }
    if count == 12:
        assert tiers(topology) == truth(compute)


def test_an_adapter_that_is_nearest_to_no_gpu_is_shown_and_does_not_shape() -> None:
    fabric = shapes.rail_optimised(3, 3, 4, shared_spines=2)
    inputs = FabricInputs(
        sweeps=(SweepSeen(parse(sweep_text(fabric))),),
        gpus=gpus(["mlx5_0", "mlx5_1", "mlx5_2"], fabric.hosts),
    )
    net = fuse(inputs, InferOptions())
    shapes_by_label: dict[str, set[bool]] = {}
    for a, b, mine in zip(net.a, net.b, net.shapes, strict=True):
        if label := net.labels[a] or net.labels[b]:
            shapes_by_label.setdefault(label, set()).add(bool(mine))
    topology = infer(inputs)
    assert tiers(topology) == truth(fabric)
    assert topology.anomalies == ()
    assert len(topology.links) == len(fabric.cables)
    assert {s.level for s in topology.switches if s.name.endswith("r3")} == {0}
    assert shapes_by_label == {"mlx5_0": {True}, "mlx5_1": {True}, "mlx5_2": {True}, "mlx5_3": {False}}


def test_a_host_without_an_agent_goes_with_its_switch_where_a_pattern_decides() -> None:
    wiring = Wiring(
        [*clos(), *STORAGE],
        agents=[h for h in HOSTS if h != "h13"],
        asked=sorted({d for t in [*clos(), *STORAGE] for d, _ in cable(t) if is_switch(d)}),
        named=["h13"],
    )
    assert domains(infer(wiring.inputs(), InferOptions(compute_ports="^eth"))) == TWO_TIERS
