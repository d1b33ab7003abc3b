"""What a placement is said to be worth is the same wherever it is said."""

from hyperscout_collector.serve.grpc.placement_queries import Free, explained, tried
from hyperscout_placer.book.reservation import Trial
from hyperscout_placer.cluster.allreduce import speeds_of
from hyperscout_placer.cluster.forest import Forest
from hyperscout_placer.cluster.request import Group, Request, Workers
from hyperscout_placer.solve.place import place
from support.builders import worker_capacity
from support.topologies import measured


def test_an_explanation_goes_by_what_was_measured_as_the_answer_does() -> None:
    topology = measured()
    free = Free(worker_capacity(Forest.of(topology)), speeds_of(topology))
    request = Request(Group(1, (Workers(2),)))
    _, answer = tried("a", request, free, lambda: Trial(place(free.capacity, request), 0.0))
    found = explained("a", request, free, 5)
    assert answer.predicted.measured
    assert found.placement.predicted == answer.predicted
    assert found.candidates[0].predicted == answer.predicted
