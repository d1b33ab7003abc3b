"""Publishes one NodeFeature for each node, from which node-feature-discovery (NFD) labels the node.

The labels are those of `node_labels`. NFD's master sets them on the node that a label of the object names,
and removes those that it set and that are in no NodeFeature any more. Sources: the definition
nodefeatures.nfd.k8s-sigs.io (v1alpha1), and NFD's customization guide and master configuration reference.
A label's value has at most 63 characters, so NFD knows no node with a longer name.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from random import Random

from hyperscout_kubernetes.client import MANAGER, Kube, Object
from hyperscout_kubernetes.nodes import Nodes
from hyperscout_kubernetes.paths import api_path
from hyperscout_kubernetes.reflector import Reflector
from hyperscout_topology.topology import Topology

from hyperscout_publish.hypernodes.overlap import OverlapPolicy
from hyperscout_publish.hypernodes.wanted import (
    MANAGED_BY_LABEL,
    MAX_EXACT_NAME,
    NOTHING_HELD,
    OWNER,
    Held,
    Wanted,
)
from hyperscout_publish.nodes.label_keys import KeyTemplate, keys_of_tiers
from hyperscout_publish.nodes.node_writes import DryRun, for_each, listed, nodes_known, write_patch
from hyperscout_publish.nodes.tier_labels import (
    NO_LABELS,
    KeysOf,
    Labels,
    labels_of,
    say_patch,
    wanted_and_kept,
    without_single_hosts,
)
from hyperscout_publish.publisher.base import Publisher

_log = logging.getLogger(__name__)

VERSION = "nfd.k8s-sigs.io/v1alpha1"
NODE_NAME = "nfd.node.kubernetes.io/node-name"
_DENIED = "kubernetes.io"
_ALLOWED = ("feature.node.kubernetes.io", "profile.node.kubernetes.io")
_NO_NFD = "install node-feature-discovery, or set node_labels: on"
_NONE: Object = {"node": "", "labels": {}}


def is_denied(key: str) -> bool:
    """Return whether NFD sets no label with this key, whatever its configuration."""
    prefix, slash, _ = key.partition("/")
    return bool(slash) and _is_in(prefix, _DENIED) and not any(_is_in(prefix, x) for x in _ALLOWED)


def _is_in(prefix: str, domain: str) -> bool:
    return prefix == domain or prefix.endswith("." + domain)


def object_name(node: str) -> str:
    """Return the name of a node's object. NFD's own ones have the name of the node."""
    return f"hyperscout-{node}"


def _kept(found: Object) -> Object:
    metadata = found["metadata"]
    node = (metadata.get("labels") or {}).get(NODE_NAME, "")
    version = {key: metadata.get(key, "") for key in ("name", "uid", "resourceVersion")}
    labels = (found.get("spec") or {}).get("labels") or {}
    return {"metadata": version, "node": node, "labels": labels}


class NodeFeaturesPublisher(Publisher):
    """Publishes the NodeFeatures of a namespace. Run `run` beside it.

    `notice`: why what is there may be out of date. `templates`, `held`, `overlap`, `single_hosts`: as of
    `NodeLabelsPublisher`. `dry_run`: write nothing; `say` receives the changes.
    """

    name = "node-features"

    def __init__(
        self,
        kube: Kube,
        nodes: Nodes,
        namespace: str,
        say: Callable[[str], None],
        *,
        templates: Sequence[KeyTemplate] = (),
        held: Callable[[Topology], Awaitable[Held]],
        overlap: OverlapPolicy = "keep",
        single_hosts: bool = True,
        dry_run: bool = False,
        rng: Random,
    ) -> None:
        super().__init__()
        self.notice: str | None = None
        self._kube = kube
        self._nodes = nodes
        self._collection = api_path(VERSION, "nodefeatures", namespace=namespace)
        self.features = Reflector(
            kube,
            self._collection,
            query={"labelSelector": f"{MANAGED_BY_LABEL}={OWNER}"},
            keep=_kept,
            changed=lambda name, before, after: self.wake(),
            rng=rng,
        )
        self._namespace = namespace
        self._templates = templates
        self._held = held
        self._keeps = overlap == "keep"
        self._single_hosts = single_hosts
        self._dry = dry_run
        self._dry_run = DryRun("NodeFeatures", say)
        self._for: tuple[Topology | None, Held] = (None, NOTHING_HELD)
        self._wanted = self._kept = NO_LABELS

    async def run(self) -> None:
        """Follow the NodeFeatures until cancelled."""
        await self.features.run()

    async def publish(self, topology: Topology) -> None:
        """Write the NodeFeatures that differ. Raises PublishError."""
        await nodes_known(self._nodes)
        await listed(self.features, f"the NodeFeatures in namespace {self._namespace}", remedy=_NO_NFD)
        self.notice = self.features.problem
        held = await self._held(topology)
        if topology is not self._for[0] or held != self._for[1]:
            self._for = topology, held
            others = keys_of_tiers(topology, self._templates)

            def every_key(h: Wanted) -> Iterable[str]:
                return (h.tier_label, *others(h))

            keys: KeysOf = every_key if self._single_hosts else without_single_hosts(topology, every_key)
            self._wanted, self._kept = wanted_and_kept(topology, held, keys, keeps=self._keeps)
        due = self._due()
        if self._dry:
            self._show(due)
        elif due:
            await for_each("NodeFeatures", sorted(due), lambda node: self._write(node, due[node]))
            _log.info("wrote %d NodeFeatures", len(due))

    def _due(self) -> dict[str, Labels]:
        """Return the labels of each node whose object differs; none = delete the object."""
        wanted: dict[str, Labels] = {}
        for node in self._nodes:
            name = node["metadata"]["name"]
            there = self.features.get(object_name(name)) or _NONE
            if len(name) <= MAX_EXACT_NAME:
                wanted[name] = labels_of(name, self._wanted, self._kept, there["labels"])
        prefix = object_name("")
        names = (f["metadata"]["name"] for f in self.features)
        gone = {name.removeprefix(prefix) for name in names if name.startswith(prefix)} - wanted.keys()
        found = {name: labels for name, labels in wanted.items() if self._differs(name, labels)}
        return found | {name: {} for name in gone}

    def _differs(self, node: str, labels: Labels) -> bool:
        there = self.features.get(object_name(node))
        if there is None or not labels:
            return (there is None) != (not labels)
        return (there["node"], there["labels"]) != (node, labels)

    async def _write(self, node: str, labels: Labels) -> None:
        name, query = object_name(node), {"fieldManager": MANAGER}
        path = f"{self._collection}/{name}"
        there = self.features.get(name)
        if not labels:
            if there is not None:
                await self._kube.delete(path, there["metadata"])
                self.features.forget(name)
            return
        metadata: Object = {"labels": {MANAGED_BY_LABEL: OWNER, NODE_NAME: node}}
        if there is None:
            metadata["name"] = name
            body = {"apiVersion": VERSION, "kind": "NodeFeature", "metadata": metadata}
            body["spec"] = {"labels": dict(labels)}
            self.features.learn(await self._kube.write("POST", self._collection, body, query=query))
            return
        removed = dict.fromkeys(there["labels"].keys() - labels.keys())
        body = {"metadata": metadata, "spec": {"labels": removed | dict(labels)}}
        await write_patch(self._kube, self.features, path, body)

    def _show(self, due: dict[str, Labels]) -> None:
        def line(node: str) -> str:
            there = (self.features.get(object_name(node)) or _NONE)["labels"]
            patch = dict.fromkeys(sorted(there.keys() - due[node].keys()))
            patch |= {key: value for key, value in due[node].items() if there.get(key) != value}
            return f"{node}: {say_patch(patch, there)}"

        self._dry_run.show(map(line, sorted(due)))
