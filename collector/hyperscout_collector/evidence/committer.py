"""Writes the findings of all streams to the store.

Submissions are grouped. Each group is written in one transaction and then acknowledged. Nothing is
acknowledged before it is stored. The event loop never waits for the disk: the store works in its own thread,
and the next group gathers meanwhile. The queue is bounded in bytes. A submission that does not fit waits, and
is refused after a timeout.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

from hyperscout_formats.text.reporters import DEVICE_PROBE, is_fabric

from hyperscout_collector.evidence.rows import Key, Row
from hyperscout_collector.evidence.state import KEPT_PROBES, AgentRow, Bulk, EvidenceState, KeyChange, Plan
from hyperscout_collector.evidence.store import Changes, Store, StoreError

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

_CRAWL_GRACE_S = 3600.0  # in seconds; a repeated crawl of thousands of switches takes many minutes
# Probes that an agent's full state does not cover: results that stay without it, and findings of a device in
# its node.
_NOT_ITS_OWN = KEPT_PROBES | {DEVICE_PROBE}
# Rows of one transaction: about 50 ms of writing, so a single change behind it does not wait long.
_GROUP_ROWS = 4000


class OverloadedError(RuntimeError):
    """Too many bytes wait to be written. The caller must retry later."""


@dataclass(frozen=True, slots=True)
class FullState:
    """The end of an agent's full state: every key of `agent.node` that is not in `keys` is removed."""

    agent: AgentRow
    keys: frozenset[Key]


@dataclass(frozen=True, slots=True)
class Submission:
    """The changes of one batch or clean-up. `cost_bytes`: memory that it uses while it waits."""

    rows: Sequence[tuple[Row, bytes]] = ()
    bulks: Sequence[Bulk] = ()
    removed: Sequence[Key] = ()
    forgotten: Mapping[Key, Collection[Row]] = field(default_factory=dict)  # and the rows known at decision
    forgotten_agents: Sequence[AgentRow] = ()  # as they were at the decision
    full_state: FullState | None = None
    cost_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Refused:
    """A finding that was refused. `text_missing`: the text that it names was dropped while it waited."""

    key: Key
    reason: str
    text_missing: bool = False


@dataclass(slots=True)
class _Unclaimed:
    """Keys that a newly started agent has not reported yet, and when they are removed."""

    due_ns: int
    keys: set[Key]


@dataclass(slots=True)
class _Waiting:
    submission: Submission
    done: "asyncio.Future[list[Refused]]" = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )


class Committer:
    """The only writer of evidence. `clock_ns`: returns Unix ns.

    `on_commit` receives the changes of each transaction, in order. Then `on_full_state` receives each node
    that ended its full state in the transaction.

    `grace_s`: a process that has just started has not observed everything yet (the next LLDP frame is up to
    30 s away). Keys that its first full state lacks are kept this long, and for agents that report whole
    fabrics at least an hour. A process that reconnects knows which keys it removed, so its missing keys are
    removed at once.
    """

    def __init__(
        self,
        state: EvidenceState,
        store: Store,
        *,
        on_commit: Callable[[Sequence[KeyChange]], None],
        clock_ns: Callable[[], int],
        on_full_state: Callable[[str], None] = lambda node: None,
        grace_s: float = 120.0,
        max_waiting_bytes: int = 64 * 1024 * 1024,
        room_timeout_s: float = 30.0,
    ) -> None:
        self.problem: str | None = None  # why the last write failed; None = it succeeded
        self.waiting_bytes = 0
        self.failures = 0
        self._state = state
        self._store = store
        self._on_commit = on_commit
        self._on_full_state = on_full_state
        self._clock_ns = clock_ns
        self._grace_ns = int(grace_s * 1e9)
        self._max_waiting_bytes = max_waiting_bytes
        self._room_timeout_s = room_timeout_s
        self._queue: deque[_Waiting] = deque()
        self._work = asyncio.Event()
        self._room = asyncio.Condition()
        self._idle = asyncio.Event()
        self._idle.set()
        self._ended = False
        self._unclaimed: dict[str, _Unclaimed] = {}
        self._thread = ThreadPoolExecutor(1, "evidence-writer")

    async def submit(self, submission: Submission) -> "asyncio.Future[list[Refused]]":
        """Queue a submission, after waiting for space. The future resolves to the refused findings once the
        rest is stored.

        The future raises StoreError if the write failed. Raises OverloadedError if no space is free in time.
        """
        cost = submission.cost_bytes
        if not self._has_room(cost):
            try:
                async with asyncio.timeout(self._room_timeout_s), self._room:
                    await self._room.wait_for(lambda: self._has_room(cost))
            except TimeoutError as error:
                raise OverloadedError(
                    f"{self.waiting_bytes >> 20} MiB wait to be written: come back later"
                ) from error
        waiting = _Waiting(submission)
        self.waiting_bytes += cost
        self._queue.append(waiting)
        self._idle.clear()
        self._work.set()
        return waiting.done

    def _has_room(self, cost: int) -> bool:
        return not self.waiting_bytes or self.waiting_bytes + cost <= self._max_waiting_bytes

    async def run(self) -> None:
        """Write queued submissions until cancelled."""
        try:
            while True:
                await self._work.wait()
                self._work.clear()
                while self._queue:
                    await self._write(self._take_group())
                self._idle.set()
        finally:
            self._ended = True
            self._idle.set()

    async def drain(self) -> None:
        """Wait until the queue is empty or `run` has ended."""
        if not self._ended:
            await self._idle.wait()

    async def save_topology(self, topology_json: bytes) -> None:
        """Store the published topology. Raises StoreError."""
        await self._in_thread(self._store.save_topology, topology_json)

    async def close(self) -> None:
        """Stop the thread and close the store. Nothing can be submitted afterwards."""
        await self._in_thread(self._store.close)
        self._thread.shutdown(wait=True)

    def due(self, now_ns: int, connected: Callable[[str], bool]) -> list[Key]:
        """Returns the keys with an expired grace, to be forgotten. Keys of disconnected agents stay."""
        gone: list[Key] = []
        for node in [node for node, unclaimed in self._unclaimed.items() if unclaimed.due_ns <= now_ns]:
            unclaimed = self._unclaimed.pop(node)
            if connected(node):
                gone += sorted(unclaimed.keys)
        return gone

    async def _in_thread(self, function: Callable[..., _T], *args: object) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *args)

    def _take_group(self) -> list[_Waiting]:
        group = [self._queue.popleft()]
        rows = len(group[0].submission.rows)
        while self._queue and rows + len(self._queue[0].submission.rows) <= _GROUP_ROWS:
            group.append(self._queue.popleft())
            rows += len(group[-1].submission.rows)
        return group

    async def _write(self, group: list[_Waiting]) -> None:
        plan = Plan(self._state, self._clock_ns())
        outcome: BaseException | None = None
        refused: list[list[Refused]] = []
        try:
            refused = [self._plan(plan, waiting.submission) for waiting in group]
            if changes := _changes(plan, self._state):
                await self._in_thread(self._store.apply, changes)
                self._succeeded()
            self._on_commit(self._state.commit(plan))
            for waiting in group:
                if waiting.submission.full_state:
                    self._on_full_state(waiting.submission.full_state.agent.node)
        except StoreError as error:
            outcome = error
            self._failed(error)
        except BaseException as error:
            outcome = StoreError(f"evidence is not written any more: {error!r}")
            raise
        finally:
            async with self._room:
                self.waiting_bytes -= sum(waiting.submission.cost_bytes for waiting in group)
                self._room.notify_all()
            for i, waiting in enumerate(group):
                if waiting.done.done():
                    continue  # the stream that submitted it has ended
                if outcome is not None:
                    waiting.done.set_exception(outcome)
                    waiting.done.exception()  # marks the exception as retrieved when no caller waits any more
                else:
                    waiting.done.set_result(refused[i])

    def _plan(self, plan: Plan, submission: Submission) -> list[Refused]:
        refused = []
        for bulk in submission.bulks:
            plan.put_bulk(bulk)
        for row, encoded in submission.rows:
            if unclaimed := self._unclaimed.get(row.key.node):
                unclaimed.keys.discard(row.key)
            if row.sha256 and not plan.has_text(row.sha256):
                refused.append(Refused(row.key, "its text is not here", text_missing=True))
                continue
            if reason := plan.upsert(row, encoded):
                refused.append(Refused(row.key, reason))
        for key in submission.removed:
            plan.remove(key)
        for key, known in submission.forgotten.items():
            plan.forget(key, known)
        for agent in submission.forgotten_agents:
            plan.forget_agent(agent)
        if submission.full_state:
            self._end_full_state(plan, submission.full_state)
        return refused

    def _end_full_state(self, plan: Plan, full: FullState) -> None:
        node = full.agent.node
        known = plan.agent_of(node)
        absent = {key for key in plan.keys_of(node) - full.keys if key.probe not in _NOT_ITS_OWN}
        if known is not None and known.instance == full.agent.instance:
            waits = self._unclaimed[node].keys if node in self._unclaimed else set()
            for key in absent - waits:
                plan.remove(key)
        elif absent:
            grace_ns = max(self._grace_ns, int(_CRAWL_GRACE_S * 1e9)) if is_fabric(node) else self._grace_ns
            self._unclaimed[node] = _Unclaimed(self._clock_ns() + grace_ns, absent)
        else:
            self._unclaimed.pop(node, None)
        if known != full.agent:
            plan.agents[node] = full.agent

    def _succeeded(self) -> None:
        if self.problem is not None:
            _log.warning("evidence is written again (it was not: %s)", self.problem)
            self.problem = None

    def _failed(self, error: StoreError) -> None:
        self.failures += 1
        if self.problem is None:
            _log.error("evidence is not written, and nothing is acknowledged: %s", error)
        self.problem = str(error)


def _changes(plan: Plan, state: EvidenceState) -> Changes:
    upserts, deletes = [], []
    named = set()
    for key, after in plan.looks.items():
        ranks = {row.rank for row in after}
        deletes += [(key, row.rank) for row in state.looks(key) if row.rank not in ranks]
        # A row that was added and replaced within this plan has an encoded form, but is not in `after`.
        upserts += [(row, plan.encoded[key, row.rank]) for row in after if row not in state.looks(key)]
        named |= {row.sha256 for row in after if row.sha256}
    bulks = [bulk for digest, bulk in plan.bulks.items() if digest in named]
    agents = [agent for agent in plan.agents.values() if agent is not None]
    removed = [node for node, agent in plan.agents.items() if agent is None]
    return Changes(upserts, deletes, bulks, sorted(plan.dropped_bulks), agents, removed)
