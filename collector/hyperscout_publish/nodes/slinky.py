"""Publishes the topology for Slinky, Slurm on Kubernetes: topology.yaml, and an annotation of each node.

The operator of Slinky copies an annotation of a Kubernetes node to the Slurm node of the pod that runs there,
whatever the name of that Slurm node is. So the file has switches and blocks and no nodes: a pod that moves
changes no file, and no reconfiguration. Source: slurm-operator 1.3, docs/usage/topology.md and
internal/controller/nodeset/nodeset_sync.go (syncSlurmTopology); topology.yaml(5).

Another annotation records the value that the collector set. An annotation with another value belongs to
another owner and stays.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace

from hyperscout_formats.text.counts import first_few
from hyperscout_kubernetes.client import MANAGER, MERGE, Kube
from hyperscout_kubernetes.errors import KubeError, NotFoundError
from hyperscout_kubernetes.nodes import SLINKY_SET, SLINKY_SPEC, Nodes, path_of
from hyperscout_kubernetes.paths import api_path
from hyperscout_runtime.bounded_executor import BoundedExecutor
from hyperscout_topology.topology import Topology

from hyperscout_publish.nodes.node_writes import DryRun, for_each, nodes_known, write_patch
from hyperscout_publish.publisher.base import Publisher, PublishError, Recheck
from hyperscout_publish.slurm.live import layout_of
from hyperscout_publish.slurm.text import DEFAULTS, SlurmOptions, is_empty, slurm_yaml

_log = logging.getLogger(__name__)

_NAMED = 5  # nodes in a notice
FILE = "topology.yaml"  # the key in the ConfigMap, which is the name of the file that Slurm reads


def specs(topology: Topology, options: SlurmOptions) -> dict[str, str]:
    """Return the annotation of each node: a leaf switch and a block, as in `tree:leaf-a,block:leaf-a`.

    The file has the switches above the leaf, so that a change there changes no node.
    """
    units = layout_of(topology, "yaml", options).units
    return {node: ",".join(map(_without_path, unit.split(","))) for node, unit in units.items()}


def _without_path(unit: str) -> str:
    """Return "tree:leaf" of "tree:core:leaf"."""
    topology, *path = unit.split(":")
    return f"{topology}:{path[-1]}"


class SlinkyPublisher(Publisher):
    """`config_map`: "namespace/name"; "" = only remove the annotations that this publisher set.

    `dry_run`: write nothing; `say` receives the changes. `notice`: set while annotations of other owners are
    where this publisher would set one, or while nothing is known to write.
    """

    name = "slinky"

    def __init__(
        self,
        kube: Kube,
        nodes: Nodes,
        config_map: str,
        say: Callable[[str], None],
        options: SlurmOptions = DEFAULTS,
        *,
        dry_run: bool = False,
    ) -> None:
        super().__init__()
        self.notice: str | None = None
        self.recheck = Recheck(self.wake)
        self._kube = kube
        self._nodes = nodes
        self._config_map = config_map
        self._options = replace(options, dynamic=True)
        self._dry = dry_run
        self._dry_file = DryRun(f"ConfigMap {config_map}", say)
        self._dry_nodes = DryRun("annotations of nodes", say)
        self._for: Topology | None = None
        self._text = ""
        self._specs: Mapping[str, str] = {}
        self._written = ""  # what the ConfigMap contained when it was read last
        self._in_thread = BoundedExecutor("publish-slinky")

    async def publish(self, topology: Topology) -> None:
        """Write the ConfigMap and the annotations that differ. Raises PublishError."""
        await nodes_known(self._nodes)
        self.notice = None
        if self._config_map:
            if topology is not self._for:
                self._text, self._specs = await self._in_thread(self._contents, topology)
                self._for = topology
            if not self._text:
                self.notice = "no hierarchy is known: the ConfigMap and the annotations are unchanged"
                return
            await self._write_file()  # first: an annotation names a switch of the file
        await self._write_nodes()

    def _contents(self, topology: Topology) -> tuple[str, Mapping[str, str]]:
        """Return the text of the file, "" = none, and the annotations."""
        if is_empty(topology, self._options):
            return "", {}
        return "".join(slurm_yaml(topology, self._options)), specs(topology, self._options)

    async def _write_file(self) -> None:
        if self._written == self._text and not self.recheck.is_due:
            return
        try:
            await self._ensure_file()
        except KubeError as error:
            raise PublishError(str(error)) from error
        self._written = self._text
        self.recheck.restart()

    async def _ensure_file(self) -> None:
        namespace, _, name = self._config_map.partition("/")
        path = api_path("v1", "configmaps", name, namespace=namespace)
        try:
            found = await self._kube.get(path)
        except NotFoundError as error:
            raise PublishError(
                f"there is no ConfigMap {self._config_map}: create it, and name it in configFileRefs of "
                "Slinky's Controller, or correct slinky_config_map"
            ) from error
        there = (found.get("data") or {}).get(FILE)
        if there == self._text:
            return
        if self._dry:
            self._dry_file.show([f"{'add' if there is None else 'replace'} {FILE}"])
            return
        body = {"data": {FILE: self._text}}
        await self._kube.write("PATCH", path, body, content=MERGE, query={"fieldManager": MANAGER})
        _log.info("wrote %s of ConfigMap %s", FILE, self._config_map)

    async def _write_nodes(self) -> None:
        patches: dict[str, dict[str, str | None]] = {}
        taken: list[str] = []
        for node in self._nodes:
            name, there, ours = (node["metadata"][key] for key in ("name", "slinky_spec", "slinky_set"))
            spec = self._specs.get(name, "")
            if there and there != ours:
                taken += [name] if spec not in ("", there) else []
                if ours:
                    patches[name] = {SLINKY_SET: None}
            elif (there, ours) != (spec, spec):
                patches[name] = {SLINKY_SPEC: spec or None, SLINKY_SET: spec or None}
        if taken:
            self.notice = (
                f"{first_few(sorted(taken), _NAMED)}: the annotation {SLINKY_SPEC} of another owner stays: "
                "remove it, or leave slinky_config_map empty"
            )
        if self._dry:
            self._dry_nodes.show(
                f"{name}: {SLINKY_SPEC}: {patch.get(SLINKY_SPEC) or '(removed)'}"
                for name, patch in sorted(patches.items())
                if SLINKY_SPEC in patch
            )
        elif patches:
            await self._patch(patches)

    async def _patch(self, patches: Mapping[str, Mapping[str, str | None]]) -> None:
        async def write(name: str) -> None:
            body = {"metadata": {"annotations": patches[name]}}
            await write_patch(self._kube, self._nodes.reflector, path_of(name), body)

        await for_each("nodes", sorted(patches), write)
        _log.info("wrote the Slurm topology of %d nodes", len(patches))
