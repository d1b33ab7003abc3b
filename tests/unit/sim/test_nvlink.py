"""GPUs that are made up: what their facts say, and what each fault changes."""

import pytest
from hyperscout_formats.facts.facts import Gpu
from hyperscout_formats.facts.wire_measured import gpu_from_proto, gpu_to_proto
from hyperscout_sim.fabric import nvlink
from hyperscout_sim.fabric.nvlink import Gpus

RACK = "uk-london1-dc01-row01-rack01"


def domains(gpus: Gpus) -> set[tuple[str, str, int]]:
    return {(x.fabric.state, x.fabric.cluster_uuid, x.fabric.clique_id) for x in gpus if x.fabric}


HOSTS = {
    # name: (GPUs, how many, links of each, what they say of their domain)
    "HGX H100": (nvlink.hgx_host("n1"), 8, 18, {("completed", "", 0)}),
    "GB300 tray": (nvlink.nvl72_tray("n1", "c0ffee"), 4, 18, {("completed", "c0ffee", nvlink.CLIQUE)}),
    "A100 PCIe": (nvlink.pcie_host("n1"), 8, 0, {("not-supported", "", 0)}),
    "A100 PCIe, bridged": (nvlink.pcie_host("n1", bridges=True), 8, 12, {("not-supported", "", 0)}),
    "odd one out": (nvlink.pcie_host("n1", gpus=1, bridges=True), 1, 0, {("not-supported", "", 0)}),
}


@pytest.mark.parametrize("name", HOSTS)
def test_hosts(name: str) -> None:
    gpus, count, links, said = HOSTS[name]
    assert len({x.uuid for x in gpus}) == len({x.pci_address for x in gpus}) == len(gpus) == count
    assert {len(x.links) for x in gpus} == {links}
    assert domains(gpus) == said
    assert {len(x.peers) for x in gpus} == {count - 1}
    assert all(one.active for x in gpus for one in x.links)
    assert tuple(gpu_from_proto(gpu_to_proto(x)) for x in gpus) == gpus


def test_a_rack_is_one_domain_or_two_cliques_of_one_cluster() -> None:
    rack = nvlink.nvl72_rack(RACK)
    assert list(rack) == [f"{RACK}-tray{number:02}" for number in range(1, 19)]
    assert len({x.uuid for gpus in rack.values() for x in gpus}) == 72
    assert domains(sum(rack.values(), ())) == {("completed", nvlink.cluster_uuid(RACK), nvlink.CLIQUE)}
    split = nvlink.nvl72_rack(RACK, split_at=9)
    cliques = [{clique for _, _, clique in domains(gpus)} for gpus in split.values()]
    assert cliques == [{1}] * 9 + [{2}] * 9
    assert list(nvlink.nvl72_rack(RACK, trays=["a", "b"])) == ["a", "b"]
    assert nvlink.cluster_uuid(RACK) != nvlink.cluster_uuid(RACK.replace("rack01", "rack02"))


def test_each_fault_changes_its_own_and_nothing_else() -> None:
    well = nvlink.nvl72_tray("n1", "c0ffee")

    def changed(gpus: Gpus) -> dict[int, Gpu]:
        assert len(gpus) == len(well)
        return {i: now for i, (was, now) in enumerate(zip(well, gpus, strict=True)) if was != now}

    dead = changed(nvlink.dead_link(well, 1, 17))
    assert [(i, [x.link for x in g.links if not x.active]) for i, g in dead.items()] == [(1, [17])]
    bad = changed(nvlink.erring_link(well, 2, 3, replays=9, ber_exponent=-6))
    assert [(x.replay_errors, x.ber_exponent) for x in bad[2].links if x.replay_errors] == [(9, -6)]
    wrong = changed(nvlink.wrong_clique(well, 3, 7))
    assert domains(tuple(wrong.values())) == {("completed", "c0ffee", 7)}
    assert set(wrong) == {3}
    assert domains(nvlink.in_progress(well)) == {("in-progress", "", 0)}
    assert set(changed(nvlink.in_progress(well, [0]))) == {0}
    failed = nvlink.failed_fabric(well, "Unknown Error")
    assert {x.fabric.status for x in failed if x.fabric} == {"Unknown Error"}
    sick = changed(nvlink.unhealthy(well, "degraded bandwidth", which=[0, 2]))
    assert {i: g.fabric.health for i, g in sick.items() if g.fabric} == {
        0: ("degraded bandwidth",),
        2: ("degraded bandwidth",),
    }
    [(place, cut)] = changed(nvlink.with_mig(well, 0, "3g.40gb", "4g.40gb")).items()
    assert (place, cut.mig_mode) == (0, "enabled")
    assert [x.profile for x in cut.mig_instances] == ["3g.40gb", "4g.40gb"]
