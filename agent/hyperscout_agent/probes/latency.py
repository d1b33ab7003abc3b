"""Measures round trips to other nodes with pings between agents, on request of the collector.

The probe reports one finding for each compute interface: where it answers pings, and the results for each
peer. It sends nothing without a task of the collector, and answers only packets with a live task's key.
"""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from hyperscout.v1.discovery_pb2 import MeasurePairs
from hyperscout.v1.finding_pb2 import LatencyPort as LatencyPortMessage
from hyperscout_formats.facts.facts import LatencyPort, LatencyResult
from hyperscout_formats.facts.wire_measured import latency_to_proto
from hyperscout_formats.text.prometheus_text import counter, gauge

from hyperscout_agent.findings.probe import (
    Observation,
    ProbeContext,
    ProbeError,
    ProbeParts,
    Sample,
    Scope,
    data,
)
from hyperscout_agent.ping.bucket import Bucket
from hyperscout_agent.ping.interfaces import MAX_INTERFACES, PingInterface, ping_interfaces
from hyperscout_agent.ping.keys import Keyring
from hyperscout_agent.ping.rdma import RdmaPings
from hyperscout_agent.ping.responder import Responder
from hyperscout_agent.ping.results import Results
from hyperscout_agent.ping.tasks import PairTasks
from hyperscout_agent.runtime.ports import compiled
from hyperscout_agent.runtime.threads import in_thread

_log = logging.getLogger(__name__)

# The store accepts findings up to 256 KiB. The overhead around the payload is small.
_MAX_PAYLOAD_BYTES = 240 * 1024
# Smallest share of results with history that is tried. Below it all histories are dropped.
_MIN_HISTORY_SHARE = 0.05
UNSTAMPED = "the kernel gives no time stamps here: the measured round trips are some microseconds too long"

ListInterfaces = Callable[[], Sequence[PingInterface]]


LATENCY_TASKS = gauge("hyperscout_agent_latency_tasks", "Pair tasks in progress; 0 when nothing is measured.")
PINGS_SENT = counter("hyperscout_agent_latency_pings_sent_total", "Pings sent.")
ANSWERS_RECEIVED = counter("hyperscout_agent_latency_answers_received_total", "Answers to pings, received.")
PINGS_RECEIVED = counter(
    "hyperscout_agent_latency_pings_received_total", "Packets received on the ports that answer pings."
)
ANSWERS_SENT = counter("hyperscout_agent_latency_answers_sent_total", "Pings answered.")
SENT_BYTES = counter(
    "hyperscout_agent_latency_sent_bytes_total",
    "Bytes of measurements sent, with headers; latency.max_kbps limits them.",
)
UNSTAMPED_BURSTS = counter(
    "hyperscout_agent_latency_unstamped_bursts_total", "Bursts without kernel time stamps."
)
BURSTS = counter("hyperscout_agent_latency_bursts_total", "Bursts by outcome: measured, failed.", "outcome")
TASKS_REFUSED = counter(
    "hyperscout_agent_latency_tasks_refused_total", "Pair tasks that were rejected, by reason.", "reason"
)
PINGS_DROPPED = counter(
    "hyperscout_agent_latency_pings_dropped_total",
    "Packets that were not answered, by reason; forged and replayed ones may be attacks.",
    "reason",
)
ANSWERS_DROPPED = counter(
    "hyperscout_agent_latency_answers_dropped_total",
    "Answers and samples that were rejected, by reason.",
    "reason",
)


def build(context: ProbeContext) -> ProbeParts | None:
    settings = context.settings.latency
    if not settings.enabled:
        return None
    probe = LatencyProbe(
        interfaces=partial(ping_interfaces, context.sysfs, compiled(settings.interfaces)),
        port=settings.port,
        max_kbps=settings.max_kbps,
        ib_send_lat=settings.ib_send_lat,
        ib_send_bw=settings.ib_send_bw,
        wall_ns=context.now_ns,
    )
    return ProbeParts(
        probe,
        directives={
            "measure_pairs": probe.measure_pairs,
            "stop_measuring": lambda _: probe.stop_measuring(),
        },
        stream_ended=probe.stop_measuring,
        metrics=probe.metrics,
    )


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
        interfaces: ListInterfaces,
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
        self._list_interfaces = interfaces
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
            found = await in_thread(self._list_interfaces, "ping-interfaces")
        except OSError as error:
            raise ProbeError(f"the kernel did not list its addresses: {error}") from error
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
        return Observation({name: self._sample(one) for name, one in now.items()})

    def _open(self, one: PingInterface) -> None:
        try:
            self.responder.open(one.name, one.addresses, self._port)
        except OSError as error:
            trouble = f"the agent cannot answer pings here: {error.strerror or error}"
            if self._troubles.get(one.name) != trouble:
                _log.warning("%s: %s", one.name, trouble)
            self._troubles[one.name] = trouble
        else:
            self._troubles.pop(one.name, None)

    def _sample(self, one: PingInterface) -> Sample:
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
        share = with_history = 1.0
        while True:
            message = latency_to_proto(
                LatencyPort(
                    one.name,
                    one.addresses,
                    self.responder.port_of(one.name),
                    one.rdma_port,
                    results.newest(share, with_history),
                )
            )
            if message.ByteSize() <= _MAX_PAYLOAD_BYTES:
                return message
            if with_history > 0:
                with_history = with_history / 2 if with_history > _MIN_HISTORY_SHARE else 0.0
            else:
                share *= 0.9

    def _take(self, interface: str, result: LatencyResult) -> None:
        if interface in self._interfaces:
            self._results.setdefault(interface, Results()).put(result)

    def _rdma_port_of(self, interface: str) -> str:
        one = self._interfaces.get(interface)
        return one.rdma_port if one else ""

    def metrics(self) -> Iterator[str]:
        """Yield the probe's metrics."""
        tasks, responder = self.tasks, self.responder
        yield LATENCY_TASKS.of(len(tasks))
        yield PINGS_SENT.of(tasks.sent)
        yield ANSWERS_RECEIVED.of(tasks.received)
        yield PINGS_RECEIVED.of(responder.received)
        yield ANSWERS_SENT.of(responder.sent)
        yield SENT_BYTES.of(self.bucket.sent_bytes)
        yield UNSTAMPED_BURSTS.of(tasks.unstamped)
        yield BURSTS.by({"measured": 0, "failed": 0} | dict(tasks.bursts))
        yield TASKS_REFUSED.by(dict(sorted(tasks.refused.items())))
        yield PINGS_DROPPED.by(dict(sorted(self.keyring.dropped.items())))
        yield ANSWERS_DROPPED.by(dict(sorted(tasks.dropped.items())))
