"""Labels each node with its domain of every tier, for topology-aware schedulers.

The label is `hyperscout.io/<tierName>` and its value is the HyperNode's name. Only nodes with other labels
are written. Nodes with names too long for exactMatch are always labelled, because HyperNodes select them by
label. Labels of HyperNodes that other owners' HyperNodes hold back follow them: they are not added. On
request, the same patch has labels under keys of other projects (`label_keys`).
"""

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence

from hyperscout_formats.text.counts import count, first_few
from hyperscout_kubernetes.client import Kube, Object
from hyperscout_kubernetes.nodes import LABELS_SET, Nodes, path_of
from hyperscout_topology.topology import Topology

from hyperscout_publish.hypernodes.overlap import OverlapPolicy
from hyperscout_publish.hypernodes.wanted import NOTHING_HELD, Held
from hyperscout_publish.nodes.label_keys import KeyTemplate, keys_of_tiers, other_keys, set_by_us
from hyperscout_publish.nodes.node_writes import DryRun, Mode, for_each, nodes_known, write_patch
from hyperscout_publish.nodes.tier_labels import (
    NO_LABELS,
    KeysOf,
    label_patches,
    labels_of,
    own_key,
    say_patch,
    wanted_and_kept,
    without_single_hosts,
)
from hyperscout_publish.publisher.base import Publisher

_log = logging.getLogger(__name__)

_NAMED = 3  # keys in a notice


async def _nothing_held(topology: Topology) -> Held:
    return NOTHING_HELD


class NodeLabelsPublisher(Publisher):
    """Publishes node labels. `mode` "off": only nodes with long names. `dry_run`: never write.

    `say` receives the changes of a dry run as lines of text. `templates`: further keys; those that are no
    longer wanted, also since `mode` is "off", are removed where this publisher set them. `held`: what other
    owners' HyperNodes hold back; raises PublishError. `overlap` "keep": labels of what is held back stay on
    the nodes that have them. `single_hosts`: whether accelerator domains of one host give labels. `notice`:
    set while other owners' labels have keys of `templates`.
    """

    name = "node-labels"

    def __init__(
        self,
        kube: Kube,
        nodes: Nodes,
        mode: Mode,
        say: Callable[[str], None],
        *,
        templates: Sequence[KeyTemplate] = (),
        held: Callable[[Topology], Awaitable[Held]] = _nothing_held,
        overlap: OverlapPolicy = "keep",
        single_hosts: bool = True,
        dry_run: bool = False,
    ) -> None:
        super().__init__()
        self.notice: str | None = None
        self._kube = kube
        self._nodes = nodes
        self._templates = () if mode == "off" else templates
        self._possible = frozenset(key for x in self._templates for key in x.possible_keys())
        self._long_names_only = mode == "off"
        # HyperNodes select nodes with long names by label, so a dry run of labels still writes those.
        self._shows_only = mode == "dry-run" and not dry_run
        self._dry = dry_run
        self._dry_run = DryRun("labels of nodes", say)
        self._held = held
        self._keeps = overlap == "keep"
        self._single_hosts = single_hosts
        self._for: tuple[Topology | None, Held] = (None, NOTHING_HELD)
        self._wanted = self._kept = NO_LABELS
        self._wanted_others = self._kept_others = NO_LABELS  # under other keys

    async def publish(self, topology: Topology) -> None:
        """Write the labels that differ. Raises PublishError."""
        await nodes_known(self._nodes)
        held = await self._held(topology)
        if topology is not self._for[0] or held != self._for[1]:
            self._for = topology, held
            hyperscout_keys: KeysOf = own_key
            keys = keys_of_tiers(topology, self._templates)
            if not self._single_hosts:
                hyperscout_keys, keys = (without_single_hosts(topology, x) for x in (own_key, keys))
            self._wanted, self._kept = wanted_and_kept(topology, held, hyperscout_keys, keeps=self._keeps)
            if self._templates:
                found = wanted_and_kept(topology, held, keys, keeps=self._keeps)
                self._wanted_others, self._kept_others = found
        others = self._other_patches()
        if not self._dry:
            own = self._own_patches(long_names_only=self._long_names_only or self._shows_only)
            await self._write(own if self._shows_only else _merged(own, others))
        if self._dry or self._shows_only:
            self._show(_merged(self._own_patches(long_names_only=self._long_names_only), others))

    def _own_patches(self, *, long_names_only: bool) -> dict[str, Object]:
        """Return the patch of the metadata of each node whose labels of hyperscout.io differ."""
        present = ((node["metadata"]["name"], node["metadata"]["labels"]) for node in self._nodes)
        found = label_patches(self._wanted, present, kept=self._kept, long_names_only=long_names_only)
        return {name: {"labels": patch} for name, patch in found.items()}

    def _other_patches(self) -> dict[str, Object]:
        """Return the patch of the metadata of each node whose labels under other keys, or record, differ."""
        found: dict[str, Object] = {}
        taken: Counter[str] = Counter()
        for node in self._nodes:
            name, present, record = (node["metadata"][key] for key in ("name", "labels", "labels_set"))
            if not (record or self._templates):
                continue
            ours = set_by_us(present, record, self._possible)
            labels = labels_of(name, self._wanted_others, self._kept_others, ours)
            change = other_keys(present, ours, labels)
            taken.update(change.taken)
            if change.patch:
                found[name] = {"labels": change.patch}
            if change.record != record:
                found.setdefault(name, {})["annotations"] = {LABELS_SET: change.record or None}
        self._notify(taken)
        return found

    def _notify(self, taken: Mapping[str, int]) -> None:
        stay = first_few([f"{key} on {count(nodes, 'node')}" for key, nodes in sorted(taken.items())], _NAMED)
        text = f"labels of other owners stay as they are: {stay}; remove them, or the key of node_label_keys"
        if taken and text != self.notice:
            _log.warning("%s", text)
        self.notice = text if taken else None

    def _show(self, patches: Mapping[str, Object]) -> None:
        self._dry_run.show(
            f"{name}: {say_patch(patch['labels'], self._nodes.labels_of(name))}"
            for name, patch in sorted(patches.items())
            if "labels" in patch
        )

    async def _write(self, patches: Mapping[str, Object]) -> None:
        async def write(name: str) -> None:
            await write_patch(self._kube, self._nodes.reflector, path_of(name), {"metadata": patches[name]})

        if patches:
            await for_each("nodes", sorted(patches), write)
            _log.info("wrote the labels of %d nodes", len(patches))


def _merged(own: Mapping[str, Object], others: Mapping[str, Object]) -> dict[str, Object]:
    """Return one patch of the metadata of each node."""
    found = {name: {**patch} for name, patch in own.items()}
    for name, patch in others.items():
        mine = found.setdefault(name, {})
        labels = mine.get("labels", {}) | patch.get("labels", {})
        mine |= patch | ({"labels": labels} if labels else {})
    return found
