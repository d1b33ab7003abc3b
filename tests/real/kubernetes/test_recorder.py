"""The recorder against a real API server: it misses nothing, not even around the server's death."""

import json
from collections.abc import Callable

from kube.recorder import recording
from support.kube_objects import Object, hypernode_object
from support.kubernetes import Cluster


def apply(kube: Cluster, body: Object, manager: str = "hyperscout") -> None:
    flags = ("--server-side", f"--field-manager={manager}", "--force-conflicts", "-f", "-")
    kube.kubectl("apply", *flags, stdin=json.dumps(body))


async def test_every_write_is_seen_and_told_apart(kube: Cluster) -> None:
    apply(kube, hypernode_object("old", "node-0", labels={}), "kubectl")
    async with recording(kube.plane) as recorder:
        apply(kube, hypernode_object("a", "node-1"))
        apply(kube, hypernode_object("a", "node-1", "node-2"))
        apply(kube, hypernode_object("s", "a", tier=2))
        apply(kube, hypernode_object("theirs", "node-9", labels={}), "kubectl")
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
        apply(kube, hypernode_object("old", "node-0", "node-5", labels={}))
        assert [(p.rule, p.subject) for p in recorder.problems] == [
            ("deleted-child", "s/a"),
            ("foreign", "old"),
        ]


async def test_a_moment_is_enough_also_around_a_restart(own_kube: Callable[..., Cluster]) -> None:
    kube = own_kube()
    async with recording(kube.plane) as recorder:
        for name, tier, members in (("a", 1, ["node-1"]), ("s", 2, ["a"]), ("t", 2, ["a"]), ("t", 2, ["x"])):
            apply(kube, hypernode_object(name, *members, tier=tier))
        kube.plane.kill_apiserver()
        kube.plane.start_apiserver()
        kube.plane.await_ready()
        apply(kube, hypernode_object("b", "node-1"))
        apply(kube, hypernode_object("b", "node-2"))
        found = [(p.rule, p.subject) for p in recorder.problems]
        assert found == [("two-parents", "a"), ("missing-child", "t/x"), ("two-leaves", "node-1")]
