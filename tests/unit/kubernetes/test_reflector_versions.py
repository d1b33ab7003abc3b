"""What a write answered is newer than what the watch still has to tell, also of objects kept in part."""

from random import Random

import pytest
from hyperscout_kubernetes.nodes import Nodes
from hyperscout_kubernetes.reflector import Reflector, by_namespace
from support.fake_kube import FakeKube, Object
from support.kube_objects import node


def labelled(version: int, leaf: str, uid: str = "u1") -> Object:
    return node(uid=uid, resourceVersion=str(version), labels={"hyperscout.io/leaf": leaf})


@pytest.mark.parametrize(
    ("came", "then", "expected"),
    [
        (labelled(7, "b"), labelled(6, "a"), "b"),
        (labelled(7, "b"), labelled(8, "c"), "c"),
        (labelled(7, "b"), labelled(7, "c"), "b"),  # the stored version, which is not read again
        (labelled(7, "b"), labelled(6, "a", uid="u2"), "a"),  # another node of that name
    ],
)
def test_a_version_that_is_not_newer_is_passed_over(came: Object, then: Object, expected: str) -> None:
    nodes = Nodes(FakeKube().kube(), "", rng=Random(1))
    nodes.reflector.learn(came)
    nodes.reflector._take({"type": "MODIFIED", "object": then})
    assert nodes.labels_of("n1") == {"hyperscout.io/leaf": expected}


def test_a_version_that_changes_nothing_that_is_kept_is_not_told() -> None:
    told: list[str] = []
    reflector = Reflector(
        FakeKube().kube(),
        "/x",
        keep=lambda found: {"labels": found["metadata"]["labels"]},
        changed=lambda name, before, after: told.append(name),
        rng=Random(1),
    )
    reflector.learn(labelled(1, "a"))
    reflector.learn(labelled(2, "a"))
    assert told == ["n1"]
    reflector.learn(labelled(1, "b"))
    assert told == ["n1"]
    reflector.forget("n1")
    reflector.learn(labelled(1, "b"))  # it was gone: there is no version of it to be older than
    assert told == ["n1", "n1", "n1"]


def test_that_a_predecessor_went_takes_nothing_from_its_successor() -> None:
    """A write made it anew, and the watch has yet to tell that the one before it was deleted."""
    nodes = Nodes(FakeKube().kube(), "", rng=Random(1))
    nodes.reflector.learn(labelled(7, "a", uid="u1"))
    nodes.reflector.learn(labelled(9, "b", uid="u2"))
    nodes.reflector._take({"type": "DELETED", "object": labelled(8, "a", uid="u1")})
    assert nodes.labels_of("n1") == {"hyperscout.io/leaf": "b"}
    nodes.reflector._take({"type": "DELETED", "object": labelled(10, "b", uid="u2")})
    assert nodes.labels_of("n1") == {}


def test_of_all_namespaces_together_the_same_name_is_another_object() -> None:
    def pod(namespace: str, version: int) -> Object:
        named = {"name": "p", "namespace": namespace, "uid": namespace, "resourceVersion": str(version)}
        return {"metadata": named}

    told: list[str] = []
    reflector = Reflector(
        FakeKube().kube(),
        "/x",
        key=by_namespace,
        changed=lambda name, before, after: told.append(name),
        rng=Random(1),
    )
    reflector.learn(pod("a", 1))
    reflector._take({"type": "ADDED", "object": pod("b", 2)})
    reflector._take({"type": "DELETED", "object": pod("a", 3)})
    assert told == ["a/p", "b/p", "a/p"]
    assert reflector.get("b/p") is not None
    assert len(reflector) == 1
