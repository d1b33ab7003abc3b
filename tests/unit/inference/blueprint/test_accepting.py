"""`--accept`: what is wired becomes the blueprint, in its own words where they still fit."""

from dataclasses import replace
from random import Random

import pytest
from hyperscout_inference.blueprint.accepting import Accepted, accept
from hyperscout_inference.blueprint.comparing import compare
from hyperscout_inference.blueprint.declared import plain_port
from hyperscout_inference.blueprint.reading import parse
from hyperscout_sim.fabric.faults import NotApplicableError, plant
from hyperscout_sim.fabric.planted import Fault
from hyperscout_sim.fabric.shapes import clos2, rail_optimised
from hyperscout_topology.topology import Adapter, Link, LinkTable, Switch, Topology
from hypothesis import given
from hypothesis import strategies as st
from support.examples import slow_after
from support.inference import inferred

PLAN = """\
# Two units.
# Rails by number.
version: 1
switches:
- leaf-u[01-02]-r[0-1]
patterns:
- name: rails
  for: {u: 1-2, n: "1-4", r: [0, 1]}
  link: node-{(u-1)*4+n:04}/mlx5_{r} -> leaf-u{u:02}-r{r}/p{n}
- name: uplinks
  for: {u: 1-2, s: 1-2}
  link: leaf-u{u:02}-r0 -> spine-r0-{s:02}/p{u}
links:
- leaf-u01-r1/p5 -> spine-r1-03/p1
- leaf-u01-r1/p6 -> spine-r1-04/p1
- leaf-u02-r1/p5 -> spine-r1-03/p2
- leaf-u02-r1/p6 -> spine-r1-04/p2
"""
FABRIC = rail_optimised(units=2, hosts_per_unit=4, rails=2, spines_per_rail=2)


def test_the_plan_of_the_tests_holds() -> None:
    assert compare(inferred(FABRIC), parse(PLAN.encode())).drifts == ()


def accepted(topology: Topology, plan: str | None = PLAN) -> Accepted:
    """The new blueprint, of which nothing is drift."""
    new = accept(topology, None if plan is None else parse(plan.encode()))
    assert compare(topology, parse(new.text.encode())).drifts == ()
    return new


def test_everything_where_there_is_none() -> None:
    new = accepted(inferred(FABRIC), None)
    assert (new.links, new.patterns, new.dropped, new.left_out) == (24, 0, (), 0)
    lines = new.text.splitlines()
    assert lines[:3] == ["version: 1", "switches:", "- leaf-u01-r0"]
    assert "- node-0005/mlx5_1 -> leaf-u02-r1/p1" in lines


def test_patterns_that_hold_stay_as_they_were_written() -> None:
    new = accepted(inferred(FABRIC))
    head, _, links = new.text.partition("links:\n")
    assert (
        head
        == """\
# Two units.
# Rails by number.
version: 1
switches:
- leaf-u01-r0
- leaf-u01-r1
- leaf-u02-r0
- leaf-u02-r1
- spine-r0-01
- spine-r0-02
- spine-r1-03
- spine-r1-04
patterns:
- name: rails
  for: {u: 1-2, n: 1-4, r: [0, 1]}
  link: node-{(u-1)*4+n:04}/mlx5_{r} -> leaf-u{u:02}-r{r}/p{n}
- name: uplinks
  for: {u: 1-2, s: 1-2}
  link: leaf-u{u:02}-r0 -> spine-r0-{s:02}/p{u}
"""
    )
    assert links == PLAN.partition("links:\n")[2]
    assert accepted(inferred(FABRIC), new.text).text == new.text


def test_a_pattern_that_holds_no_more_becomes_lines() -> None:
    gone = next(c for c in FABRIC.cables if c.a == FABRIC.adapters[0].guid)
    cut = replace(FABRIC, cables=tuple(c for c in FABRIC.cables if c != gone))
    new = accepted(inferred(cut, inferred(FABRIC)))
    assert (new.links, new.patterns, new.dropped) == (15 + 4, 1, ("rails",))
    assert "name: uplinks" in new.text


@pytest.mark.parametrize("fault", list(Fault))
@pytest.mark.parametrize("seed", slow_after(1, [1, 2]))
def test_after_any_fault_what_is_accepted_is_no_drift(fault: Fault, seed: int) -> None:
    try:
        faulty, planted = plant(FABRIC, fault, Random(seed))
    except NotApplicableError:
        return
    topology = inferred(faulty, inferred(FABRIC))
    drifts = compare(topology, parse(PLAN.encode())).drifts
    wired = fault not in (Fault.ONE_SIDED, Fault.STORAGE, Fault.MANAGER, Fault.LOGIN, Fault.SHARP)
    assert bool(drifts) == (wired and "factory" not in fault)
    ends = {FABRIC.name_of(end).split()[0] for c in planted.before for end in (c.a, c.b)}
    if ends:
        assert {x.anomaly.subject.name for x in drifts} <= ends
    accepted(topology)
    accepted(topology, None)


def test_a_blueprint_of_some_ports_goes_on_speaking_of_them_alone() -> None:
    some = "links: [node-0001/mlx5_0 -> leaf-u01-r0/p2, leaf-u01-r1/p6 -> spine-r1-04]"
    new = accepted(inferred(FABRIC), some)
    assert new.text == (
        "version: 1\nlinks:\n"
        "- leaf-u01-r1/p6 -> spine-r1-04/p1\n"
        "- node-0001/mlx5_0 -> leaf-u01-r0/p1\n"
        "- node-0002/mlx5_0 -> leaf-u01-r0/p2\n"
    )


def test_a_blueprint_of_one_network_takes_no_other_in() -> None:
    links = [Link("h1", "eth0", "l1", "1", "", ()), Link("h1", "eth9", "m1", "1", "", ())]
    links += [Link("l1", "9", "s1", "1", "", ()), Link("m1", "9", "m2", "1", "", ())]
    switches = tuple(Switch(x, x, 1) for x in ("l1", "m1", "m2", "s1"))
    topology = Topology(1, switches=switches, adapters=(Adapter("h1", "h1", ""),), links=LinkTable.of(links))
    new = accepted(topology, "switches: [l1]")
    assert new.text == "version: 1\nswitches:\n- l1\n- s1\nlinks:\n- h1/eth0 -> l1/p1\n- l1/p9 -> s1/p1\n"


def test_storage_is_no_part_of_it_but_where_it_was_declared() -> None:
    links = [Link("h1", "eth0", "l1", "1", "", ()), Link("l1", "40", "nas", "1", "", ())]
    links += [Link("l1", "41", "nas", "2", "", ())]
    topology = Topology(
        1,
        switches=(Switch("l1", "l1", 1),),
        adapters=(Adapter("h1", "h1", ""),),
        links=LinkTable.of(links),
    )
    written = "- h1/eth0 -> l1/p1\n"
    assert accepted(topology, None).text.endswith(f"links:\n{written}")
    assert accepted(topology, "switches: [l1]").text.endswith(f"links:\n{written}")
    declared = accepted(topology, "{switches: [l1], links: [nas/p2 -> l1/p41]}")
    assert declared.text.endswith(f"links:\n{written}- nas/p2 -> l1/p41\n")


def test_numbers_are_in_order() -> None:
    links = [Link(f"h{i}", "eth0", f"l{i}", "1", "", ()) for i in (10, 9, 2)]
    switches = tuple(Switch(f"l{i}", f"l{i}", 1) for i in (10, 2, 9))
    text = accepted(Topology(1, switches=switches, links=LinkTable.of(links)), None).text
    assert text == (
        "version: 1\nswitches:\n- l2\n- l9\n- l10\nlinks:\n"
        "- h2/eth0 -> l2/p1\n- h9/eth0 -> l9/p1\n- h10/eth0 -> l10/p1\n"
    )


def test_what_fits_no_more_at_all_is_everything() -> None:
    assert accepted(inferred(FABRIC), "switches: [left-1]\nlinks: [left-1 -> right-1]").links == 24


def test_declared_ids_are_renewed() -> None:
    topology = inferred(FABRIC)
    (leaf,) = (s.id for s in topology.switches if s.name == "leaf-u01-r0")
    new = accepted(topology, 'switches: [{name: leaf-u01-r0, id: "0000"}, leaf-u01-r1]')
    assert f'- {{name: "leaf-u01-r0", id: "{leaf}"}}\n- leaf-u01-r1\n' in new.text


def test_one_of_two_cables_on_a_port_is_left_out() -> None:
    links = [
        Link("h1", "eth0", "l1", "1", "", (), "doubtful"),
        Link("h2", "eth0", "l1", "1", "", ()),
        Link("h3", "eth0", "l1", "", "", ()),
        Link("h4", "eth0", "l1", "", "", ()),
    ]
    topology = Topology(1, switches=(Switch("l1", "l1", 1),), links=LinkTable.of(links))
    new = accept(topology, None)
    assert (new.links, new.left_out) == (3, 1)
    assert new.text.endswith("- h2/eth0 -> l1/p1\n- h3/eth0 -> l1\n- h4/eth0 -> l1\n")


def test_what_no_reporter_can_see_stays_declared() -> None:
    """Hosts alone tell: of what is above their leaves nothing is known, and a spine is in no topology."""
    links = [Link(f"h{i}", "eth0", f"l{i}", "1", "ethernet", ("lldp",)) for i in (1, 2)]
    switches = tuple(Switch(x, x, 1) for x in ("l1", "l2"))
    topology = Topology(1, switches=switches, links=LinkTable.of(links))
    plan = """\
version: 1
switches:
- l1
- l2
- s1
patterns:
- name: up
  for: {i: 1-2}
  link: l{i}/p9 -> s1/p{i}
links:
- h1/eth0 -> l1/p1
- h2/eth0 -> l2/p1
- l1/p8 -> s1/p8
"""
    assert compare(topology, parse(plan.encode())).unseen == 3
    assert accepted(topology, plan).text == plan
    moved = accepted(topology, plan.replace("l2/p1\n", "l2/p2\n"))
    assert moved.text == plan


names = st.text(min_size=1, max_size=8) | st.sampled_from(
    ["a b", "a -> b", "x/y", "[1-2]", "-", "p7", "é", "#", "a: b", "{u}", "no", "1", "a#", "a:", "'", '"']
)


@given(st.lists(st.tuples(names, names, names, names), max_size=6), st.booleans())
def test_whatever_things_are_called_it_is_read_back(
    rows: list[tuple[str, str, str, str]], all_switches: bool
) -> None:
    links, used = [], set()
    for a, p, b, q in rows:
        ends = {(a, plain_port(p)), (b, plain_port(q))}
        if len(ends) == 2 and not ends & used:
            used |= ends
            links.append(Link(a, p, b, q, "", ("x",)))
    devices = {x.b_device for x in links} | {x.a_device for x in links if all_switches}
    topology = Topology(
        1, switches=tuple(Switch(d, d, 1) for d in sorted(devices)), links=LinkTable.of(links)
    )
    new = accept(topology, None)
    assert new.links + new.left_out == len(links)
    assert all(c.isprintable() or c == "\n" for c in new.text)
    if new.links or topology.switches:
        found = compare(topology, parse(new.text.encode()))
        assert [x for x in found.drifts if x.sign != "+"] == []
        assert len(found.drifts) <= new.left_out


def test_a_topology_without_cables_is_no_blueprint_of_cables() -> None:
    assert accept(Topology(1), None).text == "version: 1\nlinks:\n"
    assert accept(replace(inferred(clos2(1, 2, 1)), links=()), None).links == 0
