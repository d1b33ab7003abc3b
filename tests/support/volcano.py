"""Volcano's own scheduler and controllers on a test's cluster: the reader that HyperNodes are published for.

They come as ready binaries (`VOLCANO_BIN`), since they are neither a Go module that could be pinned and built
like the rest of Kubernetes nor in a package registry. So a test without them skips, also where missing parts
are failures elsewhere. docs/volcano.md says how to build them.
"""

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
from kube.api import MERGE, ApiError, Object
from kube.processes import Program

from support.kubernetes import Cluster
from support.real import ROOT, require_real

BIN_VARIABLE: Final = "VOLCANO_BIN"
CRDS_VARIABLE: Final = "VOLCANO_CRDS"
GPU: Final = "nvidia.com/gpu"
_SCHEDULER, _CONTROLLERS = "vc-scheduler", "vc-controller-manager"
_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_JOBS = "/apis/batch.volcano.sh/v1alpha1/namespaces/default/jobs"
_PODGROUPS = "/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups"
_PODS = "/api/v1/namespaces/default/pods"

# The actions and plugins that gangs and topology need; the other plugins are Volcano's usual ones.
_CONFIGURATION = """\
actions: "enqueue, allocate, backfill"
tiers:
- plugins:
  - {name: priority}
  - {name: gang}
  - {name: conformance}
- plugins:
  - {name: overcommit}
  - {name: drf}
  - {name: predicates}
  - {name: proportion}
  - {name: nodeorder}
  - {name: binpack}
  - {name: network-topology-aware}
"""
# Those that a gang needs, and the one that writes HyperNodes too: it sets `status.nodeCount`.
_CONTROLLERS_USED = "job-controller,queue-controller,pg-controller,gc-controller,hyperNode-controller"


@dataclass(frozen=True, slots=True)
class _Kind:
    """A resource of Volcano's, as far as a schema that takes anything has to know it.

    `status`: it has a status subresource. PodGroups have none: with one, what the scheduler writes would be
    dropped without a word.
    """

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool = True
    status: bool = True

    @property
    def crd(self) -> Object:
        anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        names = {"kind": self.kind, "listKind": f"{self.kind}List", "plural": self.plural}
        version: Object = {
            "name": self.version,
            "served": True,
            "storage": True,
            "schema": {"openAPIV3Schema": anything},
        }
        if self.status:
            version["subresources"] = {"status": {}}
        return {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"{self.plural}.{self.group}"},
            "spec": {
                "group": self.group,
                "names": names | {"singular": self.kind.lower()},
                "scope": "Namespaced" if self.namespaced else "Cluster",
                "versions": [version],
            },
        }


_KINDS = (
    _Kind("batch.volcano.sh", "v1alpha1", "Job", "jobs"),
    _Kind("bus.volcano.sh", "v1alpha1", "Command", "commands", status=False),
    _Kind("scheduling.volcano.sh", "v1beta1", "PodGroup", "podgroups", status=False),
    _Kind("scheduling.volcano.sh", "v1beta1", "Queue", "queues", namespaced=False),
    _Kind("nodeinfo.volcano.sh", "v1alpha1", "Numatopology", "numatopologies", False, False),
)


def require_volcano() -> Path:
    """The folder with Volcano's binaries; without them the test (or the module) is skipped."""
    require_real("volcano")
    given = os.environ[BIN_VARIABLE]
    folder = Path(given) if Path(given).is_absolute() else ROOT / given
    missing = [name for name in (_SCHEDULER, _CONTROLLERS) if not (folder / name).is_file()]
    if missing:  # a folder that is named is meant to be used
        pytest.fail(f"{BIN_VARIABLE}={given}: no {' and no '.join(missing)} in it", pytrace=False)
    return folder


class Volcano:
    """Volcano at work on a cluster, as its administrator. It ends with the cluster."""

    def __init__(self, kube: Cluster, binaries: Path) -> None:
        self._kube = kube
        self._install_crds(os.environ.get(CRDS_VARIABLE, ""))
        folder = kube.plane.folder
        # A folder of its own: the scheduler reads its configuration anew whenever anything beside it changes,
        # says so, and would so never come to an end beside its own log.
        configuration = folder / "volcano" / "volcano.yaml"
        sockets = folder / "klog"  # else all share a folder in /tmp
        configuration.parent.mkdir()
        sockets.mkdir()
        configuration.write_text(_CONFIGURATION)
        environment = os.environ | {"DEBUG_SOCKET_DIR": str(sockets)}
        common = (f"--kubeconfig={kube.kubeconfig}", "--leader-elect=false", "-v=1")
        self.controllers = Program(
            [binaries / _CONTROLLERS, *common, f"--controllers={_CONTROLLERS_USED}"],
            folder / f"{_CONTROLLERS}.log",
            environment,
        )
        self.scheduler = Program(
            [
                *(binaries / _SCHEDULER, *common, f"--scheduler-conf={configuration}"),
                # Its usual second between two looks is long enough for bad states to come and go unseen.
                *("--cache-dumper=false", "--schedule-period=5ms"),
            ],
            folder / f"{_SCHEDULER}.log",
            environment,
        )
        kube.plane.programs += [self.controllers, self.scheduler]

    def _install_crds(self, folder: str) -> None:
        """Volcano's own where they are given, else schemas that take anything; HyperNodes are ours."""
        if folder:
            given = [p for p in sorted(Path(folder).glob("*.yaml")) if "hypernodes" not in p.name]
            assert given, f"{CRDS_VARIABLE}={folder}: no YAML in it"
            for path in given:
                self._kube.apply(path.read_text())
        else:
            for kind in _KINDS:
                self._kube.api.ask("POST", _CRDS, kind.crd)
        names = ",".join(f"crd/{kind.plural}.{kind.group}" for kind in _KINDS)
        for name in names.split(","):
            self._kube.kubectl("wait", "--for=condition=Established", name, "--timeout=120s")

    def check(self) -> None:
        """Raises AssertionError when one of the programs has ended, with its last words."""
        for program in (self.scheduler, self.controllers):
            assert program.alive, f"{program.name} has ended:\n{program.tail(60)}"

    def complaints(self) -> Mapping[str, int]:
        """Errors and warnings about HyperNodes in the scheduler's log, and how often."""
        lines = self.scheduler.log.read_text(errors="replace").splitlines()
        told = (line.partition("] ")[2] for line in lines if line[:1] in "EWF")
        return Counter(text for text in told if "hypernode" in text.lower())

    # --- jobs ---------------------------------------------------------------------------------------------

    def submit(self, name: str, workers: int, highest_tier_allowed: int, gpus: int) -> None:
        """Post a gang with a hard topology; each worker takes so many GPUs.

        What Volcano's webhook would fill in is written out, as there is none here.
        """
        container = {"name": "c", "image": "none.invalid/none", "resources": {"limits": {GPU: gpus}}}
        pod = {"schedulerName": "volcano", "restartPolicy": "Never", "containers": [container]}
        task = {"name": "worker", "replicas": workers, "template": {"spec": pod}}
        spec = {
            "schedulerName": "volcano",
            "queue": "default",
            "minAvailable": workers,
            "maxRetry": 3,
            "networkTopology": {"mode": "hard", "highestTierAllowed": highest_tier_allowed},
            "tasks": [task | {"minAvailable": workers, "maxRetry": 3}],
        }
        job = {
            "apiVersion": "batch.volcano.sh/v1alpha1",
            "kind": "Job",
            "metadata": {"name": name},
            "spec": spec,
        }
        self._kube.api.ask("POST", _JOBS, job)

    def finish(self, job: str) -> None:
        """Set the pods of a running job to Succeeded, which frees their nodes."""
        for pod in self._pods_of(job):
            path = f"{_PODS}/{pod['metadata']['name']}/status"
            self._kube.api.ask("PATCH", path, {"status": {"phase": "Succeeded"}}, content=MERGE)

    def nodes_of(self, job: str, workers: int) -> frozenset[str]:
        """The nodes of a gang once all its workers run, before that none."""
        pods = self._pods_of(job)
        running = [pod["spec"]["nodeName"] for pod in pods if pod.get("status", {}).get("podIP")]
        return frozenset(running) if len(running) == workers else frozenset()

    def waits(self, job: str, workers: int) -> bool:
        """Whether all workers of a gang are there and not one has a node."""
        pods = self._pods_of(job)
        return len(pods) == workers and not any(pod["spec"].get("nodeName") for pod in pods)

    def refusal(self, job: str) -> str:
        """Why the scheduler says that a gang does not fit; "" as long as it does not say so."""
        for condition in self._podgroup_of(job).get("status", {}).get("conditions", ()):
            if condition["type"] == "Unschedulable" and condition["status"] == "True":
                return str(condition.get("message") or condition.get("reason"))
        return ""

    def _pods_of(self, job: str) -> list[Object]:
        return self._kube.api.items(f"{_PODS}?labelSelector=volcano.sh/job-name%3D{job}")

    def _podgroup_of(self, job: str) -> Object:
        for group in self._kube.api.items(_PODGROUPS):
            if any(owner["name"] == job for owner in group["metadata"].get("ownerReferences", ())):
                return group
        return {}

    def queue_is_open(self) -> bool:
        """Whether the queue of all jobs takes some; that takes the controllers some seconds."""
        try:
            queue = self._kube.api.ask("GET", "/apis/scheduling.volcano.sh/v1beta1/queues/default")
        except ApiError:
            return False
        return bool(queue.get("status", {}).get("state") == "Open")


def domains_in(kube: Cluster) -> dict[int, set[frozenset[str]]]:
    """Tier -> the sets of nodes below its HyperNodes, followed from member to member as a scheduler does."""
    hypernodes = kube.hypernodes()

    def below(name: str) -> Iterator[str]:
        for member in hypernodes.get(name, {}).get("spec", {}).get("members", ()):
            value = member["selector"]["exactMatch"]["name"]
            if member["type"] == "Node":
                yield value
            else:
                yield from below(value)

    found: dict[int, set[frozenset[str]]] = {}
    for name, hypernode in hypernodes.items():
        found.setdefault(hypernode["spec"]["tier"], set()).add(frozenset(below(name)))
    return found
