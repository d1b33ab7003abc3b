"""Real agents that measure each other through real (virtual) cables, as a collector tells them to."""

import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from hyperscout.v1.discovery_pb2 import MeasurePairs, PairTask, StopMeasuring, StreamFindingsResponse
from hyperscout.v1.finding_pb2 import LatencyPort, LatencyResult
from support.fake_collector import FakeCollector
from support.netlab import INTERFACE, Host, Netlab, netlab
from support.real import require_real

require_real("root", "netns")
pytestmark = pytest.mark.real

WAIT_S = 30.0
KEY = bytes(range(32))
_MAIN = "import sys; from hyperscout_cli.main import main; sys.exit(main(sys.argv[1:]))"


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
    def port(self) -> LatencyPort:
        """What it says of its interface."""
        return self.collector.evidence[self.host.name, "latency", INTERFACE].latency

    def of(self, peer: "Node", method: str = "udp") -> LatencyResult | None:
        return next((x for x in self.port.results if (x.peer, x.method) == (peer.host.name, method)), None)

    async def known(self) -> "Node":
        key = (self.host.name, "latency", INTERFACE)
        await self.collector.until(lambda: key in self.collector.evidence)
        return self

    async def measured(self, peer: "Node", since_ns: int = 0) -> LatencyResult:
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
        "pings": 16,
        "first": first,
        "expires_s": 20.0,
    }
    return PairTask(**{**given, **more})


async def exchange(a: Node, b: Node, number: int, *, v6: bool = False, **more: object) -> None:
    """Both ends get the same task."""
    await a.tell(task_of(a, b, number, first=True, v6=v6, **more))
    await b.tell(task_of(b, a, number, first=False, v6=v6, **more))


@asynccontextmanager
async def agent(lab: Netlab, name: str, folder: Path, settings: str = "") -> AsyncIterator[Node]:
    host = next(one for one in lab.hosts if one.name == name)
    collector = await FakeCollector(address=f"unix:{folder}/{name}.sock").start()
    config = folder / f"{name}.yaml"
    config.write_text(
        f"node: {name}\ncollectors: ['{collector.address}']\nlldp: {{enabled: false}}\n"
        "infiniband: {enabled: false}\nmetrics: {port: 0}\n"
        f"latency: {{interfaces: {INTERFACE}, publish_interval_s: 0.2{settings}}}\n"
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
        found: dict[tuple[str, str], LatencyResult] = {}
        for number, (x, y) in enumerate(((a, b), (a, c), (b, c)), 1):
            await exchange(x, y, number)
            found[x.host.name, y.host.name] = await x.measured(y)
            found[y.host.name, x.host.name] = await y.measured(x)
        for result in found.values():
            assert (result.failure, result.sent, result.received) == ("", 16, 16)
            assert 0 < result.min_us <= result.median_us
        for (x, y), result in found.items():
            if {x, y} == {"a", "b"}:
                assert result.min_us < 0.7 * min(found["a", "c"].min_us, found["c", "b"].min_us), (
                    "1 hop, not 5"
                )


async def test_ipv6_alone(lab: Netlab, tmp_path: Path) -> None:
    async with agent(lab, "a", tmp_path) as a, agent(lab, "d", tmp_path) as d:
        assert list(d.port.addresses) == [d.host.v6]
        await exchange(a, d, 7, v6=True)
        for result in (await a.measured(d), await d.measured(a)):
            assert (result.failure, result.received) == ("", 16)


async def test_stopping_takes_less_than_a_second(lab: Netlab, tmp_path: Path) -> None:
    async with agent(lab, "a", tmp_path) as a, agent(lab, "b", tmp_path) as b:
        await exchange(a, b, 1)
        before = await a.measured(b)
        # Many bursts are queued, behind a limit on what may be sent.
        for number in range(2, 60):
            await a.tell(task_of(a, b, number, first=True, expires_s=60.0))
            await b.tell(task_of(b, a, number, first=False, expires_s=60.0))
        await a.measured(b, before.measured_at.ToNanoseconds())
        with counting(lab, "b") as count:
            stop = StreamFindingsResponse(stop_measuring=StopMeasuring(reason="enough"))
            await a.collector.send(stop)
            await b.collector.send(stop)
            told_s = time.monotonic()
            last_s = count.silent_for(1.0)
        assert last_s - told_s < 1.0
        again = await a.measured(b)
        assert len(again.history) >= 1


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

    def silent_for(self, seconds: float) -> float:
        """Wait until nothing passed for so long; when the last packet passed, by the monotonic clock."""
        seen, at_s = self.packets(), time.monotonic()
        give_up_s = at_s + WAIT_S
        while time.monotonic() - at_s < seconds:
            assert time.monotonic() < give_up_s, "it does not stop"
            time.sleep(0.02)
            if (now := self.packets()) != seen:
                seen, at_s = now, time.monotonic()
        return at_s


@contextlib.contextmanager
def counting(lab: Netlab, host: str) -> Iterator[Count]:
    yield Count(lab, host)
