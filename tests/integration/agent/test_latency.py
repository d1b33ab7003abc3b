"""Real agents that measure each other through real (virtual) cables, as a collector tells them to."""

import asyncio
import contextlib
import itertools
import socket
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hyperscout.v1 import finding_pb2 as pb
from hyperscout.v1.discovery_pb2 import MeasurePairs, PairTask, StopMeasuring, StreamFindingsResponse
from hyperscout_agent.ping.bucket import Bucket
from hyperscout_agent.ping.burst import Burst, BurstPlan
from hyperscout_agent.ping.keys import Keyring, LiveTask
from hyperscout_agent.ping.packet import PING, PONG, Packet, pack, unpack
from hyperscout_agent.ping.responder import Responder
from hyperscout_formats.facts.facts import LatencyPort, LatencyResult
from hyperscout_formats.facts.wire_measured import latency_from_proto
from support.fake_collector import FakeCollector
from support.latency_pairs import pairs_of
from support.netlab import INTERFACE, Host, Netlab, netlab
from support.real import require_real

require_real("root", "netns")

WAIT_S = 90.0
# For measuring again until the input is as planted: a busy machine delays some bursts, not all.
MEASURE_S = 240.0
KEY = bytes(range(32))
PINGS = 16
QUEUED = 58  # bursts that wait for the limit on traffic
SILENCE_S = 2.0
SHORT_S = 0.3  # for answers that are not expected; a late one fails the next question
_MAIN = (
    "import sys; from hyperscout_agent.probes.latency import LatencyProbe;"
    "LatencyProbe.__init__.__kwdefaults__['interval_s'] = 0.2;"
    "from hyperscout_cli.main import main; sys.exit(main(sys.argv[1:]))"
)


def four_hosts(lab: Netlab) -> None:
    """Two under one router, one across four more, and one that has IPv6 alone."""
    near = lab.router("near")
    far = lab.router("far", near, 4)
    lab.host("a", near)
    lab.host("b", near)
    lab.host("c", far)
    lab.host("d", far, v4=False)


@pytest.fixture
def lab() -> Iterator[Netlab]:
    with netlab(four_hosts) as made:
        yield made


@dataclass
class Node:
    """One agent in a namespace, and a collector of its own."""

    host: Host
    collector: FakeCollector
    process: asyncio.subprocess.Process

    @property
    def port(self) -> pb.LatencyPort:
        """What it says of its interface."""
        return self.collector.evidence[self.host.name, "latency", INTERFACE].latency

    def of(self, peer: "Node", method: str = "udp") -> pb.LatencyResult | None:
        return next((x for x in self.port.results if (x.peer, x.method) == (peer.host.name, method)), None)

    async def known(self) -> "Node":
        key = (self.host.name, "latency", INTERFACE)
        await self.collector.until(lambda: key in self.collector.evidence)
        return self

    async def measured(self, peer: "Node", since_ns: int = 0) -> pb.LatencyResult:
        def there() -> bool:
            found = self.of(peer)
            return found is not None and found.measured_at.ToNanoseconds() > since_ns

        await self.collector.until(there)
        found = self.of(peer)
        assert found is not None
        return found

    async def tell(self, *tasks: PairTask) -> None:
        await self.collector.send(StreamFindingsResponse(measure_pairs=MeasurePairs(tasks=tasks)))


def task_of(me: Node, peer: Node, number: int, *, first: bool, v6: bool = False, **more: object) -> PairTask:
    given = {
        "task_id": number,
        "peer": peer.host.name,
        "interface": INTERFACE,
        "address": me.host.v6 if v6 else me.host.v4,
        "peer_interface": INTERFACE,
        "peer_address": peer.host.v6 if v6 else peer.host.v4,
        "peer_port": peer.port.udp_port,
        "key": KEY,
        "method": "udp",
        "pings": PINGS,
        "first": first,
        "expires_s": 20.0,
    }
    return PairTask(**{**given, **more})


async def exchange(a: Node, b: Node, number: int, *, v6: bool = False, **more: object) -> None:
    """Both ends get the same task."""
    await a.tell(task_of(a, b, number, first=True, v6=v6, **more))
    await b.tell(task_of(b, a, number, first=False, v6=v6, **more))


async def whole(
    a: Node, b: Node, numbers: Iterator[int], *, v6: bool = False
) -> tuple[pb.LatencyResult, pb.LatencyResult]:
    """Both ends' results of one exchange without a loss. A ping that a busy machine delays too long is lost:
    the exchange is repeated."""
    while True:
        since_ns = time.time_ns()
        await exchange(a, b, next(numbers), v6=v6)
        results = await a.measured(b, since_ns), await b.measured(a, since_ns)
        if all((one.failure, one.sent, one.received) == ("", PINGS, PINGS) for one in results):
            return results


@asynccontextmanager
async def agent(lab: Netlab, name: str, folder: Path, settings: str = "") -> AsyncIterator[Node]:
    host = next(one for one in lab.hosts if one.name == name)
    collector = await FakeCollector(address=f"unix:{folder}/{name}.sock").start()
    config = folder / f"{name}.yaml"
    config.write_text(
        f"node: {name}\ncollectors: ['{collector.address}']\nlldp: {{enabled: false}}\n"
        "infiniband: {enabled: false}\nmetrics: {port: 0}\n"
        f"latency: {{interfaces: {INTERFACE}{settings}}}\n"
    )
    process = await asyncio.create_subprocess_exec(
        *lab.command(name, sys.executable, "-c", _MAIN, "agent", "--config", config),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
    )
    try:
        yield await Node(host, collector, process).known()
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        async with asyncio.timeout(WAIT_S):
            await process.wait()
        await collector.stop()


async def test_two_ends_agree_on_near_and_far(lab: Netlab, tmp_path: Path) -> None:
    async with (
        agent(lab, "a", tmp_path) as a,
        agent(lab, "b", tmp_path) as b,
        agent(lab, "c", tmp_path) as c,
    ):
        assert (a.host.v4, a.host.v6) == tuple(a.port.addresses), "link-local addresses are left out"
        numbers = itertools.count(1)
        least_us: dict[str, float] = {}
        async with asyncio.timeout(MEASURE_S):
            while True:
                for x, y in ((a, b), (a, c), (b, c)):
                    for end, result in zip("<>", await whole(x, y, numbers), strict=True):
                        assert 0 < result.min_us <= result.median_us
                        key = f"{x.host.name}{end}{y.host.name}"
                        least_us[key] = min(result.min_us, least_us.get(key, result.min_us))
                # Load only adds: the least of several bursts comes down to the wires. 1 hop, not 5.
                near = max(least_us["a<b"], least_us["a>b"])
                if near < 0.9 * min(least_us["a<c"], least_us["a>c"], least_us["b<c"], least_us["b>c"]):
                    break


async def test_ipv6_alone(lab: Netlab, tmp_path: Path) -> None:
    async with agent(lab, "a", tmp_path) as a, agent(lab, "d", tmp_path) as d:
        assert list(d.port.addresses) == [d.host.v6]
        async with asyncio.timeout(MEASURE_S):
            await whole(a, d, itertools.count(7), v6=True)


async def test_a_path_that_is_dead_one_way(lab: Netlab, tmp_path: Path) -> None:
    """Pings of a arrive at c, and answers do not come back: no number, from neither end; and it heals."""
    async with agent(lab, "a", tmp_path) as a, agent(lab, "c", tmp_path) as c:
        route = ("route", "replace", "blackhole", f"{a.host.v4}/32")
        subprocess.run(lab.command("far", "ip", *route), check=True)
        await exchange(a, c, 1)
        for result in (await a.measured(c), await c.measured(a)):
            assert (result.failure, result.received, result.min_us) == ("no answer", 0, 0)
        subprocess.run(lab.command("far", "ip", "route", "del", *route[2:]), check=True)
        async with asyncio.timeout(MEASURE_S):
            await whole(a, c, itertools.count(2))


async def test_stopping_ends_bursts_that_wait(lab: Netlab, tmp_path: Path) -> None:
    async with agent(lab, "a", tmp_path) as a, agent(lab, "b", tmp_path) as b:
        await exchange(a, b, 1)
        before = await a.measured(b)
        # Many bursts are queued, behind a limit on what may be sent.
        for number in range(2, 2 + QUEUED):
            await a.tell(task_of(a, b, number, first=True, expires_s=60.0))
            await b.tell(task_of(b, a, number, first=False, expires_s=60.0))
        await a.measured(b, before.measured_at.ToNanoseconds())
        with counting(lab, "b") as count:
            stop = StreamFindingsResponse(stop_measuring=StopMeasuring(reason="enough"))
            await a.collector.send(stop)
            await b.collector.send(stop)
            sent = count.until_silent()
        # Each burst is PINGS pings and as many answers from either end, and more to look and to wake.
        assert sent < QUEUED / 2 * PINGS * 4, "most of the queued bursts are never sent"
        again = await a.measured(b)
        assert len(again.history) >= 1


# Senders that are not the other end, or are not honest


def stranger(lab: Netlab, host: str) -> socket.socket:
    """A UDP socket of an unrelated process on a host."""
    address = next(one.v4 for one in lab.hosts if one.name == host)

    def made() -> socket.socket:
        ours = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        ours.bind((address, 0))
        ours.settimeout(SHORT_S)
        return ours

    return lab.inside(host, made)


def ask(ours: socket.socket, node: Node, datagram: bytes) -> bytes | None:
    ours.sendto(datagram, (node.host.v4, node.port.udp_port))
    try:
        return ours.recv(4096)
    except TimeoutError:
        return None


async def test_others_in_the_fabric_get_no_byte_back(lab: Netlab, tmp_path: Path) -> None:
    """Host b knows the key, and host c has got hold of it."""
    b = next(one for one in lab.hosts if one.name == "b")
    async with agent(lab, "a", tmp_path) as a:
        with (
            contextlib.closing(stranger(lab, "b")) as peer,
            contextlib.closing(stranger(lab, "b")) as pinged,
            contextlib.closing(stranger(lab, "c")) as other,
        ):
            task = PairTask(
                task_id=9, peer="b", interface=INTERFACE, address=a.host.v4, peer_interface=INTERFACE,
                peer_address=b.v4, peer_port=pinged.getsockname()[1], key=KEY, method="udp", pings=16,
                first=True, expires_s=60.0,
            )  # fmt: skip
            await a.tell(task)
            pinged.settimeout(WAIT_S)
            bursting = await asyncio.to_thread(pinged.recv, 4096)
            good = Packet(PING, False, 9, 100, b"n" * 8)
            tries = {
                "garbage": (peer, b"\0" * 60),
                "another key": (peer, pack(good, bytes(32))),
                "another task": (peer, pack(replace(good, task_id=8), KEY)),
                "its own ping, sent back": (peer, bursting),
                "an answer": (peer, pack(replace(good, kind=PONG), KEY)),
                "the key, from elsewhere": (other, pack(good, KEY)),
            }
            for what, (ours, datagram) in tries.items():
                assert await asyncio.to_thread(ask, ours, a, datagram) is None, what
            peer.settimeout(WAIT_S)
            answer = await asyncio.to_thread(ask, peer, a, pack(good, KEY))
            peer.settimeout(SHORT_S)
            assert answer is not None, "what the other end itself asks is answered"
            assert len(answer) == len(pack(good, KEY))
            assert await asyncio.to_thread(ask, peer, a, pack(good, KEY)) is None, "once"
            await a.collector.send(StreamFindingsResponse(stop_measuring=StopMeasuring(reason="enough")))
            await asyncio.sleep(0)
            after = pack(replace(good, sequence=101), KEY)
            async with asyncio.timeout(WAIT_S):
                while await asyncio.to_thread(ask, peer, a, after) is not None:
                    after = pack(replace(good, sequence=unpack(after, KEY).sequence + 1), KEY)


class Liar(LiveTask):
    """Adds `lie_ns` to each residence that it reports."""

    __slots__ = ("lie_ns",)
    lie_ns: int

    def stayed(self, sequence: int, residence_ns: int) -> None:
        super().stayed(sequence, residence_ns + self.lie_ns)


async def test_a_peer_that_lies_about_its_residence_seems_near_from_one_end_only(
    lab: Netlab, tmp_path: Path
) -> None:
    """c lies by half of the round trip that it measured itself, which is possible on any machine.

    Both ends measure until the lie shows: load can move the round trips by more than the lie.
    """
    c = next(one for one in lab.hosts if one.name == "c")
    keyring, bucket = Keyring(), Bucket(10_000, time.monotonic)
    responder = Responder(keyring, bucket, clock=time.monotonic)
    lab.inside("c", lambda: responder.open(INTERFACE, [c.v4]))
    port = responder.port_of(INTERFACE)
    lie_ns = 0
    async with agent(lab, "a", tmp_path) as a, asyncio.timeout(MEASURE_S):
        for number in itertools.count(1):
            liar = Liar(number, KEY, False, INTERFACE, c.v4, a.host.v4, time.monotonic() + 60)
            liar.lie_ns = lie_ns
            keyring.add(liar)
            responder.wake()
            task = PairTask(
                task_id=number, peer="c", interface=INTERFACE, address=a.host.v4, peer_interface=INTERFACE,
                peer_address=c.v4, peer_port=port, key=KEY, method="udp", pings=16, first=True,
                expires_s=60.0,
            )  # fmt: skip
            since_ns = time.time_ns()
            await a.tell(task)
            await a.collector.until(
                lambda: a.port.results and a.port.results[0].measured_at.ToNanoseconds() > since_ns  # noqa: B023
            )
            fooled = latency_from_proto(a.port)
            plan = BurstPlan(number, KEY, False, INTERFACE, c.v4, a.host.v4, a.port.udp_port, 16)
            honest = await asyncio.to_thread(lab.inside, "c", Burst(plan, bucket, threading.Lock()).run)
            keyring.forget(number)
            assert honest is not None
            seen_us = fooled.results[0].min_us  # 0 = this burst failed
            if lie_ns and 0 < seen_us < min(0.7 * honest.min_us, honest.min_us - 1.0):
                numbers = (honest.sent, honest.received, honest.min_us, honest.median_us, honest.jitter_us)
                theirs = (LatencyResult("a", INTERFACE, "udp", 1, *numbers),)
                other = LatencyPort(INTERFACE, (c.v4,), port, "", theirs)
                seen = replace(fooled, results=(replace(fooled.results[0], history=()),))
                table = pairs_of({"a": [seen], "c": [other]})
                assert len(table) == 0, "a lie makes no neighbour"
                if table.disagreeing == 1:  # else too few pings of one end came back to count at all
                    break
            lie_ns = int(honest.min_us * 1000 / 2)
        responder.close_all()


class Count:
    """UDP packets of an interface, by the kernel's own count."""

    def __init__(self, lab: Netlab, host: str) -> None:
        self._lab, self._host = lab, host

    def packets(self) -> int:
        def read() -> int:
            line = next(x for x in Path("/proc/net/dev").read_text().splitlines() if INTERFACE in x)
            fields = line.split(":", 1)[1].split()
            return int(fields[1]) + int(fields[9])

        return self._lab.inside(self._host, read)

    def until_silent(self) -> int:
        """Wait until nothing passes for SILENCE_S; returns how many packets passed."""
        first = seen = self.packets()
        at_s = time.monotonic()
        give_up_s = at_s + WAIT_S
        while time.monotonic() - at_s < SILENCE_S:
            assert time.monotonic() < give_up_s, "it does not stop"
            time.sleep(0.02)
            if (now := self.packets()) != seen:
                seen, at_s = now, time.monotonic()
        return seen - first


@contextlib.contextmanager
def counting(lab: Netlab, host: str) -> Iterator[Count]:
    yield Count(lab, host)
