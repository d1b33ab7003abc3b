"""What the solver leaves out before it makes tables: bounds are never above what is possible."""

import random
from collections.abc import Sequence
from itertools import product

import numpy as np
import pytest
from hyperscout_placer.cluster.answer import Placement
from hyperscout_placer.cluster.forest import Longs
from hyperscout_placer.cluster.request import WORKERS, Group, Request, Workers
from hyperscout_placer.cluster.units import units_of
from hyperscout_placer.solve import place as place_module
from hyperscout_placer.solve import search
from hyperscout_placer.solve.chain import Below, Chain, levels_of
from hyperscout_placer.solve.costs import less
from hyperscout_placer.solve.equal_domains import Alike
from hyperscout_placer.solve.place import place
from hyperscout_placer.solve.sifting import Window, sifted
from hyperscout_placer.solve.tables import Work
from support.placer_chain import random_chain
from support.placer_instances import Instance


def test_no_domain_costs_less_than_its_bound() -> None:
    compared = 0
    for seed in range(60):
        case = random_chain(seed)
        free = place_module._free(case.capacity(), case.request, {})
        for tier in range(1, free.forest.top + 2):
            units = units_of(case.request.gang, tier)
            levels = levels_of(units)
            assert levels is not None
            chain = Chain(free, Alike(free), units, levels, Work())
            for domain in np.flatnonzero(chain.might()).tolist():
                found = chain.least(domain, None)
                assert found is not None
                cost = search._whole_cost(free, units, domain, found[0])
                assert search._bound_of(free, units, chain.sizes, domain) <= cost, (case, tier, domain)
                compared += 1
    assert compared > 100


def test_no_child_costs_less_than_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = 0
    lower_costs = Below._lower_costs

    def checked(self: Below, tier: int, windows: Sequence[Window], units: Longs) -> Longs:
        nonlocal compared
        found = lower_costs(self, tier, windows, units)
        one_step = self._have_one_step(tier, np.array([window.index for window in windows]))
        for i, window in enumerate(windows):
            bound = found[:, i, window.least - units[0] : window.most - units[0] + 1]
            cost = self._table(tier, window.index, window.most)[:, window.least :]
            assert not less(cost, bound).any()
            assert not one_step[i] or np.array_equal(cost, bound)
            compared += 1
        return found

    monkeypatch.setattr(Below, "_lower_costs", checked)
    for seed in range(100):
        case = random_chain(seed)
        place(case.capacity(), case.request)
    assert compared > 100


@pytest.mark.parametrize("seed", range(60))
def test_sifting_keeps_each_choice_of_the_fewest_children_and_grandchildren(seed: int) -> None:
    rng = random.Random(seed)
    ratio = rng.choice((1, 1, 2))
    sizes = [[rng.randint(0, 4) for _ in range(rng.randint(1, 4))] for _ in range(rng.randint(2, 5))]
    fits = [sum(each) // ratio for each in sizes]
    if not sum(fits):
        return
    wanted = rng.randint(1, sum(fits))
    held = [
        [sum(sorted(each, reverse=True)[:n]) // ratio for n in range(len(each) + 1)] for each in sizes
    ]  # by the number of own children
    choices = [
        (sum(n > 0 for n in own), sum(own), own)
        for own in product(*(range(len(each) + 1) for each in sizes))
        if sum(units[n] for units, n in zip(held, own, strict=True)) >= wanted
    ]
    children, grandchildren, _ = min(choices)
    stop = np.cumsum([len(each) for each in sizes])
    inside = np.array([n for each in sizes for n in each])
    windows, used, least, enough = sifted(
        0, np.array(fits), np.append(0, stop[:-1]), stop, inside, ratio, wanted
    )
    assert used == children
    assert least <= grandchildren <= enough
    there = {window.index: window for window in windows}
    for own in [own for *counts, own in choices if counts == [children, grandchildren]]:
        units = [each[n] for each, n in zip(held, own, strict=True)]
        for i in [i for i, n in enumerate(own) if n]:
            assert there[i].most >= min(units[i], wanted)
            assert there[i].least <= max(1, wanted - sum(units) + units[i])


@pytest.mark.parametrize(
    ("workers", "leaves", "degraded"),
    [pytest.param(6, 2, 0, id="without"), pytest.param(7, 2, 1, id="rather than one leaf more")],
)
def test_degraded_links_are_used_rather_than_more_leaves(workers: int, leaves: int, degraded: int) -> None:
    nodes = {"leaf-a": ("a1", "a2", "a3", "a4"), "leaf-b": ("b1", "b2", "b3"), "leaf-c": ("c1", "c2", "c3")}
    tree: dict[str, tuple[int, str | None, tuple[str, ...]]] = {"pod": (2, None, ())}
    tree |= {leaf: (1, "pod", inside) for leaf, inside in nodes.items()}
    free = {node: {WORKERS: 1} for inside in nodes.values() for node in inside}
    case = Instance(0, tree, free, Request(Group(1, (Workers(workers),))), {"a2": 1})
    answer = place(case.capacity(), case.request)
    assert isinstance(answer, Placement)
    assert (answer.cost.domains, answer.cost.degraded) == ((leaves,), degraded)
