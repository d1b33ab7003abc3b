"""Who of several replicas may write: leader election on a Lease, as a state machine without clock or network.

Events in (what an answer said, or that time has passed), one instruction out. Whose Lease it is, is judged
as client-go's leaderelection does: by how long *this* process has seen the record stand still, on its own
monotonic clock, never by times that another machine wrote down.

Why not `kubernetes.aio.leaderelection`: it measures leases with the wall clock, in whole milliseconds, so a
step of the clock makes two leaders; it reads answers that it could not get as "not yet" but has no word for
"I may still hold it"; it holds no deadline that a write could be fenced with (a leader that was stopped for
a minute goes on writing until its next look); it never releases, counts no transitions, does not say where
the leader is, and swallows an error of the work that it starts.

What is relied on for one writer at a time:
- the API server refuses an update at an old resource version, so of two that want the Lease one gets it;
- a holder's permission to write ends `renew_deadline_s` after it *sent* the last update that was confirmed;
  another takes the Lease `duration_s` after it has *seen* that update, which is later, and longer;
- holder names are unique for each start of a process, so nobody takes another's record for its own.
"""

from dataclasses import dataclass, replace
from random import Random

MAX_DURATION_S = 120  # of a lease; a record that claims more is taken for this


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """Seconds. `duration_s` - `renew_deadline_s` is the room for clocks that run at different speeds."""

    duration_s: int = 8
    renew_deadline_s: float = 5.0
    retry_s: float = 1.0


@dataclass(frozen=True, slots=True)
class Record:
    """What a Lease says. `holder` "": nobody. Times are the holder's own: compared, never reckoned with."""

    holder: str = ""
    duration_s: int = 0
    transitions: int = 0
    acquired: str = ""
    renewed: str = ""
    address: str = ""  # where the holder can be reached, "" = it did not say


@dataclass(frozen=True, slots=True)
class Lease:
    """A record as the server has it. `version`: its resource version."""

    record: Record
    version: str


# Events


@dataclass(frozen=True, slots=True)
class Woke:
    """It is time, or the beginning."""


@dataclass(frozen=True, slots=True)
class Looked:
    """The Lease was read. None: there is none."""

    lease: Lease | None


@dataclass(frozen=True, slots=True)
class Wrote:
    """A `Write` was confirmed."""

    lease: Lease


@dataclass(frozen=True, slots=True)
class Refused:
    """A `Write` was refused: the Lease is not what it was."""


@dataclass(frozen=True, slots=True)
class Lost:
    """No answer, or one that leaves open what happened."""


Event = Woke | Looked | Wrote | Refused | Lost


# Instructions: each is answered with one event


@dataclass(frozen=True, slots=True)
class Sleep:
    """Then `Woke`."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Look:
    """Read the Lease, within so many seconds."""

    timeout_s: float


@dataclass(frozen=True, slots=True)
class Write:
    """Create it (`version` None) or update it at that version, within so many seconds.

    `acquires`: the times of `record` are to be filled in: `renewed` always, `acquired` only with this.
    """

    record: Record
    version: str | None
    acquires: bool
    timeout_s: float


Instruction = Sleep | Look | Write


class Election:
    """One candidate. `me`: unique for each start of a process. Times passed in are monotonic seconds.

    `term` grows each time it becomes leader. `leading` stays True while the API server is away, because
    nobody may have taken over; whether it may *write* is said by `write_until_s` alone.
    """

    def __init__(self, me: str, address: str, times: LeaseTimes, rng: Random) -> None:
        self.me = me
        self.address = address
        self.leading = False
        self.term = 0
        self.write_until_s = float("-inf")
        self.seen: Lease | None = None
        self._times = times
        self._rng = rng
        self._seen_since_s = float("-inf")  # since when the record has stood still, as far as we saw
        self._blind = False  # the last look failed
        self._asked_s = float("-inf")  # when the instruction that is under way was given
        self._last: Instruction = Sleep(0.0)

    def handle(self, event: Event, now_s: float) -> Instruction:
        """Take an event in; returns what to do next."""
        instruction = self._next(event, now_s)
        self._asked_s, self._last = now_s, instruction
        return instruction

    def leader(self, now_s: float) -> Record | None:
        """The record of another that leads, as far as we know: one that has renewed lately."""
        if self.leading or self.seen is None or self.seen.record.holder in ("", self.me):
            return None
        return self.seen.record if now_s < self._seen_since_s + self._still_fresh_s() else None

    def released(self, lease: Lease) -> Record | None:
        """The record with which to hand over the Lease as it is now; None when it is not ours."""
        return (
            replace(lease.record, holder="", duration_s=1, address="")
            if lease.record.holder == self.me
            else None
        )

    # -- deciding -------------------------------------------------------------------------------------------

    def _next(self, event: Event, now_s: float) -> Instruction:
        match event:
            case Woke():
                # A leader knows the version of its own record; it needs no look before it writes.
                if self.leading and self.seen is not None and now_s < self.write_until_s:
                    return self._write(self.seen)
                return self._look()
            case Looked(lease):
                return self._looked(lease, now_s)
            case Wrote(lease):
                if not self.leading:
                    self.leading = True
                    self.term += 1
                self._see(lease, now_s)
                # From when it was sent: the others count from when they can see it, which is later.
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
            if self._is_held_by_another(now_s):
                return self._sleep()  # somebody deleted it, and its holder may write a moment longer
            self.seen = None
            if self.leading and now_s >= self.write_until_s:
                self._depose()  # it may have been another's in between
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
        # A leader that could not renew because nobody could reach the server has its time once more.
        if self._blind or self.seen is None or self.seen.record != lease.record:
            self._seen_since_s = now_s
        self._blind = False
        self.seen = lease

    def _is_held_by_another(self, now_s: float) -> bool:
        """Whether the record that was seen last has not run out yet."""
        if self.leading or self.seen is None or self.seen.record.holder in ("", self.me):
            return False
        return now_s < self._seen_since_s + _duration_s(self.seen.record)

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
        return Write(record, lease.version if lease is not None else None, not mine, self._timeout_s())

    def _look(self) -> Look:
        return Look(self._timeout_s())

    def _timeout_s(self) -> float:
        """Two requests fit into the deadline: one that hangs is not the end of a term."""
        return self._times.renew_deadline_s / 2

    def _sleep(self) -> Sleep:
        # Spread, so that candidates do not look, and want, at the same instant.
        return Sleep(self._times.retry_s * self._rng.uniform(0.8, 1.2))

    def _still_fresh_s(self) -> float:
        """A holder that lives renews every `retry_s`; it may miss one."""
        return 3 * self._times.retry_s


def _duration_s(record: Record) -> float:
    return float(min(max(record.duration_s, 0), MAX_DURATION_S))
