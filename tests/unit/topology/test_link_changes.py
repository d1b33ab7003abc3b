"""Links that are gone, whichever end stands first, in tables with texts in any order."""

from dataclasses import replace

import numpy as np
from hyperscout_topology.link_changes import (
    DENIED,
    extended,
    link_changes,
    links_at,
    lost_links,
    ports_in_use,
    unaligned,
    wired_devices,
    without,
)
from hyperscout_topology.topology import Link, LinkTable
from hypothesis import given
from hypothesis import strategies as st


def link(a: str, ap: str, b: str, bp: str, fabric: str = "ib", *sources: str) -> Link:
    return Link(a, ap, b, bp, fabric, sources)


A, B, C = link("h1", "1", "s1", "7"), link("h2", "1", "s1", "8"), link("s1", "9", "s2", "1")
TURNED = link("s1", "7", "h1", "1", "other", "lldp")

ends = st.tuples(st.sampled_from("abc"), st.sampled_from("123"))
tables = st.lists(st.builds(lambda a, b: link(*a, *b), ends, ends), max_size=12)


def test_other_witnesses_or_the_other_way_round_is_the_same_cable() -> None:
    assert lost_links([A, B, C], LinkTable.of([C, TURNED])) == [B]
    assert lost_links([A], []) == [A]
    assert lost_links([], [A]) == []


NUMBERS = st.lists(st.integers(0, 40), max_size=30)


@given(NUMBERS, NUMBERS)
def test_what_is_aligned_is_equal_in_order(one: list[int], other: list[int]) -> None:
    a, b = np.array(one, np.uint64), np.array(other, np.uint64)
    gone, come = unaligned(a, b)
    assert np.delete(a, gone).tolist() == np.delete(b, come).tolist()
    assert sorted({*gone.tolist()}) == gone.tolist()
    assert sorted({*come.tolist()}) == come.tolist()


@given(st.sets(st.integers(0, 999), max_size=20), st.lists(st.integers(0, 999), max_size=20))
def test_few_rows_are_unaligned_where_few_changed(left_out: set[int], inserted_at: list[int]) -> None:
    old = np.arange(1000)
    new = np.delete(old, sorted(left_out))
    places = [min(place, len(new)) for place in inserted_at]
    new = np.insert(new, places, range(2000, 2000 + len(places)))
    gone, come = unaligned(old, new)
    assert {*old[gone].tolist()} == left_out
    assert {*new[come].tolist()} == {*range(2000, 2000 + len(places))}


@given(tables, st.sets(ends), st.sets(st.integers(0, 11)))
def test_ports_in_use_are_those_of_links_that_count(
    links: list[Link], ports: set[tuple[str, str]], denied: set[int]
) -> None:
    links = [replace(x, note=f"{DENIED}x") if i in denied else x for i, x in enumerate(links)]
    assert ports_in_use(links, ports) == {
        end
        for x in links
        if not x.note
        for end in ((x.a_device, x.a_port), (x.b_device, x.b_port))
        if end in ports
    }


def test_a_port_whose_text_is_listed_twice_is_in_use() -> None:
    """As where InfiniBand numbers a port and Ethernet names one alike."""
    table = LinkTable.of([A, C])
    twice = replace(table, ports=[*table.ports, "1"], a_port=table.a_port.copy())
    twice.a_port[0] = len(table.ports)
    assert ports_in_use(twice, {("h1", "1"), ("s2", "1"), ("s1", "8")}) == {("h1", "1"), ("s2", "1")}


def test_what_ends_where() -> None:
    assert links_at([A, B, C], {"h1", "s2"}) == [A, C]
    assert wired_devices([A, C]) == {"h1", "s1", "s2"}
    assert wired_devices([]) == set()


def test_a_table_with_a_device_that_is_listed_twice_is_extended() -> None:
    """As the file of an earlier version may have it."""
    table = LinkTable.of([A, B])
    twice = replace(table, devices=[*table.devices, "h1"], b=table.b.copy())
    twice.b[1] = len(table.devices)
    assert list(extended(twice, [C])) == [*twice, C]
    assert list(extended(table, [C])) == [A, B, C]


@given(tables, tables)
def test_it_is_a_difference_of_sets(old: list[Link], new: list[Link]) -> None:
    def cable(x: Link) -> frozenset[tuple[str, str]]:
        return frozenset(((x.a_device, x.a_port), (x.b_device, x.b_port)))

    def looped(x: Link) -> tuple[bool, frozenset[tuple[str, str]]]:
        return ((x.a_device, x.a_port) == (x.b_device, x.b_port), cable(x))

    there = {looped(x) for x in new}
    assert lost_links(old, LinkTable.of(new)) == [x for x in old if looped(x) not in there]


links = st.lists(
    st.builds(
        lambda a, b, n, rate: Link(*a, *b, "ib", ("lldp",), n, *rate),
        ends,
        ends,
        st.sampled_from("!?"),
        st.sampled_from([(), (200.0, 4), (50.0, 1)]),
    )
)


@given(links, links)
def test_changes_are_those_of_whole_rows_wherever_they_stand(old: list[Link], new: list[Link]) -> None:
    old, new = list(dict.fromkeys(old)), list(dict.fromkeys(new))
    added, removed = link_changes(LinkTable.of(old), LinkTable.of(new))
    assert added == [x for x in new if x not in old]
    assert removed == [x for x in old if x not in new]


@given(links, st.sets(st.integers(0, 20)))
def test_a_table_less_some_rows(old: list[Link], rows: set[int]) -> None:
    gone = sorted(row for row in rows if row < len(old))
    assert list(without(LinkTable.of(old), gone)) == [x for i, x in enumerate(old) if i not in rows]
