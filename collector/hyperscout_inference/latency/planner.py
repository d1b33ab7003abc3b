"""Choose the pairs to measure next, to learn a hierarchy from latency or to verify a known one.

The planner keeps no state. The measurements so far, from any source, determine what is missing:

- *landmarks*: all hosts measure the same few hosts, which shows how many tiers there are;
- *search*: a host that is alone in the domain that it is known to be in measures one member of each of the
  domains within, and the first of the other lone hosts, so that they can form new domains;
- *company*: a host with few values of its own innermost domain measures more of its members;
- *verification*, without end: neighbours in each innermost domain, and representatives of sibling domains;
  for a learnt hierarchy, every other pair that it was learnt from, too.

A pair that cannot be measured is planned again. It does not block others, because `seed` selects from the
missing pairs.
"""

from collections.abc import Sequence
from hashlib import blake2b
from typing import Final, NamedTuple

import numpy as np

from hyperscout_inference.latency.edges import Edges, Flags, by_row
from hyperscout_inference.latency.measured import Known, keys_of, known_of, sizes_of
from hyperscout_inference.latency.offsets import refit
from hyperscout_inference.latency.pairs import Floats, Longs, PairTable
from hyperscout_inference.latency.verify import verification

SMALL: Final = 32  # up to this many hosts measure all pairs
MISSABLE: Final = 0.25  # share of the landmarks that a host may miss
STEP: Final = 2  # pairs of a searching host at a time: a result may end the search
MAX_STEP: Final = 6  # the same if the limit leaves space for more: each round costs an inference
FOUNDERS: Final = 3  # hosts of a domain at a time that may form new domains in it
NEAREST: Final = 6  # nearest domains that are measured again before a host counts as alone
ASKED: Final = 3  # members to measure in each of those
LONELY: Final = 3  # domains of up to this many hosts still search: they may have been joined by mistake
UNUSUAL: Final = 0.34  # of the usual size: a smaller domain may be a fragment of another, and searches too
COMPANY: Final = 5  # values of its own innermost domain that a host needs
MAX_CHILDREN: Final = 512  # domains of one domain that a host measures
VERIFYING: Final = 0.2  # share of the pairs for verification at least, where some are due


class Wish(NamedTuple):
    """Two nodes that should measure each other, by name, a < b."""

    a: str
    b: str


def plan(
    nodes: Sequence[str],
    pairs: PairTable,
    domains: Sequence[Longs],
    *,
    wired: bool,
    now_ns: int,
    reverify_ns: int,
    limit: int,
    seed: int,
) -> list[Wish]:
    """Return the next pairs, the most informative first, at most `limit`.

    `nodes`: those that can be measured now, sorted. `domains`: the hierarchy as known so far; for each tier,
    innermost first, (nodes,) the domain of each, -1 = none. `wired`: the hierarchy comes from wires and only
    needs verification. Pairs measured within the last `reverify_ns` are not verified again. `seed` spreads
    the choice: give another one at each call.
    """
    if len(nodes) < 2 or limit < 1:
        return []
    known = known_of(nodes, pairs)
    random = np.random.default_rng(seed)
    rank = _ranks(nodes)
    domains = [_numbered(np.asarray(labels, np.int64)) for labels in domains]
    learn = np.zeros(0, np.int64) if wired else _learning(known, domains, rank, random, limit)
    check = verification(known, domains, rank, random, now_ns - reverify_ns, never=wired)
    share = min(len(check), max(limit - len(learn), int(VERIFYING * limit)))
    keys = np.concatenate((learn[: limit - share], check[:share]))
    _, first = np.unique(keys, return_index=True)
    return [Wish(nodes[key // len(nodes)], nodes[key % len(nodes)]) for key in keys[np.sort(first)].tolist()]


def landmark_count(nodes: int) -> int:
    """Return the number of landmarks: enough that each of a few large domains has some."""
    return min(nodes, 4 + 2 * int(np.ceil(np.log2(max(2, nodes)))))


def _numbered(labels: Longs) -> Longs:
    """Renumber the domains from 0 without gaps; -1 stays."""
    return np.where(labels >= 0, np.unique(np.maximum(labels, 0), return_inverse=True)[1], -1)


def _ranks(nodes: Sequence[str]) -> Longs:
    """(nodes,) a fixed order that is independent of place; a node that joins or leaves does not reorder
    others."""
    digests = [blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest() for name in nodes]
    rank = np.empty(len(nodes), np.int64)
    rank[np.argsort(np.array(digests, dtype="S8"), kind="stable")] = np.arange(len(nodes))
    return rank


def _learning(
    known: Known, domains: Sequence[Longs], rank: Longs, random: np.random.Generator, limit: int
) -> Longs:
    """Return keys of pairs that add information."""
    nodes = known.nodes
    order = np.argsort(rank)
    count = nodes if nodes <= SMALL else landmark_count(nodes)
    marks = order[:count]
    i, j = np.triu_indices(count, 1)
    among = marks[i], marks[j]
    among_open = ~known.has(*among)
    first = _shuffled(keys_of(*among, nodes)[among_open], random)
    others = np.setdiff1d(np.arange(nodes), marks)
    host, mark = np.repeat(others, count), np.tile(marks, len(others))
    missing = ~known.has(host, mark)
    short = np.bincount(host[missing], minlength=nodes) > MISSABLE * count
    few = np.bincount(i[among_open], minlength=count) + np.bincount(j[among_open], minlength=count)
    short[marks] = few > MISSABLE * (count - 1)
    wanted = missing & short[host]
    ready = ~short
    if nodes > SMALL and not short[marks].any():
        first = first[:0]
    after = [keys_of(host[wanted], mark[wanted], nodes)]
    if nodes > SMALL and len(domains):
        step = max(STEP, min(MAX_STEP, limit // (3 * nodes)))
        after.append(_search(known, domains, rank, ready, random, step))
        after.append(_company(known, domains[0], rank, ready, random))
    return np.concatenate((first, _shuffled(np.concatenate(after), random)))


def _shuffled(keys: Longs, random: np.random.Generator) -> Longs:
    return random.permutation(keys)


def _search(
    known: Known, domains: Sequence[Longs], rank: Longs, ready: Flags, random: np.random.Generator, step: int
) -> Longs:
    """Return pairs between hosts that are alone in a domain and the domains within it."""
    result = [np.zeros(0, np.int64)]
    host, peer = known.ends
    rest_us = np.tile(_rest_us(known, domains), 2)
    for tier in range(len(domains) - 1, -1, -1):
        outer = domains[tier]
        inner = domains[tier - 1] if tier else np.where(outer >= 0, np.arange(known.nodes), -1)
        if not tier:
            break
        size = np.where(outer >= 0, sizes_of(inner), 0)
        some = size > 0
        usual = np.nan_to_num(by_row(outer[some], size[some].astype(float), known.nodes, 0.5))
        few = (size <= LONELY) | (size < UNUSUAL * usual[outer])
        alone = (size > 0) & few & (sizes_of(outer) > size) & ready
        for domain in np.unique(outer[alone]).tolist():
            members = np.flatnonzero((outer == domain) & (inner >= 0))
            seekers = members[alone[members]]
            result.append(
                _questions(known.nodes, seekers, members, inner, rank, host, peer, rest_us, random, step)
            )
        result.append(_strangers(known, outer, inner, rank, random))
    return np.concatenate(result)


def _rest_us(known: Known, domains: Sequence[Longs]) -> Floats:
    """(pairs,) round trips without the hosts' own parts, as far as the domains determine these."""
    a, b = known.key // known.nodes, known.key % known.nodes
    tier = np.full(len(known.key), len(domains))
    for number in range(len(domains) - 1, -1, -1):
        tier[(domains[number][a] == domains[number][b]) & (domains[number][a] >= 0)] = number
    edges = Edges(known.nodes, a, b, known.rtt_us)
    offset_us, _ = refit(edges, tier, len(domains) + 1, np.zeros(known.nodes), rounds=6)
    return edges.rest_us(offset_us)


def _questions(
    nodes: int,
    seekers: Longs,
    members: Longs,
    inner: Longs,
    rank: Longs,
    host: Longs,
    peer: Longs,
    rest_us: Floats,
    random: np.random.Generator,
    step: int,
) -> Longs:
    """Return the next few pairs of each seeker: one member of each domain, then more of the nearest ones."""
    labels, size = np.unique(inner[members], return_counts=True)
    lowest = np.full(len(labels), np.iinfo(np.int64).max)
    column_of = np.full(int(labels.max()) + 1, -1)
    column_of[labels] = np.arange(len(labels))
    np.minimum.at(lowest, column_of[inner[members]], rank[members])
    order = np.lexsort((lowest, -size))
    company = int(np.count_nonzero(size > LONELY))
    order = order[: min(company + FOUNDERS, MAX_CHILDREN)]
    column_of[:] = -1
    column_of[labels[order]] = np.arange(len(order))
    row_of = np.full(nodes, -1)
    row_of[seekers] = np.arange(len(seekers))
    inside = np.zeros(nodes, bool)
    inside[members] = True
    use = (row_of[host] >= 0) & inside[peer]
    row, column = row_of[host[use]], column_of[inner[peer[use]]]
    use_column = column >= 0
    row, column, value = row[use_column], column[use_column], rest_us[use][use_column]
    asked = np.zeros((len(seekers), len(order)), np.int32)
    np.add.at(asked, (row, column), 1)
    nearest_us = np.full(asked.shape, np.inf)
    np.minimum.at(nearest_us, (row, column), value)
    own = column_of[inner[seekers]]
    nearest_us[np.flatnonzero(own >= 0), own[own >= 0]] = np.inf
    place = np.argsort(np.argsort(nearest_us, axis=1, kind="stable"), axis=1, kind="stable")
    # The domain of the previous or next node in the list is tried first. This is a hint, not evidence.
    urgency = np.broadcast_to(np.arange(len(order), dtype=float), asked.shape).copy()
    for side in (-1, 1):
        beside = np.clip(seekers + side, 0, nodes - 1)
        hint = np.where(inside[beside], column_of[np.where(inside[beside], inner[beside], labels[0])], -1)
        urgency[np.flatnonzero(hint >= 0), hint[hint >= 0]] = -1.0
    again = (place < NEAREST) & (asked < np.minimum(ASKED, size[order])) & (asked > 0)
    urgency = np.where(asked == 0, urgency, np.where(again, 1e6 + place, np.inf))
    urgency[np.flatnonzero(own >= 0), own[own >= 0]] = np.inf
    chosen = np.argsort(urgency, axis=1, kind="stable")[:, :step]
    rows = np.repeat(np.arange(len(seekers)), chosen.shape[1])
    columns = chosen.ravel()
    wanted = np.isfinite(urgency[rows, columns])
    rows, columns = rows[wanted], columns[wanted]
    # The first few members of each domain by rank; the random generator selects one of them.
    by_rank = members[np.lexsort((rank[members], column_of[inner[members]]))]
    sorted_column = column_of[inner[by_rank]]
    first = np.searchsorted(sorted_column, columns)
    spread = np.minimum(size[order][columns], ASKED + 1)
    answer = by_rank[first + random.integers(0, np.maximum(1, spread))]
    keys = keys_of(seekers[rows], answer, nodes)
    return np.asarray(keys[seekers[rows] != answer])


def _strangers(known: Known, outer: Longs, inner: Longs, rank: Longs, random: np.random.Generator) -> Longs:
    """Return one pair for each two sibling domains between which nothing was measured."""
    a, b = known.key // known.nodes, known.key % known.nodes
    count = int(inner.max()) + 1 if len(inner) else 0
    met = np.unique(keys_of(inner[a], inner[b], count)[(inner[a] >= 0) & (inner[b] >= 0)])
    real = (sizes_of(inner) > 1) & (outer >= 0)
    hosts = np.flatnonzero(real)[np.argsort(rank[real], kind="stable")]
    _, begin = np.unique(inner[hosts], return_index=True)
    reps = hosts[begin]  # the first member of each by rank
    result = [np.zeros(0, np.int64)]
    for domain in np.unique(outer[reps]).tolist():
        side = reps[outer[reps] == domain]
        if len(side) > MAX_CHILDREN:
            side = random.choice(side, MAX_CHILDREN, replace=False)
        i, j = np.triu_indices(len(side), 1)
        keys = keys_of(inner[side[i]], inner[side[j]], count)
        new = ~np.isin(keys, met)
        result.append(keys_of(side[i[new]], side[j[new]], known.nodes))
    return np.concatenate(result)


def _company(known: Known, labels: Longs, rank: Longs, ready: Flags, random: np.random.Generator) -> Longs:
    """Return pairs within the innermost domain of hosts that have few values there."""
    host, peer = known.ends
    own = (labels[host] == labels[peer]) & (labels[host] >= 0)
    have = np.bincount(host[own], minlength=known.nodes)
    size = sizes_of(labels)
    lack = np.minimum(COMPANY, size - 1) - have
    lacking = np.flatnonzero((lack > 0) & ready & (size > 1))
    order = np.lexsort((rank, labels))
    begin = np.searchsorted(labels[order], labels[lacking])
    at = np.empty(known.nodes, np.int64)
    at[order] = np.arange(known.nodes)
    keys = []
    for number in range(COMPANY):
        some = lacking[lack[lacking] > number]
        if not len(some):
            break
        reach = size[some] - 1
        step = 1 + (random.integers(0, 1 << 30, len(some)) + number) % reach
        there = order[
            begin[np.isin(lacking, some)] + (at[some] - begin[np.isin(lacking, some)] + step) % size[some]
        ]
        new = ~known.has(some, there)
        keys.append(keys_of(some[new], there[new], known.nodes))
    return np.concatenate([np.zeros(0, np.int64), *keys])
