"""Bound the findings about contradictory cables of one fabric, or of one switch or host that reports them.

One reporter may show any number of cables that contradict each other or those of others. A finding for each
of them would cost more than the fabric itself, and would hide all other findings.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from dataclasses import replace
from typing import Final, TypeVar

from hyperscout_formats.text.counts import count
from hyperscout_topology.topology import Anomaly, say

_T = TypeVar("_T")
MOST: Final = 100  # findings of one kind in a group; one switch with all its ports has fewer


def few_findings(
    cables: Iterable[_T], group: Callable[[_T], Hashable], finding: Callable[[_T], Anomaly], wrong: str
) -> list[Anomaly]:
    """Return one finding per cable: the first `MOST` of each group, and one with the number of the others.

    `group`: the fabric of a cable, or the device that reports it. `finding`: makes the finding
    of a cable. `wrong`: the text behind "3 more cables". The order of `cables` decides which ones are named.
    """
    found: list[Anomaly] = []
    seen: Counter[Hashable] = Counter()
    first: dict[Hashable, _T] = {}  # by group: the first cable that is not named
    for i in cables:
        of = group(i)
        seen[of] += 1
        if seen[of] <= MOST:
            found.append(finding(i))
        else:
            first.setdefault(of, i)
    for of, i in first.items():
        one = finding(i)
        text = f"{count(seen[of] - MOST, 'more cable')} {wrong}, the first at {say(one.subject)}"
        found.append(replace(one, peer=None, message=text))
    return found
