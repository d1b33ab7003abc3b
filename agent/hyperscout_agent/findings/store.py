"""Stores the agent's current findings by key, their acknowledgement state, and bulk texts.

Evidence is state, not a log. A finding replaces the earlier one of the same key, so memory is bounded by
the number of subjects. After a lost stream the agent sends the state again.

A finding that the collector has acknowledged and that did not change since is named, also in full states.
A stream begins with the time of the newest finding that the collector holds. If it acknowledged a newer one,
it has lost findings, and all are sent.

A failed or partial finding does not replace a better one. The store keeps up to one finding of each rank
(whole, partial, failed) for a key, until a later finding of the same or a higher rank arrives.
"""

import asyncio
import itertools
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import NamedTuple

from hyperscout.v1.discovery_pb2 import Unchanged
from hyperscout.v1.finding_pb2 import Finding, FindingKey, Outcome

from hyperscout_agent.findings.bulk import Bulk

# One finding must fit into a batch. Real findings are far smaller.
MAX_FINDING_BYTES = 256 * 1024


class StoreFull(RuntimeError):  # noqa: N818 - names the condition the caller reacts to
    """The store has no free capacity. The caller reports it in a failed finding; stored findings stay."""


class Key(NamedTuple):
    """Identity of a finding within one agent."""

    probe: str
    subject: str


@dataclass(frozen=True, slots=True)
class Batch:
    """The content of one FindingBatch, and the key versions that its ack confirms.

    `versions`: key, version, and what is `held_ns` of the key after the ack.
    """

    findings: tuple[Finding, ...]
    unchanged: tuple[Unchanged, ...]
    removed: tuple[FindingKey, ...]
    versions: tuple[tuple[Key, int, int], ...]
    full_state_ends: bool


@dataclass(slots=True)
class _Entry:
    """A key. `content`, `marked`, `sent`: the version of the last change, the last mark and the last sending.

    `held_ns`: when the finding was observed that the collector holds, if it differs from the present one in
    nothing but its time; 0 = the collector may hold another one, or none.
    """

    ranked: list[tuple[int, Finding]]  # (rank, finding), highest rank and oldest first
    marked_at_s: float
    content: int = 0
    marked: int = 0
    sent: int = 0
    held_ns: int = 0

    @property
    def newest_ns(self) -> int:
        """When it was observed, Unix ns; 0 if it must always be sent.

        That is a sweep, a result of NCCL (the collector keeps the newest ones only), or several findings.
        """
        (_, finding), *others = self.ranked
        is_named = not others and finding.WhichOneof("payload") not in ("sweep", "nccl")
        return finding.observed_at.ToNanoseconds() if is_named else 0


_FAILED, _PARTIAL, _WHOLE = 0, 1, 2


def _rank(finding: Finding) -> int:
    if finding.outcome == Outcome.OUTCOME_FAILED:
        return _FAILED
    return _PARTIAL if finding.HasField("sweep") and finding.sweep.partial else _WHOLE


def _same_sample(a: Finding, b: Finding) -> bool:
    """Whether two findings are equal except for their time."""
    if a.outcome != b.outcome or a.reason != b.reason:
        return False
    payload = a.WhichOneof("payload")
    if payload != b.WhichOneof("payload"):
        return False
    return payload is None or bool(getattr(a, payload) == getattr(b, payload))


class FindingStore:
    """Current findings of one node.

    `clock`: monotonic seconds. `refresh_interval_s`: minimum interval between two transmissions of a
    finding when only its timestamp changed. `max_findings`: maximum number of keys, including removed keys
    that are not acked yet. `max_bulk_bytes`: maximum total of compressed bytes. Not thread-safe: use it from
    one event loop.
    """

    def __init__(
        self,
        node: str,
        clock: Callable[[], float] = time.monotonic,
        *,
        refresh_interval_s: float = 60.0,
        max_findings: int = 4096,
        max_bulk_bytes: int = 32 * 1024 * 1024,
    ) -> None:
        self.node = node
        self.changed = asyncio.Event()  # set when there is something to send; `next_batch` clears it
        self._clock = clock
        self._refresh_interval_s = refresh_interval_s
        self._max_findings = max_findings
        self._max_bulk_bytes = max_bulk_bytes
        self._entries: dict[Key, _Entry] = {}
        self._bulks: dict[bytes, Bulk] = {}
        self._bulk_bytes = 0
        self._versions = itertools.count(1)
        # A dirty key is not acked. Without a stream the queue is empty. With a stream, a dirty key that is
        # not queued is in a batch that was sent. Tombstones are dirty keys that were removed.
        self._tombstones: set[Key] = set()
        self._dirty: dict[Key, int] = {}
        self._queue: deque[Key] = deque()
        self._queued: set[Key] = set()
        self._streaming = False
        self._names_unchanged = False  # on this stream
        self._distrusts = False  # the next stream gets all findings
        self._full_state_left: int | None = (
            None  # queued keys of the full state that are not sent yet; None = the full state has ended
        )

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def dirty(self) -> int:
        """Number of keys that the collector has not acked."""
        return len(self._dirty)

    @property
    def bulk_bytes(self) -> int:
        return self._bulk_bytes

    def put(self, finding: Finding) -> bool:
        """Store a finding and take ownership of it. Returns True when more than its time changed.

        Raises ValueError for another node's finding or one above MAX_FINDING_BYTES. Raises StoreFull when a
        new key exceeds `max_findings`.
        """
        if finding.key.node != self.node:
            raise ValueError(f"a finding of node {finding.key.node!r} in the store of {self.node!r}")
        if finding.ByteSize() > MAX_FINDING_BYTES:
            raise ValueError(
                f"{finding.key.probe} {finding.key.subject}: larger than {MAX_FINDING_BYTES} bytes"
            )
        key = Key(finding.key.probe, finding.key.subject)
        now_s = self._clock()
        entry = self._entries.get(key)
        if entry is None:
            held = len(self._entries) + len(self._tombstones) - (key in self._tombstones)
            if held >= self._max_findings:
                raise StoreFull(
                    f"{key.probe} {key.subject}: not stored: the store has {self._max_findings} findings"
                )
            self._tombstones.discard(key)
            entry = self._entries[key] = _Entry([(_rank(finding), finding)], now_s)
            entry.content = entry.marked = self._mark(key)
            return True
        rank = _rank(finding)
        last_rank, last = entry.ranked[-1]
        changed = last_rank != rank or not _same_sample(last, finding)
        replaced = [one for one in entry.ranked if one[0] <= rank]
        entry.ranked = [one for one in entry.ranked if one[0] > rank]
        entry.ranked.append((rank, finding))
        self._drop_bulks(one for _, one in replaced)
        if changed or now_s - entry.marked_at_s >= self._refresh_interval_s:
            entry.marked_at_s = now_s
            entry.marked = self._mark(key)
        if changed:
            entry.content, entry.held_ns = entry.marked, 0
        return changed

    def remove(self, key: FindingKey) -> None:
        """Remove a key (a removed interface) and queue its removal. Unknown keys are ignored."""
        own = Key(key.probe, key.subject)
        entry = self._entries.pop(own, None)
        if entry is None:
            return
        self._drop_bulks(one for _, one in entry.ranked)
        if self._streaming:
            self._tombstones.add(own)
            self._mark(own)
        else:
            self._dirty.pop(own, None)  # the next full state omits the key, which removes it at the collector

    def subjects(self, probe: str) -> set[str]:
        return {key.subject for key in self._entries if key.probe == probe}

    def get(self, probe: str, subject: str) -> Finding | None:
        """Return the finding with the highest rank for a key (whole, partial, failed), or None."""
        entry = self._entries.get(Key(probe, subject))
        return entry.ranked[0][1] if entry else None

    def newest(self) -> Iterator[Finding]:
        """Return the latest finding of each key, of any rank."""
        return (entry.ranked[-1][1] for entry in self._entries.values())

    # Bulk texts

    def put_bulk(self, bulk: Bulk) -> bytes:
        """Store a compressed text. Returns its SHA-256. Raises StoreFull.

        A text stays while a finding refers to it. Unreferenced texts are dropped when space is short.
        """
        if bulk.sha256 not in self._bulks:
            if self._bulk_bytes + len(bulk.compressed) > self._max_bulk_bytes:
                self._drop_orphans()
            if self._bulk_bytes + len(bulk.compressed) > self._max_bulk_bytes:
                raise StoreFull(
                    f"a text of {bulk.size_bytes} bytes ({len(bulk.compressed)} compressed) was not stored: "
                    f"{self._bulk_bytes} of {self._max_bulk_bytes} bytes are used"
                )
            self._bulks[bulk.sha256] = bulk
            self._bulk_bytes += len(bulk.compressed)
        return bulk.sha256

    def bulk(self, sha256: bytes) -> Bulk | None:
        return self._bulks.get(sha256)

    # Stream

    def begin_stream(self, held_ns: int | None = None) -> None:
        """Mark all keys dirty. The next batches contain the full state, then the changes.

        `held_ns`: when the newest finding was observed that the collector holds of this process, Unix ns.
        None: the collector must get all findings.
        """
        self._streaming = True
        self._names_unchanged = held_ns is not None and not self._distrusts
        self._distrusts = False
        entries = self._entries.values()
        if held_ns is None or held_ns < max((entry.held_ns for entry in entries), default=0):
            for entry in entries:
                entry.held_ns = 0
        self._queue.clear()
        self._queued.clear()
        self._dirty.clear()
        self._tombstones.clear()
        for key in self._entries:
            self._mark(key)
        self._full_state_left = len(self._queue)
        self.changed.set()

    def distrust(self) -> None:
        """The collector does not hold what this store assumes: send all findings on the next stream."""
        self._distrusts = True

    def end_stream(self) -> None:
        """Clear the queue and the tombstones.

        Removals without a stream need no message, because the next full state omits the keys.
        """
        self._streaming = False
        for key in self._tombstones:
            del self._dirty[key]
        self._tombstones.clear()
        self._queue.clear()
        self._queued.clear()
        self._full_state_left = None

    def next_batch(self, max_bytes: int, max_findings: int) -> Batch | None:
        """Return the next findings to send, oldest change first. None: nothing to send, await `changed`."""
        self.changed.clear()
        if not self._queue and self._full_state_left is None:
            return None
        findings: list[Finding] = []
        unchanged: list[Unchanged] = []
        removed: list[FindingKey] = []
        versions: list[tuple[Key, int, int]] = []
        size_bytes = 0
        while self._queue and len(versions) < max_findings:
            key = self._queue[0]
            entry = self._entries.get(key)
            same = self._unchanged(key, entry) if entry else None
            newest = [one for _, one in entry.ranked] if entry and same is None else []
            cost = sum(one.ByteSize() + 8 for one in newest) if newest else 64 + len(key.subject.encode())
            if versions and size_bytes + cost > max_bytes:
                break
            size_bytes += cost
            self._queue.popleft()
            self._queued.discard(key)
            version, held_ns = self._dirty[key], 0
            findings.extend(newest)
            if entry is None:
                removed.append(FindingKey(node=self.node, probe=key.probe, subject=key.subject))
            elif same is not None:
                unchanged.append(same)
                held_ns = same.observed_ns or same.held_ns
            else:
                held_ns = entry.newest_ns
            if entry is not None:
                entry.sent = version
                if same is None or same.observed_ns:
                    entry.held_ns = 0  # until the ack
            versions.append((key, version, held_ns))
        ends = False
        if self._full_state_left is not None:
            self._full_state_left -= len(versions)
            if ends := self._full_state_left <= 0:
                self._full_state_left = None
        return Batch(tuple(findings), tuple(unchanged), tuple(removed), tuple(versions), ends)

    def _unchanged(self, key: Key, entry: _Entry) -> Unchanged | None:
        """Return what names a finding that the collector holds, with its new time if that is due."""
        if not self._names_unchanged or not entry.held_ns:
            return None
        observed_ns = entry.newest_ns if entry.marked > entry.sent else 0
        if 0 < observed_ns <= entry.held_ns:  # the clock was set back: only a finding itself can show that
            return None
        return Unchanged(probe=key.probe, subject=key.subject, held_ns=entry.held_ns, observed_ns=observed_ns)

    def acked(self, batch: Batch, refused: AbstractSet[Key] = frozenset()) -> None:
        """Mark a batch as stored by the collector, except what it refused.

        Keys that changed since then stay dirty.
        """
        for key, version, held_ns in batch.versions:
            entry = self._entries.get(key)
            if entry and entry.sent == version and entry.content <= version and key not in refused:
                entry.held_ns = held_ns
            if self._dirty.get(key) == version:
                del self._dirty[key]
                self._tombstones.discard(key)

    def _mark(self, key: Key) -> int:
        """Make a key dirty. Returns its version."""
        self._dirty[key] = version = next(self._versions)
        if self._streaming and key not in self._queued:
            self._queued.add(key)
            self._queue.append(key)
            self.changed.set()
        return version

    def _drop_bulks(self, findings: Iterable[Finding]) -> None:
        """Drop the texts of removed findings, unless another finding refers to them."""
        gone = {one.sweep.sha256 for one in findings if one.HasField("sweep")}
        if gone:
            self._forget(gone - self._named())

    def _drop_orphans(self) -> None:
        self._forget(self._bulks.keys() - self._named())

    def _forget(self, digests: AbstractSet[bytes]) -> None:
        for digest in digests:
            if bulk := self._bulks.pop(digest, None):
                self._bulk_bytes -= len(bulk.compressed)

    def _named(self) -> set[bytes]:
        return {
            one.sweep.sha256
            for entry in self._entries.values()
            for _, one in entry.ranked
            if one.HasField("sweep")
        }
