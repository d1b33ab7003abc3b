"""`make demo KUBE=1`: the demo on a real API server, which it leaves as it found it."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from kube import assets
from support.kubernetes import Cluster
from support.real import ROOT, require_real

DEMO = [sys.executable, "-m", "hyperscout_cli.main", "demo"]
RUN = [sys.executable, str(ROOT / "tests" / "kube" / "run.py"), "--"]
TIMEOUT_S = 120.0


def demo(kube: Cluster, tmp_path: Path, *, with_kubectl: bool = True) -> subprocess.CompletedProcess[str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("HYPERSCOUT_", "DEMO_"))}
    kubectl = assets.find("kubectl")
    assert kubectl is not None
    path = str(kubectl.parent) if with_kubectl else str(tmp_path)
    return subprocess.run(
        [*DEMO, "--kubeconfig", str(kube.kubeconfig)],
        env=kept | {"PATH": path, "TMPDIR": str(tmp_path), "KUBECACHEDIR": str(kube.plane.folder)},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


@pytest.mark.parametrize("with_kubectl", [True, False])
def test_kubectl_shows_conditions_turn_and_all_is_gone_in_the_end(
    kube: Cluster, tmp_path: Path, with_kubectl: bool
) -> None:
    ran = demo(kube, tmp_path, with_kubectl=with_kubectl)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stderr == ""
    assert "made 64 nodes in the cluster" in ran.stdout
    steps = ran.stdout.split("kubectl get hypernodes" if with_kubectl else "HyperNodes in the API server")
    assert len(steps) == 6
    for step, reason in zip(
        steps[2:], ("LinksDown", "LinksHealthy", "SwitchMissing", "LinksHealthy"), strict=True
    ):
        assert reason in step
    assert ("LinksHealthy" in steps[1]) is True
    assert "all as expected" in ran.stdout
    assert not kube.hypernodes()
    assert not kube.api.names("/api/v1/nodes")
    assert list(tmp_path.iterdir()) == []


def test_a_cluster_with_nodes_is_left_alone(kube: Cluster, tmp_path: Path) -> None:
    kube.nodes(["real-1"])
    ran = demo(kube, tmp_path)
    assert ran.returncode == 1
    assert "has nodes" in ran.stderr
    assert [meta["name"] for meta in kube.api.names("/api/v1/nodes")] == ["real-1"]


def test_a_cluster_with_hypernodes_is_left_alone(kube: Cluster, tmp_path: Path) -> None:
    members = [{"type": "Node", "selector": {"exactMatch": {"name": "x-1"}}}]
    kind = {"apiVersion": "topology.volcano.sh/v1alpha1", "kind": "HyperNode", "metadata": {"name": "mine"}}
    kube.apply(kind | {"spec": {"tier": 1, "members": members}})
    ran = demo(kube, tmp_path)
    assert ran.returncode == 1
    assert "has HyperNodes" in ran.stderr
    assert set(kube.hypernodes()) == {"mine"}


def test_without_the_crd_it_says_what_to_do(kube: Cluster, tmp_path: Path) -> None:
    kube.kubectl("delete", "crd", "hypernodes.topology.volcano.sh")
    ran = demo(kube, tmp_path)
    assert ran.returncode == 1
    assert "hyperscout crd show | kubectl apply" in ran.stderr


def test_a_command_is_run_with_a_cluster_of_its_own(tmp_path: Path) -> None:
    require_real("kubernetes")
    ran = subprocess.run(
        [*RUN, "sh", "-c", "kubectl get hypernodes 2>&1; kubectl auth whoami; exit 7"],
        env=os.environ | {"TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert ran.returncode == 7, ran.stderr
    assert "No resources found" in ran.stdout
    assert "admin" in ran.stdout
    assert list(tmp_path.iterdir()) == []
    assert subprocess.run(RUN[:2], capture_output=True, check=False, timeout=TIMEOUT_S).returncode == 2


def test_it_ends_with_its_command_when_told_to(tmp_path: Path) -> None:
    require_real("kubernetes")
    with subprocess.Popen(
        [*RUN, "sh", "-c", "echo here; exec sleep 600"],
        env=os.environ | {"TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "here\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) in {-signal.SIGTERM, 128 + signal.SIGTERM, 256 - signal.SIGTERM}
    assert list(tmp_path.iterdir()) == []
