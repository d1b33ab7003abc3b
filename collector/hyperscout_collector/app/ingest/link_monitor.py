"""Passes the port counters in the evidence, with their times, to `LinkHealth`.

A commit that changes only counters does not start an inference. An inference starts when `LinkHealth`
changes its assessment of a port.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from hyperscout_formats.facts.facts import (
    InfinibandPort,
    LldpPort,
    PortCounters,
    SwitchPort,
    SwitchTable,
)
from hyperscout_formats.infiniband import ibqueryerrors
from hyperscout_formats.infiniband.counters import (
    LINK_DOWNED_FULL,
    discards_are_full,
    errors_are_full,
)
from hyperscout_formats.text.errors import FormatError
from hyperscout_inference.audit.erroring import KIND as ERRORING
from hyperscout_inference.fabric.inputs import FabricInputs, PortHealth
from hyperscout_runtime.bounded_executor import BoundedExecutor
from hyperscout_runtime.units import NS
from hyperscout_topology.topology import Topology

from hyperscout_collector.app.ingest.port_owners import PortOwners
from hyperscout_collector.decisions.fabric.link_health import (
    NOTHING_COUNTED,
    CounterSample,
    Counts,
    HealthSettings,
    LinkHealth,
    Port,
)
from hyperscout_collector.evidence.guard import EvidenceGuard
from hyperscout_collector.evidence.rows import FAILED, WHOLE, Key, Row
from hyperscout_collector.evidence.state import COUNTING_PROBE, KeyChange
from hyperscout_collector.evidence.sweep_texts import SweepTexts
from hyperscout_collector.ingest.session import TextReader
from hyperscout_collector.store.errors import StoreError

_log = logging.getLogger(__name__)

# Texts that wait to be read: at most one per key. There are as many keys as sweep leases.
_MAX_WAITING = 256
# Counters of a fabric that are this old are dropped: the sweep lease moved to another agent or ended. The
# value is far above the sweep interval.
_FORGET_AFTER_S = 3600.0


class LinkMonitor:
    """Assesses ports by their counters. Calls `changed` when an assessment changes. Run `run` as a task."""

    def __init__(
        self,
        settings: HealthSettings,
        texts: SweepTexts,
        guard: EvidenceGuard,
        owners: PortOwners,
        clock_ns: Callable[[], int],
        changed: Callable[[], None],
        published: Topology | None,
    ) -> None:
        """`published`: the published topology at the start, which says until when flaps of before count."""
        self._guard = guard
        self._machine = LinkHealth(settings)
        self._texts = texts
        self._owners = owners
        self._clock_ns = clock_ns
        self._changed = changed
        # Agents report counters once a minute, so at this time the window is full, or no counters exist.
        self._young_until_ns: int | None = clock_ns() + round((settings.window_s + 60) * NS)
        self._flapped = {
            x.ends: x.clears_ns
            for x in (published.anomalies if published else ())
            if x.kind == ERRORING and x.peer is not None and x.clears_ns and not x.is_over
        }
        self._news = False  # not reported yet, also by a call of `follow` that raised
        self._waiting: OrderedDict[Key, Row] = OrderedDict()
        self._work = asyncio.Event()
        self._read: dict[Key, tuple[bytes, CounterSample]] = {}  # digest and counters of the text read last
        self._in_thread = BoundedExecutor("link-counters")

    @property
    def health(self) -> Mapping[Port, PortHealth]:
        """The ports that exceed a threshold at present, with their rates."""
        return self._machine.health

    def erroring(self) -> dict[str, int]:
        """The number of ports over a threshold: of errors, of discards, of flaps."""
        wrong = self.health.values()
        return {
            "errors": sum(x.errors_per_s > 0 for x in wrong),
            "discards": sum(x.discards_per_s > 0 for x in wrong),
            "flaps": sum(x.flaps_per_hour > 0 for x in wrong),
        }

    @property
    def watched(self) -> int:
        """The number of ports whose counters changed recently."""
        return self._machine.watched

    def added_to(self, inputs: FabricInputs) -> FabricInputs:
        """The inputs of inference with the health of ports. Thread-safe."""
        return replace(
            inputs,
            health=self.health,
            health_is_young=self._young_until_ns is not None,
            flapped=frozenset(self._flapped),
        )

    def reader(self, others: TextReader) -> TextReader:
        """A reader for incoming texts. `others` reads the texts of fabrics.

        A text of error counters contains no fabric, so the reader only parses it to check its format.
        """

        def read(sha256: bytes, text: bytes, source: str, text_format: str) -> object:
            if text_format == COUNTING_PROBE:
                return ibqueryerrors.parse(text, source)
            return others(sha256, text, source, text_format)

        return read

    def follow(self, changes: Sequence[KeyChange]) -> None:
        """A commit changed the evidence."""
        now_ns = self._clock_ns()
        old_ns = now_ns - round(_FORGET_AFTER_S * NS)
        for change in changes:
            is_counting = change.key.probe == COUNTING_PROBE
            if change.is_renewal and not is_counting and not self._machine.watches(change.key):
                continue
            row = _seen(change.after)
            if is_counting:
                if row is None:
                    self._waiting.pop(change.key, None)
                    self._read.pop(change.key, None)
                    self._news |= self._machine.forget(change.key)
                elif row not in change.before:
                    self._wait_for(change.key, row)
                continue
            before = _seen(change.before)
            if row is None or before is None:
                self._news |= self._machine.forget(change.key)
            elif not self._matters(change.key, before, row):
                continue
            elif not self._owners.may_count(row):
                self._news |= self._machine.forget(change.key)
            else:
                self._news |= self._machine.compare(change.key, _sample(before), _sample(row))
        for key in [key for key, (_, sample) in self._read.items() if sample.at_ns < old_ns]:
            del self._read[key]
            self._news |= self._machine.forget(key)
        if self._young_until_ns is not None and now_ns >= self._young_until_ns:
            self._young_until_ns = None
            self._news = True
        if over := [ends for ends, clears_ns in self._flapped.items() if clears_ns <= now_ns]:
            self._flapped = {ends: at_ns for ends, at_ns in self._flapped.items() if ends not in over}
            self._news = True
        if self._news:
            self._news = False
            self._changed()

    async def run(self) -> None:
        """Read waiting texts until cancelled."""
        while True:
            await self._work.wait()
            self._work.clear()
            while self._waiting:
                key, row = self._waiting.popitem(last=False)
                with self._guard.reading("the reading of port counters", key):
                    await self._take(key, row)

    def _matters(self, key: Key, before: Row, row: Row) -> bool:
        """Whether a reading needs assessment: it differs from the one before, or the port is watched.

        Most readings equal the one before.
        """
        return before.fact != row.fact or self._machine.watches(key)

    def _wait_for(self, key: Key, row: Row) -> None:
        self._waiting.pop(key, None)
        if len(self._waiting) >= _MAX_WAITING:
            self._waiting.popitem(last=False)
        self._waiting[key] = row
        self._work.set()

    async def _take(self, key: Key, row: Row) -> None:
        digest, before = self._read.get(key, (b"", None))
        if row.sha256 is None:
            return
        if before is not None and digest == row.sha256:
            found = before.ports
        else:
            try:
                found = await self._in_thread(self._ports, row.sha256, f"{key.probe} of {key.node}")
            except (FormatError, StoreError) as error:
                # The text was valid when it arrived: it was replaced since, or the store has failed.
                _log.warning("%s", error)
                return
        if before is not None and row.rank != WHOLE:
            found = {**before.ports, **found}  # a partial sweep did not read all ports
        now = CounterSample(row.seen_ns, found, key.probe)
        self._read[key] = row.sha256, now
        if before is None or row.seen_ns <= before.at_ns:
            return
        ports = before.ports.keys() | found.keys()  # a port that the text omits has counted nothing
        samples = (
            CounterSample(
                one.at_ns, {port: one.ports.get(port, NOTHING_COUNTED) for port in ports}, key.probe
            )
            for one in (before, now)
        )
        if self._machine.compare(key, *samples):
            self._changed()

    def _ports(self, sha256: bytes, source: str) -> dict[Port, Counts]:
        """Read a text from the store. Blocks: call it in a thread. Raises FormatError, StoreError."""
        found, _ = ibqueryerrors.parse(self._texts.text(sha256, source), source)
        return {
            (f"{guid:016x}", str(port)): _infiniband(errors.counters, errors.link_downed)
            for (guid, port), errors in found.items()
        }


def _seen(rows: Sequence[Row]) -> Row | None:
    """The newest row that contains a fact and did not fail."""
    seen = (row for row in rows if row.rank != FAILED and row.fact is not None)
    return max(seen, key=lambda row: row.seen_ns, default=None)


def _sample(row: Row) -> CounterSample:
    return CounterSample(row.seen_ns, dict(_counted(row)), row.key.probe)


def _counted(row: Row) -> Iterator[tuple[Port, Counts]]:
    """The counters in a finding, by device id and port as in links."""
    match row.fact:
        case LldpPort(interface=interface) as port:
            yield (row.key.node, interface), _ethernet(port)
        case SwitchPort() as port:
            yield (port.chassis_id, port.port_id), _ethernet(port)
        case SwitchTable(ports=ports):
            for port in ports:
                if port.port_id:
                    yield (port.chassis_id, port.port_id), _ethernet(port)
        case InfinibandPort(link_layer="InfiniBand") as port:
            counts = _infiniband(port.counters, port.link_downed, up=port.state != "DOWN")
            yield (f"{port.node_guid:016x}", str(port.port)), counts


def _ethernet(port: LldpPort | SwitchPort) -> Counts:
    counters = port.counters
    # Not every driver includes CRC errors in rx_errors.
    errors = max(counters.rx_errors, counters.rx_crc_errors) + counters.tx_errors
    # 0 = not counted: SNMP reports no carrier changes, and every port that is up has had at least one.
    changes = port.carrier_changes or None
    return Counts(errors, counters.rx_dropped + counters.tx_dropped, changes, port.carrier)


def _infiniband(counters: PortCounters, link_downed: int, *, up: bool = True) -> Counts:
    return Counts(
        None if errors_are_full(counters) else counters.rx_errors,
        None if discards_are_full(counters) else counters.tx_dropped,
        None if link_downed == LINK_DOWNED_FULL else 2 * link_downed,
        up,
    )
