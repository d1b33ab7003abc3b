"""Accelerator domains of other kinds than NVLink: xGMI hives and Ascend super pods."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hyperscout_formats.amd.kfd import parse
from hyperscout_formats.facts.facts import Gpu, NvlinkFabric, NvlinkLink
from hyperscout_formats.facts.wire_measured import gpu_from_proto, gpu_to_proto
from hyperscout_inference.fabric.inputs import FabricInputs
from hyperscout_inference.hierarchy import infer
from hyperscout_sim.fabric.racks import racks
from hyperscout_topology.topology import Topology
from support.accelerators import kfd_tree
from support.rack_inputs import condition, domain_of, inferred_racks, seen
from unit.inference.hierarchy.test_shapes import check_tree

CLUSTER = racks(2, 1, trays=4, hgx=4)
HOSTS = tuple(sorted(CLUSTER.hosts))


def hive(apart: Sequence[int] = ()) -> tuple[Gpu, ...]:
    return parse(kfd_tree(8, apart))[0]


def npus(pod: int | None, index: int, *, up: bool = True, health: tuple[str, ...] = ()) -> tuple[Gpu, ...]:
    fabric = NvlinkFabric(
        "completed", domain="" if pod is None else str(pod), server_index=index, health=health
    )
    link = (NvlinkLink(0, up),)
    return tuple(
        Gpu("", "Ascend910", f"npu{n // 2}/{n % 2}", links=link, fabric=fabric, kind="ascend")
        for n in range(4)
    )


def super_pods(size: int = 6) -> dict[str, tuple[Gpu, ...]]:
    """Super pods of so many hosts, and the last hosts in none."""
    return {host: npus(n // size if n < 2 * size else None, n) for n, host in enumerate(HOSTS)}


def told(topology: Topology) -> list[tuple[str, str]]:
    return sorted((x.kind, x.message) for x in topology.anomalies)


def tiers(topology: Topology) -> list[str]:
    return [name for _, name in sorted({(h.tier, h.tier_name) for h in topology.hypernodes})]


# xGMI


def test_hives_that_end_at_home_are_no_tier_and_change_nothing() -> None:
    with_gpus, without = (inferred_racks(CLUSTER, gpus) for gpus in ({host: hive() for host in HOSTS}, {}))
    assert [(h.name, h.nodes) for h in with_gpus.hypernodes] == [
        (h.name, h.nodes) for h in without.hypernodes
    ]
    assert told(with_gpus) == []


def test_equal_hive_ids_join_no_hosts() -> None:
    """All hosts of the builder have one hive id."""
    topology = infer(FabricInputs(gpus={host: hive() for host in HOSTS}))
    assert topology.hypernodes == ()


def test_hosts_with_hives_beside_racks_with_nvlink_have_their_own_kind() -> None:
    hgx = [host for host in HOSTS if len(domain_of(inferred_racks(CLUSTER), host).nodes) == 1]
    assert len(hgx) == 4
    topology = inferred_racks(CLUSTER, {**CLUSTER.gpus, **dict.fromkeys(hgx, hive())})
    check_tree(topology)
    assert tiers(topology)[0] == "nvlink"
    assert {domain_of(topology, host).source for host in hgx} == {"xgmi"}
    assert {domain_of(topology, host).source for host in HOSTS if host not in hgx} == {"nvlink"}
    before = {h.name for h in inferred_racks(CLUSTER).hypernodes}
    assert {h.name for h in topology.hypernodes} == before, "the vendor is no part of a name"


def test_a_gpu_that_fell_out_of_its_hive() -> None:
    gpus = {host: hive() for host in HOSTS} | {HOSTS[0]: hive(apart=[7])}
    topology = inferred_racks(CLUSTER, gpus)
    assert {x.subject.name for x in topology.anomalies} == {HOSTS[0]}
    assert {x.sources for x in topology.anomalies} == {("xgmi",)}
    texts = [text for _, text in told(topology)]
    assert f"xGMI link 0 of {HOSTS[0]}/0000:df:00.0 (to 0000:0c:00.0) is down" in texts
    (bad,) = {x.hypernode for x in topology.anomalies}
    degraded = condition(next(h for h in topology.hypernodes if h.name == bad), "Degraded")
    assert (degraded.status, degraded.reason) == ("True", "LinksDown")
    assert "xGMI link" in degraded.message


def test_hosts_with_two_hives_are_built_that_way() -> None:
    """Four GPUs each: no link is missing, and no GPU is in a wrong hive."""
    half = [replace(x, fabric=NvlinkFabric("completed", domain="1")) for x in hive()]
    both = tuple(
        replace(
            gpu,
            links=tuple(replace(x, active=(x.link < 4) == (n < 4)) for x in gpu.links),
            fabric=NvlinkFabric("completed", domain=str(n // 4 + 1)),
        )
        for n, gpu in enumerate(half)
    )
    assert told(inferred_racks(CLUSTER, dict.fromkeys(HOSTS, both))) == []


def test_errors_of_links_degrade_their_host() -> None:
    one, *others = hive()
    assert one.fabric is not None
    bad = replace(one, fabric=replace(one.fabric, health=("xgmi_error counted an error in the last hour",)))
    topology = inferred_racks(CLUSTER, {HOSTS[0]: (bad, *others)})
    (anomaly,) = topology.anomalies
    assert (anomaly.kind, anomaly.subject.name) == ("ErroringLink", HOSTS[0])
    assert anomaly.message.startswith(f"the xGMI fabric of {HOSTS[0]}/0000:0c:00.0 is unhealthy: xgmi_error")


# Ascend


def test_super_pods_are_domains_of_several_hosts() -> None:
    topology = infer(seen(CLUSTER, super_pods()))
    check_tree(topology)
    assert tiers(topology)[0] == "ascend"
    inside = {frozenset(h.nodes) for h in topology.hypernodes if h.tier_name == "ascend"}
    assert {frozenset(HOSTS[:6]), frozenset(HOSTS[6:12])} <= inside
    assert {h.source for h in topology.hypernodes if h.tier_name == "ascend"} == {"ascend"}


def test_super_pods_without_any_cable() -> None:
    topology = infer(FabricInputs(gpus=super_pods()))
    assert {frozenset(h.nodes) for h in topology.hypernodes} == {
        frozenset(HOSTS[:6]),
        frozenset(HOSTS[6:12]),
    }


def test_names_stay_when_hosts_fall_silent() -> None:
    topology = infer(seen(CLUSTER, super_pods()))
    rest = {host: gpus for host, gpus in super_pods().items() if host != HOSTS[1]}
    again = infer(seen(CLUSTER, rest), previous=topology)
    assert [(h.name, h.source, h.nodes) for h in again.hypernodes] == [
        (h.name, h.source, h.nodes) for h in topology.hypernodes
    ]
    text = f"{HOSTS[1]} no longer reports a GPU; the other hosts of its Ascend super pod do"
    assert ("MissingLink", text) in told(again)


def test_ports_that_are_down_while_most_are_up() -> None:
    gpus = super_pods() | {HOSTS[2]: npus(0, 2, up=False)}
    found = [x for x in infer(seen(CLUSTER, gpus)).anomalies if x.kind == "MissingLink"]
    assert {x.subject.name for x in found} == {HOSTS[2]}
    assert found[0].message == f"Ascend network port 0 of {HOSTS[2]}/npu0/0 is down"


def test_ports_that_no_host_uses_are_no_fault() -> None:
    gpus = {host: npus(n // 6, n, up=False) for n, host in enumerate(HOSTS)}
    assert not [x for x in infer(seen(CLUSTER, gpus)).anomalies if x.kind == "MissingLink"]


def test_one_host_cannot_make_a_port_usual() -> None:
    """Whatever number of chips it claims to have."""
    gpus = {host: npus(n // 6, n, up=False) for n, host in enumerate(HOSTS)}
    many = tuple(replace(npus(0, 0)[0], pci_address=f"npu{n}/0") for n in range(200))
    found = infer(seen(CLUSTER, gpus | {HOSTS[0]: many}))
    assert not [x for x in found.anomalies if x.kind == "MissingLink"]


def test_npus_of_one_host_in_two_super_pods() -> None:
    mixed = (*npus(0, 2)[:3], npus(1, 2)[3])
    found = infer(seen(CLUSTER, super_pods() | {HOSTS[2]: mixed}))
    (wrong,) = (x for x in found.anomalies if x.kind == "ErroringLink")
    assert wrong.message == (
        f"{HOSTS[2]}/npu1/1 is in Ascend super pod 1, 3 of the host's 4 GPUs are in Ascend super pod 0"
    )


def test_a_server_index_that_two_hosts_have() -> None:
    """Two super pods that were given one id. Either host may be wrong, so neither becomes degraded."""
    gpus = super_pods() | {HOSTS[3]: npus(0, 2)}
    topology = infer(seen(CLUSTER, gpus))
    (found,) = (x for x in topology.anomalies if x.peer is not None)
    assert (found.kind, found.sources) == ("SourcesDisagree", ("ascend",))
    assert (found.subject.name, found.peer and found.peer.name) == (HOSTS[2], HOSTS[3])
    assert "the same server index 2 in Ascend super pod 0" in found.message
    assert found.confidence == 0.4
    assert {condition(h, "Consistent").status for h in topology.hypernodes} == {"True"}


def test_a_host_with_several_server_indexes_accuses_no_other() -> None:
    mixed = tuple(x for n in range(4) for x in npus(0, n)[:1])
    gpus = super_pods() | {HOSTS[3]: mixed}
    found = [x for x in infer(seen(CLUSTER, gpus)).anomalies if "server index" in x.message]
    assert [(x.subject.name, x.peer) for x in found] == [(HOSTS[3], None)]


def test_a_link_that_one_gpu_lists_often_is_not_usual() -> None:
    down = {
        host: tuple(replace(x, links=(NvlinkLink(0, False),)) for x in npus(0, n))
        for n, host in enumerate(HOSTS)
    }
    liar = replace(npus(0, 0)[0], links=(NvlinkLink(0, True),) * 400)
    found = infer(seen(CLUSTER, down | {HOSTS[0]: (liar,)}))
    assert [x for x in found.anomalies if x.kind == "MissingLink"] == []


def test_super_pods_over_several_leaves_accuse_no_host() -> None:
    """Nothing says that all hosts of a super pod are below one leaf, so no condition changes."""
    topology = infer(seen(CLUSTER, super_pods()))
    apart = [x for x in topology.anomalies if x.kind == "SourcesDisagree"]
    assert apart
    assert {x.confidence for x in apart} == {0.15}
    assert {condition(h, "Consistent").status for h in topology.hypernodes} == {"True"}


# Several kinds


def test_a_tier_keeps_the_name_that_it_was_published_with() -> None:
    """So that new super pods change no label of the hosts with NVLink, whatever their number."""
    topology = inferred_racks(CLUSTER)
    before = {(h.name, h.tier_name) for h in topology.hypernodes if h.source == "nvlink" and len(h.nodes) > 1}
    trays = {n for h in topology.hypernodes if (h.name, h.tier_name) in before for n in h.nodes}
    hgx = [host for host in HOSTS if host not in trays]
    new = {**CLUSTER.gpus, **{host: npus(7, n) for n, host in enumerate(hgx)}}
    again = infer(seen(CLUSTER, new), previous=topology)
    assert before <= {(h.name, h.tier_name) for h in again.hypernodes}
    (pod,) = (h for h in again.hypernodes if h.source == "ascend")
    assert (pod.tier_name, set(pod.nodes)) == ("nvlink", set(hgx))


@pytest.mark.parametrize(("most", "name"), [("ascend", "ascend"), ("nvlink", "nvlink")])
def test_a_new_tier_is_called_after_the_kind_of_most_hosts(most: str, name: str) -> None:
    cut = 3 if most == "ascend" else 9
    gpus: Mapping[str, tuple[Gpu, ...]] = {
        host: tuple(
            replace(x, fabric=NvlinkFabric("completed", cluster_uuid="c", clique_id=1), kind="nvlink")
            for x in npus(1, n)
        )
        if n < cut
        else npus(1, n)
        for n, host in enumerate(HOSTS)
    }
    topology = infer(FabricInputs(gpus=gpus))
    assert {h.tier_name for h in topology.hypernodes} == {name}
    assert {h.source for h in topology.hypernodes} == {"nvlink", "ascend"}


@pytest.mark.parametrize("gpus", [hive(), npus(3, 4), npus(None, 4)])
def test_what_is_sent_is_what_is_received(gpus: Sequence[Gpu]) -> None:
    assert tuple(gpu_from_proto(gpu_to_proto(gpu)) for gpu in gpus) == tuple(gpus)


def test_an_agent_with_nvlink_sends_what_earlier_collectors_read() -> None:
    message = gpu_to_proto(next(iter(CLUSTER.gpus.values()))[0])
    assert (message.kind, message.fabric.domain, message.fabric.HasField("server_index")) == ("", "", False)


@pytest.mark.parametrize(
    ("field", "value"), [("kind", "quantum"), ("domain", "../../x"), ("domain", "1" * 17)]
)
def test_impossible_claims_are_refused(field: str, value: str) -> None:
    message = gpu_to_proto(npus(3, 4)[0])
    setattr(message if field == "kind" else message.fabric, field, value)
    with pytest.raises(ValueError, match=field):
        gpu_from_proto(message)
