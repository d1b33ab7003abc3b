"""What an operator does to an installed chart on a bad day, on real kubelets; no cables needed.

A pod that lies, a roll-out that no node takes, a drain, an uninstall: `docs/chart.md` and
`docs/security.md` say what follows.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from lab import claims, rights
from lab.cluster import Lab
from lab.images import images
from lab.inside import CommandError
from support.chart import CHART
from support.real import require_real
from support.waiting import TIMEOUT_S, until_seen

require_real("lab", "helm")

NAMESPACE = RELEASE = "hyperscout"
COLLECTOR, AGENT = f"{RELEASE}-collector", f"{RELEASE}-agent"
NODES = ("node1", "node2")
# No node here has a port with a cable.
VALUES = {
    "image": {"pullPolicy": "Never"},
    "agent": {"settings": {"lldp": {"ports": "^rail"}, "latency": {"enabled": False}}},
}


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    found = images(print)
    folder = tmp_path_factory.mktemp("upkeep") / "lab"
    with Lab(folder, images=[found.agent, found.collector]) as lab:
        lab.add_nodes(NODES)
        lab.await_ready(NODES, TIMEOUT_S)
        lab.kubectl("create", "namespace", NAMESPACE)
        lab.kubectl("label", "namespace", NAMESPACE, "pod-security.kubernetes.io/enforce=privileged")
        values = folder / "values.yaml"
        values.write_text(json.dumps(VALUES))
        lab.helm("install", RELEASE, str(CHART), "-n", NAMESPACE, "-f", str(values), timeout_s=TIMEOUT_S)
        rolled(lab)
        yield lab


def rolled(lab: Lab, *what: str) -> None:
    for one in what or (f"deployment/{COLLECTOR}", f"daemonset/{AGENT}"):
        words = ("rollout", "status", one, "-n", NAMESPACE, f"--timeout={TIMEOUT_S:.0f}s")
        lab.kubectl(*words, timeout_s=TIMEOUT_S + 10)


def upgrade(lab: Lab, *settings: str) -> None:
    words = [word for setting in settings for word in ("--set", setting)]
    keep = ("-n", NAMESPACE, "--reset-then-reuse-values")
    lab.helm("upgrade", RELEASE, str(CHART), *keep, *words, timeout_s=TIMEOUT_S)


def pods(lab: Lab, component: str) -> dict[str, dict[str, Any]]:
    """Those that are not on their way out, by name."""
    found = lab.get("pods", "-n", NAMESPACE, "-l", f"app.kubernetes.io/component={component}")["items"]
    return {p["metadata"]["name"]: p for p in found if "deletionTimestamp" not in p["metadata"]}


def is_ready(pod: dict[str, Any]) -> bool:
    conditions = {c["type"]: c["status"] for c in pod["status"].get("conditions", ())}
    return conditions.get("Ready") == "True"


def leader(lab: Lab) -> str:
    holder = lab.get("lease", COLLECTOR, "-n", NAMESPACE)["spec"].get("holderIdentity") or ""
    return str(holder).partition("_")[0]


def test_pods_may_do_what_they_must_and_no_more(lab: Lab) -> None:
    agent = next(iter(pods(lab, "agent")))
    print("\n".join(rights.check(lab, NAMESPACE, agent, leader(lab))))


def test_a_pod_that_claims_to_be_another_node(lab: Lab) -> None:
    agent, pod = next(iter(pods(lab, "agent").items()))
    node = pod["spec"]["nodeName"]
    other = next(name for name in NODES if name != node)
    print("\n".join(claims.check(lab, NAMESPACE, agent, node, other, leader(lab))))


def test_settings_that_no_collector_takes_stop_at_the_first_node(lab: Lab) -> None:
    before = pods(lab, "agent")
    upgrade(lab, "agent.tlsServerName=elsewhere.example")
    until_seen(lambda: len(pods(lab, "agent").keys() - before.keys()) == 1, "a new agent")
    [new] = pods(lab, "agent").keys() - before.keys()
    words = ("logs", "-n", NAMESPACE, new, "-c", "agent")  # refused until the container is made
    until_seen(lambda: "another name" in lab.kubectl(*words, check=False), "its complaint")
    now = pods(lab, "agent")
    assert not is_ready(now[new])
    assert [is_ready(now[name]) for name in now.keys() & before.keys()] == [True]
    assert all(not pod["status"]["containerStatuses"][0]["restartCount"] for pod in now.values())
    lab.helm("rollback", RELEASE, "-n", NAMESPACE, timeout_s=TIMEOUT_S)
    rolled(lab, f"daemonset/{AGENT}")
    # The one that was not touched was not touched by the way back either.
    assert pods(lab, "agent").keys() & before.keys() == now.keys() & before.keys()


def test_collectors_roll_one_by_one_and_agents_stay(lab: Lab) -> None:
    agents, old = pods(lab, "agent").keys(), pods(lab, "collector").keys()
    upgrade(lab, "collector.settings.stale_after_s=600")
    rolled(lab, f"deployment/{COLLECTOR}")
    until_seen(lambda: leader(lab) in pods(lab, "collector").keys() - old, "a new leader")
    assert pods(lab, "agent").keys() == agents
    # Each of the new ones knew what its leader knew before it was counted on.
    [standby] = pods(lab, "collector").keys() - {leader(lab)}
    assert "following the leader" in lab.kubectl("logs", "-n", NAMESPACE, standby)


def test_a_node_with_a_collector_can_be_drained(lab: Lab) -> None:
    first = leader(lab)
    node = pods(lab, "collector")[first]["spec"]["nodeName"]
    words = ("--ignore-daemonsets", "--delete-emptydir-data", f"--timeout={TIMEOUT_S:.0f}s")
    lab.kubectl("drain", node, *words, timeout_s=TIMEOUT_S + 10)
    try:
        until_seen(lambda: leader(lab) not in ("", first), "another leader")
    finally:
        lab.kubectl("uncordon", node)
    rolled(lab)


def test_a_node_that_offers_devices_runs_one_agent_that_has_one(lab: Lab) -> None:
    """The resource is written into the node's status, as a device plugin's kubelet does."""
    rich, poor = NODES
    offer = json.dumps([{"op": "add", "path": "/status/capacity/example.com~1hca", "value": "1"}])
    lab.kubectl("patch", "node", rich, "--subresource=status", "--type=json", "-p", offer)
    lab.kubectl("label", "node", rich, "example.com/hca=yes")
    name = "agent.infiniband.resourceName"
    upgrade(lab, f"{name}=example.com/hca", r"agent.infiniband.nodeSelector.example\.com/hca=yes")
    rolled(lab, f"daemonset/{AGENT}", f"daemonset/{AGENT}-infiniband")
    [agent] = pods(lab, "agent").values()
    [with_device] = pods(lab, "agent-infiniband").values()
    assert (agent["spec"]["nodeName"], with_device["spec"]["nodeName"]) == (poor, rich)
    limits = [p["spec"]["containers"][0]["resources"]["limits"] for p in (agent, with_device)]
    assert [found.get("example.com/hca") for found in limits] == [None, "1"]
    print("\n".join(rights.check(lab, NAMESPACE, with_device["metadata"]["name"], leader(lab))))
    upgrade(lab, f"{name}=", "agent.infiniband.nodeSelector=null")
    rolled(lab, f"daemonset/{AGENT}")
    until_seen(
        lambda: not pods(lab, "agent-infiniband") and len(pods(lab, "agent")) == len(NODES), "one DaemonSet"
    )


def test_an_uninstall_leaves_what_the_documents_say(lab: Lab) -> None:
    """Last: nothing runs after it."""
    lab.helm("uninstall", RELEASE, "-n", NAMESPACE, "--wait", "--timeout", "180s", timeout_s=TIMEOUT_S)
    until_seen(lambda: not lab.get("pods", "-n", NAMESPACE)["items"], "all pods gone")
    kinds = "deployments,daemonsets,services,configmaps,secrets,serviceaccounts,roles,rolebindings,pdb,leases"
    found = lab.get(kinds, "-n", NAMESPACE)["items"]
    left = {(o["kind"], o["metadata"]["name"]) for o in found}
    cluster_s = {("ConfigMap", "kube-root-ca.crt"), ("ServiceAccount", "default")}
    assert left - cluster_s == {("Lease", COLLECTOR)}
    whole = lab.get("clusterroles,clusterrolebindings", "-l", "app.kubernetes.io/part-of=hyperscout")["items"]
    assert whole == []
    lab.kubectl("get", "hypernodes")
    with pytest.raises(CommandError):
        lab.kubectl("get", "hypernode", "no-such")
