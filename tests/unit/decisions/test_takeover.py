"""When a new leader begins to infer: tables over the reporters that were heard."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hyperscout_collector.decisions.publication.takeover import Takeover
from hyperscout_inference.hierarchy.conditions import ConditionFacts, with_conditions
from hyperscout_runtime.units import NS
from hyperscout_topology.topology import Condition, Link, LinkTable, Topology
from support.topologies import leaves, two_leaves

START = 10**18
SWITCHES = [["s1", "s2", "s9"]]


def started(previous: Topology, agents: Mapping[str, int] | None = None) -> Takeover:
    return Takeover(previous, 30.0, START, agents=agents, stale_after_s=300.0)


@pytest.mark.parametrize(
    ("heard", "down", "sweeps", "after_s", "ended"),
    [
        pytest.param([], [], [], 0, False, id="at the start"),
        pytest.param(
            ["n01", "n02", "n03", "n04"], [], SWITCHES, 1, True, id="all were heard, and a sweep came"
        ),
        pytest.param(["n01", "n02", "n03"], [], SWITCHES, 9, False, id="one is missing"),
        pytest.param(["n01", "n02", "n03"], [], SWITCHES, 10, True, id="one is still missing"),
        pytest.param(["n01", "n02"], [], SWITCHES, 29, False, id="two of four are missing"),
        pytest.param(["n01", "n02", "n03"], [], [], 29, False, id="one is missing, and the sweep"),
        pytest.param(["n01", "n02", "n03", "n04"], [], [], 29, False, id="the sweep is missing"),
        pytest.param(["n01", "n02", "n03", "n04"], [], [["t1"]], 29, False, id="a sweep of another fabric"),
        pytest.param(["n01", "n02", "n03"], ["n04"], SWITCHES, 1, True, id="the missing one is down"),
        pytest.param([], [], [], 30, True, id="the time is up"),
        pytest.param(
            ["n01", "n02", "n03", "n04"], [], [["s9"]], 1, True, id="the rest of a fabric that came apart"
        ),
    ],
)
def test_ends(
    heard: Sequence[str], down: Sequence[str], sweeps: Sequence[Sequence[str]], after_s: int, ended: bool
) -> None:
    takeover = started(two_leaves())
    for node in heard:
        takeover.full_state(node, START)
    assert takeover.ended(START + after_s * NS, down, sweeps, {}) == ended
    assert takeover.active != ended
    assert takeover.ended(START, [], [], {}) == ended, "it does not begin again"


def test_the_last_agent_is_news() -> None:
    takeover = started(leaves(("n1", "n2")))
    for node in ("n1", "n1", "other"):
        takeover.full_state(node, START)
        assert not takeover.lacks_only({node})
    assert takeover.lacks_only({"n2"})
    takeover.full_state("n2", START)
    assert takeover.lacks_only(())
    assert takeover.ended(START, [], [], {}), "no sweep showed anything of it, so none is waited for"


def test_a_fabric_at_a_time() -> None:
    first = two_leaves()
    second = [replace(x, a_device=f"t{i}", b_device="t9", fabric="ib-2") for i, x in enumerate(first.links)]
    switches = (*first.switches, *(replace(first.switches[0], id=f"t{i}") for i in (0, 9)))
    takeover = started(replace(first, links=(*first.links, *second), switches=switches))
    nodes = ["n01", "n02", "n03", "n04"]
    assert not takeover.ended(START, nodes, [["s1"]], {})
    assert takeover.waits_for() == "a sweep of ib-2"
    assert takeover.ended(START, [], [["t9"]], {})


def test_an_agent_that_has_just_begun_to_listen_is_waited_for() -> None:
    """Agents that restart together with their collector say that they do not know their neighbours yet."""
    tree = leaves(("n1", "n2"))
    heard = Link("n1", "eth0", "s1", "swp1", "ethernet", ("lldp",))
    takeover = started(replace(tree, links=(heard,)))
    for node in ("n1", "n2"):
        takeover.full_state(node, START)
    assert not takeover.ended(START + 1, [], [], {}, ["n1", "n2", "n9"])
    assert takeover.waits_for() == "LLDP neighbours of 1 node (n1)", "LLDP never showed the others'"
    assert takeover.ended(START + 2, [], [], {}, ["n2"])
    again = started(replace(tree, links=(heard,)))
    for node in ("n1", "n2"):
        again.full_state(node, START)
    assert not again.ended(START + 29 * NS, [], [], {}, ["n1"])
    assert again.ended(START + 30 * NS, [], [], {}, ["n1"]), "but not for ever"


def test_what_it_waits_for() -> None:
    takeover = started(two_leaves())
    assert takeover.waits_for() == "agents of 4 nodes (n01, n02, n03 and 1 more) and a sweep of ib"


def stale_leaves(nodes: tuple[str, ...], *, above: bool) -> Topology:
    tree = leaves(("n1", "n2", "n3", "n4", "n10"), ("n5",))
    stale = Condition("Stale", "True", "EvidenceStale", "some words", START, nodes)
    first, second, core = tree.hypernodes
    core = replace(core, conditions=(replace(stale, nodes=()),)) if above else core
    return replace(tree, hypernodes=(replace(first, conditions=(stale,)), second, core))


@pytest.mark.parametrize(
    ("nodes", "above", "stale"),
    [
        pytest.param(("n10",), False, ["n10"], id="one"),
        pytest.param(("n1", "n2", "n4", "n10"), False, ["n1", "n2", "n4", "n10"], id="more than are named"),
        pytest.param(("n1", "n4"), True, ["n1", "n4"], id="another domain is stale as a whole"),
        pytest.param((), False, ["n1"], id="no list"),
        pytest.param((), True, ["n1", "n2", "n3", "n4", "n10"], id="no list, and stale above"),
    ],
)
def test_a_stale_reporter_stays_so_until_heard(nodes: tuple[str, ...], above: bool, stale: list[str]) -> None:
    takeover = started(stale_leaves(nodes, above=above))
    assert list(takeover.stale(START)) == stale
    for node in stale:
        takeover.full_state(node, START)
    assert set(takeover.stale(START)).isdisjoint(stale)


def test_all_stale_nodes_stay_so_however_many() -> None:
    nodes = [f"n{i}" for i in range(9)]
    tree = leaves(("a", *nodes), ("b",))
    known = with_conditions(tree, ConditionFacts(stale=dict.fromkeys(nodes, START)))
    assert list(started(known).stale(START)) == nodes


def test_a_clock_that_is_set_back_makes_it_no_longer() -> None:
    takeover = started(two_leaves())
    back = START - 3600 * 10**9
    assert not takeover.ended(START + 5 * 10**9, (), [], {})
    assert not takeover.ended(back, (), [], {})
    assert not takeover.ended(back + 29 * 10**9, (), [], {})
    assert takeover.ended(back + 30 * 10**9, (), [], {})


# --- switches that report themselves


def switched(*links: Link) -> Topology:
    """Two leaves under one core, as hosts and switches tell of them."""
    tree = two_leaves()
    return replace(tree, links=LinkTable.of(links))


UP_1 = Link("s1", "9", "s9", "1", "ethernet", ("switch",))
UP_2 = Link("s2", "9", "s9", "2", "ethernet", ("switch",))
HOST = Link("n01", "eth0", "s1", "1", "ethernet", ("lldp", "switch"))
HOST_BY_SWITCH = Link("n02", "eth0", "s2", "1", "ethernet", ("switch",))
IDS = {"switch/leaf-a": {"s1"}, "switch/leaf-b": {"s2"}, "switch/spine": {"s9"}}


@pytest.mark.parametrize(
    ("links", "spoke", "ended"),
    [
        pytest.param([HOST], [], True, id="a host reports its cable itself"),
        pytest.param([HOST, UP_1, UP_2], [], False, id="no reporter at either end"),
        pytest.param([HOST, UP_1, UP_2], ["switch/spine"], True, id="the upper end of both"),
        pytest.param([HOST, UP_1, UP_2], ["switch/leaf-a"], False, id="the lower end of one"),
        pytest.param([HOST, UP_1, UP_2], ["switch/leaf-a", "switch/leaf-b"], True, id="the lower ends"),
        pytest.param(
            [HOST_BY_SWITCH], ["switch/spine"], False, id="a host's cable of which its switch knows"
        ),
        pytest.param([HOST_BY_SWITCH], ["switch/leaf-b"], True, id="that switch"),
        pytest.param([UP_1], ["switch/new"], False, id="a switch that was unknown"),
    ],
)
def test_a_switch_at_one_end_of_each_cable_that_switches_showed(
    links: list[Link], spoke: list[str], ended: bool
) -> None:
    takeover = started(switched(*links))
    for node in ("n01", "n02", "n03", "n04"):
        takeover.full_state(node, START)
    assert takeover.lacks_only(spoke), "to look again"
    for name in spoke:
        takeover.full_state(name, START)
    silent = IDS | {"switch/new": {"s7"}}
    assert takeover.ended(START, [], [], silent) == ended
    assert takeover.ended(START + 30 * NS, [], [], {}), "not for ever"


@pytest.mark.parametrize("sources", [("snmp",), ("netq", "snmp"), ("snmp", "switch")])
def test_a_crawl_is_waited_for(sources: tuple[str, ...]) -> None:
    """One that has begun anew tells of its switches as it comes by them."""
    links = [replace(link, sources=sources) for link in (UP_1, UP_2)]
    takeover = started(switched(HOST, *links))
    for node in ("n01", "n02", "n03", "n04", "fabric/crawl"):
        takeover.full_state(node, START)
    assert not takeover.ended(START, [], [], {}), "it has said all that it knows, which is nothing"
    assert not takeover.ended(START + 1, [], [], {"fabric/crawl": {"s1"}, "fabric/other": {"s9"}})
    assert takeover.waits_for() == "readings of switches (leaf-b, spine)"
    assert takeover.ended(START + 2, [], [], {"fabric/crawl": {"s1", "s2"}})


def test_what_a_manager_showed_is_waited_for() -> None:
    tree = two_leaves()
    shown = [replace(link, sources=("ufm",)) for link in tree.links]
    takeover = started(replace(tree, links=LinkTable.of(shown)))
    nodes = ["n01", "n02", "n03", "n04"]
    assert not takeover.ended(START, nodes, [], {})
    assert takeover.ended(START, nodes, SWITCHES, {})


def test_switches_it_waits_for() -> None:
    takeover = started(switched(UP_1, UP_2))
    nodes = ["n01", "n02", "n03", "n04"]
    assert not takeover.ended(START, nodes, [], IDS), "evidence of our own disk has not spoken"
    assert takeover.waits_for() == "readings of switches (leaf-a, leaf-b, spine)"
    takeover.full_state("switch/leaf-a", START)
    assert not takeover.ended(START, nodes, [], IDS)
    assert takeover.waits_for() == "readings of switches (leaf-b, spine)"


def test_a_switch_that_was_stale_stays_so_until_heard() -> None:
    tree = switched(UP_1, UP_2)
    stale = Condition("Stale", "True", "EvidenceStale", "some words", START, switches=("s1",))
    a, b, core = tree.hypernodes
    a = replace(a, switches=("s1",), conditions=(stale,))
    takeover = started(replace(tree, hypernodes=(a, b, core)))
    assert takeover.stale(START) == {}, "none of its nodes stands for it"
    assert takeover.stale_switches(START) == {"s1": 0}
    takeover.full_state("switch/leaf-a", START)
    takeover.ended(START, [], [], IDS)
    assert takeover.stale_switches(START) == {}


def test_an_agent_that_stays_silent_becomes_stale() -> None:
    """Those that the former leader listed, and those that have shown LLDP neighbours."""
    tree = leaves(("n1", "n2", "n3", "n4"))
    heard = Link("n2", "eth0", "s1", "swp1", "ethernet", ("lldp",))
    agents = {"n1": START - NS, "n3": START - NS, "switch/s1": START}
    takeover = started(replace(tree, links=(heard,)), agents)
    for node in ("n3", "n4"):
        takeover.full_state(node, START)
    due_ns = takeover.next_stale_ns(START)
    assert due_ns == START + 300 * NS
    assert takeover.stale(due_ns - 1) == {}
    assert takeover.stale(due_ns) == {"n1": START - NS, "n2": 0}
    assert takeover.next_stale_ns(due_ns) is None
    for node in ("n1", "n2", "switch/s1"):
        takeover.full_state(node, due_ns)
    assert takeover.stale(due_ns) == {}
    assert started(tree).next_stale_ns(START) is None


def test_when_it_has_ended_a_node_without_an_agent_is_not_stale() -> None:
    """The sweeps that show it were stale, and are fresh now."""
    takeover = started(stale_leaves(("n1", "n4"), above=False), {"n4": START})
    assert takeover.stale(START) == {"n1": 0, "n4": START}
    assert takeover.ended(START + 30 * NS, [], [], {})
    assert takeover.stale(START + 30 * NS) == {"n4": START}


def test_when_the_wait_may_end_without_news() -> None:
    takeover = started(two_leaves())
    assert takeover.next_look_ns(START) == START + 10 * NS
    assert takeover.next_look_ns(START + 10 * NS) == START + 30 * NS
    takeover.full_state("n01", START)
    assert takeover.ended(START + 30 * NS, [], [], {})
    assert takeover.next_look_ns(START) is None
