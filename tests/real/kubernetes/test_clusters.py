"""Two API servers, whose nodes are on one simulated fabric: each gets the tree of its own nodes."""

import asyncio
import json
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from hyperscout_collector.app.build.collector import Collector
from hyperscout_collector.app.settings.settings import load_settings
from hyperscout_formats.text.reporters import cluster_of, node_in
from hyperscout_sim.fabric.fabric import SimFabric
from kube.audit import AuditLog
from kube.control_plane import Options
from kube.recorder import recording
from support.agent_stream import AgentStream
from support.callers import Code, said
from support.collectors import host_cable, playing
from support.findings import lldp
from support.identities import AGENTS, AUDIENCE, Family, show
from support.kubernetes import Cluster
from support.published import leaf_of, published, status_at
from support.two_clusters import EAST, collector_of_two, nodes_of, shared_fabric, whole

ELECTION = ("--leader-election", "--lease-namespace", "default")
ACCOUNT = "collector"
ALL = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]
NAMESPACE, AGENT = AGENTS.split(":")
ASK = [{"apiGroups": ["authentication.k8s.io"], "resources": ["tokenreviews"], "verbs": ["create"]}]


async def placed(address: str, *flags: str) -> tuple[int, set[str], str]:
    """The exit code of `hyperscout place`, the nodes that it chose, and its notes."""
    program = "import sys; from hyperscout_cli.main import main; sys.exit(main(sys.argv[1:]))"
    words = ("place", "--collector", address, "-o", "name", *flags)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", program, *words),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, {line.removeprefix("node/") for line in out.decode().split()}, err.decode()


async def places_in_one_cluster(address: str, fabric: SimFabric) -> None:
    last_leaf = set(fabric.hosts[12:])
    assert await placed(address, "--workers", "4", "--clusters", "any") == (0, last_leaf, "")
    code, nodes, _ = await placed(address, "--workers", "4")
    assert (code, len(nodes), {cluster_of(node) for node in nodes}) == (0, 4, {""})
    code, nodes, _ = await placed(address, "--workers", str(len(nodes_of(fabric, EAST))), "--clusters", "any")
    assert (code, {cluster_of(node) for node in nodes}) == (0, {EAST}), "the own cluster is too small"
    code, nodes, notes = await placed(address, "--workers", "16", "--clusters", "any")
    assert (code, nodes) == (3, set()), "no cluster has so many"
    assert "cluster east: " in notes
    assert "the collector's own cluster: " in notes


def labels_of(kube: Cluster) -> dict[str, dict[str, str]]:
    """The labels of the nodes that name domains."""
    return {
        node["metadata"]["name"]: {
            key: value
            for key, value in node["metadata"]["labels"].items()
            if key.startswith("hyperscout.io/")
        }
        for node in kube.api.items("/api/v1/nodes")
    }


def check_writes(audit: AuditLog, nodes: set[str], others: set[str], tree: Iterable[str]) -> None:
    """Each write of the collector is about nodes of this cluster, and each expected one is there.

    `nodes`, `others`: of this cluster, and of the other one alone. `tree`: the names of the HyperNodes.
    """
    done = set[tuple[str, str, str]]()
    for entry in audit.writes_of(f"system:serviceaccount:default:{ACCOUNT}"):
        what = entry["objectRef"]
        text = json.dumps([what, entry["requestURI"], entry.get("requestObject")])
        assert not [node for node in (*others, f"{EAST}/") if node in text], entry
        assert what["resource"] != "nodes" or what["name"] in nodes, entry
        if entry["stage"] == "ResponseComplete" and entry["responseStatus"]["code"] < 300:
            done.add((what["resource"], what.get("subresource", ""), what.get("name", "")))
    asked = {"selfsubjectaccessreviews"}  # the collector's questions about its own rights store nothing
    assert {x for x in done if x[0] not in {"events", *asked}} == {
        *(("hypernodes", part, name) for name in tree for part in ("", "status")),
        *(("nodes", "", node) for node in nodes),
        ("leases", "", "hyperscout-collector"),
    }


async def test_each_api_server_gets_the_tree_of_its_own_nodes(
    own_kube: Callable[..., Cluster], tmp_path: Path
) -> None:
    """One of them dies, and returns to what was published before, and to what changed since."""
    fabric = shared_fabric()
    own, of_east = nodes_of(fabric, ""), nodes_of(fabric, EAST)
    assert set(own) & set(of_east) == {fabric.hosts[0]}, "a name of both"
    audits = AuditLog(tmp_path / "own"), AuditLog(tmp_path / EAST)
    kube, east = (own_kube(Options(api_flags=audit.flags)) for audit in audits)
    for cluster, nodes in ((kube, own), (east, of_east)):
        cluster.grant(ACCOUNT, ALL)
        cluster.nodes(nodes)
    async with (
        recording(kube.plane) as written_here,
        recording(east.plane) as written_there,
        published(kube) as here,
        collector_of_two(kube, east, tmp_path, *ELECTION, account=ACCOUNT) as process,
        playing(process.address, fabric, connections=4) as player,
    ):
        async with published(east) as there:
            await whole(here, own)
            await whole(there, of_east)
            first = fabric.hosts[0]
            assert (
                leaf_of(here.now, first)["metadata"]["name"] == leaf_of(there.now, first)["metadata"]["name"]
            )
            assert sorted({h["spec"]["tier"] for h in there.now.values()}) == [1, 2, 3]
            before = {name: h["spec"] for name, h in there.now.items()}
            for cluster, seen in ((kube, here), (east, there)):
                labels = labels_of(cluster)
                for node, mine in labels.items():
                    assert mine["hyperscout.io/leaf"] == leaf_of(seen.now, node)["metadata"]["name"]
            await places_in_one_cluster(process.address, fabric)
            # The cable of a node is a finding in its own cluster only.
            cable = host_cable(player, f"{EAST}/{first}")
            player.cut(cable)
            await there.until(lambda now: status_at(now, first, "Degraded")[0] == "True", "a cut cable")
            assert f"{first} mlx5_0/" in status_at(there.now, first, "Degraded")[1]
            player.restore(cable)
            await whole(there, of_east)
        await asyncio.to_thread(east.plane.kill_apiserver)
        mine = host_cable(player, first)
        player.cut(mine)
        await here.until(lambda now: status_at(now, first, "Degraded")[0] == "True", "east holds up nothing")
        player.restore(mine)
        await whole(here, own)
        player.cut(cable)
        await asyncio.to_thread(east.plane.start_apiserver)
        await asyncio.to_thread(east.plane.await_ready)
        async with published(east) as there:
            await there.until(
                lambda now: now.keys() == before.keys() and status_at(now, first, "Degraded")[0] == "True",
                "what changed meanwhile",
            )
            assert {name: h["spec"] for name, h in there.now.items()} == before
        assert await process.stop() == 0
        for recorder in (written_here, written_there):
            assert recorder.events
            recorder.assert_clean()
        check_writes(audits[0], {*own}, {*of_east} - {*own}, here.now)
        check_writes(audits[1], {*of_east}, {*own} - {*of_east}, before)


async def test_a_cluster_that_is_away_at_the_start_keeps_its_tree(
    kube: Cluster, own_kube: Callable[..., Cluster], tmp_path: Path
) -> None:
    """A leader without evidence of its own continues from the HyperNodes of the clusters that answer."""
    fabric = shared_fabric()
    own, of_east = nodes_of(fabric, ""), nodes_of(fabric, EAST)
    east = own_kube()
    kube.nodes(own)
    east.nodes(of_east)
    async with (
        published(kube) as here,
        published(east) as there,
        collector_of_two(kube, east, tmp_path / "a") as process,
        playing(process.address, fabric, connections=4),
    ):
        await whole(here, own)
        await whole(there, of_east)
        before = {name: h["spec"] for name, h in there.now.items()}
    await asyncio.to_thread(east.plane.kill_apiserver)
    victim = own[0]
    async with (
        recording(east.plane) as written_there,
        published(kube) as here,
        collector_of_two(kube, east, tmp_path / "b", *ELECTION) as process,
        playing(process.address, fabric, connections=4),
    ):
        kube.cordon(victim)
        await here.until(lambda now: status_at(now, victim, "Ready")[0] == "False", "it publishes here")
        await asyncio.to_thread(east.plane.start_apiserver)
        await asyncio.to_thread(east.plane.await_ready)
        async with published(east) as there:
            await there.until(lambda now: len(now) == len(before), "the watch has begun")
            east.cordon(victim)
            await there.until(lambda now: status_at(now, victim, "Ready")[0] == "False", "it publishes there")
            assert {name: h["spec"] for name, h in there.now.items()} == before
        assert not [event for event in written_there.events if event.what == "deleted"]


async def test_the_token_of_an_agent_is_good_in_its_own_cluster_only(
    kube: Cluster, own_kube: Callable[..., Cluster], tmp_path: Path, family: Family
) -> None:
    tls = family.channel()
    east = own_kube()
    tokens = {}
    for name, cluster in (("", kube), (EAST, east)):
        cluster.grant("collector", ASK, NAMESPACE)
        cluster.nodes(["n1"])
        pod = cluster.pod_on("n1", AGENT, NAMESPACE)
        tokens[name] = show(cluster.token(AGENT, NAMESPACE, AUDIENCE, pod=pod))
    flags: dict[str, Any] = {
        "listen": "127.0.0.1:0",
        "http_listen": "",
        "rest_listen": "",
        "data_dir": tmp_path / "data",
        "tls_cert": family.server.cert,
        "tls_key": family.server.key,
        "authenticate": "kubernetes",
        "agent_service_account": AGENTS,
        "kubeconfig": kube.kubeconfig_of("collector", NAMESPACE),
        "clusters": (f"{EAST}={east.kubeconfig_of('collector', NAMESPACE)}",),
    }
    async with Collector(load_settings(flags=flags)) as running:
        for name, token in tokens.items():
            node = node_in(name, "n1")
            async with AgentStream(running.address, node, credentials=tls, metadata=token) as agent:
                assert await agent.store(lldp(node, "eth0")) == []
        for name, node in (("", f"{EAST}/n1"), (EAST, "n1")):
            code, _ = await said(running.address, tls, node, metadata=tokens[name])
            assert code == Code.UNAUTHENTICATED, "the other API server does not know the token"
        code, words = await said(running.address, tls, f"{EAST}/n2", metadata=tokens[EAST])
        assert (code, "node 'east/n1'" in words) == (Code.PERMISSION_DENIED, True)
        code, words = await said(running.address, tls, "west/n1", metadata=tokens[EAST])
        assert (code, "`clusters` has no 'west'" in words) == (Code.INVALID_ARGUMENT, True)
