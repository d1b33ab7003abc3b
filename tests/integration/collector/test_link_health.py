"""Counters become conditions, and clear: NICs' statistics, flaps, a real fabric's errors read by real tools.

Time is the collector's own clock, which the test sets forward; agents are streams by hand.
"""

import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from hyperscout.v1.discovery_pb2 import SweepLease
from hyperscout.v1.finding_pb2 import Finding, FindingKey
from hyperscout_agent.findings.probe import Probe
from hyperscout_agent.probes.ibnetdiscover import IbnetdiscoverProbe
from hyperscout_agent.probes.ibqueryerrors import IbqueryerrorsProbe
from hyperscout_collector.app.build.collector import Collector
from hyperscout_formats.facts.facts import PortCounters
from hyperscout_formats.facts.wire import counters_to_proto
from hyperscout_runtime.clock import Clock
from hyperscout_runtime.units import rfc3339
from hyperscout_topology.topology import Anomaly, Topology
from support.agent_stream import AgentStream
from support.collectors import at_rest, collector_settings
from support.findings import S, adapter, failed, lldp, stamp
from support.ibsim import DEVICE, Ibsim, running_ibsim
from support.real import require_real, tool
from support.waiting import TIMEOUT_S, eventually


class World:
    """A collector whose clock is set forward."""

    def __init__(self, folder: Path, **more: Any) -> None:
        self.ahead_ns = 0
        # Newer timestamps alone start no inference.
        settings = collector_settings(folder, **{"refresh_s": 86_400, **more})
        self.collector = Collector(settings, clock=Clock(self.clock_ns, self.clock_ns))

    def clock_ns(self) -> int:
        return time.time_ns() + self.ahead_ns

    @property
    def topology(self) -> Topology:
        return self.collector.components.publishing.watchers.current.topology

    @property
    def erroring(self) -> list[Anomaly]:
        return [x for x in self.topology.anomalies if x.kind == "ErroringLink"]

    @property
    def degraded(self) -> dict[str, str]:
        return {
            h.name: c.message
            for h in self.topology.hypernodes
            for c in h.conditions
            if (c.type, c.status) == ("Degraded", "True")
        }

    @property
    def inferences(self) -> int:
        return self.collector.components.inference.pipeline.inferences

    def infer(self) -> None:
        """Let the collector notice that its clock was set forward."""
        self.collector.components.inference.pipeline.infer_again()

    async def until(self, what: str, wanted: Any) -> None:
        await eventually(wanted, lambda: f"{what}; {self.topology.anomalies}")


@asynccontextmanager
async def world_of(folder: Path, **more: Any) -> AsyncIterator[World]:
    world = World(folder, **more)
    async with world.collector:
        yield world


class Hosts:
    """Hosts on Ethernet, each an agent."""

    def __init__(self, world: World, streams: dict[str, AgentStream]) -> None:
        self.world = world
        self.streams = streams
        self.counters = {name: PortCounters() for name in streams}
        self.changes = dict.fromkeys(streams, 1)
        self.pulled: set[str] = set()

    async def tell(self, seconds: float = 60.0) -> None:
        """Time passes, and all hosts look."""
        self.world.ahead_ns += round(seconds * S)
        now_ns = self.world.clock_ns()
        for i, (name, stream) in enumerate(self.streams.items()):
            leaf, port = "" if name in self.pulled else f"leaf-{i // 4 + 1}", f"swp{i % 4 + 1}"
            finding = lldp(name, "eth0", now_ns, neighbour=leaf, port=port, flaps=self.changes[name])
            finding.lldp.counters.CopyFrom(
                counters_to_proto(self.counters[name]) or type(finding.lldp.counters)()
            )
            assert await stream.store(finding, sent_ns=now_ns) == []


@asynccontextmanager
async def hosts_of(world: World, changes: dict[str, int] | None = None) -> AsyncIterator[Hosts]:
    """`changes`: changes of the carriers since the hosts booted."""
    async with AsyncExitStack() as stack:
        names = [f"h{i}" for i in range(8)]
        address = world.collector.address
        streams = {name: await stack.enter_async_context(AgentStream(address, name)) for name in names}
        hosts = Hosts(world, streams)
        hosts.changes |= changes or {}
        await hosts.tell(0)
        for stream in streams.values():
            await stream.acked(await stream.batch(full=True))
        yield hosts


async def test_a_nic_that_counts_errors_degrades_its_domain_and_clears(tmp_path: Path) -> None:
    async with world_of(tmp_path) as world, hosts_of(world) as hosts:
        await world.until("two leaves", lambda: len(world.topology.hypernodes) == 2)
        for minute in range(1, 8):
            hosts.counters["h1"] = PortCounters(rx_errors=10_000 + minute, rx_dropped=50 * minute)
            await hosts.tell()
        await at_rest(world.collector)
        generation, before = world.topology.generation, world.inferences
        for minute in range(8, 14):
            hosts.counters["h1"] = PortCounters(rx_errors=10_000 + minute, rx_dropped=50 * minute)
            await hosts.tell(1)
        await at_rest(world.collector)
        assert (world.topology.generation, world.inferences) == (generation, before)
        assert world.degraded == {}

        hosts.counters["h1"] = PortCounters(rx_errors=10_213)
        await hosts.tell()
        await world.until("errors", lambda: world.erroring)
        (found,) = world.erroring
        assert found.message == "h1/eth0 to leaf-1/swp2: 0.7 errors/s at h1/eth0"
        ((name, message),) = world.degraded.items()
        assert "h1" in next(h for h in world.topology.hypernodes if h.name == name).nodes
        assert message.startswith(f"1 of 4 host links erroring: {found.message}, seen by lldp, since ")

        for _ in range(7):
            await hosts.tell()
        await world.until("well again", lambda: not world.degraded)
        assert world.erroring == []


async def test_a_link_that_flaps(tmp_path: Path) -> None:
    """It clears when its message says so, also after a restart."""
    async with world_of(tmp_path) as world, hosts_of(world) as hosts:
        await world.until("two leaves", lambda: len(world.topology.hypernodes) == 2)
        for _ in range(5):
            assert not world.erroring
            hosts.changes["h5"] += 2
            await hosts.tell(120)
        await world.until("flaps", lambda: world.erroring)
        (found,) = world.erroring
        assert found.message == (
            f"h5/eth0 to leaf-2/swp2: flaps 5 times an hour; clears at {rfc3339(found.clears_ns)}"
        )
        ahead_ns, changes = world.ahead_ns, hosts.changes
    again = World(tmp_path)
    again.ahead_ns = ahead_ns
    async with again.collector, hosts_of(again, changes) as hosts:
        while again.clock_ns() + 120 * S < found.clears_ns:
            await hosts.tell()
        await at_rest(again.collector)
        assert [(x.message, x.clears_ns) for x in again.erroring] == [(found.message, found.clears_ns)]
        for _ in range(2):
            await hosts.tell()
        await again.until("well again", lambda: not again.degraded)


async def test_a_restart_goes_on_with_an_all_clear_that_is_held_back(tmp_path: Path) -> None:
    def missing(world: World) -> list[Anomaly]:
        return [x for x in world.topology.anomalies if x.kind == "MissingLink"]

    async with world_of(tmp_path, hold_down_s=10) as world, hosts_of(world) as hosts:
        await world.until("two leaves", lambda: len(world.topology.hypernodes) == 2)
        await at_rest(world.collector)
        for _ in range(3):
            for hosts.pulled in ({"h5"}, set()):
                inferences = world.inferences
                await hosts.tell(1)
                await world.until("an inference", lambda before=inferences: world.inferences > before)
        (gone,) = missing(world)
        assert gone.message == "the link from h5/eth0 to leaf-2/swp2 is gone"
        await hosts.tell(10)
        world.infer()
        await world.until("an all-clear that is held back", lambda: missing(world)[0].is_over)
        (found,) = missing(world)
        assert found.message == (
            f"up since {rfc3339(found.changed_ns)}; flapped 3 times; "
            f"clears at {rfc3339(found.clears_ns)}; before: {gone.message}"
        )
        state = found.message.partition("; before: ")[0]
        assert f"h5/eth0 -> leaf-2/swp2: {state}" in world.degraded[found.hypernode or ""]
        ahead_ns = world.ahead_ns
    again = World(tmp_path, hold_down_s=10)
    again.ahead_ns = ahead_ns
    async with again.collector:
        assert missing(again) == [found]
        async with hosts_of(again) as hosts:
            await again.until("an inference", lambda: again.inferences)
            while again.clock_ns() + 30 * S < found.clears_ns:
                await hosts.tell(20)
                inferences = again.inferences
                again.infer()
                await again.until("an inference", lambda before=inferences: again.inferences > before)
                assert missing(again) == [found]
            await hosts.tell(30)
            again.infer()
            await again.until("well again", lambda: not again.degraded)


async def test_a_restart_keeps_what_was_published_until_a_reporter_can_tell(tmp_path: Path) -> None:
    async with world_of(tmp_path) as world, hosts_of(world) as hosts:
        await world.until("two leaves", lambda: len(world.topology.hypernodes) == 2)
        hosts.counters["h1"] = PortCounters(rx_errors=6_000)
        await hosts.tell()
        await world.until("errors", lambda: world.degraded)
        (before,) = world.erroring
        ahead_ns, counters = world.ahead_ns, hosts.counters
    again = World(tmp_path)
    again.ahead_ns = ahead_ns
    async with again.collector, hosts_of(again) as hosts:
        hosts.counters = counters
        for _ in range(5):
            await hosts.tell()
            await at_rest(again.collector)
            assert [(x.key, x.message, x.since_ns // S) for x in again.erroring] == [
                (before.key, before.message, before.since_ns // S)
            ]
        for _ in range(3):
            await hosts.tell()
        await again.until("well again", lambda: not again.degraded)


# -- InfiniBand, with the real tools on a simulated fabric


@contextmanager
def subnet_manager(folder: Path, ibsim: Ibsim, host: str) -> Iterator[None]:
    """opensm, looking from a host: without it no port has a LID to be asked by."""
    environment = {**ibsim.env(host), "OSM_TMP_DIR": str(folder), "OSM_CACHE_DIR": str(folder)}
    process = subprocess.Popen(
        [str(tool("ibsim-run")), str(tool("opensm")), "-f", str(folder / "opensm.log")],
        env=environment,
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        give_up_s = time.monotonic() + TIMEOUT_S
        while b"Summary: 7 nodes checked" not in _errors(ibsim, host):
            assert process.poll() is None, "opensm ended"
            assert time.monotonic() < give_up_s, "opensm: not all ports can be asked"
            time.sleep(0.1)
        yield
    finally:
        process.terminate()
        process.wait(TIMEOUT_S)


def _errors(ibsim: Ibsim, host: str) -> bytes:
    argv = [str(tool("ibsim-run")), str(tool("ibqueryerrors")), "--threshold-file", "/dev/null"]
    return subprocess.run(
        argv, env=ibsim.env(host), capture_output=True, timeout=TIMEOUT_S, check=False
    ).stdout


class Holder:
    """An agent that holds the sweep lease, and looks when it is told to."""

    def __init__(self, world: World, stream: AgentStream, ibsim: Ibsim) -> None:
        self.world = world
        self.stream = stream
        self.ibsim = ibsim
        run = str(tool("ibsim-run"))
        self.sweep = IbnetdiscoverProbe(command=[run, str(tool("ibnetdiscover"))], port_of=_unknown)
        self.errors = IbqueryerrorsProbe(command=[run, str(tool("ibqueryerrors"))])

    async def take_lease(self) -> SweepLease:
        now_ns = self.world.clock_ns()
        found = adapter(self.stream.node, DEVICE, now_ns, guid=0x110)
        await self.stream.batch(found, full=True, sent_ns=now_ns)
        while True:
            answer = await self.stream.read()
            if answer.HasField("lease"):
                self.sweep.take_lease(answer.lease)
                self.errors.take_lease(answer.lease)
                return answer.lease

    async def look(self, *probes: Probe) -> list[str]:
        """What these see goes up; why it is refused."""
        refused: list[str] = []
        for probe in probes:
            observation = await probe.observe()
            for bulk in observation.bulks:
                await self.stream.bulk(bulk.sha256, bulk.compressed)
            now_ns = self.world.clock_ns()
            for subject, sample in observation.samples.items():
                key = FindingKey(node=self.stream.node, probe=probe.name, subject=subject)
                finding = Finding(
                    key=key, outcome=sample.outcome, reason=sample.reason, observed_at=stamp(now_ns)
                )
                finding.sweep.CopyFrom(sample.payload)  # type: ignore[arg-type]
                refused += await self.stream.store(finding, sent_ns=now_ns)
        return refused


async def _unknown(_device: str, _port: int) -> None:
    return None


def count(ibsim: Ibsim, device: str, port: int, counter: str, value: int) -> None:
    ibsim.console(f'PerformanceSet "{device}"[{port}] PortCounters.{counter}={value}')


PROBES = ("infiniband", "ibnetdiscover", "ibqueryerrors")


@pytest.fixture
def ibsim(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ibsim]:
    require_real("ibsim", "ibnetdiscover", "opensm")
    monkeypatch.chdir(tmp_path)
    with running_ibsim(tmp_path) as running:
        for name, value in running.env("H0001").items():
            monkeypatch.setenv(name, value)
        yield running


async def test_a_real_fabric_s_counters(tmp_path: Path, ibsim: Ibsim) -> None:
    with subnet_manager(tmp_path, ibsim, "H0002"):
        async with (
            world_of(tmp_path) as world,
            AgentStream(world.collector.address, "node-0001", probes=PROBES) as stream,
        ):
            holder = Holder(world, stream, ibsim)
            lease = await holder.take_lease()
            count(ibsim, "leaf2", 8, "SymbolErrorCounter", 5_000)  # of long ago
            assert await holder.look(holder.sweep, holder.errors) == []
            await world.until("a tree", lambda: world.topology.hypernodes)
            await at_rest(world.collector)
            assert world.topology.anomalies == ()

            world.ahead_ns += (
                200 * S
            )  # all growth lies in the window of 300 s, even if the test takes a minute
            count(ibsim, "leaf1", 1, "SymbolErrorCounter", 600)
            count(ibsim, "H0003", 1, "PortRcvErrors", 1_200)
            count(ibsim, "leaf2", 8, "PortXmitWait", 60_000)
            assert await holder.look(holder.sweep, holder.errors) == []
            await world.until("errors", lambda: len(world.erroring) == 2)
            assert [x.message for x in world.erroring] == [
                "node-0001 ibsim0/p1 to leaf1/p1: 2 errors/s at leaf1/p1",
                "node-0003 mlx5_0/p1 to leaf2/p1: 4 errors/s at node-0003 mlx5_0/p1",
            ]
            assert {x.sources for x in world.erroring} == {("ibqueryerrors",)}
            assert len(world.degraded) == 2

            for _ in range(2):
                world.ahead_ns += 300 * S
                assert await holder.look(holder.sweep, holder.errors) == []
            await world.until("well again", lambda: not world.erroring)

            # Without the lease nothing is taken, and what fails does not move the lease.
            now_ns = world.clock_ns()
            await stream.store(failed("node-0001", "ibqueryerrors", f"{DEVICE}/1", now_ns), sent_ns=now_ns)
            (held,) = world.collector.components.ingest.sweeps.leases()
            assert (held.lease_id, held.partial_reason) == (lease.lease_id, "")
            holder.errors.take_lease(SweepLease(lease_id="of-another", device=DEVICE, port=1))
            holder.errors.revoke(lease.lease_id)
            (refused,) = await holder.look(holder.errors)
            assert "does not hold the sweep lease" in refused


async def test_without_a_subnet_manager_it_says_so(ibsim: Ibsim) -> None:
    probe = IbqueryerrorsProbe(command=[str(tool("ibsim-run")), str(tool("ibqueryerrors"))])
    probe.take_lease(SweepLease(lease_id="L1", device=DEVICE, port=1))
    assert "no subnet manager" in (await probe.observe()).samples[f"{DEVICE}/1"].reason
