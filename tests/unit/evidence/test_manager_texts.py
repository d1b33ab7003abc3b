"""What managers show, from findings to inference: read by format, beside sweeps and in their place."""

import hashlib
import json
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from hyperscout.v1.finding_pb2 import Finding, FindingKey, Outcome, Sweep
from hyperscout_collector.evidence.rows import row_of
from hyperscout_collector.evidence.snapshot import Resolved, resolve, stale_nodes
from hyperscout_collector.evidence.sqlite import SqliteStore
from hyperscout_collector.evidence.state import Bulk, EvidencePlan, EvidenceState
from hyperscout_collector.evidence.store import Changes
from hyperscout_collector.evidence.sweep_texts import SweepTexts
from hyperscout_collector.evidence.view import InputsView
from hyperscout_formats.infiniband import ibnetdiscover
from hyperscout_formats.infiniband.ibnetdiscover_text import summary
from hyperscout_formats.managers import nmx, ufm
from hyperscout_inference.fabric.inputs import FabricInputs, SweepSeen
from hyperscout_inference.hierarchy import infer
from hyperscout_sim.fabric.shapes import clos2
from hyperscout_sim.readings.sweep_text import sweep_text
from hyperscout_sim.readings.ufm import ufm_answers
from hyperscout_topology.topology import Topology
from support.builders import hypernode
from support.findings import T0, S, stamp

FABRIC = clos2(2, 3, 2)
SWEPT = sweep_text(FABRIC)
UFM = ufm.parse(json.dumps(ufm_answers(FABRIC)).encode()).text
NMX = nmx.text([{"ID": "1", "Name": "tray-1", "DomainUUID": "D", "GpuIDList": []}], [])


class Rig:
    def __init__(self, store: SqliteStore) -> None:
        self.store = store
        self.state = EvidenceState()
        self.view = InputsView(self.state, stale_after_s=300, started_ns=T0 - 10_000 * S)
        self.texts = SweepTexts(store)

    def put(self, reporter: str, probe: str, text: bytes | None, at_ns: int) -> None:
        """`text` None: the look failed."""
        finding = Finding(
            key=FindingKey(node=reporter, probe=probe, subject="x"),
            observed_at=stamp(at_ns),
            outcome=Outcome.OUTCOME_FAILED,
        )
        plan = EvidencePlan(self.state, at_ns)
        if text is not None:
            bulk = Bulk(hashlib.sha256(text).digest(), len(text), zlib.compress(text))
            plan.put_bulk(bulk)
            self.store.apply(Changes(bulks=[bulk]))
            finding.outcome = Outcome.OUTCOME_DATA
            guid = summary(text).port_guid if probe == "ibnetdiscover" else 0
            found = Sweep(format=probe, sha256=bulk.sha256, size_bytes=len(text), port_guid=guid)
            finding.sweep.CopyFrom(found)
        plan.upsert(row_of(finding, sent_ns=at_ns, received_ns=at_ns), b"")
        self.view.follow(self.state.commit(plan))

    def resolved(self, now_ns: int) -> Resolved:
        found = resolve(self.view.snapshot(now_ns), self.texts, {})
        assert not found.problems
        return found


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    store = SqliteStore(tmp_path / "evidence.db")
    yield Rig(store)
    store.close()


def sources(resolved: Resolved) -> list[str]:
    return sorted(seen.source for seen in resolved.inputs.sweeps)


@pytest.mark.parametrize("first", ["ufm", "ibnetdiscover"])
def test_neither_ends_the_other(rig: Rig, first: str) -> None:
    for n in range(4):
        for probe in ("ufm", "ibnetdiscover") if first == "ufm" else ("ibnetdiscover", "ufm"):
            text, reporter = (UFM, "fabric/f") if probe == "ufm" else (SWEPT, "n1")
            rig.put(reporter, probe, text, T0 + n * 60 * S)
            found = rig.resolved(T0 + n * 60 * S + S)
            assert not found.superseded
    assert sources(found) == ["ibnetdiscover", "ufm"]


def test_a_second_manager_of_one_fabric_takes_the_place_of_the_first(rig: Rig) -> None:
    rig.put("fabric/a", "ufm", UFM, T0)
    rig.put("fabric/b", "ufm", UFM + b"#\n", T0 + S)
    found = rig.resolved(T0 + 2 * S)
    assert sources(found) == ["ufm"]
    assert [key.node for key in found.superseded] == ["fabric/a"]


@pytest.mark.parametrize(("silent", "speaks"), [("ufm", "ibnetdiscover"), ("ibnetdiscover", "ufm")])
def test_a_source_that_looks_no_more_yields_to_one_that_does(rig: Rig, silent: str, speaks: str) -> None:
    of = {"ufm": (UFM, "fabric/f"), "ibnetdiscover": (SWEPT, "n1")}
    rig.put(of[silent][1], silent, of[silent][0], T0)
    assert sources(rig.resolved(T0 + 1000 * S)) == [silent]
    rig.put(of[speaks][1], speaks, of[speaks][0], T0 + 1000 * S)
    assert sources(rig.resolved(T0 + 1001 * S)) == [speaks]


def test_nvlink_domains_are_no_sweep(rig: Rig) -> None:
    rig.put("fabric/f", "nmx", NMX, T0)
    rig.put("fabric/f", "ufm", UFM, T0)
    found = rig.resolved(T0 + S)
    assert sources(found) == ["ufm"]
    assert list(found.inputs.managed_gpus) == ["tray-1"]
    rig.put("fabric/f", "nmx", None, T0 + 2 * S)
    assert list(rig.resolved(T0 + 3 * S).inputs.managed_gpus) == ["tray-1"]
    newer = NMX.replace(b"tray-1", b"tray-2")
    rig.put("fabric/f", "nmx", newer, T0 + 4 * S)
    again = rig.resolved(T0 + 5 * S)
    assert list(again.inputs.managed_gpus) == ["tray-2"]
    assert not again.superseded


def test_whose_evidence_is_stale(rig: Rig) -> None:
    """Hosts that only sweeps show are as old as the newest of those; what a cloud says of nodes is not."""
    rig.put("n1", "ibnetdiscover", SWEPT, T0)
    rig.put("fabric/f", "nmx", NMX, T0 + 1000 * S)
    snapshot = rig.view.snapshot(T0 + 1000 * S)
    tree = Topology(
        1,
        (
            hypernode("wired", ("a",), switches=("s",)),
            hypernode("told", ("b",), source="labels"),
        ),
    )
    assert stale_nodes(snapshot, tree) == {"a": T0, "n1": T0}
    rig.put("fabric/f", "ufm", UFM, T0 + 1001 * S)
    assert stale_nodes(rig.view.snapshot(T0 + 1001 * S), tree) == {"n1": T0}


def test_an_adapter_without_a_host_has_its_own_witness() -> None:
    answers = ufm_answers(FABRIC)
    text = json.dumps(answers["ports"]).replace("node-0001 mlx5_0", "MT4129 ConnectX7 Mellanox Technologies")
    sweep = ibnetdiscover.parse(ufm.parse(text.encode()).text)
    found = infer(FabricInputs(sweeps=(SweepSeen(sweep, "ufm"),)))
    assert [(x.kind, x.sources) for x in found.anomalies] == [("UnknownHost", ("ufm",))]
