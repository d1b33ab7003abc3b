"""Find paths that are slower than others of their tier, or less steady than before.

A pair is judged by the minimum of its last bursts, without its hosts' own parts. The limit is wider where
fewer bursts exist or less is known about the hosts. Where many pairs of one port, one host or the ways out of
one domain are slow, one suspicion names what they share.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from hyperscout_topology.figures import digits, figures
from hyperscout_topology.topology import Endpoint, say

from hyperscout_inference.audit.suspicion import Suspicion
from hyperscout_inference.grouping.layer import Layer
from hyperscout_inference.latency.bursts import RECENT
from hyperscout_inference.latency.pairs import Floats, Longs, PairTable
from hyperscout_inference.measured.own_parts import MIN_PAIRS, OwnParts, own_parts
from hyperscout_inference.measured.pair_rows import Bools, PairRows, history_of, medians, recent
from hyperscout_inference.measured.slow_domains import SOURCE, Words, of_domain, of_host, outer_layer

# How much slower than its tier a pair must be, by the number of its known bursts: in us, and as a share.
_MARGIN_US = (np.inf, 6.0, 3.0, 1.5)
_MARGIN_SHARE = (np.inf, 0.6, 0.3, 0.2)
_UNKNOWN_US = 2.0  # allowance for a host without a known own part
_SPREAD = 10.0  # distances from the median to the third quartile (seven deviations of a normal distribution)
_SHARED = 3  # slow pairs that are needed to report what they share
_JITTER_US, _JITTER_TIMES = 2.0, 3.0  # growth of the jitter that counts: both limits apply

# Returns the words for rows, out of a total (0 = they are about one row).
_WordsOf = Callable[[Longs, int], Words]


def slow_paths(
    hosts: Sequence[str], layers: Sequence[Layer], rows: PairRows, pairs: PairTable
) -> list[Suspicion]:
    """Return suspicions. `rows`: of one kind, with a round trip, and not explained by a slow domain or
    host."""
    return list(_Judge(hosts, layers, rows, pairs).suspicions())


class _Judge:
    """Judges rows of one kind."""

    def __init__(
        self, hosts: Sequence[str], layers: Sequence[Layer], rows: PairRows, pairs: PairTable
    ) -> None:
        self._hosts = hosts
        self._layers = layers
        self._rows = rows
        self._pairs = pairs
        self._us, self._bursts = recent(pairs, rows.row)
        self._own: OwnParts = own_parts(rows, self._us, len(hosts))

    def suspicions(self) -> Iterator[Suspicion]:
        rows, own = self._rows, self._own
        judged = np.isfinite(own.way_us)
        if not judged.any():
            return
        left = self._us - own.way_us - own.us[rows.a] - own.us[rows.b]
        # A domain that is slightly slower than its tier as a whole was built that way.
        left -= self._built_so(left, judged)
        margin = self._margin(left, judged)
        slow, near = judged & (left > margin), judged & (left > margin / 2)
        yield from self._suspicions(slow, near, judged, self._slow_words)
        grown = ~slow & self._grown()
        yield from self._suspicions(grown, grown, np.ones(len(rows), np.bool_), self._grown_words)

    # -- what is out of line --------------------------------------------------------------------------------

    def _built_so(self, left: Floats, judged: Bools) -> Floats:
        """(rows,) the median remainder of each row's domain, up to the limit at which it is a fault."""
        rows = self._rows
        width = max(x.count for x in self._layers) + 1
        _, place = np.unique(rows.layer * width + rows.domain, return_inverse=True)
        middle, size = medians(place[judged], left[judged], int(place.max()) + 1)
        middle[size < 2 * MIN_PAIRS] = 0.0
        return np.asarray(np.clip(middle, -_MARGIN_US[-1], _MARGIN_US[-1])[place])

    def _margin(self, left: Floats, judged: Bools) -> Floats:
        """(rows,) the largest remainder that is normal for each row."""
        rows, own = self._rows, self._own
        bursts = np.clip(self._bursts, 0, RECENT).astype(np.int64)
        margin: Floats = np.maximum(
            np.array(_MARGIN_US)[bursts], np.array(_MARGIN_SHARE)[bursts] * own.way_us
        )
        margin += _UNKNOWN_US * ((~own.known[rows.a]).astype(float) + ~own.known[rows.b])
        for group in np.unique(own.group[judged]).tolist():
            mine = own.group == group
            middle, third = np.percentile(left[mine & judged], (50, 75))
            margin[mine] = np.maximum(margin[mine], middle + _SPREAD * (third - middle))
        return margin

    def _grown(self) -> Bools:
        """(rows,) whether the jitter is several times the earlier one in all of the last bursts."""
        history = self._pairs.history
        if history is None:
            return np.zeros(len(self._rows), np.bool_)
        row = self._rows.row
        now, usual = history.recent_jitter_us[row], history.usual_jitter_us[row]
        known = (history.usual[row] > 0) & (usual > 0) & (history.recent[row] >= RECENT)
        return np.asarray(known & (now > np.maximum(usual + _JITTER_US, usual * _JITTER_TIMES)))

    # -- how it is reported ---------------------------------------------------------------------------------

    def _suspicions(self, bad: Bools, near: Bools, judged: Bools, words_of: _WordsOf) -> Iterator[Suspicion]:
        """Yield suspicions of ways out of domains, of hosts, of ports, and of the single pairs that are left.
        `near`: rows that also count where an end is judged, down to half of the limit."""
        bad = bad.copy()
        yield from self._ways_out(bad, judged, words_of)
        rows = self._rows
        ports = np.bincount([host for host, _ in rows.ports], minlength=len(self._hosts))
        hosts = np.flatnonzero(ports > 1)
        for host, mine, total in _sharers(bad, near, judged, (rows.a, rows.b), hosts):
            end = Endpoint(self._hosts[host], self._hosts[host])
            yield of_host(self._layers, end, host, words_of(mine, total))
        every = np.arange(len(rows.ports))
        for port, mine, total in _sharers(bad, near, judged, (rows.end_a, rows.end_b), every):
            yield of_host(self._layers, self._port(port), rows.ports[port][0], words_of(mine, total))
        for i in np.flatnonzero(bad).tolist():
            subject, peer = self._port(int(rows.end_a[i])), self._port(int(rows.end_b[i]))
            words, said = words_of(np.array([i]), 0)
            text = f"{say(subject)} -> {say(peer)}: {words}"
            where = (int(rows.layer[i]), int(rows.domain[i]))
            # One pair does not show whether one of its ends or the path between is at fault.
            yield Suspicion("SlowLink", subject, peer, *where, 0.5, text, SOURCE, figures=said)

    def _ways_out(self, bad: Bools, judged: Bools, words_of: _WordsOf) -> Iterator[Suspicion]:
        """Yield domains of which at least half of the ways out are bad, over several of their hosts."""
        rows = self._rows
        for depth in range(len(self._layers) - 1, outer_layer(self._layers) - 1, -1):
            column = self._layers[depth].domain
            a, b = column[rows.a], column[rows.b]
            out = (a != b) & (a >= 0) & (b >= 0)
            while (bad & out).any():
                mine = np.flatnonzero(bad & out)
                keys = np.concatenate([a[mine], b[mine]])
                pairs = np.unique(np.stack([keys, np.concatenate([rows.a[mine], rows.b[mine]])]), axis=1)
                hosts = np.bincount(pairs[0], minlength=self._layers[depth].count)
                count = np.bincount(keys, minlength=len(hosts))
                every = np.flatnonzero(judged & out)
                total = np.bincount(np.concatenate([a[every], b[every]]), minlength=len(hosts))
                guilty = (hosts >= _SHARED) & (count * 2 >= total)
                if not guilty.any():
                    break
                domain = int(np.where(guilty, count, 0).argmax())
                chosen = mine[(a[mine] == domain) | (b[mine] == domain)]
                bad[chosen] = False
                words = words_of(chosen, int(total[domain]))
                yield of_domain(self._hosts, self._layers, depth, domain, "ways out: ", words)

    def _slow_words(self, rows: Longs, total: int) -> Words:
        usual, size = medians(self._own.group, self._us, int(self._own.group.max()) + 1)
        group = int(self._own.group[rows[0]])
        usual_us = float(usual[group])
        now = float(np.median(self._us[rows]))
        before, before_said = self._before(int(rows[0]))
        tier = f"where this tier's median is {digits(usual_us, 3)} us ({size[group]} pairs)"
        said = figures(round_trip_us=now, tier_median_us=usual_us, tier_pairs=size[group]) + before_said
        if not total:
            return f"{digits(now, 3)} us {tier}{before}", said
        text = f"{digits(now, 3)} us in {len(rows)} of {total} pairs {tier}, as {self._ends(rows)}{before}"
        return text, said + figures(slow_pairs=len(rows), pairs=total)

    def _grown_words(self, rows: Longs, total: int) -> Words:
        history = self._pairs.history
        if history is None:
            return "", ()
        at = self._rows.row[rows]
        now = float(np.median(history.recent_jitter_us[at]))
        usual = float(np.median(history.usual_jitter_us[at]))
        bursts = int(np.median(history.usual[at]))
        text = f"jitter of {digits(now)} us or more in the last {RECENT} bursts, "
        text += f"was {digits(usual)} us in the {bursts} bursts before"
        said = figures(jitter_us=now, jitter_before_us=usual, before_bursts=bursts)
        if not total:
            return text, said
        text += f", in {len(rows)} of {total} pairs, as {self._ends(rows)}"
        return text, said + figures(slow_pairs=len(rows), pairs=total)

    def _before(self, i: int) -> Words:
        usual_us, _, bursts = history_of(self._pairs, int(self._rows.row[i]))
        if not bursts:
            return "", ()
        text = f", was {digits(usual_us, 3)} us in the {bursts} bursts before"
        return text, figures(before_us=usual_us, before_bursts=bursts)

    def _ends(self, rows: Longs) -> str:
        first = int(rows[0])
        ends = (self._port(int(end[first])) for end in (self._rows.end_a, self._rows.end_b))
        return " -> ".join(map(say, ends))

    def _port(self, port: int) -> Endpoint:
        host, interface = self._rows.ports[port]
        return Endpoint(self._hosts[host], self._hosts[host], interface)


def _sharers(
    bad: Bools, near: Bools, judged: Bools, ends: tuple[Longs, Longs], candidates: Longs
) -> Iterator[tuple[int, Longs, int]]:
    """Yield ends that at least `_SHARED` bad rows share: a third of the end's rows are bad, or half are near.

    The end with the most bad rows comes first. Its rows are then cleared in `bad`.
    """
    one, other = ends
    count = int(max(one.max(initial=-1), other.max(initial=-1))) + 1
    total = np.bincount(np.concatenate([one[judged], other[judged]]), minlength=count)
    close = np.bincount(np.concatenate([one[near], other[near]]), minlength=count)
    may = np.isin(np.arange(count), candidates)
    while bad.any():
        mine = np.flatnonzero(bad)
        shared = np.bincount(np.concatenate([one[mine], other[mine]]), minlength=count)
        guilty = may & (shared >= _SHARED) & ((shared * 3 >= total) | (close * 2 >= total))
        if not guilty.any():
            return
        end = int(np.where(guilty, shared, 0).argmax())
        chosen = mine[(one[mine] == end) | (other[mine] == end)]
        bad[chosen] = False
        yield end, chosen, int(total[end])
