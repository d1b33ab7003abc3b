"""One host reports false cables over LLDP: the domains of all other hosts stay."""

from dataclasses import replace

import pytest
from hyperscout_formats.facts.facts import LldpNeighbour, LldpPort
from hyperscout_inference.fabric.inputs import InferOptions
from hyperscout_inference.hierarchy import infer
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples
from support.lldp_lies import (
    ALL,
    HOSTS,
    INVENTED,
    NAMESAKES,
    NODES,
    WIRING,
    any_neighbour,
    evil_ports,
    free_port,
)
from support.switched import Wiring, clos, is_switch, mac
from support.unharmed import check_others_stay, check_unharmed


@given(st.lists(any_neighbour(), max_size=2), st.sampled_from(HOSTS))
@examples(0.5)
def test_lldp_of_a_host(heard: list[LldpNeighbour], liar: str) -> None:
    honest = ALL.inputs()
    before = infer(honest, NODES)
    ports = tuple(
        LldpPort(f"eth{i}", (neighbour,), mac((liar, f"eth{i}")), True, 100_000)
        for i, neighbour in enumerate(heard)
    )
    false = replace(honest, lldp={**honest.lldp, liar: ports})
    after = infer(false, NODES, before)
    for found in (after, infer(false, NODES, after)):
        check_unharmed(before, found, [liar], {liar, mac((liar, "eth0")), INVENTED, *NAMESAKES})


def pods() -> list[str]:
    """Two pods of three leaves with four hosts; each spine of a pod has cores of its own."""
    found = []
    for pod, slot in (("x", 1), ("y", 2)):
        for unit in "123":
            leaf = f"leaf-{pod}{unit}"
            found += [f"h{pod}{unit}{i}/eth0 {leaf}/swp{i}" for i in (1, 2, 3, 4)]
            found += [f"{leaf}/swp3{i} spine-{pod}{i}/swp{unit}" for i in (1, 2)]
        found += [f"spine-{pod}{i}/up{k} core-{i}{k}/swp{slot}" for i in (1, 2) for k in (1, 2)]
    return found


PODS = pods()
WIRINGS = {
    "few hosts": clos(units=2, hosts=2, spines=2, rails=1),
    "one rail": WIRING,
    "two rails": clos(units=3, hosts=3, spines=2, rails=2),
    "four rails": clos(units=2, hosts=4, spines=1, rails=4),
    "pods": PODS,
}


@st.composite
def any_lie(draw: st.DrawFn) -> tuple[Wiring, str, tuple[LldpPort, ...]]:
    """A wiring, one of its hosts, and what this host reports falsely."""
    cables = WIRINGS[draw(st.sampled_from(sorted(WIRINGS)))]
    devices = sorted({end.split("/")[0] for text in cables for end in text.split()})
    hosts = [x for x in devices if not is_switch(x)]
    liar = hosts[0] if draw(st.booleans()) else draw(st.sampled_from(hosts))
    switches = [*(x for x in devices if is_switch(x)), "fake-1", "fake-2"]
    free = st.sampled_from(switches).map(free_port)
    heard = draw(st.lists(st.one_of(free, free, any_neighbour()), max_size=6))
    ports = evil_ports(liar, heard)
    # With three levels of switches, such a lie counts if no switch contradicts it.
    agents = None if cables is PODS or draw(st.booleans()) else hosts
    return Wiring(cables, agents=agents), liar, ports


@given(any_lie(), st.booleans())
@examples(3)
def test_false_cables_of_a_host(lie: tuple[Wiring, str, tuple[LldpPort, ...]], adds: bool) -> None:
    """Many ports at once. `adds`: to what it has."""
    wiring, liar, ports = lie
    honest = wiring.inputs()
    nodes = InferOptions(cluster_nodes=frozenset(honest.lldp))
    before = infer(honest, nodes)
    ports = (honest.lldp[liar] if adds else ()) + ports
    false = replace(honest, lldp={**honest.lldp, liar: ports})
    after = before
    for _ in range(3):
        after = infer(false, nodes, after)
        check_others_stay(before, after, [liar])


@pytest.mark.parametrize("agents_on_switches", [True, False])
@pytest.mark.parametrize(
    ("wiring", "claimed"),
    [
        ("one rail", ["leaf-1a", "leaf-2a", "fake-1"]),
        ("one rail", ["leaf-2a", "leaf-3a", "fake-1", "fake-2"]),
        ("one rail", ["leaf-1a", "leaf-2a", "leaf-3a", "spine-1"]),
        ("few hosts", ["leaf-2a"]),
        ("few hosts", ["leaf-2a", "fake-1"]),
        ("few hosts", ["spine-1"] * 4),
        ("two rails", ["leaf-2a", "leaf-2b", "leaf-3a", "fake-1"]),
        ("four rails", [*(f"leaf-2{rail}" for rail in "abcd"), "fake-1"]),
    ],
)
def test_a_host_claims_free_ports(wiring: str, claimed: list[str], agents_on_switches: bool) -> None:
    cables = WIRINGS[wiring]
    honest = Wiring(cables).inputs()
    honest = honest if agents_on_switches else replace(honest, switch_ports={})
    nodes = InferOptions(cluster_nodes=frozenset(honest.lldp))
    before = infer(honest, nodes)
    ports = evil_ports("h11", map(free_port, claimed))
    false = replace(honest, lldp={**honest.lldp, "h11": honest.lldp["h11"] + ports})
    check_others_stay(before, infer(false, nodes, before), ["h11"])
    check_others_stay(before, infer(false, nodes), ["h11"])  # also when nothing was published


@pytest.mark.parametrize(
    ("liar", "claimed"),
    [
        ("hx11", ["core-12", "leaf-y1", "core-11", "leaf-x3", "spine-y1"]),
        ("hy23", ["leaf-y1", "leaf-x1", "core-12", "core-11", "core-21"]),
    ],
)
def test_a_host_claims_free_ports_of_two_pods(liar: str, claimed: list[str]) -> None:
    """In place of its own cable. It does not join what is above the leaves."""
    honest = Wiring(PODS).inputs()
    nodes = InferOptions(cluster_nodes=frozenset(honest.lldp))
    before = infer(honest, nodes)
    assert len({h.tier for h in before.hypernodes}) == 3
    ports = evil_ports(liar, map(free_port, claimed))
    after = infer(replace(honest, lldp={**honest.lldp, liar: ports}), nodes, before)
    check_others_stay(before, after, [liar])


def test_hosts_that_are_really_moved_or_on_two_leaves() -> None:
    """Both leaves keep their domains, and each host is in one of them."""
    moved = [text.replace("leaf-1a/swp1 ", "leaf-2a/swp9 ") for text in WIRING]
    dual = [*WIRING, "leaf-2a/swp21 h11/eth1"]
    for cables, kept in ((moved, ["h12", "h13", "h14"]), (dual, ["h12", "h13", "h14"])):
        topology = infer(Wiring(cables).inputs(), NODES, infer(ALL.inputs(), NODES))
        leaves = [set(h.nodes) for h in topology.hypernodes if h.tier == 1]
        assert len(leaves) == 3
        assert sum(map(len, leaves)) == len(HOSTS)
        assert any(set(kept) <= own and "h21" not in own for own in leaves)
        assert ("h11" in next(own for own in leaves if "h21" in own)) == (cables is moved)
