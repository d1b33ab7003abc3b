"""Audit cables between switches of one level: peer links within a domain, and long cables (dragonfly+)."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
from hyperscout_topology.topology import say

from hyperscout_inference.audit.audit import EITHER
from hyperscout_inference.audit.ranks import NOWHERE, Place
from hyperscout_inference.audit.suspicion import Suspicion
from hyperscout_inference.fabric.network import Ints, Network, distinct

# Pairs that may differ from the usual number of cables: a share of the pairs, and at least this number.
_OFF_SHARE, _OFF_FEW = 0.2, 4


class Lateral:
    """The cables between different switches of one level. `rows`: of the network."""

    def __init__(
        self,
        net: Network,
        switches: Sequence[int],
        rows: npt.NDArray[np.intp],
        home: Mapping[int, Place],
        long: bool,
    ) -> None:
        self.net, self.home, self.long = net, home, long
        self.ends: list[tuple[int, int, int, int]] = list(
            zip(
                net.a[rows].tolist(),
                net.a_port[rows].tolist(),
                net.b[rows].tolist(),
                net.b_port[rows].tolist(),
                strict=True,
            )
        )

        self.members: dict[Place, list[int]] = defaultdict(list)
        for switch in switches:
            if switch in home:
                self.members[home[switch]].append(switch)

    def suspicions(self, sources: tuple[str, ...]) -> list[Suspicion]:
        """Return missing peer links, and long cables that are missing or lead to a wrong domain."""
        self.sources = sources
        inside = [e for e in self.ends if self.home.get(e[0]) == self.home.get(e[2]) is not None]
        # A spine with a host may be in the domain of a leaf, which is none of the domains joined here.
        across = [
            e
            for e in self.ends
            if e[0] in self.home
            and e[2] in self.home
            and (x := self.home[e[0]]) != (y := self.home[e[2]])
            and x[0] == y[0]
        ]
        return self._peers(inside) + (self._long(across) if self.long else [])

    def _peers(self, cables: list[tuple[int, int, int, int]]) -> list[Suspicion]:
        """Find pairs of peers with fewer cables than most pairs have."""
        pairs = Counter((min(a, b), max(a, b)) for a, _, b, _ in cables)
        couples = [tuple(sorted(s)) for s in self.members.values() if len(s) == 2]
        for couple in couples if 2 * len(pairs) > len(couples) else ():
            pairs[couple[0], couple[1]] += 0
        usual, off = _usual(pairs.values())
        if usual < 1 or off > max(1, _OFF_SHARE * len(pairs)):
            return []
        found = []
        for (a, b), count in sorted(pairs.items()):
            ports = Counter((p, q) if x < y else (q, p) for x, p, y, q in cables)
            own = {((p, q) if x < y else (q, p)) for x, p, y, q in cables if {x, y} == {a, b}}
            free = [
                port for port, votes in sorted(ports.items()) if votes * 2 > len(pairs) and port not in own
            ]
            for k in range(usual - count):
                p, q = free[k] if k < len(free) else (-1, -1)
                found.append(self._missing(a, p, b, q, 0.8))
        return found

    def _long(self, cables: list[tuple[int, int, int, int]]) -> list[Suspicion]:
        """Find switches with another number of cables to another domain than most switches have."""
        home = self.home
        domains = sorted({home[s] for a, _, b, _ in cables for s in (a, b)})
        if len(domains) < 3:
            return []  # a few trunks between two trees follow no plan
        switches = [s for d in domains for s in self.members[d]]
        toward: Counter[tuple[int, Place]] = Counter()
        for a, _, b, _ in cables:
            toward[a, home[b]] += 1
            toward[b, home[a]] += 1
        pairs = {(s, d): toward[s, d] for s in switches for d in domains if d != home[s]}
        usual, off = _usual(pairs.values())
        if pairs and usual > 0 and off <= max(_OFF_FEW, _OFF_SHARE * len(pairs)):
            return self._by_switch(cables, pairs, usual)
        return self._by_domain(cables, domains)

    def _by_switch(
        self, cables: list[tuple[int, int, int, int]], pairs: dict[tuple[int, Place], int], usual: int
    ) -> list[Suspicion]:
        home = self.home
        found = []
        moved: Counter[int] = Counter()
        plan = self._plan(cables)
        for a, p, b, q in cables:
            over = (pairs[a, home[b]] > usual, pairs[b, home[a]] > usual)
            against = plan.get((home[a], p), home[b]) != home[b] or plan.get((home[b], q), home[a]) != home[a]
            if all(over) or (any(over) and against):
                found.append(self._stray(a, p, b, q, 0.9 if all(over) else 0.8))
                moved[a] += 1
                moved[b] += 1
        short = sorted(key for key, count in pairs.items() if count < usual)
        open_ends: dict[tuple[Place, Place], list[int]] = defaultdict(list)
        for s, d in short:
            if moved[s]:
                moved[s] -= 1  # its stray cable is the missing one
            else:
                open_ends[home[s], d].append(s)
        for (x, y), mine in sorted(open_ends.items()):
            if x < y:
                found += [
                    self._missing(s, -1, t, -1, 0.8)
                    for s, t in zip(mine, open_ends.get((y, x), []), strict=False)
                ]
        return found

    def _plan(self, cables: list[tuple[int, int, int, int]]) -> dict[tuple[Place, int], Place]:
        """Return (domain, port) -> the domain to which this port of most of the domain's switches leads."""
        votes: Counter[tuple[Place, int, Place]] = Counter()
        total: Counter[tuple[Place, int]] = Counter()
        for a, p, b, q in cables:
            for here, port, there in ((a, p, b), (b, q, a)):
                votes[self.home[here], port, self.home[there]] += 1
                total[self.home[here], port] += 1
        return {(x, port): y for (x, port, y), n in votes.items() if n > 1 and 2 * n > total[x, port]}

    def _by_domain(self, cables: list[tuple[int, int, int, int]], domains: list[Place]) -> list[Suspicion]:
        home = self.home
        between = Counter(tuple(sorted((home[a], home[b]))) for a, _, b, _ in cables)
        pairs = {(x, y): between[x, y] for i, x in enumerate(domains) for y in domains[i + 1 :]}
        usual, off = _usual(pairs.values())
        if usual == 0 or off > max(_OFF_FEW, _OFF_SHARE * len(pairs)) or len(pairs) < 3:
            return []
        found = []
        surplus: Counter[Place] = Counter()
        for pair, count in sorted(pairs.items()):
            if count > usual:
                own = [e for e in cables if tuple(sorted((home[e[0]], home[e[2]]))) == pair]
                found += [self._stray(*e, round(min(EITHER, (count - usual) / count), 2)) for e in own]
                surplus.update(pair)
        degree = Counter({s: 0 for d in domains for s in self.members[d]})
        degree.update(s for a, _, b, _ in cables for s in (a, b))
        full, _ = _usual(degree.values())
        full_size, _ = _usual(len(self.members[d]) for d in domains)
        for (x, y), count in sorted(pairs.items()):
            # The cables of a missing switch are not reported one by one.
            whole = min(len(self.members[x]), len(self.members[y])) >= full_size
            if count < usual and whole and not (surplus[x] and surplus[y]):
                ends = [
                    min((s for s in degree if home[s] == d), key=lambda s: (degree[s] >= full, s), default=-1)
                    for d in (x, y)
                ]
                if -1 not in ends:
                    found.append(self._missing(ends[0], -1, ends[1], -1, 0.6))
        return found

    def _missing(self, a: int, p: int, b: int, q: int, confidence: float) -> Suspicion:
        subject, peer = self.net.end(a, p), self.net.end(b, q)
        text = f"no link from {say(subject)} to {say(peer)}; its peers have one"
        return Suspicion(
            "MissingLink", subject, peer, *self.home.get(a, NOWHERE), confidence, text, self.sources
        )

    def _stray(self, a: int, p: int, b: int, q: int, confidence: float) -> Suspicion:
        subject, peer = self.net.end(a, p), self.net.end(b, q)
        text = f"{say(subject)} is plugged into {say(peer)}, one cable more than its peers have there"
        return Suspicion(
            "Miswired", subject, peer, *self.home.get(a, NOWHERE), confidence, text, self.sources
        )


def lateral_suspicions(
    net: Network, level: Ints, rows: npt.NDArray[np.intp], home: Mapping[int, Place]
) -> list[Suspicion]:
    """Audit the cables `rows`, which join switches of one level."""
    sources = net.all_sources
    found = []
    for rank in distinct(level[net.a[rows]]).tolist():
        switches = np.flatnonzero(level == rank).tolist()
        mine = rows[level[net.a[rows]] == rank]
        # Where leaves are joined side by side, no plan says which of them should be.
        found += Lateral(net, switches, mine, home, rank > 1).suspicions(sources)
    return found


def _usual(counts: Iterable[int]) -> tuple[int, int]:
    """Return the most frequent count, and how many counts differ from it."""
    tally = Counter(counts)
    if not tally:
        return 0, 0
    value, votes = max(tally.items(), key=lambda x: (x[1], x[0]))
    return value, sum(tally.values()) - votes
