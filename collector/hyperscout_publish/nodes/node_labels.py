"""Labels each node with its domain of every tier, for topology-aware schedulers.

The label is `hyperscout.io/<tierName>` and its value is the HyperNode's name. Only nodes with other labels
are written. Nodes with names too long for exactMatch are always labelled, because HyperNodes select them by
label. Labels of HyperNodes that other owners' HyperNodes hold back follow them: they are not added.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping

from hyperscout_kubernetes.client import MANAGER, MERGE, Kube
from hyperscout_kubernetes.nodes import Nodes, path_of
from hyperscout_topology.topology import Topology

from hyperscout_publish.hypernodes.overlap import OverlapPolicy
from hyperscout_publish.hypernodes.wanted import NOTHING_HELD, Held
from hyperscout_publish.nodes.node_writes import DryRun, Mode, for_each, nodes_known
from hyperscout_publish.nodes.tier_labels import (
    NO_LABELS,
    Labels,
    Patch,
    label_patches,
    say_patch,
    tier_labels,
)
from hyperscout_publish.publisher.base import Publisher

_log = logging.getLogger(__name__)


async def _nothing_held(topology: Topology) -> Held:
    return NOTHING_HELD


class NodeLabelsPublisher(Publisher):
    """Publishes node labels. `mode` "off": only nodes with long names. `dry_run`: never write.

    `say` receives the changes of a dry run as lines of text. `held`: what other owners' HyperNodes hold back;
    raises PublishError. `overlap` "keep": labels of what is held back stay on the nodes that have them.
    """

    name = "node-labels"

    def __init__(
        self,
        kube: Kube,
        nodes: Nodes,
        mode: Mode,
        say: Callable[[str], None],
        *,
        held: Callable[[Topology], Awaitable[Held]] = _nothing_held,
        overlap: OverlapPolicy = "keep",
        dry_run: bool = False,
    ) -> None:
        super().__init__()
        self._kube = kube
        self._nodes = nodes
        self._long_names_only = mode == "off"
        # HyperNodes select nodes with long names by label, so a dry run of labels still writes those.
        self._shows_only = mode == "dry-run" and not dry_run
        self._dry = dry_run
        self._dry_run = DryRun("labels of nodes", say)
        self._held = held
        self._keeps = overlap == "keep"
        self._for: tuple[Topology | None, Held] = (None, NOTHING_HELD)
        self._wanted = self._kept = NO_LABELS

    async def publish(self, topology: Topology) -> None:
        """Write the labels that differ. Raises PublishError."""
        await nodes_known(self._nodes)
        held = await self._held(topology)
        if topology is not self._for[0] or held != self._for[1]:
            self._for = topology, held
            self._wanted = tier_labels(topology, held)
            self._kept = tier_labels(topology) if self._keeps and held != NOTHING_HELD else NO_LABELS
        if not self._dry:
            await self._write(self._patches(long_names_only=self._long_names_only or self._shows_only))
        if self._dry or self._shows_only:
            self._show(self._patches(long_names_only=self._long_names_only))

    def _patches(self, *, long_names_only: bool) -> dict[str, Patch]:
        return label_patches(self._wanted, self._present(), kept=self._kept, long_names_only=long_names_only)

    def _present(self) -> Iterable[tuple[str, Labels]]:
        return ((node["metadata"]["name"], node["metadata"]["labels"]) for node in self._nodes)

    def _show(self, patches: Mapping[str, Patch]) -> None:
        self._dry_run.show(
            f"{name}: {say_patch(patch, self._nodes.labels_of(name))}"
            for name, patch in sorted(patches.items())
        )

    async def _write(self, patches: Mapping[str, Patch]) -> None:
        async def write(name: str) -> None:
            answer = await self._kube.write(
                "PATCH",
                path_of(name),
                {"metadata": {"labels": patches[name]}},
                content=MERGE,
                query={"fieldManager": MANAGER},
            )
            self._nodes.reflector.learn(answer)

        if patches:
            await for_each("nodes", sorted(patches), write)
            _log.info("wrote the labels of %d nodes", len(patches))
