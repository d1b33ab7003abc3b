"""Leader election of replicas on a Lease: a state machine without clock or network.

The caller passes in events (the result of a request, or the end of a wait) and receives one instruction for
each. Ownership of the Lease is decided as in client-go's leaderelection: by how long *this* process has seen
the record unchanged, on its own monotonic clock. Timestamps of other machines are never used.

`kubernetes.aio.leaderelection` is not used, for these reasons:
- it measures leases with the wall clock, in whole milliseconds, so a clock step can produce two leaders;
- it treats an unanswered request as "not acquired", although the process may still hold the Lease;
- it has no deadline to fence writes with, so a leader that was suspended for a minute writes until its next
  check;
- it never releases the Lease, counts no transitions and does not publish the leader's address;
- it swallows errors of the work that it starts.

At most one replica writes at a time because:
- the API server refuses an update at an old resource version, so only one of two candidates gets the Lease;
- a holder may write until `renew_deadline_s` after it *sent* its last confirmed update; another replica takes
  the Lease `duration_s` after it *observed* that update, a period that starts later and is longer;
- a holder name is unique for each start of a process, so no process mistakes another's record for its own.
"""

from dataclasses import dataclass, replace
from random import Random

MAX_DURATION_S = 120  # upper bound of a lease; a longer duration in a record is cut to this


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """Times in seconds. `duration_s` - `renew_deadline_s` is the margin for clocks of different speed."""

    duration_s: int = 8
    renew_deadline_s: float = 5.0
    retry_s: float = 1.0

    @classmethod
    def of(cls, duration_s: int) -> "LeaseTimes":
        """Return times in the proportions of the defaults; the Lease is read at least each second."""
        return cls(duration_s, duration_s * 5 / 8, min(1.0, duration_s / 8))


@dataclass(frozen=True, slots=True)
class Record:
    """The content of a Lease. `holder` is "" if the Lease is free.

    The timestamps are the holder's own. They are compared for equality only.
    """

    holder: str = ""
    duration_s: int = 0
    transitions: int = 0
    acquired: str = ""
    renewed: str = ""
    address: str = ""  # where the holder can be reached; "" if unknown


@dataclass(frozen=True, slots=True)
class Lease:
    """A record as stored on the server. `version` is its resource version."""

    record: Record
    version: str


# Events


@dataclass(frozen=True, slots=True)
class Woke:
    """A wait has ended, or the election begins."""


@dataclass(frozen=True, slots=True)
class Looked:
    """The Lease was read. `lease` is None if it does not exist."""

    lease: Lease | None


@dataclass(frozen=True, slots=True)
class Wrote:
    """A `Write` was confirmed. `lease` is the new state."""

    lease: Lease


@dataclass(frozen=True, slots=True)
class Refused:
    """A `Write` was refused because the Lease has changed."""


@dataclass(frozen=True, slots=True)
class Lost:
    """A request failed or its outcome is unknown."""


Event = Woke | Looked | Wrote | Refused | Lost


# Instructions: the caller answers each with one event


@dataclass(frozen=True, slots=True)
class Sleep:
    """Wait, then pass in `Woke`."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Look:
    """Read the Lease within `timeout_s` seconds."""

    timeout_s: float


@dataclass(frozen=True, slots=True)
class Write:
    """Create the Lease (`version` is None) or update it at that version, within `timeout_s` seconds.

    The caller fills in the times of `record`: `renewed` always, `acquired` only if `acquires` is True.
    """

    record: Record
    version: str | None
    acquires: bool
    timeout_s: float


Instruction = Sleep | Look | Write


class Election:
    """One candidate. `me` is unique for each start of a process. All times are monotonic seconds.

    `own_terms` is incremented each time the candidate becomes leader. `leading` stays True while the API
    server is unreachable, because possibly no other replica has taken over. `write_until_s` alone decides
    whether the leader may write.
    """

    def __init__(self, me: str, address: str, times: LeaseTimes, rng: Random) -> None:
        self.me = me
        self.address = address
        self.leading = False
        self.own_terms = 0
        self.write_until_s = float("-inf")
        self.seen: Lease | None = None
        self._times = times
        self._timeout_s = times.renew_deadline_s / 2  # one request that hangs must not end a term
        self._rng = rng
        self._seen_since_s = float("-inf")  # since when the record counts as unchanged
        self._blind = False  # the last read failed
        self._asked_s = float("-inf")  # when the current instruction was returned
        self._last: Instruction = Sleep(0.0)

    def handle(self, event: Event, now_s: float) -> Instruction:
        """Process an event and return the next instruction."""
        instruction = self._next(event, now_s)
        self._asked_s, self._last = now_s, instruction
        return instruction

    def leader(self, now_s: float) -> Record | None:
        """Return the record of another replica that leads: one that renewed recently. None if unknown."""
        # A holder renews every `retry_s` and may miss one renewal.
        return self._holder(now_s, 3 * self._times.retry_s)

    def released(self, lease: Lease) -> Record | None:
        """Return the record that releases `lease`; None if this candidate does not hold it."""
        if lease.record.holder != self.me:
            return None
        return replace(lease.record, holder="", duration_s=1, address="")

    # Decisions

    def _next(self, event: Event, now_s: float) -> Instruction:
        match event:
            case Woke():
                # A leader knows the version of its own record, so it writes without a read.
                if self.leading and self.seen is not None and now_s < self.write_until_s:
                    return self._write(self.seen)
                return self._look()
            case Looked(lease):
                return self._looked(lease, now_s)
            case Wrote(lease):
                if not self.leading:
                    self.leading = True
                    self.own_terms += 1
                self._see(lease, now_s)
                # The permission counts from the send time. Other replicas count from a later time.
                self.write_until_s = self._asked_s + self._times.renew_deadline_s
                return self._sleep()
            case Refused():
                return self._look()
            case Lost():
                if isinstance(self._last, Write):
                    return self._look()
                self._blind = True
                return self._sleep()

    def _looked(self, lease: Lease | None, now_s: float) -> Instruction:
        if lease is None:
            if self.seen is not None and self._holder(now_s, _duration_s(self.seen.record)):
                return self._sleep()  # the Lease was deleted, but its holder may still write
            self.seen = None
            if self.leading and now_s >= self.write_until_s:
                self._depose()  # another replica may have led in the meantime
            return self._write(None)
        self._see(lease, now_s)
        holder = lease.record.holder
        if holder == self.me:
            return self._write(lease)
        if self.leading and (holder or now_s >= self.write_until_s):
            self._depose()
        if not holder or now_s >= self._seen_since_s + _duration_s(lease.record):
            return self._write(lease)
        return self._sleep()

    def _see(self, lease: Lease, now_s: float) -> None:
        # A leader may have failed to renew because the server was unreachable. It gets its full time again.
        if self._blind or self.seen is None or self.seen.record != lease.record:
            self._seen_since_s = now_s
        self._blind = False
        self.seen = lease

    def _holder(self, now_s: float, lasts_s: float) -> Record | None:
        """Return the record seen last if another replica holds it and it is not older than `lasts_s`."""
        if self.leading or self.seen is None or self.seen.record.holder in ("", self.me):
            return None
        return self.seen.record if now_s < self._seen_since_s + lasts_s else None

    def _depose(self) -> None:
        self.leading = False
        self.write_until_s = float("-inf")

    def _write(self, lease: Lease | None) -> Write:
        old = lease.record if lease is not None else None
        mine = old is not None and old.holder == self.me
        transitions = 0 if old is None else old.transitions + (not mine)
        record = Record(
            self.me,
            self._times.duration_s,
            transitions,
            old.acquired if old is not None and mine else "",
            "",
            self.address,
        )
        return Write(record, lease.version if lease is not None else None, not mine, self._timeout_s)

    def _look(self) -> Look:
        return Look(self._timeout_s)

    def _sleep(self) -> Sleep:
        # The random spread keeps candidates from reading and writing at the same instant.
        return Sleep(self._times.retry_s * self._rng.uniform(0.8, 1.2))


def _duration_s(record: Record) -> float:
    return float(min(max(record.duration_s, 0), MAX_DURATION_S))
