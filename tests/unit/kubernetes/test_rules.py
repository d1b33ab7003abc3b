"""Each rule of a consumer broken once, and what looks alike but is fine."""

from collections.abc import Sequence
from typing import Any

import pytest
from kube.recorder import writer
from kube.rules import LABELS, Event, Replay

Object = dict[str, Any]


def thing(name: str, tier: int, *members: str, labels: dict[str, str] | None = None, **more: Any) -> Object:
    """A HyperNode; members in capitals are HyperNodes."""
    kinds = [("HyperNode" if m.isupper() else "Node", m) for m in members]
    return {
        "metadata": {"name": name, "labels": LABELS if labels is None else labels},
        "spec": {
            "tier": tier,
            "tierName": more.get("tier_name", f"tier-{tier}"),
            "members": [{"type": k, "selector": {"exactMatch": {"name": m}}} for k, m in kinds]
            + list(more.get("members", ())),
        },
        "status": {"conditions": [{"type": "Ready", "status": more.get("ready", "True")}]},
    }


class Story:
    """Writes one after the other."""

    def __init__(self, *there: Object) -> None:
        self.replay = Replay()
        self.revision = 0
        for one in there:
            self.replay.start_with(one)

    def put(self, after: Object, by: str = "hyperscout") -> None:
        name = after["metadata"]["name"]
        self._take(name, after, by)

    def delete(self, name: str, by: str = "") -> None:
        self._take(name, None, by)

    def _take(self, name: str, after: Object | None, by: str) -> None:
        self.revision += 1
        self.replay.take(Event(self.revision, name, self.replay.objects.get(name), after, by))

    def broken(self) -> list[tuple[str, str, int]]:
        found = [*self.replay.problems, *self.replay.unfinished()]
        return [(problem.rule, problem.subject, problem.event.revision) for problem in found]


def entry(manager: str, time: str, fields: str = "a", sub: str = "") -> Object:
    return {
        "manager": manager,
        "operation": "Apply",
        "subresource": sub,
        "time": time,
        "fieldsV1": {fields: {}},
    }


def kept(same: Object) -> Object:
    """The same object, with what the server notes down differing."""
    noted = {"managedFields": [entry("hyperscout", "2")], "resourceVersion": "7", "generation": 2}
    return same | {"metadata": same["metadata"] | noted}


A, B = thing("A", 1, "n1", "n2"), thing("B", 1, "n3")
TREE = (A, B, thing("S", 2, "A", "B"))
THREE = (*TREE, thing("C", 1, "n4"), thing("T", 2, "C"), thing("R", 3, "S", "T"))

# (name, what is there, writes (a name is deleted), problems (rule, subject, at which write))
CASES: list[tuple[str, Sequence[Object], Sequence[Object | str], list[tuple[str, str, int]]]] = [
    ("created from the leaves up", (), (A, B, TREE[2]), []),
    (
        "created from the root down",
        (),
        (TREE[2], A, B),
        [("missing-child", "S/A", 1), ("missing-child", "S/B", 1)],
    ),
    ("torn down from the root", THREE, ("R", "S", "A", "T", "C", "B"), []),
    (
        "torn down from the leaves",
        TREE,
        ("A", "B", "S"),
        [("deleted-child", "S/A", 1), ("deleted-child", "S/B", 2)],
    ),
    ("torn down and left half way", TREE, ("S", "A"), [("root-gone", "S", 1)]),
    ("one of several trees torn down", (*TREE, thing("X", 2, "Y"), thing("Y", 1, "n9")), ("X", "Y"), []),
    ("the root made anew under another name", TREE, ("S", thing("Q", 2, "A", "B")), [("root-gone", "S", 1)]),
    (
        "the root gone, a leaf still kept up",
        TREE,
        ("S", thing("A", 1, "n1"), "A", "B"),
        [("root-gone", "S", 1)],
    ),
    ("the root gone, a condition turns", TREE, ("S", thing("A", 1, "n1", "n2", ready="False"), "A", "B"), []),
    ("a root without children goes", (A, B), ("A",), []),
    ("named no more, then deleted", TREE, (thing("S", 2, "A"), "B"), []),
    ("deleted while named", TREE, ("B",), [("deleted-child", "S/B", 1)]),
    ("deleted and made again", TREE, ("B", B), [("deleted-child", "S/B", 1)]),
    (
        "broken twice is said twice",
        TREE,
        ("B", B, "B"),
        [("deleted-child", "S/B", 1), ("deleted-child", "S/B", 3)],
    ),
    (
        "moved: out of the old parent, into the new",
        THREE,
        (thing("S", 2, "A"), thing("T", 2, "B", "C")),
        [],
    ),
    (
        "moved the wrong way round",
        THREE,
        (thing("T", 2, "B", "C"), thing("S", 2, "A")),
        [("two-parents", "B", 1)],
    ),
    ("a child above its parent", TREE, (thing("B", 3, "n3"),), [("tiers", "S/B", 1)]),
    ("a child beside its parent", TREE, (thing("B", 2, "n3"),), [("tiers", "S/B", 1)]),
    ("a tier left out", TREE, (thing("S", 5, "A", "B"),), []),
    (
        "a cycle",
        TREE,
        (thing("A", 1, "n1", "S"),),
        [("tiers", "A/S", 1), ("cycle", "A", 1)],
    ),
    ("its own parent", (A,), (thing("A", 1, "A"),), [("tiers", "A/A", 1), ("cycle", "A", 1)]),
    ("a node in two leaves", TREE, (thing("B", 1, "n1", "n3"),), [("two-leaves", "n1", 1)]),
    ("a node moves: out, then in", TREE, (thing("A", 1, "n2"), thing("B", 1, "n1", "n3")), []),
    (
        "a node in two leaves by label",
        (thing("A", 1, members=[{"type": "Node", "selector": {"labelMatch": {"matchLabels": {"t": "a"}}}}]),),
        (thing("B", 1, members=[{"type": "Node", "selector": {"labelMatch": {"matchLabels": {"t": "a"}}}}]),),
        [("two-leaves", '{"labelMatch": {"matchLabels": {"t": "a"}}}', 1)],
    ),
    (
        "a child by pattern",
        TREE,
        (
            thing(
                "S",
                2,
                "A",
                "B",
                members=[{"type": "HyperNode", "selector": {"regexMatch": {"pattern": "."}}}],
            ),
        ),
        [("unnamed-child", "S", 1)],
    ),
    (
        "another owner's is changed",
        (thing("A", 1, "n1", labels={}),),
        (thing("A", 1, "n2", labels={}),),
        [("foreign", "A", 1)],
    ),
    ("another owner's is adopted", (thing("A", 1, "n1", labels={}),), (A,), [("foreign", "A", 1)]),
    ("another owner's is deleted", (thing("A", 1, "n1", labels={}),), ("A",), [("foreign", "A", 1)]),
    (
        "half a label is not ours",
        (thing("A", 1, labels=dict([*LABELS.items()][:1])),),
        ("A",),
        [("foreign", "A", 1)],
    ),
    ("made without labels", (), (thing("A", 1, "n1", labels={}),), [("foreign", "A", 1)]),
    ("labels taken off", (A,), (thing("A", 1, "n1", "n2", labels={}),), [("foreign", "A", 1)]),
    (
        "an old root that is no top goes, its children stay",
        (*TREE, thing("C", 1, "n4"), thing("T", 2, "C"), thing("R", 3, "T")),
        ("S", thing("T", 2, "A", "B", "C")),
        [],
    ),
    ("written twice alike", (A,), (thing("A", 1, "n1", "n2"),), [("idle", "A", 1)]),
    ("only its bookkeeping differs", (A,), (kept(A),), [("idle", "A", 1)]),
    ("a condition turns", (A,), (thing("A", 1, "n1", "n2", ready="False"),), []),
]


@pytest.mark.parametrize(("there", "writes", "broken"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_each_state_is_judged(
    there: Sequence[Object], writes: Sequence[Object | str], broken: list[tuple[str, str, int]]
) -> None:
    story = Story(*there)
    for write in writes:
        if isinstance(write, str):
            story.delete(write)
        else:
            story.put(write)
    assert sorted(story.broken()) == sorted(broken)


def test_what_others_break_is_theirs_and_what_was_broken_before_is_not_reported() -> None:
    story = Story(*TREE, thing("X", 2, "A", labels={}))
    assert not story.broken()
    story.put(thing("Y", 2, "B", labels={}), by="kubectl")
    story.put(thing("B", 1, "n3", "n5"))
    story.delete("Y", by="by hand")
    assert not story.broken()
    assert [problem.rule for problem in story.replay.others] == ["foreign", "two-parents", "foreign"]


def test_names_of_a_tier_that_differ_are_a_note() -> None:
    story = Story(*TREE)
    story.put(thing("A", 1, "n1", tier_name="rack"))
    assert not story.broken()
    assert story.replay.notes == {"tier 1 is called ['rack', 'tier-1']"}


def test_a_problem_says_what_was_written() -> None:
    story = Story(*TREE)
    story.put(thing("B", 2, "n3"))
    said = "tiers: S (tier 2) is above B (tier 2) (revision 1: B changed by hyperscout)"
    assert str(story.replay.problems[0]) == said


@pytest.mark.parametrize(
    ("before", "after", "by"),
    [
        (None, [entry("kubectl", "1")], "kubectl"),
        ([entry("kubectl", "1")], [entry("kubectl", "1"), entry("hyperscout", "2")], "hyperscout"),
        (
            [entry("kubectl", "1"), entry("hyperscout", "1")],
            [entry("kubectl", "1"), entry("hyperscout", "2")],
            "hyperscout",
        ),
        (
            [entry("hyperscout", "1", "ab")],
            [entry("hyperscout", "1", "a"), entry("kubectl", "2", "b")],
            "kubectl",
        ),
        (
            [entry("hyperscout", "1"), entry("kubectl", "1")],
            [entry("hyperscout", "1"), entry("kubectl", "1", "b")],
            "kubectl",
        ),
        (
            [entry("kubectl", "1"), entry("hyperscout", "2")],
            [entry("kubectl", "1"), entry("hyperscout", "2")],
            "hyperscout",
        ),
        (
            [entry("hyperscout", "1")],
            [entry("hyperscout", "1"), entry("hyperscout", "2", sub="status")],
            "hyperscout",
        ),
        ([], [], ""),
    ],
)
def test_the_writer_is_read_from_the_managed_fields(
    before: list[Object] | None, after: list[Object], by: str
) -> None:
    def wrapped(entries: list[Object]) -> Object:
        return {"metadata": {"managedFields": entries}}

    assert writer(None if before is None else wrapped(before), wrapped(after)) == by
