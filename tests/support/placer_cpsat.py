"""The placer's problem as an integer program, for OR-tools' CP-SAT: a second oracle, of another kind.

OR-tools wants an older protobuf than the stubs do, so it lives in an environment of its own, which .ci/setup
makes from tests/oracle/requirements.txt, and is spoken to over a pipe: one process for all.
"""

import json
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from hyperscout_placer.cluster.answer import Cost, Placement, Refusal
from hyperscout_placer.cluster.capacity import Mask
from hyperscout_placer.cluster.request import Group, Request, Workers, checked

from support.apart import TESTS, environment
from support.placer_facts import NO_MASKS, Facts, Room
from support.placer_oracle import lowest_even, with_preferred

HERE = TESTS / "oracle"
LIMIT_S = 60.0
LEAST = -(2**60)  # no bound


class SolverError(Exception):
    """It gave no answer: it ended, or found none in its time."""


class Solver:
    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def solve(self, program: "Program", limit_s: float = LIMIT_S) -> dict[str, Any] | None:
        """None = it has no solution. `limit_s`: of its own time, the same on any machine."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        asked = {
            "variables": program.variables,
            "rows": program.rows,
            "objectives": program.objectives,
            "limit_s": limit_s,
        }
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise SolverError(f"the solver ended: {self._process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        if answer["status"] not in ("OPTIMAL", "INFEASIBLE"):
            raise SolverError(answer["status"])
        return answer if answer["status"] == "OPTIMAL" else None


@contextmanager
def running_solver() -> Iterator[Solver]:
    python = environment("oracle")
    if python is None:
        raise SolverError("OR-tools is not installed: run `make setup`")
    command = [python, "-I", str(HERE / "solver.py")]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield Solver(process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(timeout=70)
        assert process.stdout is not None
        process.stdout.close()


Terms = list[tuple[int, int]]


@dataclass(slots=True)
class Program:
    variables: list[tuple[int, int]] = field(default_factory=list)
    rows: list[tuple[Terms, int, int]] = field(default_factory=list)
    objectives: list[Terms] = field(default_factory=list)

    def variable(self, low: int, high: int) -> int:
        self.variables.append((low, high))
        return len(self.variables) - 1

    def row(self, terms: Terms, low: int, high: int) -> None:
        if terms:
            self.rows.append((terms, low, high))


def cpsat_place(
    solver: Solver,
    room: Room,
    request: Request,
    masks: Mapping[str, Mask] = NO_MASKS,
    *,
    limit_s: float = LIMIT_S,
) -> Placement | Refusal:
    """As `place`; ties are not broken by name. `cost` is what the solver says it is. Raises
    SolverError where it has no answer within `limit_s` (for each tier)."""
    facts = Facts(room, checked(request, len(room.forest.layers)), masks)
    answer, asked = lowest_even(
        request.gang,
        facts.highest,
        lambda gang, low, high: _lowest(solver, facts, gang, high, limit_s, low),
    )
    if answer is None:
        return Refusal(facts.highest, reason="CP-SAT proved that there is no place")
    top = answer.cost.top
    answer, relaxed = with_preferred(
        asked, answer, top, lambda gang: _lowest(solver, facts, gang, top, limit_s)
    )
    return replace(answer, relaxed=relaxed)


def _lowest(
    solver: Solver, facts: Facts, gang: Group, highest: int, limit_s: float, lowest: int = 1
) -> Placement | None:
    for top in range(lowest, max(1, highest) + 1):
        model = _Model(facts, gang, top)
        answer = solver.solve(model.program, limit_s)
        if answer is not None:
            return model.placement(answer)
    return None


class _Model:
    """A gang in one domain of tier `top`: `x`: workers of each part by node; `used`: nodes, domains."""

    def __init__(self, facts: Facts, gang: Group, top: int) -> None:
        self.facts, self.top, self.gang = facts, top, gang
        self.program = Program()
        self.parts: list[tuple[Workers, dict[int, int]]] = []  # in the order of ranks: node -> variable
        # Of each group inside: tier below the top -> whether all its copies are each in one domain of it.
        self.close: list[dict[int, int]] = []
        self._add_group(replace(gang, tier=None), (), {})
        self._add_capacity()
        self.used = self._add_used()
        self._add_objectives()

    def _add_group(
        self, part: Group | Workers, path: tuple[int, ...], known: dict[tuple[int, ...], dict[int, int]]
    ) -> list[tuple[Workers, dict[int, int]]]:
        """Returns its parts' variables, of all its copies. `known`: `close` by the path in the request."""
        program, facts = self.program, self.facts
        if isinstance(part, Workers):
            nodes = range(len(facts.forest.nodes))
            x = {n: program.variable(0, min(part.count, fit)) for n in nodes if (fit := facts.fit(part, n))}
            # One more is never there: a sum over nothing has to be a row too.
            nothing = program.variable(0, 0)
            program.row([(nothing, 1), *((v, 1) for v in x.values())], part.count, part.count)
            self.parts.append((part, x))
            return [(part, x)]
        everything = []
        before: Terms = []
        if path and path not in known:
            known[path] = {tier: program.variable(0, 1) for tier in range(self.top)}
            self.close.append(known[path])
        for _ in range(part.count):
            numbered = enumerate(part.parts)
            inside = [pair for i, inner in numbered for pair in self._add_group(inner, (*path, i), known)]
            everything += inside
            for tier, close in known.get(path, {}).items():
                self._add_close(inside, tier, close)
            if part.spread is not None:
                self._add_spread(inside, part.spread.tier, part.spread.most)
            if part.tier is not None:
                column = facts.domain_of[part.tier]
                here = {d: program.variable(0, 1) for d in sorted(set(column))}
                program.row([(v, 1) for v in here.values()], 1, 1)
                for kind, x in inside:
                    for node, v in x.items():
                        program.row([(v, 1), (here[column[node]], -kind.count)], LEAST, 0)
                # Alike, so in order.
                at = [(v, d) for d, v in here.items()]
                program.row([*at, *((v, -d) for v, d in before)] if before else [], 0, -LEAST)
                before = at
        return everything

    def _add_close(self, inside: list[tuple[Workers, dict[int, int]]], tier: int, close: int) -> None:
        """All of a copy is in one domain of the tier, if `close` is 1."""
        column = self.facts.domain_of[tier]
        here = {domain: self.program.variable(0, 1) for domain in sorted(set(column))}
        self.program.row([(v, 1) for v in here.values()], 1, 1)
        for kind, x in inside:
            for node, v in x.items():
                row = [(v, 1), (here[column[node]], -kind.count), (close, kind.count)]
                self.program.row(row, LEAST, kind.count)

    def _add_spread(self, inside: list[tuple[Workers, dict[int, int]]], tier: int, most: int) -> None:
        column = self.facts.domain_of[tier]
        for domain in set(column):
            terms = [(v, 1) for _, x in inside for node, v in x.items() if column[node] == domain]
            self.program.row(terms, 0, most)

    def _add_capacity(self) -> None:
        for node, free in enumerate(self.facts.free):
            names = sorted({name for kind, _ in self.parts for name, _ in kind.resources})
            for name in names:
                needs = [(x[node], dict(kind.resources).get(name, 0)) for kind, x in self.parts if node in x]
                self.program.row([pair for pair in needs if pair[1]], 0, free.get(name, 0))

    def _add_used(self) -> list[dict[int, int]]:
        """By tier, nodes first: domain -> whether it is used."""
        program, facts = self.program, self.facts
        used: list[dict[int, int]] = []
        for tier in range(self.top + 1):
            column = facts.domain_of[tier]
            here = {domain: program.variable(0, 1) for domain in sorted(set(column))}
            members: dict[int, Terms] = {domain: [] for domain in here}
            for kind, x in self.parts:
                for node, v in x.items():
                    program.row([(v, 1), (here[column[node]], -kind.count)], LEAST, 0)
                    members[column[node]].append((v, 1))
            for domain, terms in members.items():
                program.row([(here[domain], 1), *((v, -1) for v, _ in terms)], LEAST, 0)
            used.append(here)
        program.row([(v, 1) for v in used[self.top].values()], 1, 1)
        if self.gang.spread is not None and self.gang.spread.tier <= self.top:
            column, least = facts.domain_of[self.gang.spread.tier], self.gang.spread.least
            for domain, v in used[self.gang.spread.tier].items():
                inside = [(x[node], 1) for _, x in self.parts for node in x if column[node] == domain]
                program.row([*inside, (v, -least)], 0, -LEAST)
        if facts.on_node:
            program.row([(v, 1) for v in used[0].values()], 1, 1)
        return used

    def _add_objectives(self) -> None:
        facts, forest, add = self.facts, self.facts.forest, self.program.objectives.append
        if facts.request.packing == "fragments":
            for tier in range(self.top, -1, -1):
                add([(v, facts.fit_in[tier][domain]) for domain, v in self.used[tier].items()])
        for tier in range(self.top - 1, -1, -1):
            add([(v, 1) for v in self.used[tier].values()])
        lacking: Terms = []
        for lacks, roles in facts.lacking.values():
            prefers = [(kind, x) for kind, x in self.parts if kind.role in roles]
            here = {node: self.program.variable(0, 1) for _, x in prefers for node in x}
            for kind, x in prefers:
                for node, v in x.items():
                    self.program.row([(v, 1), (here[node], -kind.count)], LEAST, 0)
            lacking += [(v, lacks[node]) for node, v in here.items()]
        add(lacking)
        degraded = [(v, int(forest.degraded[node])) for node, v in self.used[0].items()]
        for tier in range(1, min(self.top, facts.tiers) + 1):
            worth = forest.layers[tier - 1].degraded
            degraded += [(v, int(worth[domain])) for domain, v in self.used[tier].items()]
        add(degraded)
        for tier in range(self.top, -1, -1):
            add([(v, facts.fit_in[tier][domain]) for domain, v in self.used[tier].items()])
        for tier in range(facts.tiers, self.top, -1):
            around = dict(zip(facts.domain_of[self.top], facts.domain_of[tier], strict=True))
            add([(v, facts.fit_in[tier][around[domain]]) for domain, v in self.used[self.top].items()])
        tiers = range(1, self.top + 1)
        add([(v, int(facts.is_whole(t, d))) for t in tiers for d, v in self.used[t].items()])
        for close in self.close:
            add([(v, -1) for v in close.values()])

    def placement(self, answer: dict[str, Any]) -> Placement:
        facts, values = self.facts, answer["values"]
        nodes = [node for _, x in self.parts for node, v in x.items() for _ in range(values[v])]
        fragments = facts.request.packing == "fragments"
        said = answer["objectives"][self.top + 1 if fragments else 0 :]
        *domains, used = said[: self.top]
        top, above = self.top, max(0, facts.tiers - self.top)
        left = [worth - facts.placed for worth in said[top + 2 : 2 * top + 3 + above]]
        whole, *close = said[2 * top + 3 + above :]
        widths = tuple(top + worth for worth in close)
        cut = top + 1  # of the gang's own domain and below, then above it
        lefts = tuple(left[:cut]), tuple(left[cut:])
        more = {"unpreferred": said[top], "fragments": lefts[0] if fragments else ()}
        cost = Cost(top, tuple(domains), used, said[top + 1], *lefts, whole, widths, **more)
        names = tuple(facts.forest.nodes[node] for node in nodes)
        if self.top > facts.tiers:
            return Placement(names, None, None, cost)
        domain = facts.domain_of[self.top][nodes[0]]
        return Placement(names, self.top, facts.forest.layers[self.top - 1].names[domain], cost)
