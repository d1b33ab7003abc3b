"""Removes evidence that is superseded or too old, and agents without evidence."""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from hyperscout_formats.text.reporters import DEVICE_PROBE
from hyperscout_runtime.units import NS

from hyperscout_collector.evidence.committer import Committer, OverloadedError, Submission
from hyperscout_collector.evidence.rows import Key, Row
from hyperscout_collector.evidence.state import AgentRow, EvidenceState
from hyperscout_collector.evidence.view import InputsView
from hyperscout_collector.ingest.streams import AgentStream, Connection, RemoteStream
from hyperscout_collector.store.errors import StoreError
from hyperscout_collector.store.replicas import NotOwnerError

_log = logging.getLogger(__name__)

FORGET_AFTER_NS = 7 * 86_400 * NS  # a node unseen for a week: longer than a repair


class Removals:
    """Findings to be removed.

    `due`: by key, with the rows at the time of the decision. A key with a newer row stays.
    """

    def __init__(self, state: EvidenceState, committer: Committer) -> None:
        self.due: dict[Key, Collection[Row]] = {}
        self._state = state
        self._committer = committer

    def add(self, keys: Iterable[Key]) -> None:
        """Remove the present findings of these keys."""
        self.due.update({key: self._state.rows_of_key(key) for key in keys})

    async def write(self, agents: Sequence[AgentRow] = ()) -> None:
        """Remove what is due, and `agents` without evidence. After a failure, the next call tries again."""
        if not (self.due or agents):
            return
        rows, self.due = self.due, {}
        try:
            await (await self._committer.submit(Submission(forgotten=rows, forgotten_agents=agents)))
        except (StoreError, OverloadedError) as error:
            if isinstance(error, NotOwnerError):  # the replica that has their streams removes them
                rows = {key: known for key, known in rows.items() if key.node not in error.nodes}
            if rows or agents:
                _log.warning("%d findings and %d agents are removed later: %s", len(rows), len(agents), error)
            self.due = rows | self.due


class EvidenceCleanup:
    """Removes evidence when `tick` is called, every few seconds. `clock_ns`: Unix ns.

    `stream_of(node)`: the connected stream of a node. Another replica that has it removes the findings.
    """

    def __init__(
        self,
        state: EvidenceState,
        view: InputsView,
        committer: Committer,
        *,
        stream_of: Callable[[str], Connection | None],
        clock_ns: Callable[[], int],
    ) -> None:
        self._state = state
        self._view = view
        self._committer = committer
        self._stream_of = stream_of
        self._clock_ns = clock_ns
        self._removals = Removals(state, committer)
        self._passed: dict[Key, RemoteStream] = {}  # what was due at the last tick and is at another replica

    def remove_rows(self, rows: Mapping[Key, Collection[Row]]) -> None:
        """Remove these rows, but no newer ones of their keys."""
        self._removals.due.update(rows)

    async def tick(self) -> None:
        """Remove what is due, what was last seen a week ago, and agents without evidence."""
        now_ns = self._clock_ns()
        before_ns = now_ns - FORGET_AFTER_NS
        gone = self._committer.due(now_ns, lambda node: isinstance(self._stream_of(node), AgentStream))
        for node in (*self._view.unseen_since(before_ns), *self._view.failed_before(before_ns)):
            gone += sorted(self._state.keys_of(node))
        for node in self._view.unseen_devices(before_ns):
            gone += sorted(key for key in self._state.keys_of(node) if key.probe == DEVICE_PROBE)
        self._removals.add(gone)
        self._pass_on()
        # A disconnected agent is removed together with the last of its evidence.
        agents = [x for x in self._state.agents_without_evidence() if self._stream_of(x.node) is None]
        await self._removals.write(agents)

    def _pass_on(self) -> None:
        """Let the replicas that have the agents' streams remove what these reported: ask each once."""
        passed: dict[Key, RemoteStream] = {}
        asked: dict[RemoteStream, dict[Key, Collection[Row]]] = {}
        for key in [key for key in self._removals.due if key.probe != DEVICE_PROBE]:
            if isinstance(stream := self._stream_of(key.node), RemoteStream):
                rows, passed[key] = self._removals.due.pop(key), stream
                if self._passed.get(key) is not stream:
                    asked.setdefault(stream, {})[key] = rows
        self._passed = passed
        for stream, found in asked.items():
            stream.forget(found)
