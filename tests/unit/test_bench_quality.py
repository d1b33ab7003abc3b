"""The quality benchmark is replayable and fair; on any state no placer places better than the exact one."""

from dataclasses import asdict
from itertools import count

import numpy as np
import pytest
from bench.quality.cluster import GPU, GPUS_PER_NODE, SHAPES, Shape, State, cost
from bench.quality.measures import figures
from bench.quality.placers import Exact, Placer, all_placers, asked
from bench.quality.report import HEADS, Block, drawing, table
from bench.quality.simulate import Result, Simulation
from bench.quality.workload import KALOS, LONGEST_S, SEREN, Job, Mix, trace
from hyperscout_placer.cluster.answer import Cost
from hyperscout_placer.cluster.forest import Forest
from hyperscout_placer.cluster.request import Mode
from support.examples import slow_after

# Two pods, one of uneven leaves; gangs of up to 16 nodes in it.
SMALL = Shape.of([[4, 3, 4], [3, 4, 4, 2]])
SIZES = ((1, 30), (4, 20), (8, 20), (16, 12), (32, 12), (128, 6))  # GPUs, jobs in %
MIX = Mix("small", tuple((gpus, share, 900) for gpus, share in SIZES), 1.0)
JOBS = trace(MIX, 120, SMALL.gpus, 0.9, seed=3)
MODES: tuple[Mode, ...] = ("soft", "hard")


def placers(mode: Mode) -> list[Placer]:
    return all_placers(SMALL, mode, seed=5)


def run(mode: Mode, driver: int, *, compared: bool = False, failures: float = 0.5) -> Result:
    ticks = count()
    others = [placer for i, placer in enumerate(placers(mode)) if i != driver] if compared else []
    simulation = Simulation(
        SMALL,
        JOBS,
        placers(mode)[driver],
        mode,
        failures=failures,
        seed=11,
        compared=others,
        clock=lambda: float(next(ticks)),
    )
    return simulation.run()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("driver", slow_after(1, range(5)))
def test_no_placer_pays_less_than_the_exact_one_on_the_same_state(mode: Mode, driver: int) -> None:
    """Whichever placer fills the cluster: on every state all are asked, and the exact one is the best."""
    result = run(mode, driver, compared=True)
    decisions = len(next(iter(result.beside.values())))
    assert decisions > 80
    if driver == 0:
        for name, pairs in result.beside.items():
            assert all(exact <= other for exact, other in pairs), name
    else:
        # The driver, and each other placer, against the exact placer, decision by decision.
        exact = [theirs for _, theirs in result.beside["exact"]]
        for name, pairs in result.beside.items():
            assert all(best <= theirs for best, (_, theirs) in zip(exact, pairs, strict=True)), name
        assert all(best <= mine for mine, best in result.beside["exact"])


def test_the_others_do_pay_more_somewhere() -> None:
    """Else the comparison above would prove nothing."""
    result = run("soft", 0, compared=True)
    for name, pairs in result.beside.items():
        assert any(exact < other for exact, other in pairs), name


@pytest.mark.parametrize("driver", slow_after(1, range(5)))
def test_the_same_seed_gives_the_same_run(driver: int) -> None:
    first, second = run("hard", driver), run("hard", driver)
    told = [[(start.at_s, start.nodes.tolist()) for start in one.starts] for one in (first, second)]
    assert told[0] == told[1]
    assert first.killed == second.killed > 0


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("driver", slow_after(2, range(5)))
def test_nothing_runs_where_something_else_does(mode: Mode, driver: int) -> None:
    """Told from the starts alone: at any start the GPUs of all gangs that run on a node are at most eight."""
    result = run(mode, driver, failures=0.0)
    changes = []
    for start in result.starts:
        nodes, workers = np.unique(start.nodes, return_counts=True)
        for node, number in zip(nodes.tolist(), workers.tolist(), strict=True):
            changes.append((start.at_s, 1, node, number * start.job.need))
            changes.append((start.at_s + start.job.runs_s, 0, node, -number * start.job.need))
    used = [0] * len(SMALL.names)
    for _, _, node, gpus in sorted(changes):
        used[node] += gpus
        assert 0 <= used[node] <= GPUS_PER_NODE
    assert len(result.starts) + len(result.waiting) == 120


@pytest.mark.parametrize("driver", slow_after(2, range(5)))
def test_hard_is_never_above_the_lowest_tier_that_could_hold_the_gang(driver: int) -> None:
    assert all(start.cost.top <= start.lowest for start in run("hard", driver).starts)


def test_what_is_not_there_cannot_be_taken_or_given_back() -> None:
    state = State(SMALL)
    state.take(np.array([0, 0]), 4)
    with pytest.raises(AssertionError, match="more was placed"):
        state.take(np.array([0]), 1)
    with pytest.raises(AssertionError, match="more was given"):
        state.give(np.array([1]), 1)


def test_a_cost_as_it_is_defined() -> None:
    """Five workers on two leaves of the first pod. Left there: 6 of 11, 2 of 4 and 0 of 3, none on nodes."""
    state = State(SMALL)
    assert cost(state, np.array([0, 1, 4, 5, 6]), 8) == Cost(2, (2,), 5, 0, (6, 2, 0))
    state.take(np.array([0]), 4)
    assert cost(state, np.array([0, 0]), 2) == Cost(1, (), 1, 0, (12, 0))


def test_the_exact_placer_keeps_its_books() -> None:
    exact = Exact(SMALL, "soft")
    state = State(SMALL)
    for gpus in (4, 16, 8):
        ask = asked(state, Job(0, 0, 1, gpus, first=False), 3)
        assert ask is not None
        nodes = exact.choose(state, ask)
        state.take(nodes, ask.job.need)
        exact.take(nodes, ask.job.need)
    books = [exact.capacity.free_of(name).get(GPU, 0) for name in SMALL.names]
    assert books == state.free.tolist()


@pytest.mark.parametrize(("mix", "median_s"), [(SEREN, 122), (KALOS, 124)])
def test_run_times_are_as_published(mix: Mix, median_s: float) -> None:
    jobs = [job for job in trace(mix, 5000, 40_000, 0.9, seed=1).jobs if not job.first]
    ordered = sorted(job.runs_s for job in jobs)
    assert 0.85 * median_s < ordered[2500] < 1.15 * median_s
    assert ordered[-1] <= LONGEST_S
    small = sum(job.gpus <= 8 for job in jobs) / 5000
    published = sum(share for gpus, share, _ in mix.sizes if gpus <= 8) / sum(s for _, s, _ in mix.sizes)
    assert abs(small - published) < 0.01


def test_the_load_is_what_was_asked_for() -> None:
    found = trace(SEREN, 2000, 4096, 0.85, seed=2)
    coming = sum(job.gpus * job.runs_s for job in found.jobs if not job.first)
    assert coming / (4096 * found.ends_s) == pytest.approx(0.85)
    at_first = sum(job.gpus for job in found.jobs if job.first)
    assert 0.83 < at_first / 4096 <= 0.85


def test_clusters_have_the_nodes_they_are_named_for() -> None:
    for nodes, shape in SHAPES.items():
        assert len(shape.names) == nodes
        assert Forest.of(shape.topology()).nodes == shape.names


def test_figures_table_and_picture() -> None:
    forest = Forest.of(SMALL.topology())
    rows = [figures(run("soft", driver), forest, JOBS.ends_s) for driver in range(5)]
    exact, scattered = rows[0], rows[4]
    assert exact.top < scattered.top
    assert exact.ring_ms < scattered.ring_ms
    assert all(value >= 0 for row in rows for value in asdict(row).values() if not isinstance(value, str))
    block = Block("small", rows, {"binpack": (0.5, 0.2)}, {"binpack": 1}, 1)
    first, second = table(block).split("\n\n")
    cells = [len(part.splitlines()[2].split("|")) - 2 for part in (first, second)]
    assert sum(cells) == len(HEADS) + 1
    assert drawing([block], "words").count("<rect") == 25
