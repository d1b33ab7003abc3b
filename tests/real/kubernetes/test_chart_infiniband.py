"""InfiniBand in the chart: which nodes run the agent with the devices, and that each node runs one agent."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hyperscout_agent.settings.settings import load_settings
from hypothesis import given
from hypothesis import strategies as st
from kube.control_plane import Options
from support.chart import EVERYTHING, NAMESPACE, RELEASE, Object, install, one, render
from support.kubernetes import Cluster
from support.real import require_real
from support.waiting import eventually

require_real("kubernetes", "helm")

NVIDIA = "feature.node.kubernetes.io/pci-15b3.present"
FIRST, SECOND = f"{RELEASE}-agent", f"{RELEASE}-agent-infiniband"
HAS_A, HAS_B = ({"matchExpressions": [{"key": key, "operator": "Exists"}]} for key in "ab")
NAMED = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}


def values(infiniband: Object, **agent: Any) -> Object:
    return {"agent": {"infiniband": infiniband, **agent}}


def required(*terms: Object) -> Object:
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}


def daemon_sets(given_values: Object) -> dict[str, Object]:
    return {o["metadata"]["name"]: o["spec"] for o in render(given_values) if o["kind"] == "DaemonSet"}


# --- what is rendered ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("infiniband", "limit", "claims"),
    [
        ({"resourceName": "rdma/hca"}, 1, None),
        ({"resourceClaimTemplate": "rdma-all"}, None, [{"name": "infiniband"}]),
    ],
)
def test_one_value_gives_the_devices_and_turns_sweeps_on(
    infiniband: Object, limit: int | None, claims: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    objects = render(values(infiniband | {"deviceGroup": 110}))
    pods = {name: spec["template"]["spec"] for name, spec in daemon_sets(values(infiniband)).items()}
    assert list(pods) == [FIRST, SECOND]
    agent = pods[SECOND]["containers"][0]
    assert agent["resources"]["limits"].get("rdma/hca") == limit
    assert agent["resources"].get("claims") == claims
    template = {"name": "infiniband", "resourceClaimTemplateName": "rdma-all"}
    assert pods[SECOND].get("resourceClaims") == ([template] if claims else None)
    assert "rdma" not in json.dumps(pods[FIRST])
    groups = [one(objects, "DaemonSet", name)["spec"]["template"]["spec"]["securityContext"] for name in pods]
    assert ["supplementalGroups" in group for group in groups] == [False, True]

    file = tmp_path / "agent.yaml"
    file.write_text(one(objects, "ConfigMap", "-agent")["data"]["agent.yaml"])
    assert load_settings(file).ibnetdiscover.enabled is False
    for variable in agent["env"]:
        monkeypatch.setenv(variable["name"], variable.get("value", "n1"))
    assert load_settings(file).ibnetdiscover.enabled is True


def test_without_a_value_there_is_one_daemon_set_and_no_sweep() -> None:
    for settings, sweeps in (({}, False), ({"ibnetdiscover": {"enabled": True}}, True)):
        agent = {"settings": settings}
        [(name, spec)] = daemon_sets({"agent": {**agent, "infiniband": {"deviceGroup": 110}}}).items()
        pod = spec["template"]["spec"]
        assert (name, "affinity" in pod) == (FIRST, False)
        assert pod["securityContext"]["supplementalGroups"] == [110]
        written = yaml.safe_load(one(render({"agent": agent}), "ConfigMap", "-agent")["data"]["agent.yaml"])
        assert written["ibnetdiscover"] == {"enabled": sweeps}


def test_the_two_differ_in_devices_and_nodes_alone() -> None:
    """The same account, settings, confinement and tolerations; selectors that do not overlap."""
    first, second = daemon_sets(EVERYTHING).values()
    labels = [spec["template"]["metadata"]["labels"] for spec in (first, second)]
    for spec, other in zip((first, second), reversed(labels), strict=True):
        assert not spec["selector"]["matchLabels"].items() <= other.items()
        assert spec["selector"]["matchLabels"].items() <= spec["template"]["metadata"]["labels"].items()
    pods = [spec["template"]["spec"] for spec in (first, second)]
    assert {key for key in pods[0] | pods[1] if pods[0].get(key) != pods[1].get(key)} == {
        "affinity",
        "containers",
        "resourceClaims",
        "securityContext",
    }
    agents = [pod["containers"][0] for pod in pods]
    assert {key for key in agents[0] if agents[0][key] != agents[1][key]} == {"env", "resources"}
    monitor = one(render(EVERYTHING), "PodMonitor", "-agent")["spec"]["selector"]
    [component] = monitor["matchExpressions"]
    for found in labels:
        assert monitor["matchLabels"].items() <= found.items()
        assert found[component["key"]] in component["values"]


def test_other_parts_of_the_affinity_stay() -> None:
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"x": "y"}}}
    preferred = [{"weight": 1, "preference": HAS_A}]
    soft = "preferredDuringSchedulingIgnoredDuringExecution"
    apart = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    affinity = {"podAntiAffinity": apart, "nodeAffinity": {soft: preferred}}
    for spec in daemon_sets(values({"resourceName": "rdma/hca"}, affinity=affinity)).values():
        found = spec["template"]["spec"]["affinity"]
        assert found["podAntiAffinity"] == apart
        assert found["nodeAffinity"][soft] == preferred


# --- which nodes --------------------------------------------------------------------------------------------


def matches(spec: Object, labels: dict[str, str], name: str = "n") -> bool:
    """Whether the node is one for these pods (k8s.io/component-helpers, `GetRequiredNodeAffinity`)."""
    pod = spec["template"]["spec"]
    if not pod.get("nodeSelector", {}).items() <= labels.items():
        return False
    affinity = pod.get("affinity", {}).get("nodeAffinity", {})
    terms = affinity.get("requiredDuringSchedulingIgnoredDuringExecution", {}).get("nodeSelectorTerms")
    return terms is None or any(_fits(term, labels, name) for term in terms)


def _fits(term: Object, labels: dict[str, str], name: str) -> bool:
    expressions = term.get("matchExpressions", ())
    fields = term.get("matchFields", ())
    if not expressions and not fields:
        return False  # an empty term selects no node
    holds = {
        "Exists": lambda value, _: value is not None,
        "In": lambda value, wanted: value in wanted,
        "NotIn": lambda value, wanted: value not in wanted,  # also without the label
    }
    found = [(x, labels.get(x["key"])) for x in expressions] + [(x, name) for x in fields]
    return all(holds[x["operator"]](value, x.get("values")) for x, value in found)


TWO = {"a": "1", "b": "2"}
CASES: list[Object] = [
    {"infiniband": {}},
    {"infiniband": {"nodeSelector": {"a": "1"}}},
    {"infiniband": {"nodeSelector": TWO}},
    {"infiniband": {"nodeSelector": TWO}, "nodeSelector": {"a": "2"}},
    {"infiniband": {"nodeSelector": TWO}, "affinity": required(HAS_A)},
    {"infiniband": {"nodeSelector": TWO}, "affinity": required(HAS_A, HAS_B, {})},
    {"infiniband": {"nodeSelector": TWO}, "affinity": required(HAS_B | NAMED, NAMED)},
    {"infiniband": {"nodeSelector": {"a": "1"}}, "affinity": required({})},
]
LABELS = st.fixed_dictionaries(
    {}, optional={key: st.sampled_from(["1", "2", "true", ""]) for key in ("a", "b", NVIDIA)}
)


@pytest.mark.hypothesis
@pytest.mark.parametrize("case", CASES, ids=lambda case: json.dumps(case)[:60])
@given(labels=LABELS, name=st.sampled_from(["n", "m"]))
def test_each_node_runs_one_agent(case: Object, labels: dict[str, str], name: str) -> None:
    """Of the nodes that the single DaemonSet would have, each is in one of the two."""
    [alone] = daemon_sets({"agent": {**case, "infiniband": {}}}).values()
    pair = daemon_sets({"agent": {**case, "infiniband": {**case["infiniband"], "resourceName": "rdma/hca"}}})
    labels = {"kubernetes.io/os": "linux"} | labels
    is_selected = matches(alone, labels, name)
    has_devices = (case["infiniband"].get("nodeSelector") or {NVIDIA: "true"}).items() <= labels.items()
    found = {found for found, spec in pair.items() if matches(spec, labels, name)}
    assert found == ({SECOND if has_devices else FIRST} if is_selected else set())


async def test_the_agent_of_a_node_moves_when_the_node_gets_the_label(
    own_kube: Callable[[Options], Cluster],
) -> None:
    """By the real controller and scheduler."""
    kube = own_kube(Options(controller_manager=True, scheduler="", kwok=True))
    linux = {"kubernetes.io/os": "linux"}
    kube.nodes(["gpu-1"], linux | {NVIDIA: "true"})
    kube.nodes(["gpu-2"], linux)
    offer = [
        {"op": "add", "path": f"/status/{x}/rdma~1hca", "value": "1"} for x in ("capacity", "allocatable")
    ]
    for node in ("gpu-1", "gpu-2"):
        kube.kubectl(*f"patch node {node} --subresource=status --type=json -p".split(), json.dumps(offer))
    install(kube, values({"resourceName": "rdma/hca"}) | {"crds": {"install": False}})

    def agents() -> list[tuple[str, str]]:
        pods = [(p["spec"].get("nodeName", ""), p["metadata"]) for p in kube.get("pods", "-n", NAMESPACE)]
        found = ((node, meta["ownerReferences"][0]) for node, meta in pods if "deletionTimestamp" not in meta)
        return sorted((node, owner["name"]) for node, owner in found if owner["kind"] == "DaemonSet")

    await eventually(lambda: agents() == [("gpu-1", SECOND), ("gpu-2", FIRST)])
    kube.kubectl("label", "node", "gpu-2", f"{NVIDIA}=true")
    await eventually(lambda: agents() == [("gpu-1", SECOND), ("gpu-2", SECOND)])
