"""Hosts that no wire shows, placed by latency: alone, beside wired ones, and among them."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from random import Random

import pytest
from hyperscout_formats.text.latency_csv import LatencyRow
from hyperscout_inference.fabric.inputs import FabricInputs, InferOptions
from hyperscout_inference.hierarchy import infer
from hyperscout_inference.latency.pairs import NO_PAIRS, PairTable, pairs_of_rows
from hyperscout_sim.fabric.nvlink import cluster_uuid, nvl72_tray
from hyperscout_sim.fabric.shapes import clos2, clos3
from hyperscout_topology.topology import Topology
from support.inference import Tiers, inputs_of, tiers, without_hosts
from unit.inference.hierarchy.test_shapes import check_tree

STEP_US = (2.6, 4.1, 5.6, 7.1)
FLAT: Tiers = [{frozenset(f"n{i:02}" for i in range(16))}]
TWO: Tiers = [
    {frozenset(f"zone-{z}-gpu{i:03}" for i in range(6)) for z in range(4)},
    {frozenset(f"zone-{z}-gpu{i:03}" for i in range(6) for z in range(4))},
]


def measured(truth: Tiers, seed: int = 0, among: Collection[str] | None = None) -> PairTable:
    """Round trips between all hosts of the lowest tier, each with a part of its own and a little noise."""
    rng = Random(seed)
    hosts = sorted(host for domain in truth[0] for host in domain if among is None or host in among)
    own = {host: rng.uniform(0, 2) for host in hosts}
    home = [
        {host: i for i, domain in enumerate(sorted(map(sorted, tier))) for host in domain} for tier in truth
    ]
    rows = []
    for i, a in enumerate(hosts):
        for b in hosts[i + 1 :]:
            tier = next((t for t, at in enumerate(home) if at[a] == at[b]), len(home))
            rtt_us = STEP_US[tier] + own[a] + own[b] + 0.05 * rng.lognormvariate(0, 0.8)
            rows.append(LatencyRow(a, b, rtt_us, 16))
    return pairs_of_rows(rows)


def sources(topology: Topology) -> Mapping[str, set[str]]:
    found: dict[str, set[str]] = {}
    for h in topology.hypernodes:
        found.setdefault(h.source, set()).add(h.name)
    return found


def tier_names(topology: Topology) -> Sequence[str]:
    return [name for _, name in sorted({(h.tier, h.tier_name) for h in topology.hypernodes})]


def domain_of(topology: Topology, host: str, tier: int = 1) -> str:
    return next(h.name for h in topology.hypernodes if h.tier == tier and host in h.nodes)


@pytest.mark.slow
@pytest.mark.parametrize(("truth", "names"), [
    (FLAT, ["leaf"]),
    (TWO, ["leaf", "pod"]),
    (clos3(2, 3, 4, 2, 2).truth.tiers, ["leaf", "pod", "core"]),
])  # fmt: skip
def test_nothing_but_latency(truth: Tiers, names: Sequence[str]) -> None:
    topology = infer(FabricInputs(pairs=measured(truth)))
    check_tree(topology)
    assert tiers(topology) == [set(tier) for tier in truth]
    assert tier_names(topology) == names
    assert set(sources(topology)) == {"latency"}
    assert all(0.5 < h.confidence <= 1 and h.switches == () for h in topology.hypernodes)
    assert topology.anomalies == ()


def test_too_little_was_measured_to_place_any_host() -> None:
    pairs = measured(TWO)
    topology = infer(FabricInputs(pairs=pairs), InferOptions(latency_places=False))
    assert topology.hypernodes == ()
    assert set(topology.nodes_without_evidence) == set(pairs.nodes)


@pytest.mark.slow
def test_names_say_what_hosts_share_and_live_on() -> None:
    first = infer(FabricInputs(pairs=measured(TWO)))
    called = {h.name.rpartition("-")[0] for h in first.hypernodes if h.tier == 1}
    assert called == {f"zone-{z}" for z in range(4)}
    hosts = {host for domain in TWO[0] for host in domain} - {"zone-1-gpu003"}
    second = infer(FabricInputs(pairs=measured(TWO, seed=7, among=hosts)), previous=first)
    assert {h.name for h in second.hypernodes} == {h.name for h in first.hypernodes}
    assert second.nodes_without_evidence == ("zone-1-gpu003",)


def without_pairs(pairs: PairTable, gone: Callable[[str, str], bool]) -> PairTable:
    rows = zip(pairs.a.tolist(), pairs.b.tolist(), pairs.rtt_us.tolist(), strict=True)
    named = [(pairs.nodes[a], pairs.nodes[b], rtt_us) for a, b, rtt_us in rows]
    return pairs_of_rows([LatencyRow(a, b, us, 16) for a, b, us in named if not (gone(a, b) or gone(b, a))])


@pytest.mark.slow
def test_a_host_of_which_little_is_known_any_more_stays() -> None:
    """Its agent has started anew, and has measured only a few others so far, none of them near."""
    first = infer(FabricInputs(pairs=measured(TWO)))
    lost = {"zone-1-gpu003", "zone-2-gpu000"}
    few = without_pairs(
        measured(TWO), lambda a, b: a in lost and (b[:6] == a[:6] or b in lost or not b.endswith("5"))
    )
    assert {len(h.nodes) for h in infer(FabricInputs(pairs=few)).hypernodes if h.tier == 1} == {1, 5, 6}
    after = infer(FabricInputs(pairs=few), previous=first)
    check_tree(after)
    assert {h.name: h.nodes for h in after.hypernodes} == {h.name: h.nodes for h in first.hypernodes}


@pytest.mark.slow
def test_a_host_that_is_far_from_those_it_was_with_is_with_them_no_more() -> None:
    first = infer(FabricInputs(pairs=measured(TWO)))
    gone = "zone-1-gpu003"
    moved = [{domain - {gone} for domain in TWO[0]} | {frozenset({gone})}, TWO[1]]
    after = infer(FabricInputs(pairs=measured(moved, seed=3)), previous=first)
    assert tiers(after) == moved


# Beside wires

FABRIC = clos3(2, 4, 6, 2, 2)
LEAVES = sorted(map(sorted, FABRIC.truth.tiers[0]))


def mixed(dark: Collection[str]) -> FabricInputs:
    return replace(inputs_of(without_hosts(FABRIC, dark)), pairs=measured(FABRIC.truth.tiers))


@pytest.mark.slow
@pytest.mark.parametrize(
    "dark",
    [
        pytest.param(LEAVES[0], id="a leaf", marks=pytest.mark.slow),
        pytest.param([*LEAVES[0], *LEAVES[5]], id="two leaves", marks=pytest.mark.slow),
        pytest.param([LEAVES[3][1]], id="a host", marks=pytest.mark.slow),
        pytest.param([LEAVES[1][0], LEAVES[6][2], *LEAVES[2]], id="hosts and a leaf"),
    ],
)
def test_wires_win_and_latency_finds_the_place_of_the_others(dark: Sequence[str]) -> None:
    topology = infer(mixed(dark))
    check_tree(topology)
    assert tiers(topology) == [set(tier) for tier in FABRIC.truth.tiers]
    wired = infer(inputs_of(without_hosts(FABRIC, dark)))
    assert {h.name for h in wired.hypernodes} == sources(topology)["wires"]
    whole = {host for leaf in LEAVES if set(leaf) <= set(dark) for host in leaf}
    alone = {domain_of(topology, host) for host in whole}
    assert sources(topology).get("latency", set()) == alone


def test_wired_hosts_stay_where_their_cables_are_whatever_latency_says() -> None:
    """All wires are seen; what was measured says another grouping."""
    hosts = [host for leaf in LEAVES for host in leaf]
    rows = [hosts[i::8] for i in range(8)]
    lie: Tiers = [{frozenset(row) for row in rows}, {frozenset(hosts)}]
    topology = infer(replace(inputs_of(FABRIC), pairs=measured(lie)))
    assert tiers(topology) == [set(tier) for tier in FABRIC.truth.tiers]
    assert set(sources(topology)) == {"wires"}


@pytest.mark.slow
def test_a_fabric_that_latency_alone_shows_has_the_depth_of_the_wired_one() -> None:
    """Two islands that never measured each other: a wired one of two tiers, an opaque one of three."""
    wired = clos2(4, 4, 2)
    opaque = [{frozenset(f"x-{n}" for n in domain) for domain in tier} for tier in FABRIC.truth.tiers]
    topology = infer(replace(inputs_of(wired), pairs=measured(opaque)))
    check_tree(topology)
    assert len(tier_names(topology)) == 3
    found = tiers(topology)
    for tier in range(3):
        assert opaque[tier] <= found[tier]
    assert set(wired.truth.tiers[0]) <= found[0]
    assert set(wired.truth.tiers[1]) <= found[1]


@pytest.mark.slow
def test_no_two_tiers_have_one_name() -> None:
    """Wires of a leaf and a core tier, with no pod that groups anything, beside a deeper opaque fabric."""
    wired = clos3(3, 1, 4, 2, 2)
    opaque = [{frozenset(f"x-{n}" for n in domain) for domain in tier} for tier in FABRIC.truth.tiers]
    assert tier_names(infer(inputs_of(wired))) == ["leaf", "core"]
    topology = infer(replace(inputs_of(wired), pairs=measured(opaque)))
    check_tree(topology)
    assert tier_names(topology) == ["leaf", "core", "core-4"]


@pytest.mark.slow
def test_racks_in_an_opaque_fabric() -> None:
    """NVLink inside, latency outside."""
    leaves = sorted(map(sorted, FABRIC.truth.tiers[0]))
    gpus = {}
    for number, leaf in enumerate(leaves):
        for start in (0, 3):
            uuid = cluster_uuid(f"rack-{number}-{start}")
            gpus |= {host: nvl72_tray(host, uuid) for host in leaf[start : start + 3]}
    topology = infer(FabricInputs(pairs=measured(FABRIC.truth.tiers), gpus=gpus))
    check_tree(topology)
    assert tier_names(topology) == ["nvlink", "leaf", "pod", "core"]
    assert tiers(topology)[1:] == [set(tier) for tier in FABRIC.truth.tiers]
    assert tiers(topology)[0] == {frozenset(leaf[i : i + 3]) for leaf in leaves for i in (0, 3)}


@pytest.mark.slow
def test_while_it_is_measured_anew_no_host_moves_and_new_hosts_wait() -> None:
    """All agents have started anew: next to nothing is measured, and they answer."""
    hosts = {host for domain in TWO[0] for host in domain}
    first = infer(FabricInputs(pairs=measured(TWO)))
    options = InferOptions(latency_places=False)
    few = FabricInputs(pairs=measured(TWO, among=sorted(hosts)[::5]), answering=frozenset(hosts | {"new"}))
    again = infer(few, options, first)
    assert [(h.name, h.nodes, h.parent, h.source, h.confidence) for h in again.hypernodes] == [
        (h.name, h.nodes, h.parent, h.source, h.confidence) for h in first.hypernodes
    ]
    assert again.nodes_without_evidence == ("new",)
    assert again.anomalies == ()


@pytest.mark.slow
def test_while_it_is_measured_anew_wires_are_read_all_the_same() -> None:
    dark = [LEAVES[0][2], *LEAVES[5]]
    first = infer(mixed(dark))
    inputs = replace(mixed(dark), pairs=NO_PAIRS, answering=frozenset(dark))
    again = infer(inputs, InferOptions(latency_places=False), first)
    check_tree(again)
    assert {(h.name, h.nodes) for h in again.hypernodes} == {(h.name, h.nodes) for h in first.hypernodes}
    back = infer(
        replace(inputs_of(FABRIC), answering=frozenset(dark)), InferOptions(latency_places=False), first
    )
    assert tiers(back) == [set(tier) for tier in FABRIC.truth.tiers]
    assert {h.name for h in back.hypernodes} == {h.name for h in first.hypernodes}
