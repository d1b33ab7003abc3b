"""The whole collector at a real mosquitto: devices in, HyperNodes out, and no device speaks for another."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiomqtt import Client, ProtocolVersion
from hyperscout_collector.app.build.collector import Collector
from hyperscout_topology.topology import Topology
from support.agent_stream import AgentStream
from support.collector_process import collector_process
from support.collectors import collector_settings
from support.findings import S, lldp, switch_port
from support.mosquitto import Listener, Mosquitto, listening, mosquitto
from support.mqtt_world import DEVICES, LEAVES, Reader, dpu, password_file, report, reports, secured, send
from support.real import require_real
from support.rest_collector import status_of
from support.waiting import TIMEOUT_S, eventually

require_real("mosquitto")

USERS = ("collector", "reader", *(device.partition("=")[0] for device in DEVICES))


@asynccontextmanager
async def broker_with_users(tmp_path: Path) -> AsyncIterator[Mosquitto]:
    async with mosquitto(tmp_path / "broker") as broker:
        broker.kill()
        broker.lines = secured(broker, *USERS)
        await broker.start()
        yield broker


def flags(tmp_path: Path, broker: Mosquitto, **more: Any) -> dict[str, Any]:
    return {
        "mqtt_broker": f"mqtt://127.0.0.1:{broker.port}",
        "mqtt_user": "collector",
        "mqtt_password_file": password_file(tmp_path, "collector"),
        "mqtt_topic_prefix": "lab",
        "mqtt_devices": DEVICES,
        "identity": "one",
        **more,
    }


@asynccontextmanager
async def collector(tmp_path: Path, broker: Mosquitto, **more: Any) -> AsyncIterator[Collector]:
    async with Collector(collector_settings(tmp_path, **flags(tmp_path, broker, **more))) as found:
        await eventually(
            lambda: (mqtt := found.components.publishing.mqtt) is not None and mqtt.counters.connected
        )
        yield found


def reader(broker: Mosquitto, user: str = "reader", topic: str = "lab/#") -> Any:
    return listening(broker, topic, username=user, password=f"pw-{user}")


def now(collector: Collector) -> Topology:
    return collector.components.publishing.watchers.current.topology


def inbound(collector: Collector) -> dict[str, int]:
    assert collector.components.publishing.mqtt is not None
    return dict(collector.components.publishing.mqtt.counters.inbound)


def domains(topology: Topology, tier: int) -> set[tuple[str, ...]]:
    return {h.nodes for h in topology.hypernodes if h.tier == tier}


def conditions(topology: Topology) -> dict[str, Any]:
    return {
        h.name: (h.tier, h.parent, h.nodes, {c.type: (c.status, c.reason, c.message) for c in h.conditions})
        for h in topology.hypernodes
    }


async def tell(broker: Mosquitto, said: dict[str, dict[str, Any]]) -> None:
    for topic, message in said.items():
        await send(broker, f"lab/findings/{topic}", message, user=topic)


def leads(listener: Listener, generation: int) -> bool:
    said = json.loads(listener.standing.get("lab/collector", b"{}"))
    return said.get("state") == "online" and said.get("generation") == generation


async def test_a_tree_from_mqtt_alone_and_a_reader_that_knows_only_the_schemas(tmp_path: Path) -> None:
    schemas = Reader()
    async with (
        broker_with_users(tmp_path) as broker,
        collector(tmp_path, broker) as c,
        reader(broker) as other,
    ):
        await tell(broker, reports(time.time_ns()))
        await eventually(lambda: domains(now(c), 2) == {("n1", "n2", "n3", "n4")})
        assert domains(now(c), 1) == set(LEAVES.values())
        assert any("n1" in {link.a_device, link.b_device} for link in now(c).links), "a device gives a link"
        await other.until(lambda: leads(other, now(c).generation))
        assert schemas.tree(other) == conditions(now(c))
        await tell(broker, reports(time.time_ns(), cut=("n3",)))
        await eventually(lambda: any(a.kind == "MissingLink" for a in now(c).anomalies))
        await other.until(lambda: leads(other, now(c).generation))
        assert schemas.tree(other) == conditions(now(c))
        assert any(a["kind"] == "MissingLink" for a in anomalies(other))
        assert {"AnomalyAppeared", "ConditionChanged", "LinkRemoved"} <= kinds_of(other)
        schemas.check(other)
        assert inbound(c) == {"taken": 2 * len(DEVICES)}
        status = {agent.node: agent for agent in status_of(c).agents}
        assert status["switch/leaf-1"].connected
        assert (status["n1"].connected, status["n1"].version, status["n1"].findings) == (True, "mqtt", 1)


def kinds_of(listener: Listener) -> set[str]:
    told = [json.loads(x.payload) for x in listener.heard if x.topic == "lab/events"]
    return {event["kind"] for message in told for event in message["events"]}


def anomalies(listener: Listener) -> list[Any]:
    states = [json.loads(p) for t, p in listener.standing.items() if t.startswith("lab/hypernodes/")]
    return [anomaly for state in states for anomaly in state["anomalies"]]


def refusals(listener: Listener) -> list[dict[str, Any]]:
    return [json.loads(x.payload) for x in listener.heard if "/refusals/" in x.topic]


async def test_a_device_speaks_for_itself_alone(tmp_path: Path) -> None:
    schemas = Reader()
    at_ns = time.time_ns()
    async with (
        broker_with_users(tmp_path) as broker,
        collector(tmp_path, broker) as c,
        reader(broker, "leaf-2", "lab/refusals/leaf-2") as answers,
        reader(broker, "dpu-n1", "lab/refusals/dpu-n1") as of_dpu,
    ):
        foreign = switch_port("switch/leaf-1", "swp1", at_ns)
        own = switch_port("switch/leaf-2", "swp1", at_ns)
        # The broker lets no device write another's topic (and says nothing of it at QoS 0).
        await send(broker, "lab/findings/leaf-1", report(foreign), user="leaf-2", qos=0)
        await send(broker, "lab/findings/leaf-2", report(foreign, own, lldp("n1", "eth0")), user="leaf-2")
        await answers.until(lambda: refusals(answers))
        (said,) = refusals(answers)
        assert [(x["node"], x["reason"]) for x in said["refused"]] == [
            ("switch/leaf-1", "not a finding of switch/leaf-2"),
            ("n1", "not a finding of switch/leaf-2"),
        ]
        assert said["reason"] == ""
        await eventually(lambda: inbound(c) == {"refused": 1}, "what was sent to another's topic never came")
        assert c.components.ingest.streams.counters.refusals == {"foreign_finding": 2}
        assert {key.subject for key in c.components.evidence.state.keys_of("switch/leaf-2")} == {"swp1"}
        assert list(c.components.evidence.state.nodes) == ["switch/leaf-2"]
        # A device in a node reports its ports, and neither switches nor what agents report.
        await send(broker, "lab/findings/dpu-n1", report(lldp("n1", "p0", at_ns)), user="dpu-n1")
        await of_dpu.until(lambda: refusals(of_dpu))
        assert (
            "only a device in a node reports the probe `device`"
            in refusals(of_dpu)[0]["refused"][0]["reason"]
        )
        schemas.check(answers)
        schemas.check(of_dpu)


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        (b"{", "not JSON"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"findings": ' + b'{"a":' * 200_000, "nested too deeply"),
        (b"\xff", "not UTF-8"),
        ({"findings": [], "sequenc": "1"}, 'no field named "sequenc"'),
        (report(switch_port("switch/leaf-1", "swp1")) | {"sentAt": "yesterday"}, "sentAt field"),
    ],
    ids=["cut", "arrays", "objects", "bytes", "field", "time"],
)
async def test_what_is_no_report_is_answered_and_counted(tmp_path: Path, payload: Any, why: str) -> None:
    async with (
        broker_with_users(tmp_path) as broker,
        collector(tmp_path, broker) as c,
        reader(broker, "leaf-1", "lab/refusals/leaf-1") as answers,
    ):
        await send(broker, "lab/findings/leaf-1", payload, user="leaf-1")
        await answers.until(lambda: refusals(answers))
        assert why in refusals(answers)[0]["reason"]
        assert inbound(c) == {"invalid": 1}
        await tell(broker, {"leaf-1": reports(time.time_ns())["leaf-1"]})
        await eventually(lambda: inbound(c) == {"invalid": 1, "taken": 1})
        Reader().check(answers)


async def test_retained_messages_and_unknown_devices_are_refused_and_duplicates_taken(tmp_path: Path) -> None:
    said = reports(time.time_ns())
    async with broker_with_users(tmp_path) as broker:
        await send(broker, "lab/findings/leaf-1", said["leaf-1"], user="leaf-1", retain=True)
        async with (
            reader(broker, "leaf-1", "lab/refusals/leaf-1") as answers,
            collector(tmp_path, broker) as c,
        ):
            await eventually(lambda: inbound(c) == {"invalid": 1})
            await answers.until(lambda: refusals(answers))
            assert "the broker retained" in refusals(answers)[0]["reason"]
            assert c.components.evidence.state.node_count == 0, "its age is unknown"
            for _ in range(3):
                await send(broker, "lab/findings/leaf-2", said["leaf-2"], user="leaf-2", qos=2)
            await eventually(lambda: inbound(c) == {"invalid": 1, "taken": 3})
            assert len(c.components.evidence.state) == 1
            await send(broker, "lab/findings/reader", said["leaf-2"], user="reader")
            await eventually(lambda: inbound(c).get("unknown_device") == 1)


async def test_a_flood_is_dropped_and_its_neighbours_are_heard(tmp_path: Path) -> None:
    said = reports(time.time_ns())
    async with (
        broker_with_users(tmp_path) as broker,
        collector(tmp_path, broker, mqtt_findings_per_s=0.0001) as c,
        reader(broker, "leaf-1", "lab/refusals/leaf-1") as answers,
    ):
        async with Client(
            "127.0.0.1", broker.port, username="leaf-1", password="pw-leaf-1", protocol=ProtocolVersion.V5
        ) as flood:
            for _ in range(200):
                await flood.publish("lab/findings/leaf-1", json.dumps(said["leaf-1"]), qos=1)
        await send(broker, "lab/findings/leaf-2", said["leaf-2"], user="leaf-2")
        await eventually(lambda: c.components.evidence.state.count_of("switch/leaf-2"))
        await eventually(lambda: sum(inbound(c).values()) == 201)
        assert inbound(c)["taken"] == 33, "a burst of 32, and that of the other switch"
        await answers.until(lambda: refusals(answers))
        assert "too fast" in refusals(answers)[0]["reason"]
        assert len(refusals(answers)) < 5, "it is not told each time"


async def test_of_one_switch_one_reports(tmp_path: Path) -> None:
    async with (
        broker_with_users(tmp_path) as broker,
        collector(tmp_path, broker) as c,
        reader(broker, "leaf-1", "lab/refusals/leaf-1") as answers,
    ):
        async with AgentStream(c.address, "switch/leaf-1", probes=("switch",)) as agent:
            await agent.store(switch_port("switch/leaf-1", "swp1", time.time_ns()), full=True)
            await tell(broker, {"leaf-1": reports(time.time_ns())["leaf-1"]})
            await answers.until(lambda: refusals(answers))
            assert "an agent of switch/leaf-1 is connected" in refusals(answers)[0]["reason"]
            assert inbound(c) == {"refused": 1}
        await eventually(lambda: c.components.ingest.streams.get("switch/leaf-1") is None)
        await tell(broker, {"leaf-1": reports(time.time_ns())["leaf-1"]})
        await eventually(lambda: inbound(c) == {"refused": 1, "taken": 1})
        assert {key.subject for key in c.components.evidence.state.keys_of("switch/leaf-1")} == {"swp9"}, (
            "it said it is all"
        )


async def test_a_node_s_agent_and_the_device_in_it_keep_to_their_own(tmp_path: Path) -> None:
    at_ns = time.time_ns()
    async with broker_with_users(tmp_path) as broker, collector(tmp_path, broker) as c:
        async with AgentStream(c.address, "n1") as agent:
            await agent.store(lldp("n1", "eth0", at_ns), full=True)
            await tell(
                broker, {"dpu-n1": report(dpu("n1", at_ns, neighbour="leaf-1", port="swp1"), full=True)}
            )
            await eventually(lambda: c.components.evidence.state.count_of("n1") == 2)
            (n1,) = [agent for agent in status_of(c).agents if agent.node == "n1"]
            assert (n1.version, n1.connected) == ("test", True)
        async with AgentStream(c.address, "n1") as agent:
            await agent.store(lldp("n1", "eth1", at_ns), full=True)
            subjects = {key.subject for key in c.components.evidence.state.keys_of("n1")}
            assert subjects == {"eth1", "p0"}, "the agent's full state says nothing of the device"
        await eventually(lambda: c.components.ingest.streams.get("n1") is None)
        (n1,) = [agent for agent in status_of(c).agents if agent.node == "n1"]
        assert not n1.connected, "the device speaks for itself"


async def test_a_device_s_clock_may_say_anything(tmp_path: Path) -> None:
    """An hour behind, it is as fresh as the others; what it dates in the year 9999 blocks nothing."""
    async with broker_with_users(tmp_path) as broker, collector(tmp_path, broker) as c:
        behind_ns = time.time_ns() - 3600 * S
        await tell(broker, {"leaf-1": reports(behind_ns)["leaf-1"]})
        mad = reports(time.time_ns())["leaf-2"]
        await tell(broker, {"leaf-2": mad | {"sentAt": "9999-12-31T23:59:59Z"}})
        await eventually(lambda: inbound(c).get("taken") == 2)
        for reporter in ("switch/leaf-1", "switch/leaf-2"):
            (row,) = c.components.evidence.state.rows_of_node(reporter)
            assert abs(row.seen_ns - time.time_ns()) < 60 * S
        status = {agent.node: agent for agent in status_of(c).agents}
        assert abs(status["switch/leaf-1"].clock_offset_s + 3600) < 60


async def test_a_collector_that_ends_says_so_and_waits_for_no_broker(tmp_path: Path) -> None:
    async with broker_with_users(tmp_path) as broker, reader(broker, topic="lab/collector") as other:
        async with collector(tmp_path, broker):
            await other.until(lambda: b"syncing" in other.standing.get("lab/collector", b""))
        await other.until(lambda: b"offline" in other.standing["lab/collector"])
        async with asyncio.timeout(TIMEOUT_S):
            async with collector(tmp_path, broker):
                broker.freeze()
        broker.thaw()
        await other.until(lambda: b"offline" in other.standing["lab/collector"])


async def test_a_port_that_accepts_and_says_nothing(tmp_path: Path) -> None:
    """Neither starting nor ending hangs on it."""
    writers = []
    silent = await asyncio.start_server(lambda _, writer: writers.append(writer), "127.0.0.1", 0)
    port = silent.sockets[0].getsockname()[1]
    settings = collector_settings(tmp_path, mqtt_broker=f"mqtt://127.0.0.1:{port}")
    async with asyncio.timeout(TIMEOUT_S):
        async with Collector(settings) as c:
            await eventually(
                lambda: any("not connected" in x for x in c.components.publishing.runner.problems)
            )
        await eventually(lambda: writers)
    for writer in writers:
        writer.close()
    silent.close()


async def test_the_will_is_read_when_the_collector_is_killed(tmp_path: Path) -> None:
    async with broker_with_users(tmp_path) as broker, reader(broker, topic="lab/collector") as other:
        given = flags(tmp_path, broker)
        names = ("mqtt_broker", "mqtt_user", "mqtt_password_file", "mqtt_topic_prefix", "identity")
        words = [word for name in names for word in (f"--{name.replace('_', '-')}", str(given[name]))]
        async with collector_process(tmp_path / "data", *words) as process:
            await other.until(lambda: b"syncing" in other.standing.get("lab/collector", b""))
            before = json.loads(other.standing["lab/collector"])
            process.kill()
            await other.until(lambda: b"offline" in other.standing["lab/collector"])
            after = json.loads(other.standing["lab/collector"])
            assert after == before | {"state": "offline"}
            Reader().check(other)
