"""Decides when a collector that took over has enough evidence to infer again.

A new leader starts with the published tree and little evidence. Agents reconnect within seconds, sweeps
arrive a little later. A topology inferred from that would lack half of the cables, and would forget cables
that have been missing for days. Until the evidence is complete, the collector infers nothing: it offers the
published tree again, with the facts about the nodes themselves. The evidence is complete when all of these
have arrived:

- the full state of every member;
- a whole sweep of every fabric that was swept;
- for every cable that only switches (or agents that query them) reported: a reading of a switch at one end;
- for every member: LLDP neighbours of its ports. An agent that has just started to listen reports that it
  does not know them yet.

The wait ends after a time limit: a failed agent must not block all others.
"""

from collections.abc import Collection, Iterable, Mapping

from hyperscout_formats.text.reporters import SWITCH_PROBE, is_node
from hyperscout_inference.hierarchy.conditions import INFERENCE_FAILED
from hyperscout_topology.topology import Condition, HyperNode, Topology

NS = 1_000_000_000
# Sources of links that come from a sweep or a manager of a whole fabric, not from an agent of a node or
# switch.
SWEEPS = frozenset({"ibnetdiscover", "ufm"})
# Sources of links that come from switches only: from their own agents, and from agents that query them.
SWITCHES = frozenset({SWITCH_PROBE, "snmp", "netq"})


class Takeover:
    """`previous`: the published topology. `limit_s`: longest wait from `now_ns` (Unix ns)."""

    def __init__(self, previous: Topology, limit_s: float, now_ns: int) -> None:
        self.started_ns = now_ns
        self.until_ns: int | None = now_ns + int(limit_s * NS)  # latest end of the wait; None = it has ended
        self._previous = previous
        self._missing = {node for h in previous.hypernodes if not h.children for node in h.nodes}
        self._fabrics = _swept_fabrics(previous)
        self._names = {s.id: s.name for s in previous.switches}
        self._cables = _cables_of_switches(previous)
        self._listening = self._missing & _heard_by_lldp(previous)
        self._unsure: set[str] = set()  # those of them that do not know their neighbours yet
        self._spoken: set[str] = set()  # agents of switches and fabrics, by the names under which they report
        self._heard: set[str] = set()  # switches in the reports of these agents, by id

    @property
    def active(self) -> bool:
        return self.until_ns is not None

    def full_state(self, node: str) -> bool:
        """Record an agent's full state. Returns whether the full states of all members have arrived."""
        self._missing.discard(node)
        if not is_node(node):
            self._spoken.add(node)
        return not self._missing

    def ended(
        self,
        now_ns: int,
        down: Collection[str],
        sweeps: Iterable[Collection[str]],
        switches: Mapping[str, Collection[str]],
        unsure: Collection[str] = (),
    ) -> bool:
        """Whether inference may run from now on. Once True, it stays True.

        `down`: nodes that accept no work and may be silent. `sweeps`: ids of the switches of each whole sweep
        since the start. `switches`: ids of the switches that each reporter reports, by reporter. `unsure`:
        nodes with a port that has only failed LLDP readings.
        """
        if self.until_ns is None:
            return True
        if now_ns < self.started_ns:  # the clock was set back
            self.until_ns -= self.started_ns - now_ns
            self.started_ns = now_ns
        for swept in sweeps:
            self._fabrics = {name: ids for name, ids in self._fabrics.items() if ids.isdisjoint(swept)}
        self._missing.difference_update(down)
        self._heard |= {id_ for name in list(self._spoken) for id_ in switches.get(name, ())}
        self._cables = {ends for ends in self._cables if ends.isdisjoint(self._heard)}
        self._unsure = self._listening.intersection(unsure).difference(down)
        if now_ns >= self.until_ns or not (self._missing or self._fabrics or self._cables or self._unsure):
            self.until_ns = None
        return not self.active

    def waits_for(self) -> str:
        """Returns a text for the log and the status."""
        parts = [f"agents of {len(self._missing)} nodes ({_some(self._missing)})"] if self._missing else []
        if self._unsure:
            parts.append(f"what is at the cables of {len(self._unsure)} nodes ({_some(self._unsure)})")
        if self._cables:
            switches = {self._names[id_] for ends in self._cables for id_ in ends}
            parts.append(f"a look at switches ({_some(switches)})")
        if self._fabrics:
            parts.append(f"a sweep of {', '.join(sorted(self._fabrics))}")
        return " and ".join(parts) or "nothing"

    def stale(self) -> dict[str, int]:
        """Returns the nodes that were stale at the start and have not reported since: when last seen (Unix
        ns, 0 = unknown).

        A condition that lists neither nodes nor switches was read from a HyperNode of the API server, or was
        written by an earlier version. Then one silent node represents it, or all silent nodes if the
        HyperNode above is stale too.
        """
        stale = {h.name: c for h in self._previous.hypernodes if (c := _stale_condition(h)) is not None}
        found: dict[str, int] = {}
        for h in self._previous.hypernodes:
            condition = stale.get(h.name)
            if condition is None or h.children:
                continue
            silent = [node for node in h.nodes if node in self._missing]
            if condition.nodes or condition.switches:
                listed = set(condition.nodes)
                silent = [node for node in silent if node in listed]
            elif (above := stale.get(h.parent or "")) is None or above.switches:
                silent = silent[:1]
            found |= dict.fromkeys(silent, 0)
        return found

    def stale_switches(self) -> dict[str, int]:
        """Returns the ids of switches that were stale at the start and have not reported since (`stale`)."""
        conditions = map(_stale_condition, self._previous.hypernodes)
        stale = (id_ for c in conditions if c is not None for id_ in c.switches)
        return {id_: 0 for id_ in stale if id_ not in self._heard}


def _some(names: Collection[str]) -> str:
    some = sorted(names)[:3]
    return ", ".join(some) + (f" and {len(names) - len(some)} more" if len(names) > len(some) else "")


def _stale_condition(h: HyperNode) -> Condition | None:
    """Returns the condition Stale if it is True because of stale evidence, not of failed inference."""
    for c in h.conditions:
        if c.type == "Stale" and c.status == "True":
            return c if c.reason != INFERENCE_FAILED or c.nodes or c.switches else None
    return None


def _swept_fabrics(topology: Topology) -> dict[str, frozenset[str]]:
    """Returns the switches of each fabric with links from sweeps."""
    switches = {s.id for s in topology.switches}
    found: dict[str, set[str]] = {}
    for link in topology.links:
        if not SWEEPS.isdisjoint(link.sources):
            ends = {link.a_device, link.b_device} & switches
            found.setdefault(link.fabric, set()).update(ends)
    return {name: frozenset(ids) for name, ids in found.items() if ids}


def _heard_by_lldp(topology: Topology) -> set[str]:
    """Returns the devices at the ends of cables that LLDP reported."""
    shown = (x for x in topology.links if "lldp" in x.sources)
    return {end for x in shown for end in (x.a_device, x.b_device)}


def _cables_of_switches(topology: Topology) -> set[frozenset[str]]:
    """Returns the switches at the ends of each cable that only switches reported."""
    switches = {s.id for s in topology.switches}
    shown = (x for x in topology.links if SWITCHES.issuperset(x.sources))
    return {ends for x in shown if (ends := frozenset({x.a_device, x.b_device} & switches))}
