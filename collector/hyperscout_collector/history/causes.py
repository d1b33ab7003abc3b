"""Finds the cause of a generation: what changed since the generation before, as far as the pipeline knows.

Much of a generation may have waited: an all-clear of a flapping link, a tree that had to be stable. The
findings behind it may then have changed before an earlier generation. Such findings are remembered for a
while, and those that concern the final change are named. Pure: the caller passes the time.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from hyperscout.v1 import topology_pb2 as pb
from hyperscout.v1.finding_pb2 import FindingKey
from hyperscout_formats.text.reporters import device_of, is_node
from hyperscout_runtime.units import NS

from hyperscout_collector.evidence.rows import Key
from hyperscout_collector.evidence.state import LEASED_PROBES

FINDINGS, APPROVED, AGE, CLUSTER = "findings", "approved", "age", "cluster"
BLUEPRINT, RESTART, TAKEOVER = "blueprint", "restart", "takeover"
FOLLOWED = "followed"  # published by the leader, which did not report a cause
MAX_NAMED = 8  # findings named in a cause, in the API
_MAX_KEYS = 1000  # remembered keys
_MAX_AGE_NS = 900 * NS  # longer than any part of a topology waits


@dataclass(frozen=True, slots=True)
class Cause:
    """`kind`: as `Cause` of the API. `findings`: those that changed since the generation before, the newest
    last.

    `total`: their number, including those that are not remembered. `earlier`: findings that changed before
    that, as causes of what had to wait.
    """

    kind: str
    findings: tuple[Key, ...] = ()
    total: int = 0
    earlier: tuple[Key, ...] = ()

    def about(self, names: Collection[str]) -> "Cause":
        """Returns the cause with the MAX_NAMED findings most relevant to these nodes and devices, and without
        `earlier`.

        Earlier findings about them are the cause of a generation that no new finding caused.
        """
        mine = [key for key in (*self.earlier, *self.findings) if device_of(key.node) in names]
        if self.kind == AGE and (waited := mine or list(filter(_is_wide, self.earlier))):
            return Cause(FINDINGS, tuple(waited[: -MAX_NAMED - 1 : -1]), len(waited))
        wide = filter(_is_wide, reversed(self.findings))
        chosen = dict.fromkeys((*reversed(mine), *wide, *reversed(self.findings)))
        return Cause(self.kind, tuple(chosen)[:MAX_NAMED], max(self.total, min(len(chosen), MAX_NAMED)))

    def joined(self, later: "Cause") -> "Cause":
        """Returns the cause of two generations that are recorded as one."""
        kind = self.kind if self.kind in (RESTART, TAKEOVER, APPROVED) or later.kind == AGE else later.kind
        findings = tuple(dict.fromkeys((*self.findings, *later.findings)))[-_MAX_KEYS:]
        return Cause(kind, findings, self.total + later.total, self.earlier)


@dataclass(slots=True)
class CauseLog:
    """Collects changes for the next cause.

    `start`: RESTART or TAKEOVER if a topology was published before this process started; "" = there was none.
    `start_until_ns`: changes up to then are attributed to `start`.
    """

    start: str = ""
    start_until_ns: int = 0
    _new: dict[Key, int] = field(default_factory=dict)  # not inferred from yet; when each key changed
    _inferred: dict[Key, int] = field(default_factory=dict)  # inferred from since the last generation
    _earlier: dict[Key, int] = field(default_factory=dict)
    _total: int = 0  # number of keys in `_inferred`, with those that are not remembered
    _input: str = ""  # another reason to infer, since the last inference
    _reason: str = AGE  # reason of the last inference
    _last_reason: str = AGE  # last reason other than age since the last generation

    def changed(self, keys: Iterable[Key], now_ns: int) -> None:
        """Record changes of these findings."""
        for key in keys:
            self._new.pop(key, None)
            self._new[key] = now_ns
        _cut(self._new)

    def input_changed(self, kind: str) -> None:
        """Record a reason to infer other than findings."""
        self._input = kind

    def inference_started(self) -> None:
        """An inference starts with all changes up to now. Later changes belong to the next one."""
        self._reason = FINDINGS if self._new else self._input or AGE
        if self._reason != AGE:
            self._last_reason = self._reason
        self._total += len(self._new.keys() - self._inferred.keys())
        for key in self._new:
            self._inferred.pop(key, None)
        self._inferred |= self._new
        _cut(self._inferred)
        self._new, self._input = {}, ""

    def take(self, now_ns: int, kind: str = "", *, waited: bool = False) -> Cause:
        """Returns the cause of a generation that is published now.

        `kind`: overrides the kind. `waited`: it is published because its time had come, without a new
        inference.
        """
        kind = kind or (self._last_reason if waited else self._reason)
        if self.start and now_ns < self.start_until_ns and kind in (FINDINGS, AGE):
            kind = self.start
        earlier = (key for key, at_ns in self._earlier.items() if at_ns >= now_ns - _MAX_AGE_NS)
        named = () if kind == AGE and not waited else tuple(earlier)
        cause = Cause(kind, tuple(self._inferred), self._total, named)
        self._earlier |= self._inferred
        _cut(self._earlier)
        self.start, self._reason, self._last_reason, self._inferred, self._total = "", AGE, AGE, {}, 0
        return cause


def _is_wide(key: Key) -> bool:
    """Whether the finding concerns more than its own node."""
    return not is_node(key.node) or key.probe in LEASED_PROBES


def _cut(keys: dict[Key, int]) -> None:
    """Keep the newest keys."""
    for key in list(keys)[: max(len(keys) - _MAX_KEYS, 0)]:
        del keys[key]


def cause_from_proto(message: pb.Cause) -> Cause:
    """Converts a message to a cause."""
    keys = tuple(Key(x.node, x.probe, x.subject) for x in message.findings)
    return Cause(message.kind, keys, message.findings_total)


def cause_to_proto(cause: Cause) -> pb.Cause:
    """Converts a cause to a message. All its findings are named."""
    keys = [FindingKey(node=key.node, probe=key.probe, subject=key.subject) for key in cause.findings]
    return pb.Cause(kind=cause.kind, findings=keys, findings_total=cause.total)
