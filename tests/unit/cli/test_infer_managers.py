"""`hyperscout infer` on saved answers of managers, and on what the cluster says of its nodes."""

import json
from pathlib import Path
from typing import Any

import pytest
from hyperscout_sim.fabric.shapes import clos2
from hyperscout_sim.readings.netq import netq_graph
from hyperscout_sim.readings.sweep_text import sweep_text
from hyperscout_sim.readings.ufm import ufm_answers
from support.command_line import CommandLine

FABRIC = clos2(3, 4, 2)
DOMAIN = FABRIC.truth.domain_of()


def write(path: Path, document: Any) -> Path:
    path.write_text(json.dumps(document))
    return path


def inferred(run: CommandLine, *arguments: object, stdin: bytes = b"") -> dict[str, Any]:
    ran = run("infer", *arguments, "-o", "json", stdin=stdin)
    assert (ran.code, ran.err) == (0, "")
    found: dict[str, Any] = json.loads(ran.out)
    return found


def lowest(topology: dict[str, Any]) -> set[frozenset[str]]:
    return {frozenset(h["nodes"]) for h in topology["hypernodes"] if h["tier"] == 1}


def labelled(keys: tuple[str, ...]) -> dict[str, Any]:
    nodes = [(host, dict(zip(keys, ("all", f"leaf-{DOMAIN[host]}"), strict=True))) for host in FABRIC.hosts]
    return {"items": [{"kind": "Node", "metadata": {"name": name, "labels": of}} for name, of in nodes]}


@pytest.mark.parametrize("whole", [True, False])
def test_a_ufm(run: CommandLine, tmp_path: Path, whole: bool) -> None:
    answers = ufm_answers(FABRIC)
    found = inferred(run, "--ufm", write(tmp_path / "ufm.json", answers if whole else answers["ports"]))
    assert lowest(found) == set(FABRIC.truth.tiers[0])
    assert {tuple(link["sources"]) for link in found["links"]} == {("ufm",)}
    (tmp_path / "sweep").write_bytes(sweep_text(FABRIC))
    both = inferred(run, "--ufm", tmp_path / "ufm.json", "--ibnetdiscover", tmp_path / "sweep")
    assert {tuple(link["sources"]) for link in both["links"]} == {("ibnetdiscover", "ufm")}


def test_a_netq_from_stdin(run: CommandLine) -> None:
    found = inferred(run, "--netq", "-", stdin=json.dumps(netq_graph(FABRIC)).encode())
    assert lowest(found) == set(FABRIC.truth.tiers[0])


def test_nvlink_domains(run: CommandLine, tmp_path: Path) -> None:
    nodes = [{"ID": h, "Name": h, "DomainUUID": f"d-{DOMAIN[h]}"} for h in FABRIC.hosts]
    found = inferred(run, "--nmx", write(tmp_path / "nmx.json", nodes))
    assert lowest(found) == set(FABRIC.truth.tiers[0])
    assert {h["tierName"] for h in found["hypernodes"]} == {"nvlink"}


@pytest.mark.parametrize(
    "keys",
    [
        ("topology.k8s.aws/network-node-layer-1", "topology.k8s.aws/network-node-layer-2"),
        ("cloud.google.com/gce-topology-block", "cloud.google.com/gce-topology-subblock"),
        ("topology.kubernetes.io/region", "topology.kubernetes.io/zone"),
    ],
)
def test_labels_of_nodes(run: CommandLine, tmp_path: Path, keys: tuple[str, ...]) -> None:
    found = inferred(run, "--node-labels", write(tmp_path / "nodes.json", labelled(keys)))
    assert lowest(found) == set(FABRIC.truth.tiers[0])
    assert {(h["tier"], h["source"]) for h in found["hypernodes"]} == {(1, "labels"), (2, "labels")}


def test_own_keys_of_nodes(run: CommandLine, tmp_path: Path) -> None:
    keys = ("example.com/row", "example.com/rack")
    file = write(tmp_path / "nodes.json", labelled(keys))
    found = inferred(run, "--node-labels", file, "--label-keys", ",".join(keys))
    assert lowest(found) == set(FABRIC.truth.tiers[0])
    said = run("infer", "--node-labels", file).err
    assert "the tree is empty: no node has a label of a known cloud: name the keys" in said
    for cloud in ("aws", "oci-host"):
        told, _, rest = run("infer", "--node-labels", file, "--label-keys", cloud).err.partition("\n")
        assert told.endswith(f"no node has a label of {cloud}, given in --label-keys")
        assert rest == said
    wrong = run("infer", "--node-labels", file, "--label-keys", f"exampl.com/row,{keys[1]}").err
    assert "no node has the label exampl.com/row in --label-keys" in wrong
    for given, words in (
        (
            ["--node-labels", file, "--label-keys", "aws,oci"],
            "give the option once for aws, alone, and once for others",
        ),
        (["--node-labels", file, "--label-keys", "a b"], "--label-keys: 'a b': expected a label key"),
        (
            ["--node-labels", file, "--label-keys", "azure"],
            "'azure': expected a label key with a prefix, such as example.com/rack, or one of aws, gcp",
        ),
        (["--nmx", file, "--label-keys", "a"], "--label-keys: give --node-labels"),
    ):
        ran = run("infer", *given)
        assert (ran.code, ran.out) == (2, "")
        assert words in ran.err


@pytest.mark.parametrize("key", ["nvidia.com/gpu.clique", "topology.k8s.aws/capacity-block-id"])
def test_nvlink_domains_by_labels_of_nodes(run: CommandLine, tmp_path: Path, key: str) -> None:
    nodes = [(host, {key: f"11111111-1111-1111-1111-111111111111.{DOMAIN[host]}"}) for host in FABRIC.hosts]
    items = [{"kind": "Node", "metadata": {"name": name, "labels": of}} for name, of in nodes]
    found = inferred(run, "--node-labels", write(tmp_path / "nodes.json", {"items": items}))
    assert lowest(found) == set(FABRIC.truth.tiers[0])
    assert {h["tierName"] for h in found["hypernodes"]} == {"nvlink"}


def test_what_is_wrong_with_a_file_is_said(run: CommandLine, tmp_path: Path) -> None:
    graph = write(tmp_path / "graph.json", netq_graph(FABRIC))
    for option in ("--ufm", "--nmx", "--node-labels"):
        ran = run("infer", option, graph)
        assert (ran.code, ran.out) == (2, "")
        assert f"{graph}: " in ran.err
        assert "expected" in ran.err
    (tmp_path / "nothing").write_text("\n")
    assert "empty" in run("infer", "--netq", tmp_path / "nothing").err
    odd = [*ufm_answers(FABRIC)["ports"], {"number": 1}]
    assert "a port without a GUID" in run("infer", "--ufm", write(tmp_path / "odd.json", odd)).err
