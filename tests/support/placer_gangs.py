"""Random gangs: groups in groups, leaders, several roles, spreads, all of it mixed."""

import random
from dataclasses import replace

from hyperscout_placer.cluster.request import (
    Group,
    Request,
    RequestError,
    Spread,
    Workers,
    checked,
    ends,
    size,
)

Needs = tuple[tuple[str, int], ...]


def random_gang(rng: random.Random, budget: int, tiers: int, kinds: list[Needs]) -> Group:
    """Of about `budget` workers of these kinds, that can be meant on so many tiers."""
    for _ in range(200):
        tier = rng.choice((None, *range(1, tiers + 1), *range(tiers + 1), tiers))
        depth = rng.choice((0, 0, 1, 1, 2, 3))
        within = tiers + 1 if tier is None else tier
        if budget >= 4 and within > 1 and rng.random() < 0.12:
            gang = Group(1, (_groups_spread_as_groups(rng, budget, within, kinds),), tier)
        else:
            gang = _spread_out(rng, Group(1, _parts(rng, budget, depth, within, kinds), tier), within)
        if gang.spread is None and rng.random() < 0.15:
            gang = replace(gang, even=rng.randrange(within) if within else 0)
        try:
            checked(Request(gang), tiers)
        except RequestError:
            continue
        if _spread_is_plain(gang, repeated=False):
            return gang
    return Group(1, (Workers(budget, kinds[0]),))


def _groups_spread_as_groups(rng: random.Random, budget: int, within: int, kinds: list[Needs]) -> Group:
    """Groups that stay whole, in groups of which a domain may hold but so many workers: so many of them."""
    copies, inner = rng.randint(1, 2), rng.randint(2, 3)
    each = max(1, budget // copies // inner)
    whole = Group(inner, (Workers(each, rng.choice(kinds)),), rng.randint(1, within - 1))
    spread = Spread(
        each + rng.randint(0, 2 * each), rng.randint(whole.tier or 0, within - 1), rng.random() < 0.8
    )
    return Group(copies, (whole,), rng.choice((None, within)) if within > spread.tier else None, spread)


def _parts(
    rng: random.Random, budget: int, depth: int, within: int, kinds: list[Needs]
) -> tuple[Group | Workers, ...]:
    """Workers for at most `budget`, in groups up to `depth` deep."""
    if depth == 0:
        return _workers(rng, budget, kinds)
    parts: list[Group | Workers] = []
    while budget and (not parts or rng.random() < 0.35):
        if parts and rng.random() < 0.6:  # beside groups: a leader, workers that belong to no group
            parts += _workers(rng, rng.randint(1, budget), kinds)
        else:
            most = min(within, within - rng.randint(0, 1))
            tier = rng.choice((None, *range(1, most + 1), *range(most + 1))) if most >= 0 else None
            count = min(budget, rng.choice((1, 2, 2, 2, 3, 3, 4, 6)))
            each = max(1, round(budget * rng.choice((0.5, 0.8, 1.0)) / count - 0.5))
            inner = _parts(rng, each, depth - 1, within if tier is None else tier, kinds)
            parts.append(Group(count, inner, tier))
        budget = max(0, budget - size(parts[-1]))
    rng.shuffle(parts)
    return tuple(parts)


def _workers(rng: random.Random, budget: int, kinds: list[Needs]) -> tuple[Workers, ...]:
    """All of the budget, for one role, two or three."""
    roles = rng.choice(
        (("worker",), ("worker",), ("leader", "worker"), ("ps", "worker"), ("leader", "ps", "worker"))
    )
    found = []
    for role in roles[:-1]:
        if budget > 1:
            count = 1 if role == "leader" else rng.randint(1, budget - 1)
            found.append(Workers(count, rng.choice(kinds), role))
            budget -= count
    return (*found, Workers(budget, rng.choice(kinds), roles[-1]))


def _spread_out(rng: random.Random, group: Group, within: int) -> Group:
    inside = within if group.tier is None else group.tier
    parts = tuple(_spread_out(rng, part, inside) if isinstance(part, Group) else part for part in group.parts)
    spread = None
    if inside and rng.random() < 0.25:
        one = sum(size(part) for part in parts)
        spread = Spread(rng.randint(1, max(1, one)), rng.randrange(inside), rng.random() < 0.6)
    preferred = group.preferred
    if group.count > 1 and rng.random() < 0.15:
        preferred = rng.randint(0, inside)
    return replace(group, parts=parts, spread=spread, preferred=preferred)


def _spread_is_plain(group: Group, *, repeated: bool) -> bool:
    """Not a spread on a repeated group of several kinds of workers: that is refused."""
    repeated = repeated or group.count > 1
    if group.spread is not None and repeated and len(list(ends(group))) > 1:
        return False
    return all(_spread_is_plain(part, repeated=repeated) for part in group.parts if isinstance(part, Group))
