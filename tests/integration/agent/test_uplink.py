"""The uplink against a real gRPC server in this process that behaves well, badly, or not at all."""

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random
from typing import Any

import grpc
import pytest
from hyperscout.v1.discovery_pb2 import (
    Hello,
    Intervals,
    NeedBulk,
    Seeds,
    StreamFindingsResponse,
    SweepLease,
    SweepRevoke,
)
from hyperscout.v1.finding_pb2 import Finding, FindingKey, Outcome, Sweep
from hyperscout_agent.findings.bulk import compress
from hyperscout_agent.findings.store import FindingStore
from hyperscout_agent.uplink.uplink import (
    Options,
    Uplink,
    channel_options,
    plaintext_channel,
)
from support.fake_collector import FakeCollector
from support.identities import Family
from support.waiting import TIMEOUT_S, until

MIB = 1024 * 1024


def finding(subject: str, speed: int = 0) -> Finding:
    made = Finding(key=FindingKey(node="n1", probe="lldp", subject=subject), outcome=Outcome.OUTCOME_DATA)
    made.lldp.interface = subject
    made.lldp.speed_mbps = speed
    return made


class Sleeps:
    """Back-off that records how long it was told to wait, and does not."""

    def __init__(self) -> None:
        self.asked_s: list[float] = []
        self.event = asyncio.Event()

    async def __call__(self, delay_s: float) -> None:
        self.asked_s.append(delay_s)
        self.event.set()
        await asyncio.sleep(0)


class UpperEnd(Random):
    """Draws the upper end of the interval, so that a test sees the limit."""

    def uniform(self, a: float, b: float) -> float:
        return b


@pytest.fixture
async def collector() -> AsyncIterator[FakeCollector]:
    fake = await FakeCollector().start()
    yield fake
    await fake.stop()


@contextlib.asynccontextmanager
async def running(store: FindingStore, *targets: str, **options: Any) -> AsyncIterator[tuple[Uplink, Sleeps]]:
    sleeps = Sleeps()
    uplink = Uplink(
        targets,
        store,
        Hello(version="1.2.3", probes=("lldp",), instance=7),
        rng=options.pop("rng", UpperEnd()),
        sleep=options.pop("sleep", sleeps),
        **options,
    )
    task = asyncio.create_task(uplink.run())
    try:
        yield uplink, sleeps
        assert not task.done()
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait_for(task, TIMEOUT_S)
        assert not uplink.stats.connected


async def test_hello_full_state_then_changes(collector: FakeCollector) -> None:
    store = FindingStore("n1")
    store.put(finding("eth0"))
    store.put(finding("eth1"))
    async with running(store, collector.target, wall_ns=lambda: 5_000_000_000) as (uplink, _):
        await collector.until(lambda: collector.batches and collector.batches[-1].full_state_ends)
        (hello,) = collector.hellos
        assert (hello.node, hello.version, list(hello.probes), hello.instance) == ("n1", "1.2.3", ["lldp"], 7)
        assert {subject for _, _, subject in collector.evidence} == {"eth0", "eth1"}
        assert collector.batches[0].sent_at.seconds == 5
        await until(lambda: store.dirty == 0)
        store.put(finding("eth1", speed=100))
        store.remove(FindingKey(node="n1", probe="lldp", subject="eth0"))
        await collector.until(lambda: len(collector.evidence) == 1)
        await until(lambda: store.dirty == 0)
        assert collector.evidence["n1", "lldp", "eth1"].lldp.speed_mbps == 100
        assert [batch.sequence for batch in collector.batches] == list(range(1, len(collector.batches) + 1))
        assert uplink.stats.connected


async def test_a_restarted_collector_gets_the_full_state_again(collector: FakeCollector) -> None:
    store = FindingStore("n1")
    store.put(finding("eth0"))
    ends = []
    async with running(store, collector.target, on_end=lambda: ends.append(1)) as (uplink, sleeps):
        await collector.until(lambda: collector.evidence)
        await collector.stop()
        async with asyncio.timeout(TIMEOUT_S):
            await sleeps.event.wait()
        assert ends == [1], "leases end with the stream"
        collector.evidence.clear()
        store.put(finding("eth1"))
        store.remove(FindingKey(node="n1", probe="lldp", subject="eth0"))
        assert store.dirty == 1, "while no collector listens, a removal leaves nothing behind"
        await collector.start()
        await collector.until(lambda: collector.evidence)
        await until(lambda: store.dirty == 0)
        assert [subject for _, _, subject in collector.evidence] == ["eth1"]
        assert uplink.stats.sessions == 2


async def test_what_was_not_acked_is_sent_again_after_a_crash(collector: FakeCollector) -> None:
    died = []

    def die_once(_batch: object) -> grpc.StatusCode | None:
        if not died:
            died.append(1)
            return grpc.StatusCode.UNAVAILABLE
        return None

    collector.on_batch = die_once
    store = FindingStore("n1")
    store.put(finding("eth0"))
    async with running(store, collector.target):
        await collector.until(lambda: collector.evidence)
        await until(lambda: store.dirty == 0)
        assert len(collector.hellos) == 2


async def test_late_acks_bound_what_is_in_flight(collector: FakeCollector) -> None:
    collector.acks_held = True
    store = FindingStore("n1")
    async with running(store, collector.target) as (uplink, _):
        await collector.until(lambda: collector.batches)
        for turn in range(20):
            store.put(finding(f"eth{turn}"))
            await asyncio.sleep(0.0)
        await until(lambda: uplink.stats.findings_sent > 0)
        assert uplink.stats.batches_acked == 0
        store.put(finding("eth0", speed=9))  # changed after it was sent
        collector.release_acks()
        await collector.until(
            lambda: (
                len(collector.evidence) == 20
                and collector.evidence["n1", "lldp", "eth0"].lldp.speed_mbps == 9
            )
        )
        await until(lambda: store.dirty == 0)


async def test_the_window_holds(collector: FakeCollector) -> None:
    """With no ack at all, no more than the window's batches arrive, whatever changes."""
    collector.acks_held = True
    collector.heartbeat_interval_s = 0.01
    store = FindingStore("n1")
    async with running(store, collector.target):
        for number in range(4):
            store.put(finding("eth0", speed=number + 1))
            await collector.until(lambda number=number: len(collector.batches) == number + 1)
        for number in range(10):
            store.put(finding("eth0", speed=100 + number))
            seen = collector.heartbeats
            await collector.until(lambda seen=seen: collector.heartbeats > seen)
        assert len(collector.batches) == 4
        collector.release_acks()
        await collector.until(lambda: collector.evidence["n1", "lldp", "eth0"].lldp.speed_mbps == 109)
        await until(lambda: store.dirty == 0)


async def test_a_large_state_goes_in_messages_under_1_mib(collector: FakeCollector) -> None:
    store = FindingStore("n1", max_findings=5000)
    for number in range(4000):
        store.put(finding(f"eth{number}"))
    for number in range(20):
        key = FindingKey(node="n1", probe="lldp", subject=f"big{number}")
        store.put(Finding(key=key, outcome=Outcome.OUTCOME_FAILED, reason="x" * 200_000))
    async with running(store, collector.target):
        await until(lambda: store.dirty == 0 and len(collector.evidence) == 4020)
    assert max(collector.sizes) < MIB
    assert [batch.full_state_ends for batch in collector.batches].index(True) == len(collector.batches) - 1


async def test_refusals_are_counted_and_do_not_repeat(
    collector: FakeCollector, caplog: pytest.LogCaptureFixture
) -> None:
    collector.refuse = lambda f: "a foreign node" if f.key.subject == "eth0" else None
    store = FindingStore("n1")
    store.put(finding("eth0"))
    store.put(finding("eth1"))
    async with running(store, collector.target) as (uplink, _):
        await until(lambda: store.dirty == 0 and uplink.stats.batches_acked > 0)
        assert uplink.stats.refusals == 1
        assert "refused lldp eth0: a foreign node" in caplog.text
        store.put(finding("eth1", speed=5))
        await until(lambda: store.dirty == 0)
        assert uplink.stats.refusals == 1


async def test_bulk_goes_before_the_finding_that_names_it(collector: FakeCollector) -> None:
    text = os.urandom(3 * MIB)  # incompressible: several chunks
    store = FindingStore("n1")
    digest = store.put_bulk(compress(text))

    def sweep(seconds: float) -> Finding:
        return Finding(
            key=FindingKey(node="n1", probe="ibnetdiscover", subject="p"),
            outcome=Outcome.OUTCOME_DATA,
            sweep=Sweep(sha256=digest, size_bytes=len(text), duration_s=seconds),
        )

    missing: list[str] = []

    def check(batch: Any) -> None:
        missing.extend(f.key.subject for f in batch.findings if f.sweep.sha256 not in collector.bulks)

    collector.on_batch = check
    store.put(sweep(1.0))
    async with running(store, collector.target):
        await collector.until(lambda: collector.evidence)
        assert collector.bulks[digest] == text
        assert len(collector.chunks) > 1
        assert max(collector.sizes) < MIB
        sent = len(collector.chunks)
        store.put(sweep(2.0))  # the same text again: not sent again
        await collector.until(lambda: collector.evidence["n1", "ibnetdiscover", "p"].sweep.duration_s == 2.0)
        assert len(collector.chunks) == sent
        await collector.send(StreamFindingsResponse(need_bulk=NeedBulk(sha256=b"unknown")))
        collector.bulk_held = [digest]
        await collector.stop()
        await collector.start()
        await collector.until(lambda: len(collector.hellos) == 2 and collector.batches[-1].full_state_ends)
        assert len(collector.chunks) == sent, "the collector said it holds the text"
    assert missing == []


def swept(store: FindingStore, text: bytes) -> bytes:
    """Store the finding of a sweep. Returns the digest of its text."""
    digest = store.put_bulk(compress(text))
    key = FindingKey(node="n1", probe="ibnetdiscover", subject="p")
    store.put(Finding(key=key, outcome=Outcome.OUTCOME_DATA, sweep=Sweep(sha256=digest)))
    return digest


async def test_a_requested_text_is_sent_although_a_newer_one_replaced_it(collector: FakeCollector) -> None:
    """A cable that flaps brings a text back that the collector has dropped since, and replaces it at once."""
    store = FindingStore("n1")
    up = swept(store, b"up")
    collector.bulk_held = [up]
    async with running(store, collector.target):
        collector.acks_held = True
        await collector.until(lambda: collector.batches)
        down = swept(store, b"down")
        await collector.until(lambda: down in collector.bulks)
        assert store.bulk(up) is None
        assert up not in collector.bulks
        await collector.send(StreamFindingsResponse(need_bulk=NeedBulk(sha256=up)))
        await collector.until(lambda: collector.bulks.get(up) == b"up")
        collector.release_acks()
        await until(lambda: store.dirty == 0)


async def test_a_text_that_returns_is_sent_again(collector: FakeCollector) -> None:
    """The collector has dropped it, since no finding named it."""
    store = FindingStore("n1")
    async with running(store, collector.target):
        for text in (b"up", b"down", b"up"):
            collector.bulks.clear()
            digest = swept(store, text)
            await collector.until(lambda digest=digest: digest in collector.bulks)


async def test_directives_reach_their_callbacks(collector: FakeCollector) -> None:
    heard: list[object] = []
    got = asyncio.Event()

    def hear(what: object) -> None:
        heard.append(what)
        if len(heard) == 4:
            got.set()

    store = FindingStore("n1")
    directives = {kind: [hear] for kind in ("lease", "revoke", "intervals", "seeds")}
    async with running(store, collector.target, directives=directives):
        await collector.until(lambda: collector.batches)
        lease = SweepLease(lease_id="L1", device="mlx5_0", port=1, interval_s=60)
        revoke = SweepRevoke(lease_id="L1", reason="covered")
        seeds = Seeds(addresses=["10.0.0.1"])
        for response in (
            StreamFindingsResponse(lease=lease),
            StreamFindingsResponse(),  # something of a newer collector
            StreamFindingsResponse(revoke=revoke),
            StreamFindingsResponse(seeds=seeds),
            StreamFindingsResponse(intervals=Intervals(interval_s_by_probe={"lldp": 5.0})),
        ):
            await collector.send(response)
        async with asyncio.timeout(TIMEOUT_S):
            await got.wait()
    assert heard == [lease, revoke, seeds, Intervals(interval_s_by_probe={"lldp": 5.0})]


async def test_heartbeats_when_there_is_nothing_to_say(collector: FakeCollector) -> None:
    collector.heartbeat_interval_s = 0.01
    async with running(FindingStore("n1"), collector.target):
        await collector.until(lambda: collector.heartbeats >= 3)
    assert len(collector.batches) == 1


@pytest.mark.parametrize(
    ("code", "limits_s"),
    [
        pytest.param(grpc.StatusCode.UNAVAILABLE, [0.5, 1.0, 2.0, 4.0], id="unavailable doubles"),
        pytest.param(grpc.StatusCode.RESOURCE_EXHAUSTED, [8.0, 16.0, 32.0, 60.0], id="full starts higher up"),
        pytest.param(grpc.StatusCode.PERMISSION_DENIED, [60.0, 60.0], id="refused waits for a person"),
    ],
)
async def test_back_off(collector: FakeCollector, code: grpc.StatusCode, limits_s: list[float]) -> None:
    collector.answer_hello = code
    async with running(FindingStore("n1"), collector.target) as (uplink, sleeps):
        await collector.until(lambda: len(collector.hellos) > len(limits_s))
        assert sleeps.asked_s[: len(limits_s)] == limits_s
        assert uplink.stats.sessions == 0
        collector.answer_hello = None
        await until(lambda: uplink.stats.batches_acked == 1)
        failed = len(sleeps.asked_s)
        collector.on_batch = lambda _batch: grpc.StatusCode.UNAVAILABLE
        await collector.stop()
        await until(lambda: len(sleeps.asked_s) > failed)
        assert sleeps.asked_s[failed] == 0.5, "a full state that was stored starts the back-off anew"


@pytest.mark.parametrize(
    ("code", "levels"),
    [
        (grpc.StatusCode.UNAVAILABLE, ["INFO", "WARNING"]),
        (grpc.StatusCode.PERMISSION_DENIED, ["WARNING"]),
    ],
)
async def test_a_collector_that_is_not_there_yet_is_a_warning_after_a_minute(
    collector: FakeCollector, caplog: pytest.LogCaptureFixture, code: grpc.StatusCode, levels: list[str]
) -> None:
    caplog.set_level(logging.INFO)
    now_s = 0.0
    collector.answer_hello = code
    async with running(FindingStore("n1"), collector.target, clock=lambda: now_s):
        await collector.until(lambda: len(collector.hellos) >= 3)
        now_s = 60.0
        await collector.until(lambda: len(collector.hellos) >= 6)
    assert [x.levelname for x in caplog.records if code.name in x.getMessage()] == levels


class CutOff:
    """A channel whose call ends while the agent writes."""

    def stream_stream(self, *_: Any, **__: Any) -> Any:
        return lambda *_, **__: self

    def unary_unary(self, *_: Any, **__: Any) -> None:
        return None

    async def write(self, _request: object) -> None:
        nothing = grpc.aio.Metadata()
        raise grpc.aio.AioRpcError(grpc.StatusCode.INTERNAL, nothing, nothing, "Internal error from Core")

    def cancel(self) -> None: ...

    async def close(self) -> None: ...


@pytest.mark.parametrize(("cut", "waits"), [(3, 0), (4, 1)])
async def test_a_refusal_that_is_cut_off_is_asked_for_again(
    collector: FakeCollector, cut: int, waits: int
) -> None:
    opened = 0

    def channel(target: str, options: Options) -> Any:
        nonlocal opened
        opened += 1
        return CutOff() if opened <= cut else plaintext_channel(target, options)

    async with running(FindingStore("n1"), collector.target, channel=channel) as (uplink, sleeps):
        await until(lambda: uplink.stats.connected)
        assert (opened, len(sleeps.asked_s)) == (cut + 1, waits)


async def test_no_listener_is_tried_again_soon() -> None:
    """Agents are back seconds after a collector that was away for long listens again."""
    away = await FakeCollector().start()
    await away.stop()
    async with running(FindingStore("n1"), away.target) as (_, sleeps):
        await until(lambda: len(sleeps.asked_s) >= 8)
        assert sleeps.asked_s[:8] == [0.5, 1.0, 2.0, 4.0, 8.0, 10.0, 10.0, 10.0]


async def test_collectors_are_tried_in_turn(collector: FakeCollector) -> None:
    dead = await FakeCollector().start()
    await dead.stop()
    store = FindingStore("n1")
    store.put(finding("eth0"))
    async with running(store, dead.target, collector.target) as (uplink, _):
        await collector.until(lambda: collector.evidence)
        assert uplink.stats.failures >= 1


async def test_a_collector_that_never_acks_is_left(collector: FakeCollector) -> None:
    collector.acks_held = True
    collector.heartbeat_interval_s = 0.01
    other = await FakeCollector().start()
    now = [0.0]
    store = FindingStore("n1", lambda: now[0])
    async with running(store, collector.target, other.target, clock=lambda: now[0]):
        await collector.until(lambda: collector.batches)
        now[0] = 121.0
        store.changed.set()
        await other.until(lambda: other.batches)
    await other.stop()


async def test_nonsense_from_a_collector_ends_the_stream_only(
    collector: FakeCollector, caplog: pytest.LogCaptureFixture
) -> None:
    from hyperscout.v1.discovery_pb2 import Ack

    store = FindingStore("n1")
    async with running(store, collector.target):
        await collector.until(lambda: collector.batches)
        await collector.send(StreamFindingsResponse(ack=Ack(sequence=99)))
        await collector.until(lambda: len(collector.hellos) == 2)
    assert "ack of batch 99" in caplog.text


async def test_a_defect_in_a_callback_does_not_end_the_uplink(
    collector: FakeCollector, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(_lease: object) -> None:
        raise RuntimeError("a defect")

    async with running(FindingStore("n1"), collector.target, directives={"lease": [broken]}):
        await collector.until(lambda: collector.batches)
        await collector.send(StreamFindingsResponse(lease=SweepLease(lease_id="x")))
        await collector.until(lambda: len(collector.hellos) == 2)
    assert any(record.levelno == logging.ERROR and record.exc_info for record in caplog.records)


async def test_cancelled_while_connecting_and_while_backing_off() -> None:
    dead = await FakeCollector().start()
    await dead.stop()
    forever = asyncio.Event()
    asleep = asyncio.Event()

    async def sleep(_delay_s: float) -> None:
        asleep.set()
        await forever.wait()

    async with running(FindingStore("n1"), dead.target, sleep=sleep):
        async with asyncio.timeout(TIMEOUT_S):
            await asleep.wait()
    async with running(FindingStore("n1"), dead.target):
        pass


async def test_two_uplinks_may_share_a_process(collector: FakeCollector) -> None:
    stores = [FindingStore(f"n{number}") for number in range(5)]
    async with contextlib.AsyncExitStack() as stack:
        for store in stores:
            store.put(
                Finding(
                    key=FindingKey(node=store.node, probe="p", subject="s"), outcome=Outcome.OUTCOME_NOTHING
                )
            )
            await stack.enter_async_context(running(store, collector.target, channel=plaintext_channel))
        await collector.until(lambda: len(collector.evidence) == 5)


def test_keepalive_is_within_what_the_collector_allows() -> None:
    """A collector closes a connection that pings too often; an idle stream would break every minute."""
    from hyperscout_collector.ingest.service import server_options

    every_ms, allowed_ms = (
        int(dict(channel_options(2.0))["grpc.keepalive_time_ms"]),
        int(dict(server_options(1))["grpc.http2.min_ping_interval_without_data_ms"]),
    )
    assert every_ms > allowed_ms


async def test_why_a_handshake_failed_is_said_in_words(
    collector: FakeCollector, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """gRPC's own words about certificates do not name the setting that has to change."""

    credentials = Family(tmp_path).client()
    store = FindingStore("n1")
    async with running(store, collector.target, channel=credentials.connect) as (uplink, _):
        await until(lambda: uplink.stats.failures)
        assert "the server does not use TLS on this port (" in caplog.text


def test_options_are_ones_that_grpc_knows() -> None:
    """It passes over a name that it does not know without a word."""
    from hyperscout_collector.app.replica.follower import OPTIONS
    from hyperscout_collector.ingest.service import server_options

    (library,) = (path.read_bytes() for path in Path(grpc.__file__).parent.rglob("cygrpc*.so"))
    names = {name for name, _ in (*channel_options(2.0), *OPTIONS, *server_options(1))}
    assert {name for name in names if name.encode() not in library} == set()


async def test_a_collector_that_is_slow_to_shake_hands_is_waited_for(collector: FakeCollector) -> None:
    """As when all agents come at once: TLS, or only HTTP/2, takes its time."""

    answered = asyncio.Event()
    arrivals = 0

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal arrivals
        arrivals += 1
        asyncio.get_running_loop().call_later(0.5, answered.set)
        other_reader, other_writer = await asyncio.open_connection("127.0.0.1", collector.port)

        async def back() -> None:
            await answered.wait()
            await pump(other_reader, writer)

        await asyncio.gather(pump(reader, other_writer), back())

    slow = await asyncio.start_server(relay, "127.0.0.1", 0)
    async with slow:
        target = f"127.0.0.1:{slow.sockets[0].getsockname()[1]}"
        agent = running(
            FindingStore("n1"),
            target,
            channel=own_channel,
        )
        async with agent as (uplink, sleeps):
            await until(lambda: uplink.stats.connected or bool(sleeps.asked_s))
            assert uplink.stats.connected
            assert (arrivals, sleeps.asked_s) == (1, [])


def own_channel(target: str, options: Options) -> grpc.aio.Channel:
    """As if each uplink were a process of its own."""
    return grpc.aio.insecure_channel(target, options=(*options, ("grpc.use_local_subchannel_pool", 1)))


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """All that comes, until either end is gone."""
    try:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65_536):
                writer.write(data)
    finally:
        writer.close()


async def test_a_standby_s_hint_is_followed_at_once(collector: FakeCollector) -> None:
    standby = await FakeCollector(leader=collector.target).start()
    store = FindingStore("n1")
    store.put(finding("eth0"))
    async with running(store, standby.target) as (uplink, sleeps):
        await until(lambda: uplink.stats.batches_acked == 1)
        assert len(standby.hellos) == 1
        assert sleeps.asked_s == [0.5]
        # It is deposed: its streams end with the hint to the other, which leads now.
        standby.leader, collector.leader = None, standby.target
        collector.on_batch = lambda _batch: grpc.StatusCode.UNAVAILABLE
        store.put(finding("eth1"))
        await standby.until(lambda: len(standby.evidence) == 2)
        assert sleeps.asked_s == [0.5, 0.5]
    await standby.stop()


@pytest.mark.parametrize(
    "hint", ["unix:/run/some.sock", "nonsense", "a:1:2", "x:99999", "-a:1", "a" * 300 + ":1"]
)
async def test_a_hint_that_is_no_address_is_passed_over(hint: str) -> None:
    standby = await FakeCollector(leader=hint).start()
    tried: list[str] = []

    def channel(target: str, options: Options) -> grpc.aio.Channel:
        tried.append(target)
        return plaintext_channel(target, options)

    async with running(FindingStore("n1"), standby.target, channel=channel):
        await until(lambda: len(tried) > 3)
    assert set(tried) == {standby.target}
    await standby.stop()


async def test_a_hint_is_subject_to_the_same_rules(caplog: pytest.LogCaptureFixture) -> None:
    from hyperscout_runtime.credentials import Credentials

    standby = await FakeCollector(leader="192.0.2.1:50051").start()
    connect = Credentials().connect
    async with running(FindingStore("n1"), standby.target, channel=connect) as (uplink, _):
        await until(lambda: len(standby.hellos) > 2)
        assert uplink.stats.sessions == 0
    assert "collector 192.0.2.1:50051: its credentials are not usable" in caplog.text
    assert "not encrypted" in caplog.text
    await standby.stop()


async def test_a_name_with_several_addresses_leads_to_each(collector: FakeCollector) -> None:
    """As a headless Service does; the first is away, the next a standby that knows no leader."""

    away = await FakeCollector().start()
    await away.stop()
    standby = await FakeCollector(leader="").start()
    target = "ipv4:" + ",".join(x.target for x in (away, standby, collector))
    agents = 24  # that none of them draws the standby before the collector has a chance of 1 in 2^24
    async with contextlib.AsyncExitStack() as stack:
        uplinks = []
        for number in range(agents):
            agent = running(
                FindingStore(f"n{number}"),
                target,
                channel=own_channel,
            )
            uplinks.append((await stack.enter_async_context(agent))[0])
        await until(lambda: all(uplink.stats.connected for uplink in uplinks))
    assert {hello.node for hello in collector.hellos} == {f"n{number}" for number in range(agents)}
    assert standby.hellos, "each draws its own order"
    await standby.stop()
