"""From findings to ports that do something wrong: what counts of which fact, when, and what is no news."""

import asyncio
import hashlib
import zlib
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hyperscout.v1.finding_pb2 import Finding, FindingKey, Outcome, Sweep
from hyperscout_collector.app.ingest import link_monitor
from hyperscout_collector.app.ingest.link_monitor import LinkMonitor
from hyperscout_collector.app.ingest.port_owners import PortOwners
from hyperscout_collector.decisions.fabric.link_health import HealthSettings
from hyperscout_collector.evidence.guard import EvidenceGuard
from hyperscout_collector.evidence.rows import Key, row_of
from hyperscout_collector.evidence.sqlite import SqliteStore
from hyperscout_collector.evidence.state import Bulk, EvidencePlan, EvidenceState, KeyChange
from hyperscout_collector.evidence.store import Changes
from hyperscout_collector.evidence.sweep_texts import SweepTexts
from hyperscout_collector.evidence.view import InputsView
from hyperscout_formats.facts.facts import (
    InfinibandPort,
    LldpPort,
    PortCounters,
    SwitchPort,
    SwitchTable,
)
from hyperscout_formats.facts.wire import (
    infiniband_to_proto,
    lldp_to_proto,
    switch_port_to_proto,
    switch_table_to_proto,
)
from hyperscout_formats.infiniband import ibqueryerrors
from hyperscout_formats.text.errors import FormatError
from hyperscout_inference.fabric.inputs import FabricInputs, PortHealth
from hyperscout_topology.topology import Adapter, Endpoint, Switch, Topology
from support.builders import anomaly
from support.findings import T0, S, failed, stamp
from support.waiting import until

SETTINGS = HealthSettings(errors_per_s=1.0, discards_per_s=100.0, flaps_per_hour=5.0, window_s=300.0)
LLDP = LldpPort("eth0", (), "02:00:00:00:00:01", True, 100_000, 1)
SWITCH = SwitchPort(
    "swp1", "mac", "02:00:00:00:00:aa", (), "leaf-1", "ifname", "Ethernet1", carrier_changes=1
)
ADAPTER = InfinibandPort("mlx5_0", 1, 0xA0, 0xA1, 0xA0, "ACTIVE", "LinkUp", 400.0, 1, 1, "", "InfiniBand")


class Rig:
    """Evidence that is put in without a stream."""

    def __init__(self, store: SqliteStore) -> None:
        self.store = store
        self.now_ns = T0
        self.state = EvidenceState()
        self.told = 0
        self.guard = EvidenceGuard(self.state)
        self.topology = Topology(0, ())
        self.start()

    def start(self) -> None:
        """As a collector that starts with `topology` published."""
        self.watch = LinkMonitor(
            SETTINGS,
            SweepTexts(self.store),
            self.guard,
            PortOwners(lambda: self.topology),
            lambda: self.now_ns,
            self._changed,
            self.topology,
        )

    def _changed(self) -> None:
        self.told += 1

    def put(self, *findings: Finding, at_s: float, texts: Sequence[bytes] = ()) -> list[KeyChange]:
        self.now_ns = T0 + round(at_s * S)
        plan = EvidencePlan(self.state, self.now_ns)
        for text in texts:
            bulk = Bulk(hashlib.sha256(text).digest(), len(text), zlib.compress(text))
            plan.put_bulk(bulk)
            self.store.apply(Changes(bulks=[bulk]))
        for finding in findings:
            finding.observed_at.CopyFrom(stamp(self.now_ns))
            plan.upsert(row_of(finding, sent_ns=self.now_ns, received_ns=self.now_ns), b"")
        changes = self.state.commit(plan)
        self.watch.follow(changes)
        return changes

    def remove(self, *keys: Key) -> None:
        plan = EvidencePlan(self.state, self.now_ns)
        for key in keys:
            plan.remove(key)
        self.watch.follow(self.state.commit(plan))

    @property
    def inputs(self) -> FabricInputs:
        return self.watch.added_to(FabricInputs())


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    store = SqliteStore(tmp_path / "evidence.db")
    yield Rig(store)
    store.close()


def finding(fact: LldpPort | SwitchPort | SwitchTable | InfinibandPort) -> Finding:
    match fact:
        case LldpPort():
            key, payload = FindingKey(node="n1", probe="lldp", subject="eth0"), {"lldp": lldp_to_proto(fact)}
        case SwitchPort():
            key = FindingKey(node="switch/leaf-1", probe="switch", subject="swp1")
            payload = {"switch_port": switch_port_to_proto(fact)}
        case SwitchTable():
            key = FindingKey(node="fabric/x", probe="snmp", subject="02:00:00:00:00:aa")
            payload = {"switch_table": switch_table_to_proto(fact)}
        case InfinibandPort():
            key = FindingKey(node="n1", probe="infiniband", subject="mlx5_0/1")
            payload = {"infiniband": infiniband_to_proto(fact)}
    return Finding(key=key, outcome=Outcome.OUTCOME_DATA, **payload)  # type: ignore[arg-type]


ERRORS = PortCounters(rx_errors=600)
HOST, LEAF, GUID = ("n1", "eth0"), ("02:00:00:00:00:aa", "Ethernet1"), ("00000000000000a0", "1")


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        pytest.param(
            LLDP, replace(LLDP, counters=ERRORS), {HOST: PortHealth(2.0, 0.0, 0.0, "lldp")}, id="host"
        ),
        pytest.param(
            LLDP,
            replace(LLDP, counters=PortCounters(0, 300, 0, 300, 0)),
            {HOST: PortHealth(2.0, 0.0, 0.0, "lldp")},
            id="a-driver-that-counts-crc-apart",
        ),
        pytest.param(
            LLDP,
            replace(LLDP, counters=PortCounters(0, 0, 30_000, 0, 30_000)),
            {HOST: PortHealth(0.0, 200.0, 0.0, "lldp")},
            id="drops-both-ways",
        ),
        pytest.param(
            LLDP,
            replace(LLDP, carrier_changes=11),
            {HOST: PortHealth(0.0, 0.0, 5.0, "lldp", T0 + 3631 * S)},
            id="flaps",
        ),
        pytest.param(
            SWITCH, replace(SWITCH, counters=ERRORS), {LEAF: PortHealth(2.0, 0.0, 0.0, "switch")}, id="switch"
        ),
        pytest.param(
            SwitchTable((SWITCH, replace(SWITCH, port_id=""))),
            SwitchTable((replace(SWITCH, counters=ERRORS), replace(SWITCH, port_id="", counters=ERRORS))),
            {LEAF: PortHealth(2.0, 0.0, 0.0, "snmp")},
            id="table",
        ),
        pytest.param(
            ADAPTER,
            replace(ADAPTER, counters=ERRORS),
            {GUID: PortHealth(2.0, 0.0, 0.0, "infiniband")},
            id="infiniband",
        ),
        pytest.param(
            ADAPTER,
            replace(ADAPTER, link_downed=5),
            {GUID: PortHealth(0.0, 0.0, 5.0, "infiniband", T0 + 3631 * S)},
            id="infiniband-flaps",
        ),
        pytest.param(
            replace(ADAPTER, link_layer="Ethernet"),
            replace(ADAPTER, link_layer="Ethernet", counters=ERRORS),
            {},
            id="roce-is-its-nic",
        ),
        pytest.param(
            replace(ADAPTER, counters=PortCounters(rx_errors=1, rx_crc_errors=1)),
            replace(ADAPTER, counters=PortCounters(rx_errors=65_535, rx_crc_errors=65_535)),
            {},
            id="a-full-counter-says-nothing",
        ),
    ],
)
def test_what_counts(
    rig: Rig,
    before: LldpPort | SwitchPort | SwitchTable | InfinibandPort,
    after: LldpPort | SwitchPort | SwitchTable | InfinibandPort,
    found: dict[tuple[str, str], PortHealth],
) -> None:
    rig.put(finding(before), at_s=0)
    rig.put(finding(after), at_s=60)
    assert rig.watch.health == found
    assert rig.told == len(found)


@pytest.mark.parametrize(
    ("fact", "adapters", "switches", "counts"),
    [
        (ADAPTER, {}, {}, True),
        (ADAPTER, {"00000000000000a0": "n1"}, {}, True),
        (ADAPTER, {"00000000000000a0": "00000000000000a0"}, {}, True),  # no host is known
        (ADAPTER, {"00000000000000a0": "n2"}, {}, False),
        (SWITCH, {}, {}, True),
        (SWITCH, {}, {"02:00:00:00:00:aa": "LEAF-1.example"}, True),
        (SWITCH, {}, {"02:00:00:00:00:aa": "leaf-1-00aa", "02:00:00:00:00:bb": "leaf-1"}, True),
        (SWITCH, {}, {"02:00:00:00:00:aa": "leaf-10", "02:00:00:00:00:bb": "leaf-1"}, False),
        (SWITCH, {}, {"02:00:00:00:00:aa": "leaf-1-2", "02:00:00:00:00:bb": "leaf-1"}, False),
        (SWITCH, {}, {"02:00:00:00:00:aa": "leaf-7"}, True),  # no switch has the agent's name
        (SwitchTable((SWITCH,)), {}, {"02:00:00:00:00:aa": "leaf-2"}, True),
    ],
)
def test_only_the_owner_of_a_port_counts(
    rig: Rig,
    fact: SwitchPort | SwitchTable | InfinibandPort,
    adapters: dict[str, str],
    switches: dict[str, str],
    counts: bool,
) -> None:
    rig.topology = Topology(
        1,
        (),
        adapters=tuple(Adapter(ident, node, "") for ident, node in adapters.items()),
        switches=tuple(Switch(ident, name, 1) for ident, name in switches.items()),
    )
    rig.put(finding(fact), at_s=0)
    bad = SwitchTable((replace(SWITCH, counters=ERRORS),)) if fact == SwitchTable((SWITCH,)) else None
    rig.put(finding(bad or replace(fact, counters=ERRORS)), at_s=60)
    assert bool(rig.watch.health) == counts


@pytest.mark.parametrize(
    ("fact", "port", "change"),
    [
        (ADAPTER, GUID, {"adapters": (Adapter(GUID[0], "n2", "mlx5_0"),)}),
        (SWITCH, LEAF, {"switches": (Switch(LEAF[0], "leaf-2", 1), Switch("s", "leaf-1", 1))}),
    ],
)
def test_a_port_that_becomes_anothers_is_no_longer_reported(
    rig: Rig, fact: SwitchPort | InfinibandPort, port: tuple[str, str], change: dict[str, Any]
) -> None:
    """In a generation that shares its other parts with the one before."""
    rig.topology = Topology(1, adapters=(Adapter("a", "n1", ""),), switches=(Switch("b", "leaf-1", 1),))
    rig.put(finding(fact), at_s=0)
    rig.put(finding(replace(fact, counters=ERRORS)), at_s=60)
    assert list(rig.watch.health) == [port]
    rig.topology = replace(rig.topology, generation=2, **change)
    rig.put(finding(replace(fact, counters=replace(ERRORS, rx_errors=1200))), at_s=120)
    assert rig.watch.health == {}


def test_a_switch_that_counts_no_changes_flaps_by_what_is_seen(rig: Rig) -> None:
    port = replace(SWITCH, carrier_changes=0)
    for minute in range(11):
        rig.put(finding(SwitchTable((replace(port, carrier=minute % 2 == 0),))), at_s=60 * minute)
    assert rig.watch.health == {LEAF: PortHealth(0.0, 0.0, 5.0, "snmp", T0 + 3901 * S)}


def test_clears_when_looks_go_on_and_see_the_same(rig: Rig) -> None:
    bad = finding(replace(LLDP, counters=ERRORS))
    rig.put(finding(LLDP), at_s=0)
    rig.put(bad, at_s=60)
    assert (rig.told, rig.inputs.health[HOST].errors_per_s) == (1, 2.0)
    for minute in range(2, 10):
        changes = rig.put(bad, at_s=60 * minute)
        assert not any(change.news for change in changes)
    assert rig.inputs.health == {}


def test_a_failed_look_says_nothing_and_clears_nothing(rig: Rig) -> None:
    rig.put(finding(LLDP), at_s=0)
    rig.put(finding(replace(LLDP, counters=ERRORS)), at_s=60)
    for minute in range(2, 60):
        rig.put(failed("n1", "lldp", "eth0"), at_s=60 * minute)
    assert list(rig.watch.health) == [HOST]
    rig.remove(Key("n1", "lldp", "eth0"))
    assert rig.watch.health == {}


def test_young_until_a_window_is_full(rig: Rig) -> None:
    rig.put(finding(LLDP), at_s=0)
    assert rig.inputs.health_is_young
    rig.put(finding(LLDP), at_s=359)
    assert (rig.inputs.health_is_young, rig.told) == (True, 0)
    rig.put(finding(LLDP), at_s=361)
    assert (rig.inputs.health_is_young, rig.told) == (False, 1), "what only stood until then goes"


def test_flaps_of_before_a_restart_count_until_it_was_said(rig: Rig) -> None:
    ends = Endpoint("n1", "n1", "eth0"), Endpoint(LEAF[0], "leaf-1", "1"), Endpoint("s", "s", "7")
    host, leaf, spine = ends
    until = replace(anomaly("ErroringLink", host, leaf), clears_ns=T0 + 700 * S)
    rig.topology = Topology(
        1,
        anomalies=(
            until,
            anomaly("ErroringLink", leaf, spine),  # of errors
            replace(until, kind="MissingLink", subject=spine),
            replace(until, subject=spine, flaps=3, changed_ns=T0),  # over
            replace(until, peer=None),
        ),
    )
    rig.start()
    cable = frozenset([("n1", "eth0"), (LEAF[0], "1")])
    rig.put(finding(LLDP), at_s=361)
    assert (rig.inputs.health_is_young, rig.inputs.flapped, rig.told) == (False, {cable}, 1)
    rig.put(finding(LLDP), at_s=699)
    assert (rig.inputs.flapped, rig.told) == ({cable}, 1)
    rig.put(finding(LLDP), at_s=700)
    assert (rig.inputs.flapped, rig.told) == (frozenset(), 2)
    rig.put(finding(LLDP), at_s=760)
    assert rig.told == 2


# -- what a sweep's holder counts of the whole fabric


def counted(text: bytes, *, partial: bool = False, node: str = "n1") -> Finding:
    return Finding(
        key=FindingKey(node=node, probe="ibqueryerrors", subject="mlx5_0/1"),
        outcome=Outcome.OUTCOME_DATA,
        sweep=Sweep(
            format="ibqueryerrors",
            device="mlx5_0",
            port=1,
            sha256=hashlib.sha256(text).digest(),
            partial=partial,
        ),
    )


def text(**errors: int) -> bytes:
    """By the last digits of a GUID."""
    lines = [
        f"   GUID 0x{guid[1:]} port 7: [SymbolErrorCounter == {count}]" for guid, count in errors.items()
    ]
    return "\n".join([*lines, "## Summary: 9 nodes checked"]).encode()


KEY = Key("n1", "ibqueryerrors", "mlx5_0/1")


async def read(rig: Rig, at_s: float, what: bytes, *, partial: bool = False) -> dict[str, float]:
    """Errors a second by GUID, after such a text."""
    rig.put(counted(what, partial=partial), at_s=at_s, texts=[what])

    def is_read() -> bool:
        known = rig.watch._read.get(KEY)
        return known is not None and known[1].at_ns == rig.now_ns

    await until(is_read)
    return {guid[-2:]: x.errors_per_s for (guid, port), x in rig.watch.health.items() if port == "7"}


@pytest.fixture
async def reading(rig: Rig) -> AsyncIterator[Rig]:
    task = asyncio.create_task(rig.watch.run())
    yield rig
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_texts_are_held_against_the_one_before(reading: Rig) -> None:
    assert await read(reading, 0, text(xaa=1000, xbb=1000)) == {}, "of long ago"
    assert await read(reading, 60, text(xaa=1000, xbb=1600)) == {"bb": 2.0}
    assert await read(reading, 120, text(xaa=1000, xbb=1600, xcc=900)) == {"bb": 2.0, "cc": 3.0}, (
        "a port that was not reported had counted nothing"
    )
    told = reading.told
    assert await read(reading, 180, text(xaa=1000, xbb=1600, xcc=900)) == {"bb": 2.0, "cc": 3.0}
    assert reading.told == told
    for minute in range(4, 9):
        found = await read(reading, 60 * minute, text(xaa=1000, xbb=1600, xcc=900))
    assert found == {}


async def test_counters_that_a_person_cleared(reading: Rig) -> None:
    await read(reading, 0, text(xaa=1000))
    assert await read(reading, 60, text(xaa=1900)) == {"aa": 3.0}
    assert await read(reading, 120, text()) == {"aa": 3.0}
    assert await read(reading, 180, text(xaa=700)) == {"aa": 5.3}, "of these three minutes"


async def test_a_part_of_the_fabric_says_nothing_of_the_rest(reading: Rig) -> None:
    await read(reading, 0, text(xaa=1000, xbb=1000))
    assert await read(reading, 60, text(xaa=1900), partial=True) == {"aa": 3.0}
    assert await read(reading, 120, text(xaa=1900, xbb=1000)) == {"aa": 3.0}, "nothing was counted at bb"


async def test_what_its_agent_takes_away_is_gone(reading: Rig) -> None:
    await read(reading, 0, text(xaa=0))
    assert await read(reading, 60, text(xaa=900)) == {"aa": 3.0}
    reading.remove(KEY)
    assert reading.watch.health == {}
    assert await read(reading, 120, text(xaa=9000)) == {}, "anew"


async def test_what_no_reporter_counts_any_more_is_gone_after_an_hour(reading: Rig) -> None:
    await read(reading, 0, text(xaa=0))
    assert await read(reading, 60, text(xaa=900)) == {"aa": 3.0}
    reading.put(finding(LLDP), at_s=3660)
    assert list(reading.watch.health) == [("00000000000000aa", "7")]
    told = reading.told
    reading.put(finding(LLDP), at_s=3661)
    assert (reading.watch.health, reading.told) == ({}, told + 1)


async def test_a_text_that_is_not_there_costs_nothing_else(
    reading: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    reading.put(counted(b"never stored"), at_s=0)
    await until(lambda: "the store does not contain its text" in caplog.text)
    assert await read(reading, 60, text(xaa=1)) == {}


async def test_a_reader_that_raises_is_a_problem_until_it_reads_a_text(
    reading: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(ibqueryerrors, "parse", lambda *_: 1 // 0)
        reading.put(counted(text(xaa=0)), at_s=0, texts=[text(xaa=0)])
        await until(lambda: reading.guard.problems)
    (problem,) = reading.guard.problems
    assert problem.startswith("the reading of port counters raised with the evidence of n1,")
    assert problem.endswith("ZeroDivisionError: integer division or modulo by zero")
    await read(reading, 60, text(xaa=0))
    assert reading.guard.problems == []
    assert await read(reading, 120, text(xaa=900)) == {"aa": 3.0}


def test_an_assessment_is_told_although_another_finding_raises(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = finding(LLDP)
    other.key.node = "n2"
    rig.put(finding(LLDP), other, at_s=0)
    bad = finding(replace(LLDP, speed_mbps=1))
    bad.key.node = "n2"
    sample = link_monitor._sample
    monkeypatch.setattr(link_monitor, "_sample", lambda row: 1 // 0 if row.key.node == "n2" else sample(row))
    rig.watch.follow = rig.guard.guarded("the health of ports", rig.watch.follow)  # type: ignore[method-assign]
    rig.put(finding(replace(LLDP, counters=ERRORS)), bad, at_s=60)
    assert (set(rig.watch.health), rig.told) == ({HOST}, 1)
    assert [problem.partition(",")[0] for problem in rig.guard.problems] == [
        "the health of ports raised with the evidence of n2"
    ]


def test_nothing_of_it_is_news_or_a_sweep(rig: Rig) -> None:
    view = InputsView(rig.state, 300, T0)
    changes = rig.put(counted(text(xaa=1)), at_s=0, texts=[text(xaa=1)])
    changes += rig.put(counted(text(xaa=2)), at_s=60, texts=[text(xaa=2)])
    assert [change.news for change in changes] == [False, False]
    view.follow(changes)
    assert view.snapshot(rig.now_ns).sweeps == ()


def test_texts_that_come_in_are_looked_at_by_their_own_reader(rig: Rig) -> None:
    asked: list[str] = []
    reader = rig.watch.reader(lambda *args: asked.append(args[3]))
    reader(b"", text(xaa=1), "x", "ibqueryerrors")
    with pytest.raises(FormatError):
        reader(b"", b"junk", "x", "ibqueryerrors")
    reader(b"", b"junk", "x", "ibnetdiscover")
    assert asked == ["ibnetdiscover"]
