"""What was published before this collector began: names, times and conditions go on from it."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace

from hyperscout_kubernetes.client import Kube
from hyperscout_kubernetes.errors import KubeError, NotFoundError
from hyperscout_kubernetes.nodes import PATH as NODES
from hyperscout_publish.hypernodes.from_hypernodes import topology_of
from hyperscout_publish.hypernodes.objects import COLLECTION
from hyperscout_runtime.errors import StartError
from hyperscout_topology.topology import Topology

from hyperscout_collector.app.settings.settings import CollectorSettings
from hyperscout_collector.decisions.publication.membership import same_members

_log = logging.getLogger(__name__)

_ATTEMPTS = 10
_RETRY_S = 1.0
Sleep = Callable[[float], Awaitable[None]]


async def published_before(
    settings: CollectorSettings,
    kube: Kube | None,
    followed: Topology | None,
    saved: Topology | None,
    *,
    sleep: Sleep = asyncio.sleep,
) -> Topology | None:
    """The best that is known. `followed`: what another leader told; `saved`: what is on our own disk.

    A collector that is alone trusts its disk. One of several may have led long ago; so unless it followed
    the leader, it asks the cluster, which knows no cables. Raises StartError.
    """
    before = followed
    if before is None and kube is not None and settings.kubernetes == "publish":
        if saved is not None and not settings.leader_election:
            return saved
        before = await recalled(kube, sleep=sleep)
        if before is not None and saved is not None and same_members(saved, before):
            return saved  # the very tree, with its cables
    if before is None:
        return saved
    highest = max(before.generation, saved.generation if saved is not None else 0)
    return replace(before, generation=highest)


async def recalled(kube: Kube, *, sleep: Sleep = asyncio.sleep) -> Topology | None:
    """Our HyperNodes as a topology; None when there are none. Raises StartError.

    To begin without them could rename every domain, so a server that cannot be asked now is asked again.
    """
    for attempt in range(_ATTEMPTS):
        try:
            hypernodes, _ = await kube.list(COLLECTION)
            nodes, _ = await kube.list(NODES) if hypernodes else ([], "")
        except NotFoundError:
            return None  # nobody has defined HyperNodes here
        except KubeError as error:
            if not error.retry or attempt == _ATTEMPTS - 1:
                raise StartError(f"what is published cannot be read: {error}") from error
            _log.warning("what is published cannot be read yet: %s", error)
            await sleep(max(_RETRY_S, error.retry_after_s))
        else:
            labels = {node["metadata"]["name"]: node["metadata"].get("labels") or {} for node in nodes}
            return topology_of(hypernodes, labels)
    raise AssertionError("the last attempt returns or raises")
