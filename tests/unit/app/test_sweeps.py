"""The sweep leases of a collector: what they report, and when a held sweep counts."""

import asyncio
from dataclasses import replace
from typing import cast

import pytest
from hyperscout.v1.discovery_pb2 import Hello
from hyperscout_collector.app.ingest.sweeps import Sweeps
from hyperscout_collector.evidence.guard import EvidenceGuard
from hyperscout_collector.evidence.rows import row_of
from hyperscout_collector.evidence.snapshot import HeldSweep
from hyperscout_collector.evidence.state import EvidencePlan, EvidenceState, KeyChange
from hyperscout_collector.evidence.sweep_texts import SweepTexts
from hyperscout_collector.ingest.streams import AgentStream, Streams
from support.findings import T0, S, adapter, lldp, sweep
from support.waiting import until


def made(streams: Streams, state: EvidenceState, texts: object = None) -> Sweeps:
    return Sweeps(60.0, streams, state, cast(SweepTexts, texts), EvidenceGuard(state), lambda: T0)


async def test_a_text_of_a_manager_that_cannot_be_read_is_a_problem_until_one_can() -> None:
    streams = Streams(10)
    stream = AgentStream(Hello(node="fabric/a"), cast("asyncio.Task[object]", None), T0, T0)
    streams.add(stream)
    sweeps = made(streams, EvidenceState())
    sweeps.unreadable("fabric/a", "", "it is cut off")
    assert sweeps.problems == ["sweep of fabric/a cannot be read: it is cut off"]
    stream.ack(1, [])
    assert [message.WhichOneof("message") for message in stream.outgoing()] == ["ack"], "no lease ends"
    found = sweep("fabric/a", b"x" * 32, lease_id="")
    found.key.probe = found.sweep.format = "ufm"
    row = row_of(found, sent_ns=T0 + S, received_ns=T0)
    sweeps.follow([KeyChange(row.key, (), (row,))])
    assert sweeps.problems == []


def test_what_counts_errors_says_nothing_of_the_sweep() -> None:
    sweeps = made(Streams(10), EvidenceState())
    sweeps.unreadable("n1", "lease-1", "it is cut off")
    counted = sweep("n1", b"x" * 32)
    counted.key.probe = counted.sweep.format = "ibqueryerrors"
    row = row_of(counted, sent_ns=T0 + S, received_ns=T0)
    sweeps.follow([KeyChange(row.key, (), (row,))])
    assert sweeps.problems == ["sweep of n1 cannot be read: it is cut off"]


class Raising:
    """Texts whose reader has a defect."""

    raises = True

    def port_guids(self, *_: object) -> frozenset[int]:
        if self.raises:
            raise IndexError("a defect")
        return frozenset()


async def test_a_reader_that_raises_is_a_problem_until_it_reads_a_sweep() -> None:
    state, texts = EvidenceState(), Raising()
    guard = EvidenceGuard(state)
    sweeps = Sweeps(60.0, Streams(10), state, cast(SweepTexts, texts), guard, lambda: T0)
    task = asyncio.create_task(sweeps.run())
    row = row_of(sweep("n1", b"x" * 32), sent_ns=T0, received_ns=T0)
    state.load([row], [])
    sweeps.follow([KeyChange(row.key, (), (row,))])
    await until(lambda: guard.problems)
    assert guard.problems[0].startswith("the reading of sweeps raised with the evidence of n1,")
    assert guard.problems[0].endswith("IndexError: a defect")
    texts.raises = False
    sweeps.follow([KeyChange(row.key, (), (row,))])
    await until(lambda: not guard.problems)
    assert not task.done()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize("stored", [True, False])
def test_the_problem_of_a_node_ends_with_its_last_evidence(stored: bool) -> None:
    state = EvidenceState()
    sweeps = made(Streams(10), state)
    rows = [row_of(lldp("n1", port), sent_ns=T0, received_ns=T0) for port in ("eth0", "eth1")]
    if stored:
        state.load(rows, [])
    sweeps.unreadable("n1", "lease-1", "it is cut off")
    if not stored:
        stream = AgentStream(Hello(node="n1"), cast("asyncio.Task[object]", None), T0, T0)
        sweeps.disconnected(stream)
        assert sweeps.problems == []
        return
    for row in rows:
        assert sweeps.problems
        plan = EvidencePlan(state, T0)
        plan.remove(row.key)
        sweeps.follow(state.commit(plan))
    assert sweeps.problems == []


def test_a_held_sweep_counts_when_no_other_node_sweeps_for_300_s() -> None:
    now_ns, state = T0, EvidenceState()
    texts = cast(SweepTexts, None)
    sweeps = Sweeps(60.0, Streams(10), state, texts, EvidenceGuard(state), lambda: now_ns)
    reason = "it changes 3 cables, which no sweep of another node confirms"
    held = HeldSweep(
        "n1", "lease-1", "mlx5_0", reason, is_known=True, is_first=False, is_accused=True, is_answered=False
    )
    assert sweeps.held([held]) == now_ns + 60 * S
    assert sweeps.problems == [f"the sweep of n1 from mlx5_0 does not count as a whole: {reason}"]
    now_ns += 299 * S
    answered = replace(held, is_answered=True)
    assert sweeps.held([answered]) == now_ns + 60 * S, "another node sweeps, and does not agree"
    now_ns += 299 * S
    assert sweeps.held([held]) == now_ns + 60 * S
    assert sweeps.alone == frozenset()
    now_ns += 1 * S
    assert sweeps.held([held]) == now_ns
    assert sweeps.alone == {("n1", "mlx5_0")}
    assert sweeps.held([replace(held, device="mlx5_9")]) == now_ns + 60 * S, "each device waits by itself"
    assert sweeps.held([]) is None
    assert sweeps.problems == []


@pytest.mark.parametrize("awaited", [False, True])
def test_a_single_agent_counts_at_once_unless_others_may_come_back(awaited: bool) -> None:
    """After a start, agents that have InfiniBand ports in the stored evidence are expected back for 300 s."""
    state, streams = EvidenceState(), Streams(10)
    nodes = ("n1", "n2") if awaited else ("n1",)
    state.load([row_of(adapter(node), sent_ns=T0, received_ns=T0) for node in nodes], [])
    sweeps = made(streams, state)
    stream = AgentStream(
        Hello(node="n1", probes=["ibnetdiscover"]), cast("asyncio.Task[object]", None), T0, T0
    )
    streams.add(stream)
    sweeps.connected(stream)
    (lease,) = sweeps.leases()
    reason = "it changes 1 cable, which no sweep of another node confirms"
    held = HeldSweep(
        "n1",
        lease.lease_id,
        lease.device,
        reason,
        is_known=True,
        is_first=False,
        is_accused=False,
        is_answered=False,
    )
    assert sweeps.held([held]) == (T0 + 60 * S if awaited else T0)
    assert sweeps.alone == (set() if awaited else {("n1", "mlx5_0")})
