"""When the collector says that no HyperNode results from what the agents report, and how often."""

import asyncio
import logging
from types import SimpleNamespace
from typing import cast

import pytest
from hyperscout.v1.discovery_pb2 import Hello
from hyperscout.v1.finding_pb2 import Finding, FindingKey, Outcome
from hyperscout_collector.app.ingest.lasting_problem import GRACE_S, REVIEW_S
from hyperscout_collector.app.publication.pipeline import Pipeline
from hyperscout_collector.app.status.no_hypernodes import NoHyperNodes
from hyperscout_collector.evidence.rows import row_of
from hyperscout_collector.evidence.state import EvidencePlan, EvidenceState
from hyperscout_collector.ingest.streams import AgentStream, Streams
from hyperscout_topology.topology import Topology
from support.builders import hypernode
from support.findings import T0, S, stamp

TREE = Topology(1, (hypernode("leaf", ("n1",)),))
SILENT = "no findings of lldp, infiniband, ibnetdiscover, nvlink, xgmi, ascend"


class World:
    """`said`: the Events. `pipeline` has inferred, and did not fail."""

    def __init__(self) -> None:
        self.now_ns = T0
        self.topology = Topology(0)
        self.state = EvidenceState()
        self.streams = Streams(100)
        self.pipeline = SimpleNamespace(inferences=1, failures=SimpleNamespace(present=None))
        self.said: list[str] = []
        self.watch = NoHyperNodes(
            self.state,
            self.streams,
            cast(Pipeline, self.pipeline),
            lambda: self.topology,
            warn=self._warn,
            clock_ns=lambda: self.now_ns,
        )

    async def _warn(self, message: str) -> None:
        self.said.append(message)

    def connect(self, node: str) -> None:
        task = cast("asyncio.Task[object]", None)
        self.streams.add(AgentStream(Hello(node=node), task, self.now_ns, self.now_ns))

    def find(self, node: str, probe: str, subject: str, outcome: "Outcome.ValueType") -> None:
        key = FindingKey(node=node, probe=probe, subject=subject)
        finding = Finding(key=key, observed_at=stamp(self.now_ns), outcome=outcome)
        plan = EvidencePlan(self.state, self.now_ns)
        plan.upsert(row_of(finding, sent_ns=self.now_ns, received_ns=self.now_ns), b"")
        self.state.commit(plan)

    async def after(self, seconds: float) -> str | None:
        """The problem then."""
        self.now_ns += int(seconds * S)
        await self.watch.tick()
        return self.watch.problem


async def test_it_is_said_once_after_the_grace_time(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    for node in ("n1", "n2", "n3"):
        world.connect(node)
    assert await world.after(0) is None
    assert await world.after(GRACE_S - 1) is None
    assert not caplog.records
    problem = await world.after(1)
    assert problem is not None
    assert problem.startswith(f"no HyperNodes: 3 nodes report no usable link: {SILENT}")
    for _ in range(10):
        await world.after(REVIEW_S)
    assert world.said == [problem]
    assert [(r.levelno, r.getMessage()) for r in caplog.records] == [(logging.WARNING, problem)]


async def test_each_reporter_counts_with_its_best_outcome() -> None:
    world = World()
    for node, subject, outcome in (
        ("n1", "eth0", Outcome.OUTCOME_NOTHING),
        ("n1", "eth1", Outcome.OUTCOME_FAILED),
        ("n2", "eth0", Outcome.OUTCOME_NOTHING),
        ("n2", "eth1", Outcome.OUTCOME_NOTHING),
        ("n3", "eth0", Outcome.OUTCOME_FAILED),
        ("n3", "eth1", Outcome.OUTCOME_DATA),
    ):
        world.find(node, "lldp", subject, outcome)
    world.find("fabric/crawl", "snmp", "10.0.0.1", Outcome.OUTCOME_FAILED)
    for probe in ("latency", "ibqueryerrors"):
        world.find("n1", probe, "x", Outcome.OUTCOME_DATA)
    await world.after(0)
    problem = await world.after(GRACE_S) or ""
    lldp = "lldp has data on 1 node and failed on 1 node and found nothing on 1 node"
    assert "3 nodes report, but no links of which a HyperNode can be made" in problem
    assert f": {lldp}, snmp failed on 1 agent, no findings of infiniband" in problem
    world.find("n2", "lldp", "eth0", Outcome.OUTCOME_DATA)
    assert await world.after(REVIEW_S - 1) == problem
    assert "lldp has data on 2 nodes and failed" in (await world.after(1) or "")


async def test_hypernodes_end_the_problem_at_once_and_a_later_loss_is_said_again() -> None:
    world = World()
    world.connect("n1")
    await world.after(0)
    assert await world.after(GRACE_S)
    world.topology = TREE
    assert world.watch.problem is None
    assert await world.after(1) is None
    world.topology = Topology(2)
    assert await world.after(1) is None
    assert await world.after(GRACE_S)
    assert len(world.said) == 2


async def test_the_first_node_starts_a_grace_time_of_its_own() -> None:
    world = World()
    world.find("fabric/crawl", "snmp", "10.0.0.1", Outcome.OUTCOME_DATA)
    await world.after(0)
    assert "no node reports" in (await world.after(GRACE_S) or "")
    world.connect("n1")
    assert await world.after(1) is None
    assert "1 node reports, but no links" in (await world.after(GRACE_S) or "")
    assert len(world.said) == 2


@pytest.mark.parametrize("why", ["not inferred", "failed"])
async def test_nothing_is_said_while_inference_cannot_tell(why: str) -> None:
    world = World()
    world.connect("n1")
    world.pipeline.inferences = 0 if why == "not inferred" else 1
    world.pipeline.failures.present = "planted" if why == "failed" else None
    await world.after(0)
    assert await world.after(10 * GRACE_S) is None
    assert world.said == []
