"""Why a generation is published: what changed since the one before, as far as the pipeline knows.

Much of what is published waited: an all-clear of a flapping link, a tree that had to stand still. Then the
findings that it rests on may have changed before an earlier generation; those are kept for a while, and
the ones that are about what changed in the end are named. Pure: times are passed in.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from hyperscout_formats.text.reporters import is_node

from hyperscout_collector.evidence.rows import Key
from hyperscout_collector.evidence.state import LEASED_PROBES

FINDINGS, APPROVED, AGE, CLUSTER = "findings", "approved", "age", "cluster"
BLUEPRINT, RESTART, TAKEOVER = "blueprint", "restart", "takeover"
FOLLOWED = "followed"  # the leader published it, and does not say why
NAMED = 8  # findings of a cause, in the API
_KEPT = 1000  # keys that are remembered
_KEPT_NS = 900 * 1_000_000_000  # longer than anything is held


@dataclass(frozen=True, slots=True)
class Cause:
    """`kind`: as `Cause` of the API. `findings`: what changed since the generation before, the newest last;
    `total` of them in all. `earlier`: what changed before that, for what had to wait."""

    kind: str
    findings: tuple[Key, ...] = ()
    total: int = 0
    earlier: tuple[Key, ...] = ()

    def about(self, names: Collection[str]) -> "Cause":
        """With the NAMED findings that say most about these nodes and devices, and without `earlier`.

        What waited, and is about them, is the cause of a generation that nothing new gave rise to.
        """
        mine = [key for key in (*self.earlier, *self.findings) if key.node.rpartition("/")[2] in names]
        if self.kind == AGE and (waited := mine or list(filter(_is_wide, self.earlier))):
            return Cause(FINDINGS, tuple(waited[: -NAMED - 1 : -1]), len(waited))
        wide = filter(_is_wide, reversed(self.findings))
        chosen = dict.fromkeys((*reversed(mine), *wide, *reversed(self.findings)))
        return Cause(self.kind, tuple(chosen)[:NAMED], max(self.total, min(len(chosen), NAMED)))

    def joined(self, later: "Cause") -> "Cause":
        """Of two generations that are recorded as one."""
        kind = self.kind if self.kind in (RESTART, TAKEOVER, APPROVED) or later.kind == AGE else later.kind
        findings = tuple(dict.fromkeys((*self.findings, *later.findings)))[-_KEPT:]
        return Cause(kind, findings, self.total + later.total, self.earlier)


@dataclass(slots=True)
class CauseLog:
    """What the pipeline saw change. `start`: RESTART or TAKEOVER where something was published before this
    process began, "" where nothing was; `start_until_ns`: what comes up to then happened meanwhile."""

    start: str = ""
    start_until_ns: int = 0
    _fresh: dict[Key, int] = field(default_factory=dict)  # not inferred from yet; when it changed
    _seen: dict[Key, int] = field(default_factory=dict)  # inferred from, nothing published since
    _earlier: dict[Key, int] = field(default_factory=dict)
    _total: int = 0  # of those seen, also those that are not remembered
    _said: str = ""  # what else gave reason to look, since the last look
    _looked: str = AGE  # why the last look was taken
    _waits: str = AGE  # the last reason but age since something was published

    def changed(self, keys: Iterable[Key], now_ns: int) -> None:
        """News of these findings."""
        for key in keys:
            self._fresh.pop(key, None)
            self._fresh[key] = now_ns
        _cut(self._fresh)

    def said(self, kind: str) -> None:
        """Something other than findings gives reason to look again."""
        self._said = kind

    def looking(self) -> None:
        """What changed up to now is looked at. What changes meanwhile is a matter of the next time."""
        self._looked = FINDINGS if self._fresh else self._said or AGE
        if self._looked != AGE:
            self._waits = self._looked
        self._total += len(self._fresh.keys() - self._seen.keys())
        for key in self._fresh:
            self._seen.pop(key, None)
        self._seen |= self._fresh
        _cut(self._seen)
        self._fresh, self._said = {}, ""

    def of(self, now_ns: int, kind: str = "", *, waited: bool = False) -> Cause:
        """Of a generation that is published now. `kind`: where the caller knows better. `waited`: nobody
        looked again, it was time."""
        kind = kind or (self._waits if waited else self._looked)
        if self.start and now_ns < self.start_until_ns and kind in (FINDINGS, AGE):
            kind = self.start
        earlier = (key for key, at_ns in self._earlier.items() if at_ns >= now_ns - _KEPT_NS)
        named = () if kind == AGE and not waited else tuple(earlier)
        cause = Cause(kind, tuple(self._seen), self._total, named)
        self._earlier |= self._seen
        _cut(self._earlier)
        self.start, self._looked, self._waits, self._seen, self._total = "", AGE, AGE, {}, 0
        return cause


def _is_wide(key: Key) -> bool:
    """Whether it tells of more than its own node."""
    return not is_node(key.node) or key.probe in LEASED_PROBES


def _cut(keys: dict[Key, int]) -> None:
    """The newest stay."""
    for key in list(keys)[: max(len(keys) - _KEPT, 0)]:
        del keys[key]
