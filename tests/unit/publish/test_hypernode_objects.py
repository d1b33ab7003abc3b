"""Conditions merged with those of others, and bodies that name the very object that was seen."""

from dataclasses import replace
from typing import Any

import pytest
from hyperscout_publish.hypernodes.fights import Fights
from hyperscout_publish.hypernodes.objects import body_of, kept, merged
from hyperscout_publish.hypernodes.plan import Create, LetGo, Member, Present, Update, present
from hyperscout_publish.hypernodes.wanted import Wanted, settled, wanted
from hyperscout_topology.topology import Condition
from support.topologies import measured

SECOND = 10**9
NOW_NS = 1_800_000_000 * SECOND
NOW, LATER = "2027-01-15T08:00:00Z", "2027-01-15T08:01:40Z"
OK = Condition("Degraded", "False", "LinksHealthy", "fine", NOW_NS)
BAD = Condition("Degraded", "True", "LinksDown", "1 down", NOW_NS + 100 * SECOND)


def found(*conditions: dict[str, Any], generation: int = 3) -> dict[str, Any]:
    return {"metadata": {"name": "a", "generation": generation}, "status": {"conditions": list(conditions)}}


def written(c: Condition, since: str = NOW, generation: int = 3) -> dict[str, Any]:
    return {
        "type": c.type,
        "status": c.status,
        "reason": c.reason,
        "message": c.message,
        "lastTransitionTime": since,
        "observedGeneration": generation,
    }


THEIRS = {"type": "Checked", "status": "True", "reason": "R", "message": "", "lastTransitionTime": NOW}


@pytest.mark.parametrize(
    ("there", "now", "conditions", "flips"),
    [
        (found(), (OK,), [written(OK)], []),
        (found(), (BAD,), [written(BAD, LATER)], [("True", "")]),
        (found(written(OK)), (BAD,), [written(BAD, LATER)], [("True", "False")]),
        (found(written(OK), THEIRS), (BAD,), [THEIRS, written(BAD, LATER)], [("True", "False")]),
        # Another generation of the object, other words: no transition.
        (found(written(OK), generation=4), (OK,), [written(OK, generation=4)], []),
        (found(written(OK, LATER)), (Condition("Degraded", "False", "X", "other", NOW_NS),),
         [written(Condition("Degraded", "False", "X", "other"), LATER)], []),
        # One of ours that is no longer written goes.
        (found(written(Condition("Stale", "True", "R", "m")), written(OK)), (OK,), [written(OK)], []),
        # Another client's garbage of our type is replaced.
        (found({"type": "Degraded"}), (OK,), [written(OK)], [("False", "")]),
    ],
)  # fmt: skip
def test_conditions_are_merged(
    there: dict[str, Any],
    now: tuple[Condition, ...],
    conditions: list[dict[str, Any]],
    flips: list[tuple[str, str]],
) -> None:
    news = merged(there, now, NOW_NS)
    assert news is not None
    assert news[0] == conditions
    assert [(f.condition.status, f.before) for f in news[1]] == flips
    there["status"]["conditions"] = news[0]
    assert merged(there, now, NOW_NS + SECOND) is None


def test_the_order_of_conditions_does_not_matter() -> None:
    assert merged(found(THEIRS, written(OK)), (OK,), 0) is None
    assert merged(found(written(OK), THEIRS), (OK,), 0) is None


def test_an_update_names_the_object_that_was_seen() -> None:
    w = Wanted("a", 1, "leaf", (), ("n1",), 1)
    seen = {"metadata": {"name": "a", "uid": "u", "resourceVersion": "7", "generation": 1}}
    assert body_of(Update(w), None, seen, ())["metadata"] == {
        "name": "a",
        "uid": "u",
        "resourceVersion": "7",
        "labels": {
            "app.kubernetes.io/managed-by": "hyperscout",
            "volcano.sh/network-topology-source": "hyperscout",
        },
        "annotations": {"hyperscout.io/nodes": "1"},
    }
    assert "uid" not in body_of(Create(w), None, None, ())["metadata"]
    assert body_of(Create(w), None, None, ("tierName",))["spec"].keys() == {"tier", "members"}


def test_letting_go_changes_nothing_else() -> None:
    there = Present("a", True, 2, "rack", frozenset({Member("Node", "exactMatch", "n1")}), "5")
    odd = Member("Node", "regexMatch", '{"regexMatch": {"pattern": "x"}}')
    body = body_of(LetGo("a", frozenset({odd})), there, None, ())
    assert body["spec"] == {
        "tier": 2,
        "tierName": "rack",
        "members": [{"type": "Node", "selector": {"regexMatch": {"pattern": "x"}}}],
    }
    assert body["metadata"]["annotations"] == {"hyperscout.io/nodes": "5"}
    assert "members" not in body_of(LetGo("a", frozenset()), there, None, ())["spec"]
    more = replace(there, annotations=(("hyperscout.io/latency-us", "6.1"),))
    assert body_of(LetGo("a", frozenset()), more, None, ())["metadata"]["annotations"] == {
        "hyperscout.io/nodes": "5",
        "hyperscout.io/latency-us": "6.1",
    }


def test_annotations_that_another_client_wrote_are_not_ours() -> None:
    def field(manager: str, *keys: str, **more: str) -> dict[str, Any]:
        annotations = {f"f:{key}": {} for key in keys}
        return {"manager": manager, "fieldsV1": {"f:metadata": {"f:annotations": annotations}}, **more}

    ours = field("hyperscout", "hyperscout.io/nodes", "hyperscout.io/latency-us")
    theirs = field("kubectl-annotate", "hyperscout.io/source")
    status = field("hyperscout", "hyperscout.io/confidence", subresource="status")
    annotations = {f"hyperscout.io/{key}": "1" for key in ("nodes", "latency-us", "source", "confidence")}
    metadata = {"name": "a", "managedFields": [ours, theirs, status], "annotations": annotations}
    assert present(kept({"metadata": metadata})).annotations == (("hyperscout.io/latency-us", "1"),)
    assert len(present({"metadata": metadata}).annotations) == 3  # their writer is not known


@pytest.mark.parametrize(
    ("there", "now", "then"),
    [
        (None, "10", "10"),
        ("10", "10", "10"),
        ("10", "12", "10"),
        ("10", "13", "13"),
        ("10", "8", "10"),
        ("10", "7.9", "7.9"),
        ("10.0", "11", "10.0"),
        ("fast", "10", "10"),
        ("nan", "10", "10"),
        ("inf", "10", "10"),
        ("0", "10", "10"),
        ("-10", "10", "10"),
    ],
)
def test_a_figure_is_written_anew_when_it_moved_by_a_fifth(there: str | None, now: str, then: str) -> None:
    w = Wanted("a", 1, "leaf", (), ("n1",), 1, annotations=(("hyperscout.io/latency-us", now),))
    annotations = {} if there is None else {"hyperscout.io/latency-us": there}
    assert settled(w, annotations).annotations == (("hyperscout.io/latency-us", then),)


def test_where_a_domain_comes_from_is_no_figure() -> None:
    w = Wanted("a", 1, "leaf", (), ("n1",), 1, annotations=(("hyperscout.io/source", "nvlink"),))
    assert settled(w, {"hyperscout.io/source": "latency"}) == w
    assert settled(w, {"hyperscout.io/source": "10"}) == w


def test_annotations_of_what_was_measured() -> None:
    a, b, core = wanted(measured())
    assert dict(a.annotations) == {
        "hyperscout.io/source": "latency",
        "hyperscout.io/confidence": "0.93",
        "hyperscout.io/latency-us": "4.2",
    }
    assert dict(b.annotations) == {
        "hyperscout.io/source": "nvlink",
        "hyperscout.io/confidence": "1",
        "hyperscout.io/latency-us": "6.1",
        "hyperscout.io/bandwidth-gbps": "4.2",
    }
    assert dict(core.annotations) == {"hyperscout.io/latency-us": "7"}
    assert body_of(Create(core), None, None, ())["metadata"]["annotations"] == {
        "hyperscout.io/nodes": "4",
        "hyperscout.io/latency-us": "7",
    }


@pytest.mark.parametrize(
    ("fields", "editor"),
    [
        (None, ""),
        ([{"manager": "hyperscout", "time": "3"}], ""),
        ([{"manager": "a", "time": "1"}, {"manager": "b", "time": "2"}], "b"),
        ([{"manager": "a", "time": "1"}, {"manager": "vc", "time": "2", "subresource": "status"}], "a"),
    ],
)
def test_the_last_other_editor_is_kept(fields: list[dict[str, str]] | None, editor: str) -> None:
    object_ = {"metadata": {"name": "a", "managedFields": fields}, "spec": {"tier": 1}}
    found = kept(object_)
    assert found.pop("owned", ()) == ()
    assert found == {"metadata": {"name": "a"}, "spec": {"tier": 1}, "editor": editor}
    assert object_["metadata"]["managedFields"] == fields


def test_patience_grows_with_each_correction_and_comes_back() -> None:
    fights = Fights()
    waits = []
    for turn in range(12):
        now_s = turn * 1000.0 if turn > 9 else 0.0
        waits.append(fights.wait_s("a", now_s))
        fights.corrected("a", now_s)
    assert waits == [0, 0, 0, 2, 4, 8, 16, 32, 64, 128, 0, 0]
    assert fights.wait_s("b", 0.0) == 0
