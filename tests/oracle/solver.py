"""Solves integer programs with OR-tools' CP-SAT, in an environment of its own: a line of JSON in, one out.

in   {"variables": [[low, high], ...], "rows": [[[[variable, factor], ...], low, high], ...],
      "objectives": [[[variable, factor], ...], ...],       to be made small, the first one first
          "limit_s": seconds of its own counting}
out  {"status": "OPTIMAL", "values": [...], "objectives": [...]}  or  {"status": "INFEASIBLE"}
"""

import json
import sys
from typing import Any

from ortools.sat.python import cp_model

MOST = 2**50  # of a weighted sum: far from where 64 bits end

Terms = list[tuple[int, int]]


def span(terms: Terms, variables: list[tuple[int, int]]) -> tuple[int, int]:
    """The least and the most that a sum can be."""
    ends = [(factor * variables[v][0], factor * variables[v][1]) for v, factor in terms]
    return sum(min(pair) for pair in ends), sum(max(pair) for pair in ends)


def weighted(objectives: list[Terms], variables: list[tuple[int, int]]) -> tuple[Terms, int]:
    """As many objectives as fit into one sum, in which no other outweighs one before it; and how many."""
    factors: dict[int, int] = {}
    taken, room = 0, 1
    for terms in objectives:
        low, high = span(terms, variables)
        room *= high - low + 1
        if taken and room > MOST:
            break
        taken += 1
        factors = {v: factor * (high - low + 1) for v, factor in factors.items()}
        for v, factor in terms:
            factors[v] = factors.get(v, 0) + factor
    return list(factors.items()), taken


def solve(asked: dict[str, Any]) -> dict[str, Any]:
    variables = asked["variables"]
    model = cp_model.CpModel()
    made = [model.new_int_var(low, high, "") for low, high in variables]

    def total(terms: Terms) -> Any:
        return cp_model.LinearExpr.weighted_sum([made[v] for v, _ in terms], [factor for _, factor in terms])

    for terms, low, high in asked["rows"]:
        model.add_linear_constraint(total(terms), low, high)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 1
    solver.parameters.max_deterministic_time = asked["limit_s"]
    objectives = asked["objectives"]
    while True:
        terms, count = weighted(objectives, variables)
        model.minimize(total(terms))
        status = solver.status_name(solver.solve(model))
        if status != "OPTIMAL":
            return {"status": status}
        done, objectives = objectives[:count], objectives[count:]
        if not objectives:
            break
        for terms in done:
            best = solver.value(total(terms))
            model.add_linear_constraint(total(terms), best, best)
    return {
        "status": status,
        "values": [solver.value(v) for v in made],
        "objectives": [solver.value(total(terms)) for terms in asked["objectives"]],
    }


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(solve(json.loads(line))), flush=True)
