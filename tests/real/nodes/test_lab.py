"""The lab itself: real kubelets come, run pods, go and come back; and a second lab beside it."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from lab import oci
from lab.cluster import Lab
from lab.inside import CommandError, LabError
from lab.processes import began
from support.real import ROOT, require_real

require_real("lab", "helm")

NODES = ["node1", "node2"]
# On the host network pods find a Service by its name, as agents do; the Service's pod is on the pod network.
PODS = """
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web}
spec: {minAvailable: 1, selector: {matchLabels: {app: web}}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 1
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      automountServiceAccountToken: false
      nodeName: node1
      terminationGracePeriodSeconds: 1
      containers:
      - name: web
        image: lab.local/busybox:1
        args: [-c, "mkdir /tmp/w; echo it is web > /tmp/w/index.html; exec httpd -f -p 8080 -h /tmp/w"]
        readinessProbe: {httpGet: {path: /, port: 8080}, periodSeconds: 1}
        securityContext:
          runAsUser: 65534
          runAsNonRoot: true
          allowPrivilegeEscalation: false
          seccompProfile: {type: RuntimeDefault}
          capabilities: {drop: [ALL]}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: host}
spec:
  selector: {matchLabels: {app: host}}
  template:
    metadata: {labels: {app: host}}
    spec:
      automountServiceAccountToken: false
      hostNetwork: true
      dnsPolicy: ClusterFirstWithHostNet
      terminationGracePeriodSeconds: 1
      tolerations: [{operator: Exists}]
      containers:
      - name: host
        image: lab.local/busybox:1
        args:
        - -c
        - "until wget -qO- http://web.default.svc.cluster.local; do sleep 1; done; exec sleep 1000000"
        securityContext:
          readOnlyRootFilesystem: true
          allowPrivilegeEscalation: false
          seccompProfile: {type: RuntimeDefault}
          capabilities: {drop: [ALL], add: [NET_RAW]}
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with Lab(tmp_path_factory.mktemp("lab"), say=lambda _: None) as lab:
        lab.add_nodes(NODES)
        lab.await_ready(NODES)
        lab.kubectl("apply", "-f", "-", stdin=PODS)
        yield lab


def command_line(lab: Lab, *words: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, str(ROOT / "tests" / "lab"), "--folder", str(lab.folder), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def host_pods(lab: Lab) -> dict[str, str]:
    """Node -> its pod of the DaemonSet."""
    found = lab.get("pods", "-l", "app=host")["items"]
    return {pod["spec"]["nodeName"]: pod["metadata"]["name"] for pod in found}


def test_pods_run_and_find_a_service_by_its_name(lab: Lab) -> None:
    for what in ("deployment/web", "daemonset/host"):
        lab.kubectl("rollout", "status", what, "--timeout=120s", timeout_s=130)
    pods = host_pods(lab)
    assert set(pods) == set(NODES)
    for node, pod in pods.items():
        lab.run(
            ["sh", "-c", f"until kubectl logs {pod} | grep -q 'it is web'; do sleep 0.2; done"],
            timeout_s=120,
        )
        assert lab.kubectl("exec", pod, "--", "cat", "/proc/sys/kernel/hostname").strip() == node
        held = lab.kubectl("exec", pod, "--", "cat", "/proc/1/status")
        assert f"CapEff:\t{1 << 13:016x}" in held
        assert "Seccomp:\t2" in held
        with pytest.raises(CommandError, match=r"[Rr]ead-only"):
            lab.kubectl("exec", pod, "--", "touch", "/file")
    forward = lab.popen(["kubectl", "port-forward", "deployment/web", "9999:8080"], lab.folder / "log" / "pf")
    try:
        ask = (
            f"until '{lab.folder}/bin/kubectl' get --raw / --server http://127.0.0.1:9999; do sleep 0.1; done"
        )
        assert "it is web" in lab.run(["sh", "-c", ask], timeout_s=120).stdout
    finally:
        forward.kill()
    assert not forward.alive


def test_a_disruption_budget_holds(lab: Lab) -> None:
    lab.kubectl("rollout", "status", "deployment/web", "--timeout=120s", timeout_s=130)
    lab.kubectl("wait", "pdb/web", "--for=jsonpath={.status.currentHealthy}=1", "--timeout=120s")
    pod = lab.get("pods", "-l", "app=web")["items"][0]["metadata"]["name"]
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}}
    path = f"/api/v1/namespaces/default/pods/{pod}/eviction"
    with pytest.raises(CommandError, match="disruption budget"):
        lab.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(eviction))


def test_each_machine_is_one_of_its_own(lab: Lab) -> None:
    node1, node2 = lab.nodes["node1"], lab.nodes["node2"]
    assert [node1.ip, node2.ip] == ["10.77.0.11", "10.77.0.12"]
    for node in (node1, node2):
        assert node.run(["cat", "/proc/sys/kernel/hostname"]).stdout.strip() == node.name
        assert node.run(["cat", "/proc/1/comm"]).stdout.strip() == "pause"
        assert {
            line.rpartition(":")[2] for line in node.run(["cat", "/proc/self/cgroup"]).stdout.split()
        } == {"/"}
        mine = node.run(["ip", "-o", "link"]).stdout
        assert "eth0" in mine
        assert "br0" not in mine
    node1.run(["touch", "/run/mark", "/var/lib/mark"])
    assert node2.run(["ls", "/run/mark", "/var/lib/mark"], check=False).returncode
    assert not Path("/var/lib/mark").exists()
    # A command's input, output, exit status and end.
    assert node1.run(["cat"], stdin="in and out").stdout == "in and out"
    assert node1.run(["sh", "-c", "exit 7"], check=False).returncode == 7
    with pytest.raises(CommandError, match=r"exit status 127: no-such-program"):
        node1.run(["no-such-program"])
    with pytest.raises(CommandError, match="no end within"):
        node1.run(["sleep", "31415"], timeout_s=0.5)
    left = node1.run(["sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '"]).stdout
    assert "sleep 31415" not in left


def test_a_switch_is_a_machine_with_a_network(lab: Lab) -> None:
    switch = lab.machine("leaf-x")
    assert switch.ip == "10.77.0.101"
    assert lab.switches == {"leaf-x": switch}
    assert set(lab.nodes) == set(NODES)
    # What is moved there by its process id, as the sandbox counts, is there.
    lab.run(["ip", "link", "add", "one", "type", "veth", "peer", "name", "swp1", "netns", str(switch.pid)])
    assert switch.run(["ls", "/sys/class/net"]).stdout.split() == ["lo", "mgmt", "swp1"]
    switch.run(["ip", "link", "set", "swp1", "up"])
    lab.run(["ip", "link", "set", "one", "up"])
    assert "NO-CARRIER" not in lab.run(["ip", "link", "show", "one"]).stdout
    sleeper = switch.popen(["sleep", "1000"], lab.folder / "log" / "sleeper")
    assert sleeper.alive
    url = "http://web.default.svc.cluster.local"
    ask = f"import urllib.request as u; print(u.urlopen('{url}', timeout=3).read())"
    reach = f'until {sys.executable} -c "{ask}"; do sleep 0.2; done'
    assert "it is web" in switch.run(["sh", "-c", reach]).stdout
    assert "it is web" in lab.run(["sh", "-c", reach]).stdout
    lab.kill_node("leaf-x")
    assert not sleeper.alive
    assert "NO-CARRIER" in lab.run(["ip", "link", "show", "one"]).stdout
    assert "leaf-x" not in lab.switches
    again = lab.revive_node("leaf-x")
    assert again.run(["ls", "/sys/class/net"]).stdout.split() == ["lo", "mgmt", "swp1"]
    assert "NO-CARRIER" not in lab.run(["ip", "link", "show", "one"]).stdout
    lab.kill_node("leaf-x")


def test_a_killed_node_is_not_ready_and_comes_back_with_its_disk(lab: Lab) -> None:
    lab.kubectl("rollout", "status", "daemonset/host", "--timeout=120s", timeout_s=130)
    node = lab.nodes["node2"]
    node.run(["touch", "/run/gone", "/var/lib/kept"])
    lab.kill_node("node2")
    assert set(lab.nodes) == {"node1"}
    assert not began(node.outer_pid)
    lab.await_not_ready(["node2"], timeout_s=120)
    assert lab.ready()["node1"]
    with pytest.raises(LabError, match=r"node2 does not run; what runs is .*node1"):
        lab.kill_node("node2")
    with pytest.raises(LabError, match="node1 runs"):
        lab.revive_node("node1")
    with pytest.raises(LabError, match="no node9"):
        lab.revive_node("node9")
    back = lab.revive_node("node2")
    lab.await_ready(["node2"], timeout_s=120)
    assert back.run(["ls", "/var/lib/kept"]).stdout
    assert back.run(["ls", "/run/gone"], check=False).returncode
    lab.kubectl("wait", "pod", "-l", "app=host", "--for=condition=Ready", "--timeout=120s", timeout_s=130)


def test_another_process_acts_on_it_and_new_nodes_get_images(lab: Lab, tmp_path: Path) -> None:
    tar = oci.write(tmp_path / "mine.tar", "lab.local/mine:7", {"mine": b"no program"}, {}, ["/mine"])
    assert command_line(lab, "import", str(tar)).returncode == 0
    assert command_line(lab, "add", "node3").returncode == 0
    status = command_line(lab, "status").stdout
    assert "node3\tnode\t10.77.0.13\tReady" in status
    listed = command_line(lab, "kubectl", "get", "nodes", "-o", "name")
    assert listed.stdout.split() == ["node/node1", "node/node2", "node/node3"]
    for name in ("node1", "node3"):
        have = command_line(lab, "exec", name, "--", "ctr", "-n", "k8s.io", "images", "list", "-q")
        assert "lab.local/mine:7" in have.stdout.split()
    assert command_line(lab, "exec", "node3", "sh", "-c", "exit 3").returncode == 3
    assert command_line(lab, "kill", "node3").returncode == 0
    assert "node3\tnode\t10.77.0.13\toff" in command_line(lab, "status").stdout
    refused = command_line(lab, "exec", "node3", "true")
    assert (refused.returncode, refused.stderr.count("node3 does not run")) == (1, 1)
    assert "NAME" in command_line(lab, "helm", "list", "-A").stdout
    refused = command_line(lab, "kill", "node44")
    assert (refused.returncode, refused.stderr.count("Traceback")) == (1, 0)


def test_two_labs_do_not_meet(lab: Lab, tmp_path: Path) -> None:
    with pytest.raises(LabError, match="a lab runs there already"):
        Lab(lab.folder, say=lambda _: None).start()
    with Lab(tmp_path / "other", say=lambda _: None) as other:
        machine = other.machine("leaf-x")
        assert other.get("nodes")["items"] == []
        assert machine.run(["ip", "-o", "-4", "addr", "show", "mgmt"]).stdout.count("10.77.0.101/24")
        other.kubectl("create", "configmap", "only-there")
        with pytest.raises(CommandError, match="NotFound"):
            lab.kubectl("get", "configmap", "only-there")
        keeper_pid = other.keeper_pid
    assert not began(keeper_pid)
    assert lab.ready()["node1"]
    with pytest.raises(LabError, match="no lab runs there"):
        Lab.attach(tmp_path / "other")
