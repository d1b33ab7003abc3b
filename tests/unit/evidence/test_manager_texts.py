"""What managers show, from findings to inference: read by format, beside sweeps and in their place."""

import json

import pytest
from hyperscout_collector.evidence.snapshot import Resolved, resolve, stale_nodes
from hyperscout_formats.infiniband import ibnetdiscover
from hyperscout_formats.managers import nmx, ufm
from hyperscout_inference.fabric.inputs import FabricInputs, SweepSeen
from hyperscout_inference.hierarchy import infer
from hyperscout_sim.fabric.shapes import clos2
from hyperscout_sim.readings.sweep_text import sweep_text
from hyperscout_sim.readings.ufm import ufm_answers
from hyperscout_topology.topology import Topology
from support.builders import hypernode
from support.evidence_rig import Rig
from support.findings import T0, S

FABRIC = clos2(2, 3, 2)
SWEPT = sweep_text(FABRIC)
UFM = ufm.parse(json.dumps(ufm_answers(FABRIC)).encode()).text
NMX = nmx.text([{"ID": "1", "Name": "tray-1", "DomainUUID": "D", "GpuIDList": []}], [])


def resolved(rig: Rig, now_ns: int) -> Resolved:
    found = rig.resolved(now_ns)
    assert not found.problems
    return found


def sources(resolved: Resolved) -> list[str]:
    return sorted(seen.source for seen in resolved.inputs.sweeps)


@pytest.mark.parametrize("first", ["ufm", "ibnetdiscover"])
def test_neither_ends_the_other(rig: Rig, first: str) -> None:
    for n in range(4):
        for probe in ("ufm", "ibnetdiscover") if first == "ufm" else ("ibnetdiscover", "ufm"):
            text, reporter = (UFM, "fabric/f") if probe == "ufm" else (SWEPT, "n1")
            rig.sent(reporter, probe, text, T0 + n * 60 * S)
            found = resolved(rig, T0 + n * 60 * S + S)
            assert not found.superseded
    assert sources(found) == ["ibnetdiscover", "ufm"]


def test_a_second_manager_of_one_fabric_takes_the_place_of_the_first(rig: Rig) -> None:
    rig.sent("fabric/a", "ufm", UFM, T0)
    rig.sent("fabric/b", "ufm", UFM + b"#\n", T0 + S)
    found = resolved(rig, T0 + 2 * S)
    assert sources(found) == ["ufm"]
    assert [key.node for key in found.superseded] == ["fabric/a"]


@pytest.mark.parametrize(("silent", "speaks"), [("ufm", "ibnetdiscover"), ("ibnetdiscover", "ufm")])
def test_a_source_that_looks_no_more_yields_to_one_that_does(rig: Rig, silent: str, speaks: str) -> None:
    of = {"ufm": (UFM, "fabric/f"), "ibnetdiscover": (SWEPT, "n1")}
    rig.sent(of[silent][1], silent, of[silent][0], T0)
    assert sources(resolved(rig, T0 + 1000 * S)) == [silent]
    rig.sent(of[speaks][1], speaks, of[speaks][0], T0 + 1000 * S)
    assert sources(resolved(rig, T0 + 1001 * S)) == [speaks]


def test_nvlink_domains_are_no_sweep(rig: Rig) -> None:
    rig.sent("fabric/f", "nmx", NMX, T0)
    rig.sent("fabric/f", "ufm", UFM, T0)
    found = resolved(rig, T0 + S)
    assert sources(found) == ["ufm"]
    assert list(found.inputs.managed_gpus) == ["tray-1"]
    rig.sent("fabric/f", "nmx", None, T0 + 2 * S)
    assert list(resolved(rig, T0 + 3 * S).inputs.managed_gpus) == ["tray-1"]
    newer = NMX.replace(b"tray-1", b"tray-2")
    rig.sent("fabric/f", "nmx", newer, T0 + 4 * S)
    again = resolved(rig, T0 + 5 * S)
    assert list(again.inputs.managed_gpus) == ["tray-2"]
    assert not again.superseded


@pytest.mark.parametrize(
    ("node", "known"), [("east/tray-1", True), ("", False)], ids=["one node", "two nodes"]
)
def test_a_manager_names_hosts_without_their_cluster(rig: Rig, node: str, known: bool) -> None:
    rig.sent("fabric/f", "nmx", NMX, T0)
    names = {"tray-1": node}
    inputs = resolve(rig.view.snapshot(T0 + S), rig.texts, {}, node_names=names).inputs
    assert list(inputs.managed_gpus) == ([node] if known else [])
    assert inputs.node_names == names


def test_whose_evidence_is_stale(rig: Rig) -> None:
    """Hosts that only sweeps show are as old as the newest of those; what a cloud says of nodes is not."""
    rig.sent("n1", "ibnetdiscover", SWEPT, T0)
    rig.sent("fabric/f", "nmx", NMX, T0 + 1000 * S)
    snapshot = rig.view.snapshot(T0 + 1000 * S)
    tree = Topology(
        1,
        (
            hypernode("wired", ("a",), switches=("s",)),
            hypernode("told", ("b",), source="labels"),
        ),
    )
    assert stale_nodes(snapshot, tree) == {"a": T0, "n1": T0}
    rig.sent("fabric/f", "ufm", UFM, T0 + 1001 * S)
    assert stale_nodes(rig.view.snapshot(T0 + 1001 * S), tree) == {"n1": T0}


def test_an_adapter_without_a_host_has_its_own_witness() -> None:
    answers = ufm_answers(FABRIC)
    text = json.dumps(answers["ports"]).replace("node-0001 mlx5_0", "MT4129 ConnectX7 Mellanox Technologies")
    sweep = ibnetdiscover.parse(ufm.parse(text.encode()).text)
    found = infer(FabricInputs(sweeps=(SweepSeen(sweep, "ufm"),)))
    assert [(x.kind, x.sources) for x in found.anomalies] == [("UnknownHost", ("ufm",))]
