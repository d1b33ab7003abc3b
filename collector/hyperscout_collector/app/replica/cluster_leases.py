"""Holds a Lease in the API server of each other cluster while this replica leads.

A Lease in the collector's own cluster elects the leader, or a lock in PostgreSQL. A Lease of the same name
and namespace in another cluster keeps every other collector from writing there: one of a second installation,
and one that led before and does not know that it is deposed. So the leader writes to a cluster only while it
leads for certain and holds the Lease there.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from hyperscout_kubernetes.client import Fence, Kube
from hyperscout_kubernetes.errors import NotLeaderError
from hyperscout_kubernetes.lease import Elector
from hyperscout_runtime.event_loops import LoopThread
from hyperscout_runtime.task_watch import TaskWatch, running

from hyperscout_collector.app.replica.electors import AnyElector, lease_elector
from hyperscout_collector.app.settings.configured import connected_clusters, own_namespace
from hyperscout_collector.app.settings.settings import CollectorSettings

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ClusterLease:
    """The candidacy for the Lease of a cluster. `place`: NAMESPACE/NAME of the Lease."""

    cluster: str
    place: str
    elector: Elector

    def fence(self, leadership: Fence) -> Fence:
        """A fence for the writes to the cluster in one term of this replica."""
        return _ClusterFence(self, leadership)

    async def hold(self, leader: AnyElector, thread: LoopThread) -> None:
        """Take part in the election of the cluster while this replica leads for certain, until cancelled.

        A leader that cannot renew its own Lease releases that of the cluster for the next leader.
        """
        while True:
            await leader.until(lambda: leader.may_write)
            async with running(thread.run(self.elector.run()), f"lease-of-{self.cluster}") as election:
                lost = asyncio.ensure_future(leader.until(lambda: not leader.may_write))
                try:
                    await asyncio.wait([election, lost], return_when=asyncio.FIRST_COMPLETED)
                finally:
                    lost.cancel()
                if election.done():
                    election.result()  # raises: only a defect ends the election before it is cancelled
            await thread.run(self.elector.release())


class _ClusterFence(Fence):
    """Permits writes while this replica leads and certainly holds the Lease of the cluster.

    It permits them in each term of that Lease: the publishers of the cluster follow what others write there,
    and a plan ends at its first refused write.
    """

    def __init__(self, lease: ClusterLease, leadership: Fence) -> None:
        self._lease = lease
        self._leadership = leadership

    def remaining_s(self) -> float:
        leads_s, elector = self._leadership.remaining_s(), self._lease.elector
        if not (left_s := elector.remaining_s()):
            why = elector.problem or f"{elector.holder or 'no collector'} holds it"
            raise NotLeaderError(
                f"nothing is written to cluster {self._lease.cluster} until this collector holds the Lease "
                f"{self._lease.place} there: {why}"
            )
        return min(leads_s, left_s)


@asynccontextmanager
async def cluster_leases(
    settings: CollectorSettings, leader: AnyElector, thread: LoopThread, watch: TaskWatch
) -> AsyncIterator[Sequence[ClusterLease]]:
    """Take part in the elections of the other clusters during the block. A dry run takes part in none.

    `thread` runs the electors, which have connections of their own. Raises StartError.
    """
    if not settings.clusters or settings.kubernetes == "dry-run":
        yield ()
        return
    leases, connections = list[ClusterLease](), AsyncExitStack()

    async def clients() -> dict[str, Kube]:
        found = await connected_clusters(settings)
        return {name: await connections.enter_async_context(kube) for name, kube in found.items()}

    try:
        for name, kube in (await thread.run(clients())).items():
            leases.append(_candidacy(settings, name, kube))
        async with AsyncExitStack() as tasks:
            for lease in leases:
                holding = running(lease.hold(leader, thread), f"lease-of-{lease.cluster}", watch)
                await tasks.enter_async_context(holding)
            yield leases
    finally:
        held = [lease.elector for lease in leases if lease.elector.leading]
        await asyncio.gather(*(thread.run(elector.release()) for elector in held))
        await thread.run(connections.aclose())


def _candidacy(settings: CollectorSettings, cluster: str, kube: Kube) -> ClusterLease:
    # Without an address: an installation in that cluster must not send its clients here.
    elector = lease_elector(settings, kube, log=_log.getChild(cluster))
    place = f"{own_namespace(settings, 'leader_election')}/{settings.lease_name}"
    return ClusterLease(cluster, place, elector)
