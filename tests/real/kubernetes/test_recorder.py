"""The recorder against a real API server: it misses nothing, not even around the server's death."""

import json
from collections.abc import Callable

from kube.recorder import recording
from kube.rules import LABELS
from support.kubernetes import Cluster


def hypernode(name: str, tier: int, *members: str, labels: dict[str, str] | None = None) -> str:
    kind = "Node" if tier == 1 else "HyperNode"
    return json.dumps(
        {
            "apiVersion": "topology.volcano.sh/v1alpha1",
            "kind": "HyperNode",
            "metadata": {"name": name, "labels": LABELS if labels is None else labels},
            "spec": {
                "tier": tier,
                "members": [{"type": kind, "selector": {"exactMatch": {"name": m}}} for m in members],
            },
        }
    )


def apply(kube: Cluster, text: str, manager: str = "hyperscout") -> None:
    kube.kubectl(
        "apply", "--server-side", f"--field-manager={manager}", "--force-conflicts", "-f", "-", stdin=text
    )


async def test_every_write_is_seen_and_told_apart(kube: Cluster) -> None:
    apply(kube, hypernode("old", 1, "node-0", labels={}), "kubectl")
    async with recording(kube.plane) as recorder:
        apply(kube, hypernode("a", 1, "node-1"))
        apply(kube, hypernode("a", 1, "node-1", "node-2"))
        apply(kube, hypernode("s", 2, "a"))
        apply(kube, hypernode("theirs", 1, "node-9", labels={}), "kubectl")
        kube.kubectl("annotate", "hn", "theirs", "note=x")
        assert [(e.name, e.what) for e in recorder.events] == [
            ("a", "created"),
            ("a", "changed"),
            ("s", "created"),
            ("theirs", "created"),
            ("theirs", "changed"),
        ]
        recorder.assert_clean()
        assert len(recorder.others) == 2
        recorder.by_hand("theirs")
        kube.kubectl("delete", "hn", "theirs")
        recorder.assert_clean()
        kube.kubectl("delete", "hn", "a")
        apply(kube, hypernode("old", 1, "node-0", "node-5", labels={}))
        assert [(p.rule, p.subject) for p in recorder.problems] == [
            ("deleted-child", "s/a"),
            ("foreign", "old"),
        ]


async def test_a_moment_is_enough_also_around_a_restart(own_kube: Callable[..., Cluster]) -> None:
    kube = own_kube()
    async with recording(kube.plane) as recorder:
        for name, tier, members in (("a", 1, ["node-1"]), ("s", 2, ["a"]), ("t", 2, ["a"]), ("t", 2, ["x"])):
            apply(kube, hypernode(name, tier, *members))
        kube.plane.kill_apiserver()
        kube.plane.start_apiserver()
        kube.plane.await_ready()
        apply(kube, hypernode("b", 1, "node-1"))
        apply(kube, hypernode("b", 1, "node-2"))
        found = [(p.rule, p.subject) for p in recorder.problems]
        assert found == [("two-parents", "a"), ("missing-child", "t/x"), ("two-leaves", "node-1")]
