"""The placer: whether anything is better than what it finds, and how long it takes, at any size.

"Warm" is what a service sees: workers of this kind were asked for before, and a node has changed since.
Each figure is the median over seeds, each of them the median of a few questions; p99 is over the seeds.
"""

import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from hyperscout_placer.cluster.answer import Placement, Refusal
from hyperscout_placer.cluster.capacity import Capacity
from hyperscout_placer.cluster.forest import Forest
from hyperscout_placer.cluster.request import WORKERS, Group, Request, Spread, Workers, ranks
from hyperscout_placer.solve.place import place
from support.apart import environment
from support.bench_rows import row
from support.builders import worker_capacity
from support.placer_chain import chain_cost, random_chain
from support.placer_clusters import TAKEN, cluster
from support.placer_cpsat import SolverError, cpsat_place, running_solver
from support.placer_instances import random_instance
from support.placer_oracle import Free, brute_place, verify

SMALL, LARGER, CHAINS = 2000, 40, 200
GROWTH = (5_000, 10_000, 20_000, 50_000, 100_000, 200_000)
GANG = 1000  # workers, however large the cluster is
LIMIT_S = 1.0  # of CP-SAT's own time
PATIENCE_S = 10.0  # for one figure


def quantile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def of(workers: int) -> Request:
    return Request(Group(1, (Workers(workers),)))


# --- is anything better? ------------------------------------------------------------------------------------


def differs(best: Placement | Refusal, found: Placement | Refusal) -> bool:
    if isinstance(best, Refusal) or isinstance(found, Refusal):
        return isinstance(best, Refusal) != isinstance(found, Refusal)
    if found.exact:
        return best.cost != found.cost
    return found.bound is None or not found.bound <= best.cost <= found.cost


def oracles() -> None:
    if environment("oracle") is None:
        raise SystemExit("OR-tools is not installed: run `make setup`")
    wrong, placed, unproven, larger, inexact = [], 0, 0, 0, 0
    spent_s = {"engine": 0.0, "brute": 0.0, "program": 0.0}

    def timed(method: str, what: Callable[[], Placement | Refusal]) -> Placement | Refusal:
        began_s = time.perf_counter()
        found = what()
        spent_s[method] += time.perf_counter() - began_s
        return found

    with running_solver() as solver:
        for seed in range(10_000, 10_000 + SMALL):
            case = random_instance(seed)
            capacity, room = case.capacity(), Free(case.forest(), case.free)
            ours, theirs = case.masks(capacity.forest), case.masks(room.forest)
            found = timed("engine", lambda c=capacity, r=case.request, m=ours: place(c, r, m))
            counted = timed("brute", lambda r=room, q=case.request, m=theirs: brute_place(r, q, m))
            solved = timed("program", lambda r=room, q=case.request, m=theirs: cpsat_place(solver, r, q, m))
            placed += isinstance(found, Placement)
            bad = isinstance(found, Placement) and verify(room, case.request, found, theirs)
            if bad or differs(counted, found) or differs(solved, found):
                wrong.append(seed)
        for seed in range(LARGER):
            case = random_instance(seed, most_nodes=120, most_workers=150)
            room = Free(case.forest(), case.free)
            masks = case.masks(room.forest)
            found = place(case.capacity(), case.request, masks)
            if isinstance(found, Placement):
                inexact += not found.exact
                if verify(room, case.request, found, masks):
                    wrong.append(seed)
            try:
                best = cpsat_place(solver, room, case.request, masks, limit_s=LIMIT_S)
            except SolverError:
                unproven += 1
                continue
            larger += 1
            if differs(best, found):
                wrong.append(seed)
    for seed in range(CHAINS):
        case = random_chain(seed, most_nodes=250)
        capacity = case.capacity()
        masks = case.masks(capacity.forest)
        found = place(capacity, case.request, masks)
        best_cost = chain_cost(capacity, case.request, masks)
        if (None if isinstance(found, Refusal) else replace(found.cost, widths=())) != best_cost:
            wrong.append(seed)
    if wrong:
        raise SystemExit(f"not the best, or wrong: seeds {wrong}")
    each = {method: f"{s / SMALL * 1000:.2f} ms" for method, s in spent_s.items()}
    row(
        f"{SMALL:,} random small gangs against brute force and CP-SAT ({placed:,} have a place)",
        f"all equal, {each['engine']} each",
        f"{each['brute']}, {each['program']}",
    )
    row(f"{CHAINS} of one kind of workers on up to 250 nodes, against all counts of each domain", "all equal")
    row(
        f"{LARGER} of up to 120 nodes and 150 workers, against CP-SAT",
        f"{larger} equal, {inexact} within a bound",
        f"{unproven} not solved in its time",
    )


# --- how long? ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds of processor time; one for each seed."""

    warm: list[float]
    cold: list[float]
    inexact: int

    @property
    def median(self) -> str:
        return f"{statistics.median(self.warm) * 1000:.2f} ms"

    @property
    def rest(self) -> str:
        """What no budget is set for."""
        worst_s, cold_s = quantile(self.warm, 0.99), statistics.median(self.cold)
        said = f"p99 {worst_s * 1000:.2f} ms, cold {cold_s * 1000:.2f} ms"
        return said + (f", {self.inexact} of {len(self.warm)} not exact" if self.inexact else "")


def times(
    forest: Forest, taken: str, most: int, request: Request, *, seeds: int, questions: int = 5
) -> Times:
    warm, cold, inexact = [], [], 0
    began_s = time.perf_counter()
    for seed in range(seeds):
        rng = random.Random(seed)
        capacity = worker_capacity(forest, TAKEN[taken](forest.nodes, most, rng))
        started_s = time.process_time()
        answer = place(capacity, request)
        cold.append(time.process_time() - started_s)
        each = []
        for _ in range(questions):
            node = rng.choice(forest.nodes)
            capacity.set_free(node, {WORKERS: rng.randint(0, most)})
            started_s = time.process_time()
            answer = place(capacity, request)
            each.append(time.process_time() - started_s)
        warm.append(statistics.median(each))
        if isinstance(answer, Placement):
            inexact += not answer.exact
            if seed == 0:
                check(capacity, request, answer)
        if time.perf_counter() - began_s > PATIENCE_S:
            break
    return Times(warm, cold, inexact)


def check(capacity: Capacity, request: Request, answer: Placement) -> None:
    wrong = verify(capacity, request, answer)
    if wrong:
        raise SystemExit(f"{request}: {wrong}")


def speed() -> None:
    nested = Request(Group(1, (Group(8, (Group(8, (Workers(8),), tier=1),), tier=2),)))
    pairs = Request(Group(1, (Group(16, (Workers(1, role="leader"), Workers(7)), tier=1),)))
    spread = Request(Group(1, (Workers(64),), spread=Spread(8, 1)))

    def say(what: str, found: Times, peer: str = "", budget: str = "") -> None:
        row(what, found.median, f"{found.rest}{peer}", "", budget)

    forest = Forest.of(cluster(5_000, degraded_share=0.01))
    for name in TAKEN:
        peer, budget = ("; Kueue's search 1.3 ms", "0.3 ms") if name == "at random" else ("", "")
        found = times(forest, name, 1, of(4), seeds=100)
        say(f"4 workers on 5,000 nodes, one a node, taken {name}", found, peer, budget)
    say("4 workers on 5,000 nodes, 0 to 8 free a node", times(forest, "at random", 8, of(4), seeds=50))
    forest = Forest.of(cluster(20_000, degraded_share=0.01))
    found = times(forest, "at random", 1, of(4), seeds=20)
    say("4 workers on 20,000 nodes, one a node", found, "; Kueue's search 7.5 ms")
    forest = Forest.of(cluster(100_000, degraded_share=0.01))
    wide = Forest.of(cluster(100_000, pod_leaves=128, degraded_share=0.01))
    what = "1,000 workers on 100,000 nodes"
    for most, free in ((1, "one a node"), (8, "0 to 8 free a node")):
        for name in TAKEN:
            budget = "20 ms" if most == 1 and name == "at random" else ""
            say(f"{what}, {free}, taken {name}", times(forest, name, most, of(1000), seeds=12), "", budget)
        found = times(wide, "at random", most, of(1000), seeds=12)
        say(f"{what}, {free}, pods that hold them all", found, "", "20 ms" if most == 1 else "")
    for text, request in (
        ("512 in groups of 8 within 8 of 64", nested),
        ("16 leaders with 7 each", pairs),
        ("64, 8 in a leaf at most", spread),
    ):
        say(f"{text}, on 100,000 nodes, one a node", times(forest, "at random", 1, request, seeds=8))


def updates() -> None:
    forest = Forest.of(cluster(100_000))
    for kinds in (1, 8):
        capacity = worker_capacity(forest, TAKEN["at random"](forest.nodes, 8, random.Random(0)))
        for kind in range(1, kinds + 1):
            capacity.fit(Workers(1, ((WORKERS, kind),)))
        nodes = random.Random(1).sample(forest.nodes, 2000)
        took = []
        for number, node in enumerate(nodes):
            began_s = time.perf_counter()
            capacity.set_free(node, {WORKERS: number % 9})
            took.append(time.perf_counter() - began_s)
        figure, worst = f"{statistics.median(took) * 1e6:.1f} us", f"p99 {quantile(took, 0.99) * 1e6:.1f} us"
        row(f"a node of 100,000 changes, {kinds} kinds of workers known", figure, worst, "", "100 us")


def gangs() -> None:
    """All at once: place, take, and the next."""
    forest = Forest.of(cluster(5_000, degraded_share=0.01))
    request = of(4)
    needs = list(ranks(request.gang))
    for most in (1, 8):
        took = []
        for seed in range(3):
            free = dict.fromkeys(forest.nodes, 1)
            if most > 1:
                free = dict(TAKEN["at random"](forest.nodes, most, random.Random(seed)))
            capacity = worker_capacity(forest, free)
            began_s = time.perf_counter()
            for _ in range(1000):
                answer = place(capacity, request)
                if isinstance(answer, Refusal):
                    raise SystemExit("gangs of 4: no room")
                capacity.take(answer.nodes, needs)
            took.append(time.perf_counter() - began_s)
        each_s = statistics.median(took)
        what = "one a node" if most == 1 else "0 to 8 free a node"
        figure = f"{each_s:.2f} s ({4000 / each_s:,.0f} pods a second)"
        row(f"1,000 gangs of 4 on 5,000 nodes, {what}", figure, "", "", "4 s")


def memory() -> None:
    code = "import bench_placer; bench_placer.memory_of(100_000)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    peak, now = (int(word) / 1024 for word in done.stdout.split())
    row("memory of a process with 100,000 nodes", f"{peak:.0f} MiB", f"now {now:.0f}", "", "300 MiB")


def memory_of(nodes: int) -> None:
    """In a process of its own: the highest it went with topology and all, and what it has in the end; KiB."""
    forest = Forest.of(cluster(nodes, degraded_share=0.01))
    capacity = worker_capacity(forest, TAKEN["at random"](forest.nodes, 8, random.Random(0)))
    for workers in (4, 1000):
        place(capacity, of(workers))
    status = Path("/proc/self/status").read_text()
    print(*(status.split(f"{name}:")[1].split()[0] for name in ("VmHWM", "VmRSS")))


# --- how does it grow? --------------------------------------------------------------------------------------


def growth(sizes: Sequence[int] = GROWTH, seeds: int = 7) -> dict[tuple[str, int], dict[int, float]]:
    """Seconds by how nodes are taken and how many a node takes, and by nodes; the gang is always as large."""
    found: dict[tuple[str, int], dict[int, float]] = {(name, most): {} for name in TAKEN for most in (1, 8)}
    for nodes in sizes:
        forest = Forest.of(cluster(nodes, degraded_share=0.01))
        for (name, most), line in found.items():
            line[nodes] = statistics.median(
                times(forest, name, most, of(GANG), seeds=seeds, questions=3).warm
            )
    return found


def n_log_n(nodes: int) -> float:
    return nodes * max(1, nodes.bit_length() - 1)


def growing() -> None:
    first, last = 20_000, 200_000
    allowed = n_log_n(last) / n_log_n(first)
    for (name, most), line in growth((first, last), seeds=3).items():
        ratio = line[last] / line[first]
        what = f"from {first:,} nodes to {last:,}, {'one' if most == 1 else '0 to 8'} a node, taken {name}"
        figure = f"{line[first] * 1000:.1f} to {line[last] * 1000:.1f}"
        row(f"{what}: grows by", figure, f"n log n: {allowed:.1f}", f"{ratio:.1f} x", f"{allowed:.1f} x")


def main() -> None:
    oracles()
    speed()
    updates()
    gangs()
    memory()
    growing()


if __name__ == "__main__":
    main()
