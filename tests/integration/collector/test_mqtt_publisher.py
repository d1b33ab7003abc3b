"""HyperNodes at a real mosquitto: what is retained, what is told, and what an outage leaves of both."""

import asyncio
import gc
import json
import logging
import time
import tracemalloc
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hyperscout_kubernetes.client import Fence
from hyperscout_kubernetes.errors import NotLeaderError
from hyperscout_mqtt.client import Access
from hyperscout_mqtt.topics import Broker
from hyperscout_publish.mqtt.payloads import MAX_EVENTS
from hyperscout_publish.mqtt.publisher import MqttPublisher
from hyperscout_publish.publisher.runner import PublisherRunner
from hyperscout_topology.objects import to_json
from hyperscout_topology.topology import Condition, HyperNode, Topology
from kube.pki import LOOPBACK, Authority
from support.findings import T0
from support.mosquitto import Listener, Mosquitto, listening, mosquitto
from support.mqtt_world import ACL, Reader, password_file, send
from support.real import require_real
from support.topologies import two_leaves
from support.waiting import eventually

require_real("mosquitto", "openssl")


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
        await eventually(lambda: self.runner.states[0].generation == generation and not self.runner.problems)

    async def stop(self) -> None:
        for task in self.tasks:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def die(self) -> None:
        """The socket goes without a word, as with a process that is killed."""
        progress = self.publisher._progress
        assert progress is not None
        progress.session._client.close()


@asynccontextmanager
async def rig(broker: Mosquitto, identity: str = "one", **access: Any) -> AsyncIterator[Rig]:
    tls, reads_findings = access.pop("tls", False), access.pop("reads_findings", False)
    leads = access.pop("leads", True)
    given: dict[str, Any] = {"client_id": f"hyperscout-{identity}", "qos": 1} | access
    fence = Stopping()
    fence.leads = leads
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
        reads_findings=reads_findings,
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


async def test_a_client_that_knows_only_the_schemas_can_read_it_all(tmp_path: Path) -> None:
    async with mosquitto(tmp_path) as broker, rig(broker) as r, listening(broker) as other:
        first = two_leaves()
        for topology in (first, mended(first), without_b(mended(first)), replace(first, generation=10)):
            r.offer(topology)
            await other.until(lambda topology=topology: follows(other, topology.generation))
        assert len(events(other)) == 3
        Reader().check(other)


# The broker goes and comes back


@pytest.mark.parametrize("persists", [True, False], ids=["persistence", "no persistence"])
async def test_a_broker_that_was_killed_has_the_newest_when_it_is_back(
    tmp_path: Path, persists: bool
) -> None:
    kept = (f"persistence_location {tmp_path}/", "autosave_interval 1", "autosave_on_changes true")
    lines = ("allow_anonymous true", f"persistence {str(persists).lower()}", *(kept if persists else ()))
    first = two_leaves()
    async with mosquitto(tmp_path, *lines) as broker, rig(broker) as r:
        r.offer(first)
        await r.out(7)
        broker.kill()
        r.offer(mended(first))
        await eventually(lambda: r.runner.problems)
        assert str(broker.port) in r.runner.problems[0], "it says which broker"
        r.offer(without_b(mended(first)))
        await broker.start()
        await r.out(9)
        async with listening(broker) as late:
            await late.until(lambda: states(late) == {"leaf-a", "core"} and follows(late, 9))
            assert said(late, "lab/hypernodes/core")["children"] == ["leaf-a"]
            assert all(x.retained for x in late.heard)


async def test_generations_while_the_broker_dies_again_and_again(tmp_path: Path) -> None:
    """Whatever it had when it died, in the end it has the newest and nothing else."""
    first = two_leaves()
    pictures = [first, mended(first), without_b(mended(first))]
    async with mosquitto(tmp_path) as broker, rig(broker) as r:
        for i in range(12):
            topology = replace(pictures[i % 3], generation=7 + i)
            r.offer(topology)
            if i % 3 == 1:
                broker.kill()
                await broker.start()
            elif i % 3 == 2:
                await r.out(7 + i)
        await r.out(18)
        async with listening(broker) as late:
            await late.until(lambda: states(late) == {"leaf-a", "core"} and follows(late, 18))


async def test_an_outage_of_many_generations_takes_no_memory(tmp_path: Path) -> None:
    def picture(generation: int) -> Topology:
        """64 domains; each is ill in every second generation, and one is always new."""
        at = generation % 2
        found = [
            HyperNode(
                f"leaf-{i}" if i else f"leaf-new-{generation}",
                1,
                "leaf",
                None,
                (),
                (f"n{i}",),
                (f"s{i}",),
                (Condition("Degraded", ("False", "True")[at], "Reason", f"generation {generation}", T0),),
            )
            for i in range(64)
        ]
        found.sort(key=lambda h: h.name)
        return Topology(generation, tuple(found))

    async with mosquitto(tmp_path) as broker, rig(broker) as r:
        r.offer(picture(1))
        await r.out(1)
        broker.kill()
        await eventually(lambda: r.runner.problems)

        async def generations(first: int, last: int) -> int:
            for generation in range(first, last):
                r.offer(picture(generation))
                await eventually(lambda generation=generation: r.publisher._seen.generation == generation)  # type: ignore[union-attr]
            return tracemalloc.get_traced_memory()[0]

        tracemalloc.start()
        try:
            early, late = await generations(2, 60), await generations(60, 300)
        finally:
            tracemalloc.stop()
        assert late < early + 512 * 1024, "five times as many generations, and no more memory"
        assert len(r.publisher._backlog) == MAX_EVENTS
        await broker.start()
        async with listening(broker) as other:
            await r.out(299)
            await other.until(lambda: follows(other, 299))
            assert states(other) == {h.name for h in picture(299).hypernodes}
            told = events(other)
            assert sum(len(x["events"]) for x in told) <= MAX_EVENTS
            assert sum(x["lost"] for x in told) == r.publisher.counters.dropped_total > 15_000
            assert told[0]["lost"] == r.publisher.counters.dropped_total, "said once, with the first"
            assert [x["generation"] for x in told] == sorted(x["generation"] for x in told)
            assert told[-1]["generation"] == 299


async def test_a_broker_that_stands_still_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hyperscout_mqtt.client.TIMEOUT_S", 0.3)
    first = two_leaves()
    async with mosquitto(tmp_path) as broker, rig(broker) as r:
        r.offer(first)
        await r.out(7)
        broker.freeze()
        r.offer(mended(first))
        await eventually(lambda: any("no answer" in problem for problem in r.runner.problems))
        broker.thaw()
        await r.out(8)
        async with listening(broker) as late:
            await late.until(lambda: follows(late, 8))


async def test_states_of_another_time_are_cleared(tmp_path: Path) -> None:
    async with mosquitto(tmp_path) as broker:
        async with rig(broker, "before") as old:
            old.offer(two_leaves())
            await old.out(7)
        await send(broker, "lab/hypernodes/planted", {"name": "planted"}, retain=True)
        async with listening(broker) as other, rig(broker) as r:
            assert "planted" in await standing(other, 3 + 1)
            r.offer(without_b(mended(two_leaves())))
            await r.out(9)
            await other.until(lambda: states(other) == {"leaf-a", "core"} and follows(other, 9))


async def standing(listener: Listener, count: int) -> set[str]:
    await listener.until(lambda: len(states(listener)) == count)
    return states(listener)


async def test_more_states_than_the_broker_shows_are_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hyperscout_publish.mqtt.publisher._LIST_TIMEOUT_S", 0.3)
    acl = tmp_path / "acl"
    acl.write_text("topic readwrite lab/collector\ntopic write lab/hypernodes/+\n")
    acl.chmod(0o600)
    async with mosquitto(tmp_path, "allow_anonymous true", f"acl_file {acl}") as broker, rig(broker) as r:
        r.offer(two_leaves())
        await eventually(lambda: r.runner.states[0].generation == 7)
        (problem,) = r.runner.problems
        assert "max_queued_messages" in problem


# The leader


async def test_we_leave_with_a_word_and_are_missed_without(tmp_path: Path) -> None:
    async with mosquitto(tmp_path) as broker, listening(broker, "lab/collector") as other:
        async with rig(broker) as r:
            r.offer(two_leaves())
            await other.until(lambda: follows(other, 7))
            assert leader(other)["identity"] == "one"
            r.die()
            await other.until(lambda: leader(other)["state"] == "offline")
            assert leader(other)["identity"] == "one"
            await other.until(lambda: follows(other, 7))
        await other.until(lambda: leader(other)["state"] == "offline")
        assert leader(other)["generation"] == 7


async def test_the_will_of_a_leader_before_us_does_not_stand(tmp_path: Path) -> None:
    async with (
        mosquitto(tmp_path) as broker,
        listening(broker, "lab/collector") as other,
        rig(broker, "old") as old,
    ):
        old.offer(two_leaves())
        await old.out(7)
        await old_stops_writing(old)
        async with rig(broker, "new") as new:
            new.offer(mended(two_leaves()))
            await other.until(lambda: follows(other, 8))
            old.publisher._connection._sleep = forever
            old.die()
            await other.until(lambda: offline_of(other) == ["old"])
            await other.until(lambda: follows(other, 8) and leader(other)["identity"] == "new")
            assert new.runner.problems == []


async def test_a_leader_whose_lease_is_renewed_late_reads_and_publishes(tmp_path: Path) -> None:
    """Nothing tells the publisher that it may write again."""
    async with (
        mosquitto(tmp_path) as broker,
        listening(broker, "lab/collector") as other,
        rig(broker, "late", leads=False, reads_findings=True) as late,
    ):
        read: list[str] = []
        late.publisher.received.subscribe(lambda topic, payload, retained: read.append(topic))
        late.offer(two_leaves())
        await eventually(lambda: any("another replica may lead" in x for x in late.runner.problems))
        await eventually(late.publisher._connection.tried.is_set)
        assert other.heard == [], "a replica that may not write writes nothing"
        late.fence.leads = True
        await late.out(7)
        await other.until(lambda: leader(other)["state"] == "online")
        await send(broker, "lab/findings/leaf-1", {})
        await eventually(lambda: read == ["lab/findings/leaf-1"])


def offline_of(listener: Listener) -> list[str]:
    told = [json.loads(x.payload) for x in listener.heard if x.topic == "lab/collector"]
    return [x["identity"] for x in told if x["state"] == "offline"]


async def old_stops_writing(old: Rig) -> None:
    """It was deposed and has not noticed."""
    old.fence.leads = False
    before = old.publisher.counters.published_total
    old.offer(without_b(mended(two_leaves())))
    await eventually(lambda: any("another replica may lead" in x for x in old.runner.problems))
    assert old.publisher.counters.published_total == before, "a deposed leader writes nothing"


async def forever(seconds: float) -> None:
    await asyncio.Event().wait()


async def test_two_clusters_below_one_prefix_are_told_so(tmp_path: Path) -> None:
    async with mosquitto(tmp_path) as broker, rig(broker, "one") as one:
        one.offer(two_leaves())
        await one.out(7)
        async with rig(broker, "two") as two:
            two.offer(two_leaves())
            await eventually(lambda: one.runner.problems)
            assert "another collector, two, also publishes below lab" in one.runner.problems[0]
        await eventually(lambda: not one.runner.problems)


async def test_two_that_call_themselves_the_same_are_told_so(tmp_path: Path) -> None:
    async with mosquitto(tmp_path) as broker, rig(broker, "one") as one:
        one.offer(two_leaves())
        await one.out(7)
        one.publisher._connection._sleep = forever
        async with rig(broker, "two", client_id="hyperscout-one"):
            await eventually(lambda: one.runner.problems)
            assert "'hyperscout-one'" in one.runner.problems[0]
            assert "mqtt_client_id" in one.runner.problems[0]


# Getting in


async def test_a_password_is_read_anew_and_never_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    path = password_file(tmp_path, "wrong")
    async with mosquitto(tmp_path) as broker:
        broker.kill()
        broker.lines = ["allow_anonymous false", f"password_file {broker.passwords(one='s3cret-word')}"]
        await broker.start()
        async with rig(broker, user="one", password_file=path) as r:
            r.offer(two_leaves())
            await eventually(lambda: any("mqtt_password_file" in x for x in r.runner.problems))
            path.unlink()
            await eventually(lambda: any("No such file" in x for x in r.runner.problems))
            path.write_text("s3cret-word\n")
            await r.out(7)
    assert "s3cret-word" not in caplog.text
    assert "pw-wrong" not in caplog.text
    assert caplog.records, "it does log"


# paho leaves a socket whose handshake failed to Python, which looks for garbage when it likes.
@pytest.mark.filterwarnings(
    "ignore:Exception ignored in. <ssl.SSLSocket:pytest.PytestUnraisableExceptionWarning"
)
async def test_tls_and_a_certificate_of_our_own(tmp_path: Path) -> None:
    authority, other = Authority(tmp_path / "pki"), Authority(tmp_path / "other")
    server = authority.issue("server", "/CN=broker", san=LOOPBACK)
    client, stranger = authority.issue("client", "/CN=collector"), other.issue("client", "/CN=collector")
    async with mosquitto(tmp_path) as broker:
        broker.kill()
        acl = tmp_path / "acl"
        acl.write_text(ACL)
        acl.chmod(0o600)
        broker.lines = [
            *(f"cafile {authority.cert}", f"certfile {server.cert}", f"keyfile {server.key}"),
            *("require_certificate true", "use_identity_as_username true", f"acl_file {acl}"),
        ]
        await broker.start()
        tls = {"tls": True, "ca": authority.cert}
        async with rig(broker, **tls, cert=client.cert, key=client.key) as r:
            r.offer(two_leaves())
            await r.out(7)
        for wrong, words in (
            (tls, "certificate required"),
            ({"tls": True, "ca": other.cert, "cert": client.cert, "key": client.key}, "verify failed"),
            (tls | {"cert": stranger.cert, "key": stranger.key}, "unknown ca"),
            (tls | {"cert": client.cert, "key": tmp_path / "none"}, "mqtt_tls_key"),
        ):
            async with rig(broker, **wrong) as r:  # type: ignore[arg-type]
                r.offer(two_leaves())
                await eventually(lambda: r.runner.problems)
                await eventually(lambda words=words, r=r: words in r.runner.problems[0].lower())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # paho leaves a socket to Python when TLS fails
        gc.collect()


async def test_a_broker_that_lets_us_not_write_is_no_success(tmp_path: Path) -> None:
    acl = tmp_path / "acl"
    acl.write_text("topic readwrite lab/collector\ntopic readwrite lab/hypernodes/core\n")
    acl.chmod(0o600)
    async with mosquitto(tmp_path, "allow_anonymous true", f"acl_file {acl}") as broker, rig(broker) as r:
        r.offer(two_leaves())
        await eventually(lambda: any("must let the collector publish it" in x for x in r.runner.problems))
        assert r.runner.states[0].generation == 0


async def test_a_state_that_is_too_long_is_named_and_holds_up_no_other(tmp_path: Path) -> None:
    lines = ("allow_anonymous true", "max_packet_size 2000")
    first = two_leaves()
    nodes = tuple(f"node-{i:05}" for i in range(500))
    core = replace(first.hypernodes[-1], nodes=nodes)
    async with mosquitto(tmp_path, *lines) as broker, rig(broker) as r, listening(broker) as other:
        r.offer(replace(first, hypernodes=(*first.hypernodes[:-1], core), anomalies=()))
        await eventually(lambda: any("max_packet_size" in x for x in r.runner.problems))
        assert "lab/hypernodes/core" in r.runner.problems[0]
        await other.until(lambda: states(other) == {"leaf-a", "leaf-b"})
        assert leader(other)["state"] == "syncing", "not all is out"
