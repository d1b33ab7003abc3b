"""Which addresses the crawlers are told, and when."""

import asyncio
from typing import cast

import pytest
from hyperscout.v1.discovery_pb2 import Hello
from hyperscout.v1.finding_pb2 import Finding
from hyperscout_collector.app.ingest.seeds import MAX_SEEDS, Seeds
from hyperscout_collector.evidence.rows import row_of
from hyperscout_collector.evidence.state import EvidencePlan, EvidenceState
from hyperscout_collector.ingest.streams import AgentStream, Streams
from hypothesis import given
from hypothesis import strategies as st
from support.findings import T0, S, lldp, switch_port, table


class Rig:
    def __init__(self) -> None:
        self.state = EvidenceState()
        self.streams = Streams(100)
        self.seeds = Seeds(self.streams, self.state)

    def put(self, *findings: Finding, removed: bool = False) -> None:
        plan = EvidencePlan(self.state, T0)
        for finding in findings:
            row = row_of(finding, sent_ns=T0 + S, received_ns=T0)
            if removed:
                plan.remove(row.key)
            else:
                plan.upsert(row, b"")
        self.seeds.follow(self.state.commit(plan))

    def connect(self, node: str) -> AgentStream:
        stream = AgentStream(Hello(node=node), cast("asyncio.Task[object]", None), T0, T0)
        self.streams.add(stream)
        self.seeds.connected(stream)
        return stream


def told(stream: AgentStream) -> list[list[str]]:
    """What was said since the last time."""
    return [list(m.seeds.addresses) for m in stream.outgoing() if m.HasField("seeds")]


def hearing(
    *addresses: str, node: str = "n1", interface: str = "eth0", says: tuple[str, ...] = ("Bridge",)
) -> Finding:
    found = lldp(node, interface)
    found.lldp.neighbours[0].management_addresses[:] = addresses
    found.lldp.neighbours[0].capabilities[:] = says
    return found


@pytest.mark.parametrize(
    ("finding", "addresses"),
    [
        (hearing("10.0.0.2", "2001:db8::1"), ["10.0.0.2", "2001:db8::1"]),
        (hearing("10.0.0.2", says=()), ["10.0.0.2"]),
        (hearing("10.0.0.2", says=("Router", "Station")), ["10.0.0.2"]),
        (hearing("10.0.0.2", says=("Station",)), []),
        (hearing("10.0.0.2", says=("Tel", "Wlan")), []),
        (hearing("2001:DB8:0::1"), ["2001:db8::1"]),
        (hearing("", "leaf-1", "10.0.0.256", "10.0.0.2/24", "0.0.0.0", "127.0.0.1", "::1"), []),
        (hearing("224.0.0.1", "fe80::1", "ff02::1", "169.254.1.1", "10.0.0.2:161"), []),
        (
            hearing(*(f"10.0.1.{i}" for i in range(100))),
            [f"10.0.1.{i}" for i in (0, 1, *range(10, 16), *range(2, 10))],
        ),
        (table("leaf-1", {"swp1": "spine-1/swp1", "swp2": ""}), ["10.1.0.27"]),
        (switch_port("switch/leaf-1", "swp1"), []),
    ],
)
def test_addresses_of_switches(finding: Finding, addresses: list[str]) -> None:
    r = Rig()
    r.put(finding)
    assert list(r.seeds.addresses) == addresses
    r.put(finding, removed=True)
    assert r.seeds.addresses == ()


def test_they_are_told_at_once_and_when_they_change() -> None:
    r = Rig()
    r.put(hearing("10.0.0.2"))
    crawl, node, switch = r.connect("fabric/crawl"), r.connect("n1"), r.connect("switch/leaf-1")
    assert told(crawl) == [["10.0.0.2"]]
    r.seeds.tick()
    told(crawl)
    r.put(hearing("10.0.0.2", node="n2"), hearing("10.0.0.1", node="n3"))
    assert told(crawl) == [], "not with each commit"
    r.seeds.tick()
    assert told(crawl) == [["10.0.0.1", "10.0.0.2"]]
    r.seeds.tick()
    r.put(hearing("10.0.0.2", node="n2"), removed=True)
    r.seeds.tick()
    assert told(crawl) == [], "n1 knows of it too"
    r.put(hearing("10.0.0.2"), removed=True)
    late = r.connect("fabric/late")
    assert told(late) == [["10.0.0.1"]]
    r.seeds.tick()
    assert told(crawl) == [["10.0.0.1"]], "another's coming takes nothing from a crawler that waits"
    assert told(node) == told(switch) == []


def test_a_look_that_saw_the_same_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    r = Rig()
    r.put(hearing("10.0.0.2"))
    assert r.seeds.addresses == ("10.0.0.2",)
    again = hearing("10.0.0.2")
    again.observed_at.FromNanoseconds(T0 + S)
    with monkeypatch.context() as patch:
        patch.setattr(EvidenceState, "rows_of_node", None)
        r.put(again)
        assert r.seeds.addresses == ("10.0.0.2",)


def test_what_was_loaded_counts() -> None:
    r = Rig()
    r.put(hearing("10.0.0.2"))
    seeds = Seeds(r.streams, r.state)
    seeds.touch(r.state.nodes)
    assert seeds.addresses == ("10.0.0.2",)


@given(st.lists(st.tuples(st.sampled_from(["n1", "n2", "n3"]), st.sets(st.integers(1, 6))), max_size=12))
def test_running_counts_are_those_of_a_count_from_scratch(steps: list[tuple[str, set[int]]]) -> None:
    r = Rig()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hyperscout_collector.app.ingest.seeds.MAX_SEEDS", 3)
        for step, (node, heard) in enumerate(steps):
            finding = hearing(*(f"10.0.0.{i}" for i in heard), node=node)
            finding.observed_at.FromNanoseconds(T0 + step)
            r.put(finding, removed=not heard)
            loaded = Seeds(r.streams, r.state)
            loaded.touch(r.state.nodes)
            assert r.seeds.addresses == loaded.addresses


def test_one_reporter_crowds_out_no_other() -> None:
    r = Rig()
    r.put(
        *(
            hearing(*(f"1.{i >> 8}.{i & 255}.{k}" for k in range(16)), node="evil", interface=f"eth{i}")
            for i in range(MAX_SEEDS // 16 + 10)
        )
    )
    r.put(hearing("10.0.0.2", node="n1"), hearing("10.0.0.2", node="n2"))
    assert len(r.seeds.addresses) == MAX_SEEDS
    assert "10.0.0.2" in r.seeds.addresses
    assert list(r.seeds.addresses) == sorted(r.seeds.addresses)
