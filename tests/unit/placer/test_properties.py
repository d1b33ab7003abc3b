"""What holds of every placement, whatever is asked: examples are random small clusters by their seed."""

import random
from dataclasses import replace

import pytest
from hyperscout_placer.cluster.answer import Placement, Refusal
from hyperscout_placer.cluster.capacity import Capacity, CapacityError
from hyperscout_placer.cluster.forest import Forest
from hyperscout_placer.cluster.request import Request, ranks
from hyperscout_placer.solve.place import place
from hyperscout_topology.topology import Topology
from hypothesis import given
from hypothesis import strategies as st
from support.placer_instances import Instance, random_instance, side_by_side
from support.placer_oracle import verify

cases = st.integers(0, 10**9).map(random_instance)
# Larger than brute force could count out.
large_cases = st.integers(0, 10**9).map(lambda seed: random_instance(seed, most_nodes=20, most_workers=20))
chance = st.integers(0, 10**9).map(random.Random)


def placed(case: Instance, capacity: Capacity | None = None) -> Placement | Refusal:
    capacity = capacity or case.capacity()
    return place(capacity, case.request, case.masks(capacity.forest))


@given(case=large_cases)
def test_a_placement_is_one(case: Instance) -> None:
    """Within capacity, masks, tiers and spreads; ranks follow the tree; the cost is what it costs."""
    capacity = case.capacity()
    answer = placed(case, capacity)
    if isinstance(answer, Placement):
        assert not verify(capacity, case.request, answer, case.masks(capacity.forest))


@given(case=large_cases)
def test_never_above_what_is_allowed(case: Instance) -> None:
    """Looked up in the description of the cluster, not in the placer's tables."""
    answer = placed(replace(case, request=replace(case.request, mode="hard")))
    if isinstance(answer, Refusal):
        return
    domains = {name for name, (_, _, nodes) in case.tree.items() if set(answer.nodes) & set(nodes)}
    tier = 1
    while len(domains) > 1:
        parents = {case.tree[name][1] for name in domains}
        assert None not in parents, "in several islands"
        domains = {name for name in parents if name is not None}
        tier += 1
    assert tier <= (case.request.gang.tier or case.tiers)
    assert (answer.tier, answer.hypernode) == (tier, domains.pop())


@given(case=large_cases)
def test_what_is_placed_can_be_taken_and_given_back(case: Instance) -> None:
    capacity = case.capacity()
    answer = placed(case, capacity)
    if isinstance(answer, Refusal):
        return
    needs = list(ranks(case.request.gang))
    before = {name: capacity.free_of(name) for name in capacity.forest.nodes}
    capacity.take(answer.nodes, needs)
    after = {name: capacity.free_of(name) for name in capacity.forest.nodes}
    for name in answer.nodes:
        assert after[name] != before[name]
    capacity.give(answer.nodes, needs)
    assert {name: capacity.free_of(name) for name in capacity.forest.nodes} == before
    assert placed(case, capacity) == answer


@given(case=large_cases, rng=chance)
@pytest.mark.slow
def test_a_capacity_that_changed_is_as_good_as_a_new_one(case: Instance, rng: random.Random) -> None:
    """Whatever is kept between questions follows what is taken, given and said anew."""
    capacity = case.capacity()
    nodes = capacity.forest.nodes
    needs = list(ranks(case.request.gang))
    held = []
    for _ in range(6):
        answer = placed(case, capacity)
        if isinstance(answer, Placement) and rng.random() < 0.7:
            capacity.take(answer.nodes, needs)
            held.append(answer)
        if held and rng.random() < 0.4:
            capacity.give(held.pop(rng.randrange(len(held))).nodes, needs)
        if rng.random() < 0.5:
            node = rng.choice(nodes)
            capacity.set_free(node, {name: amount // 2 for name, amount in capacity.free_of(node).items()})
        # A refusal says whether any node has a resource, be it free or not.
        known = {name: 0 for need in needs for name, _ in need.resources if capacity.has(name)}
        fresh = Capacity(capacity.forest, {node: known | capacity.free_of(node) for node in nodes})
        assert placed(case, capacity) == placed(case, fresh)


@given(case=large_cases, rng=chance)
def test_the_order_of_what_is_said_does_not_matter(case: Instance, rng: random.Random) -> None:
    topology = case.topology

    def mixed(values):  # type: ignore[no-untyped-def]
        return tuple(rng.sample(list(values), len(values)))

    other = Topology(
        topology.generation,
        mixed([replace(h, nodes=mixed(h.nodes), children=mixed(h.children)) for h in topology.hypernodes]),
        mixed(topology.switches),
        anomalies=mixed(topology.anomalies),
    )
    capacity = Capacity(Forest.of(other), dict(mixed(case.free.items())))
    assert placed(case, capacity) == placed(case)


@given(case=large_cases, rng=chance)
def test_names_do_not_matter_to_the_cost(case: Instance, rng: random.Random) -> None:
    names = [*case.tree, *case.free]
    new = case.renamed(dict(zip(names, rng.sample(names, len(names)), strict=True)))
    first, second = placed(case), placed(new)
    assert isinstance(first, Refusal) == isinstance(second, Refusal)
    if isinstance(first, Placement) and isinstance(second, Placement):
        assert first.exact == second.exact
        assert not first.exact or first.cost == second.cost


@given(case=large_cases, rng=chance)
def test_more_free_capacity_never_raises_the_tier(case: Instance, rng: random.Random) -> None:
    more = {
        node: {name: amount + rng.choice((0, 0, 1, 3)) for name, amount in free.items()}
        for node, free in case.free.items()
    }
    answer, roomier = placed(case), placed(replace(case, free=more))
    if isinstance(answer, Placement):
        assert isinstance(roomier, Placement)
        assert roomier.cost.top <= answer.cost.top


@given(case=large_cases)
def test_soft_is_hard_where_hard_has_a_place(case: Instance) -> None:
    hard = placed(replace(case, request=replace(case.request, mode="hard")))
    soft = placed(replace(case, request=replace(case.request, mode="soft")))
    if isinstance(hard, Placement):
        assert soft == hard
    elif isinstance(soft, Placement):
        assert soft.cost.top > hard.tier


@given(case=large_cases, rng=chance)
@pytest.mark.slow
def test_many_islands_are_as_good_as_the_best_of_them(case: Instance, rng: random.Random) -> None:
    """Some hundred nodes, where what a domain could cost at best decides which ones are looked at."""
    hard = replace(case, request=replace(case.request, mode="hard", avoid=frozenset()))
    nodes, names = list(case.free), [*case.free, *case.tree]
    alone = []
    for _ in range(rng.choice((3, 10, 30))):
        # What is free moves about, so that islands are alike in sum and differ in shape.
        some = rng.sample(nodes, rng.randint(0, len(nodes)))
        moved = dict(zip(some, (case.free[node] for node in rng.sample(some, len(some))), strict=True))
        degraded = {rng.choice(names): 1} if rng.random() < 0.5 else {}
        alone.append(replace(hard, free={**case.free, **moved}, degraded={**case.degraded, **degraded}))
    answers = [placed(one) for one in alone]
    costs = [answer.cost for answer in answers if isinstance(answer, Placement) and not answer.relaxed]
    together = placed(side_by_side(alone))
    if all(isinstance(answer, Refusal) for answer in answers):
        assert isinstance(together, Refusal)
    elif costs and isinstance(together, Placement) and together.exact:
        top = min(answer.cost.top for answer in answers if isinstance(answer, Placement))
        best = min(costs)
        assert together.cost == best if best.top == top else together.cost.top == top
    else:
        assert isinstance(together, Placement)


@given(case=large_cases)
def test_what_is_avoided_can_be_avoided_as_well_by_having_nothing_there(case: Instance) -> None:
    below: set[str] = set()
    for name, (_, _, nodes) in case.tree.items():
        above: str | None = name
        while above is not None:
            below |= set(nodes) if above in case.request.avoid else set()
            above = case.tree[above][1]
    gone = case.request.avoid | below
    empty = {node: {} if node in gone else free for node, free in case.free.items()}
    request = replace(case.request, avoid=frozenset())
    answer, other = placed(case), placed(replace(case, free=empty, request=request))
    # A refusal says which of the two it was.
    assert answer == other or (isinstance(answer, Refusal) and isinstance(other, Refusal))


@given(case=cases, rng=chance)
def test_one_worker_too_many_is_never_taken(case: Instance, rng: random.Random) -> None:
    """All or nothing: a gang that does not fit changes nothing."""
    capacity = case.capacity()
    answer = placed(case, capacity)
    if isinstance(answer, Refusal):
        return
    needs = list(ranks(case.request.gang))
    node = rng.choice(answer.nodes)
    name, _ = next((name, amount) for name, amount in needs[answer.nodes.index(node)].resources if amount)
    wanted = sum(
        dict(need.resources).get(name, 0) for at, need in zip(answer.nodes, needs, strict=True) if at == node
    )
    capacity.set_free(node, capacity.free_of(node) | {name: wanted - 1})
    before = {name: capacity.free_of(name) for name in capacity.forest.nodes}
    with pytest.raises(CapacityError, match=node):
        capacity.take(answer.nodes, needs)
    assert {name: capacity.free_of(name) for name in capacity.forest.nodes} == before
    other = placed(case, capacity)
    assert (
        isinstance(other, Refusal)
        or other.nodes.count(node) != answer.nodes.count(node)
        or (other.nodes != answer.nodes)
    )


def test_a_request_is_not_changed_by_asking() -> None:
    case = random_instance(3)
    request = Request(case.request.gang, case.request.mode, case.request.avoid, case.request.use_down)
    placed(case)
    assert request == case.request
