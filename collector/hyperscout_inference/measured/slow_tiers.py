"""Find domains with members that are no nearer to each other than to hosts outside.

A path that leaves a domain passes at least two more switches each way. The fastest switches take 0.1 us, so a
round trip within a domain is at least 0.4 us shorter. The gain of other domains of the tier shows how much it
should be. If even the largest gain that the measurements allow is less than half of that, traffic takes a way
that the structure does not show.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from hyperscout_topology.figures import digits, figures
from hyperscout_topology.topology import Figure

from hyperscout_inference.audit.suspicion import Suspicion
from hyperscout_inference.grouping.layer import Layer
from hyperscout_inference.latency.pairs import Floats, Longs, PairTable
from hyperscout_inference.measured.own_parts import own_parts
from hyperscout_inference.measured.pair_rows import PairRows, recent
from hyperscout_inference.measured.slow_domains import Words, of_domain, outer_layer

_MIN_GAIN_US = 0.2
_MIN_ROWS, _MIN_HOSTS = 8, 5
_PEERS = 3  # domains of a tier that are needed for a usual gain
_SURE = 3.0  # standard errors
_MEDIAN_ERROR = 1.2533 * 1.4826  # of a median, from the median distance (normal distribution)


@dataclass(frozen=True, slots=True, eq=False)
class _Gain:
    """How much shorter the round trips within a domain are. `error_us`: the standard error."""

    domain: int
    us: float
    error_us: float
    inner: Longs
    outer: Longs


def slow_tiers(
    hosts: Sequence[str], layers: Sequence[Layer], rows: PairRows, pairs: PairTable
) -> list[Suspicion]:
    """Return one suspicion per slow domain, or one for the tier if most of its domains are slow. `rows`: of
    one kind."""
    found: list[Suspicion] = []
    if not len(rows):
        return found
    raw_us, _ = recent(pairs, rows.row)
    for depth in range(outer_layer(layers), len(layers) - 1):
        gains = _gains(rows, raw_us, layers, depth, len(hosts))
        usual_us = float(np.median([gain.us for gain in gains])) if len(gains) >= _PEERS else 0.0
        least_us = max(_MIN_GAIN_US, usual_us / 2)
        slow = [gain for gain in gains if gain.us + _SURE * gain.error_us < least_us]
        words = [_words(raw_us, gain, layers[depth + 1].name) for gain in slow]
        if len(slow) > 2 and len(slow) * 2 > len(gains):
            many = f"so are {len(slow)} of {len(gains)} domains of its tier; of this one "
            said = figures(slow_domains=len(slow), domains=len(gains))
            slow, words = slow[:1], [(many + words[0][0], said + words[0][1])]
        for gain, why in zip(slow, words, strict=True):
            what = "no faster than the tier above: "
            found.append(of_domain(hosts, layers, depth, gain.domain, what, why))
    return found


def _gains(rows: PairRows, raw_us: Floats, layers: Sequence[Layer], depth: int, hosts: int) -> list[_Gain]:
    """Return the gain of each domain of the layer with enough measurements."""
    # Own parts come from ways out alone, so that a fault within a domain does not change them.
    out = np.flatnonzero(rows.layer > depth)
    own = own_parts(rows.of(out), raw_us[out], hosts).us
    us = raw_us - own[rows.a] - own[rows.b]
    column = layers[depth].domain
    outer = np.flatnonzero(rows.layer == depth + 1)
    keys = np.concatenate([column[rows.a[outer]], column[rows.b[outer]]])
    leaving = _split(keys, np.concatenate([outer, outer]))
    inner = np.flatnonzero(rows.layer == depth)
    found = []
    for domain, mine in _split(rows.domain[inner], inner).items():
        ways = leaving.get(domain, inner[:0])
        if not (_enough(rows, mine) and _enough(rows, ways)):
            continue
        medians, variance = [], 0.0
        for chosen in (mine, ways):
            median = float(np.median(us[chosen]))
            spread = float(np.median(np.abs(us[chosen] - median)))
            # Pairs of one host are not independent.
            variance += (_MEDIAN_ERROR * spread) ** 2 / min(len(chosen), _hosts(rows, chosen))
            medians.append(median)
        found.append(_Gain(domain, medians[1] - medians[0], variance**0.5, mine, ways))
    return found


def _split(keys: Longs, values: Longs) -> dict[int, Longs]:
    """Return the values of each key."""
    order = np.argsort(keys, kind="stable")
    found, start = np.unique(keys[order], return_index=True)
    return dict(zip(found.tolist(), np.split(values[order], start[1:]), strict=False))


def _hosts(rows: PairRows, chosen: Longs) -> int:
    return len(np.unique(np.concatenate([rows.a[chosen], rows.b[chosen]])))


def _enough(rows: PairRows, chosen: Longs) -> bool:
    return len(chosen) >= _MIN_ROWS and _hosts(rows, chosen) >= _MIN_HOSTS


def _words(us: Floats, gain: _Gain, above: str) -> Words:
    parts: list[str] = []
    said: tuple[Figure, ...] = ()
    for chosen, where, name in (
        (gain.inner, "within it", "inner"),
        (gain.outer, f"to others of its {above}", "outer"),
    ):
        low, median, high = np.percentile(us[chosen], (10, 50, 90)).tolist()
        between = f"{digits(low, 3)} to {digits(high, 3)} us in {len(chosen)} pairs"
        parts.append(f"{digits(median, 3)} us {where} ({between})")
        values = {"us": median, "low_us": low, "high_us": high, "pairs": len(chosen)}
        said += figures(**{f"{name}_{key}": value for key, value in values.items()})
    return " and ".join(parts), said
