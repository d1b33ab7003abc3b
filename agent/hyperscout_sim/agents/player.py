"""Runs the agents of a whole fabric in one process, through the real uplink, and changes its cables.

Every host has its own agent with its own stream, as in a real cluster. An agent reports the current state of
the fabric. When the fabric changes, the affected agents report at once, and the agents with a sweep lease
sweep again.
"""

import asyncio
import itertools
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import grpc.aio
from hyperscout_agent.findings.bulk import Bulk, compress
from hyperscout_agent.runtime.tasks import Wait, wait
from hyperscout_agent.uplink.uplink import Options, channel_options
from hyperscout_formats.facts.accelerators import KINDS
from hyperscout_formats.facts.facts import Gpu, LldpPort
from hyperscout_runtime.bounded_executor import BoundedExecutor
from hyperscout_runtime.credentials import Credentials

from hyperscout_sim.agents.agent import PlayedAgent, Swept, World
from hyperscout_sim.agents.crawl import PlayedCrawl
from hyperscout_sim.agents.schedule import refreshes
from hyperscout_sim.fabric.fabric import Cable, SimAdapter, SimFabric
from hyperscout_sim.readings.sweep_text import sweep_text

_ALONE = "the sweep found only its own adapter: the port is down or its cable is unplugged"
# Most agents that start but are not connected yet: a thousand simultaneous handshakes would time out.
_MOST_CONNECTING = 64
_POLL_S = 0.005
# Without this option, all gRPC channels of a process to one address share one connection.
_OWN_CONNECTION = ("grpc.use_local_subchannel_pool", 1)
_MOST_SWEEPS = 64  # at a time: an agent has a lease for each rail
_CONNECT_S = 10.0  # of a connection that many simulated agents share


class Player:
    """Runs the agents of all hosts of `fabric`.

    `targets`: the addresses that each agent tries in order, or a function that gives those of a reporter.

    `lldp`: the cables are also Ethernet cables, and every agent receives the LLDP frames of its switches
    (needs the extra `lldp`). `crawl`: the cables are only Ethernet cables, and an agent of role `fabric` with
    this name reports all switches.

    `connections`: None gives each agent its own connection. A number is the number of shared connections.
    `refresh_interval_s`: interval at which each agent reports again without a change. `clock`: monotonic
    seconds. `wall_ns`: nanoseconds since 1970. `credentials`: of the connection of each reporter.

    `part`: only these hosts have agents; players in other processes run the rest. A change makes no agent of
    a part sweep again: agents sweep only at the interval of their leases.

    `gpus`: host -> what its probes of accelerators report (None: no agent has them). `set_gpus` changes it.
    """

    def __init__(
        self,
        fabric: SimFabric,
        targets: Sequence[str] | Callable[[str], tuple[str, ...]],
        *,
        lldp: bool = False,
        crawl: str = "",
        gpus: Mapping[str, Sequence[Gpu]] | None = None,
        connections: int | None = None,
        refresh_interval_s: float = 30.0,
        clock: Callable[[], float] = time.monotonic,
        wall_ns: Callable[[], int] = time.time_ns,
        wait: Wait = wait,
        credentials: Callable[[str], Credentials] = lambda _: Credentials(insecure=True),
        part: Sequence[str] | None = None,
    ) -> None:
        self._plan = fabric
        self._part = part
        self._threads = None if part is None else BoundedExecutor("player-sweeps", most=_MOST_SWEEPS)
        self._cables = frozenset(fabric.cables)
        self._now: SimFabric | None = None  # the current fabric, once it is needed
        self._adapters = fabric.adapters_of()
        self._host_of = fabric.node_map()
        self._cut: set[Cable] = set()
        self._pulled: set[int] = set()
        self._sweeps: dict[int, Swept] = {}
        self._changed = asyncio.Event()
        self._lldp = lldp or bool(crawl)
        self._crawl_name = crawl
        self.crawl: PlayedCrawl | None = None  # None = not running
        self._gpus = None if gpus is None else dict(gpus)
        self._credentials = credentials
        self._instances = itertools.count(wall_ns())
        self._refresh_interval_s = refresh_interval_s
        self._pool = [] if connections is None else [_Shared() for _ in range(connections)]
        self._turns = itertools.count()
        self._world = World(
            _same(targets) if isinstance(targets, Sequence) else targets,
            refresh_interval_s,
            clock,
            wall_ns,
            wait,
            self._channel,
            self._sweep,
            lambda: self._changed,
        )
        self.agents: dict[str, PlayedAgent] = {}
        self._switches = {x.guid: x for x in fabric.switches}
        self._cable_of = {cable.a: cable for cable in fabric.cables if cable.a in self._host_of}

    @property
    def fabric(self) -> SimFabric:
        """The current fabric."""
        if self._now is None:
            cables = tuple(filter(self._is_there, self._plan.cables))
            self._now = replace(self._plan, cables=cables, switches=tuple(self._switches.values()))
        return self._now

    @property
    def streaming(self) -> int:
        """Number of agents that are connected to a collector."""
        return sum(agent.uplink.stats.connected for agent in self._living())

    @property
    def settled(self) -> bool:
        """Whether all running agents are connected and the collector has acknowledged all their findings."""
        return all(x.settled for x in self._living())

    def _living(self) -> list[PlayedAgent | PlayedCrawl]:
        return [*self.agents.values(), *filter(None, (self.crawl,))]

    async def run(self) -> None:
        """Run the agents until cancelled."""
        hosts = self._plan.hosts if self._part is None else self._part
        refreshing = asyncio.create_task(self._refresh(hosts))
        try:
            await self._start(hosts)
            if self._crawl_name:
                self.revive_crawl()
            await refreshing
        finally:
            refreshing.cancel()
            await asyncio.gather(refreshing, return_exceptions=True)
            await asyncio.gather(*(agent.stop() for agent in self._living()))
            self.agents.clear()
            self.crawl = None
            await asyncio.gather(*(shared.shut() for shared in self._pool))
            if self._threads is not None:
                self._threads.close()

    async def _start(self, hosts: Sequence[str]) -> None:
        """Start all agents, each as soon as few enough of the others still connect."""
        connecting: list[str] = []
        for host in hosts:
            while len(connecting) == _MOST_CONNECTING:
                await self._world.wait(asyncio.Event(), _POLL_S)
                running = (x for x in connecting if x in self.agents)
                connecting = [x for x in running if not self.agents[x].uplink.stats.connected]
            self.revive(host)
            connecting.append(host)

    async def _refresh(self, hosts: Sequence[str]) -> None:
        """Make each agent report again at the interval."""
        began_s = self._world.clock()
        for after_s, host in refreshes(self._plan.hosts, hosts, self._refresh_interval_s):
            await self._world.wait(asyncio.Event(), began_s + after_s - self._world.clock())
            agent = self.agents.get(host) if host else self.crawl
            if agent is None or not agent.is_due:
                continue
            if host:
                self.observe(host)
            elif self.crawl is not None:
                self.crawl.look(self.fabric)

    def observe(self, host: str) -> None:
        """Make a running agent report its ports now."""
        ports = [(adapter, self._cable_of.get(adapter.guid)) for adapter in self._adapters[host]]
        rdma = () if self._crawl_name else ports
        self.agents[host].observe(rdma, self._heard(ports), (self._gpus or {}).get(host, ()))

    def _heard(self, ports: Sequence[tuple[SimAdapter, Cable | None]]) -> Sequence[LldpPort]:
        if not self._lldp:
            return ()
        from hyperscout_sim.readings.lldp_frames import heard  # needs scapy, so it is imported only for LLDP

        return heard(self._switches, ports)

    # Faults in the running fabric

    def cut(self, cable: Cable) -> None:
        """Remove a cable. Raises KeyError if the fabric does not have it."""
        self._known(cable)
        self._cut.add(cable)
        self._apply([cable])

    def restore(self, cable: Cable) -> None:
        """Put a removed cable back."""
        self._known(cable)
        self._cut.discard(cable)
        self._apply([cable])

    def pull(self, switch: int) -> None:
        """Switch off a switch, by GUID. Raises KeyError if the fabric does not have it."""
        if switch not in self._plan.levels():
            raise KeyError(f"{self._plan.name} has no switch {switch:016x}")
        self._pulled.add(switch)
        self._apply_switches()

    def push_back(self, switch: int) -> None:
        """Switch a switch on again."""
        self._pulled.discard(switch)
        self._apply_switches()

    def miswire(self, one: Cable, other: Cable) -> tuple[Cable, Cable]:
        """Exchange the upper ends of two cables, and return the new cables. Raises KeyError.

        The same call with the new cables undoes the exchange.
        """
        self._known(one)
        self._known(other)
        now = (
            one._replace(b=other.b, b_port=other.b_port),
            other._replace(b=one.b, b_port=one.b_port),
        )
        instead = {one: now[0], other: now[1]}
        self._plan = replace(self._plan, cables=tuple(instead.get(c, c) for c in self._plan.cables))
        self._cables = frozenset(self._plan.cables)
        self._cut = {instead.get(c, c) for c in self._cut}
        self._apply([one, other, *now])
        return now

    def rewire(self, fabric: SimFabric) -> None:
        """Give the agents another fabric. Its new hosts have no agents yet."""
        self._plan, self._cables = fabric, frozenset(fabric.cables)
        self._adapters, self._host_of = fabric.adapters_of(), fabric.node_map()
        self._cable_of = {}
        self._apply_switches()

    def set_gpus(self, host: str, gpus: Sequence[Gpu]) -> None:
        """Change what the `nvlink` probe of a host reports. Raises ValueError if no agent has that probe."""
        if self._gpus is None:
            raise ValueError("no agent has a probe of accelerators: make the player with `gpus`")
        self._gpus[host] = tuple(gpus)
        if host in self.agents:
            self.observe(host)

    async def kill(self, host: str) -> None:
        """Stop an agent and discard its findings. Its host and its cables remain."""
        agent = self.agents.pop(host)
        await agent.stop()

    def revive(self, host: str) -> None:
        """Start an agent, as a new instance. Raises ValueError if it is running."""
        if host in self.agents:
            raise ValueError(f"the agent of {host} is already running")
        probes = [] if self._crawl_name else ["infiniband", "ibnetdiscover"]
        probes += ["lldp"] * self._lldp + [*KINDS] * (self._gpus is not None)
        agent = PlayedAgent(host, self._world, next(self._instances), probes, host)
        self.agents[host] = agent
        self.observe(host)
        agent.start()

    async def kill_crawl(self) -> None:
        """Stop the agent that reads switches. Raises ValueError if there is none."""
        if self.crawl is None:
            raise ValueError("no agent that reads switches is running")
        crawl, self.crawl = self.crawl, None
        await crawl.stop()

    def revive_crawl(self) -> None:
        """Start the agent that reads switches, as a new instance.

        Raises ValueError if it is running, or if the player was made without `crawl`.
        """
        if self.crawl is not None or not self._crawl_name:
            raise ValueError(
                "the agent that reads switches is already running, or the player was made without `crawl`"
            )
        self.crawl = PlayedCrawl(self._crawl_name, self._world, next(self._instances), self._crawl_name)
        self.crawl.look(self.fabric)
        self.crawl.start()

    def _known(self, cable: Cable) -> None:
        if cable not in self._cables:
            raise KeyError(f"no such cable in {self._plan.name}: {cable}")

    def _is_there(self, cable: Cable) -> bool:
        gone = self._pulled
        return cable in self._cables and not (cable in self._cut or cable.a in gone or cable.b in gone)

    def _apply_switches(self) -> None:
        self._switches = {x.guid: x for x in self._plan.switches if x.guid not in self._pulled}
        self._apply(self._plan.cables)

    def _apply(self, cables: Iterable[Cable]) -> None:
        """Update what follows from these cables, which may have changed, and the agents at them.

        List removed cables before the cables that replace them.
        """
        self._now = None
        changed = []
        for cable in cables:
            is_there = self._is_there(cable)
            if cable.a in self._host_of and is_there != (self._cable_of.get(cable.a) == cable):
                changed.append(self._host_of[cable.a])
                if is_there:
                    self._cable_of[cable.a] = cable
                else:
                    del self._cable_of[cable.a]
        for host in sorted(set(changed)):
            if host in self.agents:
                self.observe(host)
        if self.crawl is not None:
            self.crawl.look(self.fabric)
        self._sweeps.clear()
        if self._part is None:
            self._changed.set()
            self._changed = asyncio.Event()

    async def _sweep(self, adapter: SimAdapter) -> Swept:
        """Return the sweep from an adapter. It is cached until the fabric changes.

        A part has a large fabric, whose text takes a quarter of a second. So the text is made in a thread.
        """
        swept = self._sweeps.get(adapter.guid)
        if swept is None:
            reason = "" if adapter.guid in self._cable_of else _ALONE
            fabric = self.fabric
            if self._threads is None:
                bulk = _bulk(fabric, adapter)
            else:
                bulk = await self._threads(_bulk, fabric, adapter)
            swept = Swept(bulk, reason)
            if fabric is self._now:
                self._sweeps[adapter.guid] = swept
        return swept

    def _channel(self, reporter: str, target: str, options: Options) -> grpc.aio.Channel:
        if not self._pool:
            return self._credentials(reporter).connect(target, (*options, _OWN_CONNECTION))
        shared = self._pool[next(self._turns) % len(self._pool)]
        return cast(grpc.aio.Channel, shared.at(target))


class _Shared:
    """A connection that several agents share.

    An uplink that closes its channel does not close the connection.
    """

    def __init__(self) -> None:
        self._channels: dict[str, grpc.aio.Channel] = {}

    def at(self, target: str) -> "_Lent":
        if target not in self._channels:
            options = (*channel_options(_CONNECT_S), _OWN_CONNECTION)
            self._channels[target] = grpc.aio.insecure_channel(target, options=options)
        return _Lent(self._channels[target])

    async def shut(self) -> None:
        for channel in self._channels.values():
            await channel.close()


class _Lent:
    """Gives an uplink what it needs of a shared channel. Its `close` does nothing."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._channel = channel

    def __getattr__(self, name: str) -> Any:
        return getattr(self._channel, name)

    async def close(self) -> None:
        return None


def _same(addresses: Sequence[str]) -> Callable[[str], tuple[str, ...]]:
    """The addresses of each reporter."""
    return lambda _: tuple(addresses)


def _bulk(fabric: SimFabric, adapter: SimAdapter) -> Bulk:
    return compress(sweep_text(fabric, adapter.guid))
