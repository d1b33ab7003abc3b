"""Keeps what the pipeline does about failed inferences: when to try again, and which evidence to set aside.

When inference raises an exception, the last topology stays published. The reporters whose evidence causes
the exception are searched for, their earlier evidence is used instead, and inference runs again
(`decisions.publication.quarantine`). If no reporter is found, the HyperNodes are marked as stale, and
inference runs again after the next change or after a wait that doubles.
"""

import logging
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass

from hyperscout_runtime.errors import described
from hyperscout_runtime.units import rfc3339

from hyperscout_collector.decisions.publication.quarantine import (
    MAX_SET_ASIDE,
    Missing,
    Quarantine,
    find_culprits,
    new_retry,
)
from hyperscout_collector.evidence.snapshot import NO_EVIDENCE, Snapshot

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Failure:
    """Why the last topology stays published. `since_ns`: time of the first failure, Unix ns."""

    since_ns: int
    error: str

    def __str__(self) -> str:
        return f"inference has failed since {rfc3339(self.since_ns)}, the last topology stays: {self.error}"


class Failures:
    """The failures of inference. Times are Unix ns. Use it only on the event loop.

    `present`: why the last inference failed; None = it succeeded. `exceptions`: their number.
    """

    def __init__(self) -> None:
        self.present: Failure | None = None
        self.exceptions = 0
        self.quarantine = Quarantine()
        self._good: Snapshot | None = None  # the evidence of the last successful inference
        self._changed: set[str] = set()  # reporters whose evidence has changed since
        # The last inference: when it started, the changes that it used, and the reporters set aside in it.
        self._tried_ns = 0
        self._tried_changes: set[str] = set()
        self._held: frozenset[str] = frozenset()
        self._retry = new_retry()
        self._search = new_retry()

    def __str__(self) -> str:
        """The present failure; "" = there is none."""
        return str(self.present) if self.present is not None else ""

    @property
    def problems(self) -> list[str]:
        set_aside = [
            f"evidence of {reporter} is set aside, because inference raises with it: {error}"
            for reporter, error in self.quarantine.errors.items()
        ]
        return [str(self), *set_aside] if self.present is not None else set_aside

    @property
    def retry_ns(self) -> int | None:
        """When to infer again without a change; None = never."""
        due_ns = self.quarantine.next_due_ns
        if self.present is None:
            return due_ns
        # A reporter that was due before the last try waits for the next try.
        tries = self._retry.until_ns, due_ns if due_ns is not None and due_ns > self._tried_ns else None
        return min(t for t in tries if t is not None)

    def since_ns(self, now_ns: int) -> int:
        """When inference began to fail; `now_ns` if it does not fail."""
        return self.present.since_ns if self.present is not None else now_ns

    def changed(self, reporters: Iterable[str], reported: Collection[str]) -> None:
        """The evidence of `reporters` changed. `reported`: those with news, whose evidence is tried again."""
        self._changed.update(reporters)
        self.quarantine.reported(reported)

    def begin(self, current: Snapshot, now_ns: int) -> tuple[Snapshot, list[Missing]]:
        """An inference starts. Returns the evidence to use, and the reporters that are set aside."""
        self._tried_ns = now_ns
        self._tried_changes, self._changed = self._changed, set()
        self._held = self.quarantine.held(now_ns)
        evidence = self.earlier_of(self._held, current)
        if not self._held:
            return evidence, []
        used, errors = evidence.reporters, self.quarantine.errors
        return evidence, [Missing(x, errors[x], current.chassis_of(x), x in used) for x in sorted(self._held)]

    def earlier_of(self, reporters: Collection[str], current: Snapshot) -> Snapshot:
        """The evidence with the last good evidence of these reporters instead of their current evidence."""
        return current.with_earlier(reporters, self._good or NO_EVIDENCE)

    def succeeded(self, current: Snapshot, used: Snapshot | None, lacks: str) -> None:
        """Inference raised no exception.

        `used`: the evidence of the result; None = another topology replaces the result. `lacks`: why the last
        topology stays published, "" = it does not.
        """
        if self.quarantine:
            self.quarantine.keep(self._held & current.reporters)
        if lacks:
            self.keep_last(lacks, self._tried_ns)
        else:
            self.present, self._retry, self._search = None, new_retry(), new_retry()
        if used is not None:
            self._good = used
        else:
            self._changed |= self._tried_changes

    async def failed(
        self,
        error: Exception,
        current: Snapshot,
        error_without: Callable[[Collection[str]], Awaitable[str | None]],
        clock_ns: Callable[[], int],
    ) -> bool:
        """Inference raised. Sets reporters aside, and returns whether there are any.

        `error_without(reporters)` infers without the current evidence of these reporters, and returns the
        exception, or None. Suspects are the reporters whose evidence changed since the last successful
        inference, and those that were set aside before.
        """
        self._changed |= self._tried_changes
        self.raised(error, self._tried_ns)
        if self._tried_ns < self._search.until_ns:
            return False
        suspects = current.reporters - self._held
        if self._good is not None:
            suspects &= self._changed | self.quarantine.errors.keys()
        culprits = await find_culprits(
            sorted(suspects), lambda x: error_without(self._held.union(x)), MAX_SET_ASIDE - len(self._held)
        )
        found_ns = clock_ns()
        self._search.failed(found_ns)
        for reporter, cause in culprits.items():
            _log.error("evidence of %s is set aside: inference raises with it: %s", reporter, cause)
            self.quarantine.put(reporter, cause, found_ns)
        if not culprits:
            _log.error("no single reporter is found to be the cause")
        return bool(culprits)

    def raised(self, error: Exception, now_ns: int) -> None:
        """Inference or a decision raised an exception."""
        self.exceptions += 1
        self._tried_ns = max(self._tried_ns, now_ns)
        text = described(error)
        if self.present is None or self.present.error != text:
            _log.error("inference fails, and the last topology stays", exc_info=error)
        self.keep_last(text, now_ns)

    def keep_last(self, error: str, now_ns: int) -> None:
        """The last topology stays published."""
        self.present = Failure(self.since_ns(now_ns), error)
        self._retry.failed(now_ns)
