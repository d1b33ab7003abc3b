"""Notices InfiniBand ports that no agent sweeps, and says what is missing.

Agents connect one after the other, and fabrics are explored one after the other, so the problem is reported
only when it lasts.
"""

from collections.abc import Callable, Sequence

import numpy as np
from hyperscout_inference.fabric.manager_sweeps import MANAGERS
from hyperscout_runtime.units import NS
from hyperscout_topology.link_changes import table_of, wired_devices, without
from hyperscout_topology.problems import why_no_sweeps
from hyperscout_topology.topology import Topology

from hyperscout_collector.app.ingest.lasting_problem import REVIEW_S, LastingProblem
from hyperscout_collector.decisions.fabric.sweep_events import SWEEP_PROBE
from hyperscout_collector.evidence.rows import FAILED
from hyperscout_collector.evidence.state import EvidenceState
from hyperscout_collector.ingest.streams import Streams


class NoSweeps:
    """`unswept()`: connected nodes with active InfiniBand ports, of which no lease covers any. `clock_ns`:
    Unix ns. `topology()`: as published. Call `tick` about once a second."""

    def __init__(
        self,
        unswept: Callable[[], Sequence[str]],
        streams: Streams,
        state: EvidenceState,
        clock_ns: Callable[[], int],
        topology: Callable[[], Topology | None],
    ) -> None:
        self._unswept = unswept
        self._streams = streams
        self._state = state
        self._clock_ns = clock_ns
        self._topology = topology
        self._review_ns = 0
        self._lasting = LastingProblem()

    @property
    def problem(self) -> str | None:
        """What is missing, in one sentence. None = nothing, or it is too early to say."""
        return self._lasting.text

    def tick(self) -> None:
        now_ns = self._clock_ns()
        if now_ns < self._review_ns:
            return
        self._review_ns = now_ns + int(REVIEW_S * NS)
        why = self._why()
        if self._lasting.is_due(None if why is None else True, now_ns) and why is not None:
            self._lasting.describe(why, now_ns)

    def _why(self) -> str | None:
        """The sentence. None = every node is swept, is being explored, or is shown by UFM."""
        nodes = self._unswept()
        if nodes:
            nodes = sorted(set(nodes) - self._shown_by_managers())
        off = [node for node in nodes if not self._runs_sweeps(node)]
        failures = {
            node: row.reason
            for node in set(nodes).difference(off)
            for row in self._state.rows_of_node(node)
            if row.key.probe == SWEEP_PROBE and row.rank == FAILED
        }
        named = nodes if failures else off  # without a failure, the others are being explored
        return why_no_sweeps(named, off, failures) if named else None

    def _runs_sweeps(self, node: str) -> bool:
        stream = self._streams.get(node)
        return stream is not None and SWEEP_PROBE in stream.hello.probes

    def _shown_by_managers(self) -> set[str]:
        """The nodes with a published link that a fabric manager reports."""
        topology = self._topology()
        if topology is None:
            return set()
        table = table_of(topology.links)
        others = [i for i, sources in enumerate(table.source_sets) if MANAGERS.isdisjoint(sources)]
        rows = np.flatnonzero(np.isin(table.sources, others)).tolist()
        devices = wired_devices(without(table, rows))
        return {adapter.node for adapter in topology.adapters if adapter.id in devices}
