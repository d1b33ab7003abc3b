"""Removes evidence that is superseded or too old, and agents without evidence."""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from hyperscout_formats.text.reporters import DEVICE_PROBE
from hyperscout_runtime.units import NS

from hyperscout_collector.evidence.committer import Committer, OverloadedError, Submission
from hyperscout_collector.evidence.rows import Key, Row
from hyperscout_collector.evidence.state import AgentRow, EvidenceState
from hyperscout_collector.evidence.view import InputsView
from hyperscout_collector.store.errors import StoreError

_log = logging.getLogger(__name__)

FORGET_AFTER_NS = 7 * 86_400 * NS  # a node unseen for a week: longer than a repair


class EvidenceCleanup:
    """Removes evidence when `tick` is called, about once a second. `clock_ns`: Unix ns.

    `is_connected`: whether an agent of this node is connected. `is_elsewhere`: whether it is connected to
    another replica, whose findings stay. A failed write is repeated later.
    """

    def __init__(
        self,
        state: EvidenceState,
        view: InputsView,
        committer: Committer,
        *,
        is_connected: Callable[[str], bool],
        is_elsewhere: Callable[[str], bool] = lambda node: False,
        clock_ns: Callable[[], int],
    ) -> None:
        self._state = state
        self._view = view
        self._committer = committer
        self._is_connected = is_connected
        self._is_elsewhere = is_elsewhere
        self._clock_ns = clock_ns
        self._due: dict[Key, Collection[Row]] = {}  # with the rows at the time of the decision

    def remove(self, keys: Iterable[Key]) -> None:
        """Remove the present findings of these keys."""
        self._due.update({key: self._state.rows_of_key(key) for key in keys})

    def remove_rows(self, rows: Mapping[Key, Collection[Row]]) -> None:
        """Remove these rows, but no newer ones of their keys."""
        self._due.update(rows)

    async def tick(self) -> None:
        """Remove what is due, what was last seen a week ago, and agents without evidence."""
        now_ns = self._clock_ns()
        before_ns = now_ns - FORGET_AFTER_NS
        gone = self._committer.due(now_ns, self._is_connected)
        for node in (*self._view.unseen_since(before_ns), *self._view.failed_before(before_ns)):
            gone += sorted(self._state.keys_of(node))
        for node in self._view.unseen_devices(before_ns):
            gone += sorted(key for key in self._state.keys_of(node) if key.probe == DEVICE_PROBE)
        self.remove(gone)
        for key in [x for x in self._due if x.probe != DEVICE_PROBE and self._is_elsewhere(x.node)]:
            del self._due[key]
        # A disconnected agent is removed together with the last of its evidence.
        agents = [x for x in self._state.agents_without_evidence() if not self._is_connected(x.node)]
        if self._due or agents:
            await self._write(agents)

    async def _write(self, agents: Sequence[AgentRow]) -> None:
        rows, self._due = self._due, {}
        submission = Submission(forgotten=rows, forgotten_agents=agents)
        try:
            await (await self._committer.submit(submission))
        except (StoreError, OverloadedError) as error:
            _log.warning("%d findings and %d agents are removed later: %s", len(rows), len(agents), error)
            self._due = rows | self._due
