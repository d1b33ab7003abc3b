"""Which evidence inference gets: sweeps in force, ages, and nothing that a commit did not touch made anew."""

import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import cast

import pytest
from hyperscout.v1.finding_pb2 import Finding
from hyperscout_collector.evidence import sweep_texts
from hyperscout_collector.evidence.rows import Key, row_of
from hyperscout_collector.evidence.snapshot import (
    NO_EVIDENCE,
    Resolved,
    Snapshot,
    stale_nodes,
    stale_switches,
)
from hyperscout_collector.evidence.sqlite import SqliteStore
from hyperscout_collector.evidence.state import EvidencePlan, EvidenceState
from hyperscout_collector.evidence.sweep_texts import SweepTexts
from hyperscout_collector.evidence.view import InputsView
from hyperscout_formats.facts.facts import LatencyPort, LatencyResult
from hyperscout_formats.infiniband.ibnetdiscover import parse
from hyperscout_formats.text.errors import FormatError
from hyperscout_formats.text.reporters import DEVICE_PROBE
from hyperscout_sim.fabric.fabric import SimFabric
from hyperscout_sim.fabric.shapes import clos2, rail_only
from hyperscout_sim.readings.sweep_text import sweep_text
from hyperscout_topology.topology import Topology
from support.builders import hypernode
from support.evidence_rig import Rig
from support.evidence_rows import all_rows
from support.findings import T0, S, adapter, called, chassis, failed, lldp, sweep, switch_port, table
from support.measuring_agent import latency

FABRIC = clos2(leaves=4, hosts_per_leaf=2, spines=2)


def without(fabric: SimFabric, *switches: str) -> SimFabric:
    gone = {x.guid for x in fabric.switches if x.name in switches}
    return replace(
        fabric,
        switches=tuple(x for x in fabric.switches if x.guid not in gone),
        cables=tuple(c for c in fabric.cables if not {c.a, c.b} & gone),
    )


def in_force(resolved: Resolved) -> list[tuple[int, bool]]:
    """(switches, partial) of each sweep, oldest first."""
    return [(int((s.sweep.kind == 1).sum()), s.partial) for s in resolved.inputs.sweeps]


SPINES = [x.name for x in FABRIC.switches if x.level == 2]
WHOLE_TEXT, SMALLER = sweep_text(FABRIC), sweep_text(without(FABRIC, SPINES[0]))
LONE_LEAF = sweep_text(without(FABRIC, *SPINES))


def test_the_fabrics_here_are_what_the_tests_say() -> None:
    assert [text.count(b"\nSwitch") for text in (WHOLE_TEXT, SMALLER, LONE_LEAF)] == [6, 5, 1]


def test_what_a_change_does_not_concern_stays_the_same_object(rig: Rig) -> None:
    rig.put(lldp("n1", "eth0"), adapter("n1"))
    before = rig.view.snapshot(T0 + S)
    rig.put(lldp("n1", "eth1", T0 + S))
    after = rig.view.snapshot(T0 + 2 * S)
    assert len(after.lldp["n1"]) == 2
    assert after.infiniband is before.infiniband
    assert after.lldp is not before.lldp


def test_a_newer_sweep_of_the_same_fabric_takes_the_place_of_the_older(rig: Rig) -> None:
    rig.sweep("n1", WHOLE_TEXT)
    rig.sweep("n2", SMALLER, T0 + S)
    resolved = rig.resolved(T0 + 2 * S)
    assert in_force(resolved) == [(5, False)]
    assert resolved.superseded == (Key("n1", "ibnetdiscover", "mlx5_0/1"),)


def test_the_order_in_which_sweeps_came_does_not_matter(rig: Rig) -> None:
    rig.sweep("n2", SMALLER, T0 + S)
    rig.sweep("n1", WHOLE_TEXT)
    assert in_force(rig.resolved(T0 + 2 * S)) == [(5, False)]


def test_sweeps_of_different_fabrics_stand_beside_each_other(rig: Rig) -> None:
    rails = rail_only(units=1, hosts_per_unit=3, rails=2)
    for i, node in enumerate(("n1", "n2")):
        start = next(a.guid for a in rails.adapters if a.device == f"mlx5_{i}")
        rig.sweep(node, sweep_text(rails, start))
    resolved = rig.resolved()
    assert in_force(resolved) == [(1, False), (1, False)]
    assert resolved.superseded == ()


def test_a_partial_sweep_is_marked_and_the_last_whole_one_stays_in_force(rig: Rig) -> None:
    rig.sweep("n1", WHOLE_TEXT)
    rig.sweep("n1", LONE_LEAF, T0 + S, partial=True)
    resolved = rig.resolved(T0 + 2 * S)
    assert in_force(resolved) == [(6, False), (1, True)]
    assert resolved.superseded == ()
    rig.sweep("n2", WHOLE_TEXT + b"\n", T0 + 3 * S)  # by the agent that got the lease
    resolved = rig.resolved(T0 + 4 * S)
    assert in_force(resolved) == [(6, False)]
    assert resolved.superseded == (Key("n1", "ibnetdiscover", "mlx5_0/1"),)


def test_a_fabric_that_came_apart_keeps_its_rest_until_that_is_swept_or_stale(rig: Rig) -> None:
    rig.sweep("n1", WHOLE_TEXT)
    rig.sweep("n2", LONE_LEAF, T0 + S)
    assert in_force(rig.resolved(T0 + 2 * S)) == [(6, False), (1, False)]
    rig.sweep("n2", LONE_LEAF + b"\n", T0 + 400 * S)
    assert in_force(rig.resolved(T0 + 401 * S)) == [(1, False)]


def test_a_holder_whose_port_went_down_leaves_nothing_once_another_has_swept(rig: Rig) -> None:
    rig.sweep("n1", WHOLE_TEXT)
    cut = replace(FABRIC, cables=FABRIC.cables[1:])
    own_adapter_alone = sweep_text(cut, FABRIC.cables[0].a)
    assert own_adapter_alone.count(b"\nSwitch") == 0
    rig.sweep("n1", own_adapter_alone, T0 + S, partial=True)
    resolved = rig.resolved(T0 + 2 * S)
    assert in_force(resolved) == [(6, False)]
    assert resolved.superseded == ()
    rig.sweep("n2", SMALLER, T0 + 3 * S)
    resolved = rig.resolved(T0 + 4 * S)
    assert in_force(resolved) == [(5, False)]
    assert resolved.superseded == (Key("n1", "ibnetdiscover", "mlx5_0/1"),)


def test_a_failed_sweep_leaves_the_last_one_in_force(rig: Rig) -> None:
    rig.sweep("n1", WHOLE_TEXT)
    rig.put(failed("n1", "ibnetdiscover", "mlx5_0/1", T0 + S), at_ns=T0 + S)
    assert in_force(rig.resolved(T0 + 2 * S)) == [(6, False)]


def test_a_text_that_cannot_be_read_is_a_problem_and_takes_nothing_down(rig: Rig) -> None:
    rig.sweep("n1", WHOLE_TEXT)
    rig.sweep("n2", b"\x00\x01 nothing of the kind", T0 + S)
    resolved = rig.resolved(T0 + 2 * S)
    assert in_force(resolved) == [(6, False)]
    assert "ibnetdiscover of n2" in resolved.problems[0]
    assert resolved.superseded == ()


def test_a_text_is_read_once(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.sweep("n1", WHOLE_TEXT)
    first = rig.resolved().inputs.sweeps[0].sweep
    assert rig.resolved(T0 + 2 * S).inputs.sweeps[0].sweep is first
    digest = hashlib.sha256(WHOLE_TEXT).digest()
    guids = rig.texts.port_guids(digest, "x")
    assert {a.port_guid for a in FABRIC.adapters} <= guids
    with pytest.raises(FormatError, match="does not contain its text"):
        rig.texts.get(b"?" * 32, "x")


def test_the_cache_of_texts_is_bounded(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "evidence.db")
    texts = SweepTexts(store, limit=2)
    for i in range(5):
        texts.read(bytes([i]), WHOLE_TEXT, "x")
    with pytest.raises(FormatError):
        texts.get(bytes([2]), "x")
    assert texts.get(bytes([3]), "x") is texts.get(bytes([3]), "x")
    store.close()


def test_texts_that_no_finding_names_are_forgotten(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "evidence.db")
    texts = SweepTexts(store)
    old, named, new = (bytes([i]) for i in range(3))
    for digest in (old, named):
        texts.read(digest, WHOLE_TEXT, "x")
        texts.port_guids(digest, "x")
    texts.keep_only({named})  # both came since the start, and findings that name them may be on their way
    texts.read(new, WHOLE_TEXT, "x")
    kept = texts.get(new, "x"), texts.get(old, "x"), texts.port_guids(named, "x")
    texts.keep_only({named})
    assert texts.get(new, "x") is kept[0]
    assert texts.port_guids(named, "x") is kept[2]
    for read in (texts.get, texts.port_guids):
        with pytest.raises(FormatError, match="does not contain its text"):
            read(old, "x")
    store.close()


def test_readings_by_node_and_only_the_touched_ones_anew(rig: Rig) -> None:
    rig.put(lldp("n1", "eth1"), lldp("n1", "eth0"), adapter("n1"), adapter("n2"), lldp("n2", "eth0"))
    before = rig.view.snapshot(T0)
    assert [port.interface for port in before.lldp["n1"]] == ["eth0", "eth1"]
    rig.put(adapter("n2", at_ns=T0 + S, state="DOWN"), at_ns=T0 + S)
    after = rig.view.snapshot(T0 + S)
    assert (before.infiniband["n2"][0].state, after.infiniband["n2"][0].state) == ("ACTIVE", "DOWN")
    assert after.lldp["n1"] is before.lldp["n1"]
    assert (after.infiniband_at_ns["n1"], after.infiniband_at_ns["n2"]) == (T0, T0 + S)


def test_what_failed_says_nothing_of_the_wires(rig: Rig) -> None:
    rig.put(failed("n1", "lldp", "eth0"), failed("n2", "lldp", "*"), failed("n3", "infiniband", "mlx5_0/1"))
    assert rig.view.snapshot(T0).lldp == {}
    assert rig.view.snapshot(T0).unsure == {"n1"}, "a node that cannot tell of a port may yet tell"
    rig.put(lldp("n1", "eth0"))
    assert rig.view.snapshot(T0).unsure == set()
    rig.put(failed("n1", "lldp", "eth0", at_ns=T0 + S), at_ns=T0 + S)
    assert rig.view.snapshot(T0 + S).unsure == set(), "what was known stays known"


def test_a_node_that_goes_away_goes_from_the_view(rig: Rig) -> None:
    rig.put(lldp("n1", "eth0"), adapter("n1"))
    plan = EvidencePlan(rig.state, T0)
    for key in list(rig.state.keys_of("n1")):
        plan.remove(key)
    rig.view.follow(rig.state.commit(plan))
    snapshot = rig.view.snapshot(T0)
    assert (snapshot.lldp, snapshot.infiniband, snapshot.infiniband_at_ns) == ({}, {}, {})
    assert (rig.state.node_count, rig.view.unseen_since(T0 + S)) == (0, [])


def test_of_a_node_and_the_device_in_it_each_can_fall_silent(rig: Rig) -> None:
    later = T0 + 200 * S
    rig.put(lldp("n1", "eth0", later), called(lldp("n1", "p0"), "n1", DEVICE_PROBE), at_ns=later)
    rig.put(called(lldp("n2", "p0"), "n2", DEVICE_PROBE))
    assert [port.interface for port in rig.view.snapshot(later).lldp["n1"]] == ["eth0", "p0"]
    assert rig.view.snapshot(T0 + 300 * S).stale == {}
    assert rig.view.snapshot(T0 + 300 * S + 1).stale == {"n1": T0, "n2": T0}
    assert sorted(rig.view.unseen_devices(T0 + 1)) == ["n1", "n2"]
    assert rig.view.unseen_since(T0 + 1) == ["n2"], "of n1 the agent speaks"
    assert rig.view.unseen_devices(T0) == []
    assert [rig.view.seen_ns(node) for node in ("n1", "n2")] == [later, 0], "of the agents"


def test_silence_makes_stale_and_a_failure_is_no_sight(rig: Rig) -> None:
    rig.put(lldp("n1", "eth0"), lldp("n2", "eth0"))
    later = T0 + 200 * S
    rig.put(lldp("n2", "eth0", later), failed("n1", "lldp", "eth0", later), at_ns=later)
    assert rig.view.snapshot(T0 + 300 * S).stale == {}
    assert rig.view.next_stale_ns == T0 + 300 * S + 1
    assert rig.view.snapshot(T0 + 300 * S + 1).stale == {"n1": T0}
    assert rig.view.next_stale_ns == later + 300 * S + 1
    assert len(rig.view.unseen_since(later)) == 1


def test_a_node_whose_looks_all_failed_grows_old_too(rig: Rig) -> None:
    """Nothing of it was ever seen, so it is not stale; without this it would be kept for ever."""
    rig.put(failed("n1", "lldp", "eth0", T0), failed("n1", "lldp", "eth1", T0 + S), at_ns=T0 + S)
    assert (rig.view.failed_before(T0 + S), rig.view.failed_before(T0 + 2 * S)) == ([], ["n1"])
    assert rig.view.unseen_since(T0 + 2 * S) == []
    rig.put(lldp("n1", "eth0", T0 + 2 * S), at_ns=T0 + 2 * S)
    assert rig.view.failed_before(T0 + 9 * S) == []


def test_switches_are_apart_from_nodes(rig: Rig) -> None:
    rig.put(lldp("n1", "eth0"), switch_port("switch/leaf-1", "swp2"), switch_port("switch/leaf-1", "swp1"))
    later = T0 + 400 * S
    rig.put(switch_port("switch/leaf-2", "swp1", later, neighbour=""), at_ns=later)
    resolved = rig.resolved(later)
    inputs = resolved.inputs
    assert list(inputs.lldp) == ["n1"]
    ports = {name: [port.interface for port in said] for name, said in inputs.switch_ports.items()}
    assert ports == {"switch/leaf-1": ["swp1", "swp2"], "switch/leaf-2": ["swp1"]}
    assert inputs.silent == {"n1", "switch/leaf-1"}
    snapshot = rig.view.snapshot(later)
    assert stale_nodes(snapshot, Topology(1)) == {"n1": T0}
    assert stale_switches(snapshot) == {chassis("leaf-1"): T0}


def test_a_switch_that_was_renamed_is_not_stale(rig: Rig) -> None:
    rig.put(switch_port("switch/leaf-1", "swp1"))
    later = T0 + 400 * S
    renamed = switch_port("switch/leaf-1", "swp1", later)
    renamed.key.node = "switch/rack7-leaf"
    rig.put(renamed, at_ns=later)
    assert stale_switches(rig.view.snapshot(later)) == {}


# --- whole switches as others saw them


def tables_of(rig: Rig, now_ns: int) -> list[tuple[str, str, int, bool]]:
    """(name, probe, ports, silent) of each."""
    return sorted(
        (seen.table.ports[0].system_name, seen.source, len(seen.table.ports), seen.silent)
        for seen in rig.resolved(now_ns).inputs.tables
    )


def test_the_newest_look_at_a_switch_is_in_force(rig: Rig) -> None:
    """Whichever reporter looked, and under whatever address; what a manager says of it is another witness."""
    small, large = {"swp1": ""}, {"swp1": "", "swp2": ""}
    rig.put(table("leaf-1", large, reporter="fabric/b"), table("leaf-1", small, reporter="fabric/a"))
    assert tables_of(rig, T0 + S) == [("leaf-1", "snmp", 2, False)], "of two at one time always the same"
    rig.put(table("leaf-1", small, T0 + S, reporter="fabric/a"), at_ns=T0 + S)
    rig.put(table("leaf-1", large, T0 + S, probe="netq"), at_ns=T0 + S)
    assert tables_of(rig, T0 + S) == [("leaf-1", "netq", 2, False), ("leaf-1", "snmp", 1, False)]


def test_a_switch_that_does_not_answer_keeps_its_last_table_which_grows_old(rig: Rig) -> None:
    rig.put(table("leaf-1", {"swp1": ""}), table("leaf-2", {"swp1": ""}))
    gone = table("leaf-1", {}).key.subject
    for at in (100, 200, 290):
        now_ns = T0 + at * S
        no_answer = failed("fabric/crawl", "snmp", gone, now_ns)
        changes = rig.put(no_answer, table("leaf-2", {"swp1": ""}, now_ns), at_ns=now_ns)
        assert any(change.news for change in changes) == (at == 100)
    assert tables_of(rig, T0 + 300 * S) == [("leaf-1", "snmp", 1, False), ("leaf-2", "snmp", 1, False)]
    assert rig.view.next_stale_ns == T0 + 300 * S + 1, "then it is looked at again"
    later = T0 + 300 * S + 1
    assert tables_of(rig, later) == [("leaf-1", "snmp", 1, True), ("leaf-2", "snmp", 1, False)]
    snapshot = rig.view.snapshot(later)
    assert stale_switches(snapshot) == {gone: T0}
    assert stale_nodes(snapshot, Topology(1)) == {}, "a crawler is no node"


def test_a_switch_that_a_reporter_still_speaks_of_is_not_stale(rig: Rig) -> None:
    later = T0 + 301 * S
    rig.put(table("leaf-1", {"swp1": ""}), table("leaf-2", {"swp1": ""}), table("leaf-3", {"swp1": ""}))
    rig.put(table("leaf-2", {"swp1": ""}, later, reporter="fabric/b"), at_ns=later)
    rig.put(switch_port("switch/leaf-3", "swp1", later), at_ns=later)
    assert [(name, silent) for name, _, _, silent in tables_of(rig, later)] == [
        ("leaf-1", True),
        ("leaf-2", False),
        ("leaf-3", True),
    ]
    snapshot = rig.view.snapshot(later)
    assert snapshot.stale == {"fabric/crawl": T0}
    assert stale_switches(snapshot) == {chassis("leaf-1"): T0}


def test_a_table_without_ports_is_its_subjects(rig: Rig) -> None:
    rig.put(table("leaf-1", {}), table("leaf-2", {}))
    assert len(rig.resolved().inputs.tables) == 2


def test_what_a_manager_shows_and_what_was_swept_are_two_witnesses(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep_texts, "_READERS", {**sweep_texts._READERS, "ufm": parse})
    rig.sweep("n1", WHOLE_TEXT)
    for i, reporter in enumerate(("fabric/a", "fabric/b")):
        text = WHOLE_TEXT + b"\n" * (i + 1)
        shown = sweep(reporter, hashlib.sha256(text).digest(), T0 + (i + 1) * S)
        shown.key.probe = shown.sweep.format = "ufm"
        rig.put(shown, at_ns=T0 + (i + 1) * S, texts=[text])
    resolved = rig.resolved(T0 + 3 * S)
    assert [x.source for x in resolved.inputs.sweeps] == ["ibnetdiscover", "ufm"]
    assert [key.node for key in resolved.superseded] == ["fabric/a"]


def test_a_text_of_a_format_without_a_reader() -> None:
    with pytest.raises(FormatError, match="unknown format 'x'; expected ibnetdiscover"):
        SweepTexts(cast(SqliteStore, None)).read(b"", b"", "stranger", "x")


def test_nothing_is_stale_when_the_collector_itself_was_away(rig: Rig) -> None:
    rig.put(lldp("n1", "eth0"))
    view = InputsView(rig.state, stale_after_s=300, started_ns=T0 + 5000 * S)
    view.touch(rig.state.nodes)
    assert view.snapshot(T0 + 5001 * S).stale == {}
    assert view.next_stale_ns == T0 + 5300 * S + 1
    assert view.snapshot(T0 + 5300 * S + 1).stale == {"n1": T0}


def test_nodes_that_no_agent_speaks_for_are_as_old_as_the_sweep(rig: Rig) -> None:
    rig.sweep("n1", WHOLE_TEXT)
    rig.put(adapter("n1", at_ns=T0 + 400 * S), at_ns=T0 + 400 * S)
    topology = Topology(1, (hypernode("leaf", ("n1", "n7")),))
    assert stale_nodes(rig.view.snapshot(T0 + 200 * S), topology) == {}
    assert stale_nodes(rig.view.snapshot(T0 + 401 * S), topology) == {"n7": T0}


# --- what nodes measured of each other


def measured(node: str, peer: str, us: float = 5.0, *, at_ns: int = T0, seen_ns: int = T0) -> Finding:
    result = LatencyResult(peer, "ib0", "udp", at_ns, 16, 16, us, us, 0.1)
    return latency(node, LatencyPort("ib0", ("10.0.0.1",), 4711, "", (result,)), seen_ns)


def test_pairs_are_read_once_and_again_only_after_a_new_measurement(rig: Rig) -> None:
    rig.put(measured("a", "b"), measured("b", "a"))
    first = rig.resolved().inputs.pairs
    assert (first.nodes, first.rtt_us.tolist(), first.at_ns.tolist()) == (("a", "b"), [5.0], [T0])
    rig.put(lldp("a", "eth0"), at_ns=T0 + S)
    rig.put(measured("a", "b", seen_ns=T0 + 60 * S), at_ns=T0 + 60 * S)  # told again: no other measurement
    assert rig.resolved().inputs.pairs is first
    assert rig.view.tables.read(rig.view.measured()) is first
    rig.put(measured("a", "b", 5.5, at_ns=T0 + 70 * S, seen_ns=T0 + 70 * S), at_ns=T0 + 70 * S)
    assert rig.resolved().inputs.pairs.rtt_us.tolist() == [5.5]
    assert rig.view.tables.last.rtt_us.tolist() == [5.5]


def test_a_measurement_is_as_old_as_our_clock_says(rig: Rig) -> None:
    """The clock of a is an hour ahead, and then set."""
    hour = 3600 * S
    plan = EvidencePlan(rig.state, T0)
    ahead = measured("a", "b", at_ns=T0 + hour - 5 * S, seen_ns=T0 + hour)
    for finding, sent_ns in ((ahead, T0 + hour), (measured("b", "a", at_ns=T0 - 9 * S), T0)):
        plan.upsert(row_of(finding, sent_ns=sent_ns, received_ns=T0), b"")
    rig.view.follow(rig.state.commit(plan))
    assert rig.resolved().inputs.pairs.at_ns.tolist() == [T0 - 5 * S]
    rig.put(measured("a", "b", at_ns=T0 + hour - 5 * S, seen_ns=T0 + S), at_ns=T0 + S)  # set, and told again
    assert rig.resolved().inputs.pairs.at_ns.tolist() == [T0 - 5 * S]
    rig.put(measured("a", "b", at_ns=T0 + hour, seen_ns=T0 + 9 * S), at_ns=T0 + 9 * S)
    assert rig.resolved().inputs.pairs.at_ns.tolist() == [T0 + 9 * S]  # not from the future


def test_a_node_that_measures_no_more_is_in_no_pair(rig: Rig) -> None:
    rig.put(measured("a", "b"), measured("b", "a"))
    assert len(rig.resolved().inputs.pairs) == 1
    plan = EvidencePlan(rig.state, T0)
    plan.remove(Key("b", "latency", "ib0"))
    rig.view.follow(rig.state.commit(plan))
    assert len(rig.resolved().inputs.pairs) == 0
    assert set(rig.view.measured()) == {"a"}


def port_of(node: str, *peers: str, address: str = "10.0.0.1", failed_at: str = "") -> Finding:
    results = [
        LatencyResult(peer, "ib0", "udp", T0, 16, 0, 0.0, 0.0, 0.0, failure="no answer")
        if peer == failed_at
        else LatencyResult(peer, "ib0", "udp", T0, 16, 16, 5.0, 5.0, 0.1)
        for peer in peers
    ]
    return latency(node, LatencyPort("ib0", (address,), 4711, "", tuple(results)), T0)


def pairs_seen(rig: Rig, now_ns: int) -> list[str]:
    """Of the node "a"."""
    pairs = rig.resolved(now_ns).inputs.pairs
    return [pairs.nodes[b] for a, b in zip(pairs.a, pairs.b, strict=True) if pairs.nodes[a] == "a"]


@pytest.fixture
def four(rig: Rig) -> Rig:
    rig.put(port_of("a", "b", "c", "d", "e"), *(port_of(x, "a") for x in "bcde"))
    assert pairs_seen(rig, T0 + S) == ["b", "c", "d", "e"]
    return rig


def test_a_restarted_agent_need_not_measure_all_at_once(four: Rig) -> None:
    """Its node stays where it is until half is measured anew; the planner knows of nothing."""
    four.put(port_of("a"), at_ns=T0 + 2 * S)
    assert pairs_seen(four, T0 + 3 * S) == ["b", "c", "d", "e"]
    assert len(four.view.tables.read(four.view.measured())) == 0
    four.put(lldp("a", "eth0"), at_ns=T0 + 3 * S)
    four.put(port_of("a", "c", failed_at="c"), at_ns=T0 + 4 * S)
    assert pairs_seen(four, T0 + 5 * S) == ["b", "c", "d", "e"], "that it failed once is no other distance"
    four.put(port_of("a", "c"), at_ns=T0 + 6 * S)
    assert pairs_seen(four, T0 + 7 * S) == ["b", "c", "d", "e"]
    four.put(port_of("a", "c", "d"), at_ns=T0 + 8 * S)
    assert pairs_seen(four, T0 + 9 * S) == ["c", "d"], "half of them: it speaks for itself"


def test_what_a_restarted_agent_knew_fades(four: Rig) -> None:
    four.put(port_of("a"), at_ns=T0 + 2 * S)
    four.put(port_of("a", "b"), at_ns=T0 + 3 * S)
    assert len(pairs_seen(four, T0 + 3599 * S)) == 4, "an hour from the restart on"
    assert pairs_seen(four, T0 + 3600 * S) == ["b"]
    four.put(port_of("a", "c"), at_ns=T0 + 3604 * S)
    assert pairs_seen(four, T0 + 3605 * S) == ["c"], "and not again"


def test_a_node_that_came_back_elsewhere_is_measured_anew(four: Rig) -> None:
    four.put(port_of("a", address="10.0.9.9"), at_ns=T0 + 2 * S)
    assert pairs_seen(four, T0 + 3 * S) == []


def test_a_burst_that_failed_is_no_restart(rig: Rig) -> None:
    rig.put(port_of("a", "b"), port_of("b", "a"))
    rig.put(port_of("a", "b", failed_at="b"), at_ns=T0 + S)
    assert pairs_seen(rig, T0 + 2 * S) == []


def test_since_when_ports_are_up_by_our_clock(rig: Rig) -> None:
    """The clock of n1 is an hour ahead. That of n3 was set back, or n3 claims a time that is to come."""
    hour = 3600 * S
    plan = EvidencePlan(rig.state, T0)
    for finding, sent_ns in (
        (adapter("n1", at_ns=T0 + hour, since_ns=T0 + hour - 5 * S), T0 + hour),
        (adapter("n1", "mlx5_1", at_ns=T0 + hour, guid=9), T0 + hour),
        (adapter("n2", at_ns=T0, since_ns=T0 + S), T0),
        (adapter("n3", at_ns=T0, since_ns=T0 + 3 * S), T0),
    ):
        plan.upsert(row_of(finding, sent_ns=sent_ns, received_ns=T0), b"")
    rig.view.follow(rig.state.commit(plan))
    assert dict(rig.view.snapshot(T0).infiniband_up_ns) == {
        "n1": {(1, 1): T0 - 5 * S},
        "n2": {(1, 1): T0 + S},
    }
    rig.put(adapter("n2", at_ns=T0 + S, state="DOWN"), at_ns=T0 + S)
    assert set(rig.view.snapshot(T0).infiniband_up_ns) == {"n1"}


def test_renewals_leave_what_reading_all_anew_would() -> None:
    """Findings that come again with nothing but another time, among others."""
    kinds: list[Callable[[int], Finding]] = [
        lambda at_ns: lldp("n1", "eth0", at_ns),
        lambda at_ns: lldp("n1", "eth0", at_ns, neighbour="leaf-2"),
        lambda at_ns: failed("n1", "lldp", "eth0", at_ns),
        lambda at_ns: failed("n1", "lldp", "eth1", at_ns),
        lambda at_ns: failed("n3", "lldp", "eth1", at_ns),
        lambda at_ns: called(lldp("n1", "eth0", at_ns), "n1", DEVICE_PROBE),
        lambda at_ns: called(lldp("n4", "eth0", at_ns), "n4", DEVICE_PROBE),
        lambda at_ns: adapter("n1", at_ns=at_ns, since_ns=T0 - S),
        lambda at_ns: adapter("n2", at_ns=at_ns, since_ns=T0 + 3 * S),
        lambda at_ns: adapter("n2", "mlx5_1", at_ns, state="DOWN"),
        lambda at_ns: measured("n2", "n1", at_ns=at_ns, seen_ns=at_ns),
        lambda at_ns: switch_port("switch/leaf-1", "swp1", at_ns),
        lambda at_ns: table("leaf-2", {"swp1": "spine-1/swp1"}, at_ns),
        lambda at_ns: sweep("n3", b"x" * 32, at_ns),
    ]
    for seed in range(20):
        rng, state = Random(seed), EvidenceState()
        view = InputsView(state, stale_after_s=300, started_ns=T0 - 10_000 * S)
        renewals = 0
        for now_ns in range(T0, T0 + 60 * S, S):
            plan = EvidencePlan(state, now_ns)
            skew_ns = rng.choice((0, 0, 0, 5 * S, -5 * S))
            for kind in rng.choices(kinds, k=3):
                sent_ns = now_ns + skew_ns
                times = {"sent_ns": sent_ns, "received_ns": now_ns}
                plan.upsert(row_of(kind(sent_ns), **times, memory_bytes=rng.choice((1, 1, 2))), b"")
            for row in rng.sample(list(all_rows(state)), k=min(len(state), rng.randrange(3))):
                held = [x for x in plan.rows_of_key(row.key) if x.rank == row.rank and x.same_content(row)]
                assert plan.renew(row.renewed(sent_ns, skew_ns, now_ns)) == bool(held)
            if rng.random() < 0.1:
                plan.remove(
                    rng.choice([key for node in state.nodes for key in state.keys_of(node)] or [NO_KEY])
                )
            changes = state.commit(plan)
            renewals += sum(change.is_renewal for change in changes)
            view.follow(changes)
            anew = InputsView(state, stale_after_s=300, started_ns=T0 - 10_000 * S)
            anew.touch(state.nodes)
            loaded = EvidenceState()
            loaded.load(all_rows(state), ())
            assert counts(state) == counts(loaded)
            found = anew.snapshot(now_ns + 200 * S)
            assert by_content(view.snapshot(now_ns + 200 * S)) == by_content(found)
        assert renewals > 20


def counts(state: EvidenceState) -> object:
    sizes = {node: (state.count_of(node), state.bytes_of(node)) for node in state.nodes}
    return state.outcomes(), sizes, [state.stale_count(T0 + second * S) for second in range(0, 60, 7)]


NO_KEY = Key("n9", "lldp", "eth0")


def by_content(snapshot: Snapshot) -> Snapshot:
    """Without what differs between views of the same evidence: the order of reporters, and kept readings."""
    return replace(
        snapshot,
        latency={},
        pair_tables=NO_EVIDENCE.pair_tables,
        tables=tuple(sorted(snapshot.tables, key=lambda reading: reading.row.key)),
        sweeps=tuple(sorted(snapshot.sweeps, key=lambda row: (row.key, row.rank))),
    )
