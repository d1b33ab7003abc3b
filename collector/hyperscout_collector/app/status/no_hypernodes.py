"""Notices that no HyperNode results from what the agents report, and says what is missing.

A new cluster has no HyperNodes until its sources have arrived, so the problem is reported only when it
lasts. The wait begins with the collector, so also with a new leader, and anew when the first node reports.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator

from hyperscout_formats.text.reporters import is_node
from hyperscout_topology.problems import why_no_hypernodes
from hyperscout_topology.topology import Topology

from hyperscout_collector.app.ingest.lasting_problem import LastingProblem
from hyperscout_collector.app.publication.pipeline import Pipeline
from hyperscout_collector.evidence.rows import OUTCOME_WORDS
from hyperscout_collector.evidence.state import COUNTING_PROBE, MEASURING_PROBES, EvidenceState
from hyperscout_collector.ingest.streams import Streams

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
        self._lasting = LastingProblem()

    @property
    def problem(self) -> str | None:
        """What is missing, in one sentence. None = there are HyperNodes, or it is too early to say."""
        return None if self._topology().hypernodes else self._lasting.text

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
        # None = there are HyperNodes, or inference cannot say.
        have_nodes = any(map(is_node, self._reporters())) if is_empty else None
        if not self._lasting.is_due(have_nodes, now_ns):
            return
        nodes = set(filter(is_node, self._reporters()))
        why = why_no_hypernodes(len(nodes), self._outcomes())
        if self._lasting.describe(why, now_ns) and self._warn is not None:
            await self._warn(why)

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
