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

The wait ends after a time limit: a failed agent must not block all others. It ends after a third of that time
if the agent of one member is missing, such as that of the dead node on which the former leader ran.

An agent that the former leader knew and that has not reported since is silent. Its node is stale if it was
stale before, and in any case when it has been silent for the limit of stale evidence.

`TakeoverMachine` is the state machine. `TRANSITIONS` lists how events change its state.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from hyperscout_formats.text.counts import count, first_few
from hyperscout_formats.text.reporters import is_node, is_switch, plain_switch_name
from hyperscout_inference.hierarchy.conditions import INFERENCE_FAILED
from hyperscout_inference.hierarchy.unreported import SWITCHES
from hyperscout_runtime.event_log import EventLog, copied
from hyperscout_runtime.units import NS
from hyperscout_topology.topology import Condition, HyperNode, Topology

# Sources of links that come from a sweep or a manager of a whole fabric, not from an agent of a node or
# switch.
SWEEPS = frozenset({"ibnetdiscover", "ufm"})


State = Literal[
    "agents",  # the full states of members are missing
    "fabrics",  # all members have reported; sweeps, readings of switches or LLDP neighbours are missing
    "complete",
    "timed-out",
]
TRANSITIONS: Final[dict[State, dict[str, tuple[State, ...]]]] = {
    "agents": {"FullState": ("fabrics",), "Evidence": ("fabrics", "complete", "timed-out")},
    "fabrics": {"Evidence": ("complete", "timed-out")},
}


@dataclass(frozen=True, slots=True)
class FullState:
    """The full state of an agent was stored. `node`: the name under which it reports."""

    node: str


@dataclass(frozen=True, slots=True)
class Evidence:
    """The part of the evidence that the take-over waits for, at the time of an inference.

    `down`: members that accept no work and may be silent. `swept`: names of swept fabrics. `heard`: ids of
    switches in the reports of agents. `unsure`: members with a port that has only failed LLDP readings.
    """

    down: frozenset[str]
    swept: frozenset[str]
    heard: frozenset[str]
    unsure: frozenset[str]


Event = FullState | Evidence


@dataclass(slots=True)
class TakeoverFacts:
    """All facts of a take-over, as plain data. `until_ns`: latest end, Unix ns; None = it has ended.

    `missing`: members without full state that are waited for. `fabrics`: fabrics that were swept before, with
    the ids of their switches. `cables`: the switches at the ends of each cable that only switches reported.
    `listening`: members that reported LLDP neighbours, or all members of a published tree without links, as
    read from HyperNodes; `unsure`: those that do not know them yet. `silent`: agents that were known at the
    start and have not reported since; `spoken`: agents of switches and fabrics that have; both by the names
    under which they report. `heard`: ids of switches in their reports.
    """

    started_ns: int
    until_ns: int | None
    missing: set[str]
    fabrics: dict[str, frozenset[str]]
    cables: set[frozenset[str]]
    listening: set[str]
    unsure: set[str] = field(default_factory=set)
    silent: set[str] = field(default_factory=set)
    spoken: set[str] = field(default_factory=set)
    heard: set[str] = field(default_factory=set)
    is_timed_out: bool = False

    def one_from_ns(self, until_ns: int) -> int:
        """From when on one member may be missing, Unix ns."""
        return self.started_ns + (until_ns - self.started_ns) // 3


class TakeoverMachine:
    """The state machine of a take-over. `log`: receives the events until the take-over has ended."""

    def __init__(self, facts: TakeoverFacts, log: EventLog | None = None) -> None:
        self.facts = facts
        self._log = EventLog("takeover") if log is None else log
        self._subject = self._log.subject("takeover")

    def snapshot(self) -> TakeoverFacts:
        copy: TakeoverFacts = copied(self.facts)
        return copy

    @property
    def state(self) -> State:
        if self.facts.until_ns is None:
            return "timed-out" if self.facts.is_timed_out else "complete"
        return "agents" if self.facts.missing else "fabrics"

    def handle(self, event: Event, now_ns: int) -> None:
        has_ended = self.facts.until_ns is None
        with self._log.handling(self._subject, self, now_ns, (event,)):
            facts = self.facts
            if isinstance(event, FullState):
                facts.missing.discard(event.node)
                facts.silent.discard(event.node)
                if not is_node(event.node):
                    facts.spoken.add(event.node)
            elif facts.until_ns is not None:
                self._look(event, facts.until_ns, now_ns)
        if has_ended:
            self._log.drop_last()  # agents reconnect for as long as the collector runs

    def _look(self, event: Evidence, until_ns: int, now_ns: int) -> None:
        facts = self.facts
        if now_ns < facts.started_ns:  # the clock was set back
            until_ns -= facts.started_ns - now_ns
            facts.started_ns = now_ns
        facts.fabrics = {name: ids for name, ids in facts.fabrics.items() if name not in event.swept}
        facts.missing -= event.down
        facts.heard |= event.heard
        facts.cables = {ends for ends in facts.cables if ends.isdisjoint(facts.heard)}
        facts.unsure = (facts.listening & event.unsure) - event.down
        most = 1 if now_ns >= facts.one_from_ns(until_ns) else 0
        waits = bool(len(facts.missing) > most or facts.fabrics or facts.cables or facts.unsure)
        facts.is_timed_out = waits and now_ns >= until_ns
        facts.until_ns = until_ns if waits and not facts.is_timed_out else None


class Takeover:
    """`previous`: the published topology. `limit_s`: longest wait from `now_ns` (Unix ns).

    `agents`: when the former leader last heard each agent (Unix ns), by the name under which it reports.
    `stale_after_s`: an agent that is silent this long is stale.
    """

    def __init__(
        self,
        previous: Topology,
        limit_s: float,
        now_ns: int,
        log: EventLog | None = None,
        *,
        agents: Mapping[str, int] | None = None,
        stale_after_s: float,
    ) -> None:
        self._previous = previous
        self._stale_ns = now_ns + int(stale_after_s * NS)
        self._names = {s.id: s.name for s in previous.switches}
        members = {node for h in previous.hypernodes if not h.children for node in h.nodes}
        heard = members & _heard_by_lldp(previous)
        self._agents = {**dict.fromkeys(heard, 0), **(agents or {})}
        self._facts = TakeoverFacts(
            now_ns,
            now_ns + int(limit_s * NS),
            members,
            _swept_fabrics(previous),
            _cables_of_switches(previous),
            heard if previous.links else set(members),
            silent={*self._agents},
        )
        self._members = frozenset(members)
        self._machine = TakeoverMachine(self._facts, log)

    @property
    def started_ns(self) -> int:
        return self._facts.started_ns

    @property
    def until_ns(self) -> int | None:
        """Latest end of the wait; None = it has ended."""
        return self._facts.until_ns

    @property
    def active(self) -> bool:
        return self.until_ns is not None

    def next_look_ns(self, after_ns: int) -> int | None:
        """When the wait may end without news, later than `after_ns` (Unix ns); None = it has ended."""
        if (until_ns := self.until_ns) is None:
            return None
        one_from_ns = self._facts.one_from_ns(until_ns)
        return one_from_ns if one_from_ns > after_ns else until_ns

    def full_state(self, node: str, now_ns: int) -> None:
        """Record an agent's full state, which the next evidence contains."""
        self._machine.handle(FullState(node), now_ns)

    def lacks_only(self, nodes: Collection[str]) -> bool:
        """Returns whether these are all members whose full state has not arrived."""
        return self._facts.missing.issubset(nodes)

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
        if self.active:
            facts = self._facts
            swept = [frozenset(ids) for ids in sweeps]
            evidence = Evidence(
                self._members.intersection(down),
                frozenset(
                    name for name, ids in facts.fabrics.items() if any(not ids.isdisjoint(x) for x in swept)
                ),
                frozenset(id_ for name in list(facts.spoken) for id_ in switches.get(name, ())),
                self._members.intersection(unsure),
            )
            self._machine.handle(evidence, now_ns)
        return not self.active

    def waits_for(self) -> str:
        """Returns a text for the log and the status."""
        facts, parts = self._facts, []
        if facts.missing:
            parts.append(f"agents of {count(len(facts.missing), 'node')} ({_some(facts.missing)})")
        if facts.unsure:
            parts.append(f"LLDP neighbours of {count(len(facts.unsure), 'node')} ({_some(facts.unsure)})")
        if facts.cables:
            switches = {self._names[id_] for ends in facts.cables for id_ in ends}
            parts.append(f"readings of switches ({_some(switches)})")
        if facts.fabrics:
            parts.append(f"a sweep of {', '.join(sorted(facts.fabrics))}")
        return " and ".join(parts) or "nothing"

    def next_stale_ns(self, after_ns: int) -> int | None:
        """When silent agents become stale, if that is later than `after_ns` (Unix ns)."""
        return self._stale_ns if self._facts.silent and self._stale_ns > after_ns else None

    def stale(self, now_ns: int) -> dict[str, int]:
        """Returns the stale nodes that have not reported since the start: when last seen (Unix ns,
        0 = unknown).

        A condition that lists neither nodes nor switches was read from a HyperNode of the API server, or was
        written by an earlier version. Then one silent node represents it, or all silent nodes if the
        HyperNode above is stale too. When the take-over has ended, only nodes with an agent are returned: a
        sweep shows the others.
        """
        silent = self._facts.silent
        if now_ns >= self._stale_ns:
            return {node: self._agents[node] for node in silent if is_node(node)}
        stale = {h.name: c for h in self._previous.hypernodes if (c := _stale_condition(h)) is not None}
        found: dict[str, int] = {}
        for h in self._previous.hypernodes:
            condition = stale.get(h.name)
            if condition is None or h.children:
                continue
            unheard = [x for x in h.nodes if x in silent or (self.active and x in self._facts.missing)]
            if condition.nodes or condition.switches:
                listed = set(condition.nodes)
                unheard = [node for node in unheard if node in listed]
            elif (above := stale.get(h.parent or "")) is None or above.switches:
                unheard = unheard[:1]
            found |= {node: self._agents.get(node, 0) for node in unheard}
        return found

    def stale_switches(self, now_ns: int, reported: Collection[str] = ()) -> dict[str, int]:
        """Returns the ids of stale switches that have not reported since the start (`stale`).

        `reported`: ids of switches in the present evidence.
        """
        conditions = map(_stale_condition, self._previous.hypernodes)
        stale = {id_: 0 for c in conditions if c is not None for id_ in c.switches}
        if now_ns >= self._stale_ns:
            silent = {plain_switch_name(x): self._agents[x] for x in self._facts.silent if is_switch(x)}
            names = {id_: plain_switch_name(name) for id_, name in self._names.items()}
            stale |= {id_: silent[name] for id_, name in names.items() if name in silent}
        return {id_: at for id_, at in stale.items() if id_ not in self._facts.heard and id_ not in reported}


def _some(names: Collection[str]) -> str:
    return first_few(sorted(names), 3)


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
