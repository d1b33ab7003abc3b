"""The evidence at one time: what inference reads of it, and what is stale.

The sweeps of a snapshot are parsed outside the event loop. Of several sweeps of one fabric the newest counts.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from operator import attrgetter
from types import MappingProxyType
from typing import TypeVar

import numpy as np
from hyperscout_formats.facts.facts import (
    Gpu,
    InfinibandPort,
    LldpPort,
    NcclRun,
    SwitchPort,
)
from hyperscout_formats.infiniband.ibnetdiscover import SWITCH, Sweep
from hyperscout_formats.text.errors import FormatError
from hyperscout_formats.text.reporters import is_node
from hyperscout_inference.fabric.inputs import FabricInputs, SweepSeen
from hyperscout_inference.hierarchy.managed_nvlink import SOURCE as NVLINK_MANAGER
from hyperscout_inference.sweeps.claims import SOURCE as SWEEP_PROBE
from hyperscout_inference.sweeps.claims import SweepClaim, SweepVerdict, Witnesses, judge_sweeps
from hyperscout_topology.link_changes import contains
from hyperscout_topology.memo import MemoByNode, memoized
from hyperscout_topology.topology import Topology

from hyperscout_collector.evidence.measurements import Measured, PairTables
from hyperscout_collector.evidence.rows import WHOLE, Key, Row, SweepFact
from hyperscout_collector.evidence.sweep_texts import SweepTexts
from hyperscout_collector.evidence.switch_tables import TableReading, in_force
from hyperscout_collector.store.errors import StoreError

_T = TypeVar("_T")
Ids = np.ndarray[tuple[int], np.dtype[np.uint64]]
_GUID_OF = attrgetter("node_guid")
_NO_IDS: Ids = np.zeros(0, np.uint64)

_MAX_SWEEPS = 32  # of one node, a whole and a partial one for each of 16 ports; the newest count
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
    infiniband_up_ns: Mapping[str, Mapping[tuple[int, int], int]] = field(
        default_factory=dict
    )  # see `FabricInputs`

    @property
    def reporters(self) -> frozenset[str]:
        """All reporters with evidence in the snapshot."""
        tables = (self.lldp, self.infiniband, self.gpus, self.latency, self.nccl, self.switch_ports)
        readings = (reading.row.key.node for reading in self.tables)
        return frozenset(chain(*tables, readings, (row.key.node for row in self.sweeps)))

    @property
    def switches(self) -> frozenset[str]:
        """The ids of the switches in reports of switches and in tables."""
        own = (self.chassis_of(reporter) for reporter in self.switch_ports)
        return frozenset(chain(*own, (reading.chassis_id for reading in self.tables)))

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
            infiniband_up_ns=of(self.infiniband_up_ns, earlier.infiniband_up_ns),
        )


NO_EVIDENCE = Snapshot({}, {}, {}, {}, {}, {}, {}, (), (), {}, 0, PairTables())


@dataclass(frozen=True, slots=True)
class HeldSweep:
    """A sweep that waits for the sweep of another node. `reason`, `is_known`, `is_first`: see `SweepVerdict`.

    `is_accused`: it changes so much that it may be false. `is_answered`: a current sweep of another node
    shows a device of it.
    """

    node: str
    lease_id: str
    device: str
    reason: str
    is_known: bool
    is_first: bool
    is_accused: bool
    is_answered: bool

    @property
    def problem(self) -> str:
        """For the status; "" = it contradicts nothing."""
        if not self.reason or not (self.is_known or self.is_accused):
            return ""
        return f"the sweep of {self.node} from {self.device} does not count as a whole: {self.reason}"


@dataclass(frozen=True, slots=True)
class Resolved:
    """`superseded`: keys of sweeps that a newer sweep of the same fabric replaced, to be forgotten. `held`:
    sweeps that do not count as a whole."""

    inputs: FabricInputs
    superseded: tuple[Key, ...] = ()
    problems: tuple[str, ...] = ()
    held: tuple[HeldSweep, ...] = ()


def resolve(
    snapshot: Snapshot,
    texts: SweepTexts,
    node_map: Mapping[int, str],
    published: Topology | None = None,
    alone: Collection[tuple[str, str]] = (),
    node_names: Mapping[str, str] = MappingProxyType({}),
) -> Resolved:
    """Parse the sweeps of a snapshot and drop those that newer ones replaced. Blocks; call it in a thread.

    `published`: the record that sweeps are judged by. `alone`: nodes and devices whose sweeps no
    other agent can confirm. `node_map`, `node_names`: as in `FabricInputs`.
    """
    problems: list[str] = []
    read: list[tuple[Row, Sweep]] = []
    managed: dict[str, tuple[Gpu, ...]] = {}
    staying: set[Key] = {row.key for row in snapshot.sweeps}
    swept = Counter[str]()  # by node
    excess: set[Key] = set()
    for row in sorted(snapshot.sweeps, key=lambda row: (row.seen_ns, row.key, row.rank), reverse=True):
        swept[row.key.node] += row.key.probe == SWEEP_PROBE
        if swept[row.key.node] > _MAX_SWEEPS:
            excess.add(row.key)
            continue
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
    if node_names:
        managed = {node: gpus for host, gpus in managed.items() if (node := node_names.get(host, host))}
    verdicts = _verdicts(read, snapshot, node_map, published, alone, node_names)
    needed = {key for verdict in verdicts.values() for key in verdict.needed}
    current: list[SweepSeen] = []
    seen: dict[str, Ids] = {}  # by probe: switches in whole sweeps so far, sorted
    staying -= {row.key for row, _ in read}
    any_whole = any(row.rank == WHOLE for row, _ in read)
    for row, sweep in read:  # newest first
        if any_whole and row.rank != WHOLE and not (sweep.kind == SWITCH).any():
            continue  # It shows only its own adapter, which a whole sweep shows better.
        verdict = verdicts.get((row.key, row.rank))
        disputed: frozenset[tuple[int, int]] = frozenset()
        if verdict is not None:
            if verdict.judged.counts == "nothing":
                if row.seen_ns >= snapshot.limit_ns and not needed:
                    staying.add(row.key)
                continue
            sweep, disputed = verdict.judged.sweep, verdict.judged.disputed  # noqa: PLW2901 - what counts
        switches = _switches(sweep)
        # A manager's data and sweeps are independent sources: neither replaces the other. But a stale sweep
        # is dropped if any newer one shares a switch with it.
        known = seen.get(row.key.probe, _NO_IDS)
        if contains(known, switches).mean() >= _COVERED:
            continue
        if row.seen_ns < snapshot.limit_ns and any(contains(ids, switches).any() for ids in seen.values()):
            continue
        current.append(SweepSeen(sweep, row.key.probe, row.rank != WHOLE, row.seen_ns, disputed))
        staying.add(row.key)
        if row.rank == WHOLE:
            seen[row.key.probe] = np.sort(np.concatenate([known, switches]))
    inputs = FabricInputs(
        tuple(reversed(current)),
        snapshot.lldp,
        snapshot.infiniband,
        snapshot.infiniband_at_ns,
        snapshot.infiniband_up_ns,
        node_map,
        snapshot.gpus,
        frozenset(n for n, one in snapshot.latency.items() if any(port.udp_port for port in one.ports)),
        snapshot.pair_tables.read(snapshot.latency),
        snapshot.nccl,
        snapshot.switch_ports,
        frozenset(snapshot.stale),
        in_force(snapshot.tables, snapshot.limit_ns),
        managed_gpus=managed,
        node_names=node_names,
    )
    accused = {x.held.node: x.judged.anomaly for x in verdicts.values() if x.judged.anomaly is not None}
    inputs = replace(inputs, sweep_claims=tuple(accused.values()))
    if not needed:
        needed = {key for (key, _), x in verdicts.items() if x.judged.counts == "reduced"}
    keys = {row.key for row, _ in read}
    superseded = tuple(sorted((keys - staying - needed) | (excess - keys)))
    held = tuple(x.held for x in verdicts.values() if x.held.reason or x.held.is_first)
    return Resolved(inputs, superseded, tuple(problems), held)


@dataclass(frozen=True, slots=True)
class _Judged:
    """`needed`: the keys of the sweeps without which this one would not count, and its own."""

    judged: SweepVerdict
    held: HeldSweep
    needed: frozenset[Key]


def _verdicts(
    read: Sequence[tuple[Row, Sweep]],
    snapshot: Snapshot,
    node_map: Mapping[int, str],
    published: Topology | None,
    alone: Collection[tuple[str, str]],
    node_names: Mapping[str, str],
) -> dict[tuple[Key, int], _Judged]:
    """Judge the sweeps of agents, by key and rank."""
    rows: list[tuple[Row, SweepFact]] = []
    claims = []
    for row, sweep in read:
        fact = row.fact
        if isinstance(fact, SweepFact) and row.key.probe == SWEEP_PROBE:
            rows.append((row, fact))
            is_partial = row.rank != WHOLE
            is_current = row.seen_ns >= snapshot.limit_ns
            claims.append(
                SweepClaim(
                    row.key.node, fact.device, fact.port_guid, sweep, is_partial, is_current, row.seen_ns
                )
            )
    has_manager = any(
        row.key.probe != SWEEP_PROBE and row.seen_ns >= snapshot.limit_ns for row, _ in read
    )  # what it shows is not changed by one agent alone
    witnesses = Witnesses(
        snapshot.infiniband,
        _current(_with_guids(snapshot.infiniband), frozenset(snapshot.stale)),
        node_map,
        () if has_manager else alone,
        snapshot.infiniband_up_ns,
        snapshot.infiniband_at_ns,
        node_names,
    )
    verdicts = judge_sweeps(claims, published, witnesses) if claims else []
    return {
        (row.key, row.rank): _Judged(
            verdict,
            HeldSweep(
                row.key.node,
                fact.lease_id,
                fact.device,
                verdict.reason,
                verdict.is_known,
                verdict.is_first,
                verdict.anomaly is not None,
                verdict.is_answered,
            ),
            frozenset(rows[j][0].key for j in verdict.agreeing) | ({row.key} if verdict.agreeing else set()),
        )
        for (row, fact), verdict in zip(rows, verdicts, strict=True)
    }


def _has_guids(node: str, ports: Sequence[InfinibandPort]) -> bool:
    return any(map(_GUID_OF, ports))


_with_guids = MemoByNode(_has_guids)


@memoized
def _current(has_guids: Mapping[str, bool], stale: frozenset[str]) -> frozenset[str]:
    return frozenset(node for node, has in has_guids.items() if has and node not in stale)


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
