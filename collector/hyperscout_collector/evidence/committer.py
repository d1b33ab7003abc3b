"""Writes the findings of all streams to the store.

Submissions that wait form a group. Each group is written in one transaction and then acknowledged. Nothing is
acknowledged before it is stored. The queue is bounded in bytes. A submission that does not fit waits, and is
refused after a timeout.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field

from hyperscout_formats.text.counts import count
from hyperscout_formats.text.reporters import DEVICE_PROBE, is_fabric
from hyperscout_runtime.units import NS

from hyperscout_collector.evidence.kept import is_result
from hyperscout_collector.evidence.rows import Key, Row
from hyperscout_collector.evidence.state import (
    AgentRow,
    Bulk,
    EvidencePlan,
    EvidenceState,
    KeyChange,
)
from hyperscout_collector.evidence.store import Changes, EvidenceStore, Loaded, reloaded
from hyperscout_collector.store.errors import StoreError
from hyperscout_collector.store.replicas import NotOwnerError
from hyperscout_collector.store.writer import Priority, StoreWriter, WriteQueue

_CRAWL_GRACE_S = 3600.0  # in seconds; a repeated crawl of thousands of switches takes many minutes
_REFUSED_NS = 600 * NS  # how long a refusal is a problem; an agent repeats its findings each minute
_MAX_REFUSED = 1000  # reporters
# Rows of one transaction: about 50 ms of writing, so a single change behind it does not wait long.
_MAX_GROUP_ROWS = 4000
# Renewals wait for others: ten thousand agents send 170 batches of them a second, and a transaction for each
# takes more time than its rows. Full states without changes wait less: after a restart, agents wait for them.
_RENEWALS_WAIT_S = 0.05
_FULL_STATE_WAIT_S = 0.02


class OverloadedError(RuntimeError):
    """Too many bytes wait to be written. The caller must retry later."""


@dataclass(frozen=True, slots=True)
class FullState:
    """The end of an agent's full state: every key of `agent.node` that is not in `keys` is removed."""

    agent: AgentRow
    keys: frozenset[Key]


@dataclass(frozen=True, slots=True)
class Submission:
    """The changes of one batch or clean-up. `cost_bytes`: memory that it uses while it waits.

    `rows`: findings, with their encoded form. `renewed`: stored findings with new times.
    """

    rows: Sequence[tuple[Row, bytes]] = ()
    renewed: Sequence[Row] = ()
    bulks: Sequence[Bulk] = ()
    removed: Sequence[Key] = ()
    forgotten: Mapping[Key, Collection[Row]] = field(default_factory=dict)  # and the rows known at decision
    forgotten_agents: Sequence[AgentRow] = ()  # as they were at the decision
    full_state: FullState | None = None
    cost_bytes: int = 0

    @property
    def changes_content(self) -> bool:
        """Whether it does more than renew findings or end a full state."""
        return bool(self.rows or self.bulks or self.removed or self.forgotten or self.forgotten_agents)

    def concerns(self, nodes: Collection[str]) -> bool:
        """Whether it changes findings of one of these nodes."""
        keys = {row.key for row, _ in self.rows} | {row.key for row in self.renewed}
        named = {key.node for key in (*keys, *self.removed, *self.forgotten)}
        named |= {agent.node for agent in self.forgotten_agents}
        return not named.isdisjoint(nodes) or (
            self.full_state is not None and self.full_state.agent.node in nodes
        )


@dataclass(frozen=True, slots=True)
class Refused:
    """A finding that was refused.

    `dropped`: what it refers to, a text or a stored finding, was dropped while it waited. `lease_moved`: only
    its lease ended.
    """

    key: Key
    reason: str
    dropped: bool = False
    lease_moved: bool = False


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


@dataclass(slots=True)
class _Group:
    """Submissions for one transaction. `rows`: the number of findings in them."""

    waiting: list[_Waiting]
    rows: int


class Committer:
    """The only writer of the evidence of this replica's agents. `clock_ns`: returns Unix ns.

    `on_commit` receives the changes of each transaction, in order. Then `on_full_state` receives each node
    that ended its full state in the transaction.

    A submission that changes no content waits up to `renewals_wait_s` for others, and up to
    `full_state_wait_s` if it ends a full state.

    `load_nodes` reads what the store has of nodes. It is called before the next transaction after one that
    may be stored although it failed. None = there is none of that kind.

    `grace_s`: a process that has just started has not observed everything yet (the next LLDP frame is up to
    30 s away). Keys that its first full state lacks are kept this long, and for agents that report whole
    fabrics at least an hour. A process that reconnects knows which keys it removed, so its missing keys are
    removed at once.
    """

    def __init__(
        self,
        state: EvidenceState,
        store: EvidenceStore,
        writer: StoreWriter,
        *,
        on_commit: Callable[[Sequence[KeyChange]], None],
        clock_ns: Callable[[], int],
        on_full_state: Callable[[str], None] = lambda node: None,
        load_nodes: Callable[[Sequence[str]], Loaded] | None = None,
        grace_s: float = 120.0,
        renewals_wait_s: float = _RENEWALS_WAIT_S,
        full_state_wait_s: float = _FULL_STATE_WAIT_S,
        max_waiting_bytes: int = 64 * 1024 * 1024,
        space_timeout_s: float = 30.0,
    ) -> None:
        self.waiting_bytes = 0
        self._state = state
        self._store = store
        self._on_commit = on_commit
        self._on_full_state = on_full_state
        self._load_nodes = load_nodes
        self._unsure: set[str] = set()  # nodes of which the store may have something else
        self._clock_ns = clock_ns
        self._grace_ns = int(grace_s * NS)
        self._renewals_wait_s = renewals_wait_s
        self._full_state_wait_s = full_state_wait_s
        self._max_waiting_bytes = max_waiting_bytes
        self._space_timeout_s = space_timeout_s
        self._space = asyncio.Condition()
        self._turn = asyncio.Lock()
        self._unclaimed: dict[str, _Unclaimed] = {}
        self._refused: dict[str, tuple[int, str]] = {}  # by node: when its last finding was refused, and why
        self.queue = WriteQueue(
            writer,
            Priority.EVIDENCE,
            "evidence is not written, and nothing is acknowledged",
            self._write,
            join=_joined,
            repeat=False,
        )

    async def submit(self, submission: Submission) -> "asyncio.Future[list[Refused]]":
        """Queue a submission, after waiting for space. The future resolves to the refused findings once the
        rest is stored.

        The future raises StoreError if the write failed. Raises OverloadedError if no space is free in time.
        """
        cost = submission.cost_bytes
        if not self._fits(cost):
            try:
                async with asyncio.timeout(self._space_timeout_s), self._space:
                    await self._space.wait_for(lambda: self._fits(cost))
            except TimeoutError as error:
                raise OverloadedError(
                    f"{self.waiting_bytes >> 20} MiB wait to be written: send it again later"
                ) from error
        waiting = _Waiting(submission)
        self.waiting_bytes += cost
        group = _Group([waiting], len(submission.rows) + len(submission.renewed))
        self.queue.put(group, within_s=self._wait_s(submission))
        return waiting.done

    def paused(self) -> AbstractAsyncContextManager[None]:
        """Write nothing in the block: there the caller may change the state by what it reads in the store."""
        return self._turn

    async def reload_unsure(self) -> None:
        """In `paused`: read what failed transactions have stored. Raises StoreError."""
        if self._load_nodes is None or not (nodes := sorted(self._unsure)):
            return
        loaded = await self.queue.in_thread(self._load_nodes, nodes)
        plan = reloaded(self._state, nodes, loaded, self._clock_ns())
        if committed := self._state.commit(plan, loaded.text_bytes):
            self._on_commit(committed)
        self._unsure.clear()

    def _wait_s(self, submission: Submission) -> float:
        if submission.changes_content:
            return 0.0
        if submission.full_state is not None:
            return self._full_state_wait_s
        return self._renewals_wait_s if submission.renewed else 0.0

    def _fits(self, cost: int) -> bool:
        return not self.waiting_bytes or self.waiting_bytes + cost <= self._max_waiting_bytes

    @property
    def problems(self) -> list[str]:
        """That findings were refused in the last minutes because of a limit of the store."""
        now_ns = self._clock_ns()
        found = [(node, why) for node, (at_ns, why) in self._refused.items() if now_ns - at_ns < _REFUSED_NS]
        if not found:
            return []
        node, why = found[-1]
        more = f" (and of {count(len(found) - 1, 'more reporter')})" if len(found) > 1 else ""
        hint = f"`hyperscout get findings {node}` lists what is stored"
        return [f"findings of {node} are refused{more}: {why}; {hint}"]

    def due(self, now_ns: int, connected: Callable[[str], bool]) -> list[Key]:
        """Returns the keys with an expired grace, to be forgotten. Keys of disconnected agents stay."""
        gone: list[Key] = []
        for node in [node for node, unclaimed in self._unclaimed.items() if unclaimed.due_ns <= now_ns]:
            unclaimed = self._unclaimed.pop(node)
            if connected(node):
                gone += sorted(unclaimed.keys)
        return gone

    async def _write(self, group: _Group) -> bool:
        cost_bytes = sum(waiting.submission.cost_bytes for waiting in group.waiting)
        outcome: StoreError | None = None
        refused: list[list[Refused]] = []
        try:
            async with self._turn:
                plan, changes, refused = await self._apply(group)
                if committed := self._state.commit(plan):
                    self._on_commit(committed)
            for waiting, why in zip(group.waiting, refused, strict=True):
                if (full := waiting.submission.full_state) and _is_complete(why):
                    self._on_full_state(full.agent.node)
            return bool(changes)
        except StoreError as error:
            outcome = error
            raise
        except BaseException as error:
            outcome = StoreError(f"the collector stops writing evidence: {error!r}")
            raise
        finally:
            async with self._space:
                self.waiting_bytes -= cost_bytes
                self._space.notify_all()
            for i, waiting in enumerate(group.waiting):
                if outcome is not None:
                    _fail(waiting, outcome)
                elif not waiting.done.done():
                    waiting.done.set_result(refused[i])

    async def _apply(self, group: _Group) -> tuple[EvidencePlan, Changes, list[list[Refused]]]:
        """Store what the group changes, without submissions of nodes whose stream another replica has."""
        await self.reload_unsure()
        while True:
            plan = EvidencePlan(self._state, self._clock_ns())
            refused = [self._plan(plan, waiting.submission) for waiting in group.waiting]
            changes = _changes(plan, self._state)
            try:
                if changes:
                    await self.queue.in_thread(self._store.apply, changes)
            except NotOwnerError as error:
                lost = [waiting for waiting in group.waiting if waiting.submission.concerns(error.nodes)]
                if not lost:
                    raise
                group.waiting = [waiting for waiting in group.waiting if waiting not in lost]
                for waiting in lost:
                    _fail(waiting, error)
            except StoreError as error:
                if error.may_be_stored:
                    self._unsure.update({key.node for key in plan.rows}, plan.agents)
                raise
            else:
                return plan, changes, refused

    def _plan(self, plan: EvidencePlan, submission: Submission) -> list[Refused]:
        refused = []
        for bulk in submission.bulks:
            plan.put_bulk(bulk)
        for row, encoded in submission.rows:
            if unclaimed := self._unclaimed.get(row.key.node):
                unclaimed.keys.discard(row.key)
            if row.sha256 and not plan.has_text(row.sha256):
                refused.append(Refused(row.key, "the collector does not have its text", dropped=True))
                continue
            if reason := plan.upsert(row, encoded):
                refused.append(Refused(row.key, reason))
                self._note_refusal(row.key.node, reason)
        for row in submission.renewed:
            if unclaimed := self._unclaimed.get(row.key.node):
                unclaimed.keys.discard(row.key)
            if not plan.renew(row):
                refused.append(Refused(row.key, "the collector does not hold it", dropped=True))
        for key in submission.removed:
            plan.remove(key)
        for key, known in submission.forgotten.items():
            plan.forget(key, known)
        for agent in submission.forgotten_agents:
            plan.forget_agent(agent)
        if submission.full_state and _is_complete(refused):
            self._end_full_state(plan, submission.full_state)
        return refused

    def _note_refusal(self, node: str, reason: str) -> None:
        self._refused.pop(node, None)  # the latest is the last
        self._refused[node] = self._clock_ns(), reason
        if len(self._refused) > _MAX_REFUSED:
            del self._refused[next(iter(self._refused))]

    def _end_full_state(self, plan: EvidencePlan, full: FullState) -> None:
        node = full.agent.node
        known = plan.agent_of(node)
        # A full state does not cover results that stay without it, and findings of a device in the node.
        absent = {
            key
            for key in plan.keys_of(node) - full.keys
            if key.probe != DEVICE_PROBE and not is_result(key, plan.rows_of_key(key))
        }
        if known is not None and known.instance == full.agent.instance:
            waits = self._unclaimed[node].keys if node in self._unclaimed else set()
            for key in absent - waits:
                plan.remove(key)
        elif absent:
            grace_ns = max(self._grace_ns, int(_CRAWL_GRACE_S * NS)) if is_fabric(node) else self._grace_ns
            self._unclaimed[node] = _Unclaimed(self._clock_ns() + grace_ns, absent)
        else:
            self._unclaimed.pop(node, None)
        if known != full.agent:
            plan.agents[node] = full.agent


def _fail(waiting: _Waiting, error: StoreError) -> None:
    if not waiting.done.done():  # otherwise the stream that submitted it has ended
        waiting.done.set_exception(error)
        waiting.done.exception()  # marks the exception as retrieved when no caller waits any more


def _is_complete(refused: Sequence[Refused]) -> bool:
    """Whether the batch left nothing out that its agent takes for stored. Otherwise its stream ends."""
    return not any(one.dropped for one in refused)


def _joined(old: _Group, new: _Group) -> _Group | None:
    if old.rows + new.rows > _MAX_GROUP_ROWS:
        return None
    old.waiting += new.waiting
    old.rows += new.rows
    return old


def _changes(plan: EvidencePlan, state: EvidenceState) -> Changes:
    upserts, renewed, deletes = [], [], []
    named = set()
    for key, after in plan.rows.items():
        before = state.rows_of_key(key)
        ranks = [row.rank for row in after]
        deletes += [(key, row.rank) for row in before if row.rank not in ranks]
        # A row that was added and replaced within this plan has an encoded form, but is not in `after`.
        for row in after:
            if row.sha256:
                named.add(row.sha256)
            if row in before:
                continue
            if (encoded := plan.encoded[key, row.rank]) is None:
                renewed.append(row)
            else:
                upserts.append((row, encoded))
    bulks = [bulk for digest, bulk in plan.bulks.items() if digest in named]
    agents = [agent for agent in plan.agents.values() if agent is not None]
    removed = [node for node, agent in plan.agents.items() if agent is None]
    return Changes(upserts, deletes, bulks, sorted(plan.dropped_bulks), agents, removed, renewed)
