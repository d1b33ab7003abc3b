"""Times that carry over, and the domain that an anomaly counts against."""

from dataclasses import replace

import pytest
from hyperscout_collector.decisions.publication.stamps import Dated, by_link, placed, stamped
from hyperscout_topology.topology import Anomaly, Condition, Endpoint

from .trees import leaves_of, lost_uplink, tree

NOW, BEFORE, LATER = 1000, 500, 2000
SINCE = [
    ("as it was", "True", BEFORE, "True", BEFORE),
    ("flipped", "True", BEFORE, "False", NOW),
    ("flipped after a clock that ran ahead", "True", LATER, "False", LATER),
    ("as it was, time unknown", "True", 0, "True", NOW),
]


@pytest.mark.parametrize(("name", "old", "since", "new", "expected"), SINCE, ids=[x[0] for x in SINCE])
def test_a_condition_keeps_its_time_until_it_flips(
    name: str, old: str, since: int, new: str, expected: int
) -> None:
    (h,) = tree(leaves_of(1), top=False).hypernodes
    past = replace(
        h, conditions=(Condition("Ready", old, "R", "", since), Condition("Stale", "True", "", "", 7))
    )
    now = replace(
        h, conditions=(Condition("Ready", new, "R", "words"), Condition("Degraded", "True", "", ""))
    )
    (got,) = stamped([now], replace(tree({}), hypernodes=(past,)), NOW)
    assert [(c.type, c.since_ns) for c in got.conditions] == [("Ready", expected), ("Degraded", NOW)]
    assert got.conditions[0].message == "words"
    other = replace(now, name="other")
    assert {c.since_ns for c in stamped([other], tree({}), NOW)[0].conditions} == {NOW}


def test_a_hypernode_that_stays_equal_is_the_same_object() -> None:
    ready, stale = Condition("Ready", "True", "R", "2 of 2"), Condition("Stale", "False", "F", "")
    past = tuple(
        replace(h, conditions=(replace(ready, since_ns=BEFORE), replace(stale, since_ns=BEFORE)))
        for h in tree(leaves_of(2), top=False).hypernodes
    )
    before = replace(tree({}), hypernodes=past)
    one, other = (replace(h, conditions=(ready, stale)) for h in past)
    assert [x is y for x, y in zip(stamped([one, other], before, NOW), past, strict=True)] == [True, True]
    fewer = replace(other, switches=())
    told = replace(one, conditions=(replace(ready, message="1 of 2"), stale))
    first, second = stamped([told, fewer], before, NOW)
    assert [(c.message, c.since_ns) for c in first.conditions] == [("1 of 2", BEFORE), ("", BEFORE)]
    assert second == replace(past[1], switches=())


def test_an_anomaly_that_is_the_same_object_stays_so_with_its_time() -> None:
    dated, one, other = Dated(), lost_uplink(1), lost_uplink(2)
    times = {one.key: BEFORE, other.key: NOW}
    first = dated([one, other], times)
    assert [x.since_ns for x in first] == [BEFORE, NOW]
    second = dated([other, one], times)
    assert [x is y for x, y in zip(second, reversed(first), strict=True)] == [True, True]
    (later,) = dated([one], {one.key: LATER})
    assert later == replace(one, since_ns=LATER)
    told = replace(one, message="another text")
    assert dated([told], {one.key: LATER}) == [replace(told, since_ns=LATER)]


def test_anomalies_of_one_link_go_together_whichever_end_is_named_first() -> None:
    one = lost_uplink(1)
    assert one.peer is not None
    turned = replace(one, kind="SlowLink", subject=one.peer, peer=one.subject, since_ns=9)
    parallel = lost_uplink(2)
    device = Anomaly("MissingSwitch", Endpoint("sw-l00", ""), None, 1, (), 1.0, "")
    found = by_link([one, turned, parallel, device])
    assert sorted(len(x) for x in found.values()) == [1, 1, 2]
    assert {x.since_ns for items in found.values() for x in items.values()} == {0}


HOST = Endpoint("0123456789abcdef", "n0005", "1")  # an adapter of this node
LEAF, TOP, UNKNOWN = Endpoint("sw-l01", "leaf"), Endpoint("sw-top", "top"), Endpoint("x", "x")
PLACES: list[tuple[str, Endpoint, Endpoint | None, str | None, tuple[str | None, int | None]]] = [
    ("its own domain", HOST, LEAF, "l00", ("l00", 1)),
    ("its own domain, whose tier is another by now", HOST, LEAF, "top", ("top", 2)),
    ("the host's", HOST, TOP, "gone", ("l01", 1)),
    ("the lower switch's", TOP, LEAF, "gone", ("l01", 1)),
    ("the only one known", UNKNOWN, TOP, "gone", ("top", 2)),
    ("no other end", LEAF, None, "gone", ("l01", 1)),
    ("an unknown device's", UNKNOWN, None, "gone", (None, None)),
    ("new, with no domain before", HOST, LEAF, None, (None, 1)),
]


@pytest.mark.parametrize(("name", "subject", "peer", "own", "expected"), PLACES, ids=[x[0] for x in PLACES])
def test_an_anomaly_counts_against_a_domain_of_this_tree(
    name: str,
    subject: Endpoint,
    peer: Endpoint | None,
    own: str | None,
    expected: tuple[str | None, int | None],
) -> None:
    x = Anomaly("MissingLink", subject, peer, 1, (), 1.0, "", own)
    (got,) = placed([x], tree(leaves_of(2)).hypernodes)
    assert (got.hypernode, got.tier) == expected
