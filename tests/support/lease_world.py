"""An API server that keeps one Lease and fails on request, and candidates for it in fake time."""

import asyncio
import itertools
from collections.abc import Mapping
from datetime import UTC, datetime
from random import Random
from typing import Any, cast

from hyperscout_kubernetes.client import Kube, Object
from hyperscout_kubernetes.election import LeaseTimes
from hyperscout_kubernetes.errors import ConflictError, KubeError, NotFoundError
from hyperscout_kubernetes.lease import GENERATION, Elector

from support.fake_time import FakeTime


class FakeLeaseApi:
    """A Lease with a resource version. `error` is raised by every request while it is set."""

    def __init__(self) -> None:
        self.lease: Object | None = None
        self.error: KubeError | None = None
        self.asked: list[str] = []
        self._versions = itertools.count(1)

    async def get(
        self, path: str, query: Mapping[str, Any] | None = None, *, timeout_s: float = 10.0
    ) -> Object:
        self._ask("GET", path)
        if self.lease is None:
            raise NotFoundError("no such lease")
        return self.lease

    async def write(self, method: str, path: str, body: Object, *, timeout_s: float = 10.0) -> Object:
        self._ask(method, path)
        here = self.lease["metadata"]["resourceVersion"] if self.lease is not None else None
        if body["metadata"].get("resourceVersion") != here:
            raise ConflictError("the object has been modified")
        self.put(body)
        assert self.lease is not None
        return self.lease

    def put(self, body: Object) -> None:
        metadata = {**body["metadata"], "resourceVersion": str(next(self._versions))}
        self.lease = {**body, "metadata": metadata}

    def _ask(self, method: str, path: str) -> None:
        self.asked.append(method)
        if self.error is not None:
            raise self.error


class LeaseWorld:
    """Candidates for one Lease, in fake time."""

    def __init__(self, time: FakeTime | None = None) -> None:
        self.time = time or FakeTime()
        self.api = FakeLeaseApi()
        self.tasks: list[asyncio.Task[None]] = []
        self.highest: dict[str, int] = {}  # number of each candidate's last generation

    def reserved(self) -> int:
        assert self.api.lease is not None
        return int(self.api.lease["metadata"]["annotations"][GENERATION])

    def candidate(self, name: str, *, runs: bool = True) -> Elector:
        async def sleep(delay_s: float) -> None:
            await self.time.wait(asyncio.Event(), delay_s)

        elector = Elector(
            cast(Kube, self.api),
            "ns",
            "lease",
            me=f"{name}_0",
            address=f"{name}:50051",
            times=LeaseTimes(),
            rng=Random(name),
            highest=lambda: self.highest.get(name, 0),
            clock=self.time.clock,
            now=lambda: datetime.fromtimestamp(self.time.now_s, UTC),
            sleep=sleep,
        )
        if runs:
            self.tasks.append(asyncio.create_task(elector.run()))
        return elector

    async def end(self, at: int) -> None:
        self.tasks[at].cancel()
        await asyncio.gather(self.tasks[at], return_exceptions=True)

    async def __aenter__(self) -> "LeaseWorld":
        return self

    async def __aexit__(self, *_: object) -> None:
        for at in range(len(self.tasks)):
            await self.end(at)
