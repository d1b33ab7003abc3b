"""Whatever is cabled to whatever, told by GPUs and measured, however contradictory: a valid tree comes out,
the same every time."""

import json
from dataclasses import replace

from hyperscout_formats.facts.facts import Gpu, LldpNeighbour, LldpPort, NvlinkFabric, NvlinkLink
from hyperscout_formats.infiniband.ibnetdiscover import Sweep, parse
from hyperscout_formats.text.latency_csv import LatencyRow
from hyperscout_inference.fabric.inputs import FabricInputs, InferOptions, SweepSeen
from hyperscout_inference.hierarchy import infer
from hyperscout_inference.latency.pairs import pairs_of_rows
from hyperscout_sim.fabric.fabric import SimAdapter
from hyperscout_sim.readings.sysfs import port_facts
from hyperscout_topology.json_reader import from_json
from hyperscout_topology.objects import to_json
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from support.examples import examples
from unit.inference.hierarchy.test_shapes import check_tree

DESCRIPTIONS = [
    *(f"node-{i} mlx5_{i % 2}" for i in range(6)),
    "node-1",
    "storage-1 mlx5_0",
    "MT4129 ConnectX7   Mellanox Technologies",
    "Mellanox Technologies Aggregation Node",
    "MF0;leaf-1:MQM8700/U1",
    "",
]
LABELS = st.lists(st.sampled_from("abc"), max_size=4).map(tuple)


@st.composite
def sweeps(draw: st.DrawFn) -> Sweep:
    """A text in which any port may claim to lead to any other."""
    count = draw(st.integers(1, 10))
    kinds = draw(st.lists(st.sampled_from(["Switch", "Ca", "Rt"]), min_size=count, max_size=count))
    texts = draw(st.lists(st.sampled_from(DESCRIPTIONS), min_size=count, max_size=count))
    letter = {"Switch": "S", "Ca": "H", "Rt": "R"}
    names = [f'"{letter[kind]}-{i + 1:016x}"' for i, kind in enumerate(kinds)]
    index, port = st.integers(0, count - 1), st.integers(1, 6)
    records = draw(st.lists(st.tuples(index, port, index, port), max_size=40))
    lines = []
    for i, (kind, text) in enumerate(zip(kinds, texts, strict=True)):
        lines.append(f'\n{kind}\t8 {names[i]}\t\t# "{text}"')
        for a, p, b, q in records:
            if a == i:
                guid = "" if kind == "Switch" else f"({a + 1:x})"
                lines.append(f'[{p}]{guid}\t{names[b]}[{q}]\t\t# "{texts[b]}" lid 1 4xHDR')
            if b == i and q % 2:  # half of the cables are reported by their other end too
                guid = "" if kind == "Switch" else f"({b + 1:x})"
                lines.append(f'[{q}]{guid}\t{names[a]}[{p}]\t\t# "{texts[a]}" lid 1 4xHDR')
    return parse("\n".join([*lines, ""]).encode())


@st.composite
def evidence(draw: st.DrawFn) -> FabricInputs:
    seen = [
        SweepSeen(s, draw(st.sampled_from([f"s{i}", "ufm"])), draw(st.booleans()), draw(st.integers(0, 3)))
        for i, s in enumerate(draw(st.lists(sweeps(), max_size=3)))
    ]
    chassis = st.sampled_from(["0a:01", "0a:02", "0a:03"])
    neighbour = st.builds(
        LldpNeighbour,
        st.just("mac"),
        chassis,
        st.just("ifname"),
        st.sampled_from(["p1", "p2"]),
        st.just(120),
        capabilities=st.sampled_from([(), ("Bridge",), ("Station",)]),
    )
    port = st.builds(
        LldpPort,
        st.sampled_from(["e0", "e1"]),
        st.lists(neighbour, max_size=2).map(tuple),
        speed_mbps=st.sampled_from([0, 1000, 400_000]),
        carrier=st.booleans(),
    )
    hosts = st.sampled_from([f"node-{i}" for i in range(6)])
    lldp = draw(
        st.dictionaries(
            hosts, st.lists(port, max_size=2, unique_by=lambda p: p.interface).map(tuple), max_size=4
        )
    )
    adapters = draw(st.dictionaries(hosts, st.integers(1, 10), max_size=3))
    own = {
        host: (port_facts(SimAdapter(guid, guid + 100, host, "mlx5_0", ""), None),)
        for host, guid in adapters.items()
    }
    node_map = draw(st.dictionaries(st.integers(1, 10), hosts, max_size=3))
    fabric = st.builds(
        NvlinkFabric,
        st.sampled_from(["completed", "completed", "in-progress", "not-supported"]),
        st.sampled_from(["", "", "failed"]),
        st.sampled_from(["rack-1", "rack-1", "rack-2", ""]),
        st.integers(1, 2),
    )
    links = st.lists(st.builds(NvlinkLink, st.integers(0, 2), st.booleans()), max_size=3).map(tuple)
    addresses = st.sampled_from(["0000:01:00.0", "0000:02:00.0", "0000:03:00.0"])
    gpu = st.builds(
        lambda at, fabric, links: Gpu(f"GPU-{at}", "GPU", at, fabric=fabric, links=links),
        addresses,
        fabric | st.none(),
        links,
    )
    several = st.lists(gpu, max_size=3, unique_by=lambda gpu: gpu.pci_address).map(tuple)
    names = [f"node-{i}" for i in range(6)]
    rtts = draw(st.lists(st.tuples(hosts, hosts, st.sampled_from([2.6, 2.7, 4.1, 5.6, 40.0])), max_size=20))
    rows = {(a, b): LatencyRow(a, b, rtt, 16) for a, b, rtt in rtts if names.index(a) < names.index(b)}
    return FabricInputs(
        tuple(seen),
        lldp,
        own,
        {host: draw(st.integers(0, 4)) for host in own},
        {host: {(guid, draw(st.integers(1, 8))): 1} for host, guid in adapters.items()},
        node_map,
        gpus=draw(st.dictionaries(hosts, several, max_size=6)),
        pairs=pairs_of_rows(list(rows.values())),
        labels=draw(st.dictionaries(hosts | st.just("node-9"), LABELS, max_size=5)),
        managed_gpus=draw(st.dictionaries(hosts | st.just("node-8"), several, max_size=4)),
    )


@settings(examples(0.5), phases=[Phase.generate])
@given(evidence(), evidence(), st.none() | st.frozensets(st.sampled_from([f"node-{i}" for i in range(6)])))
def test_a_valid_tree_comes_out(
    before: FabricInputs, now: FabricInputs, cluster: frozenset[str] | None
) -> None:
    options = InferOptions(cluster_nodes=cluster)
    first = infer(before, options)
    check_tree(first)
    saved = from_json(json.loads(json.dumps(to_json(first))))
    assert to_json(saved) == to_json(first)
    second = infer(now, options, saved)
    check_tree(second)
    assert to_json(infer(now, options, saved)) == to_json(second)
    for x in second.anomalies:
        assert (x.tier, x.hypernode) == (None, None) or (x.tier, x.hypernode) in {
            (h.tier, h.name) for h in second.hypernodes
        }
    shuffled = replace(
        now,
        sweeps=now.sweeps[::-1],
        lldp=dict(reversed(now.lldp.items())),
        gpus=dict(reversed(now.gpus.items())),
        labels=dict(reversed(now.labels.items())),
        managed_gpus=dict(reversed(now.managed_gpus.items())),
    )
    if len({s.observed_at_ns for s in now.sweeps}) == len(now.sweeps):
        assert to_json(infer(shuffled, options, saved)) == to_json(second)
    if cluster is not None:
        assert {n for h in second.hypernodes for n in h.nodes} <= cluster
