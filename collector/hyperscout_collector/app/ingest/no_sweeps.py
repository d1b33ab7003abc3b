"""Notices InfiniBand ports that no agent sweeps, and says what is missing.

Agents connect one after the other, and fabrics are explored one after the other, so the problem is reported
only when it lasts.
"""

from collections.abc import Callable, Sequence
from typing import Final

from hyperscout_formats.text.reporters import is_fabric
from hyperscout_runtime.units import NS
from hyperscout_topology.problems import why_no_sweeps

from hyperscout_collector.app.ingest.lasting_problem import REVIEW_S, LastingProblem
from hyperscout_collector.decisions.fabric.sweep_events import SWEEP_PROBE
from hyperscout_collector.evidence.rows import FAILED
from hyperscout_collector.evidence.state import EvidenceState
from hyperscout_collector.ingest.streams import Streams

_UFM: Final = "ufm"  # the probe that reports whole InfiniBand fabrics


class NoSweeps:
    """`unswept()`: connected nodes with active InfiniBand ports, of which no lease covers any. `clock_ns`:
    Unix ns. Call `tick` about once a second."""

    def __init__(
        self,
        unswept: Callable[[], Sequence[str]],
        streams: Streams,
        state: EvidenceState,
        clock_ns: Callable[[], int],
    ) -> None:
        self._unswept = unswept
        self._streams = streams
        self._state = state
        self._clock_ns = clock_ns
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
        """The sentence. None = all fabrics are swept, or one is being explored, or UFM shows them."""
        nodes = self._unswept()
        if not nodes or self._is_shown_by_ufm():
            return None
        able = [node for node in nodes if self._runs_sweeps(node)]
        if off := sorted(set(nodes).difference(able)):
            return why_no_sweeps(off, {})
        failures = {
            node: row.reason
            for node in able
            for row in self._state.rows_of_node(node)
            if row.key.probe == SWEEP_PROBE and row.rank == FAILED
        }
        return why_no_sweeps(nodes, failures) if failures else None

    def _runs_sweeps(self, node: str) -> bool:
        stream = self._streams.get(node)
        return stream is not None and SWEEP_PROBE in stream.hello.probes

    def _is_shown_by_ufm(self) -> bool:
        """Whether an agent of role fabric has reported the fabrics that UFM manages."""
        return any(
            row.sha256 and row.key.probe == _UFM
            for node in self._state.nodes
            if is_fabric(node)
            for row in self._state.rows_of_node(node)
        )
