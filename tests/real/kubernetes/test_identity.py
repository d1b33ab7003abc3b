"""Tokens that a real API server made, and what it says of them and of their owners."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from hyperscout_collector.app.build.collector import Collector
from hyperscout_collector.app.settings.settings import load_settings
from hyperscout_collector.identity.reviews import GROUP, RESOURCE
from support.agent_stream import AgentStream
from support.callers import Code, asked, said
from support.findings import lldp, table
from support.identities import AGENTS, AUDIENCE, Family, show
from support.kubernetes import Cluster
from support.rest_collector import status_of
from support.waiting import TIMEOUT_S

NAMESPACE, AGENT = AGENTS.split(":")
CRAWL = "crawl"
ASK = [
    {"apiGroups": ["authentication.k8s.io"], "resources": ["tokenreviews"], "verbs": ["create"]},
    {"apiGroups": ["authorization.k8s.io"], "resources": ["subjectaccessreviews"], "verbs": ["create"]},
]


@asynccontextmanager
async def collector(cluster: Cluster, folder: Path, family: Family) -> AsyncIterator[Collector]:
    """One that may review tokens and rights, and nothing else."""
    flags: dict[str, Any] = {
        "listen": "127.0.0.1:0",
        "http_listen": "",
        "rest_listen": "",
        "data_dir": folder / "data",
        "tls_cert": family.server.cert,
        "tls_key": family.server.key,
        "authenticate": "kubernetes",
        "agent_service_account": AGENTS,
        "fabric_service_account": f"{NAMESPACE}:{CRAWL}",
        "kubeconfig": cluster.kubeconfig_of("collector", NAMESPACE),
    }
    async with Collector(load_settings(flags=flags)) as running:
        yield running


def agent_token(cluster: Cluster, node: str, account: str = AGENT) -> str:
    pod = cluster.pod_on(node, account, NAMESPACE)
    return cluster.token(account, NAMESPACE, AUDIENCE, pod=pod)


async def test_a_projected_token_is_its_node(kube: Cluster, tmp_path: Path, family: Family) -> None:
    kube.grant("collector", ASK, NAMESPACE)
    kube.nodes(["n1", "n2"])
    tls = family.channel()
    async with collector(kube, tmp_path, family) as running:
        token = agent_token(kube, "n1")
        async with AgentStream(running.address, "n1", credentials=tls, metadata=show(token)) as agent:
            assert await agent.store(lldp("n1", "eth0")) == []
        code, words = await said(running.address, tls, "n2", metadata=show(token))
        assert (code, "node 'n1', and Hello names node 'n2'" in words) == (Code.PERMISSION_DENIED, True)
        second = agent_token(kube, "n2")
        async with AgentStream(running.address, "n2", credentials=tls, metadata=show(second)):
            pass


async def test_a_projected_token_of_another_account_asks_switches(
    kube: Cluster, tmp_path: Path, family: Family
) -> None:
    kube.grant("collector", ASK, NAMESPACE)
    kube.nodes(["n1"])
    tls = family.channel()
    async with collector(kube, tmp_path, family) as running:
        token = show(agent_token(kube, "n1", CRAWL))
        async with AgentStream(running.address, f"fabric/{CRAWL}", credentials=tls, metadata=token) as agent:
            found = table("leaf-1", {"swp1": ""}, reporter=f"fabric/{CRAWL}")
            assert await agent.store(found) == []
        node = show(agent_token(kube, "n1"))
        for shown, name in ((token, "n1"), (token, "fabric/agent"), (node, f"fabric/{CRAWL}")):
            code, words = await said(running.address, tls, name, metadata=shown)
            assert (code, "these are the credentials of" in words) == (Code.PERMISSION_DENIED, True), name


async def test_other_tokens_report_nothing(kube: Cluster, tmp_path: Path, family: Family) -> None:
    kube.grant("collector", ASK, NAMESPACE)
    kube.nodes(["n1"])
    gone = kube.pod_on("n1", AGENT, NAMESPACE)
    of_gone = kube.token(AGENT, NAMESPACE, AUDIENCE, pod=gone)
    kube.kubectl("delete", "pod", gone, "-n", NAMESPACE, "--grace-period=0", "--force")
    pod = kube.pod_on("n1", AGENT, NAMESPACE)
    cases = {
        "for the audience 'https://kubernetes.default": (
            kube.token(AGENT, NAMESPACE, pod=pod),
            Code.UNAUTHENTICATED,
        ),
        "for the audience 'other'": (kube.token(AGENT, NAMESPACE, "other", pod=pod), Code.UNAUTHENTICATED),
        "is not bound to a node": (kube.token(AGENT, NAMESPACE, AUDIENCE), Code.PERMISSION_DENIED),
        "hyperscout:stranger may not report": (agent_token(kube, "n1", "stranger"), Code.PERMISSION_DENIED),
        "its pod or service account may be gone": (of_gone, Code.UNAUTHENTICATED),
        "does not know this token": (of_gone[:-8] + "AAAAAAAA", Code.UNAUTHENTICATED),
    }
    async with collector(kube, tmp_path, family) as running:
        for words, (token, expected) in cases.items():
            code, details = await said(running.address, family.channel(), "n1", metadata=show(token))
            assert (code, words in details) == (expected, True), details
            assert token[-20:] not in details


async def test_rights_are_the_cluster_s_own(kube: Cluster, tmp_path: Path, family: Family) -> None:
    kube.grant("collector", ASK, NAMESPACE)
    kube.nodes(["n1"])
    for account, verbs in (
        ("reader", ["get"]),
        ("lister", ["list", "watch"]),
        ("approver", ["get", "update"]),
    ):
        kube.grant(account, [{"apiGroups": [GROUP], "resources": [RESOURCE], "verbs": verbs}], NAMESPACE)
    kube.grant("elsewhere", [{"apiGroups": ["x"], "resources": [RESOURCE], "verbs": ["get"]}], NAMESPACE)
    denied, no_such_generation = Code.PERMISSION_DENIED, Code.FAILED_PRECONDITION
    async with collector(kube, tmp_path, family) as running:
        for account, status, approve in (
            ("reader", Code.OK, denied),
            ("approver", Code.OK, no_such_generation),
            ("lister", denied, denied),
            ("elsewhere", denied, denied),
            ("stranger", denied, denied),
        ):
            token = kube.token(account, NAMESPACE, AUDIENCE)
            for ask, expected in (("status", status), ("watch", status), ("approve", approve)):
                code, words = await asked(running.address, family.channel(), ask, token)
                assert code == expected, (account, ask, words)
        code, _ = await asked(running.address, family.channel(), "status", agent_token(kube, "n1"))
        assert code == denied


@pytest.mark.parametrize("left", [[], ASK[:1]], ids=["caller", "rights"])
async def test_a_collector_without_the_rights_to_ask_says_so(
    kube: Cluster, tmp_path: Path, family: Family, left: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    kube.grant("collector", left, NAMESPACE)
    async with collector(kube, tmp_path, family) as running:
        token = kube.token("reader", NAMESPACE, AUDIENCE)
        with caplog.at_level(logging.WARNING):
            code, words = await asked(running.address, family.channel(), "status", token)
        assert (code, "does not permit the collector" in words) == (Code.UNAVAILABLE, True)
        assert "system:auth-delegator" in caplog.text
        assert token not in caplog.text
        assert [p for p in status_of(running).problems if "system:auth-delegator" in p] != []


async def test_an_api_server_that_is_away(
    own_kube: Callable[..., Cluster], tmp_path: Path, family: Family
) -> None:
    cluster = own_kube()
    cluster.grant("collector", ASK, NAMESPACE)
    cluster.nodes(["n1", "n2"])
    tokens = {node: agent_token(cluster, node) for node in ("n1", "n2")}
    tls = family.channel()

    async def stream(node: str) -> tuple[grpc.StatusCode, str]:
        found: tuple[grpc.StatusCode, str] = await said(
            running.address, tls, "stranger", metadata=show(tokens[node])
        )
        return found

    async with (
        collector(cluster, tmp_path, family) as running,
        AgentStream(running.address, "n1", credentials=tls, metadata=show(tokens["n1"])) as agent,
    ):
        cluster.plane.kill_apiserver()
        assert await agent.store(lldp("n1", "eth0")) == []
        assert (await stream("n2"))[0] == Code.UNAVAILABLE
        # A token that was reviewed a moment ago is still known (and names another node than Hello).
        assert (await stream("n1"))[0] == Code.PERMISSION_DENIED
        cluster.plane.start_apiserver()
        await asyncio.to_thread(cluster.plane.await_ready)
        async with asyncio.timeout(TIMEOUT_S):
            while (await stream("n2"))[0] != Code.PERMISSION_DENIED:
                await asyncio.sleep(0.1)
        assert await agent.store(lldp("n1", "eth1")) == []
