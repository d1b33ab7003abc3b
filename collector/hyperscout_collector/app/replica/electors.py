"""Builds what elects the leader: a Lease of Kubernetes, or a lock of PostgreSQL."""

import logging
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
    if not has_lease(settings):
        times, rng = LeaseTimes.of(settings.lease_duration_s), Random()  # noqa: S311 - jitter, not secrets
        try:
            return LockElector(postgresql_server(settings), address=address, times=times, rng=rng)
        except StoreError as error:
            raise StartError(str(error)) from error

    async def connection() -> Kube:
        return await stack.enter_async_context(await connected(settings))

    return lease_elector(settings, await thread.run(connection()), address=address, highest=highest)


def lease_elector(
    settings: CollectorSettings,
    kube: Kube,
    *,
    address: str = "",
    highest: Callable[[], int] = lambda: 0,
    log: logging.Logger | None = None,
) -> Elector:
    """Build a candidate for the Lease of the settings in a cluster. Raises StartError.

    `address`: where the clients of the cluster find this replica, "" = not here. `highest()`, `log`: as in
    `Elector`.
    """
    return Elector(
        kube,
        own_namespace(settings, "leader_election"),
        settings.lease_name,
        me=f"{settings.identity}_{secrets.token_hex(4)}",
        address=address,
        times=LeaseTimes.of(settings.lease_duration_s),
        highest=highest,
        rng=Random(),  # noqa: S311 - jitter, not secrets
        log=log,
    )
