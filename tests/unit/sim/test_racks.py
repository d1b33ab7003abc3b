"""Clusters of racks, against counts worked out by hand."""

from collections import Counter

import pytest
from hyperscout_sim.fabric.fabric import by_class
from hyperscout_sim.fabric.nvlink import CLIQUE, cluster_uuid
from hyperscout_sim.fabric.racks import RackCluster, racks

CASES = {
    # name: (cluster, domains of each tier by size, cables by the levels of their ends)
    "two racks a unit": (
        racks(2, 2, hgx=4, cpu_nodes=1),
        [{18: 4, 1: 5}, {36: 2, 4: 1, 1: 1}, {77: 1}],
        {(0, 1): 72 * 4 + 4 * 8 + 1, (1, 2): (2 * 4 + 8 + 1) * 4},
    ),
    "pods": (
        racks(2, 2, trays=3, pods=2, spines=2, hgx=1),
        [{3: 8, 1: 1}, {6: 4, 1: 1}, {13: 1, 12: 1}, {25: 1}],
        {(0, 1): 24 * 4 + 8, (1, 2): 24 * 2, (2, 3): 8},
    ),
    "a unit is a rack": (racks(3, 1, rails=2), [{18: 3}, {54: 1}], {(0, 1): 108, (1, 2): 24}),
    "a rack in two cliques": (
        racks(1, 2, split={1: 5}),
        [{18: 1, 5: 1, 13: 1}, {36: 1}],
        {(0, 1): 144, (1, 2): 16},
    ),
    "one rack": (racks(1, 1), [{18: 1}], {(0, 1): 72, (1, 2): 16}),
}


@pytest.mark.parametrize("name", CASES)
def test_tiers_and_cables(name: str) -> None:
    cluster, tiers, cables = CASES[name]
    assert [Counter(map(len, tier)) for tier in cluster.tiers] == tiers
    assert {kind: len(found) for kind, found in by_class(cluster.fabric).items()} == cables
    assert all(
        sorted(h for domain in tier for h in domain) == sorted(cluster.hosts) for tier in cluster.tiers
    )


def told(cluster: RackCluster, host: str) -> set[tuple[str, int]]:
    return {(x.fabric.cluster_uuid, x.fabric.clique_id) for x in cluster.gpus[host] if x.fabric}


def test_gpus_tell_the_domains() -> None:
    cluster = racks(1, 2, hgx=1, cpu_nodes=1, split={1: 5})
    whole, parted = cluster.racks
    assert whole.name == "uk-london1-dc01-row01-rack01"
    assert whole.trays[6] == "uk-london1-dc01-row01-rack01-tray07"
    assert [told(cluster, tray) for tray in whole.trays] == [{(cluster_uuid(whole.name), CLIQUE)}] * 18
    one, other = parted.cliques
    assert [len(one), len(other)] == [5, 13]
    assert {x for tray in one for x in told(cluster, tray)} == {(cluster_uuid(parted.name), 1)}
    assert {x for tray in other for x in told(cluster, tray)} == {(cluster_uuid(parted.name), 2)}
    assert told(cluster, *cluster.hgx) == {("", 0)}
    assert set(cluster.hosts) - set(cluster.gpus) == set(cluster.without_gpus)


def test_trays_may_hang_on_another_unit() -> None:
    plain = racks(2, 1, trays=4)
    stray = plain.racks[0].trays[3]
    cluster = racks(2, 1, trays=4, moved={stray: 1})
    assert [len(unit) for unit in cluster.units] == [3, 5]
    assert stray in cluster.units[1]
    assert cluster.nvlink == plain.nvlink


def test_nvlink_that_joins_no_hosts_is_no_tier() -> None:
    cluster = racks(1, 1, trays=1, hgx=3)
    assert [Counter(map(len, tier)) for tier in cluster.tiers] == [{1: 1, 3: 1}, {4: 1}]


@pytest.mark.parametrize("wrong", [{"units": 0}, {"racks_per_unit": 0}, {"trays": 0}])
def test_a_size_of_none_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="expected at least 1"):
        racks(**({"units": 1, "racks_per_unit": 1} | wrong))
