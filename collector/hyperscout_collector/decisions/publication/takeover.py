"""When a collector that took over has seen enough to infer anew.

A new leader begins with the tree that was published and with little evidence: agents come back within
seconds, sweeps a little later. Inferred from that, half of the cables would be missing, and cables that have
been missing for days would be forgotten. So until everybody has been heard, nothing is inferred: what is
published is offered again, with what is known of the nodes themselves. It is complete when the full state of
every member has come in, a whole sweep of every fabric that was swept, and a look at a switch at one end of
every cable that switches, or those who ask them, reported, and when no member says that it cannot tell yet
who is at its cables (an agent that has just begun to listen); or when the time is up: an agent that is dead
must not keep all others waiting.
"""

from collections.abc import Collection, Iterable, Mapping

from hyperscout_formats.text.reporters import SWITCH_PROBE, is_node
from hyperscout_inference.hierarchy.conditions import INFERENCE_FAILED
from hyperscout_topology.topology import Condition, HyperNode, Topology

NS = 1_000_000_000
# Sources of links that come with a look at a whole fabric, and not with an agent of a node or a switch.
SWEEPS = frozenset({"ibnetdiscover", "ufm"})
# Sources of links that come with switches alone: their own agents, and those who ask them.
SWITCHES = frozenset({SWITCH_PROBE, "snmp", "netq"})


class Takeover:
    """`previous`: what is published. `limit_s`: how long to wait at most, from `now_ns` (Unix ns) on."""

    def __init__(self, previous: Topology, limit_s: float, now_ns: int) -> None:
        self.started_ns = now_ns
        self.until_ns: int | None = now_ns + int(limit_s * NS)  # when it ends at the latest; None = it has
        self._previous = previous
        self._missing = {node for h in previous.hypernodes if not h.children for node in h.nodes}
        self._fabrics = _swept_fabrics(previous)
        self._names = {s.id: s.name for s in previous.switches}
        self._cables = _cables_of_switches(previous)
        self._listening = self._missing & _heard_by_lldp(previous)
        self._unsure: set[str] = set()  # of those, the ones that cannot tell yet
        self._spoken: set[str] = set()  # agents of switches and fabrics, by the names they report under
        self._heard: set[str] = set()  # switches that those tell of, by id

    @property
    def active(self) -> bool:
        return self.until_ns is not None

    def full_state(self, node: str) -> bool:
        """An agent has said all that it knows. Returns whether everybody that is waited for has now."""
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
        """Whether to infer from now on; once it has ended, it stays so.

        `down`: nodes that take no work and may be silent. `sweeps`: ids of the switches of each whole sweep
        that was made since the start. `switches`: ids of the switches that are told of under a name.
        `unsure`: nodes with a port that cannot tell yet who is there, and of which nothing else is known.
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
        """In words, for the log and the status."""
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
        """Nodes that were stale at the start and were not heard since: when last seen (Unix ns, 0 = unknown).

        A condition that lists neither nodes nor switches was read from a HyperNode of the API server, or was
        written by an earlier version. Then one silent node stands for it, or all silent ones where the
        HyperNode above is stale, too.
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
        """Switches that were stale at the start and were not heard since, by id: as `stale`."""
        conditions = map(_stale_condition, self._previous.hypernodes)
        stale = (id_ for c in conditions if c is not None for id_ in c.switches)
        return {id_: 0 for id_ in stale if id_ not in self._heard}


def _some(names: Collection[str]) -> str:
    some = sorted(names)[:3]
    return ", ".join(some) + (f" and {len(names) - len(some)} more" if len(names) > len(some) else "")


def _stale_condition(h: HyperNode) -> Condition | None:
    """The condition Stale, where it is true because evidence is stale, not only because inference fails."""
    for c in h.conditions:
        if c.type == "Stale" and c.status == "True":
            return c if c.reason != INFERENCE_FAILED or c.nodes or c.switches else None
    return None


def _swept_fabrics(topology: Topology) -> dict[str, frozenset[str]]:
    """Switches of each fabric that sweeps have shown."""
    switches = {s.id for s in topology.switches}
    found: dict[str, set[str]] = {}
    for link in topology.links:
        if not SWEEPS.isdisjoint(link.sources):
            ends = {link.a_device, link.b_device} & switches
            found.setdefault(link.fabric, set()).update(ends)
    return {name: frozenset(ids) for name, ids in found.items() if ids}


def _heard_by_lldp(topology: Topology) -> set[str]:
    """Devices at the ends of cables that LLDP has shown."""
    shown = (x for x in topology.links if "lldp" in x.sources)
    return {end for x in shown for end in (x.a_device, x.b_device)}


def _cables_of_switches(topology: Topology) -> set[frozenset[str]]:
    """The switches at the ends of each cable that switches alone have shown."""
    switches = {s.id for s in topology.switches}
    shown = (x for x in topology.links if SWITCHES.issuperset(x.sources))
    return {ends for x in shown if (ends := frozenset({x.a_device, x.b_device} & switches))}
