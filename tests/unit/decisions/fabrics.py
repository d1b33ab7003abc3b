"""A small world to sweep: hosts whose ports lie in fabrics, and agents that do what they are told."""

from dataclasses import dataclass, field

from hyperscout_collector.decisions.fabric.leases import SweepLeases
from hyperscout_collector.decisions.fabric.sweep_events import (
    SWEEP_PROBE,
    AgentConnected,
    AgentGone,
    Event,
    Grant,
    Instruction,
    PortsSeen,
    Revoke,
    SweepFailed,
    SweepPort,
    SweepSeen,
    Tick,
)
from hyperscout_runtime.units import NS


@dataclass
class World:
    """`cables`: (host, rail) -> fabric, for every port there is. Hosts are numbers, rails too."""

    machine: SweepLeases
    cables: dict[tuple[int, int], str]
    now_s: float = 1000.0
    connected: set[int] = field(default_factory=set)
    down: set[tuple[int, int]] = field(default_factory=set)
    held: dict[int, dict[str, Grant]] = field(default_factory=dict)  # as each agent knows it
    told: list[Instruction] = field(default_factory=list)

    @staticmethod
    def name(host: int) -> str:
        return f"h{host}"

    @staticmethod
    def guid(host: int, rail: int) -> int:
        return 0x1000 + 16 * host + rail

    def ports(self, host: int) -> tuple[SweepPort, ...]:
        return tuple(
            SweepPort(f"mlx5_{r}", 1, self.guid(h, r))
            for h, r in sorted(self.cables)
            if h == host and (h, r) not in self.down
        )

    def seen_from(self, grant: Grant) -> frozenset[int]:
        """GUIDs of active ports in the fabric of this lease's port."""
        host, rail = int(grant.node[1:]), int(grant.device[5:])
        fabric = self.cables[host, rail]
        return frozenset(
            self.guid(*port) for port, f in self.cables.items() if f == fabric and port not in self.down
        )

    def send(self, event: Event) -> list[Instruction]:
        told = self.machine.handle(event, round(self.now_s * NS))
        for x in told:
            host = int(x.node[1:])
            assert host in self.connected, "no agent is there to hear it"
            mine = self.held.setdefault(host, {})
            if isinstance(x, Grant):
                mine[x.lease_id] = x
            else:
                mine.pop(x.lease_id, None)
        self.told += told
        return told

    def connect(self, *hosts: int, probes: frozenset[str] = frozenset({SWEEP_PROBE})) -> None:
        for host in hosts:
            self.connected.add(host)
            self.held[host] = {}  # a stream that ended ends its leases
            self.send(AgentConnected(self.name(host), probes))
            self.send(PortsSeen(self.name(host), self.ports(host)))

    def leave(self, *hosts: int) -> None:
        for host in hosts:
            self.connected.discard(host)
            self.held.pop(host, None)
            self.send(AgentGone(self.name(host)))

    def set_down(self, port: tuple[int, int], down: bool = True) -> None:
        (self.down.add if down else self.down.discard)(port)
        if port[0] in self.connected:
            self.send(PortsSeen(self.name(port[0]), self.ports(port[0])))

    def wait(self, seconds: float) -> None:
        self.now_s += seconds
        self.send(Tick())

    def grants(self) -> list[Grant]:
        """What the agents hold, oldest first."""
        found = [g for mine in self.held.values() for g in mine.values()]
        return sorted(found, key=lambda g: int(g.lease_id.split("-")[1]))

    def sweep(self, grant: Grant, *, partial: bool = False) -> None:
        seen = self.seen_from(grant)
        if partial:
            seen = frozenset(sorted(seen)[: len(seen) // 2 + 1])
        self.send(SweepSeen(grant.node, grant.lease_id, seen, partial, "mute node" if partial else ""))

    def fail(self, grant: Grant) -> None:
        self.send(SweepFailed(grant.node, grant.lease_id, "exit 255"))

    def round(self, seconds: float = 60) -> None:
        """All holders sweep once, then time passes."""
        for grant in self.grants():
            if grant.lease_id in self.held.get(int(grant.node[1:]), {}):
                self.sweep(grant)
        self.wait(seconds)

    def where(self) -> list[tuple[str, str]]:
        return [(g.node, g.device) for g in self.grants()]

    def reasons(self) -> list[str]:
        return [x.reason for x in self.told if isinstance(x, Revoke)]
