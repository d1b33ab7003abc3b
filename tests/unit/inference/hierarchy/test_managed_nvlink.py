"""NVLink domains that only their manager tells of: in the drivers' words where some driver tells."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hyperscout_formats.facts.facts import Gpu, NvlinkFabric
from hyperscout_formats.managers import nmx
from hyperscout_inference.fabric.inputs import FabricInputs, InferOptions
from hyperscout_inference.hierarchy import infer
from hyperscout_inference.hierarchy.managed_nvlink import with_managed
from hyperscout_sim.fabric.racks import racks
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples
from support.inference import tiers
from support.rack_inputs import seen, true_tiers

CLUSTER = racks(2, 2, trays=6, split={3: 4})


def managed_of(gpus: Mapping[str, tuple[Gpu, ...]], rename: bool) -> dict[str, tuple[Gpu, ...]]:
    """What the manager would tell of these hosts: in its own words, or in the drivers'."""

    def words(gpu: Gpu) -> NvlinkFabric:
        assert gpu.fabric is not None
        if not rename:
            return gpu.fabric
        return NvlinkFabric(
            "completed", cluster_uuid="d-" + gpu.fabric.cluster_uuid, clique_id=gpu.fabric.clique_id + 7
        )

    nodes, known = [], []
    for host, mine in gpus.items():
        if not any(gpu.fabric and gpu.fabric.cluster_uuid for gpu in mine):
            continue
        ids = [f"{host}/{n}" for n in range(len(mine))]
        fabric = words(mine[0])
        nodes.append({"ID": host, "Name": host, "DomainUUID": fabric.cluster_uuid, "GpuIDList": ids})
        known += [
            {
                "ID": ident,
                "DeviceID": n,
                "DomainUUID": words(gpu).cluster_uuid,
                "PartitionID": words(gpu).clique_id,
                "Health": "HEALTHY",
            }
            for n, (ident, gpu) in enumerate(zip(ids, mine, strict=True))
        ]
    return dict(nmx.parse(nmx.text(nodes, known)).gpus)


@examples(0.5)
@given(st.data(), st.booleans())
def test_hosts_without_agents_come_out_as_if_they_had_one(data: st.DataObject, rename: bool) -> None:
    """At least one host of each domain has one, or no host has, or the words are the same."""
    inputs = seen(CLUSTER)
    keep = {min(domain) for domain in CLUSTER.tiers[0]}
    silent = set(data.draw(st.lists(st.sampled_from(sorted(set(inputs.gpus) - keep)), unique=True)))
    own = {host: mine for host, mine in inputs.gpus.items() if host not in silent}
    told = managed_of(dict(inputs.gpus), rename)
    found = infer(replace(inputs, gpus=own, managed_gpus=told))
    assert tiers(found) == true_tiers(CLUSTER)
    assert not found.anomalies


def test_nothing_but_the_manager() -> None:
    told = managed_of(dict(CLUSTER.gpus), rename=True)
    found = infer(FabricInputs(managed_gpus=told))
    assert tiers(found)[0] == {domain for domain in true_tiers(CLUSTER)[0] if domain & told.keys()}
    assert {h.source for h in found.hypernodes if h.tier == 1} == {"nvlink"}


def gpu(cluster: str, clique: int = 0, uuid: str = "GPU-x") -> tuple[Gpu, ...]:
    return (
        Gpu(
            uuid, "", "0000:01:00.0", fabric=NvlinkFabric("completed", cluster_uuid=cluster, clique_id=clique)
        ),
    )


def test_gpus_under_an_unknown_name_belong_to_no_node() -> None:
    told = {"a": gpu("D"), "b": gpu("D"), "stranger": gpu("D")}
    known = frozenset({"a", "b"})
    found = infer(FabricInputs(managed_gpus=told), InferOptions(cluster_nodes=known))
    assert tiers(found) == [{known}]
    assert set(with_managed({}, told, known)[0]) == known
    assert set(with_managed({}, told, None)[0]) == set(told)


def test_a_host_whose_gpus_say_another_thing_is_believed_and_named() -> None:
    own = {"a": gpu("C", 1), "b": gpu("C", 1), "c": gpu("X", 2)}
    told = dict.fromkeys("abcd", gpu("D"))
    gpus, (fault,) = with_managed(own, told, None)
    assert gpus["c"] == own["c"]
    assert gpus["d"][0].fabric == NvlinkFabric("completed", cluster_uuid="C", clique_id=1)
    assert (fault.host, fault.kind, fault.confidence) == ("c", "SourcesDisagree", 0.9)
    assert fault.message.startswith("the manager reports c in one NVLink domain with 2 other hosts")
    found = infer(FabricInputs(gpus=own, managed_gpus=told))
    assert [(x.kind, x.subject.name) for x in found.anomalies] == [("SourcesDisagree", "c")]
    assert tiers(found)[0] == {frozenset("abd"), frozenset("c")}


@pytest.mark.parametrize("own", [gpu(""), (replace(gpu("C")[0], fabric=NvlinkFabric("in-progress")),), ()])
def test_own_words_that_say_nothing_are_no_key(own: tuple[Gpu, ...]) -> None:
    gpus, faults = with_managed({"a": own}, {"a": gpu("D"), "b": gpu("D")}, None)
    assert gpus["b"][0].fabric == gpu("D")[0].fabric
    assert gpus["a"] == own
    assert not faults
