"""When the collector says that no agent sweeps the InfiniBand ports that agents report."""

import logging
from typing import TYPE_CHECKING, cast

import pytest
from hyperscout.v1.discovery_pb2 import Hello
from hyperscout.v1.finding_pb2 import Finding
from hyperscout_collector.app.ingest.lasting_problem import GRACE_S, REVIEW_S
from hyperscout_collector.app.ingest.sweeps import Sweeps
from hyperscout_collector.evidence.guard import EvidenceGuard
from hyperscout_collector.evidence.rows import row_of
from hyperscout_collector.evidence.state import EvidencePlan, EvidenceState
from hyperscout_collector.evidence.sweep_texts import SweepTexts
from hyperscout_collector.ingest.streams import AgentStream, Streams
from hyperscout_topology.topology import Adapter, Link, Topology
from support.findings import T0, S, adapter, failed, sweep

if TYPE_CHECKING:
    import asyncio


class World:
    def __init__(self) -> None:
        self.now_ns = T0
        self.state, self.streams = EvidenceState(), Streams(10)
        texts, guard = cast(SweepTexts, None), EvidenceGuard(self.state)
        self.topology = Topology(0)
        parts = self.streams, self.state, texts, guard
        self.sweeps = Sweeps(60.0, *parts, lambda: self.now_ns, topology=lambda: self.topology)

    def connect(self, node: str, *probes: str) -> None:
        self.take(adapter(node))
        task = cast("asyncio.Task[object]", None)
        stream = AgentStream(Hello(node=node, probes=probes), task, self.now_ns, self.now_ns)
        self.streams.add(stream)
        self.sweeps.connected(stream)

    def take(self, finding: Finding) -> None:
        plan = EvidencePlan(self.state, self.now_ns)
        plan.upsert(row_of(finding, sent_ns=self.now_ns, received_ns=self.now_ns), b"")
        self.sweeps.follow(self.state.commit(plan))

    def after(self, seconds: float) -> list[str]:
        """The problems then."""
        self.now_ns += int(seconds * S)
        self.sweeps.tick()
        return self.sweeps.problems


def test_it_is_said_after_the_grace_time_and_ends_with_a_sweep(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    world.connect("n1")
    assert world.after(0) == []
    assert world.after(GRACE_S - 1) == []
    assert not caplog.records
    [problem] = world.after(REVIEW_S)
    assert "1 node (n1): the probe ibnetdiscover is off there; in the Helm chart set" in problem
    assert "agent.infiniband.resourceName" in problem
    assert world.after(REVIEW_S) == [problem]
    assert [(r.levelno, r.getMessage()) for r in caplog.records] == [(logging.WARNING, problem)]
    world.connect("n2", "ibnetdiscover")
    assert world.after(REVIEW_S) == [problem], "n2 may be in another fabric"


def test_a_fabric_that_is_being_explored_is_no_problem() -> None:
    world = World()
    world.connect("n2", "ibnetdiscover")
    assert world.after(0) == world.after(2 * GRACE_S) == []


def test_it_names_why_sweeps_fail() -> None:
    world = World()
    world.connect("n1", "ibnetdiscover")
    assert world.after(0) == world.after(2 * GRACE_S) == []
    world.take(failed("n1", "ibnetdiscover", "mlx5_0/1", reason="exit 255: can't open UMAD port"))
    assert world.after(REVIEW_S) == []
    [problem] = world.after(GRACE_S)
    assert "failed on 1 node, on n1: exit 255: can't open UMAD port; `hyperscout doctor n1` says" in problem


def test_a_probe_that_is_off_hides_no_failure() -> None:
    world = World()
    world.connect("n1", "ibnetdiscover")
    world.connect("n2")
    world.take(failed("n1", "ibnetdiscover", "mlx5_0/1", reason="exit 255"))
    world.after(0)
    [problem] = world.after(GRACE_S)
    assert "2 nodes (n[1-2]): the probe ibnetdiscover failed on 1 node, on n1: exit 255; " in problem
    assert "; and the probe ibnetdiscover is off on 1 node (n2); in the Helm chart set" in problem


@pytest.mark.parametrize(
    ("sources", "shown"),
    [(("ufm",), True), (("ibnetdiscover", "ufm"), True), (("ibnetdiscover",), False), (("nmx",), False)],
)
def test_ufm_alone_shows_the_nodes_of_its_fabric_and_no_others(sources: tuple[str, ...], shown: bool) -> None:
    world = World()
    for node in ("n1", "n2"):
        world.connect(node)
    of_ufm = sweep("fabric/a", b"x" * 32, lease_id="")
    of_ufm.key.probe = of_ufm.sweep.format = "ufm"
    world.take(of_ufm)
    links = (
        Link("a1", "1", "s1", "1", "ib", sources),
        Link("a2", "1", "s2", "1", "ib", ("ibnetdiscover",)),
    )
    world.topology = Topology(1, adapters=(Adapter("a1", "n1", ""), Adapter("a2", "n2", "")), links=links)
    world.after(0)
    [problem] = world.after(GRACE_S)
    assert f" of {'1 node (n2)' if shown else '2 nodes (n[1-2])'}: " in problem


def test_a_node_without_active_ports_needs_no_sweep() -> None:
    world = World()
    world.connect("n1")
    world.now_ns += S
    world.take(adapter("n1", at_ns=world.now_ns, state="DOWN"))
    assert world.after(0) == world.after(2 * GRACE_S) == []
