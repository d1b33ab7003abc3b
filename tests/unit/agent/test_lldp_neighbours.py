"""Which sender counts as a neighbour, and until when."""

from dataclasses import replace

from hyperscout_agent.lldp.neighbours import NeighbourTable
from hyperscout_formats.facts.facts import LldpNeighbour

S = 1_000_000_000
A, B = b"aaaaaa", b"bbbbbb"
LEAF = LldpNeighbour("mac", "02:00:00:00:00:01", "ifname", "swp1", 120, system_name="leaf1")
OTHER = LldpNeighbour("mac", "02:00:00:00:00:02", "ifname", "swp9", 120, system_name="leaf2")


def test_heard_refreshed_expired() -> None:
    table = NeighbourTable()
    assert table.next_expiry_ns() is None
    assert table.heard("eth0", A, LEAF, 10 * S)
    assert table.neighbours("eth0", 11 * S) == (LEAF,)
    assert table.neighbours("eth1", 11 * S) == ()
    assert table.next_expiry_ns() == 130 * S
    table.again("eth0", A, 100 * S)
    assert table.neighbours("eth0", 220 * S - 1) == (LEAF,)
    assert table.neighbours("eth0", 220 * S) == ()
    assert table.next_expiry_ns() is None
    assert table.again("eth0", A, 300 * S), "the listener sends a frame once: the same again brings it back"
    assert table.neighbours("eth0", 301 * S) == (LEAF,)
    table.clear("eth0")
    assert table.neighbours("eth0", 302 * S) == ()
    assert table.again("eth0", A, 303 * S), "so does the cable that is back"
    assert table.neighbours("eth0", 304 * S) == (LEAF,)
    assert not table.again("eth0", B, 305 * S), "an unknown sender adds no neighbour"


def test_a_cable_that_is_moved_at_once() -> None:
    """Faster than the probe looks: the next sender on the port replaces the one before."""
    table = NeighbourTable()
    table.heard("eth0", A, LEAF, 10 * S)
    table.blinked("eth0", 11 * S)
    assert table.neighbours("eth0", 12 * S) == (LEAF,), "most cables that blink stay where they are"
    assert table.heard("eth0", B, OTHER, 13 * S)
    assert table.neighbours("eth0", 14 * S) == (OTHER,)


def test_a_newcomer_that_spoke_before_it_was_known_that_the_carrier_blinked() -> None:
    table = NeighbourTable()
    table.heard("eth0", A, LEAF, 10 * S)
    table.heard("eth0", B, OTHER, 12 * S)
    table.blinked("eth0", 13 * S)
    assert table.neighbours("eth0", 14 * S) == (LEAF, OTHER)
    assert table.again("eth0", B, 20 * S), "that the other is gone shows"
    assert table.neighbours("eth0", 21 * S) == (OTHER,)


def test_two_neighbours_stay_when_the_carrier_blinks() -> None:
    table = NeighbourTable()
    for at in (10, 20):
        table.heard("eth0", A, LEAF, at * S)
        table.heard("eth0", B, OTHER, (at + 1) * S)
    table.blinked("eth0", 22 * S)
    assert not table.again("eth0", A, 40 * S)
    assert table.neighbours("eth0", 41 * S) == (LEAF, OTHER)


def test_a_newcomer_beside_a_steady_cable_removes_no_neighbour() -> None:
    table = NeighbourTable()
    table.heard("eth0", A, LEAF, 10 * S)
    table.heard("eth0", B, OTHER, 20 * S)
    assert not table.again("eth0", B, 30 * S)
    assert table.neighbours("eth0", 31 * S) == (LEAF, OTHER)


def test_only_what_shows_is_a_change() -> None:
    table = NeighbourTable()
    assert table.heard("eth0", A, LEAF, 1 * S)
    assert not table.heard("eth0", A, LEAF, 2 * S)
    assert table.heard("eth0", A, replace(LEAF, system_name="renamed"), 3 * S)
    assert table.neighbours("eth0", 4 * S)[0].system_name == "renamed"


def test_goodbye_takes_only_its_sender() -> None:
    table = NeighbourTable()
    table.heard("eth0", A, LEAF, 1 * S)
    table.heard("eth0", B, OTHER, 1 * S)
    assert table.neighbours("eth0", 2 * S) == (LEAF, OTHER)
    assert table.heard("eth0", A, replace(LEAF, ttl_s=0, system_name=""), 2 * S)
    assert table.neighbours("eth0", 3 * S) == (OTHER,)
    assert not table.heard("eth0", A, replace(LEAF, ttl_s=0), 3 * S), "already gone"


def test_one_sender_with_two_identities_has_two_lives() -> None:
    """A NIC's own agent beside the system's, with one MAC: both stay, neither pushes the other out."""
    table = NeighbourTable()
    for at in range(4):
        table.heard("eth0", A, LEAF, at * S)
        table.heard("eth0", A, OTHER, at * S)
    assert table.neighbours("eth0", 5 * S) == (LEAF, OTHER)


def test_carrier_loss_forgets() -> None:
    table = NeighbourTable()
    table.heard("eth0", A, LEAF, 1 * S)
    table.unreadable("eth0", "bad", 1 * S)
    table.clear("eth0")
    assert table.neighbours("eth0", 2 * S) == ()
    assert table.trouble("eth0", 2 * S) == ""


def test_an_unreadable_frame_removes_no_neighbour_and_is_forgotten() -> None:
    table = NeighbourTable()
    table.heard("eth0", A, LEAF, 1 * S)
    assert table.unreadable("eth0", "cut short", 2 * S)
    assert not table.unreadable("eth0", "cut short", 3 * S)
    assert table.neighbours("eth0", 4 * S) == (LEAF,)
    assert table.trouble("eth0", 4 * S) == "cut short"
    assert table.trouble("eth0", 200 * S) == ""
    table.unreadable("eth0", "cut short", 300 * S)
    assert table.heard("eth0", A, LEAF, 301 * S), "a good frame ends the trouble, which shows"
    assert table.trouble("eth0", 302 * S) == ""


def test_a_storm_of_neighbours_is_bounded() -> None:
    table = NeighbourTable()
    table.heard("eth0", A, LEAF, 10_000_000)
    for number in range(10_000):
        table.heard("eth0", number.to_bytes(6, "big"), replace(OTHER, chassis_id=str(number)), number)
        table.unreadable(f"port{number}", "x", number)
    assert len(table.neighbours("eth0", S)) == 16
    assert LEAF in table.neighbours("eth0", S)
