"""Runs simulated agents: the real store and uplink, on hosts that exist only in a `SimFabric`."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random

import grpc.aio
from hyperscout.v1.discovery_pb2 import Hello, SweepLease, SweepRevoke
from hyperscout.v1.finding_pb2 import Finding, FindingKey, Outcome, Sweep
from hyperscout_agent.findings.bulk import Bulk
from hyperscout_agent.findings.store import FindingStore
from hyperscout_agent.main import version
from hyperscout_agent.runtime.tasks import Wait
from hyperscout_agent.uplink.session import Directives
from hyperscout_agent.uplink.uplink import Options, Uplink
from hyperscout_formats.facts.accelerators import KINDS
from hyperscout_formats.facts.facts import Gpu, LldpPort
from hyperscout_formats.facts.wire import infiniband_to_proto, lldp_to_proto
from hyperscout_formats.facts.wire_measured import gpu_to_proto

from hyperscout_sim.fabric.fabric import Cable, SimAdapter
from hyperscout_sim.readings.sysfs import in_slot, port_facts

VERSION = version()
_log = logging.getLogger(__name__)
_LEAST_SWEEP_INTERVAL_S = 1.0
_MOST_HELD_BACK_S = 60.0  # the default of an agent's refresh_interval_s


@dataclass(frozen=True, slots=True)
class Swept:
    """The result of a sweep: the text, and why it is incomplete ("" = complete)."""

    bulk: Bulk
    partial_reason: str


@dataclass(frozen=True, slots=True)
class World:
    """What a simulated agent can use: clocks, channels, and the sweep from one of its adapters.

    `targets`: addresses by reporter. `channel`: by reporter and address.
    """

    targets: Callable[[str], tuple[str, ...]]
    refresh_interval_s: float  # at which a reporter reports again without a change
    clock: Callable[[], float]
    wall_ns: Callable[[], int]
    wait: Wait
    channel: Callable[[str, str, Options], grpc.aio.Channel]
    sweep: Callable[[SimAdapter], Awaitable[Swept]]
    changed: Callable[[], asyncio.Event]  # set when the agents with a lease have to sweep again


class Played:
    """Streams the findings of one reporter, through the real store and uplink, until `stop`.

    Use it from one event loop.
    """

    def __init__(
        self,
        reporter: str,
        world: World,
        instance: int,
        probes: Sequence[str],
        seed: str,
        directives: Directives,
        on_end: Callable[[], None] = lambda: None,
    ) -> None:
        # A report that comes a moment early must not be held back until the next one.
        least_s = min(_MOST_HELD_BACK_S, world.refresh_interval_s / 2)
        self.store = FindingStore(reporter, world.clock, refresh_interval_s=least_s)
        self._world = world
        self._started_s = world.clock()
        self._task: asyncio.Task[None] | None = None
        self.uplink = Uplink(
            world.targets(reporter),
            self.store,
            Hello(version=VERSION, probes=probes, instance=instance),
            directives=directives,
            on_end=on_end,
            clock=world.clock,
            wall_ns=world.wall_ns,
            rng=Random(seed),  # noqa: S311 - spreads reconnects
            channel=partial(world.channel, reporter),
        )

    @property
    def settled(self) -> bool:
        """Whether it is connected, and the collector has acknowledged all its findings."""
        return self.uplink.stats.connected and not self.store.dirty

    @property
    def is_due(self) -> bool:
        """Whether it started long enough ago to report again at its turn: it has reported at its start."""
        return self._world.clock() - self._started_s >= self._world.refresh_interval_s / 2

    def start(self) -> None:
        self._task = asyncio.create_task(self.uplink.run(), name=f"agent-{self.store.node}")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    def _finding(
        self, probe: str, subject: str, outcome: "Outcome.ValueType" = Outcome.OUTCOME_DATA
    ) -> Finding:
        key = FindingKey(node=self.store.node, probe=probe, subject=subject)
        finding = Finding(key=key, outcome=outcome)
        finding.observed_at.FromNanoseconds(self._world.wall_ns())
        return finding


class PlayedAgent(Played):
    """Streams the findings of one host."""

    def __init__(self, host: str, world: World, instance: int, probes: Sequence[str], seed: str) -> None:
        directives: Directives = {"lease": [self._take_lease], "revoke": [self._revoke]}
        super().__init__(host, world, instance, probes, seed, directives, self._drop_leases)
        self.host = host
        self.flaps = 0  # of each port, beside those of the fabric's cables
        self._adapters: dict[str, SimAdapter] = {}
        self._up: dict[str, bool] = {}
        self._link_downed: dict[str, int] = {}
        self._leases: dict[str, SweepLease] = {}  # by id: a host may have one for each rail
        self._sweepers: dict[str, asyncio.Task[None]] = {}

    @property
    def lease(self) -> SweepLease | None:
        """The oldest lease of the agent, None = no lease."""
        return next(iter(self._leases.values()), None)

    def observe(
        self,
        ports: Sequence[tuple[SimAdapter, Cable | None]],
        lldp: Sequence[LldpPort],
        gpus: Sequence[Gpu] = (),
    ) -> None:
        """Report the current state of the host's ports and GPUs."""
        self._adapters = {adapter.device: adapter for adapter, _ in ports}
        for adapter, cable in ports:
            if self._up.get(adapter.device) and cable is None:
                self._link_downed[adapter.device] = self._link_downed.get(adapter.device, 0) + 1
            self._up[adapter.device] = cable is not None
            link_downed = self._link_downed.get(adapter.device, 0) + self.flaps
            fact = in_slot(port_facts(adapter, cable, link_downed))
            finding = self._finding("infiniband", f"{adapter.device}/1")
            finding.infiniband.CopyFrom(infiniband_to_proto(fact))
            self.store.put(finding)
        for port in lldp:
            finding = self._finding("lldp", port.interface)
            if not port.neighbours:
                finding.outcome = Outcome.OUTCOME_NOTHING
                finding.reason = "no neighbour heard" if port.carrier else "no carrier"
            finding.lldp.CopyFrom(lldp_to_proto(port))
            finding.lldp.carrier_changes += self.flaps
            self.store.put(finding)
        for gpu in gpus:
            finding = self._finding(gpu.kind, gpu.pci_address)
            finding.gpu.CopyFrom(gpu_to_proto(gpu))
            self.store.put(finding)
        for kind in KINDS:
            for gone in self.store.subjects(kind) - {gpu.pci_address for gpu in gpus if gpu.kind == kind}:
                self.store.remove(FindingKey(node=self.host, probe=kind, subject=gone))

    def _take_lease(self, lease: SweepLease) -> None:
        self._end_lease(lease.lease_id)
        self._leases[lease.lease_id] = lease
        self._sweepers[lease.lease_id] = asyncio.create_task(
            self._keep_sweeping(lease), name=f"sweep-{self.host}"
        )

    def _revoke(self, revoke: SweepRevoke) -> None:
        self._end_lease(revoke.lease_id)

    def _end_lease(self, lease_id: str) -> None:
        if self._leases.pop(lease_id, None) is not None:
            self._sweepers.pop(lease_id).cancel()

    def _drop_leases(self) -> None:
        for lease_id in list(self._leases):
            self._end_lease(lease_id)

    async def _keep_sweeping(self, lease: SweepLease) -> None:
        """Sweep now, at the interval of the lease, and as soon as the fabric changes."""
        interval_s = max(lease.interval_s, _LEAST_SWEEP_INTERVAL_S)
        while True:
            changed = self._world.changed()
            await self._sweep(lease)
            await self._world.wait(changed, interval_s)

    async def _sweep(self, lease: SweepLease) -> None:
        finding = self._finding("ibnetdiscover", f"{lease.device}/{lease.port}")
        sweep = Sweep(format="ibnetdiscover", device=lease.device, port=lease.port, lease_id=lease.lease_id)
        adapter = self._adapters.get(lease.device)
        if adapter is None:
            _log.warning("%s: received a lease on the unknown device %s", self.host, lease.device)
            finding.outcome = Outcome.OUTCOME_FAILED
            finding.reason = f"no device {lease.device}"
        else:
            swept = await self._world.sweep(adapter)
            sweep.port_guid = adapter.port_guid
            sweep.sha256 = self.store.put_bulk(swept.bulk)
            sweep.size_bytes = swept.bulk.size_bytes
            sweep.partial = bool(swept.partial_reason)
            sweep.partial_reason = finding.reason = swept.partial_reason
        finding.sweep.CopyFrom(sweep)
        self.store.put(finding)
