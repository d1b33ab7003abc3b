"""What a placement is said to be worth is the same wherever it is said."""

from hyperscout_collector.serve.grpc.placement_queries import (
    Free,
    defragmented,
    explained,
    explained_held,
    improved,
    tried,
)
from hyperscout_placer.book.failed_nodes import FailedNode
from hyperscout_placer.book.placements import Placements
from hyperscout_placer.book.reservation import Reservation, Trial
from hyperscout_placer.cluster.forest import Forest
from hyperscout_placer.cluster.request import Group, Request, Workers
from hyperscout_placer.cluster.speeds import speeds_of
from hyperscout_placer.solve.place import place
from support.builders import gang, worker_capacity
from support.topologies import leaves, measured


def test_an_explanation_goes_by_what_was_measured_as_the_answer_does() -> None:
    topology = measured()
    forest = Forest.of(topology)
    free = Free(worker_capacity(forest), speeds_of(topology, forest))
    request = Request(Group(1, (Workers(2),)))
    _, answer = tried("a", request, free, lambda: Trial(place(free.capacity, request), 0.0))
    found = explained("a", request, free, 5)
    assert answer.predicted.measured
    assert found.placement.predicted == answer.predicted
    assert found.candidates[0].predicted == answer.predicted


def test_nothing_proposes_nodes_that_a_gang_remembers_as_failed() -> None:
    """`n9` is remembered, and no longer in the topology."""

    def world(failed: tuple[str, ...]) -> tuple[Placements, Reservation]:
        placements = Placements(clock_ns=lambda: 1, timer=lambda: 0.0)
        placements.set_topology(leaves(("n1", "n2"), ("n3", "n4")))
        placements.set_unused({node: {"workers": 1} for node in ("n1", "n2", "n3", "n4")})
        placements.set_unusable(["n2", "n4"])
        placements.place("a", gang(2), holder="api")  # on n1 and n3, over both leaves
        placements.set_unusable([])
        placements.set_failed("a", tuple(FailedNode(node, 1) for node in failed))
        return placements, placements.held("a")

    for failed, better in ((("n9",), True), (("n2", "n9"), True), (("n2", "n4", "n9"), False)):
        placements, held = world(failed)
        free = Free(placements.capacity.copy(), placements.speeds)
        assert held.placement.nodes == ("n1", "n3")
        found = improved(held, free)
        assert found.better == better
        assert not {x.node for x in found.placement.assignments} & set(failed)
        shown = explained_held(held, placements.without("a"), free, 5)
        assert not {x.node for x in shown.placement.assignments} & set(failed)
        # A gang of two fits into a leaf if a rank of this gang moves.
        plan = defragmented("b", gang(2, tier=1), [held], lambda request: {}, free, 8)
        assert plan.placement.placed == better
        assert not {move.target for x in plan.gangs for move in x.moves} & set(failed)
