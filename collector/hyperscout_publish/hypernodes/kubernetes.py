"""Publishes HyperNodes to a cluster without changing those of other owners.

Each call compares the topology with the HyperNodes that a watch keeps in memory, and writes the differences:
first the tree, in an order that is safe for its readers (`plan`), then the conditions. A steady state causes
no writes. The watch wakes the publisher when another client changes a HyperNode, or when the API server is
reachable again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from random import Random
from typing import Any

from hyperscout_formats.text.counts import first_few
from hyperscout_kubernetes.client import APPLY, MANAGER, Kube, Object
from hyperscout_kubernetes.errors import ConflictError
from hyperscout_kubernetes.event_recorder import EventRecorder
from hyperscout_kubernetes.nodes import Nodes
from hyperscout_kubernetes.reflector import Reflector
from hyperscout_runtime.bounded_executor import BoundedExecutor
from hyperscout_runtime.signals import Signal
from hyperscout_topology.topology import Topology

from hyperscout_publish.hypernodes.checks import broken_rules
from hyperscout_publish.hypernodes.objects import (
    COLLECTION,
    OURS,
    Flip,
    differences,
    kept,
    merged,
    path_of,
    reference,
    status_body,
)
from hyperscout_publish.hypernodes.overlap import OverlapPolicy, Overlaps, Published, overlaps
from hyperscout_publish.hypernodes.plan import Members, Present, is_ours, present
from hyperscout_publish.hypernodes.tree_writer import NO_CRD, TreeWriter, all_of, failure
from hyperscout_publish.hypernodes.wanted import NOTHING_HELD, Held, Wanted, wanted
from hyperscout_publish.publisher.base import Publisher, PublishError

_SYNC_TIMEOUT_S = 10.0
_MAX_TROUBLE = 3  # failures listed in one problem


class KubernetesPublisher(Publisher):
    """Publishes HyperNodes to a cluster. Run `run` as a task in addition to the runner's.

    `say`: enables a dry run: print the changes and write nothing. `foreign`: called when a HyperNode of
    another owner appears, changes or disappears, and, while there is one, when members of any HyperNode
    change. `clock_ns`: Unix ns; `timer`: monotonic seconds.
    """

    name = "kubernetes"

    def __init__(
        self,
        kube: Kube,
        nodes: Nodes,
        *,
        rng: Random,
        overlap: OverlapPolicy = "keep",
        foreign: Callable[[], None] = lambda: None,
        clock_ns: Callable[[], int],
        timer: Callable[[], float],
        say: Callable[[str], None] | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        super().__init__()
        self.hypernodes = Reflector(
            kube,
            COLLECTION,
            keep=kept,
            changed=self._changed,
            followed=self.wake,
            rng=rng,
        )
        self.appeared = Signal[[]]()  # a HyperNode that was not there
        self.events = EventRecorder(kube, clock_ns=clock_ns)
        self._kube = kube
        self._nodes = nodes
        self._clock_ns = clock_ns
        self._say = say
        self._overlap = overlap
        self._foreign = foreign
        self._said = ""
        self._there: dict[str, Present] = {}
        self._tree: tuple[Wanted, ...] = ()  # the last valid tree
        self._writer = TreeWriter(
            kube,
            self.hypernodes,
            self._there,
            self.events,
            timer=timer,
            wake=self.wake,
            sleep=sleep,
        )
        self._announced: frozenset[tuple[str, str]] = frozenset()
        self._kept: Published = {}
        self._in_thread = BoundedExecutor("publish-kubernetes")

    @property
    def others(self) -> bool:
        """Whether there are HyperNodes of other owners."""
        return any(not p.ours for p in self._there.values())

    async def run(self) -> None:
        """Follow HyperNodes and post Events until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.hypernodes.run(), name="hypernode-watch")
            group.create_task(self.events.run(), name="hypernode-events")

    async def publish(self, topology: Topology) -> None:
        """Make the cluster's HyperNodes match the topology. Raises PublishError."""
        await self._synced()
        found = await self._overlaps(topology)
        tree = self._checked(topology, found.held)
        if self._say is not None:
            self._rehearse(tree, topology.generation)
            return
        self._announce(found)
        self._kept = found.published  # between two writes a node is in no HyperNode
        trouble = await self._writer.write({w.name: w for w in tree})
        if not trouble:
            self._kept = {}
        trouble += await self._write_conditions(tree)
        if trouble:
            raise PublishError(first_few(trouble, _MAX_TROUBLE, "; "))

    async def held(self, topology: Topology) -> Held:
        """Return what HyperNodes of other owners hold back. Raises PublishError."""
        if self.hypernodes.is_unknown:
            return NOTHING_HELD
        await self._synced()
        return (await self._overlaps(topology)).held

    async def _overlaps(self, topology: Topology) -> Overlaps:
        labels = {node["metadata"]["name"]: node["metadata"]["labels"] for node in self._nodes}
        # In a thread: hundreds of selectors over thousands of nodes take longer than a lease lasts.
        return await self._in_thread(
            overlaps, topology.hypernodes, tuple(self.hypernodes), labels, self._overlap, self._kept
        )

    async def _synced(self) -> None:
        try:
            async with asyncio.timeout(_SYNC_TIMEOUT_S):
                await self.hypernodes.synced.wait()
                await self._nodes.reflector.synced.wait()
        except TimeoutError as error:
            why = self.hypernodes.problem or self._nodes.reflector.problem or "no response yet"
            hint = NO_CRD if self.hypernodes.is_unknown else ""
            raise PublishError(f"the cluster's HyperNodes are not known: {why}{hint}") from error

    def _checked(self, topology: Topology, held: Held) -> tuple[Wanted, ...]:
        whole = tuple(wanted(topology))
        if whole != self._tree:
            if broken := list(broken_rules(whole)):
                message = (
                    f"generation {topology.generation} is not published: {'; '.join(broken[:_MAX_TROUBLE])}"
                )
                raise PublishError(f"{message} (a defect of hyperscout: please report it)", retry=False)
            self._tree = whole
        return whole if held == NOTHING_HELD else tuple(wanted(topology, held))

    # Conditions and Events

    async def _write_conditions(self, tree: Iterable[Wanted]) -> list[str]:
        now_ns = self._clock_ns()
        due: list[tuple[Wanted, Any]] = []
        for w in tree:
            p, found = self._there.get(w.name), self.hypernodes.get(w.name)
            if p is not None and p.ours and found is not None and merged(found, w.conditions, now_ns):
                due.append((w, found))
        errors = await all_of(self._write_status(w, now_ns) for w, _ in due)
        return [
            f"conditions of {w.name}: {failure(error)}"
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
                    path_of(w.name, "status"),
                    status_body(found, conditions),
                    content=APPLY,
                    query=query,
                )
            except ConflictError:
                if last:
                    raise
                await self._writer.look_at(w.name)
                found = self.hypernodes.get(w.name)
                continue
            self.hypernodes.learn(answer)
            self._notify(found, flips)
            return

    def _notify(self, found: Object, flips: Iterable[Flip]) -> None:
        for flip in flips:
            c = flip.condition
            severity = "Normal" if flip.is_good else "Warning"
            self.events.record(reference(found["metadata"]["name"], found), severity, c.reason, c.message)

    def _announce(self, found: Overlaps) -> None:
        """Post Events for new overlaps on the HyperNodes of other owners, and on those that are held back.

        A HyperNode that stays published has a condition for it.
        """
        waiting = [x for x in found.anomalies if x.hypernode in found.held.hypernodes]
        now = frozenset((x.hypernode or "", x.message) for x in waiting).union(found.notices)
        for name, message in sorted(now - self._announced):
            self.events.record(reference(name, self.hypernodes.get(name)), "Warning", "Overlap", message)
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

    def _changed(self, name: str, before: Object | None, after: Object | None) -> None:
        if after is None:
            self._there.pop(name, None)
        else:
            self._there[name] = present(after)
        if before is None:
            self.appeared()
        if any(found is not None and not is_ours(found) for found in (before, after)) or (
            _members(before) != _members(after) and self.others
        ):
            self._foreign()
        if _matters(before) != _matters(after):
            self.wake()


def _members(found: Object | None) -> Members:
    return present(found).members if found is not None else frozenset()


def _matters(found: Object | None) -> Any:
    """Return the part of a HyperNode that matters here, without conditions and status of other writers."""
    if found is None:
        return None
    conditions = (found.get("status") or {}).get("conditions") or ()
    return present(found), [c for c in conditions if c.get("type") in OURS]
