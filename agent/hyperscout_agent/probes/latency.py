"""Measures round trips to other nodes with pings between agents, on request of the collector.

The probe reports one finding for each compute interface: where it answers pings, and the results for each
peer. It sends nothing without a task of the collector, and answers only packets with a live task's key.
"""

import logging
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from hyperscout.v1.discovery_pb2 import MeasurePairs
from hyperscout.v1.finding_pb2 import LatencyPort as LatencyPortMessage
from hyperscout_formats.facts.facts import LatencyPort, LatencyResult
from hyperscout_formats.facts.wire_measured import latency_to_proto

from hyperscout_agent.findings.probe import Observation, ProbeError, Scope, Sight, data
from hyperscout_agent.ping.bucket import Bucket
from hyperscout_agent.ping.interfaces import MAX_INTERFACES, PingInterface, ping_interfaces
from hyperscout_agent.ping.keys import Keyring
from hyperscout_agent.ping.rdma import RdmaPings
from hyperscout_agent.ping.responder import Responder
from hyperscout_agent.ping.results import Results
from hyperscout_agent.ping.tasks import PairTasks
from hyperscout_agent.runtime.threads import in_thread

_log = logging.getLogger(__name__)

# The store accepts findings up to 256 KiB. The overhead around the payload is small.
_MAX_PAYLOAD_BYTES = 240 * 1024
_LEAST_TOLD = 0.05  # smallest share of results with history that is tried; below it all histories are dropped
UNSTAMPED = "the kernel gives no time stamps here: round trips are some microseconds too long"

Interfaces = Callable[[], Sequence[PingInterface]]


class LatencyProbe:
    """Answers pings and runs pair tasks.

    `interfaces`: returns the interfaces; may block. `interval_s`: seconds between runs, and so the minimum
    interval between two publications of results.
    """

    name = "latency"
    scope: Scope = "pair"
    timeout_s = 10.0
    max_findings = MAX_INTERFACES

    def __init__(
        self,
        *,
        interfaces: Interfaces,
        port: int = 0,
        max_kbps: float = 200.0,
        interval_s: float = 10.0,
        ib_send_lat: Sequence[str] = ("ib_send_lat",),
        ib_send_bw: Sequence[str] = ("ib_send_bw",),
        clock: Callable[[], float] = time.monotonic,
        wall_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self.interval_s: float | None = interval_s
        self.keyring = Keyring()
        self.bucket = Bucket(max_kbps, clock)
        self.responder = Responder(self.keyring, self.bucket, clock=clock)
        self.tasks = PairTasks(
            self.responder,
            self.keyring,
            self.bucket,
            RdmaPings(ib_send_lat=ib_send_lat, ib_send_bw=ib_send_bw, bucket=self.bucket, clock=clock),
            rdma_port_of=self._rdma_port_of,
            record=self._take,
            clock=clock,
            wall_ns=wall_ns,
        )
        self._look = interfaces
        self._port = port
        self._interfaces: dict[str, PingInterface] = {}
        self._troubles: dict[str, str] = {}
        self._results: dict[str, Results] = {}
        # Payloads by interface, with the inputs they were built from. Rebuilding thousands of results in
        # every run is too expensive.
        self._payloads: dict[str, tuple[object, LatencyPortMessage]] = {}

    def measure_pairs(self, directive: MeasurePairs) -> None:
        self.tasks.take(directive.tasks)

    def stop_measuring(self) -> None:
        """End all tasks and remove their keys. Results stay."""
        self.tasks.stop()

    def close(self) -> None:
        self.tasks.stop()
        self.responder.close_all()

    async def observe(self) -> Observation:
        try:
            found = await in_thread(self._look, "ping-interfaces")
        except OSError as error:
            raise ProbeError(f"the kernel does not tell its addresses: {error}") from error
        now = {one.name: one for one in found}
        for name in self._interfaces.keys() - now.keys():
            self.responder.close(name)
            self._results.pop(name, None)
            self._troubles.pop(name, None)
            self._payloads.pop(name, None)
        for name, one in now.items():
            before = self._interfaces.get(name)
            if before is None or before.addresses != one.addresses or name in self._troubles:
                self._open(one)
        self._interfaces = now
        return Observation({name: self._sight(one) for name, one in now.items()})

    def _open(self, one: PingInterface) -> None:
        try:
            self.responder.open(one.name, one.addresses, self._port)
        except OSError as error:
            trouble = f"nobody answers pings here: {error.strerror or error}"
            if self._troubles.get(one.name) != trouble:
                _log.warning("%s: %s", one.name, trouble)
            self._troubles[one.name] = trouble
        else:
            self._troubles.pop(one.name, None)

    def _sight(self, one: PingInterface) -> Sight:
        reason = self._troubles.get(one.name, "")
        if not reason and (not self.responder.stamping or self.tasks.unstamped):
            reason = UNSTAMPED
        return data(self._payload(one), reason)

    def _payload(self, one: PingInterface) -> LatencyPortMessage:
        """Return the payload of an interface. It is the same object while its inputs do not change."""
        results = self._results.get(one.name, Results())
        made_from = (one, self.responder.port_of(one.name), results.changes)
        made = self._payloads.get(one.name)
        if made is None or made[0] != made_from:
            made = self._payloads[one.name] = made_from, self._made_payload(one, results)
        return made[1]

    def _made_payload(self, one: PingInterface, results: Results) -> LatencyPortMessage:
        """Build a payload within the size limit: drop old histories first, then old results."""
        share = told = 1.0
        while True:
            message = latency_to_proto(
                LatencyPort(
                    one.name,
                    one.addresses,
                    self.responder.port_of(one.name),
                    one.rdma_port,
                    results.newest(share, told),
                )
            )
            if message.ByteSize() <= _MAX_PAYLOAD_BYTES:
                return message
            if told > 0:
                told = told / 2 if told > _LEAST_TOLD else 0.0
            else:
                share *= 0.9

    def _take(self, interface: str, result: LatencyResult) -> None:
        if interface in self._interfaces:
            self._results.setdefault(interface, Results()).put(result)

    def _rdma_port_of(self, interface: str) -> str:
        one = self._interfaces.get(interface)
        return one.rdma_port if one else ""


def interfaces_of(sysfs: Path, pattern: re.Pattern[str] | None) -> Interfaces:
    """Return the function that finds the interfaces of this host."""
    return lambda: ping_interfaces(sysfs, pattern)
