"""Writes a tree of HyperNodes in safe steps from `plan` until the cluster matches it.

A refused step does not block others: the writer reads the object again and plans the rest again. If another
client keeps undoing a write, or a webhook changes it, corrections are delayed and the client is reported.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace

from hyperscout_kubernetes.client import APPLY, MANAGER, Kube, Object
from hyperscout_kubernetes.errors import (
    ConflictError,
    ForbiddenError,
    KubeError,
    NotFoundError,
    NotLeaderError,
    UnreachableError,
)
from hyperscout_kubernetes.event_recorder import EventRecorder
from hyperscout_kubernetes.reflector import Reflector

from hyperscout_publish.hypernodes.fights import Fights
from hyperscout_publish.hypernodes.objects import body_of, path_of, reference
from hyperscout_publish.hypernodes.plan import (
    Create,
    Delete,
    LetGo,
    Present,
    Update,
    Write,
    as_it_settles,
    name_of,
    next_writes,
)
from hyperscout_publish.hypernodes.wanted import Wanted
from hyperscout_publish.publisher.base import PublishError

_log = logging.getLogger(__name__)

_AT_ONCE = 8  # requests
# Pause after a parent loses a child. A reader processes changes with a delay and may see two quick changes in
# the wrong order.
_PAUSE_S = 0.2
_MAX_SURPRISES = 5  # conflicts of one object within one call
_NOT_KEPT = "repeated writes did not persist: check whether an admission webhook changes it"
_CRD_IS_DELETED = "custom resource definition is terminating"  # the API server's message
NO_CRD = "; is the CRD installed? `hyperscout crd show | kubectl apply -f -`"


class TreeWriter:
    """Writes trees. The owner of `hypernodes` keeps `present` up to date. `timer`: monotonic seconds.

    `wake` is called when a delayed correction is due.
    """

    def __init__(
        self,
        kube: Kube,
        hypernodes: Reflector,
        present: Mapping[str, Present],
        events: EventRecorder,
        *,
        timer: Callable[[], float],
        wake: Callable[[], None],
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        self._kube = kube
        self._hypernodes = hypernodes
        self._present = present
        self._events = events
        self._timer = timer
        self._wake = wake
        self._sleep = sleep
        self._written: dict[str, Wanted] = {}  # HyperNodes that matched `wanted` once
        self._fights = Fights()
        self._lacking: tuple[str, ...] = ()  # fields of the spec that the CRD lacks

    async def write(self, tree: Mapping[str, Wanted]) -> list[str]:
        """Return descriptions of failures. Raises PublishError if further writes are pointless."""
        trouble: dict[str, str] = {}
        surprises: Counter[str] = Counter()
        sent: Counter[Write] = Counter()
        released = False
        while True:
            seen = dict(self._present)
            plan = next_writes(seen, as_it_settles(self._known(tree), seen), trouble)
            if not plan.writes:
                break
            trouble |= {name_of(w): _NOT_KEPT for w in plan.writes if sent[w] >= _MAX_SURPRISES}
            trouble |= self._delayed(w for w in plan.writes if name_of(w) not in trouble)
            writes = [w for w in plan.writes if name_of(w) not in trouble]
            if not writes:
                continue
            sent.update(writes)
            if released:
                await self._sleep(_PAUSE_S)
            released = any(isinstance(write, LetGo | Update) for write in writes)
            edited = {name_of(w): self._hypernodes.get(name_of(w)) for w in writes if self._is_revert(w)}
            for write, error in zip(writes, await all_of(self._write(w, seen) for w in writes), strict=True):
                if isinstance(error, ConflictError):
                    surprises[name_of(write)] += 1  # the object has been read again; plan again
                if error is None and name_of(write) in edited:
                    self._report_revert(name_of(write), edited[name_of(write)])
                if error is not None and _means_no_crd(error):
                    self._written.clear()  # their deletion is no edit of another client
                    raise PublishError(f"the API server takes no HyperNodes{NO_CRD}") from error
                if error is not None and surprises[name_of(write)] in (0, _MAX_SURPRISES):
                    trouble[name_of(write)] = failure(error)
        for w in as_it_settles(tree, self._present).values():
            if w.name not in plan.stuck and w.name not in trouble:
                self._written[w.name] = w
        for name in self._written.keys() - tree.keys():
            del self._written[name]
        return [f"{name}: {why}" for name, why in sorted((dict(plan.stuck) | trouble).items())]

    def _known(self, tree: Mapping[str, Wanted]) -> Mapping[str, Wanted]:
        """Return the tree without fields that the CRD lacks."""
        if "tierName" not in self._lacking:
            return tree
        return {name: replace(w, tier_name="") for name, w in tree.items()}

    def _is_revert(self, write: Write) -> bool:
        """Return whether the write undoes a change of another client."""
        return isinstance(write, Update | Create) and self._written.get(name_of(write)) == write.wanted

    def _delayed(self, writes: Iterable[Write]) -> dict[str, str]:
        """Return the HyperNodes that another client changes repeatedly, and are corrected later, with
        reasons."""
        held: dict[str, str] = {}
        for name in map(name_of, filter(self._is_revert, writes)):
            if wait_s := self._fights.wait_s(name, self._timer()):
                asyncio.get_running_loop().call_later(wait_s, self._wake)
                editor = _editor(self._hypernodes.get(name))
                held[name] = f"{editor} changes it repeatedly; the next correction is in {wait_s:.0f} s"
        return held

    def _report_revert(self, name: str, found: Object | None) -> None:
        """`found`: what was there before the correction; None = it was deleted."""
        self._fights.corrected(name, self._timer())
        did = "deleted" if found is None else "changed"
        message = f"{_editor(found)} {did} it; the publisher restored the discovered state"
        _log.warning("HyperNode %s: %s", name, message)
        self._events.record(reference(name, found), "Warning", "Reverted", message)

    async def _write(self, write: Write, seen: Mapping[str, Present]) -> None:
        name = name_of(write)
        if self._present.get(name) != seen.get(name):
            raise ConflictError("it has changed since it was read")  # the owner may have changed
        found = self._hypernodes.get(name)
        if isinstance(write, Delete):
            await self._delete(name, found)
            return
        body = body_of(write, self._present.get(name), found, self._lacking)
        force = not isinstance(write, Create)  # do not take over an object that another client just created
        query = {"fieldManager": MANAGER, "force": str(force).lower()}
        try:
            answer = await self._kube.write("PATCH", path_of(name), body, content=APPLY, query=query)
        except ConflictError:
            await self.look_at(name)
            raise
        except KubeError as error:  # the server reports this as an internal error
            if "tierName" in str(error) and "not declared in schema" in str(error):
                self._lacking = ("tierName",)
                raise ConflictError("the installed CRD is an older version without spec.tierName") from error
            raise
        self._hypernodes.learn(answer)

    async def _delete(self, name: str, found: Object | None) -> None:
        if found is None:
            return
        try:
            left = await self._kube.delete(path_of(name), found["metadata"])
            if (left.get("metadata") or {}).get("finalizers"):
                self._hypernodes.learn(left)  # it stays until its finalizers are removed
                return
        except NotFoundError:
            pass
        except ConflictError:
            await self.look_at(name)
            raise
        self._hypernodes.forget(name)

    async def look_at(self, name: str) -> None:
        """Read a HyperNode from the server, because the watch may lag behind."""
        try:
            self._hypernodes.learn(await self._kube.get(path_of(name)))
        except NotFoundError:
            self._hypernodes.forget(name)


def _editor(found: Object | None) -> str:
    return (found or {}).get("editor") or "another client"


def _means_no_crd(error: KubeError) -> bool:
    """Return whether an apply failed because the CRD is missing or is being deleted.

    An apply creates a HyperNode that is missing, so status 404 concerns the resource.
    """
    if isinstance(error, ForbiddenError):
        return _CRD_IS_DELETED in str(error)
    return isinstance(error, NotFoundError)


def failure(error: KubeError) -> str:
    """Return the description of one refused write. Raises PublishError if further writes are pointless."""
    if isinstance(error, UnreachableError | NotLeaderError):
        raise PublishError(str(error)) from error
    return f"{error}{NO_CRD if isinstance(error, NotFoundError) else ''}"


async def all_of(work: Iterable[Awaitable[None]]) -> list[KubeError | None]:
    """Run up to `_AT_ONCE` tasks in parallel. Returns the KubeError of each, or None, in order."""
    turn = asyncio.Semaphore(_AT_ONCE)

    async def one(what: Awaitable[None]) -> KubeError | None:
        async with turn:
            try:
                await what
            except KubeError as error:
                return error
        return None

    return await asyncio.gather(*map(one, work))
