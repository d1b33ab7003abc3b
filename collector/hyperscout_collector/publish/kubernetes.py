"""HyperNodes in a cluster: what is published there is what was discovered, and nobody else's is touched.

Each call compares the topology with the HyperNodes that a watch keeps in memory, and writes what differs:
first the tree, in an order that is safe for its readers (`plan`), then conditions. A steady state writes
nothing. The watch wakes it when somebody changes a HyperNode, or when the API server is back.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from random import Random
from typing import Any

from hyperscout_collector.kube.client import APPLY, MANAGER, Kube, Object
from hyperscout_collector.kube.errors import (
    ConflictError,
    KubeError,
    NotFoundError,
    NotLeaderError,
    UnreachableError,
)
from hyperscout_collector.kube.nodes import Nodes
from hyperscout_collector.kube.reflector import Reflector
from hyperscout_collector.publish.base import PublishError, nobody
from hyperscout_collector.publish.checks import broken_rules
from hyperscout_collector.publish.fights import Fights
from hyperscout_collector.publish.hypernode_objects import (
    COLLECTION,
    OURS,
    Flip,
    body_of,
    differences,
    kept,
    merged,
    path_of,
    status_body,
)
from hyperscout_collector.publish.kubernetes_events import Events, Severity
from hyperscout_collector.publish.overlap import overlaps
from hyperscout_collector.publish.plan import (
    Create,
    Delete,
    LetGo,
    Present,
    Update,
    Write,
    is_ours,
    next_writes,
    present,
)
from hyperscout_collector.publish.wanted import Wanted, wanted
from hyperscout_collector.topology import Topology

_log = logging.getLogger(__name__)

_AT_ONCE = 8  # requests
_SYNC_TIMEOUT_S = 10.0
# Between a parent's letting go of a child and what comes after: a reader takes its time too, and one that
# sees both at once may see them in the wrong order.
_PAUSE_S = 0.2
_MAX_SURPRISES = 5  # about one object, within one call
_MAX_TROUBLE = 3  # named in one problem
_NOT_KEPT = "it is not as it was written, time and again: does an admission webhook change it?"
_NO_CRD = "; is the CRD installed? `hyperscout crd show | kubectl apply -f -`"


class KubernetesPublisher:
    """`run` as a task beside the runner's. `say`: print what would be done, and do nothing (a dry run).

    `foreign` is told that a HyperNode which is not ours came, changed or went. `clock_ns`: Unix ns;
    `timer`: monotonic seconds.
    """

    name = "kubernetes"
    wake: Callable[[], None] = staticmethod(nobody)

    def __init__(
        self,
        kube: Kube,
        nodes: Nodes,
        *,
        rng: Random,
        foreign: Callable[[], None] = nobody,
        clock_ns: Callable[[], int],
        timer: Callable[[], float],
        say: Callable[[str], None] | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.hypernodes = Reflector(
            kube,
            COLLECTION,
            keep=kept,
            changed=self._changed,
            followed=self._recovered,
            rng=rng,
        )
        self.events = Events(kube, clock_ns=clock_ns)
        self._kube = kube
        self._nodes = nodes
        self._clock_ns = clock_ns
        self._timer = timer
        self._say = say
        self._sleep = sleep
        self._foreign = foreign
        self._said = ""
        self._there: dict[str, Present] = {}
        self._tree: tuple[Wanted, ...] = ()  # the last one that kept all rules
        self._written: dict[str, Wanted] = {}  # what was once made as wanted
        self._fights = Fights()
        self._lacking: tuple[str, ...] = ()  # fields of the spec that the CRD does not know
        self._announced: frozenset[tuple[str, ...]] = frozenset()

    @property
    def others(self) -> bool:
        """Whether there are HyperNodes that are not ours."""
        return any(not p.ours for p in self._there.values())

    async def run(self) -> None:
        """Follow HyperNodes and post Events until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.hypernodes.run(), name="hypernode-watch")
            group.create_task(self.events.run(), name="hypernode-events")

    async def publish(self, topology: Topology) -> None:
        """Make the cluster's HyperNodes agree. Raises PublishError."""
        await self._synced()
        labels = {node["metadata"]["name"]: node["metadata"]["labels"] for node in self._nodes}
        # In a thread: hundreds of selectors over thousands of nodes take longer than a lease.
        found = await asyncio.to_thread(overlaps, topology.hypernodes, tuple(self.hypernodes), labels)
        tree = self._checked(topology, found.blocked)
        if self._say is not None:
            self._rehearse(tree, topology.generation)
            return
        self._announce((x.hypernode or "", x.message) for x in found.anomalies)
        trouble = await self._write_tree({w.name: w for w in tree})
        trouble += await self._write_conditions(tree)
        if trouble:
            more = f" and {len(trouble) - _MAX_TROUBLE} more" if len(trouble) > _MAX_TROUBLE else ""
            raise PublishError("; ".join(trouble[:_MAX_TROUBLE]) + more)

    async def _synced(self) -> None:
        try:
            async with asyncio.timeout(_SYNC_TIMEOUT_S):
                await self.hypernodes.synced.wait()
                await self._nodes.reflector.synced.wait()
        except TimeoutError as error:
            why = self.hypernodes.problem or self._nodes.reflector.problem or "no answer yet"
            hint = _NO_CRD if "status 404" in why else ""
            raise PublishError(f"the cluster's HyperNodes are not known: {why}{hint}") from error

    def _checked(self, topology: Topology, blocked: frozenset[str]) -> tuple[Wanted, ...]:
        whole = tuple(wanted(topology))
        if whole != self._tree:
            if broken := list(broken_rules(whole)):
                message = (
                    f"generation {topology.generation} is not published: {'; '.join(broken[:_MAX_TROUBLE])}"
                )
                raise PublishError(f"{message} (a defect of ours: please report it)", retry=False)
            self._tree = whole
        return tuple(wanted(topology, blocked)) if blocked else whole

    # The tree

    async def _write_tree(self, tree: Mapping[str, Wanted]) -> list[str]:
        """Returns what could not be done. Raises PublishError when it is no use to go on."""
        trouble: dict[str, str] = {}
        surprises: Counter[str] = Counter()
        sent: Counter[Write] = Counter()
        released = False
        while True:
            seen = dict(self._there)
            plan = next_writes(seen, self._known(tree), trouble)
            if not plan.writes:
                break
            trouble |= {_target(w): _NOT_KEPT for w in plan.writes if sent[w] >= _MAX_SURPRISES}
            trouble |= self._reverts(w for w in plan.writes if _target(w) not in trouble)
            writes = [w for w in plan.writes if _target(w) not in trouble]
            if not writes:
                continue
            sent.update(writes)
            if released:
                await self._sleep(_PAUSE_S)
            released = any(isinstance(write, LetGo | Update) for write in writes)
            for write, error in zip(writes, await _all(self._write(w, seen) for w in writes), strict=True):
                if isinstance(error, ConflictError):
                    surprises[_target(write)] += 1  # what there is now has been looked at: plan anew
                if error is not None and surprises[_target(write)] in (0, _MAX_SURPRISES):
                    trouble[_target(write)] = self._failed(error)
        for w in tree.values():
            if w.name not in plan.stuck and w.name not in trouble:
                self._written[w.name] = w
        for name in self._written.keys() - tree.keys():
            del self._written[name]
        return [f"{name}: {why}" for name, why in sorted((dict(plan.stuck) | trouble).items())]

    def _known(self, tree: Mapping[str, Wanted]) -> Mapping[str, Wanted]:
        """The tree without what the CRD cannot hold."""
        if "tierName" not in self._lacking:
            return tree
        bare = (Wanted(w.name, w.tier, "", w.children, w.nodes, w.count, w.conditions) for w in tree.values())
        return {w.name: w for w in bare}

    def _reverts(self, writes: Iterable[Write]) -> dict[str, str]:
        """Writes that put right what somebody else changed: said, and held back where it is a fight."""
        held: dict[str, str] = {}
        for write in writes:
            if not isinstance(write, Update | Create) or self._written.get(write.wanted.name) != write.wanted:
                continue
            name, now_s = write.wanted.name, self._timer()
            found = self.hypernodes.get(name)
            who = (found or {}).get("editor") or "somebody"
            if wait_s := self._fights.wait_s(name, now_s):
                asyncio.get_running_loop().call_later(wait_s, self.wake)
                held[name] = f"{who} keeps changing it; it is put right again in {wait_s:.0f} s"
                continue
            self._fights.corrected(name, now_s)
            did = "deleted" if found is None else "changed"
            message = f"{who} {did} it by hand; it is made as discovered again"
            _log.warning("HyperNode %s: %s", name, message)
            self.events.say(
                name, (found or {}).get("metadata", {}).get("uid", ""), "Warning", "Reverted", message
            )
        return held

    async def _write(self, write: Write, seen: Mapping[str, Present]) -> None:
        name = _target(write)
        if self._there.get(name) != seen.get(name):
            raise ConflictError("it has changed since it was looked at")  # it may be somebody else's now
        found = self.hypernodes.get(name)
        if isinstance(write, Delete):
            await self._delete(name, found)
            return
        body = body_of(write, self._there.get(name), found, self._lacking)
        force = not isinstance(write, Create)  # a stranger's that came meanwhile is left as it is
        query = {"fieldManager": MANAGER, "force": str(force).lower()}
        try:
            answer = await self._kube.write("PATCH", path_of(name), body, content=APPLY, query=query)
        except ConflictError:
            await self._look_at(name)
            raise
        except KubeError as error:  # the server calls it an internal error
            if "tierName" in str(error) and "not declared in schema" in str(error):
                self._lacking = ("tierName",)
                raise ConflictError("the CRD is of an older version, without spec.tierName") from error
            raise
        self.hypernodes.learn(answer)

    async def _delete(self, name: str, found: Object | None) -> None:
        if found is None:
            return
        preconditions = {key: found["metadata"][key] for key in ("uid", "resourceVersion")}
        try:
            left = await self._kube.write("DELETE", path_of(name), {"preconditions": preconditions})
            if (left.get("metadata") or {}).get("finalizers"):
                self.hypernodes.learn(left)  # it stays until somebody lets it go
                return
        except NotFoundError:
            pass
        except ConflictError:
            await self._look_at(name)
            raise
        self.hypernodes.forget(name)

    async def _look_at(self, name: str) -> None:
        """The watch has not told yet what the server knows."""
        try:
            self.hypernodes.learn(await self._kube.get(path_of(name)))
        except NotFoundError:
            self.hypernodes.forget(name)

    def _failed(self, error: KubeError) -> str:
        if isinstance(error, UnreachableError | NotLeaderError):
            raise PublishError(str(error)) from error
        return f"{error}{_NO_CRD if isinstance(error, NotFoundError) else ''}"

    # Conditions and Events

    async def _write_conditions(self, tree: Iterable[Wanted]) -> list[str]:
        now_ns = self._clock_ns()
        due: list[tuple[Wanted, Any]] = []
        for w in tree:
            p, found = self._there.get(w.name), self.hypernodes.get(w.name)
            if p is not None and p.ours and found is not None and merged(found, w.conditions, now_ns):
                due.append((w, found))
        errors = await _all(self._write_status(w, now_ns) for w, _ in due)
        return [
            f"conditions of {w.name}: {self._failed(error)}"
            for (w, _), error in zip(due, errors, strict=True)
            if error is not None
        ]

    async def _write_status(self, w: Wanted, now_ns: int) -> None:
        found = self.hypernodes.get(w.name)
        for last in (False, True):
            news = merged(found, w.conditions, now_ns) if found is not None else None
            if found is None or news is None or not is_ours(found):
                return
            conditions, flips = news
            query = {"fieldManager": MANAGER, "force": "true"}
            try:
                answer = await self._kube.write(
                    "PATCH",
                    f"{path_of(w.name)}/status",
                    status_body(found, conditions),
                    content=APPLY,
                    query=query,
                )
            except ConflictError:
                if last:
                    raise
                await self._look_at(w.name)
                found = self.hypernodes.get(w.name)
                continue
            self.hypernodes.learn(answer)
            self._tell(found, flips)
            return

    def _tell(self, found: Object, flips: Iterable[Flip]) -> None:
        for flip in flips:
            c = flip.condition
            severity: Severity = "Normal" if flip.is_good else "Warning"
            self.events.say(
                found["metadata"]["name"], found["metadata"].get("uid", ""), severity, c.reason, c.message
            )

    def _announce(self, overlapping: Iterable[tuple[str, str]]) -> None:
        """An Event for each overlap that is new."""
        now = frozenset(overlapping)
        for name, message in sorted(now - self._announced):
            found = self.hypernodes.get(name) or {}
            self.events.say(name, found.get("metadata", {}).get("uid", ""), "Warning", "Overlap", message)
        self._announced = now

    # Dry run

    def _rehearse(self, tree: Sequence[Wanted], generation: int) -> None:
        now_ns = self._clock_ns()
        lines = list(differences(self._there, {w.name: w for w in tree}))
        for w in tree:
            found = self.hypernodes.get(w.name) or {"metadata": {"name": w.name}}
            news = merged(found, w.conditions, now_ns)
            for flip in news[1] if news else ():
                c = flip.condition
                flipped = f"{flip.before or 'unset'} -> {c.status}"
                lines.append(f"~ status {w.name}: {c.type} {flipped} ({c.reason}): {c.message}")
        text = "\n".join(lines)
        if text != self._said and self._say is not None:
            self._said = text
            self._say(f"# generation {generation} would change:\n{text or '# nothing'}\n")

    def _recovered(self) -> None:
        self.wake()

    def _changed(self, name: str, before: Object | None, after: Object | None) -> None:
        if after is None:
            self._there.pop(name, None)
        else:
            self._there[name] = present(after)
        if any(found is not None and not is_ours(found) for found in (before, after)):
            self._foreign()
        if _matters(before) != _matters(after):
            self.wake()


def _matters(found: Object | None) -> Any:
    """What a look at a HyperNode is for: not other writers' counts and conditions."""
    if found is None:
        return None
    conditions = (found.get("status") or {}).get("conditions") or ()
    return present(found), [c for c in conditions if c.get("type") in OURS]


def _target(write: Write) -> str:
    return write.name if isinstance(write, LetGo | Delete) else write.wanted.name


async def _all(work: Iterable[Awaitable[None]]) -> list[KubeError | None]:
    """Some at a time; what each of them died of, in order."""
    turn = asyncio.Semaphore(_AT_ONCE)

    async def one(what: Awaitable[None]) -> KubeError | None:
        async with turn:
            try:
                await what
            except KubeError as error:
                return error
        return None

    return await asyncio.gather(*map(one, work))
