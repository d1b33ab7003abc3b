"""Notices that no HyperNode results from what the agents report, and says what is missing.

A new cluster has no HyperNodes until its sources have arrived, so nothing is said before `GRACE_S`. The wait
begins with the collector, so also with a new leader, and anew when the first node reports.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from typing import Final

from hyperscout_formats.text.reporters import is_node
from hyperscout_runtime.units import NS
from hyperscout_topology.problems import why_no_hypernodes
from hyperscout_topology.topology import Topology

from hyperscout_collector.app.publication.pipeline import Pipeline
from hyperscout_collector.evidence.rows import OUTCOME_WORDS
from hyperscout_collector.evidence.state import COUNTING_PROBE, MEASURING_PROBES, EvidenceState
from hyperscout_collector.ingest.streams import Streams

_log = logging.getLogger(__name__)

GRACE_S: Final = 120.0  # LLDP frames arrive every 30 s, a sweep of a large fabric takes a minute
REVIEW_S: Final = 30.0  # between counts of the findings: 100,000 findings take 50 ms of the event loop
_TICK_S = 1.0
_BEST_FIRST = ("data", "failed", "nothing")


class NoHyperNodes:
    """Looks while `run` runs. `clock_ns`: Unix ns. Use it only on the event loop.

    `warn` receives the sentence when it is logged: once for each time without HyperNodes.
    """

    def __init__(
        self,
        state: EvidenceState,
        streams: Streams,
        pipeline: Pipeline,
        topology: Callable[[], Topology],
        *,
        warn: Callable[[str], Awaitable[None]] | None,
        clock_ns: Callable[[], int],
    ) -> None:
        self._state = state
        self._streams = streams
        self._pipeline = pipeline
        self._topology = topology
        self._warn = warn
        self._clock_ns = clock_ns
        self._have_nodes: bool | None = None  # None = there are HyperNodes, or inference cannot say
        self._due_ns = 0
        self._problem: str | None = None

    @property
    def problem(self) -> str | None:
        """What is missing, in one sentence. None = there are HyperNodes, or it is too early to say."""
        return None if self._topology().hypernodes else self._problem

    async def run(self) -> None:
        """Look once a second, until cancelled."""
        while True:
            await self.tick()
            await asyncio.sleep(_TICK_S)

    async def tick(self) -> None:
        """Look whether there are HyperNodes, and say what is missing when it is due."""
        pipeline, now_ns = self._pipeline, self._clock_ns()
        is_settled = pipeline.inferences > 0 and pipeline.failures.present is None
        is_empty = is_settled and not self._topology().hypernodes
        have_nodes = any(map(is_node, self._reporters())) if is_empty else None
        if have_nodes is not self._have_nodes:
            self._have_nodes, self._problem = have_nodes, None
            self._due_ns = now_ns + int(GRACE_S * NS)
        if have_nodes is None or now_ns < self._due_ns:
            return
        nodes = set(filter(is_node, self._reporters()))
        is_new, self._problem = self._problem is None, why_no_hypernodes(len(nodes), self._outcomes())
        self._due_ns = now_ns + int(REVIEW_S * NS)
        if is_new:
            _log.warning("%s", self._problem)
            if self._warn is not None:
                await self._warn(self._problem)

    def _reporters(self) -> Iterator[str]:
        """Those that are connected or have findings; some twice."""
        yield from self._state.nodes
        yield from (stream.node for stream in self._streams)

    def _outcomes(self) -> dict[str, Counter[str]]:
        """By probe that sees links, the number of its reporters by their best outcome."""
        found: dict[str, Counter[str]] = {}
        for reporter in self._state.nodes:
            of_probe: dict[str, set[str]] = {}
            for row in self._state.rows_of_node(reporter):
                of_probe.setdefault(row.key.probe, set()).add(OUTCOME_WORDS[row.outcome])
            for probe in of_probe.keys() - MEASURING_PROBES - {COUNTING_PROBE}:
                best = next(outcome for outcome in _BEST_FIRST if outcome in of_probe[probe])
                found.setdefault(probe, Counter())[best] += 1
        return found
