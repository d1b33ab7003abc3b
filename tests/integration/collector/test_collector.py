"""The whole collector in this process, with simulated agents on the real uplink and readers on real gRPC."""

import asyncio
import hashlib
import os
import time
import urllib.request
import zlib
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
import yaml
from grpc_health.v1 import health_pb2, health_pb2_grpc
from hyperscout.v1 import topology_pb2 as pb
from hyperscout.v1.finding_pb2 import Finding
from hyperscout.v1.topology_pb2_grpc import TopologyServiceStub
from hyperscout_collector.app.build.collector import Collector
from hyperscout_collector.app.inference import inference
from hyperscout_collector.app.inference.failures import Failure
from hyperscout_collector.app.settings.settings import CollectorSettings
from hyperscout_collector.evidence import view
from hyperscout_collector.evidence.rows import Row
from hyperscout_inference.fabric.inputs import FabricInputs, InferOptions
from hyperscout_inference.hierarchy import infer
from hyperscout_runtime.clock import Clock
from hyperscout_runtime.errors import StartError
from hyperscout_topology.topology import Topology
from support.agent_stream import AgentStream
from support.collector_process import CHANNEL_OPTIONS, listed
from support.collectors import at_rest, collector_settings, host_cable, playing
from support.findings import adapter, failed, lldp, sweep
from support.metric_families import FAMILIES
from support.rest_collector import status_of
from support.waiting import TIMEOUT_S, eventually


def settings(folder: Path, **more: Any) -> CollectorSettings:
    return collector_settings(folder, **({"http_listen": "127.0.0.1:0"} | more))


@asynccontextmanager
async def reader(collector: Collector) -> AsyncIterator[Any]:
    async with grpc.aio.insecure_channel(collector.address, options=CHANNEL_OPTIONS) as channel:
        yield TopologyServiceStub(channel)


class Watch:
    """HyperNodes and anomalies as a watcher holds them."""

    def __init__(self, call: Any) -> None:
        self._call = call
        self.hypernodes: dict[str, pb.HyperNode] = {}
        self.generations: list[int] = []
        self.anomalies: list[pb.Anomaly] = []

    async def until(self, condition: Callable[["Watch"], bool]) -> None:
        async with asyncio.timeout(TIMEOUT_S):
            while not condition(self):
                event = await self._call.read()
                kind = event.WhichOneof("event")
                part = getattr(event, kind)
                if kind == "snapshot":
                    self.hypernodes.clear()
                for name in part.removed_hypernodes if kind == "delta" else ():
                    self.hypernodes.pop(name)
                self.hypernodes.update((h.name, h) for h in part.hypernodes)
                self.anomalies = list(part.anomalies)
                self.generations.append(part.generation)

    def nodes(self) -> dict[int, list[list[str]]]:
        tiers: dict[int, list[list[str]]] = {}
        for h in sorted(self.hypernodes.values(), key=lambda h: sorted(h.nodes)):
            tiers.setdefault(h.tier, []).append(list(h.nodes))
        return tiers

    def true(self, kind: str) -> dict[str, str]:
        """Message by HyperNode of a condition that is True."""
        return {
            h.name: c.message
            for h in self.hypernodes.values()
            for c in h.conditions
            if c.type == kind and c.status == "True"
        }


def found(watch: Watch) -> bool:
    return watch.nodes() == {1: [HOSTS[:4], HOSTS[4:]], 2: [HOSTS]}


HOSTS = [f"node-000{i}" for i in range(1, 9)]


async def test_agents_in_hypernodes_out_and_a_cut_cable_shows(tmp_path: Path) -> None:
    out = tmp_path / "hypernodes.yaml"
    async with (
        Collector(settings(tmp_path, publish_file=str(out))) as collector,
        reader(collector) as service,
    ):
        watch = Watch(service.WatchTopology(pb.WatchTopologyRequest()))
        async with playing(collector.address) as player:
            await watch.until(found)
            assert watch.true("Degraded") == {}
            cable = host_cable(player, "node-0006")
            player.cut(cable)
            await watch.until(lambda w: bool(w.true("Degraded")))
            ((name, message),) = watch.true("Degraded").items()
            assert "node-0006" in watch.hypernodes[name].nodes
            assert "node-0006" in message
            assert [a.kind for a in watch.anomalies] == ["MissingLink"]
            player.restore(cable)
            await watch.until(lambda w: not w.true("Degraded"))
            assert watch.generations == sorted(set(watch.generations))
            topology = (await service.GetTopology(pb.GetTopologyRequest())).topology
            assert len(topology.links) == 8 + 4
            explained = await service.Explain(pb.ExplainRequest(node_a="node-0001", node_b="node-0008"))
            assert (explained.tier, len(explained.path), len(explained.anomalies)) == (2, 4, 0)
            status = await service.GetStatus(pb.GetStatusRequest())
            assert [(a.node, a.connected) for a in status.agents] == [(host, True) for host in HOSTS]
            assert len(status.leases) == 1
            assert list(status.problems) == []
    documents = list(yaml.safe_load_all(out.read_text()))
    assert sorted(d["metadata"]["name"] for d in documents) == sorted(watch.hypernodes)


async def test_a_restart_goes_on_with_names_and_generations(tmp_path: Path) -> None:
    async with Collector(settings(tmp_path)) as first, reader(first) as service:
        watch = Watch(service.WatchTopology(pb.WatchTopologyRequest()))
        async with playing(first.address) as player:
            await watch.until(found)
            await at_rest(first, player)
        before = (await service.GetTopology(pb.GetTopologyRequest())).topology
        findings = await listed(first.address, page_size=3)
    out = tmp_path / "hypernodes.yaml"
    async with Collector(settings(tmp_path, publish_file=str(out))) as second, reader(second) as service:
        after = (await service.GetTopology(pb.GetTopologyRequest())).topology
        assert [h.name for h in after.hypernodes] == [h.name for h in before.hypernodes]
        assert after.generation == before.generation
        assert [f.finding for f in await listed(second.address, page_size=100)] == [
            f.finding for f in findings
        ]
        # Its agents are gone, and its evidence is not: nothing changes.
        await eventually(lambda: second.components.inference.pipeline.inferences and out.exists())
        assert second.watchers.current.topology.generation == before.generation
        assert len(list(yaml.safe_load_all(out.read_text()))) == 3


async def test_an_expected_node_without_evidence_is_listed(tmp_path: Path) -> None:
    names = tmp_path / "nodes"
    names.write_text("node-0001\nnode-0002\nnode-9999\n")
    async with (
        Collector(settings(tmp_path, expected_nodes_file=names)) as collector,
        reader(collector) as service,
    ):
        watch = Watch(service.WatchTopology(pb.WatchTopologyRequest()))
        async with playing(collector.address):
            await watch.until(lambda w: w.nodes().get(1) == [["node-0001", "node-0002"]])
        topology = (await service.GetTopology(pb.GetTopologyRequest())).topology
        assert list(topology.nodes_without_evidence) == ["node-9999"]


async def test_a_mass_removal_is_held_until_it_is_approved(tmp_path: Path) -> None:
    async with Collector(settings(tmp_path)) as collector, reader(collector) as service:
        watch = Watch(service.WatchTopology(pb.WatchTopologyRequest(omit_links=True)))
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await service.Approve(pb.ApproveRequest(generation=5))
        assert caught.value.code() == grpc.StatusCode.FAILED_PRECONDITION
        names = [f"n{i:02}" for i in range(12)]
        async with AgentStreams(collector.address, names) as agents:
            for name, agent in agents.items():
                leaf = f"leaf-{int(name[1:]) // 4}"
                await agent.store(lldp(name, "eth0", _now(), neighbour=leaf, port=name), full=True)
            await watch.until(lambda w: w.nodes().get(1) == [names[:4], names[4:8], names[8:]])
            gone = {h.name for h in watch.hypernodes.values() if names[0] not in h.nodes}
            for name in names[4:]:  # all are plugged into the first leaf
                await agents[name].store(lldp(name, "eth0", _now(), neighbour="leaf-0", port=name))
            async with asyncio.timeout(TIMEOUT_S):
                while not (status := await service.GetStatus(pb.GetStatusRequest())).HasField("held"):
                    await asyncio.sleep(0.01)
        assert set(status.held.removes_hypernodes) <= gone
        with pytest.raises(grpc.aio.AioRpcError):
            await service.Approve(pb.ApproveRequest(generation=status.held.generation + 1))
        approved = await service.Approve(pb.ApproveRequest(generation=status.held.generation))
        assert approved.generation >= status.held.generation
        await watch.until(lambda w: w.nodes().get(1) == [names])
        assert not (await service.GetStatus(pb.GetStatusRequest())).HasField("held")


async def test_approving_what_is_published_forgets_what_is_missing(tmp_path: Path) -> None:
    async with Collector(settings(tmp_path)) as collector, reader(collector) as service:
        watch = Watch(service.WatchTopology(pb.WatchTopologyRequest(omit_links=True)))
        names = [f"n{i:02}" for i in range(12)]
        async with AgentStreams(collector.address, names) as agents:
            for name, agent in agents.items():
                await agent.store(lldp(name, "eth0", _now(), neighbour="leaf-0", port=name), full=True)
            await watch.until(lambda w: w.nodes().get(1) == [names])
            await agents[names[0]].store(lldp(names[0], "eth0", _now(), neighbour=""))  # its cable is gone
            await watch.until(lambda w: len(w.anomalies) == 1)
            topology = (await service.GetTopology(pb.GetTopologyRequest())).topology
            assert list(topology.nodes_without_evidence) == [names[0]]
            assert watch.nodes()[1] == [names]  # it keeps its place
            approved = await service.Approve(pb.ApproveRequest(generation=topology.generation))
            assert approved.generation == topology.generation
            await watch.until(lambda w: w.nodes().get(1) == [names[1:]] and not w.anomalies)


class AgentStreams(dict[str, AgentStream]):
    """Hand-made agents, by node."""

    def __init__(self, address: str, nodes: list[str]) -> None:
        super().__init__((node, AgentStream(address, node)) for node in nodes)

    async def __aenter__(self) -> "AgentStreams":
        for agent in self.values():
            await agent.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        for agent in self.values():
            await agent.__aexit__(None, None, None)


def _now() -> int:
    import time

    return time.time_ns()


async def test_a_lease_moves_when_its_port_is_cut_and_the_fabric_stays(tmp_path: Path) -> None:
    async with Collector(settings(tmp_path)) as collector, reader(collector) as service:
        watch = Watch(service.WatchTopology(pb.WatchTopologyRequest(omit_links=True)))
        async with playing(collector.address) as player:
            await watch.until(found)
            (lease,) = (await service.GetStatus(pb.GetStatusRequest())).leases
            player.cut(host_cable(player, lease.node))
            await watch.until(lambda w: any(lease.node in m for m in w.true("Degraded").values()))
            # What the old holder saw of the fabric is not kept once the new one has swept it.
            async with asyncio.timeout(TIMEOUT_S):
                holders: list[str] = []
                while not holders or await sweepers(collector) != holders:
                    status = await service.GetStatus(pb.GetStatusRequest())
                    holders = sorted({x.node for x in status.leases})
                    await asyncio.sleep(0.05)
            assert lease.node not in holders
            assert found(watch)


async def sweepers(collector: Collector) -> list[str]:
    """Nodes of which a sweep is held."""
    held = await listed(collector.address)
    return sorted({f.finding.key.node for f in held if f.finding.HasField("sweep")})


async def test_a_sweep_that_cannot_be_read_is_refused_and_said(tmp_path: Path) -> None:
    junk = b"\x00\x01 nothing of the kind"
    digest = hashlib.sha256(junk).digest()
    async with Collector(settings(tmp_path)) as collector, reader(collector) as service:
        agent = AgentStream(collector.address, "n1", probes=["infiniband", "ibnetdiscover"])
        async with agent:
            await agent.batch(adapter("n1", at_ns=_now()), full=True)
            lease = None
            while lease is None:
                answer = await agent.read()
                lease = answer.lease if answer.HasField("lease") else None
            await agent.bulk(digest, zlib.compress(junk))
            reasons = await agent.store(sweep("n1", digest, _now(), lease_id=lease.lease_id))
            assert "ibnetdiscover of n1" in reasons[0]
            assert await agent.store(sweep("n1", digest, _now(), lease_id="stolen")) != []
        (problem,) = (await service.GetStatus(pb.GetStatusRequest())).problems
        assert "sweep of n1 cannot be read" in problem
        assert [f.finding.key.probe for f in await listed(collector.address)] == ["infiniband"]


@pytest.mark.parametrize(
    ("call", "request_", "code"),
    [
        ("ListFindings", pb.ListFindingsRequest(page_token="!"), grpc.StatusCode.INVALID_ARGUMENT),
        ("ListFindings", pb.ListFindingsRequest(page_token="W10="), grpc.StatusCode.INVALID_ARGUMENT),
        ("ListFindings", pb.ListFindingsRequest(page_size=20_000), grpc.StatusCode.INVALID_ARGUMENT),
        ("Explain", pb.ExplainRequest(node_a="absent", node_b="nowhere"), grpc.StatusCode.NOT_FOUND),
    ],
)
async def test_bad_requests_are_told_apart(
    tmp_path: Path, call: str, request_: Any, code: grpc.StatusCode
) -> None:
    async with Collector(settings(tmp_path)) as collector, reader(collector) as service:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await getattr(service, call)(request_)
        assert caught.value.code() == code


async def test_a_full_disk_is_a_problem_that_goes_away(tmp_path: Path) -> None:
    async with Collector(settings(tmp_path, evidence_max_mib=1)) as collector, reader(collector) as service:
        codes = []
        for turn in range(20):
            async with AgentStream(collector.address, f"n{turn}") as agent:
                many = [failed(f"n{turn}", "lldp", f"e{i}", _now(), "x" * 1000) for i in range(200)]
                await agent.batch(*many)
                try:
                    await agent.acked(1)
                except AssertionError as ended:
                    codes.append(str(ended))
                    break
        assert "RESOURCE_EXHAUSTED" in codes[0]
        held = len(await listed(collector.address))
        assert held > 0
        (problem,) = (await service.GetStatus(pb.GetStatusRequest())).problems
        assert "no space is left" in problem
        store: Any = collector.store
        store._file.connection.execute("PRAGMA max_page_count = 1000000")
        async with AgentStream(collector.address, "late") as agent:
            await agent.store(lldp("late", "eth0", _now()))
        assert list((await service.GetStatus(pb.GetStatusRequest())).problems) == []
        assert len(await listed(collector.address)) == held + 1


async def test_evidence_with_which_a_component_raises_does_not_end_the_collector(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node_of = view._node

    def raising(rows: Iterable[Row]) -> Any:
        known = list(rows)
        if any(row.key.node == "n2" for row in known):
            raise IndexError("planted")
        return node_of(known)

    monkeypatch.setattr(view, "_node", raising)
    problem = "the evidence for inference raised with the evidence of n2,"
    for turn in ("first start", "restart"):
        async with Collector(settings(tmp_path)) as collector:
            if turn == "restart":
                assert [text.startswith(problem) for text in status_of(collector).problems] == [True]
            for host in ("n1", "n2", "n3"):
                async with AgentStream(collector.address, host) as agent:
                    await agent.store(lldp(host, "eth0", _now(), port=f"swp{host}"), full=True)
            assert [text.startswith(problem) for text in status_of(collector).problems] == [True]
            assert [agent.findings for agent in status_of(collector).agents] == [1, 1, 1]
            await eventually(lambda: len(collector.watchers.current.topology.links) == 2, "two links")
            assert not collector.crashed.is_set()


async def test_a_damaged_file_is_a_problem_in_the_status(tmp_path: Path) -> None:
    path = tmp_path / "data" / "evidence.db"
    path.parent.mkdir()
    path.write_bytes(os.urandom(10_000))
    async with Collector(settings(tmp_path)) as collector, reader(collector) as service:
        (problem,) = (await service.GetStatus(pb.GetStatusRequest())).problems
        assert "moved to evidence.db.damaged-" in problem


async def test_a_publisher_that_fails_is_a_problem_and_nothing_more(tmp_path: Path) -> None:
    out = tmp_path / "none" / "hypernodes.yaml"
    async with (
        Collector(settings(tmp_path, publish_file=str(out))) as collector,
        reader(collector) as service,
    ):
        watch = Watch(service.WatchTopology(pb.WatchTopologyRequest()))
        async with playing(collector.address):
            await watch.until(found)
        async with asyncio.timeout(TIMEOUT_S):
            while not (problems := (await service.GetStatus(pb.GetStatusRequest())).problems):
                await asyncio.sleep(0.01)
        assert "publisher file" in problems[0]


async def test_what_cannot_start_says_why(tmp_path: Path) -> None:
    async with Collector(settings(tmp_path)) as collector:
        with pytest.raises(StartError, match="another collector"):
            await Collector(settings(tmp_path)).start()
        other = tmp_path / "other"
        with pytest.raises(StartError, match="is in use: "):
            await Collector(settings(tmp_path, data_dir=other, listen=collector.address)).start()
        with pytest.raises(StartError, match="is in use: "):
            await Collector(settings(tmp_path, data_dir=other, http_listen=collector.http_address)).start()
        missing = tmp_path / "missing"
        for name in ("expected_nodes_file", "node_map"):
            with pytest.raises(StartError, match="missing"):
                await Collector(settings(tmp_path, data_dir=other, **{name: missing})).start()
        # Nothing was left behind by those that could not start.
        async with Collector(settings(tmp_path, data_dir=other)):
            pass


async def test_health_metrics_and_reflection(tmp_path: Path) -> None:
    async with Collector(settings(tmp_path, reflection=True)) as collector:
        async with grpc.aio.insecure_channel(collector.address, options=CHANNEL_OPTIONS) as channel:
            health = health_pb2_grpc.HealthStub(channel)
            for service in ("", "hyperscout.v1.TopologyService", "hyperscout.v1.DiscoveryService"):
                answer = await health.Check(health_pb2.HealthCheckRequest(service=service))
                assert answer.status == health_pb2.HealthCheckResponse.SERVING
            reflected = channel.stream_stream(
                "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
            )()
            await reflected.write(b"\x3a\x00")  # list_services
            assert b"hyperscout.v1.TopologyService" in await reflected.read()
            reflected.cancel()

        def get(page: str) -> str:
            with urllib.request.urlopen(
                f"http://{collector.http_address}{page}", timeout=TIMEOUT_S
            ) as answer:
                return str(answer.read().decode())

        async with playing(collector.address) as player:
            await eventually(lambda: collector.watchers.current.topology.hypernodes)
            await eventually(lambda: len(player.agents) == 8 and player.settled)
            await at_rest(collector, player)
            assert (
                await asyncio.to_thread(get, "/healthz") == await asyncio.to_thread(get, "/readyz") == "ok\n"
            )
            lines = (await asyncio.to_thread(get, "/metrics")).splitlines()
        figures = {
            line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if line[0] != "#"
        }
        declared = {family.name for family in FAMILIES}
        served = {line.split()[2] for line in lines if line.startswith("# TYPE hyperscout_")}
        assert served - declared == set(), "the reference lacks them: add their module to deploy/reference.py"
        prefix = "hyperscout_collector_"
        assert figures[prefix + "agents"] == 8
        assert figures[prefix + 'evidence{probe="infiniband",outcome="data"}'] == 8
        assert figures[prefix + 'hypernodes{tier="1"}'] == 2
        assert figures[prefix + 'anomalies{kind="MissingLink"}'] == 0
        assert figures[prefix + "leases"] == 1
        assert figures[prefix + "inference_seconds_count"] > 0


async def test_a_restart_with_evidence_that_makes_inference_raise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes up, serves the topology, and says whose evidence is set aside."""

    def raising(inputs: FabricInputs, options: InferOptions, previous: Topology | None = None) -> Topology:
        if any(port.interface == "poison" for ports in inputs.lldp.values() for port in ports):
            raise ValueError("planted")
        return infer(inputs, options, previous)

    async with Collector(settings(tmp_path)) as collector:
        for host in ("n1", "n2", "n3"):
            async with AgentStream(collector.address, host) as agent:
                await agent.store(lldp(host, "eth0", _now(), port=f"swp{host}"))
        await eventually(lambda: len(collector.watchers.current.topology.links) == 3)
    monkeypatch.setattr(inference, "infer_without_conditions", raising)
    async with Collector(settings(tmp_path)) as collector:
        async with AgentStream(collector.address, "n2") as agent:
            await agent.store(lldp("n2", "poison", _now()))
        await eventually(lambda: collector.components.inference.pipeline.failures.quarantine.errors)
    async with Collector(settings(tmp_path)) as collector, reader(collector) as service:
        await eventually(lambda: collector.components.inference.pipeline.failures.quarantine.errors)
        url = f"http://{collector.http_address}"
        page = await asyncio.to_thread(lambda: urllib.request.urlopen(f"{url}/metrics").read().decode())
        assert "\nhyperscout_collector_reporters_set_aside 1\n" in page
        assert "\nhyperscout_collector_inference_failures_total 0\n" not in page
        async with AgentStream(collector.address, "n1") as agent:
            await agent.store(lldp("n1", "eth1", _now(), port="swp9"))
        # No inference may still run that would remove the failure which is planted below.
        pipeline = collector.components.inference.pipeline
        await eventually(
            lambda: pipeline._last and any("swp9" in str(x) for x in pipeline._last.inferred.links)
        )

        async def named() -> list[str]:
            topology = (await service.GetTopology(pb.GetTopologyRequest())).topology
            return [x.subject.name for x in topology.anomalies if x.kind == "EvidenceSetAside"]

        async with asyncio.timeout(TIMEOUT_S):
            while await named() != ["n2"]:
                await asyncio.sleep(0.01)
        status = await service.GetStatus(pb.GetStatusRequest())
        assert any("evidence of n2 is set aside" in problem for problem in status.problems)
        assert any("evidence of n2 is set aside" in line for line in status.wrong)
        collector.components.inference.pipeline.failures.present = Failure(_now(), "ValueError: planted")
        page = await asyncio.to_thread(lambda: urllib.request.urlopen(f"{url}/readyz").read().decode())
        assert "ok, but inference has failed since" in page


async def test_a_part_that_dies_is_not_hidden(tmp_path: Path) -> None:
    collector = Collector(settings(tmp_path))
    await collector.start()

    def broken() -> None:
        raise ZeroDivisionError

    collector.components.ingest.sweeps.tick = broken  # type: ignore[method-assign]
    async with asyncio.timeout(TIMEOUT_S):
        await collector.crashed.wait()
    with pytest.raises(ZeroDivisionError):
        await collector.stop()


async def test_an_agent_that_left_a_week_ago_is_removed(tmp_path: Path) -> None:
    now_ns = time.time_ns()

    def finding(node: str) -> Finding:
        return lldp(node, "eth0", now_ns, neighbour="leaf-0", port=node)

    def shown(collector: Collector) -> dict[str, tuple[bool, str, int]]:
        return {a.node: (a.connected, a.version, a.findings) for a in status_of(collector).agents}

    async with (
        Collector(settings(tmp_path), clock=Clock(lambda: now_ns, lambda: now_ns)) as collector,
        AgentStream(collector.address, "stays") as stays,
    ):
        await stays.store(finding("stays"), full=True, sent_ns=now_ns)
        async with AgentStream(collector.address, "left") as left:
            await left.store(finding("left"), full=True, sent_ns=now_ns)
        async with AgentStream(collector.address, "failed") as failing:
            await failing.store(failed("failed", "lldp", "eth0", now_ns), full=True, sent_ns=now_ns)
        connected = {"failed": False, "left": False, "stays": True}
        await eventually(lambda: {node: row[0] for node, row in shown(collector).items()} == connected)
        now_ns += 8 * 86_400 * 10**9
        await stays.store(finding("stays"), sent_ns=now_ns)
        await eventually(lambda: len(collector.components.evidence.state.agents) == 1)
        assert shown(collector) == {"stays": (True, "test", 1)}
        assert set(collector.components.evidence.state.agents) == {"stays"}
        assert [agent.node for agent in collector.components.evidence.store.load().agents] == ["stays"]
