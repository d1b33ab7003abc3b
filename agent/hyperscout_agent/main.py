"""Builds the agent from its parts and runs it until SIGTERM or SIGINT."""

import asyncio
import contextlib
import importlib.metadata
import logging
import signal
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from hyperscout.v1.discovery_pb2 import Seeds
from hyperscout_formats.text.reporters import SWITCH_PROBE

from hyperscout_agent.findings.page import findings_page
from hyperscout_agent.findings.probe import Probe
from hyperscout_agent.findings.scheduler import Scheduler
from hyperscout_agent.findings.store import FindingStore
from hyperscout_agent.lldp.dissection import Dissector
from hyperscout_agent.lldp.spawn import may_listen, run_listener
from hyperscout_agent.metrics.page import AgentMetrics
from hyperscout_agent.probes.counted import Counted
from hyperscout_agent.probes.ibnetdiscover import IbnetdiscoverProbe
from hyperscout_agent.probes.ibqueryerrors import IbqueryerrorsProbe
from hyperscout_agent.probes.infiniband import InfinibandProbe
from hyperscout_agent.probes.latency import LatencyProbe, interfaces_of
from hyperscout_agent.probes.lldp import LldpProbe
from hyperscout_agent.probes.lldpctl import LldpctlProbe, lldpd_is_here
from hyperscout_agent.probes.nccl import NcclCommands, NcclProbe
from hyperscout_agent.probes.nvlink import NvlinkProbe
from hyperscout_agent.probes.switch import SwitchProbe
from hyperscout_agent.runtime.health_page import NotYet, serving
from hyperscout_agent.runtime.ports import compiled
from hyperscout_agent.runtime.rtnetlink import LinkWatch
from hyperscout_agent.runtime.supervise import supervise
from hyperscout_agent.settings.settings import AgentSettings
from hyperscout_agent.uplink.session import Directives
from hyperscout_agent.uplink.uplink import CHANNEL_OPTIONS, Uplink

if TYPE_CHECKING:
    from hyperscout_agent.probes.snmp import SnmpProbe

_log = logging.getLogger(__name__)

_SYSFS = Path("/sys")
Service = Callable[[], Awaitable[None]]


class StartError(Exception):
    """The agent cannot start. The message names the change that is needed."""


class Agent:
    """All parts of one agent and their connections."""

    def __init__(self, settings: AgentSettings, rng: Random) -> None:
        self._settings = settings
        self._rng = rng
        self.store = FindingStore(settings.reporter, refresh_interval_s=settings.refresh_interval_s)
        self.services: dict[str, Service] = {}
        infiniband = InfinibandProbe(root=settings.infiniband.root, interval_s=settings.infiniband.interval_s)
        sweep = IbnetdiscoverProbe(
            command=settings.ibnetdiscover.command,
            timeout_s=settings.ibnetdiscover.timeout_s,
            max_output_bytes=settings.ibnetdiscover.max_output_bytes,
            port_of=infiniband.port_of,
            trigger=lambda: self.scheduler.trigger("ibnetdiscover"),
        )
        leased: list[IbnetdiscoverProbe | IbqueryerrorsProbe] = [sweep, *self._counting()]

        def each(tell: Callable[[IbnetdiscoverProbe | IbqueryerrorsProbe], None]) -> None:
            for one in leased:
                tell(one)

        probes: list[Probe] = []
        is_node = settings.role == "node"
        self._crawl: SnmpProbe | None = None
        if settings.role == "fabric":
            probes.extend(self._fabric_probes())
        elif not is_node:
            probes.append(self._switch())
        elif settings.lldp.enabled:
            probes.append(Counted(self._lldp(), sysfs=_SYSFS))
        if is_node and settings.infiniband.enabled:
            probes.append(infiniband)
        if is_node and settings.ibnetdiscover.enabled:
            probes.extend(leased)
        if is_node and settings.nvlink.enabled:
            nvlink = settings.nvlink
            probes.append(NvlinkProbe(library=nvlink.library, sysfs=_SYSFS, interval_s=nvlink.interval_s))
        latency = self._latency()
        if is_node and settings.latency.enabled:
            probes.append(latency)
        nccl = self._nccl()
        if is_node and settings.nccl.enabled:
            probes.append(nccl)
        self.scheduler = Scheduler(probes, self.store, rng=rng)
        self.uplink = Uplink(
            settings.collectors,
            self.store,
            version=version(),
            probes=[probe.name for probe in probes],
            instance=time.time_ns(),
            directives=Directives(
                lease=lambda lease: each(lambda one: one.take_lease(lease)),
                revoke=lambda revoke: each(lambda one: one.revoke(revoke.lease_id)),
                intervals=self.scheduler.set_intervals,
                measure_pairs=latency.measure_pairs,
                stop_measuring=lambda stop: self._end(latency.stop_measuring, lambda: nccl.stop(stop.reason)),
                measure_nccl=nccl.measure if settings.nccl.enabled else nccl.refuse,
                nccl_id=nccl.take_id,
                seeds=self._take_seeds,
            ),
            on_end=lambda: self._end(
                *(one.drop_lease for one in leased), latency.stop_measuring, nccl.stream_ended
            ),
            rng=rng,
            channel=lambda target: settings.credentials.connect(target, CHANNEL_OPTIONS),
            metadata=settings.credentials.metadata,
        )
        self.metrics = AgentMetrics(
            self.store,
            self.uplink.stats,
            lambda: self.scheduler.stats,
            version=version(),
            latency=latency if is_node and settings.latency.enabled else None,
            crawl=self._crawl,
        )

    def _counting(self) -> list[IbqueryerrorsProbe]:
        """Return the error-counter probe, which runs under the same lease as the sweep."""
        settings = self._settings.ibqueryerrors
        if not settings.enabled:
            return []
        return [
            IbqueryerrorsProbe(
                command=settings.command,
                interval_s=settings.interval_s,
                timeout_s=settings.timeout_s,
                max_output_bytes=settings.max_output_bytes,
                trigger=lambda: self.scheduler.trigger("ibqueryerrors"),
            )
        ]

    def _latency(self) -> LatencyProbe:
        latency = self._settings.latency
        return LatencyProbe(
            interfaces=interfaces_of(_SYSFS, compiled(latency.interfaces)),
            port=latency.port,
            max_kbps=latency.max_kbps,
            interval_s=latency.publish_interval_s,
            ib_send_lat=latency.ib_send_lat,
            ib_send_bw=latency.ib_send_bw,
        )

    def _lldp(self) -> Probe:
        """Return the `lldp` probe for the LLDP source of this host, and register its services."""
        lldp = self._settings.lldp

        def trigger() -> None:
            self.scheduler.trigger("lldp")

        self.services["link-watch"] = LinkWatch(trigger).run
        if lldp.source == "lldpctl" or (lldp.source == "auto" and lldpd_is_here()):
            _log.info("LLDP: from lldpd")
            return LldpctlProbe(
                command=lldp.lldpctl_command,
                sysfs=_SYSFS,
                pattern=compiled(lldp.ports),
                interval_s=lldp.interval_s,
            )
        probe = LldpProbe(
            socket_path=lldp.socket,
            dissector=Dissector(),
            sysfs=_SYSFS,
            pattern=compiled(lldp.ports),
            interval_s=lldp.interval_s,
            trigger=trigger,
        )
        self.services["lldp"] = probe.serve
        if lldp.spawn_listener and may_listen():
            self.services["lldp-listener"] = lambda: run_listener(
                lldp.socket, sysfs=_SYSFS, pattern=lldp.ports
            )
        _log.info("LLDP: from the listener, at %s", lldp.socket)
        return probe

    def _switch(self) -> Probe:
        """Return the only probe of a switch, and register its service."""
        lldp = self._settings.lldp
        self.services["link-watch"] = LinkWatch(lambda: self.scheduler.trigger(SWITCH_PROBE)).run
        return SwitchProbe(
            lldpctl=lldp.lldpctl_command,
            lldpcli=self._settings.lldpcli,
            sysfs=_SYSFS,
            pattern=compiled(lldp.ports),
            interval_s=lldp.interval_s,
        )

    def _fabric_probes(self) -> Iterator[Probe]:
        """Yield the probes that query switches and fabric managers.

        Imported here, because on nodes these modules would only use memory.
        """
        if self._settings.snmp.on:
            try:
                from hyperscout_agent.probes.snmp import SnmpProbe
            except ModuleNotFoundError as error:
                install = "pip install 'hyperscout[agent,snmp]'"
                raise StartError(f"snmp.access: {error.name} is not installed: {install}") from error

            self._crawl = SnmpProbe(self._settings.snmp, trigger=lambda: self.scheduler.trigger("snmp"))
            yield self._crawl
        if any(self._settings.fabric_groups[name].on for name in ("ufm", "netq", "nmx")):
            from hyperscout_agent.probes.managers import manager_probes

            yield from manager_probes(self._settings)

    def _take_seeds(self, seeds: Seeds) -> None:
        if self._crawl is not None:
            self._crawl.take_seeds(seeds)

    def _nccl(self) -> NcclProbe:
        settings = self._settings.nccl
        return NcclProbe(
            NcclCommands(settings.all_reduce, settings.sendrecv, settings.library, settings.cuda_library),
            timeout_s=settings.timeout_s,
            send=lambda nccl_id: self.uplink.send_id(nccl_id),  # noqa: PLW0108 - there is no uplink yet
            trigger=lambda: self.scheduler.trigger("nccl"),
            lock=settings.lock,
        )

    @staticmethod
    def _end(*parts: Callable[[], None]) -> None:
        """Stop the work that a collector requested, when its stream ends or on its request."""
        for part in parts:
            part()

    async def run(self, stop: asyncio.Event) -> None:
        """Run all parts until `stop` is set. Raises OSError when the metrics port cannot be opened."""
        pages = {
            "/metrics": self.metrics.text,
            "/healthz": self._health,
            "/readyz": self._ready,
            "/findings": self._findings,
        }
        metrics = self._settings.metrics
        async with serving(metrics.host, metrics.port, pages) as port:
            _log.info("metrics at http://%s:%d/metrics", metrics.host, port)
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(self.scheduler.run(), name="scheduler"),
                    group.create_task(self.uplink.run(), name="uplink"),
                ]
                for name, service in self.services.items():
                    kept = supervise(name, service, rng=self._rng, sleep=asyncio.sleep)
                    tasks.append(group.create_task(kept, name=name))
                await stop.wait()
                for task in tasks:
                    task.cancel()

    def _health(self) -> bytes:
        """Report liveness. An unreachable collector does not make the agent unhealthy."""
        return b"ok, connected\n" if self.uplink.stats.connected else b"ok, not connected\n"

    def _findings(self) -> bytes:
        return findings_page(self.store, self.scheduler.stats, connected=self.uplink.stats.connected)

    def _ready(self) -> bytes | NotYet:
        """Report readiness: true after the first accepted Hello, and from then on.

        Settings or a certificate that no collector accepts stop a rolling update at the first nodes. A
        collector that is unreachable later does not make the agent unready.
        """
        return self._health() if self.uplink.stats.sessions else NotYet(b"no collector has greeted us yet\n")


async def run(settings: AgentSettings) -> int:
    """Run the agent until SIGTERM or SIGINT. Returns the exit code."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    _log.info("agent %s of %s %s", version(), settings.role, settings.node)
    try:
        await Agent(settings, Random()).run(stop)  # noqa: S311 - jitter, not secrets
    except (StartError, OSError) as error:
        _log.error("%s", error)
        return 1
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
    return 0


def version() -> str:
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version("hyperscout")
    return "unknown"
