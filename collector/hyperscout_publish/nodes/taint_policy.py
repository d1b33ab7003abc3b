"""Policy that decides which nodes to taint as degraded, and when. Uses no I/O and no clock.

Schedulers read taints, not conditions. If the policy is enabled, a node with degraded links of its own gets
a taint, and gangs use other nodes. A taint takes a node out of service, so the policy is cautious: a problem
must last before a node is tainted, and must be gone for longer before the taint is removed. At most a share
of the nodes is tainted. An uncertain finding (a tie between two links) causes no taint.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from hyperscout_formats.text.counts import are, first_few
from hyperscout_runtime.units import NS
from hyperscout_topology.health import LINK_KINDS, SURE, accused, lowest_domains
from hyperscout_topology.link_changes import table_of
from hyperscout_topology.topology import Anomaly, HyperNode, Topology, say

_NAMED = 5  # nodes in a message
_MAX_WAIT_S = 3600.0


@dataclass(frozen=True, slots=True)
class TaintSettings:
    """Times in seconds. Shares from 0 to 1.

    `share`: of the nodes that may be tainted at once; if it is above 0, at least one node may be.
    `uplink_share`: a lowest domain with switches taints all its nodes if at least this share of its uplinks,
    or of its switches, is degraded; 0 disables this.
    """

    share: float = 0.1
    after_s: float = 30.0
    clear_after_s: float = 300.0
    uplink_share: float = 0.0


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why a node is degraded. `links`: number of its own links; `since_ns`: Unix ns of the oldest problem."""

    links: int
    since_ns: int
    why: str


@dataclass(frozen=True, slots=True)
class TaintDecision:
    """Nodes to taint and to clear now. `over`: nodes that are due but exceed the cap.

    `wake_at_ns`: when to decide again if nothing changes before; Unix ns.
    """

    taint: tuple[str, ...] = ()
    clear: tuple[str, ...] = ()
    over: tuple[str, ...] = ()
    wake_at_ns: int | None = None

    def wait_s(self, now_ns: int) -> float | None:
        """Return the time until then, an hour at most; None = only a change is a reason."""
        if self.wake_at_ns is None:
            return None
        return min(max((self.wake_at_ns - now_ns) / NS, 0.0), _MAX_WAIT_S)


def troubles(topology: Topology, settings: TaintSettings) -> dict[str, Trouble]:
    """Return the problems of each node's own links and, if configured, of its domain."""
    found: dict[str, Trouble] = {}
    if settings.uplink_share > 0:
        for domain in lowest_domains(topology):
            if bad := _domain_trouble(topology, domain, settings):
                found |= dict.fromkeys(domain.nodes, bad)
    for node, x in accused(topology):
        found[node] = with_trouble(found.get(node), x)
    return found


def with_trouble(before: Trouble | None, anomaly: Anomaly) -> Trouble:
    """Return a problem with one more degraded link. `before`: None = there was no problem."""
    if before is None:
        return Trouble(1, anomaly.since_ns, _words(anomaly))
    why = before.why if before.links else _words(anomaly)
    return Trouble(1 + before.links, min(anomaly.since_ns, before.since_ns), why)


def _words(anomaly: Anomaly) -> str:
    peer = f" -> {say(anomaly.peer)}" if anomaly.peer else ""
    return f"{anomaly.kind}: {say(anomaly.subject)}{peer}"


def _domain_trouble(topology: Topology, domain: HyperNode, settings: TaintSettings) -> Trouble | None:
    mine = [x for x in topology.anomalies if x.hypernode == domain.name and x.confidence > SURE]
    switches = {s.id for s in topology.switches}
    gone = [x for x in mine if x.kind == "MissingSwitch"]
    lost = {x.subject.device for x in gone}
    bad = [
        x
        for x in mine
        if x.kind in LINK_KINDS and x.peer and x.subject.device in switches and x.peer.device in switches
    ]
    missing = sum(x.kind == "MissingLink" for x in bad)
    uplinks = _uplinks(topology, domain) + missing if bad else 0
    share = max(
        len(bad) / uplinks if uplinks else 0.0,
        len(lost) / len(lost.union(domain.switches)) if lost else 0.0,
    )
    if not share or share < settings.uplink_share:
        return None
    what = f"{len(bad)} of {uplinks} uplinks of {domain.name} degraded" if bad else _words(gone[0])
    return Trouble(0, min(x.since_ns for x in (*bad, *gone)), what)


def _uplinks(topology: Topology, domain: HyperNode) -> int:
    """Return the number of links between a domain's switches and other switches."""
    table = table_of(topology.links)
    switches, mine = {s.id for s in topology.switches}, set(domain.switches)
    inside = np.fromiter((d in mine for d in table.devices), np.bool_, len(table.devices))
    outside = np.fromiter(
        (d in switches and d not in mine for d in table.devices), np.bool_, len(table.devices)
    )
    up = (inside[table.a] & outside[table.b]) | (outside[table.a] & inside[table.b])
    return int(np.count_nonzero(up))


class TaintPolicy:
    """Makes decisions. It remembers only since when tainted nodes have been healthy."""

    def __init__(self, settings: TaintSettings) -> None:
        self._after_ns = round(settings.after_s * NS)
        self._clear_ns = round(settings.clear_after_s * NS)
        self._share = settings.share
        self._well_since_ns: dict[str, int] = {}

    def limit(self, nodes: int) -> int:
        """Return how many of `nodes` nodes may be tainted at once."""
        return min(nodes, max(1, int(self._share * nodes))) if self._share > 0 else 0

    def decide(
        self, found: Mapping[str, Trouble], nodes: Collection[str], tainted: Collection[str], now_ns: int
    ) -> TaintDecision:
        """Decide. `nodes`: existing nodes; `tainted`: those that have the taint now. `now_ns`: Unix ns."""
        well = {node for node in tainted if node not in found}
        self._well_since_ns = {node: self._well_since_ns.get(node, now_ns) for node in sorted(well)}
        clear = [n for n, since in self._well_since_ns.items() if now_ns - since >= self._clear_ns]
        ill = [node for node in found if node in nodes and node not in tainted]
        due = [node for node in ill if now_ns - found[node].since_ns >= self._after_ns]
        # The worst node comes first, then the one that has waited longest. A tainted node stays tainted even
        # if a worse one appears: jobs must not be moved back and forth.
        due.sort(key=lambda node: (-found[node].links, found[node].since_ns, node))
        free = max(0, self.limit(len(nodes)) - (len(tainted) - len(clear)))
        times = [since + self._clear_ns for n, since in self._well_since_ns.items() if n not in clear]
        times += [found[node].since_ns + self._after_ns for node in ill if node not in due]
        return TaintDecision(tuple(due[:free]), tuple(clear), tuple(due[free:]), min(times, default=None))


def say_over(decision: TaintDecision, limit: int, total: int, what: str = "nodes") -> str | None:
    """Return the message about nodes above the cap; None if there are none. `what`: is tainted."""
    if not decision.over:
        return None
    return (
        f"at most {limit} of {total} {what} may be tainted (taint_share): "
        f"{first_few(decision.over, _NAMED)} {are(len(decision.over))} degraded but not tainted"
    )


def lines(decision: TaintDecision, found: Mapping[str, Trouble]) -> Iterator[str]:
    """Yield the changes as text."""
    for node in decision.taint:
        yield f"{node}: taint ({found[node].why})"
    for node in decision.clear:
        yield f"{node}: clear"
