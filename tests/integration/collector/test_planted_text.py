"""Reporters that put control characters into every text: none reaches an output of the collector."""

import json
import logging
import time
from pathlib import Path

import aiohttp
import pytest
from hyperscout.v1 import topology_pb2 as pb
from hyperscout.v1.discovery_pb2 import Hello
from hyperscout.v1.finding_pb2 import Finding, FindingKey, Outcome
from hyperscout.v1.topology_pb2_grpc import TopologyServiceStub
from hyperscout_collector.app.build.collector import Collector
from hyperscout_publish.hypernodes.wanted import wanted
from hyperscout_publish.mqtt.payloads import states_of
from support.agent_stream import AgentStream
from support.collector_process import channel_to
from support.collectors import at_rest, collector_settings
from support.findings import adapter, called, lldp, stamp, switch_port, table
from support.planted_text import PLANTED, plant, unprintable
from support.waiting import TIMEOUT_S, eventually

NOW_NS = time.time_ns()
PATHS = (
    "topology",
    "hypernodes",
    "nodes",
    "switches",
    "links",
    "anomalies",
    "findings",
    "history",
    "status",
    "explain?a=n1&b=n2",
)
NODE_PROBES = {
    "lldp": "lldp",
    "infiniband": "infiniband",
    "gpu": "nvlink",
    "latency": "latency",
    "nccl": "nccl",
}


PCI = frozenset({"pci_address", "pcie_root"})
CHECKED = {
    "lldp": PCI,
    "infiniband": PCI,
    "gpu": frozenset({"kind", "domain"}),
}  # a finding with another text is refused


def planted(finding: Finding) -> Finding:
    """A finding of the simulation with control characters in its reason and in every text of its payload."""
    found = Finding()
    found.CopyFrom(finding)
    kind = found.WhichOneof("payload") or "lldp"
    checked = {"chassis_id_type", "port_id_type", "state", "link_layer", "chassis_id"}
    plant(getattr(found, kind), omit=frozenset(checked) | CHECKED.get(kind, frozenset()))
    found.reason = f"reason{PLANTED}"
    return found


def empty(node: str, probe: str, payload: str) -> Finding:
    """A finding of a probe whose payload is nothing but planted texts."""
    found = Finding(key=FindingKey(node=node, probe=probe, subject=f"planted {payload}"))
    found.observed_at.CopyFrom(stamp(NOW_NS))
    found.outcome, found.reason = Outcome.OUTCOME_DATA, f"reason{PLANTED}"
    plant(getattr(found, payload), omit=CHECKED.get(payload, frozenset()))
    getattr(found, payload).SetInParent()
    return found


def failure(node: str, probe: str) -> Finding:
    found = Finding(key=FindingKey(node=node, probe=probe, subject="failure"), reason=f"failed{PLANTED}")
    found.observed_at.CopyFrom(stamp(NOW_NS))
    found.outcome = Outcome.OUTCOME_FAILED
    return found


async def test_no_output_contains_what_cannot_be_printed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "hyperscout_collector")
    settings = collector_settings(tmp_path, http_listen="127.0.0.1:0", rest_listen="127.0.0.1:0")
    async with Collector(settings) as collector:
        for i in (1, 2):
            node = f"n{i}"
            async with AgentStream(collector.address, node, hello=False) as agent:
                hello = Hello(instance=1)
                plant(hello)
                hello.node = node
                await agent.send(hello=hello)
                agent.welcome = (await agent.read()).welcome
                findings = [
                    planted(lldp(node, "eth0", NOW_NS)),
                    planted(adapter(node, at_ns=NOW_NS, guid=2 * i)),
                ]
                findings += [empty(node, probe, payload) for payload, probe in NODE_PROBES.items()]
                findings += [failure(node, probe) for probe in NODE_PROBES.values()]
                refused = await agent.store(*findings, full=True)
                assert unprintable(refused) == []
                bad_key = Finding(key=FindingKey(node=node, probe="lldp", subject=f"eth1{PLANTED}"))
                bad_key.observed_at.CopyFrom(stamp(NOW_NS))
                bad_key.outcome = Outcome.OUTCOME_NOTHING
                foreign = called(lldp("other", "eth0", NOW_NS), f"n9{PLANTED}", f"lldp{PLANTED}")
                refused = await agent.store(bad_key, foreign)
                assert len(refused) == 2
                assert "key.subject contains characters that cannot be printed" in " ".join(refused)
                assert unprintable(refused) == []
        async with AgentStream(collector.address, "switch/leaf-1", probes=("switch",)) as agent:
            port = switch_port("switch/leaf-1", "swp1", NOW_NS)
            assert await agent.store(planted(port), full=True) == []
        async with AgentStream(collector.address, "fabric/crawl", probes=("snmp",)) as agent:
            assert (
                await agent.store(planted(table("leaf-2", {"swp1": "spine-1/swp3"}, NOW_NS)), full=True) == []
            )
        await eventually(lambda: collector.components.inference.pipeline.generations > 0, "a generation")
        await at_rest(collector)
        await _check_outputs(collector)
    for record in caplog.records:
        assert record.getMessage().isprintable(), record.getMessage()


async def _check_outputs(collector: Collector) -> None:
    async with channel_to(collector.address) as channel:
        service = TopologyServiceStub(channel)
        topology = (await service.GetTopology(pb.GetTopologyRequest(), timeout=TIMEOUT_S)).topology
        assert topology.anomalies or topology.switches
        findings = (await service.ListFindings(pb.ListFindingsRequest(), timeout=TIMEOUT_S)).findings
        payloads = {x.finding.WhichOneof("payload") for x in findings}
        assert payloads >= {"lldp", "infiniband", "gpu", "switch_port", "switch_table"}
        assert any("red" in x.finding.reason for x in findings)
        answers = [
            topology,
            *findings,
            await service.GetStatus(pb.GetStatusRequest(), timeout=TIMEOUT_S),
            await service.ListHistory(pb.ListHistoryRequest(), timeout=TIMEOUT_S),
        ]
        asked = pb.ExplainRequest(node_a="n1", node_b="n2")
        answers.append(await service.Explain(asked, timeout=TIMEOUT_S))
    for answer in answers:
        assert unprintable(answer, lines=isinstance(answer, pb.ExplainResponse)) == []
    tree = collector.components.publishing.watchers.current.topology
    for hypernode in wanted(tree):
        assert unprintable([*hypernode.annotations, *(c.message for c in hypernode.conditions)]) == []
    assert unprintable([state.body for state in states_of(tree).values()]) == []
    async with aiohttp.ClientSession() as client:
        for path in PATHS:
            async with client.get(f"http://{collector.rest_address}/v1/{path}") as answer:
                assert answer.status == 200, path
                assert unprintable(json.loads(await answer.text()), lines="explain" in path) == [], path
        async with client.get(f"http://{collector.http_address}/metrics") as answer:
            assert unprintable(await answer.text(), lines=True) == []
