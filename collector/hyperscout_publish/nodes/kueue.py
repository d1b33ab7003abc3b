"""Publishes a Kueue Topology object: its levels are node labels, the widest first and the host name last.

The object only names label keys. The domains are the values of these labels on the nodes. Levels cannot be
changed (kueue.x-k8s.io: "field is immutable"), so another number of tiers requires another object. It is
replaced only while no ResourceFlavor refers to it: Kueue's finalizer keeps an object that is in use, and
workloads that were admitted with it would have no topology.
"""

import logging
from collections.abc import Callable, Sequence

from hyperscout_formats.text.counts import first_few
from hyperscout_kubernetes.client import MANAGER, Kube, Object
from hyperscout_kubernetes.discovery import served_version
from hyperscout_kubernetes.errors import ConflictError, KubeError, NotFoundError
from hyperscout_kubernetes.paths import api_path
from hyperscout_topology.topology import Topology

from hyperscout_publish.hypernodes.wanted import MANAGED_BY_LABEL, OWNER
from hyperscout_publish.nodes.node_writes import DryRun
from hyperscout_publish.nodes.tier_labels import level_keys
from hyperscout_publish.publisher.base import Publisher, PublishError, Recheck

_log = logging.getLogger(__name__)

GROUP = "kueue.x-k8s.io"
HOSTNAME = "kubernetes.io/hostname"
_NAMED = 5  # ResourceFlavors in a problem
MAX_LEVELS = 16  # limit of the schema; older versions allow 8 and report an error
# API versions with the same Topology schema. A server may serve a version without Topology.
_VERSIONS = ("v1", "v1beta2", "v1beta1", "v1alpha1")


def levels(topology: Topology) -> list[str]:
    """Return the label keys of the object's levels; empty if there is no hierarchy."""
    keys = level_keys(topology)
    return [*keys[-(MAX_LEVELS - 1) :], HOSTNAME] if keys else []


class KueuePublisher(Publisher):
    """Publishes the Topology `object_name`. `dry_run`: write nothing; `say` receives the changes."""

    name = "kueue"

    def __init__(
        self, kube: Kube, object_name: str, say: Callable[[str], None], *, dry_run: bool = False
    ) -> None:
        super().__init__()
        self._kube = kube
        self._object = object_name
        self._dry = dry_run
        self._dry_run = DryRun("Topology", say)
        self._out: list[str] = []  # levels of the object when it was read last
        self.recheck = Recheck(self.wake)

    async def publish(self, topology: Topology) -> None:
        """Create the object, or replace it if its levels differ. Raises PublishError."""
        keys = levels(topology)
        if not keys or (keys == self._out and not self.recheck.is_due):
            return  # without a hierarchy, an existing object stays: its label keys do no harm
        try:
            await self._ensure(keys)
        except KubeError as error:
            raise PublishError(str(error)) from error
        self._out = keys
        self.recheck.restart()

    async def _ensure(self, keys: Sequence[str]) -> None:
        version = await served_version(self._kube, GROUP, "topologies", _VERSIONS)
        if version is None:
            raise PublishError(
                f"this cluster has no Topology of {GROUP}: install Kueue, or leave kueue_topology empty"
            )
        path = api_path(version, "topologies", self._object)
        try:
            found = await self._kube.get(path)
        except NotFoundError:
            found = None
        there = levels_of(found) if found else None
        if there == keys:
            return
        what = f"Topology {self._object}"
        if found is not None:
            await self._may_replace(version, what, found, keys)
        if self._dry:
            self._dry_run.show(
                [f"{self._object}: {'replace' if found else 'create'} with levels {', '.join(keys)}"]
            )
            return
        if found is not None:
            await self._kube.delete(path, found["metadata"])
        await self._create(version, keys, what)
        _log.info("wrote %s with levels %s", what, ", ".join(keys))

    async def _create(self, version: str, keys: Sequence[str], what: str) -> None:
        body: Object = {
            "apiVersion": version,
            "kind": "Topology",
            "metadata": {"name": self._object, "labels": {MANAGED_BY_LABEL: OWNER}},
            "spec": {"levels": [{"nodeLabel": key} for key in keys]},
        }
        try:
            path = api_path(version, "topologies")
            await self._kube.write("POST", path, body, query={"fieldManager": MANAGER})
        except ConflictError as error:
            raise PublishError(f"{what} still exists, or exists again; the publisher retries") from error

    async def _may_replace(self, version: str, what: str, found: Object, keys: Sequence[str]) -> None:
        """Raises PublishError if the object must not be replaced."""
        metadata, there = found["metadata"], levels_of(found)
        if (metadata.get("labels") or {}).get(MANAGED_BY_LABEL) != OWNER:
            raise PublishError(
                f"hyperscout does not manage {what} with levels {', '.join(there)}: "
                "delete it, or choose another name (kueue_topology)"
            )
        if metadata.get("deletionTimestamp"):
            raise PublishError(
                f"{what} is being deleted: it is created again when Kueue removes its finalizer"
            )
        flavors, _ = await self._kube.list(api_path(version, "resourceflavors"))
        users = sorted(
            f["metadata"]["name"]
            for f in flavors
            if (f.get("spec") or {}).get("topologyName") == self._object
        )
        if users:
            raise PublishError(
                f"{what} has levels {', '.join(there)} and needs {', '.join(keys)}. "
                "Levels are immutable: it is replaced when no ResourceFlavor refers to it "
                f"({first_few(users, _NAMED)} now)"
            )


def levels_of(found: Object) -> list[str]:
    """Return the label keys of an existing object."""
    return [level.get("nodeLabel", "") for level in (found.get("spec") or {}).get("levels") or []]
