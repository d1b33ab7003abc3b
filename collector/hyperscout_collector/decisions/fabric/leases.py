"""Decides which agent sweeps which fabric.

No configuration is needed: leases follow from the results of sweeps.

A lease is granted on an active port with a GUID that no current sweep contains, until every active port is
covered. Only a few such leases exist at a time: two such ports may be in one fabric. A port that was swept
before, and whose cable is back, waits for the next sweep of its fabric, which is asked for ahead of time.
When a sweep contains the port of another lease, one of the two ends. A lease moves when its agent disconnects
for long, when its port goes down, when its sweeps are partial or fail, or when another node must confirm one.
Its successor inherits what it covered. Where every sweep is partial, the wait doubles after each vain move.
"""

from collections.abc import Iterable, Set
from dataclasses import replace
from typing import Self

from hyperscout_runtime.backoff import RetryTime
from hyperscout_runtime.event_log import EventLog, copied
from hyperscout_runtime.units import NS

from hyperscout_collector.decisions.fabric.lease_state import (
    MAX_PORTS,
    Agent,
    Lease,
    LeaseFacts,
    LeaseSettings,
    OpenPorts,
    best_place,
    remembered,
)
from hyperscout_collector.decisions.fabric.sweep_events import (
    SWEEP_PROBE,
    AgentConnected,
    AgentGone,
    Event,
    Grant,
    Instruction,
    LeaseState,
    Place,
    PortsSeen,
    Revoke,
    SweepFailed,
    SweepHeld,
    SweepSeen,
    Tick,
)

_FIRST = "another node confirms the first sweep of the fabric"


class SweepLeases:
    """The state machine of the leases. `handle` takes an event and returns instructions for agents.

    `epoch` separates lease ids from those of an earlier process (its start time, in any unit). `log`:
    receives all events, except repeated ticks without effect.
    """

    def __init__(self, settings: LeaseSettings, epoch: int, log: EventLog | None = None) -> None:
        self.settings, self.epoch = settings, epoch
        self._log = EventLog("leases") if log is None else log
        self._subject = self._log.subject("leases")
        self._agents: dict[str, Agent] = {}
        self._leases: dict[str, Lease] = {}
        self._back_off: dict[Place, RetryTime] = {}
        self._open = OpenPorts()
        self._count = 0
        self._now_ns = 0
        self._out: list[Instruction] = []

    @classmethod
    def restored(cls, facts: LeaseFacts) -> Self:
        """Return a machine with these facts."""
        machine = cls(facts.settings, facts.epoch)
        machine._agents = dict(facts.agents)
        machine._leases = {lease.lease_id: copied(lease) for lease in facts.leases}
        machine._back_off = {
            place: RetryTime(facts.settings.backoff(failures), until_ns)
            for place, failures, until_ns in facts.back_off
        }
        machine._open = copied(facts.open)
        machine._count = facts.count
        return machine

    def snapshot(self) -> LeaseFacts:
        back_off = [(place, b.backoff.failures, b.until_ns) for place, b in self._back_off.items()]
        leases = [copied(lease) for lease in self._leases.values()]
        open_ = copied(self._open)
        return LeaseFacts(self.settings, self.epoch, dict(self._agents), leases, back_off, open_, self._count)

    @property
    def state(self) -> str:
        """The id and the state of each lease, oldest first."""
        return " ".join(f"{lease.lease_id}={lease.state}" for lease in self._leases.values())

    def handle(self, event: Event, now_ns: int) -> list[Instruction]:
        """Returns the instructions for the agents, in the order in which they must be sent."""
        with self._log.handling(self._subject, self, now_ns, (event,)):
            self._now_ns = now_ns
            self._out = []
            is_idle = False
            match event:
                case AgentConnected():
                    self._connected(event)
                case AgentGone(node):
                    self._gone(node)
                case PortsSeen():
                    self._ports_seen(event)
                case SweepSeen():
                    self._swept(event)
                case SweepFailed():
                    self._failed(event)
                case SweepHeld():
                    self._held(event)
                case Tick():
                    is_idle = not self._overdue()
            self._explore()
        if is_idle and not self._out:
            self._log.drop_last()
        return self._out

    def may_report(self, node: str, lease_id: str) -> bool:
        """Whether a fabric finding of this node under this lease is accepted."""
        lease = self._leases.get(lease_id)
        return lease is not None and lease.node == node

    def starts_at(self, lease_id: str, port_guid: int) -> bool:
        """Whether the port of this lease has this GUID."""
        lease = self._leases.get(lease_id)
        return lease is not None and lease.guid == port_guid

    def leases(self) -> tuple[LeaseState, ...]:
        """Returns the leases, oldest first."""
        return tuple(
            x.shown(is_unconfirmed=x.is_first or x.is_alone(self._agents, self._silent_ns(), x.covered))
            for x in self._leases.values()
        )

    def uncovered(self) -> list[Place]:
        """Returns the active ports of connected agents that no lease covers, sorted."""
        return self._open.all()

    def unswept(self) -> list[str]:
        """Returns the connected nodes with active ports of which no lease covers any, sorted."""
        covered = frozenset[int]().union(*(lease.covered for lease in self._leases.values()))
        active = ((name, x.ports) for name, x in self._agents.items() if x.connected and x.ports)
        return sorted(name for name, ports in active if covered.isdisjoint(p.port_guid for p in ports))

    def is_alone(self, node: str, lease_id: str) -> bool:
        """Whether no other agent can confirm the sweeps of this lease (`Lease.is_alone`)."""
        lease = self._leases.get(lease_id)
        return lease is not None and lease.node == node and lease.is_alone(self._agents, self._silent_ns())

    def _silent_ns(self) -> int:
        return self._now_ns - round(self.settings.silence_s * NS)

    # -- events ---------------------------------------------------------------------------------------------

    def _connected(self, event: AgentConnected) -> None:
        known = self._agents.get(event.node, Agent())
        agent = self._agents[event.node] = replace(known, connected=True, capable=SWEEP_PROBE in event.probes)
        for lease in self._of(event.node):
            if agent.capable:
                lease.heard_ns = self._now_ns
                self._tell(lease)
            else:
                self._replace(lease, "the agent no longer sweeps")
        self._look_at(event.node, agent)

    def _gone(self, node: str) -> None:
        agent = self._agents.get(node)
        if agent is None:
            return
        agent = self._agents[node] = replace(agent, connected=False, gone_ns=self._now_ns)
        self._look_at(node, agent)
        if len(self._agents) > self.settings.agents:
            away = [(a.gone_ns, name) for name, a in self._agents.items() if not a.connected]
            held = {lease.node for lease in self._leases.values()}
            for _, name in sorted(away)[: len(self._agents) - self.settings.agents]:
                if name not in held:
                    del self._agents[name]

    def _ports_seen(self, event: PortsSeen) -> None:
        agent = self._agents.setdefault(event.node, Agent(gone_ns=self._now_ns))
        by_place = {(p.device, p.port): p for p in event.ports if p.port_guid}
        ports = tuple(sorted(by_place.values())[:MAX_PORTS])
        if ports == agent.ports:
            return
        self._open.discard(p.at(event.node) for p in agent.ports)
        new = {port.port_guid for port in ports} - {port.port_guid for port in agent.ports}
        agent = self._agents[event.node] = replace(agent, ports=ports)
        places = {p.at(event.node): p.port_guid for p in ports}
        for lease in self._of(event.node):
            if places.get(lease.place) != lease.guid:
                self._replace(lease, "the port is no longer active", blame=True)
        self._look_at(event.node, agent)
        for lease in self._leases.values():
            if not new.isdisjoint(lease.covered):  # the cable may lead elsewhere than the last sweep shows
                self._sweep_now(lease)

    def _swept(self, event: SweepSeen) -> None:
        lease = self._holder(event.node, event.lease_id)
        if lease is None:
            return
        if not event.partial and lease.guid not in event.port_guids:
            self._count_failure(lease, "its sweep does not contain the leased port")
            return
        if event.known is not None:
            for one in self._leases.values():
                one.is_provisional = one.lease_id not in event.known
        lease.heard_ns = lease.swept_ns = self._now_ns
        lease.partial, lease.reason = event.partial, event.reason
        covered = lease.covered
        if event.partial:
            lease.bad += 1
            lease.good_since_ns = 0
            lease.covered = event.port_guids | lease.full
        else:
            lease.bad = lease.moves = 0
            lease.good_since_ns = lease.good_since_ns or self._now_ns
            lease.covered = lease.full = event.port_guids
            lease.known = remembered(lease.known, event.port_guids)
            self._back_off.pop(lease.place, None)
        if changed := lease.covered ^ covered:
            for node in self._open.concerned(self._agents, changed):
                self._look_at(node, self._agents[node])
        self._settle(lease, event.port_guids)
        if lease.lease_id in self._leases and lease.bad >= self._patience(lease, 1):
            self._replace(lease, f"its sweep is partial: {event.reason}", blame=True, only_if_better=True)

    def _failed(self, event: SweepFailed) -> None:
        lease = self._holder(event.node, event.lease_id)
        if lease is not None:
            self._count_failure(lease, event.reason)

    def _held(self, event: SweepHeld) -> None:
        """Move the lease, so that another node sweeps at once and agrees or does not."""
        lease = self._leases.get(event.lease_id)
        if lease is None or lease.node != event.node or (event.is_first and lease.confirms):
            return
        if event.is_accused:
            lease.bad, lease.partial, lease.good_since_ns = max(lease.bad, 1), False, 0
        lease.is_first |= event.is_first
        self._confirm(lease, event.reason or _FIRST, blame=event.is_accused)

    def _confirm(self, lease: Lease, reason: str, *, blame: bool = False) -> bool:
        lease.ask(self._now_ns, self.settings.interval_s)
        self._replace(lease, reason, blame=blame, only_if_better=True, confirms=lease.is_first)
        return lease.lease_id not in self._leases

    def _overdue(self) -> bool:
        """Returns whether the time changed anything."""
        acted, interval_s = False, self.settings.interval_s
        for lease in list(self._leases.values()):
            agent = self._agents[lease.node]
            if not agent.connected and self._now_ns - agent.gone_ns >= self.settings.grace_s * NS:
                self._replace(lease, "the agent is gone")
            elif agent.connected and self._now_ns - lease.heard_ns >= self.settings.silence_s * NS:
                self._count_failure(lease, "no sweep came")
            elif not (
                (lease.is_first and lease.may_ask(self._now_ns, interval_s) and self._confirm(lease, _FIRST))
                or (lease.is_wanted and self._sweep_now(lease))
            ):
                continue
            acted = True
        before = len(self._open.unknown), len(self._back_off)
        for node in sorted({place.node for place in self._open.returned}):
            self._look_at(node, self._agents[node])
        forget_ns = self._now_ns - round(self.settings.back_off_max_s * NS)
        self._back_off = {place: x for place, x in self._back_off.items() if x.until_ns > forget_ns}
        return acted or before != (len(self._open.unknown), len(self._back_off))

    # -- leases ---------------------------------------------------------------------------------------------

    def _holder(self, node: str, lease_id: str) -> Lease | None:
        """Returns the lease if it is this node's. Otherwise instructs the node to stop, and returns None."""
        if self.may_report(node, lease_id):
            return self._leases[lease_id]
        if node in self._agents and self._agents[node].connected:
            self._out.append(Revoke(node, lease_id, "the lease is not held"))
        return None

    def _count_failure(self, lease: Lease, reason: str) -> None:
        lease.heard_ns = self._now_ns
        lease.reason = reason
        lease.bad += 1
        lease.good_since_ns = 0
        if lease.bad >= self._patience(lease, self.settings.failures):
            self._replace(lease, f"its sweeps fail: {reason}", blame=True, only_if_better=bool(lease.covered))

    def _patience(self, lease: Lease, least: int) -> int:
        """Returns how many bad sweeps move the lease: doubled by each unsuccessful move, at most 32."""
        return max(least, 1 << min(lease.moves, 5))

    def _blame(self, place: Place) -> None:
        self._back_off.setdefault(place, RetryTime(self.settings.backoff())).failed(self._now_ns)

    def _settle(self, lease: Lease, seen: frozenset[int]) -> None:
        """End one of two leases if a sweep contains the port of the other lease: both are on one fabric."""
        for other in list(self._leases.values()):
            if other is lease or other.guid not in seen:
                continue
            keep, drop = sorted((lease, other), key=lambda x: x.rank)
            if keep is other:
                # Until its next sweep it covers the ports of this one, too. Else they would be explored.
                is_more = not drop.covered <= keep.covered
                keep.covered |= drop.covered
                keep.known |= drop.known
                if is_more:
                    self._sweep_now(keep)
            if drop.is_provisional and not keep.is_provisional:
                self._blame(drop.place)
            self._end(drop, f"the fabric is swept under lease {keep.lease_id}")
            self._look_at_all()
            if drop is lease:
                return

    def _replace(
        self,
        lease: Lease,
        reason: str,
        *,
        blame: bool = False,
        only_if_better: bool = False,
        confirms: bool = False,
    ) -> None:
        """Move the lease to another port that is known to be in its fabric. Without one, the fabric is
        explored again.

        `only_if_better`: without another port, keep the lease: a partial sweep is better than none. `blame`:
        the port that loses the lease backs off.
        """
        able = ((name, x.ports) for name, x in self._agents.items() if x.connected and x.capable)
        inside = (p.at(name) for name, ports in able for p in ports if p.port_guid in lease.covered)
        place = self._choose(inside, {lease.node})
        if place is None and only_if_better:
            return
        if blame:
            self._blame(lease.place)
        self._end(lease, reason)
        if place is not None:
            heir = self._grant(place, lease.covered, lease.full, lease.moves + (lease.bad > 0))
            heir.confirms, heir.known = confirms or lease.confirms, lease.known
        self._look_at_all()

    def _end(self, lease: Lease, reason: str) -> None:
        del self._leases[lease.lease_id]
        if self._agents[lease.node].connected:
            self._out.append(Revoke(lease.node, lease.lease_id, reason))

    def _grant(self, place: Place, covered: frozenset[int], full: frozenset[int], moves: int) -> Lease:
        self._count += 1
        guid = next(p.port_guid for p in self._agents[place.node].ports if p.at(place.node) == place)
        lease_id = f"{self.epoch:x}-{self._count}"
        lease = Lease(self._count, lease_id, place, guid, self._now_ns, self._now_ns, covered, full, moves)
        self._leases[lease_id] = lease
        self._open.discard([place])
        self._tell(lease, again=False)
        return lease

    def _tell(self, lease: Lease, *, again: bool = True) -> None:
        node, device, port = lease.place
        self._out.append(Grant(node, lease.lease_id, device, port, self.settings.interval_s, again))

    def _sweep_now(self, lease: Lease) -> bool:
        """Let the holder sweep ahead of its time, or note that it must. Returns whether it was asked."""
        now_ns, interval_s = self._now_ns, self.settings.interval_s
        lease.is_wanted = not (self._agents[lease.node].connected and lease.may_ask(now_ns, interval_s))
        if not lease.is_wanted:
            lease.ask(now_ns, interval_s)
            self._tell(lease)
        return not lease.is_wanted

    def _explore(self) -> None:
        """Grant leases on uncovered ports, first on devices of other names: rails are often fabrics."""
        while self._open.unknown and len(self._leases) < self.settings.leases:
            exploring = [x for x in self._leases.values() if not x.swept_ns and not x.covered]
            if len(exploring) >= self.settings.exploring:
                return
            place = self._choose(self._open.unknown, {lease.place.device for lease in exploring})
            if place is None:
                return
            self._grant(place, frozenset(), frozenset(), 0)

    # -- ports ----------------------------------------------------------------------------------------------

    def _of(self, node: str) -> list[Lease]:
        return [lease for lease in self._leases.values() if lease.node == node]

    def _choose(self, places: Iterable[Place], avoid: Set[str]) -> Place | None:
        return best_place(places, avoid, self._leases.values(), self._back_off, self._now_ns)

    def _look_at(self, node: str, agent: Agent) -> None:
        """Update which ports of the node are open."""
        limit_ns = round(self.settings.return_s * NS)
        for lease in self._open.look_at(node, agent, self._leases.values(), self._now_ns, limit_ns):
            self._sweep_now(lease)

    def _look_at_all(self) -> None:
        for node, agent in self._agents.items():
            self._look_at(node, agent)
