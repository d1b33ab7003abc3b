"""All current evidence in memory. Inference and the API read it, and changes are decided against it.

A change is planned against the state, then written by the store, and only then applied to the state. The
state therefore equals the store, unless a connection to PostgreSQL breaks while it commits: then the store
may have a batch that the state lacks. Used only on the event loop; nothing here blocks.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from hyperscout_formats.text.reporters import DEVICE_PROBE

from hyperscout_collector.evidence.age_count import AgeCount
from hyperscout_collector.evidence.kept import KEPT_PROBES, MAX_KEPT
from hyperscout_collector.evidence.limits import Limits
from hyperscout_collector.evidence.rows import (
    FAILED,
    OUTCOME_WORDS,
    WHOLE,
    Key,
    Row,
    SweepFact,
    all_alike,
    by_rank,
    merged,
    only_counted,
)

# Probes that read a whole fabric under a lease. Their findings belong to the fabric, not to the node: they
# stay in force when the agent restarts or loses its lease, until a newer sweep of that fabric replaces them.
LEASED_PROBES = frozenset({"ibnetdiscover"})
# Counts errors under the same lease. It shows no fabric: its findings end with their agent and trigger
# nothing.
COUNTING_PROBE = "ibqueryerrors"
MEASURING_PROBES = frozenset({"latency", "nccl"})
# Reports devices and their use to the placer. Inference does not read it.
DEVICES_PROBE = "pod_resources"
_NOT_INFERRED = MEASURING_PROBES | {COUNTING_PROBE, DEVICES_PROBE}


@dataclass(frozen=True, slots=True)
class Bulk:
    """A text under its SHA-256, as one zlib stream. `size_bytes`: size of the uncompressed text."""

    sha256: bytes
    size_bytes: int
    compressed: bytes


@dataclass(frozen=True, slots=True)
class AgentRow:
    """What is stored about an agent across restarts of the collector. `instance`: of its last full state.

    `instance` shows whether a reconnecting agent is the process that reported the evidence. Without evidence
    it has no meaning.
    """

    node: str
    instance: int
    version: str


@dataclass(frozen=True, slots=True)
class KeyChange:
    """The effect of a committed plan on one key.

    `is_renewal`: only times changed. Each agent confirms each of its findings about once a minute, so most
    changes are renewals.

    `news` is False if only times or error counters changed, because they decide nothing. It is also False for
    measurements: no two are equal, and inference need not run for one. So it is for devices and their use.
    """

    key: Key
    before: tuple[Row, ...]
    after: tuple[Row, ...]
    is_renewal: bool = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "is_renewal", all_alike(self.before, self.after, Row.same_content))

    @property
    def news(self) -> bool:
        if self.is_renewal or self.key.probe in _NOT_INFERRED:
            return False
        return not all_alike(self.before, self.after, only_counted)


@dataclass(slots=True)
class EvidencePlan:
    """Changes for one transaction, decided in the order of the requests."""

    state: "EvidenceState"
    now_ns: int
    rows: dict[Key, tuple[Row, ...]] = field(default_factory=dict)  # of touched keys; () = removed
    # By key and rank, of new rows; None = only the times of a stored row changed.
    encoded: dict[tuple[Key, int], bytes | None] = field(default_factory=dict)
    bulks: dict[bytes, Bulk] = field(default_factory=dict)
    agents: dict[str, AgentRow | None] = field(default_factory=dict)  # by node; None = removed
    _touched: dict[str, set[Key]] = field(default_factory=dict)  # by node
    _counts: dict[str, int] = field(default_factory=dict)  # keys by node, of nodes that grew or shrank
    _bytes: dict[str, int] = field(default_factory=dict)  # growth by node
    _new_nodes: set[str] = field(default_factory=set)
    _of_probe: dict[tuple[str, str], set[Key]] = field(default_factory=dict)  # see `_keys_of_probe`

    def upsert(self, row: Row, encoded: bytes) -> str | None:
        """Add a finding. Returns why it is refused; None = it is accepted, or it changes nothing.

        The oldest kept results of its node are removed if a finding of its agent does not fit beside them.
        """
        before = self.rows_of_key(row.key)
        after = merged(before, row, self.now_ns)
        if after is before:
            return None
        growth = self._size(after) - self._size(before)
        node = row.key.node
        is_device, is_new = row.key.probe == DEVICE_PROBE, not before
        if is_device and (reason := self._why_full_of_devices(node, growth, is_new=is_new)):
            return reason
        while reason := (is_new and self._why_full(node)) or self._why_too_large(node, growth):
            others = set() if is_device else self._kept_of(node) - {row.key}
            if not others:
                return reason
            self._remove_oldest(others)
        self._set(row.key, before, after, growth)
        self.encoded[row.key, row.rank] = encoded
        if row.key.probe in KEPT_PROBES:
            while len(kept := self._kept_of(node)) > MAX_KEPT:
                self._remove_oldest(kept)
        return None

    def renew(self, row: Row) -> bool:
        """Set the times of a stored finding. Returns False if it is not stored any more."""
        before = self.rows_of_key(row.key)
        held = next((one for one in before if one.rank == row.rank), None)
        if held is None or not held.same_content(row):
            return False
        after = merged(before, row, self.now_ns)
        if after is not before:
            if len(before) == 1 and held.memory_bytes == row.memory_bytes:
                self.rows[row.key] = after  # it counts as before
            else:
                self._set(row.key, before, after, self._size(after) - self._size(before))
            self.encoded.setdefault((row.key, row.rank), None)
        return True

    def _kept_of(self, node: str) -> set[Key]:
        return set().union(*(self._keys_of_probe(node, probe) for probe in KEPT_PROBES))

    def _keys_of_probe(self, node: str, probe: str) -> set[Key]:
        """Return the keys of a probe, with the changes of this plan so far; the caller must not change it."""
        if (node, probe) not in self._of_probe:
            self._of_probe[node, probe] = {key for key in self.keys_of(node) if key.probe == probe}
        return self._of_probe[node, probe]

    def _remove_oldest(self, keys: Collection[Key]) -> None:
        self.remove(min(keys, key=lambda key: (max(x.seen_ns for x in self.rows_of_key(key)), key)))

    def put_bulk(self, bulk: Bulk) -> None:
        """Add a text that a finding of this plan names."""
        self.bulks[bulk.sha256] = bulk

    def has_text(self, sha256: bytes) -> bool:
        return sha256 in self.bulks or self.state.holds_bulk(sha256)

    def remove(self, key: Key) -> None:
        """Remove a key; an unknown one is no error. A whole sweep of a fabric stays without its agent."""
        before = self.rows_of_key(key)
        if before and not _in_force_without_its_agent(before):
            self._set(key, before, (), -self._size(before))

    def forget(self, key: Key, known: Collection[Row]) -> None:
        """Remove a key of any probe, unless it has a row that is not in `known`.

        The caller decided on the evidence of a moment ago; a sweep that arrived since may now be the only
        one. Failed rows do not count.
        """
        before = self.rows_of_key(key)
        if before and all(row in known or row.rank == FAILED for row in before):
            self._set(key, before, (), -self._size(before))

    def agent_of(self, node: str) -> AgentRow | None:
        """Returns the agent of a node, with the changes of this plan so far."""
        return self.agents[node] if node in self.agents else self.state.agents.get(node)

    def forget_agent(self, known: AgentRow) -> None:
        """Remove an agent, unless it has evidence or it is another process by now."""
        if self.agent_of(known.node) == known and not self._count(known.node):
            self.agents[known.node] = None

    def rows_of_key(self, key: Key) -> tuple[Row, ...]:
        found = self.rows.get(key)
        return self.state.rows_of_key(key) if found is None else found

    def keys_of(self, node: str) -> set[Key]:
        """Returns the keys of a node, with the changes of this plan so far."""
        touched = self._touched.get(node, set())
        return {key for key in self.state.keys_of(node) if key not in touched} | {
            key for key in touched if self.rows[key]
        }

    def _set(self, key: Key, before: tuple[Row, ...], after: tuple[Row, ...], growth: int) -> None:
        self.rows[key] = after
        self._touched.setdefault(key.node, set()).add(key)
        self._bytes[key.node] = self._bytes.get(key.node, 0) + growth
        if (keys := self._of_probe.get((key.node, key.probe))) is not None:
            (keys.add if after else keys.discard)(key)
        if grown := bool(after) - bool(before):
            self._counts[key.node] = self._count(key.node) + grown
            if not self.state.count_of(key.node):
                self._new_nodes.add(key.node)

    def _count(self, node: str) -> int:
        found = self._counts.get(node)
        return self.state.count_of(node) if found is None else found

    def _why_full(self, node: str) -> str | None:
        limits = self.state.limits
        count = self._count(node)
        if count >= limits.findings_per_node:
            return f"{node} has {count} findings; the collector stores at most {limits.findings_per_node}"
        if not count and self.state.node_count + len(self._new_nodes) >= limits.nodes:
            return f"the collector stores findings of at most {limits.nodes} nodes"
        return None

    def _why_full_of_devices(self, node: str, growth: int, *, is_new: bool) -> str | None:
        keys, limits = self._keys_of_probe(node, DEVICE_PROBE), self.state.limits
        most = limits.bytes_of_devices(node)
        if is_new and len(keys) >= limits.findings_of_devices:
            stored, limit = f"{len(keys)} findings", f"{limits.findings_of_devices}"
        elif growth > 0 and (size := sum(self._size(self.rows_of_key(key)) for key in keys)) + growth > most:
            stored, limit = f"{size >> 10} KiB", f"{most >> 10} KiB"
        else:
            return None
        return f"{node} has {stored} of devices in it; the collector stores at most {limit}"

    def _why_too_large(self, node: str, growth: int) -> str | None:
        if growth <= 0:
            return None
        most = self.state.limits.bytes_of(node)
        now = self.state.bytes_of(node) + self._bytes.get(node, 0)
        if now + growth <= most:
            return None
        return f"findings of {node} take {now >> 10} KiB; the collector stores at most {most >> 10} KiB"

    def _size(self, rows: tuple[Row, ...]) -> int:
        return sum([row.memory_bytes + self._text_bytes(row.sha256) for row in rows])

    def _text_bytes(self, sha256: bytes | None) -> int:
        if sha256 is None:
            return 0
        bulk = self.bulks.get(sha256)
        return self.state.text_bytes(sha256) if bulk is None else len(bulk.compressed)

    @property
    def dropped_bulks(self) -> set[bytes]:
        """Digests that this plan's keys named before and do not name after it; other keys may name them."""
        names: set[bytes] = set()
        for key, after in self.rows.items():
            if digests := _digests(self.state.rows_of_key(key)):
                names |= digests - _digests(after)
        return names


class EvidenceState:
    """The rows by node and key, with counters for metrics and queries."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self.agents: dict[str, AgentRow] = {}
        self.counts: Counter[tuple[str, str]] = Counter()  # rows by (probe, outcome word)
        self._nodes: dict[str, dict[Key, tuple[Row, ...]]] = {}
        self._bytes: Counter[str] = Counter()  # by node
        self._bulk_refs: Counter[bytes] = Counter()
        self._text_bytes: dict[bytes, int] = {}  # compressed size of texts that rows name
        self._seen = AgeCount()  # of rows that can turn stale

    def load(
        self, rows: Iterable[Row], agents: Iterable[AgentRow], text_bytes: Mapping[bytes, int] | None = None
    ) -> None:
        """Fill an empty state with the content of the store. `text_bytes`: compressed sizes by digest."""
        self._text_bytes.update(text_bytes or {})
        for row in rows:
            keys = self._nodes.setdefault(row.key.node, {})
            keys[row.key] = by_rank((*keys.get(row.key, ()), row))
            self._count(row, 1)
        self.agents = {agent.node: agent for agent in agents}

    def commit(self, plan: EvidencePlan, texts: Mapping[bytes, int] | None = None) -> list[KeyChange]:
        """Apply a plan that is stored. Returns its changes. `texts`: see `load`; of others than its bulks."""
        changes = []
        new = {**(texts or {}), **{digest: len(bulk.compressed) for digest, bulk in plan.bulks.items()}}
        self._text_bytes.update(new)
        for key, after in plan.rows.items():
            before = self.rows_of_key(key)
            if before == after:
                continue
            self._recount(before, after)
            keys = self._nodes.setdefault(key.node, {})
            if after:
                keys[key] = after
            else:
                keys.pop(key, None)
            if not keys:
                del self._nodes[key.node]
            changes.append(KeyChange(key, before, after))
        for digest in new.keys() - self._bulk_refs.keys():
            del self._text_bytes[digest]
        for node, agent in plan.agents.items():
            if agent is not None:
                self.agents[node] = agent
            else:
                self.agents.pop(node, None)
        return changes

    def agents_without_evidence(self) -> list[AgentRow]:
        return [agent for node, agent in self.agents.items() if node not in self._nodes]

    def rows_of_key(self, key: Key) -> tuple[Row, ...]:
        keys = self._nodes.get(key.node)
        return keys.get(key, ()) if keys else ()

    def keys_of(self, node: str) -> Iterable[Key]:
        return self._nodes.get(node, {}).keys()

    def rows_of_node(self, node: str) -> Iterator[Row]:
        for rows in self._nodes.get(node, {}).values():
            yield from rows

    def count_of(self, node: str) -> int:
        return len(self._nodes.get(node, ()))  # keys

    def bytes_of(self, node: str) -> int:
        """Memory of a node's findings, and its texts as they are stored."""
        return self._bytes[node]

    def text_bytes(self, sha256: bytes) -> int:
        return self._text_bytes.get(sha256, 0)

    @property
    def nodes(self) -> Iterable[str]:
        return self._nodes.keys()

    @property
    def node_count(self) -> int:
        return len(self._nodes)

    def __len__(self) -> int:
        """Number of rows."""
        return self.counts.total()

    def stale_count(self, limit_ns: int) -> int:
        """Number of rows seen in an earlier second than `limit_ns`. `KEPT_PROBES` never turn stale."""
        return self._seen.before(limit_ns)

    def holds_bulk(self, sha256: bytes) -> bool:
        return self._bulk_refs[sha256] > 0

    def bulks_of(self, node: str) -> list[bytes]:
        """Returns the digests that findings of this node name, sorted."""
        return sorted({row.sha256 for row in self.rows_of_node(node) if row.sha256})

    def outcomes(self) -> Mapping[tuple[str, str], int]:
        return {key: count for key, count in self.counts.items() if count}

    def _recount(self, before: tuple[Row, ...], after: tuple[Row, ...]) -> None:
        if len(before) == len(after) == 1 and after[0].is_renewal_of(before[0]):
            if after[0].key.probe not in KEPT_PROBES:
                self._seen.move(before[0].seen_ns, after[0].seen_ns)
            return
        for row in after:  # first, so that the size of a text which both name stays known
            self._count(row, 1)
        for row in before:
            self._count(row, -1)

    def _count(self, row: Row, by: int) -> None:
        self.counts[row.key.probe, OUTCOME_WORDS[row.outcome]] += by
        if row.key.probe not in KEPT_PROBES:
            self._seen.add(row.seen_ns, by)
        size, node = row.memory_bytes, row.key.node
        if row.sha256:
            size += self.text_bytes(row.sha256)
            self._bulk_refs[row.sha256] += by
            if not self._bulk_refs[row.sha256]:
                del self._bulk_refs[row.sha256]
                self._text_bytes.pop(row.sha256, None)
        self._bytes[node] += by * size
        if not self._bytes[node]:
            del self._bytes[node]


def _in_force_without_its_agent(rows: tuple[Row, ...]) -> bool:
    whole = (row for row in rows if row.rank == WHOLE and row.key.probe in LEASED_PROBES)
    return any(isinstance(row.fact, SweepFact) for row in whole)


def _digests(rows: tuple[Row, ...]) -> set[bytes]:
    return {row.sha256 for row in rows if row.sha256}
