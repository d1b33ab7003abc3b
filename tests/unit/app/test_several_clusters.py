"""Inference while one of several clusters is away, and names in several clusters."""

from typing import cast

import pytest
from hyperscout_collector.app.inference.cluster import ClusterView
from hyperscout_collector.app.inference.inference import Inference, InferenceSettings
from hyperscout_collector.decisions.publication.generations import Generations, GenerationSettings
from hyperscout_collector.decisions.publication.takeover import Takeover
from hyperscout_collector.evidence.snapshot import NO_EVIDENCE
from hyperscout_collector.evidence.store import EvidenceStore
from hyperscout_collector.evidence.sweep_texts import SweepTexts
from hyperscout_inference.labels.cloud_labels import CLOUDS
from hyperscout_runtime.units import NS
from hyperscout_topology.topology import Topology
from support.builders import hypernode

NODES = ("n1", "n2", "east/n1", "east/n2")
AWAY = frozenset({"east"})
ZONE = {"topology.kubernetes.io/region": "r", "topology.kubernetes.io/zone": "r1"}


def inference(
    published: Topology | None = None,
    settings: InferenceSettings | None = None,
    takeover: Takeover | None = None,
) -> Inference:
    return Inference(
        settings or InferenceSettings(),
        SweepTexts(cast("EvidenceStore", None)),
        Generations(GenerationSettings(), published, 0),
        timer=lambda: 0.0,
        takeover=takeover,
    )


def view(unknown: frozenset[str] = frozenset(), labelled: tuple[str, ...] = NODES) -> ClusterView:
    labels = {node: ZONE if node in labelled else {} for node in NODES}
    return ClusterView(dict.fromkeys(NODES), labels, others={}, unknown=unknown)


@pytest.mark.parametrize(("unknown", "lacking"), [(AWAY, ()), (frozenset(), NODES[2:])])
def test_nodes_whose_labels_cannot_be_read_lack_no_evidence(
    unknown: frozenset[str], lacking: tuple[str, ...]
) -> None:
    """The labels are in the API server of a cluster that is away after a restart."""
    settings = InferenceSettings(cloud_labels=(CLOUDS["kubernetes"],))
    before = inference(settings=settings).run(NO_EVIDENCE, view(), NS, (), 0).inferred
    assert set(before.hypernodes[0].nodes) == set(NODES)
    found = inference(before, settings).run(NO_EVIDENCE, view(unknown, NODES[:2]), NS, (), 0).inferred
    assert set(found.hypernodes[0].nodes) == set(NODES)
    assert found.nodes_without_evidence == lacking


@pytest.mark.parametrize(("unknown", "waits"), [(AWAY, False), (frozenset(), True)])
def test_a_take_over_waits_for_no_agent_of_a_cluster_that_is_away(
    unknown: frozenset[str], waits: bool
) -> None:
    published = Topology(1, (hypernode("leaf", NODES),))
    takeover = Takeover(published, 30.0, 0, stale_after_s=300.0)
    for node in NODES[:2]:
        takeover.full_state(node, 1)
    found = inference(published, takeover=takeover).run(NO_EVIDENCE, view(unknown), NS, (), 0)
    assert found.is_takeover is waits


def test_a_node_map_may_name_nodes_as_the_collector_does() -> None:
    nodes = dict.fromkeys(("n1", "east/n1", "east/n2", "east/n3", "west/n3"))
    node_map = {1: "n1", 2: "east/n1", 3: "n2", 4: "n3", 5: "n9"}
    found = inference(settings=InferenceSettings(node_map=node_map)).run(
        NO_EVIDENCE, ClusterView(nodes, others={}), NS, (), 0
    )
    assert found.resolved.inputs.node_map == {1: "n1", 2: "east/n1", 3: "east/n2", 5: "n9"}
