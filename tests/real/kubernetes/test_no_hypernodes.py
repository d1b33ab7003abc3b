"""Nodes without a link: an Event on the collector's Deployment, with the rights of the chart."""

import asyncio
import contextlib
import logging
from pathlib import Path

import pytest
from hyperscout.v1.finding_pb2 import Outcome
from hyperscout_collector.app.build.collector import Collector
from hyperscout_collector.app.ingest.lasting_problem import REVIEW_S
from hyperscout_runtime.clock import Clock
from kube.api import MERGE
from support.agent_stream import AgentStream
from support.chart import NAMESPACE, RELEASE, install
from support.collectors import collector_settings
from support.findings import T0, S, called, lldp
from support.kubernetes import Cluster
from support.real import require_real
from support.rest_collector import status_of
from support.waiting import TIMEOUT_S

require_real("kubernetes", "helm")

COLLECTOR = f"{RELEASE}-collector"
EVENTS = f"/api/v1/namespaces/{NAMESPACE}/events"
ROLE = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}/roles/{COLLECTOR}-deployment"
NODES = ("n1", "n2", "n3")
PROBLEM = (
    "no HyperNodes: 3 nodes report no usable link: lldp failed on 1 node and found nothing on 1 node, "
    "no findings of infiniband, ibnetdiscover, nvlink, xgmi, ascend (off, or no such port or device); "
    "`hyperscout doctor NODE` and `hyperscout get findings -o wide` say why"
)


@pytest.mark.parametrize("may_read", [True, False])
async def test_the_deployment_gets_an_event(
    kube: Cluster, tmp_path: Path, caplog: pytest.LogCaptureFixture, may_read: bool
) -> None:
    install(kube, {"crds": {"install": False}})
    if not may_read:
        rules = [rule for rule in kube.api.ask("GET", ROLE)["rules"] if rule["apiGroups"] != ["apps"]]
        kube.api.ask("PATCH", ROLE, {"rules": rules}, content=MERGE)
    kube.nodes(NODES)
    now = [T0]
    settings = collector_settings(
        tmp_path,
        kubernetes="publish",
        kubeconfig=kube.kubeconfig_of(COLLECTOR, NAMESPACE),
        deployment=COLLECTOR,
        lease_namespace=NAMESPACE,
    )
    clock = Clock(lambda: now[0], lambda: now[0])
    async with Collector(settings, clock=clock) as collector, contextlib.AsyncExitStack() as agents:
        n1, n2, _ = [await agents.enter_async_context(AgentStream(collector.address, node)) for node in NODES]
        await n1.store(lldp("n1", "eth0", now[0], neighbour=""), full=True)
        failed = called(lldp("n2", "eth0", now[0], neighbour=""), "n2", "lldp")
        failed.outcome = Outcome.OUTCOME_FAILED
        await n2.store(failed, full=True)
        async with asyncio.timeout(TIMEOUT_S):
            while not (events := await asyncio.to_thread(kube.api.items, EVENTS)):
                now[0] += int(REVIEW_S * S)  # the grace time passes
                await asyncio.sleep(0.5)
            for _ in range(5):  # and then much more time
                now[0] += int(REVIEW_S * S)
                await asyncio.sleep(0.5)
        assert list(status_of(collector).wrong).count(f"collector: {PROBLEM}") == 1
        assert "no HyperNodes yet" not in status_of(collector).wrong
        events = await asyncio.to_thread(kube.api.items, EVENTS)
    assert [(e["type"], e["reason"], e["message"]) for e in events] == [("Warning", "NoHyperNodes", PROBLEM)]
    assert [r.message for r in caplog.records if r.levelno == logging.WARNING].count(PROBLEM) == 1
    shown = kube.kubectl("-n", NAMESPACE, "describe", "deployment", COLLECTOR)
    assert ("NoHyperNodes" in shown.partition("Events:")[2]) is may_read
    listed = kube.kubectl("-n", NAMESPACE, "get", "events")
    assert f"deployment/{COLLECTOR}" in listed
