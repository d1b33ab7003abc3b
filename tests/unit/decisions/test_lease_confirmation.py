"""Sweep leases whose sweeps another node must confirm, and which of two leases stays."""

import pytest
from hyperscout_collector.decisions.fabric.sweep_events import SweepHeld, SweepSeen

from .test_leases import ONE, explored, world


def test_of_two_the_one_with_the_longer_record_of_whole_sweeps_stays() -> None:
    w = explored({(0, 0): "a", (1, 0): "b"})
    older, newer = w.grants()
    w.fail(older)
    w.sweep(older)
    w.cables.update({(1, 0): "a"})
    w.sweep(older)
    assert w.grants() == [newer], "the record of the other one begins after its failure"


def test_a_provisional_sweep_ends_no_lease_of_a_published_port() -> None:
    w = world(ONE)
    w.connect(0, 1)
    liar, holder = w.grants()
    known = frozenset({holder.lease_id})
    seen = frozenset(w.guid(h, 0) for h in range(4))
    w.send(SweepSeen(liar.node, liar.lease_id, seen, known=known))
    assert w.grants() == [holder], "although it has not swept"
    assert w.reasons() == [f"the fabric is swept under lease {holder.lease_id}"]
    w.sweep(holder)
    w.set_down((1, 0))
    assert [g.node for g in w.grants()] != ["h0"], "its port backs off"


def test_another_node_confirms_the_first_sweep_of_a_fabric_once() -> None:
    w = world(ONE)
    w.connect(0)
    (first,) = w.grants()
    w.sweep(first)
    held = SweepHeld(first.node, first.lease_id, "", is_first=True)
    w.send(held)
    assert w.grants() == [first], "no other agent can confirm it"
    assert [x.unconfirmed for x in w.machine.leases()] == [True]
    w.connect(1)
    assert w.grants() == [first]
    w.wait(10)
    (second,) = w.grants()
    assert second.node == "h1"
    w.sweep(second)
    assert [x.unconfirmed for x in w.machine.leases()] == [False]
    w.send(SweepHeld(second.node, second.lease_id, "", is_first=True))
    w.wait(10)
    assert w.grants() == [second]
    w.leave(0)
    w.wait(299)
    assert [x.unconfirmed for x in w.machine.leases()] == [False]
    w.wait(2)
    assert [x.unconfirmed for x in w.machine.leases()] == [True]


@pytest.mark.parametrize("accused", [False, True])
def test_the_lease_of_a_held_sweep_moves(accused: bool) -> None:
    w = explored({(0, 0): "ib", (1, 0): "ib"})
    (held,) = w.grants()
    w.send(SweepHeld(held.node, held.lease_id, "it moves hosts", is_accused=accused))
    (other,) = w.grants()
    assert other.node != held.node
    w.sweep(other)
    w.send(SweepHeld(other.node, other.lease_id, "it moves hosts"))
    assert [g.node for g in w.grants()] == [other.node if accused else held.node], "an accused port backs off"


def test_what_a_sweep_says_of_other_ports_makes_its_node_not_alone() -> None:
    """A holder that renames the ports of all others leaves them able to confirm."""
    w = explored({(0, 0): "ib", (1, 0): "ib"})
    (holder,) = w.grants()
    w.send(SweepSeen(holder.node, holder.lease_id, frozenset({w.guid(int(holder.node[1:]), 0), 0x7777})))
    assert not w.machine.is_alone(holder.node, holder.lease_id)
