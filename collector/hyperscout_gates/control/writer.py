"""Writes of gangs to the API server: stores and deletes plans, opens gates, deletes pods.

Up to `_AT_ONCE` requests run in parallel, which keeps the server busy. They start in the order of arrival.
Each request produces one event, whatever its outcome.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping

from hyperscout_kubernetes.client import MANAGER, STRATEGIC, Kube, Object
from hyperscout_kubernetes.errors import (
    ConflictError,
    ForbiddenError,
    KubeError,
    NotFoundError,
    RejectedError,
)
from hyperscout_kubernetes.paths import api_path
from hyperscout_placer.book.placements import Placements
from hyperscout_placer.book.reservation import NotReadyError

from hyperscout_gates.control.gang_record import GangRecord
from hyperscout_gates.control.pods import deletion, labels_at, opening, path_of
from hyperscout_gates.state import events as e
from hyperscout_gates.state.gang_plan import SELECTOR, GangPlan, PlanError, from_object, name_of, to_object

_log = logging.getLogger(__name__)

_AT_ONCE = 32
_TIMEOUT_S = 10.0
_SHOWN = 5
_RETRY_S = 2.0

Write = e.StorePlan | e.DeletePlan | e.Open | e.DeletePod


class GangWriter:
    """Executes writes. `answer(record, event)` receives each outcome, `learn` each patched pod.

    `labelled_by`: pods get labels with the domains of their nodes in this; None = no labels.
    """

    def __init__(
        self,
        kube: Kube,
        namespace: str,
        answer: Callable[[GangRecord, e.Event], None],
        learn: Callable[[Object], None],
        clock_ns: Callable[[], int],
        labelled_by: Placements | None = None,
    ) -> None:
        self.problem: str | None = None
        self._kube = kube
        self._namespace = namespace
        self._plans = api_path("v1", "configmaps", namespace=namespace)
        self._answer = answer
        self._learn = learn
        self._clock_ns = clock_ns
        self._labelled_by = labelled_by
        self._waiting: asyncio.Queue[tuple[GangRecord, Write]] = asyncio.Queue()
        self._stored: set[str] = set()  # names of existing ConfigMaps

    async def stored_plans(self) -> list[GangPlan]:
        """Return the stored plans as soon as the API server does. `problem`: why it does not yet."""
        while True:
            try:
                plans = await self.plans()
            except KubeError as error:
                problem = f"stored plans of gangs cannot be read, and no gate opens: {error}"
                if self.problem is None:
                    _log.warning("%s", problem)
                self.problem = problem
                await asyncio.sleep(max(_RETRY_S, error.retry_after_s))
            else:
                self.problem = None
                if plans:
                    _log.info("%d stored plans of gangs", len(plans))
                return plans

    async def plans(self) -> list[GangPlan]:
        """Return the stored plans. Invalid ones are logged and skipped. Raises KubeError."""
        found: list[GangPlan] = []
        problems: list[str] = []
        objects, _ = await self._kube.list(self._plans, {"labelSelector": SELECTOR})
        for stored in objects:
            self._stored.add(stored["metadata"]["name"])
            try:
                found.append(from_object(stored))
            except PlanError as error:
                problems.append(f"{stored['metadata']['name']}: {error}")
        for problem in problems[:_SHOWN]:
            _log.warning("ConfigMap %s/%s: skipped", self._namespace, problem)
        if len(problems) > _SHOWN:
            _log.warning("... and %d more", len(problems) - _SHOWN)
        return found

    def put(self, record: GangRecord, write: Write) -> None:
        self._waiting.put_nowait((record, write))

    async def run(self) -> None:
        """Execute writes until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(_AT_ONCE):
                group.create_task(self._write_all())

    async def _write_all(self) -> None:
        while True:
            record, write = await self._waiting.get()
            try:
                answer = await self._write(record, write)
            except KubeError as error:
                answer = _failed(write, error)
            except Exception as error:
                _log.exception("%s: a write fails", record.machine.key)
                answer = _failed(write, error)
            self._answer(record, answer)

    async def _write(self, record: GangRecord, write: Write) -> e.Event:
        if isinstance(write, e.StorePlan):
            return await self._store(write.plan)
        if isinstance(write, e.DeletePlan):
            await self._delete_plan(name_of(record.machine.key, record.machine.uid))
            return e.PlanDeleted()
        uid = write.pod.uid
        if isinstance(write, e.Open):
            kept = record.pods.get(uid)
            if kept is None:
                return e.NotOpened(uid, "it is gone")
            body = opening(kept, write, self._clock_ns(), self._labels_at(write.node))
            query = {"fieldManager": MANAGER}
            found = await self._kube.write(
                "PATCH", path_of(write.pod), body, content=STRATEGIC, query=query, timeout_s=_TIMEOUT_S
            )
            if uid in record.pods:  # otherwise the watch has reported its deletion
                self._learn(found)
            return e.Opened(uid)
        await self._kube.write("DELETE", path_of(write.pod), deletion(write.pod), timeout_s=_TIMEOUT_S)
        return e.PodDeleted(uid)

    def _labels_at(self, node: str) -> Mapping[str, str]:
        if self._labelled_by is None:
            return {}
        try:
            return labels_at(self._labelled_by.capacity.forest, node)
        except NotReadyError:  # after a restart the plan may be known before the topology
            return {}

    async def _store(self, plan: GangPlan) -> e.Event:
        try:
            body = to_object(plan, self._namespace)
        except PlanError as error:
            return e.PlanNotStored(str(error), rejected=True)
        name = body["metadata"]["name"]
        if name not in self._stored:
            try:
                await self._kube.write("POST", self._plans, body, timeout_s=_TIMEOUT_S)
            except ConflictError:
                _log.debug("%s is there already", name)  # an earlier request succeeded without a response
            else:
                self._stored.add(name)
                return e.PlanStored(plan)
        try:
            await self._kube.write("PUT", self._path_of(name), body, timeout_s=_TIMEOUT_S)
        except NotFoundError:
            self._stored.discard(name)  # it was deleted; the next try creates it again
            raise
        self._stored.add(name)
        return e.PlanStored(plan)

    def _path_of(self, name: str) -> str:
        return api_path("v1", "configmaps", name, namespace=self._namespace)

    async def _delete_plan(self, name: str) -> None:
        with contextlib.suppress(NotFoundError):
            await self._kube.write("DELETE", self._path_of(name), {}, timeout_s=_TIMEOUT_S)
        self._stored.discard(name)


def _failed(write: Write, error: Exception) -> e.Event:
    problem = str(error)
    if isinstance(write, e.StorePlan):
        return e.PlanNotStored(problem, rejected=isinstance(error, RejectedError))
    if isinstance(write, e.DeletePlan):
        return e.PlanNotDeleted(problem)
    if isinstance(write, e.Open):
        refused = isinstance(error, RejectedError | ForbiddenError)  # also by an admission policy
        return e.NotOpened(write.pod.uid, problem, rejected=refused)
    if isinstance(error, NotFoundError):
        return e.PodDeleted(write.pod.uid)
    return e.PodNotDeleted(write.pod.uid, problem)
