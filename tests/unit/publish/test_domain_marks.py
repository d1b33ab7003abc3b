"""Domains with many bad nodes: which ones, one Event for each, and a label that goes when they recover."""

from collections.abc import Mapping
from random import Random
from typing import Any, cast

import pytest
from hyperscout_kubernetes.errors import ForbiddenError, RejectedError
from hyperscout_kubernetes.event_recorder import EventRecorder
from hyperscout_kubernetes.reflector import Reflector
from hyperscout_publish.hypernodes.objects import COLLECTION
from hyperscout_publish.nodes.condition_policy import HEALTHY, STALE, FabricState
from hyperscout_publish.nodes.domain_marks import LABEL, DomainMarks, bad_domains
from hyperscout_publish.publisher.base import PublishError
from support.fake_kube import FakeKube, failing
from support.kube_objects import hypernode_object
from support.topologies import pods

DOWN = FabricState("False", "True", "LinksDown", "")
TWO_PODS = pods(1, 2)  # pod0: n0000 to n0003; pod1: two leaves, n0004 to n0011


@pytest.mark.parametrize(
    ("bad", "share", "expected"),
    [
        (range(2), 0.5, []),
        (range(3), 0.5, ["pod0-l00", "pod0"]),
        (range(4, 7), 0.5, ["pod1-l00"]),
        (range(4, 9), 0.5, ["pod1-l00", "pod1"]),
        (range(12), 0.5, ["pod0-l00", "pod1-l00", "pod1-l01", "pod0", "pod1", "core"]),
        (range(12), 1.0, []),
        (range(4, 5), 0.2, ["pod1-l00"]),
        (range(4, 5), 0.0, ["pod1-l00", "pod1", "core"]),
        ((), 0.0, []),
    ],
)
def test_a_domain_is_bad_above_the_share(bad: range, share: float, expected: list[str]) -> None:
    states = dict.fromkeys(TWO_PODS.hypernodes[-1].nodes, STALE) | {f"n{i:04}": DOWN for i in bad}
    assert list(bad_domains(TWO_PODS.hypernodes, states, share)) == expected


def test_the_text_names_the_first_nodes_and_their_reasons() -> None:
    states = {f"n{i:04}": DOWN for i in range(4, 11)} | {"n0000": HEALTHY}
    assert bad_domains(TWO_PODS.hypernodes, states, 0.8)["pod1"] == (
        "7 of 8 nodes are bad: n0004 (LinksDown), n0005 (LinksDown), n0006 (LinksDown), n0007 (LinksDown), "
        "n0008 (LinksDown) and 2 more"
    )


def test_a_domain_of_one_node_is_that_node() -> None:
    single = pods(1, nodes=1)
    assert bad_domains(single.hypernodes, {"n0000": DOWN}, 0.0) == {}


class Setup:
    """HyperNodes a and b of this collector, and one of another owner, as the watch shows them."""

    def __init__(self) -> None:
        self.fake = FakeKube()
        self.events: list[tuple[str, ...]] = []
        self.said: list[str] = []
        self.hypernodes = Reflector(
            self.fake.kube(), COLLECTION, changed=lambda name, before, after: None, rng=Random(0)
        )
        for name in ("a", "b"):
            self.add(hypernode_object(name))
        self.add(hypernode_object("theirs", labels={LABEL: "true"}))
        self.marks = DomainMarks(
            self.fake.kube(), self.hypernodes, cast("EventRecorder", self), self.said.append
        )

    def add(self, found: dict[str, Any]) -> None:
        self.hypernodes.learn(self.fake.put(f"{COLLECTION}/{found['metadata']['name']}", found))

    def record(self, about: Mapping[str, str], severity: str, reason: str, message: str) -> None:
        self.events.append((about["name"], severity, reason, message))

    def marked(self) -> list[str]:
        there = (found["metadata"] for found in self.fake.objects.values())
        return [metadata["name"] for metadata in there if LABEL in metadata["labels"]]


async def test_one_event_and_a_label_until_it_recovers() -> None:
    cluster = Setup()
    for _ in range(2):
        await cluster.marks.write({"a": "why", "theirs": "why"}, dry_run=False)
        assert cluster.marked() == ["a", "theirs"]
    await cluster.marks.write({"a": "another text"}, dry_run=False)
    assert cluster.events == [("a", "Warning", "ManyNodesBad", "why")]
    assert len(cluster.fake.writes) == 1
    await cluster.marks.write({}, dry_run=False)
    assert cluster.marked() == ["theirs"]
    await cluster.marks.write({}, dry_run=False)
    assert (len(cluster.events), len(cluster.fake.writes)) == (1, 2)


async def test_a_hypernode_that_appears_later_is_marked_then() -> None:
    cluster = Setup()
    await cluster.marks.write({"c": "why"}, dry_run=False)
    assert cluster.events == []
    cluster.add(hypernode_object("c"))
    await cluster.marks.write({"c": "why"}, dry_run=False)
    assert cluster.marked() == ["theirs", "c"]


async def test_a_dry_run_says_it_and_writes_nothing() -> None:
    cluster = Setup()
    await cluster.marks.write({"b": "why"}, dry_run=False)
    cluster.fake.writes.clear()
    await cluster.marks.write({"a": "5 of 8"}, dry_run=True)
    assert cluster.said == [
        f"would change labels of HyperNodes: 2\na: {LABEL} (new): 5 of 8\nb: {LABEL} (removed)\n"
    ]
    assert cluster.fake.writes == []


@pytest.mark.parametrize(
    ("error", "problem"),
    [
        (ForbiddenError('cannot patch resource "hypernodes"'), 'cannot patch resource "hypernodes"'),
        (RejectedError("422"), "1 of 1 HyperNodes: 422"),
    ],
)
async def test_a_write_that_fails_is_said_without_an_event(error: ForbiddenError, problem: str) -> None:
    cluster = Setup()
    cluster.fake.before = failing(error)
    with pytest.raises(PublishError, match=problem):
        await cluster.marks.write({"a": "why"}, dry_run=False)
    assert cluster.events == []
