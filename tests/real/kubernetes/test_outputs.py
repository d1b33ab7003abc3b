"""What is written to nodes, and the Kueue Topology, against a real API server: taken, refused, contended."""

import asyncio
import contextlib
import json
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hyperscout_kubernetes.client import STRATEGIC, Kube, connect
from hyperscout_kubernetes.event_recorder import EventRecorder
from hyperscout_kubernetes.nodes import DEGRADED, READY, Nodes
from hyperscout_kubernetes.reflector import Reflector
from hyperscout_publish.hypernodes.kubernetes import KubernetesPublisher
from hyperscout_publish.hypernodes.objects import COLLECTION
from hyperscout_publish.nodes.conditions import NodeConditionsPublisher
from hyperscout_publish.nodes.domain_marks import LABEL, DomainMarks
from hyperscout_publish.nodes.kueue import KueuePublisher
from hyperscout_publish.nodes.label_keys import key_templates
from hyperscout_publish.nodes.node_labels import NodeLabelsPublisher
from hyperscout_publish.nodes.node_writes import Mode
from hyperscout_publish.nodes.taint_policy import TaintSettings
from hyperscout_publish.nodes.taints import TaintsPublisher
from hyperscout_publish.publisher.base import PublishError
from support.kubernetes import Cluster, following
from support.topologies import leaves, pods, two_leaves
from support.waiting import TIMEOUT_S, eventually

LEAF, CORE = "hyperscout.io/leaf", "hyperscout.io/core"
TAINT = {"key": "hyperscout.io/degraded", "effect": "NoSchedule"}
OTHER = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
LONG = "a-node-with-a-name-that-its-owner-must-have-liked.rack-17.row-33.example"


def labels(kube: Cluster) -> dict[str, dict[str, str]]:
    """Of each node, less those that a node has anyway."""
    return {
        node["metadata"]["name"]: {
            k: v for k, v in node["metadata"]["labels"].items() if not k.startswith("kubernetes.io/")
        }
        for node in kube.api.items("/api/v1/nodes")
    }


async def test_labels_and_only_what_differs(kube: Cluster) -> None:
    assert len(LONG) > 63
    kube.nodes(["n01", "n02", "n03", LONG, "cpu-1"], {"mine": "yes", "hyperscout.io/gang": "g"})
    kube.label("cpu-1", **{LEAF: "long-gone"})
    topology = leaves(("n01", "n02"), ("n03", LONG, "absent"))
    async with following(kube.kubeconfig) as (client, nodes):
        publisher = NodeLabelsPublisher(client, nodes, "on", print)
        await publisher.publish(topology)
        mine = {"mine": "yes", "hyperscout.io/gang": "g"}
        assert labels(kube) == {
            "n01": mine | {LEAF: "l1", CORE: "core"},
            "n02": mine | {LEAF: "l1", CORE: "core"},
            "n03": mine | {LEAF: "l2", CORE: "core"},
            LONG: mine | {LEAF: "l2", CORE: "core"},
            "cpu-1": mine,
        }
        managers = {
            m["manager"]
            for m in kube.get("node", "n01", "--show-managed-fields")["metadata"]["managedFields"]
        }
        assert "hyperscout" in managers
        writes = kube.writes("nodes")
        await publisher.publish(topology)
        assert kube.writes("nodes") == writes, "a steady state writes nothing"
        await kube.kubectl_async("label", "--overwrite", "node", "n02", f"{LEAF}=wrong", "mine=still")
        kube.nodes(["absent"])
        await eventually(lambda: nodes.labels_of("n02").get(LEAF) == "wrong" and nodes.get("absent"))
        writes = kube.writes("nodes")
        await publisher.publish(topology)
        assert kube.writes("nodes") == writes + 2
        assert labels(kube)["n02"] == mine | {LEAF: "l1", CORE: "core", "mine": "still"}
        assert labels(kube)["absent"] == {LEAF: "l2", CORE: "core"}
        kube.delete_node("n01")
        await publisher.publish(pods(1, nodes=1))
        assert labels(kube)["n02"] == mine | {"mine": "still"}, "no domain, no label"
        assert "n01" not in labels(kube), "a patch makes no node"


async def test_keys_of_other_projects_come_and_go_and_labels_of_others_stay(kube: Cluster) -> None:
    kube.nodes(["n01", "n02"], {"mine": "yes"})
    kube.label("n02", **{"example.com/tier-0": "row-7"})
    templates = key_templates(["example.com/rack=leaf", "example.com/tier-{fabric_tier}"])
    far = {LEAF: "leaf-a", CORE: "core", "example.com/rack": "leaf-a", "example.com/tier-1": "core"}
    async with following(kube.kubeconfig) as (client, nodes):
        publisher = NodeLabelsPublisher(client, nodes, "on", print, templates=templates)
        await publisher.publish(two_leaves())
        assert labels(kube) == {
            "n01": {"mine": "yes", "example.com/tier-0": "leaf-a"} | far,
            "n02": {"mine": "yes", "example.com/tier-0": "row-7"} | far,
        }
        writes = kube.writes("nodes")
        await publisher.publish(two_leaves())
        assert kube.writes("nodes") == writes, "a steady state writes nothing"
    async with following(kube.kubeconfig) as (client, nodes):
        await NodeLabelsPublisher(client, nodes, "off", print, templates=templates).publish(two_leaves())
    own = {"mine": "yes", LEAF: "leaf-a", CORE: "core"}
    assert labels(kube) == {"n01": own, "n02": own | {"example.com/tier-0": "row-7"}}
    assert "annotations" not in kube.get("node", "n01")["metadata"]


async def test_the_role_needs_just_these_verbs(kube: Cluster) -> None:
    kube.nodes(["n01", "n03"])
    follow = ["list", "watch"]
    for account, verbs in (
        ("labels", [*follow, "patch"]),
        ("taints", [*follow, "patch", "get"]),
        ("reader", follow),
    ):
        kube.grant(account, [{"apiGroups": [""], "resources": ["nodes"], "verbs": verbs}])
    now = two_leaves().anomalies[0].since_ns
    for account, is_enough in (("labels", False), ("taints", True)):
        async with following(kube.kubeconfig_of(account)) as (client, nodes):
            await eventually(nodes.reflector.synced.is_set)
            await NodeLabelsPublisher(client, nodes, "on", print).publish(two_leaves())
            taints = TaintsPublisher(
                client, nodes, "on", TaintSettings(after_s=0), print, clock_ns=lambda: now
            )
            with contextlib.nullcontext() if is_enough else pytest.raises(PublishError, match="cannot get"):
                await taints.publish(two_leaves())
    assert labels(kube)["n01"] == {LEAF: "leaf-a", CORE: "core"}
    assert taints_of(kube, "n03") == [TAINT]
    kube.label("n01", **{LEAF: None})
    async with following(kube.kubeconfig_of("reader")) as (client, nodes):
        await eventually(nodes.reflector.synced.is_set)
        with pytest.raises(PublishError, match="cannot patch resource"):
            await NodeLabelsPublisher(client, nodes, "on", print).publish(two_leaves())


def taints_of(kube: Cluster, name: str) -> list[dict[str, Any]]:
    return list(kube.api.ask("GET", f"/api/v1/nodes/{name}")["spec"].get("taints") or [])


async def test_taints_come_and_go_and_others_stay(kube: Cluster) -> None:
    kube.nodes(["n01", "n02", "n03", "n04"])
    await kube.kubectl_async("taint", "node", "n03", "nvidia.com/gpu=present:NoSchedule")
    now = [two_leaves().anomalies[0].since_ns]
    settings = TaintSettings(after_s=30, clear_after_s=300)
    async with following(kube.kubeconfig) as (client, nodes):

        def publisher(mode: Mode) -> TaintsPublisher:
            return TaintsPublisher(
                client, nodes, mode, settings, print, events=events, clock_ns=lambda: now[0]
            )

        events = EventRecorder(client, clock_ns=lambda: now[0])
        posting = asyncio.create_task(events.run())
        taints = publisher("on")
        await taints.publish(two_leaves())
        assert taints_of(kube, "n03") == [OTHER]
        now[0] += 30 * 10**9
        await taints.publish(two_leaves())
        assert taints_of(kube, "n03") == [OTHER, TAINT]
        # Another owner's taint goes and another comes: the watch tells, and nothing of theirs is undone.
        await kube.kubectl_async("taint", "node", "n03", "nvidia.com/gpu-", "mine=x:NoExecute")
        healthy = replace(two_leaves(), anomalies=())
        await taints.publish(healthy)
        now[0] += 300 * 10**9
        await taints.publish(healthy)
        assert [t["key"] for t in taints_of(kube, "n03")] == ["mine"]
        now[0] += 30 * 10**9
        await taints.publish(two_leaves())
        assert [t["key"] for t in taints_of(kube, "n03")] == ["mine", TAINT["key"]]
        await publisher("off").publish(two_leaves())
        assert [t["key"] for t in taints_of(kube, "n03")] == ["mine"]
        writes = kube.writes("nodes")
        await publisher("off").publish(two_leaves())
        assert kube.writes("nodes") == writes

        tainted = (
            "Warning LinksDegraded tainted hyperscout.io/degraded:NoSchedule: "
            "MissingLink: n03/p1 -> leaf-b/p1"
        )
        cleared = "Normal LinksHealthy the taint hyperscout.io/degraded:NoSchedule is removed"
        await eventually(lambda: said_of(kube, "n03") == {tainted: 2, cleared: 2})
        posting.cancel()
        await asyncio.gather(posting, return_exceptions=True)
        events = EventRecorder(client, clock_ns=lambda: now[0])  # of the next leader
        posting = asyncio.create_task(events.run())
        await publisher("on").publish(two_leaves())
        await eventually(lambda: said_of(kube, "n03") == {tainted: 3, cleared: 2})
        posting.cancel()
        await asyncio.gather(posting, return_exceptions=True)
    shown = (await kube.kubectl_async("describe", "node", "n03")).partition("Events:")[2]
    assert "(x3 over " in shown
    assert len(shown.splitlines()) == 5


def said_of(kube: Cluster, name: str) -> dict[str, int]:
    """The Events about an object, and how often each was reported."""
    events = kube.api.items("/api/v1/namespaces/default/events")
    about = [e for e in events if e["involvedObject"]["name"] == name]
    assert len(about) == len({(e["reason"], e["message"]) for e in about})
    return {f"{e['type']} {e['reason']} {e['message']}": e["count"] for e in about}


def node_conditions(
    client: Kube, nodes: Nodes, mode: Mode = "on", clock_ns: Callable[[], int] = lambda: 1
) -> NodeConditionsPublisher:
    """Without HyperNodes to mark."""
    events = EventRecorder(client, clock_ns=clock_ns)
    none = Reflector(client, COLLECTION, changed=lambda name, before, after: None, rng=Random(0))
    marks = DomainMarks(client, none, events, print)
    return NodeConditionsPublisher(client, nodes, mode, print, marks, domain_share=0.5, clock_ns=clock_ns)


def conditions_of(kube: Cluster, name: str) -> dict[str, dict[str, str]]:
    return {c["type"]: c for c in kube.api.ask("GET", f"/api/v1/nodes/{name}")["status"]["conditions"]}


def statuses(kube: Cluster, *names: str) -> list[str]:
    """FabricReady and FabricDegraded of each node."""
    found = [conditions_of(kube, name) for name in names]
    return [" ".join(f[kind]["status"] for kind in (READY, DEGRADED) if kind in f) for f in found]


async def test_conditions_come_and_go_and_others_stay(kube: Cluster) -> None:
    names = ("n01", "n02", "n03", "n04")
    kube.nodes([*names, "cpu-1"])
    kube.delete_node("n02")
    now = [two_leaves().anomalies[0].since_ns]

    def reports(name: str, kind: str, status: str) -> None:
        """As a kubelet or node-problem-detector does."""
        row = {"type": kind, "status": status, "reason": "Test", "message": ""}
        path, body = f"/api/v1/nodes/{name}/status", {"status": {"conditions": [row]}}
        kube.api.ask("PATCH", path, body, content=STRATEGIC)

    async with following(kube.kubeconfig) as (client, nodes):

        def publisher(mode: Mode) -> NodeConditionsPublisher:
            return node_conditions(client, nodes, mode, lambda: now[0])

        conditions = publisher("on")
        await conditions.publish(two_leaves())
        assert statuses(kube, "n01", "n03", "n04", "cpu-1") == ["True False", "False False", "True False", ""]
        assert conditions_of(kube, "n03")[READY]["reason"] == "LinksDown"
        writes = kube.writes("nodes")
        await conditions.publish(two_leaves())
        reports("n03", "KernelDeadlock", "False")
        reports("n03", "Ready", "False")
        await eventually(lambda: (nodes.get("n03") or {})["ready"]["status"] == "False")
        await conditions.publish(two_leaves())
        assert kube.writes("nodes") == writes + 2, "neither a steady state nor others' conditions are written"
        assert statuses(kube, "n03") == ["False False"], "a kubelet keeps them"
        now[0] += 60 * 10**9
        await conditions.publish(replace(two_leaves(), anomalies=()))
        assert kube.writes("nodes") == writes + 3
        there = conditions_of(kube, "n03")
        assert [there[kind]["status"] for kind in ("Ready", "KernelDeadlock", READY)] == [
            "False",
            "False",
            "True",
        ]
        assert there[READY]["lastTransitionTime"] > there[DEGRADED]["lastTransitionTime"]
        kube.nodes(["n02"])  # it is a new object
        await eventually(lambda: nodes.get("n02") is not None)
        await conditions.publish(two_leaves())
        assert statuses(kube, "n02", "n03") == ["True False", "False False"]
        kube.delete_node("n04")
        await conditions.publish(replace(two_leaves(), nodes_without_evidence=("n04",)))
        assert [node["metadata"]["name"] for node in kube.api.items("/api/v1/nodes")].count("n04") == 0
        await publisher("off").publish(two_leaves())
        assert statuses(kube, "n01", "n02", "n03") == ["", "", ""]
        assert conditions_of(kube, "n03").keys() == {"Ready", "KernelDeadlock"}
        writes = kube.writes("nodes")
        await publisher("off").publish(two_leaves())
        assert kube.writes("nodes") == writes


@pytest.mark.parametrize(
    ("missing", "problem"),
    [
        (None, ""),
        (("nodes", "list"), 'cannot list resource "nodes"'),
        (("nodes/status", "patch"), 'cannot patch resource "nodes/status"'),
    ],
)
async def test_conditions_need_just_these_verbs(
    kube: Cluster, monkeypatch: pytest.MonkeyPatch, missing: tuple[str, str] | None, problem: str
) -> None:
    monkeypatch.setattr("hyperscout_publish.nodes.node_writes._FIRST_LIST_S", 1.0)
    kube.nodes(["n01"])
    verbs = {"nodes": ["list", "watch"], "nodes/status": ["patch"]}
    rules = [
        {"apiGroups": [""], "resources": [kind], "verbs": left}
        for kind, named in verbs.items()
        if (left := [verb for verb in named if (kind, verb) != missing])
    ]
    kube.grant("conditions", rules)
    async with following(kube.kubeconfig_of("conditions")) as (client, nodes):
        conditions = node_conditions(client, nodes)
        with pytest.raises(PublishError, match=problem) if problem else contextlib.nullcontext():
            await conditions.publish(two_leaves())
    assert statuses(kube, "n01") == ["" if problem else "True False"]


async def test_a_domain_is_marked_once_and_the_writer_of_hypernodes_keeps_the_mark(kube: Cluster) -> None:
    kube.nodes(["n01", "n02", "n03", "n04", "n05"])
    healthy = replace(two_leaves(), anomalies=())

    def marks() -> dict[str, str]:
        found = {name: x["metadata"]["labels"] for name, x in kube.hypernodes().items()}
        return {name: labels[LABEL] for name, labels in found.items() if LABEL in labels}

    async with following(kube.kubeconfig) as (client, nodes), asyncio.TaskGroup() as group:
        hypernodes = KubernetesPublisher(client, nodes, rng=Random(0), clock_ns=lambda: 1, timer=lambda: 0.0)
        running = group.create_task(hypernodes.run())
        marking = DomainMarks(client, hypernodes.hypernodes, hypernodes.events, print)
        conditions = NodeConditionsPublisher(
            client, nodes, "on", print, marking, domain_share=0.4, clock_ns=lambda: 1
        )
        await hypernodes.publish(two_leaves())
        await conditions.publish(two_leaves())
        assert marks() == {"leaf-b": "true"}
        writes = kube.writes("hypernodes")
        await hypernodes.publish(two_leaves())
        await conditions.publish(two_leaves())
        assert kube.writes("hypernodes") == writes
        a, b, core = two_leaves().hypernodes
        more = (a, replace(b, nodes=(*b.nodes, "n05")), replace(core, nodes=(*core.nodes, "n05")))
        await hypernodes.publish(replace(two_leaves(), hypernodes=more))
        assert kube.writes("hypernodes") > writes
        assert marks() == {"leaf-b": "true"}
        await conditions.publish(healthy)
        assert marks() == {}
        said = {"Warning ManyNodesBad 1 of 2 nodes are bad: n03 (LinksDown)": 1}
        await eventually(lambda: said.items() <= said_of(kube, "leaf-b").items())
        assert not any("Reverted" in text for text in said_of(kube, "leaf-b"))
        running.cancel()


async def test_two_writers_of_one_list(kube: Cluster) -> None:
    """While ours go on and off, another client adds twenty of its own: none is lost."""
    kube.nodes(["n01", "n02", "n03", "n04"])
    now = two_leaves().anomalies[0].since_ns
    settings = TaintSettings(after_s=0, clear_after_s=0)
    done = asyncio.Event()

    async def others() -> None:
        for i in range(20):
            await kube.kubectl_async("taint", "node", "n03", f"other-{i}=x:PreferNoSchedule")
        done.set()

    async with following(kube.kubeconfig) as (client, nodes), asyncio.TaskGroup() as group:
        group.create_task(others())
        taints = TaintsPublisher(client, nodes, "on", settings, print, clock_ns=lambda: now)
        changes = 0
        while not done.is_set():
            with contextlib.suppress(PublishError):  # five conflicts in a row: tried again by the runner
                await taints.publish(
                    two_leaves() if changes % 2 == 0 else replace(two_leaves(), anomalies=())
                )
                changes += 1
        await taints.publish(two_leaves())
    assert changes > 4
    keys = {t["key"] for t in taints_of(kube, "n03")}
    assert keys == {TAINT["key"], *(f"other-{i}" for i in range(20))}


def kueue_crd(kind: str, plural: str, versions: tuple[str, ...], spec: dict[str, Any]) -> str:
    """As much of Kueue's API as matters here: its levels cannot be changed."""
    schema = {
        "type": "object",
        "properties": {"spec": {"type": "object", "properties": spec}},
    }
    rows = [
        {"name": v, "served": True, "storage": v == versions[0], "schema": {"openAPIV3Schema": schema}}
        for v in versions
    ]
    return json.dumps(
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {
                "name": f"{plural}.kueue.x-k8s.io",
                # The group is one of those that are reserved for the community.
                "annotations": {"api-approved.kubernetes.io": "unapproved, a test's own"},
            },
            "spec": {
                "group": "kueue.x-k8s.io",
                "scope": "Cluster",
                "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
                "versions": rows,
            },
        }
    )


LEVELS = {
    "levels": {
        "type": "array",
        "maxItems": 16,
        "minItems": 1,
        "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "field is immutable"}],
        "items": {
            "type": "object",
            "required": ["nodeLabel"],
            "properties": {"nodeLabel": {"type": "string", "maxLength": 316}},
        },
    }
}


async def test_a_kueue_topology(kube: Cluster) -> None:
    path = "/apis/kueue.x-k8s.io/v1beta1/topologies/wires"

    def keys() -> list[str]:
        return [level["nodeLabel"] for level in kube.api.ask("GET", path)["spec"]["levels"]]

    async with await connect(kube.kubeconfig) as client:
        kueue = KueuePublisher(client, "wires", print)
        with pytest.raises(PublishError, match="install Kueue"):
            await kueue.publish(two_leaves())
        kube.apply(kueue_crd("Topology", "topologies", ("v1beta1", "v1alpha1"), LEVELS))
        kube.apply(
            kueue_crd("ResourceFlavor", "resourceflavors", ("v1beta1",), {"topologyName": {"type": "string"}})
        )
        await kube.kubectl_async(
            *("wait", "--for=condition=Established", "--timeout=120s", "crd"),
            *("topologies.kueue.x-k8s.io", "resourceflavors.kueue.x-k8s.io"),
        )
        async with asyncio.timeout(TIMEOUT_S):
            while True:  # discovery follows a moment later
                try:
                    await kueue.publish(two_leaves())
                    break
                except PublishError:
                    await asyncio.sleep(0.05)
        assert keys() == [CORE, LEAF, "kubernetes.io/hostname"]
        flavor = {"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "ResourceFlavor"}
        kube.apply(flavor | {"metadata": {"name": "gpu"}, "spec": {"topologyName": "wires"}})
        with pytest.raises(PublishError, match="gpu now"):
            await kueue.publish(pods(1, 1))
        assert keys() == [CORE, LEAF, "kubernetes.io/hostname"]
        await kube.kubectl_async("delete", "resourceflavors.kueue.x-k8s.io", "gpu")
        # Kueue holds its objects by a finalizer for a moment.
        held = {"metadata": {"finalizers": ["kueue.x-k8s.io/resource-in-use"]}}
        kube.api.ask("PATCH", path, held, content="application/merge-patch+json")
        with pytest.raises(PublishError, match="the publisher retries"):
            await kueue.publish(pods(1, 1))
        with pytest.raises(PublishError, match="being deleted"):
            await kueue.publish(pods(1, 1))
        freed = {"metadata": {"finalizers": None}}
        kube.api.ask("PATCH", path, freed, content="application/merge-patch+json")
        await kueue.publish(pods(1, 1))
        assert keys() == [CORE, "hyperscout.io/pod", LEAF, "kubernetes.io/hostname"]
