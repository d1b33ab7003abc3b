"""Sets aside the evidence of reporters with which inference raises, and finds these reporters.

A reporter stays set aside until it reports something new, or for `MAX_RETRY_S`; then its evidence is tried
again. The wait doubles after each unsuccessful try.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from hyperscout_runtime.backoff import Backoff, RetryTime
from hyperscout_runtime.units import NS
from hyperscout_topology.link_changes import unreported_devices
from hyperscout_topology.topology import Anomaly, Endpoint, Topology

KIND = "EvidenceSetAside"
MAX_SET_ASIDE = 16  # reporters at one time; more failures than that are a defect of inference itself
RETRY_S = 30.0
MAX_RETRY_S = 3600.0
_LOSSES = ("MissingLink", "MissingSwitch")


def new_retry() -> RetryTime:
    """Return the retry time of an inference or a reporter: its wait doubles up to `MAX_RETRY_S`."""
    return RetryTime(Backoff(RETRY_S, MAX_RETRY_S))


@dataclass(slots=True)
class _SetAside:
    error: str
    latest_ns: int  # when it is tried again without a new report
    retry: RetryTime
    has_news: bool = False

    @property
    def due_ns(self) -> int:
        return self.retry.until_ns if self.has_news else self.latest_ns


class Quarantine:
    """The reporters that are set aside. Times are Unix ns."""

    def __init__(self) -> None:
        self._set_aside: dict[str, _SetAside] = {}

    def __len__(self) -> int:
        return len(self._set_aside)

    @property
    def errors(self) -> Mapping[str, str]:
        """The exception that each reporter's evidence causes."""
        return {reporter: one.error for reporter, one in sorted(self._set_aside.items())}

    @property
    def next_due_ns(self) -> int | None:
        """When the evidence of a reporter is tried again; None = never."""
        return min((one.due_ns for one in self._set_aside.values()), default=None)

    def held(self, now_ns: int) -> frozenset[str]:
        """The reporters that stay set aside now. The others are tried again."""
        return frozenset(reporter for reporter, one in self._set_aside.items() if one.due_ns > now_ns)

    def put(self, reporter: str, error: str, now_ns: int) -> None:
        """Set a reporter aside. The wait is longer than the last time if its evidence was tried again."""
        before = self._set_aside.get(reporter)
        retry = before.retry if before is not None else new_retry()
        retry.failed(now_ns)
        self._set_aside[reporter] = _SetAside(error, now_ns + round(MAX_RETRY_S * NS), retry)

    def reported(self, reporters: Collection[str]) -> None:
        """Record that these reporters have reported something new."""
        for reporter in self._set_aside.keys() & reporters:
            self._set_aside[reporter].has_news = True

    def keep(self, reporters: Collection[str]) -> None:
        """Release all others: inference works with them, or they have no evidence any more."""
        self._set_aside = {name: one for name, one in self._set_aside.items() if name in reporters}


async def find_culprits(
    suspects: Sequence[str], error_without: Callable[[Collection[str]], Awaitable[str | None]], most: int
) -> dict[str, str]:
    """Returns the reporters to leave out so that inference works, with the exception that each causes.

    `error_without(reporters)` infers without their evidence, and returns the exception, or None. It is called
    at most ceil(log2(suspects)) + 2 times a culprit, and 2 times more. Empty: inference works after all, it
    raises without any of the suspects too, or there are more than `most` culprits.
    """
    found: dict[str, str] = {}
    error = await error_without(())
    if error is None or not suspects or await error_without(suspects) is not None:
        return found
    works = 0
    while error is not None:
        # Inference works with the first `works` suspects, and raises with the first `raises`.
        raises = len(suspects)
        if works == raises or len(found) == most:
            return {}  # inference is not deterministic, or there are too many culprits
        while raises - works > 1:
            middle = (works + raises) // 2
            seen = await error_without((*found, *suspects[middle:]))
            if seen is None:
                works = middle
            else:
                raises, error = middle, seen
        found[suspects[raises - 1]] = error
        works = raises
        error = await error_without(tuple(found))
    for reporter in list(found) if len(found) > 1 else ():
        # With a part of the evidence inference may raise for another reason.
        if await error_without([other for other in found if other != reporter]) is None:
            del found[reporter]
    return found


@dataclass(frozen=True, slots=True)
class Missing:
    """A reporter that is set aside. `devices`: ids of the switches that it reports as itself.

    `has_earlier`: its evidence from before is used.
    """

    reporter: str
    error: str
    devices: frozenset[str]
    has_earlier: bool

    def is_at(self, end: Endpoint) -> bool:
        """Whether an end is on the reporter."""
        return end.device in self.devices or self.reporter in (end.device, end.name)


def marked(topology: Topology, missing: Sequence[Missing], published: Topology | None) -> Topology:
    """Returns the topology with an anomaly for each reporter that is set aside.

    A cable of a reporter without earlier evidence is not seen. It is reported as missing only if it was
    before.
    """
    if not missing:
        return topology
    unseen = [x for x in missing if not x.has_earlier]
    before = {x.key for x in published.anomalies} if published is not None else set()

    def is_unseen(x: Anomaly) -> bool:
        ends = [end for end in (x.subject, x.peer) if end is not None]
        return x.kind in _LOSSES and x.key not in before and any(m.is_at(end) for m in unseen for end in ends)

    kept = [x for x in topology.anomalies if not is_unseen(x)]
    kept += [_anomaly(topology, one) for one in missing]
    return replace(topology, anomalies=tuple(sorted(kept, key=lambda x: (x.key, x.message))))


def why_lacking(topology: Topology, missing: Sequence[Missing], published: Topology) -> str:
    """Returns why the published topology stays: without these reporters some of its switches are not seen."""
    unseen = [x.reporter for x in missing if not x.has_earlier]
    if not unseen:
        return ""
    seen = {s.id for s in topology.switches} - unreported_devices(topology.links)
    lost = {s.id for s in published.switches} - seen
    if not lost:
        return ""
    return f"without the evidence of {', '.join(unseen)}, {len(lost)} published switches are not seen"


def _anomaly(topology: Topology, missing: Missing) -> Anomaly:
    home = next(
        (
            h
            for h in topology.hypernodes  # by tier
            if missing.reporter in h.nodes or not missing.devices.isdisjoint(h.switches)
        ),
        None,
    )
    reporter = missing.reporter
    used = "its earlier evidence is used" if missing.has_earlier else "none of it is used"
    return Anomaly(
        KIND,
        Endpoint(min(missing.devices, default=reporter), reporter),
        None,
        home.tier if home else None,
        (),
        1.0,
        f"evidence of {reporter} is set aside, because inference raises with it ({missing.error}): {used}",
        home.name if home else None,
    )
