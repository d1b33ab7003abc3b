"""What node-feature-discovery reads, on a real API server with its schema; its master is not run."""

import asyncio
from random import Random
from typing import Any

import pytest
from hyperscout_publish.hypernodes.wanted import NOTHING_HELD, Held
from hyperscout_publish.nodes.node_features import NODE_NAME, NodeFeaturesPublisher
from hyperscout_publish.publisher.base import PublishError
from hyperscout_topology.topology import Topology
from support.kubernetes import Cluster, following
from support.topologies import leaves, two_leaves
from support.waiting import eventually

FEATURES = "/apis/nfd.k8s-sigs.io/v1alpha1/namespaces/default/nodefeatures"
_TEXTS = {"type": "object", "additionalProperties": {"type": "string"}}


def _sets(elements: dict[str, Any]) -> dict[str, Any]:
    of_set = {"type": "object", "required": ["elements"], "properties": {"elements": elements}}
    return {"type": "object", "additionalProperties": of_set}


_INSTANCE = {"type": "object", "required": ["attributes"], "properties": {"attributes": _TEXTS}}
_FEATURES = {
    "type": "object",
    "properties": {
        "flags": _sets({"type": "object", "additionalProperties": {"type": "object"}}),
        "attributes": _sets(_TEXTS),
        "instances": _sets({"type": "array", "items": _INSTANCE}),
    },
}
# The fields of nodefeatures.nfd.k8s-sigs.io in v1alpha1, as NFD publishes them.
DEFINITION = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "nodefeatures.nfd.k8s-sigs.io"},
    "spec": {
        "group": "nfd.k8s-sigs.io",
        "names": {
            "kind": "NodeFeature",
            "listKind": "NodeFeatureList",
            "plural": "nodefeatures",
            "singular": "nodefeature",
        },
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1alpha1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "required": ["spec"],
                        "properties": {
                            "spec": {
                                "type": "object",
                                "properties": {"features": _FEATURES, "labels": _TEXTS},
                            }
                        },
                    }
                },
            }
        ],
    },
}


async def nothing_held(topology: Topology) -> Held:
    return NOTHING_HELD


def labels(kube: Cluster) -> dict[str, dict[str, str]]:
    """By the node that each object names."""
    return {
        found["metadata"]["labels"][NODE_NAME]: found["spec"]["labels"] for found in kube.api.items(FEATURES)
    }


async def test_one_for_each_node_that_comes_changes_and_goes(kube: Cluster) -> None:
    kube.apply(DEFINITION)
    kube.kubectl("wait", "--for=condition=Established", "--timeout=120s", "crd", "--all")
    kube.nodes(["n01", "n02", "n03", "n04"])
    async with following(kube.kubeconfig) as (client, nodes):
        features = NodeFeaturesPublisher(client, nodes, "default", print, held=nothing_held, rng=Random(0))
        watching = asyncio.create_task(features.run())
        try:
            await features.publish(two_leaves())
            a, b = ({"hyperscout.io/leaf": x, "hyperscout.io/core": "core"} for x in ("leaf-a", "leaf-b"))
            assert labels(kube) == {"n01": a, "n02": a, "n03": b, "n04": b}
            writes = kube.writes("nodefeatures")
            await features.publish(two_leaves())
            assert kube.writes("nodefeatures") == writes, "a steady state writes nothing"

            patch = '{"spec": {"labels": {"mine": "yes"}}}'
            words = ("patch", "nodefeature", "hyperscout-n03", "--type=merge", "-p", patch)
            await kube.kubectl_async(*words)
            await kube.kubectl_async("delete", "nodefeature", "hyperscout-n04")
            await eventually(lambda: features.features.get("hyperscout-n04") is None)
            await features.publish(two_leaves())
            assert labels(kube) == {"n01": a, "n02": a, "n03": b, "n04": b}

            kube.delete_node("n01")
            await eventually(lambda: nodes.get("n01") is None)
            await features.publish(leaves(("n02",), ("n03",)))
            assert labels(kube).keys() == {"n02", "n03"}
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)


async def test_without_the_definition_the_problem_is_said(
    kube: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hyperscout_publish.nodes.node_writes._FIRST_LIST_S", 1.0)
    async with following(kube.kubeconfig) as (client, nodes):
        features = NodeFeaturesPublisher(client, nodes, "default", print, held=nothing_held, rng=Random(0))
        watching = asyncio.create_task(features.run())
        try:
            await eventually(lambda: features.features.problem is not None)
            with pytest.raises(PublishError, match=r"are not known: .*: install node-feature-discovery"):
                await features.publish(two_leaves())
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
