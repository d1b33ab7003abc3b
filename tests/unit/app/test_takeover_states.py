"""A take-over changes no condition by itself, in any state that a cluster can be in.

The old leader and the new one receive the same reports of the agents that are alive. The new one starts with
what the old one published, and without its evidence.
"""

import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import cast

import pytest
from hyperscout.v1.finding_pb2 import Finding
from hyperscout_collector.app.inference.cluster import ClusterView
from hyperscout_collector.app.inference.inference import Inference, InferenceSettings
from hyperscout_collector.decisions.publication.generations import Decision, Generations, GenerationSettings
from hyperscout_collector.decisions.publication.takeover import Takeover
from hyperscout_collector.evidence.rows import row_of
from hyperscout_collector.evidence.state import Bulk, EvidencePlan, EvidenceState
from hyperscout_collector.evidence.store import EvidenceStore
from hyperscout_collector.evidence.sweep_texts import SweepTexts
from hyperscout_collector.evidence.view import InputsView
from hyperscout_runtime.units import rfc3339
from hyperscout_sim.fabric.fabric import SimFabric
from hyperscout_topology.topology import Topology
from support.findings import T0, S, chassis, failed, lldp, switch_port
from support.takeover_infiniband import fabric_of, findings_of

STALE_S = 300.0
RACKS = {"a": ("a1", "a2", "a3"), "b": ("b1",), "c": ("c1", "c2", "c3")}  # two leaves each
HOSTS = [host for rack in RACKS.values() for host in rack]
LEAVES = [f"leaf-{rack}{rail}" for rack in RACKS for rail in (0, 1)]
Cable = tuple[str, int]  # host and rail


class Leader:
    """A collector that leads. `published`: what the leader before it published."""

    def __init__(
        self, now_ns: int, published: Topology | None = None, agents: Mapping[str, int] | None = None
    ) -> None:
        self.state = EvidenceState()
        self.view = InputsView(self.state, STALE_S, now_ns)
        self.takeover = None
        if published is not None:
            self.takeover = Takeover(published, 30.0, now_ns, agents=agents, stale_after_s=STALE_S)
        generations = Generations(GenerationSettings(), published, now_ns)
        self.stored: dict[bytes, bytes] = {}  # compressed sweeps, by their digest
        self.texts = SweepTexts(cast(EvidenceStore, SimpleNamespace(bulk=self.stored.get)))
        self.inference = Inference(
            InferenceSettings(),
            self.texts,
            generations,
            timer=lambda: 0.0,
            takeover=self.takeover,
        )
        self.decision = Decision()

    def take(self, findings: list[Finding], now_ns: int, sweeps: Sequence[tuple[Bulk, bytes]] = ()) -> None:
        plan = EvidencePlan(self.state, now_ns)
        for bulk, text in sweeps:
            self.stored.setdefault(bulk.sha256, zlib.compress(text))
            plan.put_bulk(bulk)
        for finding in findings:
            plan.upsert(row_of(finding, sent_ns=now_ns, received_ns=now_ns), b"")
        self.view.follow(self.state.commit(plan))
        if self.takeover is not None:
            for node in {finding.key.node for finding in findings}:
                self.takeover.full_state(node, now_ns)

    def infer(self, cluster: ClusterView, now_ns: int) -> None:
        self.decision = self.inference.run(self.view.snapshot(now_ns), cluster, now_ns, (), 0).decision

    @property
    def agents(self) -> dict[str, int]:
        """When each agent was last heard, as the standby learned it."""
        return {node: max(x.seen_ns for x in self.state.rows_of_node(node)) for node in self.state.nodes}

    @property
    def published(self) -> Topology:
        found = self.inference.published
        assert found is not None
        return found


def address(host: str, rail: int) -> str:
    """The MAC address of a NIC."""
    return f"02:00:00:01:{rail:02x}:{HOSTS.index(host):02x}"


@dataclass
class World:
    """A cluster with its leader. `out`: cables that are pulled; `cables`: the leaf of those that moved.

    `dark`: hosts without power; `left`: nodes that are no longer in the cluster.
    """

    switches: bool = False  # whether agents run on the leaves
    infiniband: bool = False  # the cables are InfiniBand, and nothing hears LLDP
    kubernetes: bool = False
    now_ns: int = T0
    dead: set[str] = field(default_factory=set)  # reporters
    dark: set[str] = field(default_factory=set)
    left: set[str] = field(default_factory=set)
    out: set[Cable] = field(default_factory=set)
    cables: dict[Cable, str] = field(default_factory=dict)
    leader: Leader = field(init=False)

    def __post_init__(self) -> None:
        self.leader = Leader(self.now_ns)
        self.run(30)

    def findings(self) -> list[Finding]:
        found = []
        for host in HOSTS:
            for rail in (0, 1):
                leaf = self.cables.get((host, rail), f"leaf-{host[0]}{rail}")
                heard = "" if (host, rail) in self.out else leaf
                port = lldp(host, f"rail{rail}", self.now_ns, neighbour=heard, port=f"swp-{host}")
                port.lldp.mac = address(host, rail)
                found.append(port)
        for leaf in LEAVES if self.switches else ():
            reporter, rail = f"switch/{leaf}", int(leaf[-1])
            found += [
                switch_port(reporter, f"up-{spine}", self.now_ns, neighbour=spine, port=leaf)
                for spine in ("spine-1", "spine-2")
            ]
            for host in HOSTS:
                at = self.cables.get((host, rail), f"leaf-{host[0]}{rail}")
                is_up = (host, rail) not in self.out and host not in self.dark
                heard = host if at == leaf and is_up else ""
                port = switch_port(reporter, f"swp-{host}", self.now_ns, neighbour=heard, port=f"rail{rail}")
                port.switch_port.carrier, port.switch_port.speed_mbps = bool(heard), 100_000
                for neighbour in port.switch_port.neighbours:
                    neighbour.chassis_id, neighbour.capabilities[:] = address(host, 0), ["Station"]
                    neighbour.port_id_subtype, neighbour.port_id = "mac", address(host, rail)
                found.append(port)
        return [x for x in found if x.key.node not in self.dead]

    @property
    def fabric(self) -> SimFabric:
        plugged = frozenset(
            (host, rail, self.cables.get((host, rail), f"leaf-{host[0]}{rail}"))
            for host in HOSTS
            for rail in (0, 1)
            if (host, rail) not in self.out and host not in self.dark
        )
        return fabric_of(tuple(HOSTS), tuple(LEAVES), plugged)

    @property
    def cluster(self) -> ClusterView:
        nodes = {x: "NotReady" if x in self.dead else None for x in HOSTS if x not in self.left}
        return ClusterView(nodes if self.kubernetes else None)

    def run(self, seconds: int, step_s: int = 2) -> None:
        """Let time pass. All agents that are alive report in each step."""
        for _ in range(0, seconds, step_s):
            self.now_ns += step_s * S
            if self.infiniband:
                found, sweeps = findings_of(self.fabric, set(HOSTS) - self.dead, self.now_ns)
                self.leader.take(found, self.now_ns, sweeps)
            else:
                self.leader.take(self.findings(), self.now_ns)
            self.leader.infer(self.cluster, self.now_ns)

    def take_over(self) -> None:
        self.leader = Leader(self.now_ns, self.leader.published, self.leader.agents)


def state_of(topology: Topology, left: Collection[str] = ()) -> dict[str, object]:
    """What a take-over must not change. The port of a silent host is known by its address alone, and cables
    of nodes that `left` the cluster are forgotten."""
    return {
        "conditions": {(h.name, c.type): c for h in topology.hypernodes for c in h.conditions},
        "members": {h.name: (h.nodes, h.parent, h.switches) for h in topology.hypernodes},
        "anomalies": {(x.kind, x.subject, x.peer, x.since_ns) for x in topology.anomalies},
        "lists": (topology.nodes_without_evidence, topology.foreign_endpoints),
        "links": {(x.a_device, x.b_device, x.b_port) for x in topology.links if x.a_device not in left},
        "switches": topology.switches,
    }


def dead_node(world: World) -> None:
    world.dead.add("b1")
    world.run(48)


def stale_node(world: World) -> None:
    world.dead.add("b1")
    world.run(400, 20)


def power_cut(world: World) -> None:
    world.dead.add("a1")
    world.dark.add("a1")
    world.run(400, 20)


def silent_switch(world: World) -> None:
    world.dead.add("switch/leaf-c0")
    world.run(48)


def left_cluster(world: World) -> None:
    world.dead.add("a3")
    world.left.add("a3")
    world.run(48)


def dead_rack(world: World) -> None:
    world.dead |= {"c1", "c2", "c3"}
    world.run(48)


def dead_cables(world: World) -> None:
    world.out |= {("a1", 0), ("a3", 1), ("b1", 0)}
    world.run(30)


def host_without_cables(world: World) -> None:
    world.out |= {("a1", 0), ("a1", 1)}
    world.run(30)


def dead_node_with_dead_cable(world: World) -> None:
    world.out.add(("b1", 1))
    world.run(20)
    world.dead.add("b1")
    world.run(48)


def flapping(world: World) -> None:
    for _ in range(6):
        world.out ^= {("c2", 0)}
        world.run(4)
    world.run(20)
    assert any(x.is_over for x in world.leader.published.anomalies)


def held(world: World) -> None:
    for host in ("b1", "c1", "c2", "c3"):
        world.cables |= {(host, 0): "leaf-a0", (host, 1): "leaf-a1"}
    world.run(80)
    assert world.leader.decision.held is not None


def moved(world: World) -> None:
    world.cables |= {("a3", 0): "leaf-b0", ("a3", 1): "leaf-b1"}
    world.run(30)


def miswired(world: World) -> None:
    world.cables |= {("a3", 1): "leaf-c1"}
    world.run(30)


def approved(world: World) -> None:
    world.out |= {("a1", 0)}
    world.run(30)
    world.leader.inference.accept_losses(world.leader.published)
    world.run(30)
    degraded = {c.status for h in world.leader.published.hypernodes for c in h.conditions[1:2]}
    # A port that is down beside its peers in an InfiniBand leaf still implies the cable.
    assert degraded == ({"True", "False"} if world.infiniband else {"False"})


STATES = (
    dead_node,
    stale_node,
    power_cut,
    silent_switch,
    left_cluster,
    dead_rack,
    dead_cables,
    host_without_cables,
    dead_node_with_dead_cable,
    flapping,
    held,
    moved,
    miswired,
    approved,
)


@pytest.mark.parametrize(
    ("seen_by", "kubernetes"),
    [("hosts", False), ("hosts", True), ("switches", False), ("switches", True), ("infiniband", True)],
)
@pytest.mark.parametrize("happens", STATES)
def test_a_takeover_changes_no_condition(
    happens: Callable[[World], None], seen_by: str, kubernetes: bool
) -> None:
    world = World(seen_by == "switches", seen_by == "infiniband", kubernetes)
    happens(world)
    before = world.leader.published
    world.take_over()
    for _ in range(30):
        world.run(2)
        assert state_of(world.leader.published, world.left) == state_of(before, world.left)


@pytest.mark.parametrize("knows", [False, True], ids=["not known yet", "none heard"])
def test_members_of_published_hypernodes_whose_evidence_comes_later(knows: bool) -> None:
    """A new collector reads members from the API server, which has no links. Its agents are new, too."""
    old = World(kubernetes=True).leader.published
    world = World(kubernetes=True)
    hypernodes = replace(old, switches=(), adapters=(), links=())
    world.leader = Leader(world.now_ns, hypernodes)
    said = []
    for step in range(10):
        world.now_ns += 2 * S
        ports = [(host, f"rail{rail}") for host in (HOSTS if step else HOSTS[:1]) for rail in (0, 1)]
        if step >= 3:
            found = world.findings()
        elif knows:
            found = [lldp(*port, world.now_ns, neighbour="") for port in ports]
        else:
            found = [failed(host, "lldp", port, world.now_ns) for host, port in ports]
        world.leader.take(found, world.now_ns)
        world.leader.infer(world.cluster, world.now_ns)
        conditions = [c for h in world.leader.published.hypernodes for c in h.conditions]
        said.append(any("no fabric shows it" in c.message for c in conditions))
    assert said == [False, knows, knows, *[False] * 7]
    assert world.leader.published.nodes_without_evidence == ()


@pytest.mark.parametrize("seen_by", ["hosts", "switches", "infiniband"])
def test_a_cable_that_a_new_collector_has_seen_for_a_moment_is_named_by_both_ports(seen_by: str) -> None:
    """The new collector reads HyperNodes, which have no links."""
    world = World(seen_by == "switches", seen_by == "infiniband", kubernetes=True)
    before = world.leader.published
    names = {x.id: x.node for x in before.adapters} | {x.id: x.name for x in before.switches}
    [link] = [
        x
        for x in before.links
        if {names.get(x.a_device, x.a_device), names.get(x.b_device, x.b_device)} == {"a1", "leaf-a0"}
    ]
    world.leader = Leader(world.now_ns, replace(before, switches=(), adapters=(), links=()))
    world.run(2)
    world.out = {("a1", 0)}
    for _ in range(3):
        world.run(20)
        [lost] = [x for x in world.leader.published.anomalies if x.kind == "MissingLink"]
        assert lost.ends == {(link.a_device, link.a_port), (link.b_device, link.b_port)}
        assert lost.sources == link.sources


def test_an_accepted_loss_is_forgotten_also_if_the_link_flapped() -> None:
    world = World()
    for _ in range(6):
        world.out ^= {("c2", 0)}
        world.run(4)
    world.out = {("c2", 0)}
    world.run(30)
    assert "LinksDown" in {c.reason for h in world.leader.published.hypernodes for c in h.conditions}
    world.leader.inference.accept_losses(world.leader.published)
    world.run(2)
    assert "LinksDown" not in {c.reason for h in world.leader.published.hypernodes for c in h.conditions}
    assert all(x.confidence < 0.5 for x in world.leader.published.anomalies)


def test_the_agent_of_a_switch_that_stays_silent_becomes_stale() -> None:
    world = World(switches=True)
    silent_switch(world)
    world.take_over()
    world.run(320, 20)
    conditions = [c for h in world.leader.published.hypernodes for c in h.conditions]
    stale = [c for c in conditions if (c.type, c.status) == ("Stale", "True")]
    assert [c.switches for c in stale] == [(chassis("leaf-c0"),)]
    assert stale[0].message.endswith(f"leaf-c0 last seen {rfc3339(T0 + 78 * S - 48 * S)}")
