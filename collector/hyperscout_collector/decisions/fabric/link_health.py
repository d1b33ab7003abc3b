"""Which ports do something wrong at present, judged by counters that only grow.

Readings of counters go in, with the times at which they were taken; ports that are over a threshold come
out, with their rates. Thresholds are kept with hysteresis: a port is named when a rate reaches its threshold
and until it has fallen under half of it. What is told of it is renewed only when a rate moved by a half.

- A rate is what was counted in the last `window_s`, however long anybody has looked: a burst is no trend.
  What was read before and after its beginning is interpolated.
- Counters that shrink began anew: what they say now was counted since.
- A link that trains counts errors of all kinds: what came with a change of carrier is a flap, no more.
- A counter that is full (InfiniBand's do not wrap) tells nothing: what was said of the port stays.

A port on which nothing moves costs no memory: each reading comes with the one before it.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from hyperscout_inference.fabric.inputs import PortHealth

NS = 1_000_000_000
FLAP_WINDOW_S = 3600.0
_CLEAR_SHARE = 0.5  # of a threshold: a rate has to fall below it
_MOVED = 1.5  # a rate is told anew when it is so many times what was told, or less than that share of it
_POINTS = 12  # that a window is kept in
_CARRIER = 2  # place of its changes among what is counted

Port = tuple[str, str]  # device id and port, as in links


class Counts(NamedTuple):
    """What one port says. None = it cannot tell. `changes`: of its carrier, down and up counted apart; None =
    it counts none, and only what is seen of `up` tells."""

    errors: int | None
    discards: int | None
    changes: int | None = None
    up: bool = True


NOTHING_COUNTED = Counts(0, 0, 0)


@dataclass(frozen=True, slots=True)
class Look:
    """All that was read at one time by one probe, by port; Unix ns by our clock."""

    at_ns: int
    ports: Mapping[Port, Counts]
    source: str


@dataclass(frozen=True, slots=True)
class HealthSettings:
    """Rates from which on a port is named; 0 = never. `window_s`: errors and discards are counted over it."""

    errors_per_s: float = 0.1  # 100 Gbit/s at a bit error rate of 1e-12, the most that its standard allows
    discards_per_s: float = 100.0
    flaps_per_hour: float = 5.0
    window_s: float = 300.0


class _Limit(NamedTuple):
    """`threshold`: of what is counted in a second times `scale`."""

    window_ns: int
    threshold: float
    scale: float = 1.0


class _Rate:
    """How fast one counter grows: its sum by time, over a window."""

    __slots__ = ("_last", "_points", "raised", "shown")

    def __init__(self, at_ns: int, first: int) -> None:
        self.raised = False
        self.shown = 0.0
        self._points: list[tuple[int, int]] = [(at_ns, 0)]
        self._last: int | None = first

    def take(self, at_ns: int, value: int | None, limit: _Limit, *, counts: bool) -> None:
        """`counts` False: whatever it grew by is nothing to speak of."""
        before, self._last = self._last, value
        grown = 0
        if counts and value is not None and before is not None:
            grown = value - before if value >= before else value
        points, since_ns = self._points, at_ns - limit.window_ns
        total = points[-1][1] + grown
        if len(points) > 1 and at_ns - points[-2][0] < limit.window_ns // _POINTS:
            points[-1] = (at_ns, total)
        else:
            points.append((at_ns, total))
        while len(points) > 1 and points[1][0] <= since_ns:
            del points[0]
        if limit.threshold and value is not None:
            self._judge(self._per_s(limit.window_ns) * limit.scale, limit.threshold)

    @property
    def quiet(self) -> bool:
        """Nothing is said of it, and nothing it counted lately is needed to say something later."""
        return not self.raised and self._points[0][1] == self._points[-1][1]

    def _per_s(self, window_ns: int) -> float:
        (began_ns, began), (now_ns, total) = self._points[0], self._points[-1]
        since_ns = now_ns - window_ns
        if began_ns < since_ns:  # what the first stretch had grown by then
            next_ns, value = self._points[1]
            began += round((value - began) * (since_ns - began_ns) / (next_ns - began_ns))
        return (total - began) * NS / window_ns

    def _judge(self, rate: float, threshold: float) -> None:
        if rate >= threshold:
            self.raised = True
        elif rate < threshold * _CLEAR_SHARE:
            self.raised = False
        if not self.raised:
            self.shown = 0.0
        elif not self.shown / _MOVED < rate < self.shown * _MOVED:
            self.shown = float(f"{rate:.2g}")


class _Track:
    """One port on which something moved."""

    __slots__ = ("_at_ns", "_changes", "_counts", "_rates")

    def __init__(self, at_ns: int, counts: Counts) -> None:
        self._at_ns = at_ns
        self._counts = counts
        self._changes = counts.changes or 0
        # Of errors, of discards, of changes of the carrier; None = at rest.
        self._rates: list[_Rate | None] = [None, None, None]

    def take(self, at_ns: int, now: Counts, limits: Sequence[_Limit]) -> None:
        if at_ns <= self._at_ns:
            return
        was, changes = self._counts, self._changes
        self._changes = changes + (was.up != now.up) if now.changes is None else now.changes
        steady = was.up == now.up and was.changes == now.changes
        before, after = (was.errors, was.discards, changes), (now.errors, now.discards, self._changes)
        for i, (first, value, limit) in enumerate(zip(before, after, limits, strict=True)):
            rate = self._rates[i]
            if rate is None:
                if first is None or first == value:
                    continue
                rate = _Rate(self._at_ns, first)
            rate.take(at_ns, value, limit, counts=steady or i == _CARRIER)
            self._rates[i] = None if rate.quiet else rate
        self._counts, self._at_ns = now, at_ns

    @property
    def quiet(self) -> bool:
        return not any(self._rates)

    def health(self, source: str) -> PortHealth | None:
        errors, discards, flaps = (rate.shown if rate else 0.0 for rate in self._rates)
        return PortHealth(errors, discards, flaps, source) if errors or discards or flaps else None


@dataclass(slots=True)
class _Owner:
    """What is known of the ports that one finding tells of. `said`: those that do something wrong."""

    source: str
    tracks: dict[Port, _Track] = field(default_factory=dict)
    said: dict[Port, PortHealth] = field(default_factory=dict)


class LinkHealth:
    """`look` and `forget` say whether `health` is another one than before."""

    def __init__(self, settings: HealthSettings) -> None:
        window_ns = round(settings.window_s * NS)
        self._limits = (
            _Limit(window_ns, settings.errors_per_s),
            _Limit(window_ns, settings.discards_per_s),
            # Two changes are a flap.
            _Limit(round(FLAP_WINDOW_S * NS), settings.flaps_per_hour, FLAP_WINDOW_S / 2),
        )
        self._owners: dict[Hashable, _Owner] = {}
        self.health: Mapping[Port, PortHealth] = {}

    @property
    def watched(self) -> int:
        """Ports on which something moved lately."""
        return sum(len(owner.tracks) for owner in self._owners.values())

    def watches(self, who: Hashable) -> bool:
        """Whether a look matters though it saw the same as the one before."""
        return who in self._owners

    def look(self, who: Hashable, was: Look, now: Look) -> bool:
        """One finding as it was, and as it is. Ports that are not in both have no rate."""
        owner = self._owners.get(who)
        if owner is None:
            if was.ports == now.ports:
                return False
            owner = _Owner(now.source)
        for port in owner.tracks.keys() - now.ports.keys():
            del owner.tracks[port]
        for port, counts in now.ports.items():
            track = owner.tracks.get(port)
            if track is None:
                before = was.ports.get(port)
                if before is None or before == counts:
                    continue
                track = owner.tracks[port] = _Track(was.at_ns, before)
            track.take(now.at_ns, counts, self._limits)
            if track.quiet:
                del owner.tracks[port]
        if not owner.tracks:
            return self.forget(who)
        self._owners[who] = owner
        said = {port: health for port, x in owner.tracks.items() if (health := x.health(owner.source))}
        return self._tell(owner, said)

    def forget(self, who: Hashable) -> bool:
        """There is nothing more to be seen of it."""
        owner = self._owners.pop(who, None)
        return owner is not None and self._tell(owner, {})

    def _tell(self, owner: _Owner, said: dict[Port, PortHealth]) -> bool:
        if said == owner.said:
            return False
        owner.said = said
        found: dict[Port, PortHealth] = {}
        for one in sorted(self._owners.values(), key=lambda one: one.source):
            for port, health in one.said.items():
                known = found.get(port)  # two probes may count on one port, each in its own time
                found[port] = known.worse(health) if known else health
        changed = found != self.health
        self.health = found
        return changed
