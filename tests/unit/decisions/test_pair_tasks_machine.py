"""Measuring under any history: agents, plans, reports and pauses in any order."""

from hyperscout_collector.decisions.measuring.pair_events import HierarchyChanged, Resumed
from hyperscout_collector.decisions.measuring.pair_limits import PairSettings
from hyperscout_runtime.units import NS
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from .measured_world import World, most_within

NODES = [f"n{i}" for i in range(6)]
SETTINGS = PairSettings(
    probes_per_s=10.0,
    node_kbps=100.0,
    rest_s=5.0,
    back_off_s=2.0,
    node_back_off_s=5.0,
    node_back_off_most_s=30.0,
    reverify_s=60.0,
    expires_s=5.0,
    report_s=15.0,
)
nodes = st.sampled_from(NODES)


class PairTasksMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = World(settings=SETTINGS, learning=False, representatives=frozenset(NODES[:3]))
        self.outcome: bool | None = True
        self.world.answers = lambda task: self.outcome
        self.paused_at: int | None = None

    @rule(node=nodes, rails=st.integers(1, 3), rdma=st.booleans())
    def connect(self, node: str, rails: int, rdma: bool) -> None:
        self.world.connect(node, rails=rails, rdma=rdma)

    @rule(node=nodes)
    def leave(self, node: str) -> None:
        if node in self.world.held:
            self.world.leave(node)

    @rule(outcome=st.sampled_from([True, True, False, None]))
    def from_now_on(self, outcome: bool | None) -> None:
        self.outcome = outcome

    @rule(seconds=st.sampled_from([0.2, 1, 12, 40]))
    def wait(self, seconds: float) -> None:
        self.world.run(seconds)

    @rule(node=nodes)
    def publish(self, node: str) -> None:
        if node in self.world.held:
            self.world.publish(node)

    @rule()
    def hierarchy(self) -> None:
        self.world.handle(HierarchyChanged())

    @rule()
    def pause(self) -> None:
        self.world.pause()
        self.paused_at = len(self.world.told)

    @rule()
    def resume(self) -> None:
        self.world.handle(Resumed())
        self.paused_at = None

    @invariant()
    def a_pause_is_a_pause(self) -> None:
        if self.paused_at is not None:
            assert len(self.world.told) == self.paused_at
            assert self.world.machine.in_flight == 0

    @invariant()
    def what_is_open_is_open_at_both_ends(self) -> None:
        machine = self.world.machine
        for task_id, task in machine._open.items():
            for end in task.ends:
                assert task_id in machine._agents[end.node].open
        assert sum(len(agent.open) for agent in machine._agents.values()) == 2 * machine.in_flight
        assert sum(machine._under_way.values()) == machine.in_flight
        assert all(count == 1 for count in machine._under_way.values())

    @invariant()
    def bounds_hold(self) -> None:
        assert most_within([(at_ns, 1) for at_ns, _ in self.world.told], 10 * NS) <= 10 * 10 + 5 + 2

    def teardown(self) -> None:
        """When all is well again, every pair gets measured."""
        world = self.world
        world.handle(Resumed())
        self.outcome = True
        world.run(90)  # back-offs are over
        world.connect(*NODES)
        before = len(world.told)
        world.run(120)
        pairs = {frozenset((task.node, task.peer)) for _, task in world.told[before:]}
        assert len(pairs) == len(NODES) * (len(NODES) - 1) // 2
        assert world.machine.failed + world.machine.measured + world.machine.in_flight <= len(
            world.tasks()
        ) + len(world.tasks("rdma"))


PairTasksMachine.TestCase.settings = settings(stateful_step_count=20, report_multiple_bugs=False)
TestPairTasksMachine = PairTasksMachine.TestCase
