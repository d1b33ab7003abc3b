"""What labels of nodes say of their place, and when that is news."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pytest
from hyperscout_collector.app.inference.cluster import ClusterView
from hyperscout_collector.app.inference.inference import Inference, InferenceSettings
from hyperscout_collector.app.publication.pipeline import Pipeline
from hyperscout_collector.app.settings.settings import load_settings
from hyperscout_collector.decisions.publication.generations import (
    Decision,
    Generations,
    GenerationSettings,
)
from hyperscout_collector.evidence.state import EvidenceState
from hyperscout_collector.evidence.store import EvidenceStore
from hyperscout_collector.evidence.sweep_texts import SweepTexts
from hyperscout_collector.evidence.view import InputsView
from hyperscout_inference.hierarchy.conditions import NO_FACTS, ConditionFacts
from hyperscout_inference.labels.cloud_labels import CLOUDS, domains_of, lists_of
from hyperscout_runtime.settings import SettingsError
from hyperscout_topology.topology import Topology
from hypothesis import given
from hypothesis import strategies as st
from support.waiting import TIMEOUT_S

AWS = "topology.k8s.aws/network-node-layer-"
ALL = lists_of(list(CLOUDS))


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (
            {f"{AWS}1": "nn-a", f"{AWS}2": "nn-b", f"{AWS}3": "nn-c"},
            (f"{AWS}1=nn-a", f"{AWS}2=nn-b", f"{AWS}3=nn-c"),
        ),
        ({f"{AWS}1": "nn-a", f"{AWS}3": "nn-c"}, (f"{AWS}1=nn-a", f"{AWS}3=nn-c")),
        ({f"{AWS}3": "nn-c", "topology.kubernetes.io/region": "r"}, (f"{AWS}3=nn-c",)),
        ({f"{AWS}1": "", f"{AWS}2": "nn-b"}, (f"{AWS}2=nn-b",)),
        (
            {"cloud.google.com/gce-topology-block": "b", "cloud.google.com/gce-topology-subblock": "s"},
            ("cloud.google.com/gce-topology-block=b", "cloud.google.com/gce-topology-subblock=s"),
        ),
        (
            {
                "oci.oraclecloud.com/rdma.hpc_island_id": "i",
                "oci.oraclecloud.com/rdma.network_block_id": "Unknown",
            },
            ("oci.oraclecloud.com/rdma.hpc_island_id=i",),
        ),
        (
            {
                "backend.coreweave.cloud/fabric": "f",
                "backend.coreweave.cloud/superpod": "1",
                "backend.coreweave.cloud/leafgroup": "2",
                "topology.kubernetes.io/region": "r",
            },
            (
                "backend.coreweave.cloud/fabric=f",
                "backend.coreweave.cloud/superpod=1",
                "backend.coreweave.cloud/leafgroup=2",
            ),
        ),
        ({"topology.kubernetes.io/zone": "z"}, ("topology.kubernetes.io/zone=z",)),
        (
            {"oci.oraclecloud.com/host.network_block_id": "n", "oci.oraclecloud.com/host.rack_id": "r"},
            ("oci.oraclecloud.com/host.network_block_id=n", "oci.oraclecloud.com/host.rack_id=r"),
        ),
        ({"kubernetes.io/hostname": "x"}, None),
        ({}, None),
    ],
)
def test_what_labels_say(labels: Mapping[str, str], expected: tuple[str, ...] | None) -> None:
    assert domains_of({"n": labels}, ALL) == ({} if expected is None else {"n": expected})
    assert domains_of({"n": labels}, ()) == {}


@pytest.mark.parametrize(
    ("others", "labels", "expected"),
    [
        ([], "--3", "--3"),
        (["123"], "--3", "123"),
        (["123"], "-23", "123"),
        (["123"], "1-3", "123"),
        (["123", "124"], "--3", "123"),
        (["123", "723"], "--3", ""),
        (["123", "723"], "7-3", "723"),
        (["123", "723"], "-23", ""),
        (["123", "153"], "1-3", "1"),
        (["12"], "-23", "123"),
        (["723"], "1-3", "1-3"),
        (["-23"], "--3", "-23"),
        (["-23", "12"], "--3", "123"),
        (["--3", "123"], "--3", "--3"),  # one node does not move two others
        (["123", "123", "153"], "1-3", "123"),
        (["1-3", "123", "153"], "1-3", "1"),
    ],
)
def test_a_label_that_a_node_lacks_is_that_of_the_others_with_its_next_value(
    others: list[str], labels: str, expected: str
) -> None:
    """A node's labels far, mid and near as one text, with a hyphen for each that it lacks."""
    keys = ("far", "mid", "near")

    def of(text: str) -> dict[str, str]:
        return {key: value for key, value in zip(keys, text, strict=False) if value != "-"}

    nodes = {f"n{i}": of(text) for i, text in enumerate([labels, *others])}
    path = tuple(f"{key}={value}" for key, value in of(expected).items())
    for order in (nodes, dict(reversed(nodes.items()))):
        assert domains_of(order, [keys]).get("n0", ()) == path


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[aws]", (CLOUDS["aws"],)),
        (
            "[[example.com/room, example.com/rack], gcp]",
            (("example.com/room", "example.com/rack"), CLOUDS["gcp"]),
        ),
        ("[]", ()),
        ("aws, oci", (CLOUDS["aws"], CLOUDS["oci"])),
    ],
)
def test_the_setting(text: str, expected: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "collector.yaml"
    file.write_text(f"kubernetes: dry-run\ncloud_labels: {text}\n")
    assert load_settings(file).cloud_labels == expected
    monkeypatch.setenv("HYPERSCOUT_COLLECTOR_CLOUD_LABELS", '["oci"]')
    assert load_settings(file).cloud_labels == (CLOUDS["oci"],)


@pytest.mark.parametrize("key", ["a b", "hyperscout.io/nvlink"])
def test_keys_of_nvlink_that_are_refused(key: str, tmp_path: Path) -> None:
    file = tmp_path / "collector.yaml"
    file.write_text(f"kubernetes: dry-run\nnvlink_labels: [nvidia.com/gpu.clique, {key}]\n")
    with pytest.raises(SettingsError, match=r"expected a label key|does not read it"):
        load_settings(file)
    file.write_text("nvlink_labels: [nvidia.com/gpu.clique]\n")
    with pytest.raises(SettingsError, match="nvlink_labels: set kubernetes too"):
        load_settings(file)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[azure]", "'azure': expected one of aws, gcp"),
        ("5", "expected a list of clouds"),
        ("aws, azure", "'azure': expected one of aws, gcp"),
        ("[[]]", "1 to 8 label keys"),
        ("[[a b]]", "'a b': expected a label key"),
        ("[[3]]", "3: expected a label key"),
        ("[[example.com/rack, example.com/rack]]", "twice"),
        ("[[hyperscout.io/tier-1]]", "hyperscout writes this label and does not read it"),
        ("[[topology.hyperscout.io/leaf]]", "hyperscout writes this label and does not read it"),
        (str(["aws"] * 17), "17 lists"),
    ],
)
def test_settings_that_are_refused(text: str, words: str, tmp_path: Path) -> None:
    file = tmp_path / "collector.yaml"
    file.write_text(f"kubernetes: dry-run\ncloud_labels: {text}\n")
    with pytest.raises(SettingsError) as refused:
        load_settings(file)
    assert words in str(refused.value)
    file.write_text("cloud_labels: [aws]\n")
    with pytest.raises(SettingsError, match="set kubernetes too"):
        load_settings(file)


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ("[aws]", "'aws' is a name for cloud_labels: expected a label key such as nvidia.com/gpu.clique"),
        ("[example.com/rack, a, example.com/rack]", "example.com/rack: the same key twice: remove one"),
        ("[a b]", "'a b': expected a label key"),
    ],
)
def test_wrong_nvlink_labels_are_said(keys: str, words: str, tmp_path: Path) -> None:
    file = tmp_path / "collector.yaml"
    file.write_text(f"kubernetes: dry-run\nnvlink_labels: {keys}\n")
    with pytest.raises(SettingsError) as refused:
        load_settings(file)
    assert words in str(refused.value)


@pytest.mark.parametrize(
    "key",
    ["example.com/row=leaf", "example.com/ro{tier}", "topology.k8s.aws/network-node-layer-{fabric_tier}"],
)
def test_labels_that_the_collector_writes_are_not_read(key: str, tmp_path: Path) -> None:
    file = tmp_path / "collector.yaml"
    file.write_text(
        f"kubernetes: dry-run\nnode_label_keys: ['{key}']\ncloud_labels: [[example.com/row], aws]\n"
    )
    if key == "example.com/ro{tier}":
        assert load_settings(file).node_label_keys == (key,)
        return
    with pytest.raises(SettingsError, match=r"the collector writes .* \(node_label_keys\): remove it"):
        load_settings(file)


@given(st.recursive(st.none() | st.integers() | st.text(max_size=5), st.lists, max_leaves=9))
def test_any_setting_is_taken_or_refused(value: Any) -> None:
    try:
        lists = lists_of(value)
    except ValueError:
        return
    assert all(isinstance(key, str) for keys in lists for key in keys)


class Offers(Generations):
    """Keeps what was inferred."""

    offered: Topology | None = None

    def offer(
        self, topology: Topology, now_ns: int, facts: ConditionFacts = NO_FACTS, *, is_inferred: bool = True
    ) -> Decision:
        self.offered = topology
        return super().offer(topology, now_ns, facts, is_inferred=is_inferred)


class Cluster:
    is_known = True

    def __init__(self) -> None:
        self.labels: dict[str, dict[str, str]] = {"a": {}, "b": {}}

    def view(self) -> ClusterView:
        return ClusterView(dict.fromkeys(self.labels), {n: dict(of) for n, of in self.labels.items()})


async def test_another_label_is_news_and_another_heartbeat_is_not() -> None:
    cluster = Cluster()
    inferred: asyncio.Queue[float] = asyncio.Queue()
    generations = Offers(GenerationSettings(), None, 0)
    work = Pipeline(
        Inference(
            InferenceSettings(cloud_labels=(CLOUDS["kubernetes"],), nvlink_labels=("clique",)),
            SweepTexts(cast(EvidenceStore, None)),
            generations,
            timer=lambda: 0.0,
        ),
        InputsView(EvidenceState(), 300.0, 0),
        cluster,
        publish=lambda topology, cause: None,
        superseded=lambda looks: None,
        inferred=inferred.put_nowait,
        clock_ns=lambda: 1,
        debounce_s=0.0,
        refresh_s=30.0,
    )
    zone = {"topology.kubernetes.io/region": "r", "topology.kubernetes.io/zone": "r1"}
    task = asyncio.create_task(work.run())
    try:
        async with asyncio.timeout(TIMEOUT_S):
            await inferred.get()
            for labels in ({"a": zone, "b": {}}, {"a": zone, "b": zone}, {"a": {}, "b": zone}):
                cluster.labels = labels
                work.cluster_changed()
                await inferred.get()
                assert generations.offered is not None
                told = [h.nodes for h in generations.offered.hypernodes if h.source == "labels"]
                assert told == [tuple(node for node, of in labels.items() if of)]
                cluster.labels = {node: of | {"beat": str(len(labels))} for node, of in labels.items()}
                work.cluster_changed()
                work.cluster_changed()
            cluster.labels = {node: of | {"clique": "1"} for node, of in cluster.labels.items()}
            work.cluster_changed()
            await inferred.get()
            assert generations.offered is not None
            assert [h.source for h in generations.offered.hypernodes if h.tier == 1] == ["nvlink"]
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await work.close()
    assert work.inferences == 5
