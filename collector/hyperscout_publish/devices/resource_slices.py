"""Publishes the NICs of each node as a ResourceSlice, except those that another driver publishes.

The slice of a node without new evidence stays as it is, and a deleted one is not created again then: the
kubelet deletes the slices of a driver whose plugin is gone. The plugin is a part of the agent.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from hyperscout_formats.kubelet.dra import DRIVER
from hyperscout_formats.text.counts import are, count, first_few
from hyperscout_kubernetes.client import MANAGER, Kube, Object
from hyperscout_kubernetes.discovery import may
from hyperscout_kubernetes.errors import KubeError, NotFoundError
from hyperscout_kubernetes.nodes import Nodes
from hyperscout_kubernetes.paths import api_path
from hyperscout_kubernetes.reflector import Reflector
from hyperscout_runtime.bounded_executor import BoundedExecutor
from hyperscout_topology.topology import Topology

from hyperscout_publish.devices.nics import Nic, NodeNics
from hyperscout_publish.devices.places import NicEnds, Nics, Place, places
from hyperscout_publish.devices.slices import (
    API_VERSION,
    COLLECTION,
    GROUP,
    NO_SLICES,
    Elsewhere,
    device,
    digest,
    new_slice,
    patch_of,
    places_in,
    slice_name,
    strays,
)
from hyperscout_publish.nodes.node_writes import DryRun, Mode, for_each, listed, nodes_known, write_patch
from hyperscout_publish.publisher.base import Publisher, PublishError

_log = logging.getLogger(__name__)

_NAMED = 5  # nodes in a notice
_NO_DEVICES = digest([])


@dataclass(frozen=True, slots=True)
class _Plan:
    """`changes`: by node, the devices of its new slice; [] = it gets none.

    `left_out`: nodes by driver. `strays`: slices by driver.
    """

    changes: Mapping[str, list[Object]]
    left_out: Mapping[str, list[str]]
    strays: Mapping[str, list[str]]


# By node, its NICs with their places, and the digest of the devices that they are.
_Digests = dict[str, tuple[Sequence[tuple[Nic, Place | None]], bytes]]


class ResourceSlicesPublisher(Publisher):
    """Publishes ResourceSlices. `mode` "off" only removes those of earlier runs, once and if it may.

    `slices`: follows all ResourceSlices, in the form that `slices.kept` returns. `cluster`: whose nodes these
    are.
    """

    name = "resource-slices"

    def __init__(
        self,
        kube: Kube,
        nodes: Nodes,
        mode: Mode,
        say: Callable[[str], None],
        nics: NodeNics,
        slices: Reflector,
        *,
        cluster: str = "",
    ) -> None:
        super().__init__()
        self._notice: str | None = None
        self._kube = kube
        self._nodes = nodes
        self._mode = mode
        self._nics = nics
        self._slices = slices
        self._cluster = cluster
        self._dry_run = DryRun("ResourceSlices", say)
        self._removed = False
        self._digests: _Digests = {}
        self._in_thread = BoundedExecutor("publish-resource-slices")

    @property
    def notice(self) -> str | None:
        """The slices of others that matter, and why the slices may be out of date."""
        return "; ".join(filter(None, (self._notice, self._slices.problem))) or None

    async def publish(self, topology: Topology) -> None:
        """Write the slices that differ. Raises PublishError."""
        if self._mode == "off":
            await self._remove()
            return
        await nodes_known(self._nodes)
        await listed(self._slices, "the cluster's ResourceSlices", remedy=NO_SLICES)
        nics = self._nics.of_cluster(self._cluster)
        nics = {node: mine for node, mine in nics.items() if self._nodes.get(node) is not None}
        plan = await self._in_thread(_planned, topology, nics, list(self._slices), self._digests)
        self._notice = _notice(plan)
        changes = {
            node: (there, devices)
            for node, devices in plan.changes.items()
            if (there := self._slices.get(slice_name(node))) is None or there["own"]
        }
        if self._mode == "dry-run":
            self._dry_run.show(f"{node}: {_say(*change)}" for node, change in changes.items())
            return

        async def write(node: str) -> None:
            await self._write(node, *changes[node])

        await for_each("ResourceSlices", list(changes), write)
        if changes:
            _log.info("wrote the ResourceSlices of %s", count(len(changes), "node"))

    async def _write(self, node: str, there: Object | None, devices: list[Object]) -> None:
        path = api_path(API_VERSION, "resourceslices", slice_name(node))
        if there is None:
            found = self._nodes.get(node)
            uid = found["metadata"]["uid"] if found is not None else ""
            body = new_slice(node, uid, devices)
            answer = await self._kube.write("POST", COLLECTION, body, query={"fieldManager": MANAGER})
            self._slices.learn(answer)
        elif devices:
            await write_patch(self._kube, self._slices, path, patch_of(there, devices))
        else:
            await self._delete(path, there)

    async def _delete(self, path: str, there: Object) -> None:
        await self._kube.delete(path, there["metadata"])
        self._slices.forget(there["metadata"]["name"])

    async def _remove(self) -> None:
        if self._removed:
            return
        found: list[Object] = []
        try:
            if await may(self._kube, "delete", GROUP, "resourceslices"):
                found, _ = await self._kube.list(COLLECTION, {"fieldSelector": f"spec.driver={DRIVER}"})
        except NotFoundError:
            pass  # the cluster has no such objects
        except KubeError as error:
            raise PublishError(str(error)) from error
        ours = {x["metadata"]["name"]: x for x in found if x["spec"].get("driver") == DRIVER}

        async def delete(name: str) -> None:
            await self._delete(api_path(API_VERSION, "resourceslices", name), ours[name])

        await for_each("ResourceSlices", sorted(ours), delete)
        self._removed = True


def _planned(topology: Topology, nics: Nics, slices: list[Object], digests: _Digests) -> _Plan:
    """Plan the slices of nodes that are not silent. `digests`: those of the last plan, and then of this one.

    Devices are only built of nodes whose NICs or places differ from the last plan, or from their slice.
    """
    stale = {n for h in topology.hypernodes for c in h.conditions if c.type == "Stale" for n in c.nodes}
    placed = places(topology, nics, places_in(slices), NicEnds(nics))
    elsewhere = Elsewhere(slices)
    there = {x["node"]: x["digest"] for x in slices if x["own"]}
    changes: dict[str, list[Object]] = {}
    left_out: dict[str, list[str]] = {}
    for node in sorted(nics.keys() - stale - set(topology.nodes_without_evidence)):
        mine: list[tuple[Nic, Place | None]] = []
        for nic in nics[node]:
            if (other := elsewhere.get(node, nic)) is None:
                mine.append((nic, placed.get((node, nic.pci_address))))
            elif node not in left_out.setdefault(other.driver, []):
                left_out[other.driver].append(node)
        known = digests.get(node)
        if known is None or known[0] != mine:
            known = digests[node] = mine, digest([device(*one) for one in mine])
        if known[1] != there.get(node, _NO_DEVICES):
            changes[node] = [device(*one) for one in mine]
    for node in digests.keys() - nics.keys():
        del digests[node]
    return _Plan(changes, left_out, strays(slices, nics))


def _notice(plan: _Plan) -> str | None:
    texts = [
        f"driver {driver} publishes NICs of {count(len(nodes), 'node')} ({first_few(nodes, _NAMED)}), which "
        "are left out"
        for driver, nodes in sorted(plan.left_out.items())
    ]
    texts += [
        f"{count(len(names), 'ResourceSlice')} of driver {driver} ({first_few(sorted(names), _NAMED)}) "
        f"{are(len(names))} in the way of hyperscout's: delete {'it' if len(names) == 1 else 'them'}"
        for driver, names in sorted(plan.strays.items())
    ]
    return "; ".join(texts) or None


def _say(there: Object | None, devices: list[Object]) -> str:
    names = ", ".join(x["name"] for x in devices)
    if there is None:
        return f"create with {names}"
    return f"update to {names}" if devices else "delete"
