"""Nothing is better than what `place` finds: judged by an integer program, on larger clusters too."""

import itertools
from collections.abc import Iterator

import numpy as np
import pytest
from hyperscout_placer.cluster.answer import Refusal
from hyperscout_placer.cluster.capacity import Mask
from hyperscout_placer.cluster.forest import Forest
from hyperscout_placer.cluster.request import ends
from hyperscout_placer.solve.elastic import elastic_parts, place_elastic, with_counts
from hyperscout_placer.solve.place import place
from support.placer_cpsat import Program, Solver, cpsat_place, running_solver
from support.placer_instances import Instance, elastic_instance, random_instance
from support.placer_oracle import Free, brute_place, verify
from support.real import require_real

pytestmark = pytest.mark.slow

SEEDS = 200
AT_ONCE = 25
LARGER = 24  # of up to 40 nodes and 60 workers
ELASTIC = 24


@pytest.fixture(scope="module")
def solver() -> Iterator[Solver]:
    require_real("ortools")
    with running_solver() as running:
        yield running


@pytest.mark.parametrize("first", range(0, SEEDS, AT_ONCE))
def test_engine_brute_force_and_integer_program_agree(solver: Solver, first: int) -> None:
    for seed in range(first, first + AT_ONCE):
        case = random_instance(seed)
        room = Free(case.forest(), case.free)
        masks = case.masks(room.forest)
        best, counted = cpsat_place(solver, room, case.request, masks), brute_place(room, case.request, masks)
        found = place(case.capacity(), case.request, masks)
        if isinstance(best, Refusal) or isinstance(found, Refusal) or isinstance(counted, Refusal):
            assert isinstance(best, Refusal), (case, best)
            assert isinstance(counted, Refusal), (case, counted)
            assert isinstance(found, Refusal), (case, found)
            continue
        assert best.cost == counted.cost == found.cost, (case, best, counted, found)
        assert bool(best.relaxed) == bool(counted.relaxed) == bool(found.relaxed), (case, best, found)
        # It knows nothing of the order of ranks; all else has to be right.
        wrong = [x for x in verify(room, case.request, best, masks) if "ranks do not follow" not in x]
        assert not wrong, (case, best)


@pytest.mark.parametrize("by_role", [False, True])
@pytest.mark.parametrize("seed", range(1000, 1000 + LARGER))
def test_larger_ones(solver: Solver, seed: int, by_role: bool) -> None:
    case = random_instance(seed, most_nodes=40, most_workers=60)
    room = Free(case.forest(), case.free)
    masks = preferring(case, room.forest) if by_role else case.masks(room.forest)
    best = cpsat_place(solver, room, case.request, masks)
    found = place(case.capacity(), case.request, masks)
    assert isinstance(found, Refusal) == isinstance(best, Refusal), (case, best, found)
    if isinstance(best, Refusal) or isinstance(found, Refusal):
        return
    assert not verify(room, case.request, found, masks), (case, found)
    if found.exact:
        assert found.cost == best.cost, (case, best, found)
    else:
        assert found.bound is not None
        assert found.bound <= best.cost <= found.cost, (case, best, found)


def preferring(case: Instance, forest: Forest) -> dict[str, Mask]:
    """Each role prefers other nodes."""
    rng, every = np.random.default_rng(case.seed), np.ones(len(forest.nodes), np.bool_)
    roles = sorted({end.role for end in ends(case.request.gang)})
    return {role: Mask.of(every, {}, rng.choice([0, 10, 60], len(every))) for role in roles}


@pytest.mark.parametrize("seed", range(3000, 3000 + ELASTIC))
def test_elastic_ones(solver: Solver, seed: int) -> None:
    """The integer program is asked for all numbers, the largest first."""
    case = elastic_instance(seed, most_nodes=24, most_workers=20)
    if case is None:
        return
    room, request = Free(case.forest(), case.free), case.request
    masks = case.masks(room.forest)
    found = place_elastic(case.capacity(), request, masks)
    ranges = (range(limits.most, limits.least - 1, -1) for _, limits in elastic_parts(request.gang))
    for counts in itertools.product(*ranges):
        best = cpsat_place(solver, room, with_counts(request, counts), masks)
        if not isinstance(best, Refusal):
            break
        assert isinstance(found, Refusal) or found.counts != counts, (case, counts)
    if isinstance(found, Refusal) or isinstance(best, Refusal):
        assert isinstance(found, Refusal) == isinstance(best, Refusal), (case, best, found)
        return
    if found.exact:
        assert (found.counts, found.cost) == (counts, best.cost), (case, best, found)
    else:
        assert found.counts <= counts


def test_the_solver_keeps_the_order_of_objectives(solver: Solver) -> None:
    """Also where one weighted sum of them all would not fit into 64 bits."""
    program = Program()
    many = [program.variable(0, 10**9) for _ in range(5)]
    for a, b in itertools.pairwise(many):
        program.row([(a, 1), (b, 1)], 7, 7)
    program.objectives = [[(v, 1)] for v in many[1:]]
    answer = solver.solve(program)
    assert answer is not None
    assert answer["values"] == [7, 0, 7, 0, 7]
    program.row([(many[0], 1)], 0, 6)
    program.row([(many[1], 1)], 0, 0)
    assert solver.solve(program) is None
