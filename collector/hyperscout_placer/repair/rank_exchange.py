"""Exchanges equal ranks of a moved gang so that as many of them as possible stay on their nodes.

Which copy of a group is which does not change the cost, but a rank that stays need not stop.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence

from hyperscout_placer.cluster.request import Group, Workers, size


def kept(gang: Group, before: Sequence[int], now: Sequence[int]) -> tuple[int, ...]:
    """`now` with equal copies and ranks exchanged, so that many ranks are where they were `before`: (ranks,).

    Both are nodes by rank. Copies are matched greedily, those with the most common nodes first.
    """
    found = list(now)

    def match(part: Group | Workers, old: int, new: int) -> None:
        """`old`: first rank of all copies before. `new`: first rank of the copies that take their place."""
        if isinstance(part, Workers):
            stop = part.count
            found[old : old + stop] = _ranks(before[old : old + stop], now[new : new + stop])
            return
        one = size(part) // part.count
        for mine, other in enumerate(_copies(before, now, old, new, one, part.count)):
            at = 0
            for inner in part.parts:
                match(inner, old + mine * one + at, new + other * one + at)
                at += size(inner)

    match(gang, 0, 0)
    return tuple(found)


def _ranks(before: Sequence[int], now: Sequence[int]) -> list[int]:
    left = Counter(now)
    stays = []
    for node in before:
        stays.append(left[node] > 0)
        left[node] -= stays[-1]
    rest = iter(sorted(left.elements()))
    return [node if stay else next(rest) for node, stay in zip(before, stays, strict=True)]


def _copies(before: Sequence[int], now: Sequence[int], old: int, new: int, one: int, count: int) -> list[int]:
    """For each old copy, the index of the new copy that takes its place."""
    if count == 1:
        return [0]
    there: dict[int, Counter[int]] = defaultdict(Counter)  # node -> new copies with ranks on it
    for i in range(count):
        for node in now[new + i * one : new + (i + 1) * one]:
            there[node][i] += 1
    shared = []
    for i in range(count):
        mine = Counter(before[old + i * one : old + (i + 1) * one])
        common: Counter[int] = Counter()
        for node, n in mine.items():
            for other, m in there[node].items() if node in there else ():
                common[other] += min(n, m)
        shared += [(-n, i, other) for other, n in common.items()]
    chosen: dict[int, int] = {}
    taken: set[int] = set()
    for _, i, other in sorted(shared):
        if i not in chosen and other not in taken:
            chosen[i] = other
            taken.add(other)
    rest = iter(i for i in range(count) if i not in taken)
    return [chosen[i] if i in chosen else next(rest) for i in range(count)]
