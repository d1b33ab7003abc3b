"""Leader election on a Lease of the API server: runs the state machine of `election`.

The Lease is a `coordination.k8s.io/v1` object with the fields that client-go writes, so `kubectl get lease`
shows the holder. An annotation contains the holder's address, for clients that reach another replica. Another
one contains the highest number of a generation that may have been used, so that no two leaders use one.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from random import Random
from typing import Any

from hyperscout_formats.text.leader import is_address
from hyperscout_runtime.clock import boottime_ns
from hyperscout_runtime.event_loops import Notices
from hyperscout_runtime.units import NS

from hyperscout_kubernetes.client import Fence, Kube, Object
from hyperscout_kubernetes.election import (
    MAX_DURATION_S,
    Election,
    Event,
    Lease,
    LeaseTimes,
    Look,
    Looked,
    Lost,
    Record,
    Refused,
    Sleep,
    Woke,
    Write,
    Wrote,
)
from hyperscout_kubernetes.errors import ConflictError, KubeError, NotFoundError, NotLeaderError
from hyperscout_kubernetes.paths import api_path

_log = logging.getLogger(__name__)

ADDRESS = "hyperscout.io/address"
GENERATION = "hyperscout.io/generation"
_AHEAD = 1000  # numbers of generations that a renewal reserves: far more than are published until the next
_MAX_GENERATION = 10**15 - 1  # another number in the annotation is of another client
_API = "coordination.k8s.io/v1"
_RELEASE_TIMEOUT_S = 2.0


def boottime() -> float:
    """Return monotonic seconds that include the time a machine is suspended."""
    return boottime_ns() / NS


def now_utc() -> datetime:
    return datetime.now(UTC)


class Elector:
    """A candidate for the Lease `namespace`/`name`. Run `run` as a task; call `release` after it has ended.

    `me` is a readable name, unique for each start of a process. `run` and `release` may run on another loop
    than the one that makes the elector and waits for changes. `highest()`: the highest number that this
    process gave to a generation. `log`: where the election is logged.

    Raises RejectedError: namespace or name is not a valid name.
    """

    def __init__(
        self,
        kube: Kube,
        namespace: str,
        name: str,
        *,
        me: str,
        address: str,
        times: LeaseTimes,
        rng: Random,
        highest: Callable[[], int] = lambda: 0,
        log: logging.Logger | None = None,
        clock: Callable[[], float] = boottime,
        now: Callable[[], datetime] = now_utc,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._changed = Notices()
        self.problem: str | None = None  # why the Lease cannot be read or written; None if it can
        self.used = 0  # numbers of generations up to it may have been used before this term
        self._election = Election(me, address, times, rng)
        self._kube = kube
        self._collection = api_path(_API, "leases", namespace=namespace)
        self._path = api_path(_API, "leases", name, namespace=namespace)
        self._meta = {"namespace": namespace, "name": name}
        self._clock = clock
        self._now = now
        self._highest = highest
        self._log = log or _log
        self._sleep = sleep
        self._told = (False, False)  # (leading, may write) as logged last
        self._object: Object | None = None  # as read last; a write preserves what others added

    # State, for the rest of the process

    @property
    def leading(self) -> bool:
        """Elected and not deposed. Stays True while the API server is unreachable; see `may_write`."""
        return self._election.leading

    @property
    def own_terms(self) -> int:
        return self._election.own_terms

    def transitions(self) -> int:
        """Number of changes of holder, as read last from the Lease."""
        return self._election.seen.record.transitions if self._election.seen is not None else 0

    @property
    def may_write(self) -> bool:
        return self.remaining_s() > 0

    def remaining_s(self) -> float:
        """Return the time that a write sent now may take, in seconds; 0 = nothing may be written."""
        election = self._election
        return max(0.0, election.write_until_s - self._clock()) if election.leading else 0.0

    @property
    def holder(self) -> str:
        """The holder of the Lease, as read last; "" = none."""
        return self._election.seen.record.holder if self._election.seen is not None else ""

    def leader_address(self) -> str:
        """Return the address of another replica that leads; "" if none is known."""
        record = self._election.leader(self._clock())
        return record.address if record is not None and is_address(record.address) else ""

    def fence(self) -> "LeaseFence":
        """Return a fence for the writes of the current term."""
        return LeaseFence(self._election, self._clock)

    async def until(self, happened: Callable[[], bool]) -> None:
        """Wait until `happened` returns True. It is asked when leadership, the permission to write or the
        known leader may have changed."""
        await self._changed.until(happened)

    # Tasks

    async def run(self) -> None:
        """Take part in the election until cancelled."""
        event: Event = Woke()
        while True:
            instruction = self._election.handle(event, self._clock())
            self._tell()
            self._changed.notify()
            match instruction:
                case Sleep(seconds):
                    await self._sleep(seconds)
                    event = Woke()
                case Look(timeout_s):
                    event = await self._look(timeout_s)
                case Write():
                    event = await self._write(instruction)

    async def release(self) -> None:
        """Release the Lease if this replica holds it. `run` and all writers must have ended."""
        self._election.leading = False
        try:
            # Read first: a renewal may have been in progress when `run` ended.
            found = await self._kube.get(self._path, timeout_s=_RELEASE_TIMEOUT_S)
            lease = self._read(found)
            record = self._election.released(lease)
            if record is not None:
                body = self._body(Write(record, lease.version, True, _RELEASE_TIMEOUT_S))
                await self._kube.write("PUT", self._path, body, timeout_s=_RELEASE_TIMEOUT_S)
                self._log.info("the lease is released")
        except KubeError as error:
            self._log.warning(
                "the lease is not released, and another replica takes it after it expires: %s", error
            )

    def _tell(self) -> None:
        led, wrote = self._told
        election = self._election
        self._told = (election.leading, self.may_write)
        if election.leading and not led:
            text = "elected, term %d of this replica, %d transitions of the lease: it leads as %s"
            self._log.info(text, election.own_terms, self.transitions(), election.me)
        elif led and not election.leading:
            record = election.seen.record if election.seen is not None else Record()
            self._log.warning("deposed: %s holds the lease", record.holder or "no replica")
        elif led and wrote and not self.may_write:
            self._log.warning("the lease could not be renewed: nothing is written until it is")
        elif led and self.may_write and not wrote:
            self._log.info("the lease is renewed: pending writes are sent")

    async def _look(self, timeout_s: float) -> Event:
        try:
            found = await self._kube.get(self._path, timeout_s=timeout_s)
        except NotFoundError:
            self._object = None
            return Looked(None)
        except KubeError as error:
            return self._failed(error)
        self._succeeded()
        return Looked(self._read(found))

    async def _write(self, write: Write) -> Event:
        body = self._body(write)
        try:
            if write.version is None:
                found = await self._kube.write("POST", self._collection, body, timeout_s=write.timeout_s)
            else:
                found = await self._kube.write("PUT", self._path, body, timeout_s=write.timeout_s)
        except (ConflictError, NotFoundError) as error:
            if isinstance(error, NotFoundError) and write.version is None:
                return self._failed(error)  # the namespace does not exist
            return Refused()
        except KubeError as error:
            return self._failed(error)
        self._succeeded()
        return Wrote(self._read(found))

    def _failed(self, error: KubeError) -> Event:
        if self.problem is None:
            self._log.warning("lease: %s", error)
        self.problem = str(error)
        return Lost()

    def _succeeded(self) -> None:
        if self.problem is not None:
            self._log.info("the lease can be read and written again")
            self.problem = None

    def _read(self, found: Object) -> Lease:
        self._object = found
        return Lease(record_of(found), str(found["metadata"].get("resourceVersion", "")))

    def _body(self, write: Write) -> Object:
        record, now = write.record, self._now().strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        metadata: Object = dict(self._meta)
        if write.version is not None and self._object is not None:
            metadata = {**self._object["metadata"], "resourceVersion": write.version}
            metadata.pop("managedFields", None)
        there: Object = metadata.get("annotations") or {}
        if write.acquires and record.holder:  # else it is released
            self.used = _generation(there)
        reserved = max(self.used, self._highest()) + (_AHEAD if record.holder else 0)
        reserved = min(reserved, _MAX_GENERATION)
        metadata["annotations"] = {**there, ADDRESS: record.address, GENERATION: str(reserved)}
        return {
            "apiVersion": _API,
            "kind": "Lease",
            "metadata": metadata,
            "spec": {
                "holderIdentity": record.holder,
                "leaseDurationSeconds": record.duration_s,
                "leaseTransitions": record.transitions,
                "acquireTime": now if write.acquires or not record.acquired else record.acquired,
                "renewTime": now,
            },
        }


class LeaseFence(Fence):
    """Permits writes in one term only, and only while this replica certainly holds the Lease."""

    def __init__(self, election: Election, clock: Callable[[], float]) -> None:
        self._election = election
        self._clock = clock
        self._term = election.own_terms

    def remaining_s(self) -> float:
        election = self._election
        if not election.leading or election.own_terms != self._term:
            raise NotLeaderError("another replica may lead now: nothing is written")
        left_s = election.write_until_s - self._clock()
        if left_s <= 0:
            raise NotLeaderError("the lease could not be renewed: nothing is written until it is")
        return left_s


def record_of(found: Object) -> Record:
    """Return the content of a Lease object. Any client may have written it: invalid fields are ignored."""
    spec = found.get("spec") or {}
    annotations = found["metadata"].get("annotations") or {}
    return Record(
        _text(spec.get("holderIdentity")),
        min(_number(spec.get("leaseDurationSeconds")), MAX_DURATION_S),
        _number(spec.get("leaseTransitions")),
        _text(spec.get("acquireTime")),
        _text(spec.get("renewTime")),
        _text(annotations.get(ADDRESS))[:256],
    )


def _generation(annotations: Object) -> int:
    text = _text(annotations.get(GENERATION))
    is_number = text.isascii() and text.isdecimal() and len(text) <= len(str(_MAX_GENERATION))
    return int(text) if is_number else 0


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _number(value: Any) -> int:
    return value if isinstance(value, int) else 0
