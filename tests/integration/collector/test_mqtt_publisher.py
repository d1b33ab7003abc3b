"""HyperNodes at a real mosquitto: what is retained, what is told, and what an outage leaves of both."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hyperscout_collector.kube.client import Fence
from hyperscout_collector.kube.errors import NotLeaderError
from hyperscout_collector.mqtt.client import Access
from hyperscout_collector.mqtt.topics import Broker
from hyperscout_collector.publish.mqtt import MqttPublisher
from hyperscout_collector.publish.runner import PublisherRunner
from hyperscout_collector.topology import Condition, Topology
from hyperscout_collector.topology_json import to_json
from support.findings import T0
from support.mosquitto import Listener, Mosquitto, listening, mosquitto
from support.real import require_real
from support.topologies import two_leaves

require_real("mosquitto")

TIMEOUT_S = 20.0


class Stopping(Fence):
    """Lets writes out while it is said to."""

    leads = True

    def remaining_s(self) -> float:
        if not self.leads:
            raise NotLeaderError("another replica may lead now: nothing is written")
        return 5.0


@dataclass
class Rig:
    publisher: MqttPublisher
    runner: PublisherRunner
    fence: Stopping
    tasks: list["asyncio.Task[None]"]

    def offer(self, topology: Topology) -> None:
        self.runner.offer(topology)

    async def out(self, generation: int) -> None:
        """Until the broker has it."""
        await until(lambda: self.runner.states[0].generation == generation and not self.runner.problems)

    async def stop(self) -> None:
        for task in self.tasks:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def die(self) -> None:
        """The socket goes without a word, as with a process that is killed."""
        progress = self.publisher._progress
        assert progress is not None
        progress.session._client.close()


async def until(is_true: Callable[[], object]) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while not is_true():
            await asyncio.sleep(0.01)


@asynccontextmanager
async def rig(
    broker: Mosquitto, prefix: str = "lab", identity: str = "one", **access: Any
) -> AsyncIterator[Rig]:
    tls = access.pop("tls", False)
    given: dict[str, Any] = {"client_id": f"hyperscout-{identity}", "qos": 1} | access
    fence = Stopping()
    publisher = MqttPublisher(
        Access(Broker("localhost" if tls else "127.0.0.1", broker.port, tls), **given),
        "lab",
        identity=identity,
        version="0.1.0",
        fence=fence,
        clock_ns=lambda: T0,
        timer=time.monotonic,
        rng=Random(1),
        sleep=lambda seconds: asyncio.sleep(min(seconds, 2) / 20),
    )
    runner = PublisherRunner([publisher], rng=Random(1))
    tasks = [
        asyncio.create_task(runner.run(runner.states[0])),
        asyncio.create_task(publisher.run()),
    ]
    found = Rig(publisher, runner, fence, tasks)
    try:
        yield found
    finally:
        await found.stop()


def said(listener: Listener, topic: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(listener.standing[topic])
    return found


def states(listener: Listener) -> set[str]:
    return {topic.rpartition("/")[2] for topic in listener.standing if topic.startswith("lab/hypernodes/")}


def events(listener: Listener) -> list[dict[str, Any]]:
    return [json.loads(x.payload) for x in listener.heard if x.topic == "lab/events"]


def leader(listener: Listener) -> dict[str, Any]:
    return said(listener, "lab/collector") if "lab/collector" in listener.standing else {}


def follows(listener: Listener, generation: int) -> bool:
    found = leader(listener)
    return found.get("state") == "online" and found.get("generation") == generation


def mended(topology: Topology) -> Topology:
    """The next generation: leaf-b's cable is back."""
    fine = Condition("Degraded", "False", "LinksUp", "4 of 4 links up", T0)
    nodes = [
        replace(h, conditions=(h.conditions[0], fine, *h.conditions[2:])) if h.name == "leaf-b" else h
        for h in topology.hypernodes
    ]
    return replace(topology, generation=topology.generation + 1, hypernodes=tuple(nodes), anomalies=())


def without_b(topology: Topology) -> Topology:
    nodes = tuple(h for h in topology.hypernodes if h.name != "leaf-b")
    core = replace(nodes[-1], children=("leaf-a",), nodes=("n01", "n02"))
    return replace(topology, generation=topology.generation + 1, hypernodes=(*nodes[:-1], core), anomalies=())


@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_states_are_retained_and_changes_are_told(tmp_path: Path, qos: int) -> None:
    first = two_leaves()
    async with mosquitto(tmp_path) as broker, rig(broker, qos=qos) as r:
        r.offer(first)
        await r.out(7)
        async with listening(broker) as late:
            await late.until(lambda: states(late) == {"leaf-a", "leaf-b", "core"} and follows(late, 7))
            assert all(x.retained for x in late.heard)
            state = said(late, "lab/hypernodes/leaf-b")
            (expected,) = [h for h in to_json(first)["hypernodes"] if h["name"] == "leaf-b"]
            assert {name: state[name] for name in expected} == expected
            assert state.keys() - expected.keys() == {"generation", "anomalies"}
            assert state["anomalies"] == [
                a for a in to_json(first)["anomalies"] if a["hypernode"] == "leaf-b"
            ]
            r.offer(mended(first))
            await late.until(lambda: follows(late, 8))
            changed = [x.topic for x in late.heard if not x.retained and "/hypernodes/" in x.topic]
            assert changed == ["lab/hypernodes/leaf-b"], "what did not change is not sent again"
            assert said(late, "lab/hypernodes/leaf-b")["generation"] == 8
            assert said(late, "lab/hypernodes/leaf-a")["generation"] == 7
            (event,) = events(late)
            assert event["generation"] == 8
            assert {x["kind"] for x in event["events"]} == {"ConditionChanged"} | (
                {"AnomalyCleared"} if first.anomalies else set()
            )
            r.offer(without_b(mended(first)))
            await late.until(lambda: follows(late, 9))
            assert states(late) == {"leaf-a", "core"}
            assert "HyperNodeRemoved" in {x["kind"] for x in events(late)[-1]["events"]}


async def test_what_messages_say_of_themselves(tmp_path: Path) -> None:
    async with mosquitto(tmp_path) as broker, rig(broker) as r, listening(broker) as other:
        r.offer(two_leaves())
        await r.out(7)
        r.offer(mended(two_leaves()))
        await other.until(lambda: follows(other, 8) and events(other))
        for heard in other.heard:
            assert heard.properties.ContentType == "application/json"
            assert heard.properties.PayloadFormatIndicator == 1
            assert heard.properties.UserProperty == [("schema-version", "1")]
            assert not hasattr(heard.properties, "ResponseTopic")
            assert hasattr(heard.properties, "MessageExpiryInterval") == (heard.topic == "lab/events")
