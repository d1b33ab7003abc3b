"""Builds what elects the leader: a Lease of Kubernetes, or a lock of PostgreSQL."""

import secrets
from collections.abc import Callable
from contextlib import AsyncExitStack
from random import Random

from hyperscout_kubernetes.client import Kube
from hyperscout_kubernetes.election import LeaseTimes
from hyperscout_kubernetes.lease import Elector
from hyperscout_runtime.errors import StartError
from hyperscout_runtime.event_loops import LoopThread

from hyperscout_collector.app.build.publishers import needs_kubernetes
from hyperscout_collector.app.build.stores import postgresql_server
from hyperscout_collector.app.settings.configured import connected, own_namespace
from hyperscout_collector.app.settings.settings import CollectorSettings
from hyperscout_collector.store.elector import LockElector
from hyperscout_collector.store.errors import StoreError

AnyElector = Elector | LockElector


def has_lease(settings: CollectorSettings) -> bool:
    """Whether a Lease of Kubernetes elects the leader; otherwise a lock of PostgreSQL does."""
    return not settings.store or needs_kubernetes(settings)


async def build_elector(
    settings: CollectorSettings,
    address: str,
    thread: LoopThread,
    stack: AsyncExitStack,
    *,
    highest: Callable[[], int],
) -> AnyElector:
    """Build the elector of the settings. `stack` closes its client, on the loop of `thread`.

    `highest()`: as in `Elector`. Raises StartError.
    """
    times, rng = LeaseTimes.of(settings.lease_duration_s), Random()  # noqa: S311 - jitter, not secrets
    if not has_lease(settings):
        try:
            return LockElector(postgresql_server(settings), address=address, times=times, rng=rng)
        except StoreError as error:
            raise StartError(str(error)) from error
    namespace = own_namespace(settings, "leader_election")

    async def connection() -> Kube:
        return await stack.enter_async_context(await connected(settings))

    return Elector(
        await thread.run(connection()),
        namespace,
        settings.lease_name,
        identity=settings.identity,
        token=secrets.token_hex(4),
        address=address,
        times=times,
        highest=highest,
        rng=rng,
    )
