"""The HyperNode publisher against a real API server: what is written, in what order, and what never is."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hyperscout_cli.main import main
from hyperscout_kubernetes.client import connect
from hyperscout_kubernetes.nodes import Nodes
from hyperscout_publish.hypernodes.kubernetes import KubernetesPublisher
from hyperscout_publish.hypernodes.objects import COLLECTION, body_of
from hyperscout_publish.hypernodes.plan import Create
from hyperscout_publish.hypernodes.wanted import OWNER_LABELS, wanted
from hyperscout_publish.publisher.base import PublishError
from hyperscout_publish.publisher.runner import PublisherRunner
from hyperscout_topology.objects import topology_json
from hyperscout_topology.topology import Condition, HyperNode, Measured, Topology
from kube.control_plane import CRD, Options
from kube.recorder import recording
from support.kubernetes import Cluster
from support.waiting import TIMEOUT_S, eventually, until_awaited

EVENTS = "/api/v1/namespaces/default/events"
NOW_NS = 1_800_000_000_000_000_000
GOOD = (
    Condition("Ready", "True", "AllNodesReady", "2 of 2 nodes ready", NOW_NS),
    Condition("Degraded", "False", "LinksHealthy", "all links are up", NOW_NS),
    Condition("Consistent", "True", "WiringMatches", "sources agree", NOW_NS),
    Condition("Stale", "False", "EvidenceFresh", "fresh", NOW_NS),
)
BAD = Condition("Degraded", "True", "LinksDown", "1 of 4 uplinks down: leaf-a/p1", NOW_NS + 5 * 10**9)


def tree(*leaves: tuple[str, tuple[str, ...]], root: str = "core") -> Topology:
    """Leaves under one root."""
    nodes = tuple(sorted(n for _, members in leaves for n in members))
    names = tuple(name for name, _ in leaves)
    found = [HyperNode(name, 1, "leaf", root, (), members, (), GOOD) for name, members in leaves]
    return Topology(1, (*found, HyperNode(root, 2, "core", None, names, nodes, (), GOOD)))


TREE = tree(("leaf-a", ("n1", "n2")), ("leaf-b", ("n3", "n4")))


def with_condition(topology: Topology, name: str, condition: Condition) -> Topology:
    def changed(h: HyperNode) -> HyperNode:
        conditions = tuple(condition if c.type == condition.type else c for c in h.conditions)
        return replace(h, conditions=conditions) if h.name == name else h

    return replace(topology, hypernodes=tuple(map(changed, topology.hypernodes)))


@asynccontextmanager
async def publisher(kube: Cluster, **options: Any) -> AsyncIterator[KubernetesPublisher]:
    """One that follows its cluster."""
    loop = asyncio.get_running_loop()
    async with await connect(kube.kubeconfig) as client:
        nodes = Nodes(client, "", rng=Random(0))
        found = KubernetesPublisher(
            client,
            nodes,
            rng=Random(0),
            clock_ns=lambda: NOW_NS,
            timer=options.pop("timer", loop.time),
            **options,
        )
        tasks = [asyncio.create_task(found.run()), asyncio.create_task(nodes.reflector.run())]
        try:
            yield found
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def until(happens: Callable[[], Any]) -> Any:
    """Return the first true result."""
    return await until_awaited(lambda: asyncio.to_thread(happens), str(happens), pause_s=0.02)


def spec_of(kube: Cluster, name: str) -> tuple[int, str, list[str]]:
    spec = kube.hypernodes()[name]["spec"]
    members = [next(iter(m["selector"].values()))["name"] for m in spec.get("members", ())]
    return spec["tier"], spec.get("tierName", ""), members


def condition_of(kube: Cluster, name: str, kind: str) -> dict[str, Any]:
    return next(c for c in kube.hypernodes()[name]["status"]["conditions"] if c["type"] == kind)


def reasons(kube: Cluster, name: str) -> list[str]:
    events = kube.api.items(EVENTS)
    return [e["reason"] for e in events if e["involvedObject"]["name"] == name]


async def test_kubectl_shows_what_was_published_and_a_steady_state_writes_nothing(kube: Cluster) -> None:
    async with publisher(kube) as hypernodes:
        await hypernodes.publish(with_condition(TREE, "leaf-a", BAD))
        assert {name: spec_of(kube, name) for name in kube.hypernodes()} == {
            "leaf-a": (1, "leaf", ["n1", "n2"]),
            "leaf-b": (1, "leaf", ["n3", "n4"]),
            "core": (2, "core", ["leaf-a", "leaf-b"]),
        }
        assert all(h["metadata"]["labels"] == OWNER_LABELS for h in kube.hypernodes().values())
        shown = {line.split()[0]: line.split()[1:-1] for line in kube.kubectl("get", "hn").splitlines()}
        assert shown["leaf-a"] == ["1", "leaf", "2", "True", "True", "LinksDown"]
        assert shown["leaf-b"][:5] == ["1", "leaf", "2", "True", "False"]
        assert shown["core"][:3] == ["2", "core", "4"]
        before = kube.writes("hypernodes")
        for generation in range(2, 5):
            await hypernodes.publish(replace(with_condition(TREE, "leaf-a", BAD), generation=generation))
        assert kube.writes("hypernodes") == before
    async with publisher(kube) as again:  # after a restart too
        await again.publish(with_condition(TREE, "leaf-a", BAD))
        assert kube.writes("hypernodes") == before


async def test_a_cut_cable_writes_one_status_and_says_so(kube: Cluster) -> None:
    async with publisher(kube) as hypernodes:
        await hypernodes.publish(TREE)
        before, versions = kube.writes("hypernodes"), versions_of(kube)
        await hypernodes.publish(with_condition(TREE, "leaf-a", BAD))
        assert kube.writes("hypernodes") == before + 1
        assert {n for n, v in versions_of(kube).items() if v != versions[n]} == {"leaf-a"}
        found = condition_of(kube, "leaf-a", "Degraded")
        assert (found["status"], found["reason"], found["message"]) == ("True", "LinksDown", BAD.message)
        assert found["lastTransitionTime"] == "2027-01-15T08:00:05Z"
        assert found["observedGeneration"] == kube.hypernodes()["leaf-a"]["metadata"]["generation"]
        assert condition_of(kube, "leaf-a", "Ready")["lastTransitionTime"] == "2027-01-15T08:00:00Z"
        assert await until(lambda: reasons(kube, "leaf-a")) == ["LinksDown"]
        # Other words for the same status are no transition.
        words = replace(BAD, message="2 of 4 uplinks down", since_ns=NOW_NS + 9 * 10**9)
        await hypernodes.publish(with_condition(TREE, "leaf-a", words))
        assert condition_of(kube, "leaf-a", "Degraded")["message"] == "2 of 4 uplinks down"
        assert condition_of(kube, "leaf-a", "Degraded")["lastTransitionTime"] == "2027-01-15T08:00:05Z"
        await hypernodes.publish(TREE)
        await until(lambda: sorted(reasons(kube, "leaf-a")) == ["LinksDown", "LinksHealthy"])
    described = kube.kubectl("describe", "hn", "leaf-a")
    assert "Warning  LinksDown" in described


def versions_of(kube: Cluster) -> dict[str, str]:
    return {name: h["metadata"]["resourceVersion"] for name, h in kube.hypernodes().items()}


async def test_what_others_write_beside_ours_is_kept(kube: Cluster) -> None:
    async with publisher(kube) as hypernodes:
        await hypernodes.publish(TREE)
        theirs = {
            "type": "volcano.sh/Checked",
            "status": "True",
            "reason": "Fine",
            "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        status = kube.hypernodes()["leaf-a"]["status"]
        patch = {"status": {"nodeCount": 2, "conditions": [theirs, *status["conditions"]]}}
        words = ("--subresource=status", "--type=merge", "-p", json.dumps(patch))
        kube.kubectl("patch", "hn", "leaf-a", *words)
        kube.kubectl("label", "hn", "leaf-a", "team=blue")
        kube.kubectl("annotate", "hn", "leaf-a", "note=mine", "hyperscout.io/nodes=garbage", "--overwrite")
        annotated = "hyperscout.io/nodes"
        await until(
            lambda: (hypernodes.hypernodes.get("leaf-a") or {})["metadata"]["annotations"][annotated] != "2"
        )
        await hypernodes.publish(with_condition(TREE, "leaf-a", BAD))
        found = kube.hypernodes()["leaf-a"]
        assert found["status"]["nodeCount"] == 2
        assert theirs in found["status"]["conditions"]
        assert condition_of(kube, "leaf-a", "Degraded")["status"] == "True"
        assert found["metadata"]["labels"] == {**OWNER_LABELS, "team": "blue"}
        assert found["metadata"]["annotations"] == {"note": "mine", "hyperscout.io/nodes": "2"}


async def test_an_edit_by_hand_is_put_right_and_said(kube: Cluster) -> None:
    async with publisher(kube) as hypernodes:
        woken = asyncio.Event()
        hypernodes.wake.subscribe(woken.set)
        await hypernodes.publish(TREE)
        woken.clear()
        member = {"type": "Node", "selector": {"regexMatch": {"pattern": ".*"}}}
        patch = json.dumps({"spec": {"tier": 7, "members": [member]}})
        kube.kubectl("patch", "hn", "leaf-a", "--type=merge", "-p", patch)
        kube.kubectl("delete", "hn", "core")
        async with asyncio.timeout(TIMEOUT_S):
            await woken.wait()  # the watch tells
        await until(lambda: hypernodes.hypernodes.get("core") is None)
        await until(lambda: (hypernodes.hypernodes.get("leaf-a") or {})["spec"]["tier"] == 7)
        await hypernodes.publish(TREE)
        assert spec_of(kube, "leaf-a") == (1, "leaf", ["n1", "n2"])
        assert spec_of(kube, "core") == (2, "core", ["leaf-a", "leaf-b"])
        await until(lambda: reasons(kube, "leaf-a") == ["Reverted"] and reasons(kube, "core"))
        message = kube.api.items(EVENTS)[0]["message"]
        assert "kubectl" in message or "another client" in message


async def test_a_fight_is_not_fought_at_any_speed(kube: Cluster) -> None:
    now_s = 0.0
    async with publisher(kube, timer=lambda: now_s) as hypernodes:
        await hypernodes.publish(TREE)

        async def edited() -> None:
            kube.kubectl("patch", "hn", "leaf-a", "--type=merge", "-p", '{"spec": {"tierName": "theirs"}}')
            await until(lambda: (hypernodes.hypernodes.get("leaf-a") or {})["spec"]["tierName"] == "theirs")

        for _ in range(3):
            await edited()
            await hypernodes.publish(TREE)
        await edited()
        with pytest.raises(PublishError, match="leaf-a: kubectl-patch changes it repeatedly"):
            await hypernodes.publish(TREE)
        assert spec_of(kube, "leaf-a")[1] == "theirs"
        now_s = 5.0
        await hypernodes.publish(TREE)
        assert spec_of(kube, "leaf-a")[1] == "leaf"


FOREIGN = """
apiVersion: topology.volcano.sh/v1alpha1
kind: HyperNode
metadata: {name: by-hand}
spec:
  tier: 1
  members:
  - {type: Node, selector: {regexMatch: {pattern: "^n[34]$"}}}
"""


async def test_what_another_owner_s_hypernode_holds_is_published_when_that_is_gone(kube: Cluster) -> None:
    kube.apply(FOREIGN)
    kube.nodes(["n1", "n2", "n3", "n4"])
    before = kube.hypernodes()["by-hand"]["metadata"]
    async with publisher(kube) as hypernodes:
        foreign = asyncio.Event()
        hypernodes._foreign = foreign.set
        await hypernodes.publish(TREE)
        assert kube.hypernodes().keys() == {"by-hand", "leaf-a"}
        await until(lambda: reasons(kube, "leaf-b"))
        assert set(reasons(kube, "leaf-b")) == {"Overlap"}
        await hypernodes.publish(TREE)
        assert kube.hypernodes()["by-hand"]["metadata"] == before
        foreign.clear()
        kube.kubectl("delete", "hn", "by-hand")
        async with asyncio.timeout(TIMEOUT_S):
            await foreign.wait()
        await hypernodes.publish(TREE)
        assert kube.hypernodes().keys() == {"leaf-a", "leaf-b", "core"}


async def test_another_owner_s_hypernode_removes_nothing_that_is_published(kube: Cluster) -> None:
    """Also after a restart, and by a collector that takes over: the API server says what is published."""
    kube.nodes(["n1", "n2", "n3", "n4", "n5"])
    async with recording(kube.plane) as recorder:
        async with publisher(kube) as hypernodes:
            await hypernodes.publish(TREE)
            before = kube.hypernodes()
            kube.apply(FOREIGN)
            await until(lambda: hypernodes.hypernodes.get("by-hand"))
            await hypernodes.publish(TREE)
            theirs = kube.hypernodes()["by-hand"]
            assert kube.hypernodes() == before | {"by-hand": theirs}
            await until(lambda: reasons(kube, "by-hand") == ["Overlap"])
        kube.apply(FOREIGN.replace("^n[34]$", "^n[345]$"))
        theirs = kube.hypernodes()["by-hand"]
        async with publisher(kube) as again:
            await again.publish(TREE)
            assert kube.hypernodes() == before | {"by-hand": theirs}
            # A node that is not published yet is not added, nor is a new domain with such a node.
            await again.publish(tree(("leaf-a", ("n1", "n2")), ("leaf-b", ("n3", "n4", "n5"))))
            assert kube.hypernodes() == before | {"by-hand": theirs}
            await again.publish(tree(("leaf-a", ("n1", "n2")), ("leaf-b", ("n3", "n4")), ("leaf-c", ("n5",))))
            assert kube.hypernodes() == before | {"by-hand": theirs}
            await until(lambda: reasons(kube, "leaf-c") == ["Overlap"])
            # A domain that is published under another name is published.
            await again.publish(tree(("leaf-a", ("n1", "n2")), ("leaf-d", ("n3", "n4")), root="other"))
            assert kube.hypernodes().keys() == {"by-hand", "leaf-a", "leaf-d", "other"}
            assert spec_of(kube, "leaf-d")[2] == ["n3", "n4"]
        recorder.assert_clean()


async def test_yield_removes_what_another_owner_s_hypernode_contains(kube: Cluster) -> None:
    kube.nodes(["n1", "n2", "n3", "n4"])
    async with publisher(kube, overlap="yield") as hypernodes:
        await hypernodes.publish(TREE)
        kube.apply(FOREIGN)
        await until(lambda: hypernodes.hypernodes.get("by-hand"))
        await hypernodes.publish(TREE)
        assert kube.hypernodes().keys() == {"by-hand", "leaf-a"}


async def test_a_member_of_another_owner_s_hypernode_has_no_second_parent(kube: Cluster) -> None:
    kube.nodes(["n1", "n2", "n3", "n4"])
    member = "{type: HyperNode, selector: {exactMatch: {name: leaf-b}}}"
    above = FOREIGN.replace('{type: Node, selector: {regexMatch: {pattern: "^n[34]$"}}}', member)
    async with publisher(kube) as hypernodes:
        await hypernodes.publish(TREE)
        kube.apply(above.replace("tier: 1", "tier: 2"))
        await until(lambda: hypernodes.hypernodes.get("by-hand"))
        for _ in range(2):
            await hypernodes.publish(TREE)
            assert spec_of(kube, "core")[2] == ["leaf-a"]
        assert spec_of(kube, "leaf-b")[2] == ["n3", "n4"]
        kube.kubectl("delete", "hn", "by-hand")
        await until(lambda: hypernodes.hypernodes.get("by-hand") is None)
        await hypernodes.publish(TREE)
        assert spec_of(kube, "core")[2] == ["leaf-a", "leaf-b"]


async def test_a_name_that_is_taken_is_left_to_its_owner(kube: Cluster) -> None:
    kube.apply(FOREIGN.replace("by-hand", "core").replace("^n[34]$", "elsewhere"))
    before = kube.hypernodes()["core"]
    async with publisher(kube) as hypernodes:
        await hypernodes.publish(TREE)
        assert kube.hypernodes().keys() == {"leaf-a", "leaf-b", "core"}
        assert kube.hypernodes()["core"] == before


async def test_a_name_that_is_taken_in_that_very_moment_is_left_too(kube: Cluster) -> None:
    """Ours is written without force where nothing was seen: the server refuses it."""
    async with publisher(kube) as hypernodes:
        await hypernodes.publish(Topology(1))  # it has listed, and saw nothing
        for name in ("leaf-a", "leaf-b", "core"):
            kube.apply(FOREIGN.replace("by-hand", name).replace("^n[34]$", "elsewhere"))
        before = {name: h["spec"] for name, h in kube.hypernodes().items()}
        with contextlib.suppress(PublishError):
            await hypernodes.publish(TREE)
        assert {name: h["spec"] for name, h in kube.hypernodes().items()} == before
        assert all("labels" not in h["metadata"] for h in kube.hypernodes().values())


async def test_a_tree_grows_splits_and_goes_without_anything_left(kube: Cluster) -> None:
    split = tree(("leaf-a", ("n1",)), ("leaf-b", ("n2", "n3")), ("leaf-c", ("n4",)), root="other")
    pauses: list[float] = []

    async def pause(delay_s: float) -> None:
        pauses.append(delay_s)

    async with publisher(kube, sleep=pause) as hypernodes:
        # Where a child leaves its parent, readers get time to see it before what comes next.
        for topology, pauses_for in ((TREE, False), (split, True), (TREE, True), (Topology(9), False)):
            pauses.clear()
            await hypernodes.publish(topology)
            assert bool(pauses) == pauses_for
            wanted = {h.name: (h.tier, h.tier_name, list(h.children or h.nodes)) for h in topology.hypernodes}
            assert {name: spec_of(kube, name) for name in kube.hypernodes()} == wanted


async def test_a_dry_run_says_what_it_would_do_and_writes_nothing(kube: Cluster) -> None:
    said: list[str] = []
    async with publisher(kube) as hypernodes:
        await hypernodes.publish(TREE)
    before = kube.writes("hypernodes")
    async with publisher(kube, say=said.append) as rehearsal:
        grown = tree(("leaf-a", ("n1", "n2", "n9")), ("leaf-c", ("n3",)))
        for _ in range(2):
            await rehearsal.publish(with_condition(grown, "leaf-a", BAD))
    assert kube.writes("hypernodes") == before
    (text,) = said
    assert "~ hypernode leaf-a: + Node n9" in text
    assert "+ hypernode leaf-c  tier 1 leaf  1 node\n" in text
    assert "- hypernode leaf-b" in text
    assert "~ status leaf-a: Degraded False -> True (LinksDown): 1 of 4 uplinks down" in text


async def test_names_that_are_too_long_are_matched_by_label(kube: Cluster) -> None:
    long = "n" + "x" * 80
    async with publisher(kube) as hypernodes:
        await hypernodes.publish(tree(("leaf-a", ("n1", long))))
        members = kube.hypernodes()["leaf-a"]["spec"]["members"]
    assert members[1] == {
        "type": "Node",
        "selector": {"labelMatch": {"matchLabels": {"hyperscout.io/leaf": "leaf-a"}}},
    }


async def test_a_broken_tree_is_never_written(kube: Cluster) -> None:
    async with publisher(kube) as hypernodes:
        broken = tree(("leaf-a", ("n1",)), ("leaf-b", ("n1",)))
        with pytest.raises(PublishError, match="node n1 is in two HyperNodes") as error:
            await hypernodes.publish(broken)
        assert not error.value.retry
    assert not kube.hypernodes()


async def test_a_crd_of_an_older_version_loses_only_what_it_lacks(
    own_kube: Callable[..., Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hyperscout_publish.hypernodes.kubernetes._SYNC_TIMEOUT_S", 1.0)
    kube = own_kube(Options())
    kube.kubectl("delete", "crd", "hypernodes.topology.volcano.sh")
    async with publisher(kube) as hypernodes:
        with pytest.raises(PublishError, match="is the CRD installed"):
            async with asyncio.timeout(TIMEOUT_S):
                await hypernodes.publish(TREE)
        kube.apply(OLD_CRD)
        kube.kubectl("wait", "--for=condition=Established", "crd/hypernodes.topology.volcano.sh")
        await until(hypernodes.hypernodes.synced.is_set)
        await hypernodes.publish(TREE)
        assert spec_of(kube, "leaf-a") == (1, "", ["n1", "n2"])
        assert condition_of(kube, "core", "Ready")["status"] == "True"
        before = kube.writes("hypernodes")
        await hypernodes.publish(TREE)
        assert kube.writes("hypernodes") == before


OLD_CRD = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: hypernodes.topology.volcano.sh}
spec:
  group: topology.volcano.sh
  scope: Cluster
  names: {kind: HyperNode, listKind: HyperNodeList, plural: hypernodes, singular: hypernode}
  versions:
  - name: v1alpha1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              tier: {type: integer}
              members: {type: array, items: {type: object, x-kubernetes-preserve-unknown-fields: true}}
          status:
            type: object
            properties:
              conditions: {type: array, items: {type: object, x-kubernetes-preserve-unknown-fields: true}}
"""


def test_diff_compares_what_others_wrote_with_the_wires(
    kube: Cluster, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    saved = tmp_path / "topology.json"
    saved.write_text("".join(topology_json(TREE)))
    words = (
        "diff",
        "--hypernodes",
        "cluster",
        "--kubeconfig",
        str(kube.kubeconfig),
        "--topology",
        str(saved),
    )
    assert main(words) == 0
    assert "no HyperNode that is not ours" in capfd.readouterr().err
    kube.nodes(["n1", "n2", "n3", "n4"])
    kube.apply(FOREIGN.replace("^n[34]$", "^n[23]$"))
    assert main(words) == 3
    found = capfd.readouterr().out
    assert "in the fabric, but not in the file: n[1,4]" in found
    overlap = "leaf-b: HyperNode by-hand, which hyperscout does not manage, contains 1 of its nodes (n3)\n"
    assert overlap in found
    kube.api.ask(
        "POST",
        COLLECTION,
        body_of(Create(next(w for w in wanted(TREE) if w.name == "leaf-b")), None, None, ()),
    )
    assert main(words) == 3
    assert overlap in capfd.readouterr().out


def measured(*medians: float | None, source: str = "wires") -> Topology:
    """The tree with the latency of its two leaves."""
    leaves, root = TREE.hypernodes[:2], TREE.hypernodes[2]
    figures = [None if m is None else Measured(m, m, 12, NOW_NS) for m in medians]
    confidence = 1.0 if source == "wires" else 0.93
    told = (
        replace(h, latency_us=figure, source=source, confidence=confidence)
        for h, figure in zip(leaves, figures, strict=True)
    )
    return replace(TREE, hypernodes=(*told, root))


def annotations_of(kube: Cluster, name: str) -> dict[str, str]:
    found = kube.hypernodes()[name]["metadata"]["annotations"]
    return {key.removeprefix("hyperscout.io/"): value for key, value in found.items()}


async def test_measured_figures_are_annotations_that_move_by_a_fifth(kube: Cluster) -> None:
    async with publisher(kube) as hypernodes:
        await hypernodes.publish(measured(10.0, 10.0, source="latency"))
        expected = {"nodes": "2", "source": "latency", "confidence": "0.93", "latency-us": "10"}
        assert annotations_of(kube, "leaf-a") == expected
        assert annotations_of(kube, "core") == {"nodes": "4"}
        before = kube.writes("hypernodes")
        for step in range(10):
            await hypernodes.publish(measured(10.0 + step / 5, 8.2, source="latency"))
        assert kube.writes("hypernodes") == before
    async with publisher(kube) as again:  # what is there decides, not what is remembered
        await again.publish(measured(11.9, 8.1, source="latency"))
        assert kube.writes("hypernodes") == before
        versions = versions_of(kube)
        await again.publish(measured(12.6, 8.1, source="latency"))
        assert kube.writes("hypernodes") == before + 1
        assert {n for n, v in versions_of(kube).items() if v != versions[n]} == {"leaf-a"}
        assert annotations_of(kube, "leaf-a") == expected | {"latency-us": "13"}
        # Wires that turn up later, and measurements that end.
        await again.publish(measured(12.6, None))
        assert annotations_of(kube, "leaf-a") == {"nodes": "2", "latency-us": "13"}
        assert annotations_of(kube, "leaf-b") == {"nodes": "2"}
        written = kube.writes("hypernodes")
        await again.publish(measured(12.6, None))
        assert kube.writes("hypernodes") == written


async def test_an_annotation_of_another_client_is_neither_ours_nor_in_the_way(kube: Cluster) -> None:
    async with publisher(kube) as hypernodes:
        await hypernodes.publish(measured(10.0, None))
        kube.kubectl("annotate", "hn", "leaf-b", "hyperscout.io/latency-us=1")
        kube.kubectl("annotate", "hn", "leaf-a", "hyperscout.io/latency-us=11", "--overwrite")
        await until(lambda: "latency-us" in str(hypernodes.hypernodes.get("leaf-b")))
        await until(lambda: "'11'" in str(hypernodes.hypernodes.get("leaf-a")))
        before = kube.writes("hypernodes")
        await hypernodes.publish(measured(10.0, None))
        assert annotations_of(kube, "leaf-a")["latency-us"] == "10"
        assert annotations_of(kube, "leaf-b")["latency-us"] == "1"
        assert kube.writes("hypernodes") == before + 1
        await until(lambda: reasons(kube, "leaf-a") == ["Reverted"])
        await hypernodes.publish(measured(10.0, 50.0))
        assert annotations_of(kube, "leaf-b")["latency-us"] == "50"


async def test_a_member_that_moves_takes_no_annotation_along(kube: Cluster) -> None:
    """Two leaves that swap a node let go of one first: that write changes nothing else."""
    swapped = tree(("leaf-a", ("n1", "n3")), ("leaf-b", ("n2", "n4")))
    figure = Measured(10.0, 12.0, 12, NOW_NS)
    seen: list[set[str]] = []

    def with_figure(topology: Topology) -> Topology:
        return replace(topology, hypernodes=tuple(replace(h, latency_us=figure) for h in topology.hypernodes))

    async with publisher(kube) as hypernodes:
        await hypernodes.publish(with_figure(TREE))
        plain = hypernodes.hypernodes.learn

        def learn(found: Any) -> None:
            seen.append({k for k in found["metadata"]["annotations"] if k.startswith("hyperscout.io/")})
            plain(found)

        hypernodes.hypernodes.learn = learn  # type: ignore[method-assign]
        await hypernodes.publish(with_figure(swapped))
    assert len(seen) > 2
    assert all(keys == {"hyperscout.io/nodes", "hyperscout.io/latency-us"} for keys in seen)
    assert spec_of(kube, "leaf-a")[2] == ["n1", "n3"]


async def test_a_deleted_crd_causes_one_message(
    own_kube: Callable[..., Cluster], caplog: pytest.LogCaptureFixture
) -> None:
    kube = own_kube(Options())
    topology = tree(*((f"leaf-{i}", (f"n{i}",)) for i in range(7)))
    async with publisher(kube) as hypernodes:
        runner = PublisherRunner([hypernodes], rng=Random(0))
        (state,) = runner.states
        task = asyncio.create_task(runner.run(state))
        runner.offer(topology)
        await eventually(lambda: state.generation == 1)
        await kube.kubectl_async("delete", "crd", "hypernodes.topology.volcano.sh")
        await eventually(lambda: hypernodes.hypernodes.problem)
        await eventually(lambda: state.retries > 1)
        said = [r.getMessage() for r in caplog.records if r.name.startswith("hyperscout_publish")]
        assert said == [f"publisher kubernetes: {state.problem}"]
        assert (state.problem or "").startswith("the API server takes no HyperNodes; is the CRD installed?")
        kube.apply(CRD.read_text())
        await eventually(lambda: state.problem is None)
        assert kube.hypernodes().keys() == {"core", *(f"leaf-{i}" for i in range(7))}
        # Events are posted in order: with this one, all earlier ones are there.
        kube.kubectl("delete", "hn", "leaf-0")
        await until(lambda: reasons(kube, "leaf-0"))
        assert [e["involvedObject"]["name"] for e in kube.api.items(EVENTS)] == ["leaf-0"]
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
