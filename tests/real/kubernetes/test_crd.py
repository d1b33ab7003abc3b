"""The HyperNode definition on a real API server: what it takes and refuses, how kubectl shows it, columns."""

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from hyperscout_cli.main import cli
from hyperscout_cli.manage.crd import text
from hyperscout_kubernetes.client import Kube
from kube.api import ApiError
from support.kubernetes import Cluster
from support.real import ROOT, require_real

require_real("kubernetes")

PATH = "/apis/topology.volcano.sh/v1alpha1/hypernodes"
CRD = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/hypernodes.topology.volcano.sh"
EXACT = {"type": "Node", "selector": {"exactMatch": {"name": "node-1"}}}


def member(**selector: Any) -> dict[str, Any]:
    return {"tier": 1, "members": [{"type": "Node", "selector": selector}]}


def condition(**other: Any) -> dict[str, Any]:
    return {
        "type": "Ready",
        "status": "True",
        "reason": "AllNodesReady",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    } | other


# (what, spec or None for no spec, what the refusal names; None = taken)
SPECS: list[tuple[str, Any, str | None]] = [
    ("a tier alone", {"tier": 1}, None),
    ("tier 0", {"tier": 0}, None),
    ("no spec", None, None),
    ("no tier", {"members": [EXACT]}, "spec.tier"),
    ("a negative tier", {"tier": -1}, "spec.tier"),
    ("a tier in words", {"tier": "one"}, "spec.tier"),
    ("a long tierName", {"tier": 1, "tierName": "x" * 253}, None),
    ("a longer tierName", {"tier": 1, "tierName": "x" * 254}, "spec.tierName"),
    ("an empty tierName", {"tier": 1, "tierName": ""}, None),
    ("no members", {"tier": 1, "members": []}, "spec.members"),
    ("a member without a selector", {"tier": 1, "members": [{"type": "Node"}]}, None),
    ("a member without a type", {"tier": 1, "members": [{"selector": EXACT["selector"]}]}, "type"),
    ("a member of another type", {"tier": 1, "members": [EXACT | {"type": "Rack"}]}, "type"),
    ("a HyperNode as a member", {"tier": 1, "members": [EXACT | {"type": "HyperNode"}]}, None),
    ("exactMatch", member(exactMatch={"name": "gpu-1.rack.example"}), None),
    ("the longest name", member(exactMatch={"name": "a" * 253}), None),
    ("a longer name", member(exactMatch={"name": "a" * 254}), "name"),
    ("an empty name", member(exactMatch={"name": ""}), "name"),
    ("a name in capitals", member(exactMatch={"name": "Node-1"}), "name"),
    ("a name with an underscore", member(exactMatch={"name": "node_1"}), "name"),
    ("exactMatch without a name", member(exactMatch={}), "name"),
    ("regexMatch", member(regexMatch={"pattern": "^gpu-[0-9]+$"}), None),
    ("an empty pattern", member(regexMatch={"pattern": ""}), "pattern"),
    ("labelMatch", member(labelMatch={"matchLabels": {"a": "b"}}), None),
    ("labelMatch of everything", member(labelMatch={}), None),
    (
        "label expressions",
        member(labelMatch={"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}),
        None,
    ),
    ("an expression without a key", member(labelMatch={"matchExpressions": [{"operator": "In"}]}), "key"),
    ("no selector in it", member(), "one of exactMatch"),
    ("two selectors", member(exactMatch={"name": "a"}, regexMatch={"pattern": "b"}), "only one of"),
    ("two others", member(labelMatch={}, regexMatch={"pattern": "b"}), "only one of"),
    (
        "all three",
        member(exactMatch={"name": "a"}, regexMatch={"pattern": "b"}, labelMatch={}),
        "only one of",
    ),
]
STATUSES: list[tuple[str, dict[str, Any], str | None]] = [
    ("a condition", {"conditions": [condition()]}, None),
    ("the same type twice", {"conditions": [condition(), condition()]}, None),
    ("a type with a domain", {"conditions": [condition(type="example.com/Ready")]}, None),
    ("a strange type", {"conditions": [condition(type="not a type")]}, "type"),
    ("a longer type", {"conditions": [condition(type="x" * 317)]}, "type"),
    ("a status in lower case", {"conditions": [condition(status="true")]}, "status"),
    ("unknown", {"conditions": [condition(status="Unknown")]}, None),
    ("no reason", {"conditions": [condition(reason="")]}, "reason"),
    ("a reason in words", {"conditions": [condition(reason="Links down")]}, "reason"),
    ("the longest message", {"conditions": [condition(message="x" * 32768)]}, None),
    ("a longer message", {"conditions": [condition(message="x" * 32769)]}, "message"),
    ("no time", {"conditions": [condition(lastTransitionTime=None)]}, "lastTransitionTime"),
    ("a time in words", {"conditions": [condition(lastTransitionTime="now")]}, "lastTransitionTime"),
    ("a generation", {"conditions": [condition(observedGeneration=3)]}, None),
    ("a negative generation", {"conditions": [condition(observedGeneration=-1)]}, "observedGeneration"),
    ("a count", {"nodeCount": 2**40}, None),
    ("a negative count", {"nodeCount": -1}, "nodeCount"),
]


def refusal(kube: Cluster, method: str, path: str, body: dict[str, Any], content: str) -> str | None:
    try:
        kube.api.ask(method, path, body, content=content)
    except ApiError as error:
        return str(error) if error.code == 422 else f"not 422 but {error}"
    return None


def judge(said: str | None, expected: str | None) -> bool:
    return said is None if expected is None else said is not None and expected in said.partition("not 422")[0]


def test_specs_are_taken_and_refused_as_the_published_api_does(kube: Cluster) -> None:
    wrong = []
    for number, (what, spec, expected) in enumerate(SPECS):
        body = {"apiVersion": "topology.volcano.sh/v1alpha1", "kind": "HyperNode"}
        body |= {"metadata": {"name": f"hn-{number}"}} | ({"spec": spec} if spec is not None else {})  # type: ignore[dict-item]
        said = refusal(kube, "POST", f"{PATH}?fieldValidation=Strict", body, "application/json")
        if not judge(said, expected):
            wrong.append(f"{what}: {said}")
    assert wrong == []


def test_statuses_are_taken_and_refused_as_the_published_api_does(kube: Cluster) -> None:
    kube.apply({"apiVersion": "topology.volcano.sh/v1alpha1", "kind": "HyperNode", **named("hn")})
    wrong = []
    for what, status, expected in STATUSES:
        said = refusal(kube, "PATCH", f"{PATH}/hn/status", {"status": status}, "application/merge-patch+json")
        if not judge(said, expected):
            wrong.append(f"{what}: {said}")
    assert wrong == []


def named(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "annotations": {"hyperscout.io/nodes": "32"}}, "spec": {"tier": 1}}


def show(kube: Cluster, *words: str) -> list[dict[str, str]]:
    """`kubectl get hn`, by column; columns are told apart by where their head begins."""
    head, *rows = kube.kubectl("get", "hn", *words).splitlines()
    starts = [i for i, c in enumerate(head) if c != " " and (i == 0 or head[i - 1] == " ")]
    ends = [*starts[1:], 10_000]
    return [{head[a:b].strip(): row[a:b].strip() for a, b in zip(starts, ends, strict=True)} for row in rows]


def test_kubectl_shows_conditions(kube: Cluster) -> None:
    kube.apply({"apiVersion": "topology.volcano.sh/v1alpha1", "kind": "HyperNode", **named("leaf-1")})
    sick = [
        condition(status="False", reason="NodesNotReady"),
        condition(type="Degraded", reason="LinksDown", message="1 of 32 uplinks down"),
        condition(type="Stale", status="False", reason="EvidenceFresh"),
        condition(type="Consistent", reason="WiringMatches"),
    ]
    kube.api.ask("PATCH", f"{PATH}/leaf-1/status", {"status": {"conditions": sick}}, content=MERGE)
    [row] = show(kube)
    assert list(row) == ["NAME", "TIER", "TIERNAME", "NODES", "READY", "DEGRADED", "REASON", "AGE"]
    assert (row["NODES"], row["READY"], row["DEGRADED"], row["REASON"]) == (
        "32",
        "False",
        "True",
        "LinksDown",
    )
    [row] = show(kube, "-o", "wide")
    assert (row["READY-REASON"], row["CONSISTENT"], row["STALE"]) == ("NodesNotReady", "True", "False")
    assert row["MESSAGE"] == "1 of 32 uplinks down"


MERGE = "application/merge-patch+json"

# --- hyperscout crd columns ---------------------------------------------------------------------------------


def older() -> dict[str, Any]:
    """As an earlier release of the API had it: no tierName, three columns."""
    crd: dict[str, Any] = yaml.safe_load(text())
    crd["metadata"]["annotations"] = {
        "meta.helm.sh/release-name": "volcano",
        "meta.helm.sh/release-namespace": "volcano-system",
    }
    [version] = crd["spec"]["versions"]
    del version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["tierName"]
    version["additionalPrinterColumns"] = [
        {"name": "Tier", "type": "string", "jsonPath": ".spec.tier"},
        {"name": "NodeCount", "type": "integer", "jsonPath": ".status.nodeCount"},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    ]
    return crd


@pytest.fixture
def foreign(kube: Cluster) -> Iterator[Cluster]:
    """The cluster with an older definition, of another product."""
    put(kube, older())
    yield kube
    put(kube, yaml.safe_load(text()))


def put(kube: Cluster, crd: dict[str, Any]) -> None:
    crd["metadata"]["resourceVersion"] = kube.api.ask("GET", CRD)["metadata"]["resourceVersion"]
    kube.api.ask("PUT", CRD, crd)


def run(kubeconfig: Path, *flags: str) -> Result:
    return CliRunner().invoke(cli, ["crd", "columns", "--kubeconfig", str(kubeconfig), *flags])


def spec_of(kube: Cluster) -> dict[str, Any]:
    spec: dict[str, Any] = kube.api.ask("GET", CRD)["spec"]
    return spec


def test_columns_are_added_once_to_another_ones_definition(foreign: Cluster) -> None:
    before = spec_of(foreign)
    result = run(foreign.kubeconfig, "--dry-run")
    assert result.exit_code == 0, result.output
    assert "would add Nodes, Ready, Degraded, Reason" in result.stdout
    assert spec_of(foreign) == before

    result = run(foreign.kubeconfig)
    assert result.exit_code == 0, result.output
    assert "added Nodes, Ready, Degraded, Reason" in result.stdout
    assert "TierName is left out" in result.stderr
    assert "managed by Helm release volcano-system/volcano" in result.stderr
    after = spec_of(foreign)
    assert after["versions"][0]["schema"] == before["versions"][0]["schema"]
    columns = [column["name"] for column in after["versions"][0]["additionalPrinterColumns"]]
    assert columns[:7] == ["Tier", "NodeCount", "Nodes", "Ready", "Degraded", "Reason", "Age"]

    version = foreign.api.ask("GET", CRD)["metadata"]["resourceVersion"]
    result = run(foreign.kubeconfig)
    assert (result.exit_code, "nothing to add" in result.stdout) == (0, True)
    assert foreign.api.ask("GET", CRD)["metadata"]["resourceVersion"] == version


def test_columns_are_told_as_json_and_yaml(foreign: Cluster) -> None:
    as_json, as_yaml = (run(foreign.kubeconfig, "--dry-run", "-o", word).stdout for word in ("json", "yaml"))
    found = json.loads(as_json)
    assert found == yaml.safe_load(as_yaml)
    assert found["added"][:4] == ["Nodes", "Ready", "Degraded", "Reason"]
    assert "TierName" in found["leftOut"]
    assert (found["dryRun"], found["owner"]) == (True, "Helm release volcano-system/volcano")
    assert [step["op"] for step in found["patch"]].count("add") == len(found["added"])


@pytest.mark.parametrize(("races", "code"), [(1, 0), (9, 1)])
def test_a_concurrent_change_of_the_crd_is_never_undone(
    foreign: Cluster, monkeypatch: pytest.MonkeyPatch, races: int, code: int
) -> None:
    """Between our look and our write another column comes: once, we look again; each time, it is an error."""
    write = Kube.write
    left = races

    async def slow(self: Kube, *arguments: Any, **named: Any) -> Any:
        nonlocal left
        if left:
            left -= 1
            spec = copy.deepcopy(spec_of(foreign))
            column = {"name": f"Other{left}", "type": "string", "jsonPath": f".metadata.labels.other{left}"}
            spec["versions"][0]["additionalPrinterColumns"].append(column)
            foreign.api.ask("PATCH", CRD, {"spec": spec}, content=MERGE)
        return await write(self, *arguments, **named)

    monkeypatch.setattr(Kube, "write", slow)
    result = run(foreign.kubeconfig)
    assert result.exit_code == code, result.output
    names = [c["name"] for c in spec_of(foreign)["versions"][0]["additionalPrinterColumns"]]
    assert f"Other{races - 1}" in names
    assert ("Degraded" in names) is (code == 0)
    if code:
        assert "try again" in result.stderr


def test_without_rights_it_names_the_right_account(foreign: Cluster) -> None:
    foreign.service_account("without-rights")
    result = run(foreign.kubeconfig_of("without-rights"))
    assert result.exit_code == 1
    assert "use an account that may get and patch customresourcedefinitions" in result.stderr


def test_without_a_definition_it_says_how_to_have_one(kube: Cluster) -> None:
    kube.kubectl("delete", "crd", "hypernodes.topology.volcano.sh")
    try:
        result = run(kube.kubeconfig)
        assert result.exit_code == 1
        assert "hyperscout crd show" in result.stderr
    finally:
        kube.plane.install_crd(ROOT / "deploy" / "crd" / "hypernodes.yaml")


def test_an_unreachable_server_is_said(kube: Cluster, tmp_path: Path) -> None:
    config = json.loads(kube.kubeconfig.read_text())
    config["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:1"
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text(json.dumps(config))
    result = run(elsewhere)
    assert result.exit_code == 1
    assert "customresourcedefinitions" in result.stderr
