"""Which columns are added to a HyperNode definition of another owner, and how."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from hyperscout_cli.main import cli
from hyperscout_cli.manage.crd import text
from hyperscout_cli.manage.crd_columns import UnsuitableError, plan

OURS = yaml.safe_load(text())
TIER = {"name": "Tier", "type": "string", "jsonPath": ".spec.tier"}
COUNT = {"name": "NodeCount", "type": "integer", "jsonPath": ".status.nodeCount"}
AGE = {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}
READY = {"name": "READY", "type": "string", "jsonPath": ".status.somethingElse"}


def theirs(*columns: dict[str, Any], tier_name: bool = True, status: bool = True) -> dict[str, Any]:
    """A definition as another product might have it."""
    spec: dict[str, Any] = {"tier": {}, "members": {}} | ({"tierName": {}} if tier_name else {})
    version: dict[str, Any] = {
        "name": "v1alpha1",
        "schema": {"openAPIV3Schema": {"properties": {"spec": {"properties": spec}}}},
    }
    if columns:
        version["additionalPrinterColumns"] = [dict(column) for column in columns]
    if status:
        version["subresources"] = {"status": {}}
    return {"metadata": {"resourceVersion": "7"}, "spec": {"versions": [{"name": "v1"}, version]}}


def patched(found: dict[str, Any], patch: Any) -> list[str]:
    """Names of the columns after the patch (RFC 6902, as far as it is used)."""
    version = copy.deepcopy(found["spec"]["versions"][1])
    columns = version.setdefault("additionalPrinterColumns", [])
    for step in patch:
        place = step["path"].removeprefix("/spec/versions/1/")
        if step["op"] == "test":
            there = {"name": version["name"], "additionalPrinterColumns": columns}
            assert step["value"] == there.get(place, found["metadata"]["resourceVersion"]), step
        elif place == "additionalPrinterColumns":
            columns = step["value"]
        else:
            where = place.rpartition("/")[2]
            columns.insert(len(columns) if where == "-" else int(where), step["value"])
    return [column["name"] for column in columns]


WIDE = ["Ready-Reason", "Consistent", "Stale", "Message"]
LIVE = ["Nodes", "Ready", "Degraded", "Reason"]


@pytest.mark.parametrize(
    ("found", "names", "kept", "left_out"),
    [
        pytest.param(
            theirs(TIER, COUNT, AGE),
            ["Tier", "NodeCount", "TierName", *LIVE, "Age", *WIDE],
            [],
            [],
            id="before the age, wide ones at the end",
        ),
        pytest.param(
            theirs(TIER),
            ["Tier", "TierName", *LIVE, "Age", *WIDE],
            [],
            [],
            id="the age too, where it is lacking",
        ),
        pytest.param(theirs(), ["Tier", "TierName", *LIVE, "Age", *WIDE], [], [], id="no columns at all"),
        pytest.param(
            theirs(TIER, AGE, tier_name=False),
            ["Tier", *LIVE, "Age", *WIDE],
            [],
            ["TierName"],
            id="older: no tierName to show",
        ),
        pytest.param(
            theirs(TIER, READY, AGE),
            ["Tier", "READY", "TierName", "Nodes", "Degraded", "Reason", "Age", *WIDE],
            ["Ready"],
            [],
            id="another's READY stays",
        ),
    ],
)
def test_columns_are_added_and_none_is_lost(
    found: dict[str, Any], names: list[str], kept: list[str], left_out: list[str]
) -> None:
    before = json.dumps(found)
    done = plan(found, OURS)
    assert patched(found, done.patch) == names
    assert (list(done.kept), list(done.left_out)) == (kept, left_out)
    assert json.dumps(found) == before
    assert all(step["op"] in ("test", "add") for step in done.patch)
    assert not any("schema" in step["path"] for step in done.patch)


def test_tests_come_first_and_name_what_was_seen() -> None:
    for found, path in (
        (theirs(TIER), "/spec/versions/1/additionalPrinterColumns"),
        (theirs(), "/metadata/resourceVersion"),
    ):
        first, second, *rest = plan(found, OURS).patch
        assert first == {"op": "test", "path": "/spec/versions/1/name", "value": "v1alpha1"}
        assert (second["op"], second["path"]) == ("test", path)
        assert {step["op"] for step in rest} == {"add"}


def test_nothing_lacking_is_no_patch() -> None:
    assert plan(OURS, OURS).patch == ()
    assert plan(OURS, OURS).has_status
    assert not plan(theirs(status=False), OURS).has_status


@pytest.mark.parametrize("versions", [[], [{"name": "v1"}]])
def test_another_version_is_said(versions: list[dict[str, str]]) -> None:
    with pytest.raises(UnsuitableError, match=r"no version v1alpha1 \(it has (none|v1)\)"):
        plan({"spec": {"versions": versions}}, OURS)


def test_show_prints_what_is_in_deploy() -> None:
    result = CliRunner().invoke(cli, ["crd", "show"])
    assert result.exit_code == 0
    assert yaml.safe_load(result.output)["metadata"]["name"] == "hypernodes.topology.volcano.sh"


def test_every_field_is_described() -> None:
    def undescribed(schema: dict[str, Any], path: str) -> list[str]:
        found = [] if "description" in schema or path.endswith(("metadata", "[]")) else [path]
        for name, inner in (schema.get("properties") or {}).items():
            found += undescribed(inner, f"{path}.{name}")
        if "items" in schema:
            found += undescribed(schema["items"], f"{path}[]")
        return found

    assert undescribed(OURS["spec"]["versions"][0]["schema"]["openAPIV3Schema"], "") == []


def test_without_credentials_it_says_so(tmp_path: Any) -> None:
    from hyperscout_cli.main import main

    missing = tmp_path / "none"
    result = CliRunner().invoke(cli, ["crd", "columns", "--kubeconfig", str(missing)])
    assert "no credentials for a Kubernetes API server" in result.output
    assert main(["crd", "columns", "--kubeconfig", str(missing)]) == 2


def test_without_a_cluster_the_next_step_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    result = CliRunner().invoke(cli, ["crd", "columns"])
    assert result.exit_code == 2
    assert "give --kubeconfig FILE" in result.output
