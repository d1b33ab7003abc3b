"""Explain: the lowest common HyperNode, a shortest path through switches, what is wrong on it."""

from dataclasses import replace
from itertools import combinations

import pytest
from hyperscout_collector.evidence.rows import Key
from hyperscout_collector.serve.grpc.explain import UnknownNodeError, explain
from hyperscout_collector.serve.grpc.measured import NodeReport
from hyperscout_formats.amd.kfd import parse
from hyperscout_formats.facts.facts import Gpu, LatencyPort, LatencyResult, NcclResult, NcclRun, NvlinkLink
from hyperscout_placer.cluster.allreduce import predict
from hyperscout_placer.cluster.forest import Forest
from hyperscout_placer.cluster.speeds import speeds_of
from hyperscout_topology.link_changes import DENIED
from hyperscout_topology.topology import (
    Adapter,
    Anomaly,
    Endpoint,
    Link,
    LinkTable,
    Measured,
    Rate,
    Switch,
    Tier,
    Topology,
)
from support.accelerators import kfd_tree
from support.builders import anomaly
from support.topologies import SINCE_NS, cabled, measured, pods, two_leaves


@pytest.mark.parametrize(
    ("a", "b", "tier", "hypernode", "path"),
    [
        ("n01", "n02", 1, "leaf-a", ["a01-s1", "a02-s1"]),
        ("n01", "n04", 2, "core", ["a01-s1", "s1-s9", "s2-s9", "a04-s2"]),
        ("n04", "n01", 2, "core", ["a04-s2", "s2-s9", "s1-s9", "a01-s1"]),
        ("n01", "n03", 2, "core", []),  # n03's cable is out
        ("n01", "n01", 1, "leaf-a", []),
        ("n01", "n09", 0, "", []),  # expected, and no fabric knows it
    ],
)
def test_paths_and_tiers(a: str, b: str, tier: int, hypernode: str, path: list[str]) -> None:
    answer = explain(two_leaves(), a, b, [])
    assert (answer.tier, answer.hypernode) == (tier, hypernode)
    assert [f"{link.a.device}-{link.b.device}" for link in answer.path] == path
    assert list(answer.hypernodes_a)[-1:] == ["core"]


def test_the_text_says_the_same() -> None:
    assert explain(two_leaves(), "n01", "n04", []).text.splitlines() == [
        "n01 and n04 are core neighbours: both are in core, tier 2.",
        "A shortest path has 4 cables:",
        "  n01 mlx5_0 1 -> leaf-a 1: 400 Gbit/s, 4 lanes",
        "  leaf-a 9 -> spine 1",
        "  spine 2 -> leaf-b 9",
        "  leaf-b 2 -> n04 mlx5_0 1",
        "There are no anomalies on this path.",
    ]
    assert "n09 is in no HyperNode." in explain(two_leaves(), "n01", "n09", []).text


def test_what_is_wrong_on_the_way_is_said_and_nothing_else() -> None:
    def found(kind: str, device: str, port: str | None) -> Anomaly:
        return anomaly(kind, Endpoint(device, device, port), message=f"{kind} {device} {port}")

    topology = replace(
        two_leaves(),
        anomalies=(
            found("SlowLink", "s1", "9"),  # on the way
            found("SlowLink", "s1", "8"),  # another port of the same switch
            found("ErroringLink", "a01", "7"),  # of the node itself
            found("MissingSwitch", "s9", None),  # a whole device of the path
            found("MissingSwitch", "s8", None),
        ),
    )
    found = {(a.subject.device, a.subject.port) for a in explain(topology, "n01", "n04", []).anomalies}
    assert found == {("s1", "9"), ("a01", "7"), ("s9", "")}
    assert {a.subject.device for a in explain(topology, "n01", "n02", []).anomalies} == {"a01"}


def test_hosts_do_not_forward() -> None:
    topology = two_leaves()
    detour = LinkTable.of([*topology.links[:3], Link("a02", "2", "s2", "7", "ib", ())])
    assert list(explain(replace(topology, links=detour), "n01", "n04", []).path) == []


def test_evidence_is_named() -> None:
    keys = [Key("n02", "lldp", "eth0"), Key("n01", "infiniband", "mlx5_0/1")]
    found = [key.node for key in explain(two_leaves(), "n01", "n02", keys).evidence]
    assert found == ["n01", "n02"]


@pytest.mark.parametrize("nodes", [("n01", "nowhere"), ("nowhere", "n01"), ("", "")])
def test_an_unknown_node_is_said(nodes: tuple[str, str]) -> None:
    with pytest.raises(UnknownNodeError, match="get nodes"):
        explain(two_leaves(), *nodes, [])


def test_what_was_measured_is_said_of_the_domain_its_tier_and_the_pair() -> None:
    def result(peer: str, received: int, gbps: float = 0.0) -> LatencyResult:
        return LatencyResult(peer, "eth1", "udp", SINCE_NS, 16, received, 4.1, 4.5, 0.25, gbps)

    def run(peer: str, *sizes: tuple[int, float, float]) -> NcclRun:
        results = tuple(NcclResult("all_reduce", size, us, 40.0, gbytes) for size, us, gbytes in sizes)
        return NcclRun(peer, "libnccl", SINCE_NS, "2.28.3", 2, results)

    facts = [
        NodeReport("n01", LatencyPort("eth0", results=(result("n02", 16, 390.25), result("n03", 16)))),
        NodeReport("n02", LatencyPort("eth1", results=(result("n01", 0),))),  # nothing came back
        NodeReport("n01", run("n02", (1 << 30, 9000.0, 48.5), (8, 12.5, 0.0), (1 << 20, 50.0, 20.0))),
        NodeReport("n01", run("n02", (1 << 20, 50.0, 20.0))),  # shows neither latency nor bandwidth
        NodeReport("n01", run("", (8, 3.0, 0.0))),  # within the node
    ]
    figures = "median 4.25 us, p99 9.5 us, 128 samples, newest 2026-01-01T00:00:00Z"
    said = explain(measured(), "n01", "n02", [], facts).text.splitlines()
    assert said[4:-1] == [
        "One way: 2.05 us (measured), 388 Gbit/s (measured).",
        "leaf-a is inferred from latency alone, confidence 0.93.",
        f"Measured in leaf-a: latency {figures}.",
        f"Measured in tier 1 as a whole: latency {figures}.",
        (
            "Measured in tier 1 as a whole: bandwidth median 4.25 Gbit/s, p1 9.5 Gbit/s, 128 samples, "
            "newest 2026-01-01T00:00:00Z."
        ),
        (
            "n01 eth0 measured n02 eth1: 4.1 us (median 4.5 us, jitter 0.25 us, 16 of 16 answered, udp, "
            "2026-01-01T00:00:00Z), 390 Gbit/s."
        ),
        (
            "n01 ran NCCL all_reduce with n02: 12.5 us at 8 B, 388 Gbit/s at 1 GiB "
            "(libnccl, NCCL 2.28.3, 2 ranks, 2026-01-01T00:00:00Z)."
        ),
    ]
    across = explain(measured(), "n01", "n04", [], facts).text.splitlines()
    assert [x for x in across if "Measured" in x] == [
        "Measured in core: latency median 7 us, p99 7.5 us, 2 samples."  # its tier has no other domain
    ]
    assert "Measured" not in explain(measured(), "n01", "n01", [], facts).text


def test_without_wires_no_path_is_missed() -> None:
    opaque = replace(measured(), links=())
    assert "No evidence shows" not in explain(opaque, "n01", "n02", []).text
    assert "No evidence shows" in explain(opaque, "n01", "n04", []).text


# -- speeds along the path ----------------------------------------------------------------------------------

QDR, NDR = Rate(40.0, 4), Rate(400.0, 4)


def with_round_trips(topology: Topology, *by_tier_us: float | None) -> Topology:
    found = [
        Tier(tier, "", None if us is None else Measured(us, us, 9)) for tier, us in enumerate(by_tier_us, 1)
    ]
    return replace(topology, tiers=tuple(found))


def gpu(address: str, nic: str, links: tuple[NvlinkLink, ...] = (), pcie_gbps: float = 0.0) -> Gpu:
    return Gpu(f"GPU-{address}", "H100", address, links=links, nearest_nics=(nic,), pcie_gbps=pcie_gbps)


@pytest.mark.parametrize(
    ("pair", "round_trips_us", "gbps", "shares_us"),
    [
        # Half of 6 us over two cables; over the pod 9 us: (4.5 - 3) / 2 for each of the two cables more; over
        # the core 15 us: (7.5 - 4.5) / 2.
        (("n0002", "n0003"), (6.0, 9.0, 15.0), [400, 400], [1.5, 1.5]),
        (("n0002", "n0004"), (6.0, 9.0, 15.0), [400, 400, 32, 400], [1.5, 0.75, 0.75, 1.5]),
        (
            ("n0004", "n0008"),
            (6.0, 9.0, 15.0),
            [400, 32, 400, 400, 400, 400],
            [1.5, 0.75, 1.5, 1.5, 0.75, 1.5],
        ),
        (("n0002", "n0004"), (6.0, 5.0, 15.0), [400, 400, 32, 400], None),  # the pod is no slower
        (("n0002", "n0004"), (None, 9.0, 15.0), [400, 400, 32, 400], None),
    ],
)
def test_cables_have_the_speed_that_was_read_and_their_share_of_the_latency(
    pair: tuple[str, str],
    round_trips_us: tuple[float | None, ...],
    gbps: list[float],
    shares_us: list[float] | None,
) -> None:
    topology = with_round_trips(cabled(pods(2, 2), NDR, pod0_l01=(QDR,)), *round_trips_us)
    answer = explain(topology, *pair, [])
    assert {leg.kind for leg in answer.legs} == {"cable"}
    assert [leg.bandwidth_gbps for leg in answer.legs] == gbps
    assert (answer.bandwidth_gbps, answer.bandwidth_source) == (min(gbps), "read")
    assert [leg.HasField("latency_us") for leg in answer.legs] == [shares_us is not None] * len(gbps)
    if shares_us is not None:
        assert [leg.latency_us for leg in answer.legs] == pytest.approx(shares_us)


def test_the_speeds_in_words() -> None:
    topology = with_round_trips(cabled(pods(2), QDR, n0001=(Rate(10.0, 1),), n0002=(Rate(),)), 6.0, 9.0)
    said = explain(topology, "n0000", "n0001", []).text.splitlines()
    assert said[2:5] == [
        "  n0000 mlx5_0 0 -> sw-pod0-l00 n0000-0: 40 Gbit/s, 4 lanes, 32 Gbit/s of data, 1.5 us",
        "  sw-pod0-l00 n0001-0 -> n0001 mlx5_0 0: 10 Gbit/s, 1 lane, 8 Gbit/s of data, 1.5 us",
        "One way: 3 us (measured), 8 Gbit/s (read).",
    ]
    unread = explain(cabled(pods(2), Rate()), "n0000", "n0002", [])
    assert "One way" not in unread.text
    assert not unread.HasField("bandwidth_gbps")
    assert unread.bandwidth_source == unread.latency_source == ""


def test_what_was_measured_comes_before_what_was_read() -> None:
    topology = cabled(pods(2), NDR)
    domain = replace(
        topology,
        hypernodes=tuple(
            replace(h, latency_us=Measured(6.0, 6.0, 9), bandwidth_gbps=Measured(390.0, 390.0, 9))
            for h in topology.hypernodes
        ),
    )
    of_domain = explain(domain, "n0000", "n0001", [])
    assert (of_domain.latency_us, of_domain.bandwidth_gbps) == (3.0, 390.0)
    burst = LatencyResult("n0001", "mlx5_0", "rdma", SINCE_NS, 16, 16, 4.0, 4.5, 0.25, 380.0)
    run = NcclRun("n0000", "libnccl", SINCE_NS, "", 2, (NcclResult("all_reduce", 1 << 30, 9e3, 40, 48.5),))
    reports = [NodeReport("n0000", LatencyPort("mlx5_0", results=(burst,)))]
    of_ports = explain(domain, "n0000", "n0001", [], reports)
    assert (of_ports.latency_us, of_ports.bandwidth_gbps) == (2.0, 380.0)
    of_nccl = explain(domain, "n0000", "n0001", [], [*reports, NodeReport("n0001", run)])
    assert of_nccl.bandwidth_gbps == 388.0  # 48.5 x 8
    assert (of_nccl.latency_source, of_nccl.bandwidth_source) == ("measured", "measured")
    assert "One way: 2 us (measured), 388 Gbit/s (measured)." in of_nccl.text


def test_pcie_and_nvlink_within_the_nodes() -> None:
    switched = tuple(NvlinkLink(i, True, 4, "switch", gbytes_per_s=25.0) for i in range(18))
    bridge = (
        NvlinkLink(0, True, 3, "gpu", "0000:43:00.0", gbytes_per_s=50.0),
        NvlinkLink(1, False, 3, "gpu", "0000:43:00.0", gbytes_per_s=50.0),
        NvlinkLink(2, True, 3, "gpu", "0000:52:00.0", gbytes_per_s=50.0),
    )
    reports = [
        NodeReport("n0000", gpu("0000:43:00.0", "mlx5_1", switched)),
        NodeReport("n0000", gpu("0000:1b:00.0", "mlx5_0", switched, pcie_gbps=504.1)),
        NodeReport("n0001", gpu("0000:43:00.0", "mlx5_0")),
        NodeReport("n0001", gpu("0000:1b:00.0", "mlx5_1", bridge)),
    ]
    answer = explain(cabled(pods(2), NDR), "n0000", "n0001", [], reports)
    assert answer.text.splitlines()[1:8] == [
        "A shortest path over one rail has 2 cables:",
        "  n0000 0000:43:00.0 -> n0000 0000:1b:00.0: NVLink, 3600 Gbit/s",  # 18 x 25 x 8
        "  n0000 0000:1b:00.0 -> n0000 mlx5_0 0: PCIe, 504 Gbit/s",
        "  n0000 mlx5_0 0 -> sw-pod0-l00 n0000-0: 400 Gbit/s, 4 lanes",
        "  sw-pod0-l00 n0001-0 -> n0001 mlx5_0 0: 400 Gbit/s, 4 lanes",
        "  n0001 mlx5_0 0 -> n0001 0000:43:00.0: PCIe",
        "  n0001 0000:43:00.0 -> n0001 0000:1b:00.0: NVLink, 400 Gbit/s",  # the one active link to it
    ]
    assert [leg.kind for leg in answer.legs] == ["nvlink", "pcie", "cable", "cable", "pcie", "nvlink"]
    assert answer.bandwidth_gbps == 400  # of the network


def test_xgmi_within_a_node() -> None:
    first, second, *_ = (replace(x, nearest_nics=(f"mlx5_{n}",)) for n, x in enumerate(parse(kfd_tree())[0]))
    answer = explain(
        cabled(pods(2), NDR), "n0000", "n0001", [], [NodeReport("n0000", x) for x in (first, second)]
    )
    assert [leg.kind for leg in answer.legs] == ["xgmi", "pcie", "cable", "cable"]
    assert "  n0000 0000:22:00.0 -> n0000 0000:0c:00.0: xGMI, 400 Gbit/s" in answer.text.splitlines()


def test_the_text_names_the_kind_of_the_domain() -> None:
    topology = pods(2)
    super_pods = tuple(replace(h, source="ascend" if h.tier == 1 else "wires") for h in topology.hypernodes)
    text = explain(replace(topology, hypernodes=super_pods), "n0000", "n0001", []).text
    assert "is an Ascend super pod: Ascend network connects its hosts, in addition to any cables." in text


def test_nvlink_between_nodes_comes_first() -> None:
    topology = cabled(pods(2), NDR)
    rack = replace(
        topology,
        hypernodes=tuple(
            replace(h, source="nvlink" if h.tier == 1 else "wires") for h in topology.hypernodes
        ),
    )
    links = tuple(NvlinkLink(i, i > 0, 5, "switch", gbytes_per_s=50.0) for i in range(18))
    reports = [NodeReport(node, gpu("0008:01:00.0", "", links)) for node in ("n0000", "n0001", "n0004")]
    answer = explain(rack, "n0000", "n0001", [], reports)
    assert [(leg.kind, leg.bandwidth_gbps) for leg in answer.legs] == [
        ("nvlink", 6800),  # 17 x 50 x 8
        ("cable", 400),
        ("cable", 400),
    ]
    assert answer.text.splitlines()[1:4] == [
        "NVLink joins them:",
        "  n0000 0008:01:00.0 -> n0001 0008:01:00.0: NVLink, 6800 Gbit/s",
        "A shortest path over one rail has 2 cables:",
    ]
    assert not answer.HasField("bandwidth_gbps")  # cables and ports say nothing of NVLink
    burst = LatencyResult("n0001", "mlx5_0", "rdma", SINCE_NS, 16, 16, 4.0, 4.5, 0.25, 380.0)
    run = NcclRun("n0001", "libnccl", SINCE_NS, "", 2, (NcclResult("all_reduce", 1 << 30, 9e3, 40, 700.0),))
    for fact, gbps in ((LatencyPort("mlx5_0", results=(burst,)), 0.0), (run, 5600.0)):
        ran = explain(rack, "n0000", "n0001", [], [*reports, NodeReport("n0000", fact)])
        assert ran.bandwidth_gbps == gbps
    across = explain(rack, "n0000", "n0004", [], reports)
    assert "nvlink" not in {leg.kind for leg in across.legs}
    without = explain(replace(rack, links=()), "n0000", "n0001", [], reports).text.splitlines()
    assert without[1:3] == [
        "NVLink joins them:",
        "  n0000 0008:01:00.0 -> n0001 0008:01:00.0: NVLink, 6800 Gbit/s",
    ]


# -- the same speeds as in predictions ----------------------------------------------------------------------

TREE = cabled(pods(2, 2), NDR, pod0_l01=(QDR,), n0001=(NDR,) * 8, n0002=(NDR,) * 8, pod0_l00=(NDR,) * 4)


def managed(topology: Topology) -> Topology:
    """The topology with a management network: a port of each node, and of each switch of the tree."""
    nodes = sorted({x.node for x in topology.adapters})
    ends = [*(f"{node} mgmt0" for node in nodes), *(s.id for s in topology.switches)]
    cables = [Link(end, "eth0", "mgmt", end, "ethernet", ("lldp",), "", 1.0) for end in ends]
    return replace(
        topology,
        adapters=(*topology.adapters, *(Adapter(f"{node} mgmt0", node, "mgmt0") for node in nodes)),
        switches=(*topology.switches, Switch("mgmt", "mgmt", 0)),
        links=LinkTable.of([*cables, *topology.links]),
    )


@pytest.mark.parametrize(
    "topology",
    [
        TREE,
        managed(TREE),
        with_round_trips(TREE, 6.0, 9.0, 15.0),
        replace(TREE, tiers=(Tier(3, "", Measured(10.0, 0.0, 1), Measured(700.0, 0.0, 1)),)),
        replace(
            TREE,
            hypernodes=tuple(
                replace(h, latency_us=Measured(-5.0, 0.0, 1), bandwidth_gbps=Measured(0.0, 0.0, 1))
                for h in TREE.hypernodes
            ),
        ),
    ],
    ids=["tree", "management", "latency", "one tier", "no figures"],
)
@pytest.mark.parametrize("pair", list(combinations(["n0000", "n0001", "n0002", "n0004", "n0008"], 2)))
def test_speeds_are_those_of_predictions_in_both_directions(
    topology: Topology, pair: tuple[str, str]
) -> None:
    forest = Forest.of(topology)
    hop = predict(forest, speeds_of(topology, forest), pair).hops[-1]
    answer, back = explain(topology, *pair, []), explain(topology, *reversed(pair), [])
    assert (answer.bandwidth_gbps, answer.bandwidth_source) == (hop.bandwidth_gbps, hop.bandwidth_source)
    if hop.latency_source == "measured":
        assert (answer.latency_us, answer.latency_source) == (hop.latency_us, "measured")
        if shares := [leg.latency_us for leg in answer.legs if leg.HasField("latency_us")]:
            assert sum(shares) == pytest.approx(hop.latency_us)
    else:
        assert not answer.HasField("latency_us")
    assert [leg.speed_gbps > 1 for leg in answer.legs] == [True] * 2 * answer.tier  # through the tree
    assert [(leg.near, leg.far) for leg in answer.legs] == [(x.far, x.near) for x in reversed(back.legs)]
    assert (back.latency_us, back.bandwidth_gbps) == (answer.latency_us, answer.bandwidth_gbps)


def test_a_path_leaves_the_tree_only_where_the_tree_has_none() -> None:
    cut = managed(cabled(pods(2), NDR, n0000=()))
    answer = explain(cut, "n0000", "n0004", [])
    assert [(leg.near.device, leg.far.device) for leg in answer.legs] == [
        ("n0000 mgmt0", "mgmt"),
        ("mgmt", "n0004 mgmt0"),
    ]
    assert "A shortest path has 2 cables:" in answer.text
    assert "One way" not in answer.text  # what was read of the tree says nothing of this path


def test_ethernet_of_the_tree_counts_where_it_is_the_only_fabric() -> None:
    topology = cabled(pods(2), NDR)
    beside = [Link(f"n000{i}", "e", "sw-pod0-l00", f"e{i}", "ethernet", (), "", 25.0) for i in (0, 1)]
    both = replace(topology, links=LinkTable.of([*beside, *topology.links]))
    assert [leg.speed_gbps for leg in explain(both, "n0000", "n0001", []).legs] == [400, 400]
    alone = replace(topology, links=LinkTable.of(beside))
    answer = explain(alone, "n0000", "n0001", [])
    assert [leg.speed_gbps for leg in answer.legs] == [25, 25]
    assert (answer.bandwidth_gbps, answer.bandwidth_source) == (25, "read")


def test_links_that_are_down_or_denied_are_avoided() -> None:
    topology = cabled(pods(2), NDR, n0000=(QDR, NDR))
    ends = Endpoint("n0000", "n0000", "0"), Endpoint("sw-pod0-l00", "l00", "n0000-0")
    down = replace(topology, anomalies=(anomaly("MissingLink", *ends),))
    first = replace(topology.links[0], note=f"{DENIED}as others say")
    denied = replace(topology, links=LinkTable.of([first, *topology.links[1:]]))
    assert [leg.speed_gbps for leg in explain(topology, "n0000", "n0001", []).legs] == [40, 400]
    for found in (down, denied):
        answer = explain(found, "n0000", "n0001", [])
        assert [leg.speed_gbps for leg in answer.legs] == [400, 400]
        assert "over one rail has 2 cables:" in answer.text

    one = cabled(pods(2), NDR)
    answer = explain(replace(one, anomalies=down.anomalies), "n0000", "n0001", [])  # there is no other link
    assert [leg.speed_gbps for leg in answer.legs] == [0, 400]
    assert "A shortest path has 2 cables, 1 down:" in answer.text
    assert "One way" not in answer.text
    assert [x.kind for x in answer.anomalies] == ["MissingLink"]
    only = LinkTable.of([replace(one.links[0], note=f"{DENIED}as others say"), *one.links[1:]])
    assert not explain(replace(one, links=only), "n0000", "n0001", []).legs


def test_hypernodes_that_are_no_forest_have_no_speeds() -> None:
    odd = replace(TREE, hypernodes=tuple(replace(h, tier=10 * h.tier) for h in TREE.hypernodes))
    answer = explain(odd, "n0000", "n0001", [])
    assert len(answer.legs) == 2
    assert "One way" not in answer.text
