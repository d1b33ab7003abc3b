"""Bound the findings about contradictory cables of one fabric.

One sweep may show any number of cables that contradict each other. A finding for each of them would cost more
than the fabric itself, and would hide all other findings.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final

from hyperscout_formats.text.counts import count
from hyperscout_topology.topology import Anomaly, say

MOST: Final = 100  # findings of one kind in a fabric; one switch with all its ports has fewer


def few_findings(
    cables: Iterable[int], fabric: Sequence[int], finding: Callable[[int], Anomaly], wrong: str
) -> list[Anomaly]:
    """Return one finding per cable: the first `MOST` of each fabric, and one with the number of the others.

    `fabric`: the fabric of each cable. `finding`: makes the finding of a cable. `wrong`: what is wrong with
    these cables, as the predicate of a sentence. The order of `cables` decides which ones are named.
    """
    found: list[Anomaly] = []
    seen: Counter[int] = Counter()
    first: dict[int, int] = {}  # by fabric: the first cable that is not named
    for i in cables:
        seen[fabric[i]] += 1
        if seen[fabric[i]] <= MOST:
            found.append(finding(i))
        else:
            first.setdefault(fabric[i], i)
    for of, i in first.items():
        one = finding(i)
        text = (
            f"{count(seen[of] - MOST, 'more cable')} of this fabric {wrong}, the first at {say(one.subject)}"
        )
        found.append(replace(one, peer=None, message=text))
    return found
