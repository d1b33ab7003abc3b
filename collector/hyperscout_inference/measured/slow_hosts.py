"""Find hosts that add more to their round trips than clock speed, driver and firmware explain."""

from collections.abc import Sequence

import numpy as np
from hyperscout_topology.figures import digits, figures
from hyperscout_topology.topology import Endpoint

from hyperscout_inference.audit.suspicion import Suspicion
from hyperscout_inference.grouping.layer import Layer
from hyperscout_inference.latency.pairs import Floats, Longs, PairTable
from hyperscout_inference.measured.own_parts import MIN_PAIRS, OwnParts, own_parts
from hyperscout_inference.measured.pair_rows import Bools, PairRows, history_of, recent
from hyperscout_inference.measured.slow_domains import Words, of_domain, of_host

_OWN_US = 5.0  # own parts of hosts differ by 2 us; one this far from the median is a fault
_OWN_SHARE = 0.5  # the same limit as a share of the shortest way; the larger one counts
_SPREAD = 10.0  # distances from the median to the third quartile (seven deviations of a normal distribution)
_SHARED = 3  # slow hosts of a domain that are needed to report the domain instead
_MIN_SLOW_SHARE = 0.6  # share of its hosts that must be slow for that


def slow_hosts(
    hosts: Sequence[str], layers: Sequence[Layer], rows: PairRows, pairs: PairTable
) -> tuple[list[Suspicion], Bools]:
    """Return each slow host, or the domain with most hosts slow; and (rows,) the rows without slow hosts."""
    found: list[Suspicion] = []
    us, _ = recent(pairs, rows.row)
    own = own_parts(rows, us, len(hosts))
    slow = _slow(own)
    good = ~slow[rows.a] & ~slow[rows.b]
    left = slow.copy()
    for depth in range(len(layers) - 1, -1, -1):
        column = layers[depth].domain
        inside = own.known & (column >= 0)
        total = np.bincount(column[inside], minlength=layers[depth].count)
        bad = np.bincount(column[inside & left], minlength=layers[depth].count)
        for domain in np.flatnonzero((bad >= _SHARED) & (bad > _MIN_SLOW_SHARE * total)).tolist():
            mine = np.flatnonzero(left & (column == domain))
            left[mine] = False
            more = float(np.median(own.us[mine]))
            text = f"{len(mine)} of {total[domain]} hosts add {digits(more)} us more than others do"
            said = figures(slow_hosts=len(mine), hosts=total[domain], host_us=more)
            found.append(of_domain(hosts, layers, depth, domain, "", (text, said)))
    for host in np.flatnonzero(left).tolist():
        chosen = np.flatnonzero((rows.a == host) | (rows.b == host))
        subject = Endpoint(hosts[host], hosts[host])
        more = float(own.us[host])
        text = f"its {len(chosen)} pairs take {digits(more)} us longer than others do"
        said = figures(pairs=len(chosen), host_us=more)
        then, then_said = _then(us, rows, pairs, chosen)
        found.append(of_host(layers, subject, host, (text + then, said + then_said)))
    return found, good


def _slow(own: OwnParts) -> Bools:
    """(hosts,) whether each host is slow."""
    if np.count_nonzero(own.known) < 2 * MIN_PAIRS or not np.isfinite(own.way_us).any():
        return np.zeros(len(own.us), np.bool_)
    middle, third = np.percentile(own.us[own.known], (50, 75))
    margin = max(_OWN_US, _OWN_SHARE * float(np.nanmin(own.way_us)), _SPREAD * (third - middle))
    return np.asarray(own.known & (own.us - middle > margin))


def _then(us: Floats, rows: PairRows, pairs: PairTable, chosen: Longs) -> Words:
    """Return words on the earlier median of these rows; "" if it is unknown."""
    past = [history_of(pairs, row) for row in rows.row[chosen].tolist()]
    known = [usual_us for usual_us, _, bursts in past if bursts]
    if not known:
        return "", ()
    now, then = float(np.median(us[chosen])), float(np.median(known))
    text = f": a median of {digits(now, 3)} us, was {digits(then, 3)} us in the bursts before the last ones"
    return text, figures(round_trip_us=now, before_us=then)
