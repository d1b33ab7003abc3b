"""Decides which ports have too many errors, discards or flaps, by counters that only grow.

Input: counter readings with their times. Output: the ports with rates above a threshold, and the rates.
Thresholds have hysteresis: a port is reported from the threshold until its rate falls below half of it. A
reported rate is updated only when it changes by half.

- A rate is the growth in the last `window_s`, even if the port is observed for less: a burst is no trend. The
  value at the start of the window is interpolated between the readings around it. So it is known until when a
  port that flaps no more is reported.
- A counter that shrinks was reset: its whole value counts as growth.
- A training link counts errors of all kinds: growth during a change of carrier counts as a flap only.
- A full counter (InfiniBand counters do not wrap) gives no information: the port's state stays.

A port without changes uses no memory: each reading comes with the one before it.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import NamedTuple

from hyperscout_inference.fabric.inputs import PortHealth
from hyperscout_runtime.units import NS

FLAP_WINDOW_S = 3600.0
_CLEAR_SHARE = 0.5  # of a threshold: a rate must fall below it
_MOVED = 1.5  # a reported rate is updated when it grows by this factor, or shrinks by it
_MAX_POINTS = 12  # stored per window
_CARRIER = 2  # index of the carrier changes among the counters

Port = tuple[str, str]  # device id and port, as in links


class Counts(NamedTuple):
    """The counters of one port. None = the port does not count it.

    `changes`: changes of the carrier, down and up counted separately. None = the port does not count them;
    then changes of `up` between readings are counted.
    """

    errors: int | None
    discards: int | None
    changes: int | None = None
    up: bool = True


NOTHING_COUNTED = Counts(0, 0, 0)


@dataclass(frozen=True, slots=True)
class CounterSample:
    """All ports that one probe read at one time, by port. Unix ns by the collector's clock."""

    at_ns: int
    ports: Mapping[Port, Counts]
    source: str


@dataclass(frozen=True, slots=True)
class HealthSettings:
    """Rates from which a port is reported; 0 = never. `window_s`: the window for errors and discards."""

    errors_per_s: float = 0.1  # 100 Gbit/s at a bit error rate of 1e-12, the most that its standard allows
    discards_per_s: float = 100.0
    flaps_per_hour: float = 5.0
    window_s: float = 300.0


class _Limit(NamedTuple):
    """`threshold`: limit of the growth per second times `scale`."""

    window_ns: int
    threshold: float
    scale: float = 1.0

    @property
    def clear_growth(self) -> float:
        """The growth in the window below which a port is no longer reported."""
        return self.threshold * _CLEAR_SHARE / self.scale * self.window_ns / NS


class _Rate:
    """The rate of one counter: its growth by time, over a window."""

    __slots__ = ("_at_ns", "_last", "_points", "clears_ns", "raised", "shown")

    def __init__(self, at_ns: int, first: int) -> None:
        self.raised = False
        self.shown = 0.0
        self.clears_ns = 0  # until when the port is reported if nothing more is counted
        self._points: list[tuple[int, int]] = [(at_ns, 0)]  # around each growth
        self._at_ns = at_ns
        self._last: int | None = first

    def take(self, at_ns: int, value: int | None, limit: _Limit, *, counts: bool) -> None:
        """Add a reading. `counts` False: ignore the growth since the reading before."""
        before, self._last = self._last, value
        grown = 0
        if counts and value is not None and before is not None:
            grown = value - before if value >= before else value
        points, since_ns = self._points, at_ns - limit.window_ns
        if grown:
            total = points[-1][1]
            if len(points) > 1 and at_ns - points[-2][0] < limit.window_ns // _MAX_POINTS:
                points.pop()
            elif points[-1][0] < self._at_ns:
                points.append((self._at_ns, total))
            points.append((at_ns, total + grown))
        self._at_ns = at_ns
        while len(points) > 1 and points[1][0] <= since_ns:
            del points[0]
        if limit.threshold and value is not None:
            self._judge(self._per_s(at_ns, limit.window_ns) * limit.scale, limit.threshold)
            self.clears_ns = self._clears_ns(limit) if self.raised else 0

    @property
    def quiet(self) -> bool:
        """Whether the port is not reported for this counter, and the window contains no growth."""
        return not self.raised and self._points[0][1] == self._points[-1][1]

    def _per_s(self, now_ns: int, window_ns: int) -> float:
        (began_ns, began), total = self._points[0], self._points[-1][1]
        since_ns, earlier = now_ns - window_ns, 0.0
        if began_ns < since_ns and len(self._points) > 1:
            # The growth of the first stretch up to the start of the window.
            next_ns, value = self._points[1]
            earlier = (value - began) * (since_ns - began_ns) / (next_ns - began_ns)
        return (total - began - earlier) * NS / window_ns

    def _judge(self, rate: float, threshold: float) -> None:
        if rate >= threshold:
            self.raised = True
        elif rate < threshold * _CLEAR_SHARE:
            self.raised = False
        if not self.raised:
            self.shown = 0.0
        elif not self.shown / _MOVED < rate < self.shown * _MOVED:
            self.shown = float(f"{rate:.2g}")

    def _clears_ns(self, limit: _Limit) -> int:
        """Return when the growth in the window falls below that of a clear port, in whole seconds."""
        below = self._points[-1][1] - limit.clear_growth
        for (at_ns, value), (next_ns, more) in pairwise(self._points):
            if more > max(below, value):
                crossed_ns = at_ns + (below - value) * (next_ns - at_ns) / (more - value)
                return int((crossed_ns + limit.window_ns) // NS + 1) * NS
        return 0


class _Track:
    """One port with a counter that changed."""

    __slots__ = ("_at_ns", "_changes", "_counts", "_rates")

    def __init__(self, at_ns: int, counts: Counts) -> None:
        self._at_ns = at_ns
        self._counts = counts
        self._changes = counts.changes or 0
        # Of errors, discards and carrier changes; None = unchanged.
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
        carrier = self._rates[_CARRIER]
        clears_ns = carrier.clears_ns if carrier else 0
        wrong = errors or discards or flaps
        return PortHealth(errors, discards, flaps, source, clears_ns) if wrong else None


@dataclass(slots=True)
class _Owner:
    """The ports of one finding. `reported`: those that are reported."""

    source: str
    tracks: dict[Port, _Track] = field(default_factory=dict)
    reported: dict[Port, PortHealth] = field(default_factory=dict)


class LinkHealth:
    """The state machine of all ports.

    `compare` and `forget` return whether a port in `health`, or a rate of one, changed.
    """

    def __init__(self, settings: HealthSettings) -> None:
        window_ns = round(settings.window_s * NS)
        self._limits = (
            _Limit(window_ns, settings.errors_per_s),
            _Limit(window_ns, settings.discards_per_s),
            # Two changes are one flap.
            _Limit(round(FLAP_WINDOW_S * NS), settings.flaps_per_hour, FLAP_WINDOW_S / 2),
        )
        self._owners: dict[Hashable, _Owner] = {}
        self.health: Mapping[Port, PortHealth] = {}

    @property
    def watched(self) -> int:
        """Number of ports with a counter that changed lately."""
        return sum(len(owner.tracks) for owner in self._owners.values())

    def watches(self, finding: Hashable) -> bool:
        """Whether a reading of this finding is needed even if it equals the one before."""
        return finding in self._owners

    def compare(self, finding: Hashable, was: CounterSample, now: CounterSample) -> bool:
        """Compare two readings of one finding. Ports that are not in both have no rate."""
        owner = self._owners.get(finding)
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
            return self.forget(finding)
        self._owners[finding] = owner
        reported = {port: health for port, x in owner.tracks.items() if (health := x.health(owner.source))}
        return self._report(owner, reported)

    def forget(self, finding: Hashable) -> bool:
        """Remove the state of a finding that no longer exists."""
        owner = self._owners.pop(finding, None)
        return owner is not None and self._report(owner, {})

    def _report(self, owner: _Owner, reported: dict[Port, PortHealth]) -> bool:
        if reported == owner.reported:
            return False
        owner.reported = reported
        found: dict[Port, PortHealth] = {}
        for one in sorted(self._owners.values(), key=lambda one: one.source):
            for port, health in one.reported.items():
                known = found.get(port)  # two probes may count on one port at different times
                found[port] = known.worse(health) if known else health
        changed = _rates(found) != _rates(self.health)
        self.health = found
        return changed


def _rates(health: Mapping[Port, PortHealth]) -> dict[Port, PortHealth]:
    return {port: replace(x, clears_ns=0) for port, x in health.items()}
