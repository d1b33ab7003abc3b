"""Gangs that run: how long a repair, an advice to move and a plan to make room take.

Medians over seeds; the peer is placing the same gang anew, in the same run.
"""

import random
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from hyperscout_placer.cluster.answer import Placement
from hyperscout_placer.cluster.forest import Forest
from hyperscout_placer.cluster.request import Group, Request, Workers, ranks
from hyperscout_placer.repair.defrag import MovePlan, Running, defragment
from hyperscout_placer.repair.repair import Repair, improvement, repair
from hyperscout_placer.solve.place import place
from support.bench_rows import row
from support.builders import worker_capacity
from support.placer_clusters import TAKEN, cluster

SEEDS = 7
_T = TypeVar("_T")

GANGS = {
    "1,000 workers, one a node": (1, Group(1, (Workers(1000),))),
    "125 groups of 8 in leaves, 0 to 8 free a node": (8, Group(1, (Group(125, (Workers(8),), tier=1),))),
    "4 pipelines of 31 groups of 8 in pods": (
        8,
        Group(1, (Group(4, (Group(31, (Workers(8),), tier=1),), tier=2),)),
    ),
}


def timed(what: Callable[[], _T]) -> tuple[float, _T]:
    began_s = time.perf_counter()
    found = what()
    return time.perf_counter() - began_s, found


def ms(values: list[float]) -> str:
    return f"{statistics.median(values) * 1e3:.1f} ms"


def repairs(forest: Forest) -> None:
    for what, (most, gang) in GANGS.items():
        request, needs = Request(gang), list(ranks(gang))
        spent: dict[str, list[float]] = {"place": [], "repair": [], "improve": []}
        moves, exact = 0, 0
        for seed in range(SEEDS):
            rng = random.Random(seed)
            free = TAKEN["at random"](forest.nodes, most, rng)
            capacity = worker_capacity(forest, free)
            place(capacity, request)
            spent_s, answer = timed(lambda c=capacity, r=request: place(c, r))
            spent["place"].append(spent_s)
            assert isinstance(answer, Placement)
            capacity.take(answer.nodes, needs)
            lost = frozenset(rng.sample(sorted(set(answer.nodes)), 4))
            spent_s, found = timed(
                lambda c=capacity, r=request, n=answer.nodes, x=lost: repair(c, r, n, x, {})
            )
            spent["repair"].append(spent_s)
            assert isinstance(found, Repair)
            moves += len(found.moves)
            exact += found.placement.exact
            spent["improve"].append(
                timed(lambda c=capacity, r=request, n=answer.nodes: improvement(c, r, n, {}))[0]
            )
        anew, where = ms(spent["place"]), "on 100,000 nodes"
        row(
            f"repair, 4 nodes lost: {what}, {where}",
            f"{ms(spent['repair'])}, {moves / SEEDS:.0f} moves",
            f"anew {anew}",
        )
        row(f"of these proven to be the best: {what}", f"{exact} of {SEEDS}")
        row(f"would moving help? {what}, {where}", ms(spent["improve"]), f"anew {anew}")


def room_for_more() -> None:
    """5,120 nodes of 8, filled with gangs, of which a quarter of the small ones ended."""
    forest = Forest.of(cluster(5_120))
    spent: dict[int, list[float]] = {128: [], 256: []}
    moved: dict[int, list[int]] = {128: [], 256: []}
    count = 0
    for seed in range(3):
        rng = random.Random(seed)
        capacity = worker_capacity(forest, dict.fromkeys(forest.nodes, 8))
        gangs: list[Running] = []
        while True:
            request = Request(Group(1, (Workers(rng.choice((2, 4, 8, 8, 16, 32, 64, 128, 256))),)))
            answer = place(capacity, request)
            if not isinstance(answer, Placement):
                break
            capacity.take(answer.nodes, list(ranks(request.gang)))
            gangs.append(Running(f"gang-{len(gangs)}", request, answer.nodes))
        small = [gang for gang in gangs if len(gang.nodes) <= 32]
        for gang in rng.sample(small, len(small) // 4):
            capacity.give(gang.nodes, list(ranks(gang.request.gang)))
            gangs.remove(gang)
        count = len(gangs)
        for size in (128, 256):
            asked = Request(Group(1, (Workers(size),), tier=1))
            spent_s, plan = timed(
                lambda c=capacity, a=asked, g=gangs: defragment(c, a, g, {}, most_moves=128)
            )
            spent[size].append(spent_s)
            moved[size].append(plan.moved if isinstance(plan, MovePlan) else -1)
    for size in (128, 256):
        told = ", ".join("none" if n < 0 else str(n) for n in moved[size])
        row(
            f"room for {size} workers in a leaf, 5,120 nodes, some {count} gangs",
            ms(spent[size]),
            f"workers moved: {told}",
        )


def main() -> None:
    repairs(Forest.of(cluster(100_000)))
    room_for_more()


if __name__ == "__main__":
    main()
