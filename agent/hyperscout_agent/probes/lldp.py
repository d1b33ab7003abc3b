"""Reports the LLDP neighbours (IEEE 802.1AB) of each Ethernet port.

They come from an lldpd that runs on the host, or from the agent's own listener. The listener's process
receives the frames and another process dissects them. The probe keeps only the decoded neighbours. A run
reports for each port its current neighbours, or that there is nothing (no carrier, no neighbour heard), or
that the port could not be observed.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from re import Pattern

from hyperscout_formats.facts.facts import LldpNeighbour, LldpPort
from hyperscout_formats.facts.pci import numa_node, pci_slot
from hyperscout_formats.facts.wire import lldp_to_proto
from hyperscout_runtime.units import NS

from hyperscout_agent.findings.probe import (
    Observation,
    ProbeContext,
    ProbeParts,
    Sample,
    Scope,
    Service,
    data,
    failed,
    nothing,
)
from hyperscout_agent.lldp.counters import CounterCache
from hyperscout_agent.lldp.dissection import Dissector, DissectorError, UnreadableError
from hyperscout_agent.lldp.link import ListenerLink, may_listen, run_listener
from hyperscout_agent.lldp.lldpd import TOOL_TIMEOUT_S, lldpd_runs, neighbours_by_port
from hyperscout_agent.lldp.messages import Heard
from hyperscout_agent.lldp.neighbours import NO_CARRIER, NOTHING_HEARD, NOTHING_YET, NeighbourTable
from hyperscout_agent.runtime.ports import PortState, compiled, physical_ports, read_ports
from hyperscout_agent.runtime.rtnetlink import LinkWatch
from hyperscout_agent.runtime.tasks import Wait, wait
from hyperscout_agent.runtime.threads import in_thread

_log = logging.getLogger(__name__)

# Twice the interval at which switches send frames.
_PATIENCE_NS = 60 * NS
_MAX_WAITING = 1024


def build(context: ProbeContext) -> ProbeParts | None:
    settings = context.settings.lldp
    if not settings.enabled:
        return None
    services: dict[str, Service] = {"link-watch": LinkWatch(context.trigger).run}
    pattern = compiled(settings.ports)
    if settings.source == "lldpctl" or (settings.source == "auto" and lldpd_runs()):
        _log.info("LLDP neighbours come from lldpd")
        lldpctl = LldpctlProbe(
            command=settings.lldpctl_command,
            sysfs=context.sysfs,
            pattern=pattern,
            interval_s=settings.interval_s,
        )
        return ProbeParts(lldpctl, services)
    _log.info("LLDP neighbours come from the listener, at %s", settings.socket)
    probe = LldpProbe(
        socket_path=settings.socket,
        dissector=Dissector(),
        sysfs=context.sysfs,
        pattern=pattern,
        interval_s=settings.interval_s,
        trigger=context.trigger,
    )
    services["lldp"] = probe.serve
    if settings.spawn_listener and may_listen():
        services["lldp-listener"] = partial(
            run_listener, settings.socket, sysfs=context.sysfs, pattern=settings.ports
        )
    return ProbeParts(probe, services)


class LldpProbe:
    """Reports the neighbours that the listener hears. `clock_ns`: CLOCK_MONOTONIC, as in the listener."""

    name = "lldp"
    scope: Scope = "node"
    timeout_s = 10.0
    max_findings = 256

    def __init__(
        self,
        *,
        socket_path: Path,
        dissector: Dissector,
        sysfs: Path = Path("/sys"),
        pattern: Pattern[str] | None = None,
        interval_s: float = 30.0,
        trigger: Callable[[], None] = lambda: None,
        clock_ns: Callable[[], int] = time.monotonic_ns,
        wait: Wait = wait,
    ) -> None:
        self.interval_s: float | None = interval_s
        self.trigger = trigger
        self.table = NeighbourTable()
        self._link = ListenerLink(socket_path, self._take, self._listener_changed)
        self._socket_path = socket_path
        self._dissector = dissector
        self._sysfs = sysfs
        self._pattern = pattern
        self._clock_ns = clock_ns
        self._wait = wait
        self._counters = CounterCache(sysfs)
        self._waiting: dict[tuple[str, bytes], Heard] = {}  # the newest undissected frame of each sender
        # Frames that the dissector failed on, possibly for another reason than the frame. They are retried
        # when they are heard again, because the listener sends an unchanged frame only once.
        self._retry: dict[tuple[str, bytes], bytes] = {}
        self._work = asyncio.Event()
        self._expiry_moved = asyncio.Event()
        self._listening_since_ns: int | None = None
        self._carrier_changes: dict[str, int] = {}  # by port, at the last run
        # Ports with a frame or without carrier since the listener connected.
        self._seen_ports: set[str] = set()

    async def serve(self) -> None:
        """Run the listener's socket, the dissection and the expiry of neighbours until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._link.run(), name="lldp-socket")
            group.create_task(self._dissect(), name="lldp-dissection")
            group.create_task(self._dissector.end_when_idle(), name="lldp-dissector-idle")
            group.create_task(self._watch_expiry(), name="lldp-expiry")

    async def observe(self) -> Observation:
        ports = await in_thread(lambda: _observed(self._sysfs, self._pattern), "lldp-sysfs")
        samples = {port.name: self._sample(port, self._clock_ns()) for port in ports}
        self._carrier_changes = {port.name: port.carrier_changes for port in ports}
        return await self._counters.add_to(Observation(samples))

    def _sample(self, port: PortState, now_ns: int) -> Sample:
        if not port.carrier:
            self.table.clear(port.name)
            self._seen_ports.add(port.name)
            return nothing(NO_CARRIER, lldp_to_proto(fact(port)))
        if self._carrier_changes.get(port.name, port.carrier_changes) != port.carrier_changes:
            self.table.blinked(port.name, now_ns)
        if neighbours := self.table.neighbours(port.name, now_ns):
            return data(lldp_to_proto(fact(port, neighbours)))
        if self._listening_since_ns is None:
            return failed(
                "the LLDP listener is not connected: run `hyperscout agent lldp-listener --socket "
                f"{self._socket_path}` as root, or give the agent CAP_NET_RAW"
            )
        if trouble := self.table.trouble(port.name, now_ns):
            return failed(f"the last LLDP frame cannot be read: {trouble}")
        if now_ns - self._listening_since_ns >= _PATIENCE_NS:
            return nothing(NOTHING_HEARD, lldp_to_proto(fact(port)))
        if port.name in self._seen_ports:
            return nothing(NOTHING_YET, lldp_to_proto(fact(port)))
        # A listener that has just started does not know that there is no neighbour. A failed finding keeps
        # the earlier one.
        return failed(NOTHING_YET, lldp_to_proto(fact(port)))

    def _listener_changed(self) -> None:
        if not self._link.connected:
            self._listening_since_ns = None
        elif self._listening_since_ns is None:
            self._listening_since_ns = self._clock_ns()
            self._seen_ports.clear()
        self.trigger()

    def _take(self, heard: Heard) -> None:
        """Process a message of the listener."""
        key = (heard.port, heard.sender)
        if heard.frame is not None:
            self._retry.pop(key, None)
            if key in self._waiting or len(self._waiting) < _MAX_WAITING:
                self._waiting[key] = heard
                self._work.set()
        elif key in self._retry and len(self._waiting) < _MAX_WAITING:
            self._waiting[key] = replace(heard, frame=self._retry.pop(key))
            self._work.set()
        elif key not in self._waiting:
            back = self.table.again(heard.port, heard.sender, min(heard.at_ns, self._clock_ns()))
            if back:
                self._expiry_moved.set()
                self.trigger()

    async def _dissect(self) -> None:
        while True:
            while not self._waiting:
                self._work.clear()
                await self._work.wait()
            key = next(iter(self._waiting))
            heard = self._waiting.pop(key)
            at_ns = min(heard.at_ns, self._clock_ns())
            try:
                neighbour = await self._dissector.dissect(heard.frame or b"")
            except (UnreadableError, DissectorError) as error:
                changed = self.table.unreadable(heard.port, str(error), at_ns)
                newest = key not in self._waiting  # the listener's AGAIN refers to the sender's newest frame
                if newest and isinstance(error, DissectorError) and len(self._retry) < _MAX_WAITING:
                    self._retry[key] = heard.frame or b""
            else:
                changed = self.table.heard(heard.port, heard.sender, neighbour, at_ns)
                self._expiry_moved.set()
            # Only now: until here the port may still have a readable neighbour.
            self._seen_ports.add(heard.port)
            if changed:
                self.trigger()

    async def _watch_expiry(self) -> None:
        """Trigger a run when a neighbour's TTL has passed."""
        while True:
            self._expiry_moved.clear()
            expires_ns = self.table.next_expiry_ns()
            if expires_ns is None:
                await self._expiry_moved.wait()
                continue
            left_s = (expires_ns - self._clock_ns()) / NS
            if left_s > 0:
                await self._wait(self._expiry_moved, left_s)
                continue
            self.trigger()
            # The triggered run removes the neighbour from the table. Until then, wait a second.
            await self._wait(self._expiry_moved, 1.0)


class LldpctlProbe:
    """Reads the output of `lldpctl -f json0`. `command`: the command line before `-f json0`."""

    name = "lldp"
    scope: Scope = "node"
    timeout_s = TOOL_TIMEOUT_S + 10.0
    max_findings = 256

    def __init__(
        self,
        *,
        command: Sequence[str] = ("lldpctl",),
        sysfs: Path = Path("/sys"),
        pattern: Pattern[str] | None = None,
        interval_s: float = 30.0,
    ) -> None:
        self.interval_s: float | None = interval_s
        self._command = tuple(command)
        self._sysfs = sysfs
        self._pattern = pattern
        self._counters = CounterCache(sysfs)

    async def observe(self) -> Observation:
        heard = await neighbours_by_port(self._command, "install lldpd, or set `lldp.source: listener`")
        ports = await in_thread(lambda: _observed(self._sysfs, self._pattern), "lldp-sysfs")
        samples: dict[str, Sample] = {}
        for port in ports:
            neighbours = heard.get(port.name, ()) if port.carrier else ()
            payload = lldp_to_proto(fact(port, neighbours))
            if neighbours:
                samples[port.name] = data(payload)
            else:
                samples[port.name] = nothing(NOTHING_HEARD if port.carrier else NO_CARRIER, payload)
        return await self._counters.add_to(Observation(samples))


def _observed(sysfs: Path, pattern: Pattern[str] | None) -> list[PortState]:
    return read_ports(sysfs, physical_ports(sysfs, pattern))


def fact(port: PortState, neighbours: tuple[LldpNeighbour, ...] = ()) -> LldpPort:
    slot = pci_slot(port.device)
    return LldpPort(
        interface=port.name,
        neighbours=neighbours,
        mac=port.mac,
        carrier=port.carrier,
        speed_mbps=port.speed_mbps,
        carrier_changes=port.carrier_changes,
        pci_address=slot.address,
        pcie_root=slot.root,
        numa_node=numa_node(port.numa_node) if slot.address else None,
    )
