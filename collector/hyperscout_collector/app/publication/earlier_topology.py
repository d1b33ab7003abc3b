"""Finds the topology that was published before this collector started.

Names, times and conditions continue from it.
"""

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
    """The best known earlier topology; None = there is none. Raises StartError.

    `followed`: the topology that the former leader sent; `saved`: the topology on this replica's disk.

    A collector without leader election uses its disk. With leader election the disk can be old, so a replica
    that did not follow the leader reads the HyperNodes of the cluster, which contain no links.
    """
    before = followed
    if before is None and kube is not None and settings.kubernetes == "publish":
        if saved is not None and not settings.leader_election:
            return saved
        before = await recalled(kube, sleep=sleep)
        if before is not None and saved is not None and same_members(saved, before):
            return saved  # the same tree, and it contains the links
    if before is None:
        return saved
    highest = max(before.generation, saved.generation if saved is not None else 0)
    return replace(before, generation=highest)


async def recalled(kube: Kube, *, sleep: Sleep) -> Topology | None:
    """The collector's HyperNodes in the cluster as a topology; None = there are none. Raises StartError.

    A start without them could rename every domain, so a failed request is repeated, at most `_ATTEMPTS`
    requests in all.
    """
    for attempt in range(_ATTEMPTS):
        try:
            hypernodes, _ = await kube.list(COLLECTION)
            nodes, _ = await kube.list(NODES) if hypernodes else ([], "")
        except NotFoundError:
            return None  # the cluster does not define the HyperNode resource
        except KubeError as error:
            if not error.retry or attempt == _ATTEMPTS - 1:
                raise StartError(
                    f"the published HyperNodes cannot be read: {error}: check the API server, and that this "
                    "account may list hypernodes and nodes"
                ) from error
            _log.warning("the published HyperNodes cannot be read yet: %s", error)
            await sleep(max(_RETRY_S, error.retry_after_s))
        else:
            labels = {node["metadata"]["name"]: node["metadata"].get("labels") or {} for node in nodes}
            return topology_of(hypernodes, labels)
    raise AssertionError("the last attempt returns or raises")
