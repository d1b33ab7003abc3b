"""Follows the evidence and makes snapshots of it.

The values of a node are rebuilt only when a commit touches that node. A change among ten thousand agents thus
costs the work for one node and a copy of the tables.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Generic, TypeVar

from hyperscout_formats.facts.facts import (
    Gpu,
    InfinibandPort,
    LatencyPort,
    LldpPort,
    NcclRun,
    SwitchPort,
)
from hyperscout_formats.text.reporters import DEVICE_PROBE
from hyperscout_runtime.units import NS
from hyperscout_topology.memo import Followed

from hyperscout_collector.evidence.measurements import Measured, PairGrace, PairTables, measured_by
from hyperscout_collector.evidence.rows import FAILED, SAME_CLOCK_NS, Row, SweepFact
from hyperscout_collector.evidence.snapshot import Snapshot
from hyperscout_collector.evidence.state import COUNTING_PROBE, EvidenceState, KeyChange
from hyperscout_collector.evidence.switch_tables import TableReading, readings_of

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class _Node:
    """What the findings of one reporter say."""

    lldp: tuple[LldpPort, ...]
    infiniband: tuple[InfinibandPort, ...]
    gpus: tuple[Gpu, ...]
    latency: list[Row]
    nccl: tuple[NcclRun, ...]
    switch_ports: tuple[SwitchPort, ...]
    tables: tuple[TableReading, ...]
    sweeps: tuple[Row, ...]
    unsure: bool


@dataclass(frozen=True, slots=True)
class _Times:
    """When the findings of one reporter were made: Unix ns of the newest one, 0 without one."""

    infiniband_at_ns: int
    infiniband_up_ns: dict[tuple[int, int], int]
    seen_ns: int
    device_seen_ns: int  # of findings that a device in the node reports, beside its agent
    failed_ns: int  # time of the newest reading, where all readings failed


class _Table(Generic[_T]):
    """What reporters say. A snapshot takes over what did not change since the one before."""

    def __init__(self) -> None:
        self._changes: dict[str, _T | None] = {}
        self._last = Followed[_T]()

    def set(self, name: str, value: _T) -> None:
        """Set the value of a reporter; an empty one removes it. An equal one is no change."""
        known = self._changes[name] if name in self._changes else self._last.get(name)
        if known != (value or None):
            self._changes[name] = value or None

    def snapshot(self) -> Followed[_T]:
        if self._changes:
            self._last, self._changes = self._last.after(self._changes), {}
        return self._last


class InputsView:
    """Follows the evidence. Call `touch` with the reporters that were loaded at the start.

    `stale_after_s`: a reporter that is silent this long is stale.

    Nothing is stale until `stale_after_s` after `started_ns`: before, the collector was not there to receive.
    """

    def __init__(self, state: EvidenceState, stale_after_s: float, started_ns: int) -> None:
        self.next_stale_ns: int | None = None  # when the next reporter turns stale
        self._state = state
        self._stale_after_ns = int(stale_after_s * NS)
        self._started_ns = started_ns
        self._lldp = _Table[tuple[LldpPort, ...]]()
        self._infiniband = _Table[tuple[InfinibandPort, ...]]()
        self._infiniband_at_ns = _Table[int]()
        self._infiniband_up_ns = _Table[dict[tuple[int, int], int]]()
        self._gpus = _Table[tuple[Gpu, ...]]()
        self._latency: dict[str, Measured] = {}
        self._pair_grace = PairGrace()
        self.tables = PairTables()
        self._nccl = _Table[tuple[NcclRun, ...]]()
        self._switch_ports = _Table[tuple[SwitchPort, ...]]()
        self._tables: dict[str, tuple[TableReading, ...]] = {}
        self._seen_ns: dict[str, int] = {}
        self._device_seen_ns: dict[str, int] = {}
        self._failed_ns: dict[str, int] = {}
        self._sweeps: dict[str, tuple[Row, ...]] = {}
        self._unsure: dict[str, bool] = {}

    def follow(self, changes: Sequence[KeyChange]) -> None:
        """Apply the changes of a commit."""
        changed = {change.key.node for change in changes if not change.is_renewal}
        self.touch(changed)
        for name in {change.key.node for change in changes} - changed:
            self._renew(name)

    def touch(self, nodes: Iterable[str]) -> None:
        """Read the evidence of these reporters again."""
        for name in list(nodes):
            rows = list(self._state.rows_of_node(name))
            node, times = _node(rows), _times(rows)
            self._set_times(name, times)
            self._lldp.set(name, node.lldp)
            self._infiniband.set(name, node.infiniband)
            self._gpus.set(name, node.gpus)
            before = self._latency.get(name)
            measured = measured_by(node.latency, before)
            self._pair_grace.touch(name, before, measured, times.seen_ns)
            _set(self._latency, name, measured)
            self._nccl.set(name, node.nccl)
            self._switch_ports.set(name, node.switch_ports)
            _set(self._tables, name, node.tables)
            _set(self._sweeps, name, node.sweeps)
            _set(self._unsure, name, node.unsure)

    def _renew(self, name: str) -> None:
        """Read the times alone of a reporter's evidence again."""
        if name in self._latency or name in self._tables or name in self._sweeps:
            self.touch((name,))  # they contain times
        else:
            self._set_times(name, _times(list(self._state.rows_of_node(name))))

    def _set_times(self, name: str, times: _Times) -> None:
        self._infiniband_up_ns.set(name, times.infiniband_up_ns)
        self._infiniband_at_ns.set(name, times.infiniband_at_ns)
        _set(self._seen_ns, name, times.seen_ns)
        _set(self._device_seen_ns, name, times.device_seen_ns)
        _set(self._failed_ns, name, times.failed_ns)

    def snapshot(self, now_ns: int) -> Snapshot:
        limit_ns = now_ns - self._stale_after_ns
        if limit_ns < self._started_ns:
            limit_ns = 0
        tables = tuple(reading for readings in self._tables.values() for reading in readings)
        reporters = (self._seen_ns, self._device_seen_ns)

        def times() -> Iterator[int]:
            read = (reading.row.seen_ns for reading in tables)
            return chain(self._seen_ns.values(), self._device_seen_ns.values(), read)

        fresh, stale = min(times(), default=None), dict[str, int]()
        if fresh is not None and fresh < limit_ns:
            fresh = min((ns for ns in times() if ns >= limit_ns), default=None)
            stale = {node: ns for seen_ns in reporters for node, ns in seen_ns.items() if ns < limit_ns}
        self.next_stale_ns = None
        if fresh is not None:
            self.next_stale_ns = max(fresh, self._started_ns) + self._stale_after_ns + 1
        return Snapshot(
            self._lldp.snapshot(),
            self._infiniband.snapshot(),
            self._infiniband_at_ns.snapshot(),
            self._gpus.snapshot(),
            self._pair_grace.added_to(self._latency, now_ns),
            self._nccl.snapshot(),
            self._switch_ports.snapshot(),
            tables,
            tuple(row for rows in self._sweeps.values() for row in rows),
            stale,
            limit_ns,
            self.tables,
            frozenset(self._unsure),
            self._infiniband_up_ns.snapshot(),
        )

    def measured(self) -> dict[str, Measured]:
        """Returns the measurements of nodes, for `tables`.

        Kept results of restarted agents are not included.
        """
        return dict(self._latency)

    @property
    def reporters(self) -> int:
        """Number of reporters with a successful reading."""
        return len(self._seen_ns)

    def seen_ns(self, name: str) -> int:
        """Returns when this reporter made its newest successful reading, Unix ns; 0 = there is none."""
        return self._seen_ns.get(name, 0)

    def unseen_since(self, ns: int) -> list[str]:
        """Returns the reporters with no successful reading since `ns`."""
        seen_ns, device_ns = self._seen_ns, self._device_seen_ns
        old = [x for x, at_ns in chain(seen_ns.items(), device_ns.items()) if at_ns < ns]
        return [x for x in dict.fromkeys(old) if max(seen_ns.get(x, 0), device_ns.get(x, 0)) < ns]

    def failed_before(self, ns: int) -> list[str]:
        """Returns the reporters of which all readings failed, the newest of them before `ns`."""
        return [x for x, failed_ns in self._failed_ns.items() if failed_ns < ns]

    def unseen_devices(self, ns: int) -> list[str]:
        """Returns the nodes with a device that has no successful reading since `ns`."""
        return [node for node, seen_ns in self._device_seen_ns.items() if seen_ns < ns]


def _node(rows: Sequence[Row]) -> _Node:
    lldp: list[LldpPort] = []
    infiniband: list[InfinibandPort] = []
    gpus: list[Gpu] = []
    latency: list[Row] = []
    nccl: list[NcclRun] = []
    switch_ports: list[SwitchPort] = []
    sweeps: list[Row] = []
    observed: set[str] = set()
    only_failed: set[str] = set()
    for row in rows:
        if row.key.probe == "lldp" and row.key.subject != "*":
            (only_failed if row.rank == FAILED else observed).add(row.key.subject)
        match row.fact:
            case LldpPort():
                lldp.append(row.fact)
            case InfinibandPort():
                infiniband.append(row.fact)
            case SweepFact() if row.key.probe != COUNTING_PROBE:
                sweeps.append(row)
            case Gpu():
                gpus.append(row.fact)
            case LatencyPort():
                latency.append(row)
            case NcclRun():
                nccl.append(row.fact)
            case SwitchPort():
                switch_ports.append(row.fact)
    return _Node(
        lldp=tuple(sorted(lldp, key=lambda port: port.interface)),
        infiniband=tuple(sorted(infiniband, key=lambda port: (port.device, port.port))),
        gpus=tuple(sorted(gpus, key=lambda gpu: gpu.pci_address)),
        latency=latency,
        nccl=tuple(sorted(nccl, key=lambda run: (run.peer, run.method))),
        switch_ports=tuple(sorted(switch_ports, key=lambda port: port.interface)),
        tables=readings_of(rows),
        sweeps=tuple(sweeps),
        unsure=not only_failed <= observed,
    )


def _times(rows: Sequence[Row]) -> _Times:
    seen_ns = device_seen_ns = infiniband_at_ns = 0
    up_ns: dict[tuple[int, int], int] = {}
    for row in rows:
        at_ns, fact = row.seen_ns, row.fact
        if row.rank != FAILED:
            if row.key.probe == DEVICE_PROBE:
                device_seen_ns = max(device_seen_ns, at_ns)
            else:
                seen_ns = max(seen_ns, at_ns)
        if isinstance(fact, InfinibandPort):
            # The newest reading dates them all: an unchanged port is not sent again.
            infiniband_at_ns = max(infiniband_at_ns, at_ns)
            since_ns = fact.active_since_ns - row.offset_ns
            # A later time is of a clock that was set since, or false.
            if fact.active_since_ns and since_ns <= at_ns + SAME_CLOCK_NS:
                up_ns[fact.node_guid, fact.port] = since_ns
    return _Times(
        infiniband_at_ns=infiniband_at_ns,
        infiniband_up_ns=up_ns,
        seen_ns=seen_ns,
        device_seen_ns=device_seen_ns,
        failed_ns=0 if seen_ns or device_seen_ns else max((row.seen_ns for row in rows), default=0),
    )


def _set(table: dict[str, _T], name: str, value: _T) -> None:
    if value:
        table[name] = value
    else:
        table.pop(name, None)
