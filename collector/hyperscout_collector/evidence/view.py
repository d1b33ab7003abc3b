"""Prepares the current evidence for inference: readings by node, sweeps in force, and stale reporters.

The values of a node are rebuilt only when a commit touches that node. A change among ten thousand agents thus
costs the work for one node and a copy of the tables.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TypeVar

import numpy as np
from hyperscout_formats.facts.facts import (
    Gpu,
    InfinibandPort,
    LatencyPort,
    LldpPort,
    NcclRun,
    SwitchPort,
)
from hyperscout_formats.infiniband.ibnetdiscover import SWITCH, Sweep
from hyperscout_formats.text.errors import FormatError
from hyperscout_formats.text.reporters import DEVICE_PROBE, is_node
from hyperscout_inference.fabric.inputs import FabricInputs, SweepSeen
from hyperscout_inference.fabric.managed_nvlink import SOURCE as NVLINK_MANAGER
from hyperscout_topology.topology import Topology

from hyperscout_collector.evidence.measurements import Measured, PairGrace, PairTables, measured_by
from hyperscout_collector.evidence.rows import FAILED, WHOLE, Key, Row, SweepFact
from hyperscout_collector.evidence.state import COUNTING_PROBE, EvidenceState, KeyChange
from hyperscout_collector.evidence.sweep_texts import SweepTexts
from hyperscout_collector.evidence.switch_tables import TableReading, in_force, readings_of
from hyperscout_collector.store.errors import StoreError

_T = TypeVar("_T")
Ids = np.ndarray[tuple[int], np.dtype[np.uint64]]
_NO_IDS: Ids = np.zeros(0, np.uint64)

# A newer whole sweep replaces an older one of the same probe if it contains this share of the older one's
# switches. With a smaller share, the fabric has split (or a single leaf was swept). The older sweep then
# stays for the rest until that is swept too.
_COVERED = 0.5


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The evidence that the event loop passes to the inference thread.

    Times are Unix ns by the collector's clock.
    """

    lldp: Mapping[str, tuple[LldpPort, ...]]
    infiniband: Mapping[str, tuple[InfinibandPort, ...]]
    infiniband_at_ns: Mapping[str, int]
    gpus: Mapping[str, tuple[Gpu, ...]]
    latency: Mapping[str, Measured]
    nccl: Mapping[str, tuple[NcclRun, ...]]
    switch_ports: Mapping[str, tuple[SwitchPort, ...]]  # by reporter: "switch/NAME"
    tables: tuple[TableReading, ...]  # of whole switches, of all reporters
    sweeps: tuple[Row, ...]
    stale: Mapping[str, int]  # reporter -> when it was last seen
    limit_ns: int  # evidence seen before this is stale
    pair_tables: PairTables  # parses `latency`
    unsure: frozenset[str] = frozenset()  # nodes with an LLDP port that has only failed readings

    @property
    def reporters(self) -> frozenset[str]:
        """All reporters with evidence in the snapshot."""
        tables = (self.lldp, self.infiniband, self.gpus, self.latency, self.nccl, self.switch_ports)
        readings = (reading.row.key.node for reading in self.tables)
        return frozenset(chain(*tables, readings, (row.key.node for row in self.sweeps)))

    def chassis_of(self, reporter: str) -> frozenset[str]:
        """Returns the ids of the switches that a reporter reports as itself."""
        return frozenset(port.chassis_id for port in self.switch_ports.get(reporter, ()))

    def with_earlier(self, reporters: Collection[str], earlier: "Snapshot") -> "Snapshot":
        """Returns the snapshot with the evidence of these reporters replaced by that in `earlier`."""
        if not reporters:
            return self
        chosen = frozenset(reporters)

        def of(now: Mapping[str, _T], then: Mapping[str, _T]) -> dict[str, _T]:
            found = {name: value for name, value in now.items() if name not in chosen}
            return found | {name: then[name] for name in chosen if name in then}

        return replace(
            self,
            lldp=of(self.lldp, earlier.lldp),
            infiniband=of(self.infiniband, earlier.infiniband),
            infiniband_at_ns=of(self.infiniband_at_ns, earlier.infiniband_at_ns),
            gpus=of(self.gpus, earlier.gpus),
            latency=of(self.latency, earlier.latency),
            nccl=of(self.nccl, earlier.nccl),
            switch_ports=of(self.switch_ports, earlier.switch_ports),
            tables=(
                *(reading for reading in self.tables if reading.row.key.node not in chosen),
                *(reading for reading in earlier.tables if reading.row.key.node in chosen),
            ),
            sweeps=(
                *(row for row in self.sweeps if row.key.node not in chosen),
                *(row for row in earlier.sweeps if row.key.node in chosen),
            ),
            unsure=(self.unsure - chosen) | (earlier.unsure & chosen),
        )


NO_EVIDENCE = Snapshot({}, {}, {}, {}, {}, {}, {}, (), (), {}, 0, PairTables())


@dataclass(frozen=True, slots=True)
class Resolved:
    """`superseded`: keys of sweeps that a newer sweep of the same fabric replaced, to be forgotten."""

    inputs: FabricInputs
    superseded: tuple[Key, ...] = ()
    problems: tuple[str, ...] = ()


@dataclass(slots=True)
class _Node:
    lldp: tuple[LldpPort, ...] = ()
    infiniband: tuple[InfinibandPort, ...] = ()
    infiniband_at_ns: int = 0
    gpus: tuple[Gpu, ...] = ()
    latency: list[Row] = field(default_factory=list)
    nccl: tuple[NcclRun, ...] = ()
    switch_ports: tuple[SwitchPort, ...] = ()
    tables: tuple[TableReading, ...] = ()
    seen_ns: int = 0
    device_seen_ns: int = 0  # of findings that a device in the node reports, beside its agent
    failed_ns: int = 0  # time of the newest reading, where all readings failed
    sweeps: tuple[Row, ...] = field(default_factory=tuple)
    unsure: bool = False


class InputsView:
    """Follows the evidence. Call `touch` with the reporters that were loaded at the start.

    `stale_after_s`: a reporter that is silent this long is stale.

    Nothing is stale until `stale_after_s` after `started_ns`: before, the collector was not there to receive.
    """

    def __init__(self, state: EvidenceState, stale_after_s: float, started_ns: int) -> None:
        self.next_stale_ns: int | None = None  # when the next reporter turns stale
        self._state = state
        self._stale_after_ns = int(stale_after_s * 1e9)
        self._started_ns = started_ns
        self._lldp: dict[str, tuple[LldpPort, ...]] = {}
        self._infiniband: dict[str, tuple[InfinibandPort, ...]] = {}
        self._infiniband_at_ns: dict[str, int] = {}
        self._gpus: dict[str, tuple[Gpu, ...]] = {}
        self._latency: dict[str, Measured] = {}
        self._pair_grace = PairGrace()
        self.tables = PairTables()
        self._nccl: dict[str, tuple[NcclRun, ...]] = {}
        self._switch_ports: dict[str, tuple[SwitchPort, ...]] = {}
        self._tables: dict[str, tuple[TableReading, ...]] = {}
        self._seen_ns: dict[str, int] = {}
        self._device_seen_ns: dict[str, int] = {}
        self._failed_ns: dict[str, int] = {}
        self._sweeps: dict[str, tuple[Row, ...]] = {}
        self._unsure: dict[str, bool] = {}

    def follow(self, changes: Sequence[KeyChange]) -> None:
        """Apply the changes of a commit."""
        self.touch({change.key.node for change in changes})

    def touch(self, nodes: Iterable[str]) -> None:
        """Read the evidence of these reporters again."""
        for name in list(nodes):
            node = _node(self._state.rows_of_node(name))
            _set(self._lldp, name, node.lldp)
            _set(self._infiniband, name, node.infiniband)
            _set(self._infiniband_at_ns, name, node.infiniband_at_ns)
            _set(self._gpus, name, node.gpus)
            before = self._latency.get(name)
            measured = measured_by(node.latency, before)
            self._pair_grace.touch(name, before, measured, node.seen_ns)
            _set(self._latency, name, measured)
            _set(self._nccl, name, node.nccl)
            _set(self._switch_ports, name, node.switch_ports)
            _set(self._tables, name, node.tables)
            _set(self._seen_ns, name, node.seen_ns)
            _set(self._device_seen_ns, name, node.device_seen_ns)
            _set(self._failed_ns, name, node.failed_ns)
            _set(self._sweeps, name, node.sweeps)
            _set(self._unsure, name, node.unsure)

    def snapshot(self, now_ns: int) -> Snapshot:
        limit_ns = now_ns - self._stale_after_ns
        if limit_ns < self._started_ns:
            limit_ns = 0
        tables = tuple(reading for readings in self._tables.values() for reading in readings)
        reporters = (self._seen_ns, self._device_seen_ns)
        times = chain(*(seen.values() for seen in reporters), (reading.row.seen_ns for reading in tables))
        fresh = min((ns for ns in times if ns >= limit_ns), default=None)
        self.next_stale_ns = None
        if fresh is not None:
            self.next_stale_ns = max(fresh, self._started_ns) + self._stale_after_ns + 1
        return Snapshot(
            dict(self._lldp),
            dict(self._infiniband),
            dict(self._infiniband_at_ns),
            dict(self._gpus),
            self._pair_grace.added_to(self._latency, now_ns),
            dict(self._nccl),
            dict(self._switch_ports),
            tables,
            tuple(row for rows in self._sweeps.values() for row in rows),
            {node: ns for seen_ns in reporters for node, ns in seen_ns.items() if ns < limit_ns},
            limit_ns,
            self.tables,
            frozenset(self._unsure),
        )

    def measured(self) -> dict[str, Measured]:
        """Returns the measurements of nodes, for `tables`.

        Kept results of restarted agents are not included.
        """
        return dict(self._latency)

    def unseen_since(self, ns: int) -> list[str]:
        """Returns the reporters with no successful reading since `ns`."""
        seen_ns, device_ns = self._seen_ns, self._device_seen_ns
        return [x for x in seen_ns | device_ns if max(seen_ns.get(x, 0), device_ns.get(x, 0)) < ns]

    def failed_before(self, ns: int) -> list[str]:
        """Returns the reporters of which all readings failed, the newest of them before `ns`."""
        return [x for x, failed_ns in self._failed_ns.items() if failed_ns < ns]

    def unseen_devices(self, ns: int) -> list[str]:
        """Returns the nodes with a device that has no successful reading since `ns`."""
        return [node for node, seen_ns in self._device_seen_ns.items() if seen_ns < ns]


def resolve(snapshot: Snapshot, texts: SweepTexts, node_map: Mapping[int, str]) -> Resolved:
    """Parse the sweeps of a snapshot and drop those that newer ones replaced. Blocks; call it in a thread."""
    problems: list[str] = []
    read: list[tuple[Row, Sweep]] = []
    managed: dict[str, tuple[Gpu, ...]] = {}
    kept: set[Key] = {row.key for row in snapshot.sweeps}
    for row in sorted(snapshot.sweeps, key=lambda row: (row.seen_ns, row.key, row.rank), reverse=True):
        if (digest := row.sha256) is None:
            continue
        source = f"{row.key.probe} of {row.key.node}"
        try:
            shown = texts.get(digest, source, row.key.probe)
        except (FormatError, StoreError) as error:
            problems.append(str(error))
            continue
        if isinstance(shown, Sweep):
            read.append((row, shown))
        else:  # the newest reading comes first
            managed = {**shown.gpus, **managed}
    current: list[tuple[Row, Sweep]] = []
    seen: dict[str, Ids] = {}  # by probe: switches in whole sweeps so far
    kept -= {row.key for row, _ in read}
    any_whole = any(row.rank == WHOLE for row, _ in read)
    for row, sweep in read:  # newest first
        if any_whole and row.rank != WHOLE and not (sweep.kind == SWITCH).any():
            continue  # It shows only its own adapter, which a whole sweep shows better.
        switches = _switches(sweep)
        # A manager's data and sweeps are independent sources: neither replaces the other. But a stale sweep
        # is dropped if any newer one shares a switch with it.
        known = seen.get(row.key.probe, _NO_IDS)
        if np.isin(switches, known).mean() >= _COVERED:
            continue
        if row.seen_ns < snapshot.limit_ns and any(np.isin(switches, ids).any() for ids in seen.values()):
            continue
        current.append((row, sweep))
        kept.add(row.key)
        if row.rank == WHOLE:
            seen[row.key.probe] = np.union1d(known, switches)
    inputs = FabricInputs(
        tuple(
            SweepSeen(sweep, row.key.probe, row.rank != WHOLE, row.seen_ns)
            for row, sweep in reversed(current)
        ),
        snapshot.lldp,
        snapshot.infiniband,
        snapshot.infiniband_at_ns,
        node_map,
        snapshot.gpus,
        frozenset(n for n, one in snapshot.latency.items() if any(port.udp_port for port in one.ports)),
        snapshot.pair_tables.read(snapshot.latency),
        snapshot.nccl,
        snapshot.switch_ports,
        frozenset(snapshot.stale),
        in_force(snapshot.tables, snapshot.limit_ns),
        managed_gpus=managed,
    )
    superseded = tuple(sorted({row.key for row, _ in read} - kept))
    return Resolved(inputs, superseded, tuple(problems))


def stale_nodes(snapshot: Snapshot, topology: Topology) -> dict[str, int]:
    """Returns when each stale node was last seen: Unix ns by node.

    A node without an agent is known from sweeps only. It is as old as the newest of them.
    """
    stale = {name: seen_ns for name, seen_ns in snapshot.stale.items() if is_node(name)}
    newest_ns = max((row.seen_ns for row in snapshot.sweeps if row.key.probe != NVLINK_MANAGER), default=0)
    if 0 < newest_ns < snapshot.limit_ns:
        spoken_for = {*snapshot.lldp, *snapshot.infiniband, *snapshot.gpus, *snapshot.latency}
        for hypernode in topology.hypernodes:
            if hypernode.tier == 1 and hypernode.source != "labels":
                for node in hypernode.nodes:
                    if node not in spoken_for:
                        stale.setdefault(node, newest_ns)
    return stale


def stale_switches(snapshot: Snapshot) -> dict[str, int]:
    """Returns when each stale switch was last seen: Unix ns by chassis id."""
    seen_ns: dict[str, int] = {}
    fresh: set[str] = set()
    for reporter, ports in snapshot.switch_ports.items():
        chassis = {port.chassis_id for port in ports}
        if reporter in snapshot.stale:
            seen_ns |= {id_: max(seen_ns.get(id_, 0), snapshot.stale[reporter]) for id_ in chassis}
        else:
            fresh |= chassis
    for reading in snapshot.tables:
        id_, row = reading.chassis_id, reading.row
        if row.seen_ns < snapshot.limit_ns:
            seen_ns[id_] = max(seen_ns.get(id_, 0), row.seen_ns)
        else:
            fresh.add(id_)
    return {id_: at_ns for id_, at_ns in seen_ns.items() if id_ not in fresh}


def _switches(sweep: Sweep) -> Ids:
    """Returns the GUIDs of the sweep's switches. Two sweeps that share a switch are of the same fabric.

    An adapter with two ports is in two fabrics, so adapters do not identify a fabric. Their GUIDs are
    returned only if the sweep has no switch.
    """
    switches = np.unique(sweep.guid[sweep.kind == SWITCH])
    return switches if len(switches) else np.unique(sweep.guid)


def _node(rows: Iterable[Row]) -> _Node:
    node = _Node()
    rows = list(rows)
    lldp: list[LldpPort] = []
    infiniband: list[InfinibandPort] = []
    gpus: list[Gpu] = []
    nccl: list[NcclRun] = []
    switch_ports: list[SwitchPort] = []
    sweeps: list[Row] = []
    observed: set[str] = set()
    only_failed: set[str] = set()
    for row in rows:
        if row.key.probe == "lldp" and row.key.subject != "*":
            (only_failed if row.rank == FAILED else observed).add(row.key.subject)
        if row.rank != FAILED:
            if row.key.probe == DEVICE_PROBE:
                node.device_seen_ns = max(node.device_seen_ns, row.seen_ns)
            else:
                node.seen_ns = max(node.seen_ns, row.seen_ns)
        match row.fact:
            case LldpPort():
                lldp.append(row.fact)
            case InfinibandPort():
                infiniband.append(row.fact)
                # The newest reading dates them all: an unchanged port is not sent again.
                node.infiniband_at_ns = max(node.infiniband_at_ns, row.seen_ns)
            case SweepFact() if row.key.probe != COUNTING_PROBE:
                sweeps.append(row)
            case Gpu():
                gpus.append(row.fact)
            case LatencyPort():
                node.latency.append(row)
            case NcclRun():
                nccl.append(row.fact)
            case SwitchPort():
                switch_ports.append(row.fact)
    if not (node.seen_ns or node.device_seen_ns):
        node.failed_ns = max((row.seen_ns for row in rows), default=0)
    node.lldp = tuple(sorted(lldp, key=lambda port: port.interface))
    node.infiniband = tuple(sorted(infiniband, key=lambda port: (port.device, port.port)))
    node.gpus = tuple(sorted(gpus, key=lambda gpu: gpu.pci_address))
    node.nccl = tuple(sorted(nccl, key=lambda run: (run.peer, run.method)))
    node.switch_ports = tuple(sorted(switch_ports, key=lambda port: port.interface))
    node.tables = readings_of(rows)
    node.sweeps = tuple(sweeps)
    node.unsure = not only_failed <= observed
    return node


def _set(table: dict[str, _T], name: str, value: _T) -> None:
    if value:
        table[name] = value
    else:
        table.pop(name, None)
