"""NVLink domains that labels of nodes name: alone, beside agents' reports, and coarser than these."""

import pytest
from hyperscout_formats.facts.facts import Gpu, NvlinkFabric
from hyperscout_inference.fabric.inputs import FabricInputs
from hyperscout_inference.hierarchy import infer
from hyperscout_inference.labels.nvlink_labels import NVLINK_KEYS, labelled_gpus, nvlink_key
from support.inference import tiers

CLIQUE, _, BLOCK, _ = NVLINK_KEYS
UUID = "a1b2c3d4-0000-4000-8000-00000000000f"


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ({CLIQUE: f"{UUID}.7"}, (UUID, 7)),
        ({CLIQUE: f"{UUID.upper()}.7"}, (UUID, 7)),
        ({CLIQUE: "cluster-abc.0"}, (f"{CLIQUE}=cluster-abc.0", 0)),
        ({CLIQUE: "00000000-0000-0000-0000-000000000000.0"}, None),
        ({CLIQUE: "00000000-0000-0000-0000-000000000000.0", BLOCK: "cbr-1"}, (f"{BLOCK}=cbr-1", 0)),
        ({BLOCK: "cbr-1"}, (f"{BLOCK}=cbr-1", 0)),
        ({CLIQUE: f"{UUID}.7", BLOCK: "cbr-1"}, (UUID, 7)),
        ({CLIQUE: "none", BLOCK: "cbr-1"}, (f"{BLOCK}=cbr-1", 0)),
        ({"example.com/rack": "r"}, None),
    ],
)
def test_what_labels_say(labels: dict[str, str], expected: tuple[str, int] | None) -> None:
    assert nvlink_key(labels, NVLINK_KEYS) == expected
    assert nvlink_key(labels, ()) is None


def gpus(clique: int) -> tuple[Gpu, ...]:
    fabric = NvlinkFabric("completed", cluster_uuid=UUID, clique_id=clique)
    return (Gpu(f"GPU-{clique}", "", "0000:01:00.0", fabric=fabric),)


def domains(own: dict[str, tuple[Gpu, ...]], labels: dict[str, dict[str, str]]) -> set[frozenset[str]]:
    found = infer(FabricInputs(gpus=own, labelled_gpus=labelled_gpus(labels, NVLINK_KEYS)))
    assert not found.anomalies
    return set(tiers(found)[0])


def test_hosts_without_an_agent_join_those_with_one() -> None:
    labels = {host: {CLIQUE: f"{UUID}.{n}"} for host, n in (("b", 1), ("c", 2), ("d", 2))}
    assert domains({"a": gpus(1)}, labels) == {frozenset("ab"), frozenset("cd")}


def test_nothing_but_labels_of_two_hosts() -> None:
    places = {host: ("all", f"rack-{host}") for host in "abcd"}
    labelled = labelled_gpus({host: {BLOCK: "cbr-1"} for host in "ab"}, NVLINK_KEYS)
    found = infer(FabricInputs(labels=places, labelled_gpus=labelled))
    assert frozenset("ab") in tiers(found)[0]
    assert not found.anomalies


def test_a_label_of_a_whole_rack_does_not_contradict_its_two_cliques() -> None:
    own = {host: gpus(1) for host in "abc"} | {host: gpus(2) for host in "de"}
    labels = {host: {BLOCK: "cbr-1"} for host in "abcdef"}
    assert domains(own, labels) == {frozenset("abcf"), frozenset("de")}


def test_one_agents_label_moves_no_hosts_without_agents() -> None:
    own = {host: gpus(1) for host in "abc"}
    labels = {host: {BLOCK: "cbr-1"} for host in "axyz"}
    assert domains(own, labels) == {frozenset("abc"), frozenset("xyz")}
    labels["b"] = {BLOCK: "cbr-1"}
    assert domains(own, labels) == {frozenset("abcxyz")}


def test_a_label_does_not_confirm_what_two_agents_report() -> None:
    """One of them may have copied the domain of the other, and the label is made from the same report."""
    places = {host: ("all", f"rack-{host}") for host in "abcd"}
    own = {host: gpus(1) for host in "ab"}
    labelled = labelled_gpus({host: {CLIQUE: f"{UUID}.1"} for host in "ab"}, NVLINK_KEYS)
    without = infer(FabricInputs(labels=places, gpus=own))
    found = infer(FabricInputs(labels=places, gpus=own, labelled_gpus=labelled))
    assert tiers(found) == tiers(without)
    assert found.anomalies == without.anomalies
