"""Sweep leases under any history: agents, ports and fabrics come, go, split and join."""

from hyperscout_collector.decisions.fabric.lease_state import LeaseSettings
from hyperscout_collector.decisions.fabric.leases import SweepLeases
from hyperscout_collector.decisions.fabric.sweep_events import Grant
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from .fabrics import World

SETTINGS = LeaseSettings(leases=6)
HOSTS, RAILS = 4, 2
hosts = st.integers(0, HOSTS - 1)
ports = st.tuples(hosts, st.integers(0, RAILS - 1))


class LeasesMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        cables = {(h, r): f"rail{r}" for h in range(HOSTS) for r in range(RAILS)}
        self.world = World(SweepLeases(SETTINGS, 7), cables)
        self.ids: dict[str, Grant] = {}
        self.judged = 0

    @rule(host=hosts)
    def connect(self, host: int) -> None:
        self.world.connect(host)

    @rule(host=hosts)
    def leave(self, host: int) -> None:
        self.world.leave(host)

    @rule(port=ports, down=st.booleans())
    def port(self, port: tuple[int, int], down: bool) -> None:
        self.world.set_down(port, down)

    @rule(port=ports, fabric=st.sampled_from(["rail0", "rail1", "other"]))
    def recable(self, port: tuple[int, int], fabric: str) -> None:
        self.world.cables[port] = fabric

    @precondition(lambda self: self.world.grants())
    @rule(data=st.data(), how=st.sampled_from(["full", "full", "partial", "fail"]))
    def sweep(self, data: st.DataObject, how: str) -> None:
        grant = data.draw(st.sampled_from(self.world.grants()))
        if how == "fail":
            self.world.fail(grant)
        else:
            self.world.sweep(grant, partial=how == "partial")

    @rule(seconds=st.sampled_from([1, 29, 61, 301, 4000]))
    def wait(self, seconds: int) -> None:
        self.world.wait(seconds)

    @invariant()
    def agents_and_machine_agree(self) -> None:
        machine, world = self.world.machine, self.world
        states = {x.lease_id: x for x in machine.leases()}
        for grant in world.grants():
            assert machine.may_report(grant.node, grant.lease_id)
        for state in states.values():
            host = int(state.node[1:])
            assert host not in world.connected or state.lease_id in world.held[host]
            assert host not in world.connected or (host, int(state.device[5:])) not in world.down
        assert len(states) <= SETTINGS.leases
        places = [(x.node, x.device) for x in states.values()]
        assert len(places) == len(set(places))

    @invariant()
    def open_ports_are_those_that_no_lease_covers(self) -> None:
        facts = self.world.machine.snapshot()
        taken = {lease.place for lease in facts.leases}
        assert self.world.machine.uncovered() == sorted(
            port.at(node)
            for node, agent in facts.agents.items()
            for port in agent.ports
            if agent.connected and agent.capable and port.at(node) not in taken
            if not any(port.port_guid in lease.covered for lease in facts.leases)
        )

    @invariant()
    def ids_are_unique(self) -> None:
        for told in self.world.told[self.judged :]:
            if isinstance(told, Grant):
                assert self.ids.setdefault(told.lease_id, told) == told
        self.judged = len(self.world.told)

    def teardown(self) -> None:
        """With all agents back and sweeps whole, each fabric has exactly one lease, and all is quiet."""
        world = self.world
        world.wait(8000)  # back-offs are over
        world.connect(*range(HOSTS))
        for port in world.cables:
            world.set_down(port, down=False)
        for _ in range(12):
            world.round()
        assert world.machine.uncovered() == []
        fabrics = [world.cables[int(g.node[1:]), int(g.device[5:])] for g in world.grants()]
        assert sorted(fabrics) == sorted(set(world.cables.values()))
        told = len(world.told)
        for _ in range(5):
            world.round()
        assert len(world.told) == told
        self.agents_and_machine_agree()
        self.ids_are_unique()


TestLeases = LeasesMachine.TestCase
TestLeases.settings = settings(stateful_step_count=30, report_multiple_bugs=False)
