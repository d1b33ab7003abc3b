"""Find domains of which most inner ways or most ways out are slow: a switch, or its links to the rest.

They come before single hosts, because a host with most of its ways through a slow switch appears slow itself.
"""

from collections.abc import Sequence

import numpy as np
from hyperscout_formats.facts.accelerators import KINDS
from hyperscout_topology.figures import digits, figures
from hyperscout_topology.topology import Endpoint, Figure, say

from hyperscout_inference.audit.suspicion import Suspicion
from hyperscout_inference.grouping.layer import Layer
from hyperscout_inference.latency.pairs import Floats, Longs, PairTable
from hyperscout_inference.measured.own_parts import groups_of
from hyperscout_inference.measured.pair_rows import Bools, PairRows, history_of, medians, recent

SOURCE = ("latency",)
SURE = 0.8  # confidence where many measurements agree

Words = tuple[str, tuple[Figure, ...]]  # a part of a message, and the figures in it

# A way must be longer than its tier's median by both: own parts of hosts add less on average.
_MARGIN_US, _MARGIN_SHARE = 3.0, 0.3
_MIN_SLOW_SHARE = 0.75  # share of the rows that must be slow
_MIN_ROWS, _MIN_HOSTS = 8, 3


def outer_layer(layers: Sequence[Layer]) -> int:
    """Return the lowest layer that the network forms: pings do not use accelerator fabrics."""
    return 1 if len(layers) > 1 and layers[0].name in KINDS and not any(layers[0].switches) else 0


def domain_end(hosts: Sequence[str], layers: Sequence[Layer], depth: int, domain: int) -> Endpoint:
    """Return a domain as the subject of an anomaly, named by its first host: it has no name yet."""
    first = min(hosts[h] for h in np.flatnonzero(layers[depth].domain == domain).tolist())
    name = f"{layers[depth].name} of {first}"
    return Endpoint(f"domain/{name}", name)


def of_domain(
    hosts: Sequence[str], layers: Sequence[Layer], depth: int, domain: int, what: str, words: Words
) -> Suspicion:
    """Return a suspicion of a whole domain. `what` comes before the words and has no figures."""
    subject = domain_end(hosts, layers, depth, domain)
    text, said = words
    return Suspicion(
        "SlowLink", subject, None, depth, domain, SURE, f"{subject.name}: {what}{text}", SOURCE, figures=said
    )


def of_host(layers: Sequence[Layer], subject: Endpoint, host: int, words: Words) -> Suspicion:
    """Return a suspicion of one host or port. Its link belongs to the lowest domain that the network
    forms."""
    depth = outer_layer(layers)
    domain = int(layers[depth].domain[host])
    text, said = words
    return Suspicion(
        "SlowLink", subject, None, depth, domain, SURE, f"{say(subject)}: {text}", SOURCE, figures=said
    )


def slow_domains(
    hosts: Sequence[str], layers: Sequence[Layer], rows: PairRows, pairs: PairTable
) -> tuple[list[Suspicion], Bools]:
    """Return the slow domains, and (rows,) the rows that they do not explain."""
    found: list[Suspicion] = []
    good = np.ones(len(rows), np.bool_)
    if not len(rows):
        return found, good
    us, _ = recent(pairs, rows.row)
    group = groups_of(rows)
    usual, size = medians(group, us, int(group.max()) + 1)
    way_us = usual[group]
    slow = (us - way_us > np.maximum(_MARGIN_US, _MARGIN_SHARE * way_us)) & (size[group] >= 2 * _MIN_ROWS)
    for depth in range(len(layers) - 1, outer_layer(layers) - 1, -1):
        column = layers[depth].domain
        a, b = column[rows.a], column[rows.b]
        out = (a != b) & (a >= 0) & (b >= 0)
        inner = rows.layer == depth
        while (slow & good).any():
            ways = _guilty(rows, (a, b), out & good, slow, layers[depth].count)
            within = _guilty(rows, (a, a), inner & good, slow, layers[depth].count)
            # Slow within and out: the cause is the hosts themselves or a lower domain.
            both = {d for d, _, _ in ways} & {d for d, _, _ in within}
            candidates = [(x, "ways out") for x in ways if x[0] not in both]
            candidates += [(x, "ways within it") for x in within if x[0] not in both]
            if not candidates:
                break
            (domain, chosen, share), what = max(candidates, key=lambda x: (x[0][2], len(x[0][1])))
            good[chosen] = False
            words = _words(us, way_us, chosen, rows, pairs, share)
            found.append(of_domain(hosts, layers, depth, domain, f"{what}: ", words))
    return found, good


def _guilty(
    rows: PairRows, ends: tuple[Longs, Longs], of: Bools, slow: Bools, count: int
) -> list[tuple[int, Longs, float]]:
    """Return domains in which most rows are slow, each with its rows and the share of slow ones."""
    at = np.flatnonzero(of)
    one, other = ends[0][at], ends[1][at]
    twice = other is not one and ends[0] is not ends[1]
    keys = np.concatenate([one, other]) if twice else one
    both = np.concatenate([at, at]) if twice else at
    total = np.bincount(keys, minlength=count)
    bad = np.bincount(keys[slow[both]], minlength=count)
    found = []
    for domain in np.flatnonzero((total >= _MIN_ROWS) & (bad >= _MIN_SLOW_SHARE * total)).tolist():
        mine = at[(one == domain) | (other == domain)]
        own = [end[mine][side[mine] == domain] for end, side in ((rows.a, ends[0]), (rows.b, ends[1]))]
        if len(np.unique(np.concatenate(own))) >= _MIN_HOSTS:
            found.append((domain, mine, float(bad[domain] / total[domain])))
    return found


def _words(
    us: Floats, way_us: Floats, chosen: Longs, rows: PairRows, pairs: PairTable, share: float
) -> Words:
    now, usual = (float(np.median(x[chosen])) for x in (us, way_us))
    count = round(share * len(chosen))
    text = f"{digits(now, 3)} us in {count} of {len(chosen)} pairs "
    text += f"where their tiers' median is {digits(usual, 3)} us"
    said = figures(round_trip_us=now, slow_pairs=count, pairs=len(chosen), tier_median_us=usual)
    past = [history_of(pairs, row) for row in rows.row[chosen].tolist()]
    if known := [usual_us for usual_us, _, bursts in past if bursts]:
        then = float(np.median(known))
        text += f", was {digits(then, 3)} us in the bursts before the last ones"
        said += figures(before_us=then)
    return text, said
