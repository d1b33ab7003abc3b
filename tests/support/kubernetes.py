"""A real API server for tests: one for all tests of a worker, cleaned after each, or one of a test's own.

kube        -> the shared one: API server and etcd alone, the HyperNode CRD installed
own_kube    -> own_kube(Options(...)) starts another, whose parts the test may kill
HyperNodes, nodes, roles, namespaces: whatever a test leaves in the shared one is gone before the next.
"""

import asyncio
import contextlib
import itertools
import json
import os
import subprocess
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hyperscout_kubernetes.client import Kube, connect
from hyperscout_kubernetes.nodes import Nodes
from kube.api import MERGE, Api, ApiError, Object, all_at_once
from kube.assets import find
from kube.cleaning import clean, snapshot
from kube.control_plane import ControlPlane, Options

from support.dra import GATE, RUNTIME_CONFIG
from support.real import require_real
from support.waiting import TIMEOUT_S

_NODES = "/api/v1/nodes"
_SHARED = Options(gates=(GATE,), runtime_config=(RUNTIME_CONFIG,))
_RBAC = "/apis/rbac.authorization.k8s.io/v1"


@dataclass(frozen=True, slots=True)
class Ran:
    """How a program ended."""

    code: int
    out: str
    err: str

    def checked(self, what: str) -> str:
        if self.code:
            raise RuntimeError(f"{what} ended with {self.code}: {self.err.strip()}")
        return self.out


class Cluster:
    """What a test does with a control plane. Methods block, except those that end in `_async`.

    `kubeconfig` and `api` are the administrator's. `plane` is the control plane:
    `plane.kill_apiserver()` and so on.
    """

    def __init__(self, plane: ControlPlane) -> None:
        self.plane = plane
        self.kubeconfig: Path = plane.kubeconfig
        self.api: Api = plane.api
        self.url = plane.url
        self.ca = plane.ca
        self._numbers = itertools.count(1)

    # --- the real kubectl ---------------------------------------------------------------------------------

    def command(self, program: str, *words: str | Path, kubeconfig: Path | None = None) -> list[str]:
        """`kubectl` or `helm` as the administrator, or as the user of the kubeconfig."""
        return [str(find(program)), f"--kubeconfig={kubeconfig or self.kubeconfig}", *map(str, words)]

    def run(self, program: str, *words: str | Path, stdin: str = "", kubeconfig: Path | None = None) -> Ran:
        """Run kubectl or helm to its end, whatever that is."""
        done = subprocess.run(
            self.command(program, *words, kubeconfig=kubeconfig),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            env=self._environment(),
            check=False,
        )
        return Ran(done.returncode, done.stdout, done.stderr)

    def kubectl(self, *words: str | Path, stdin: str = "", kubeconfig: Path | None = None) -> str:
        """What kubectl printed. Raises RuntimeError with what it complained about."""
        return self.run("kubectl", *words, stdin=stdin, kubeconfig=kubeconfig).checked(f"kubectl {words}")

    def helm(self, *words: str | Path, stdin: str = "", kubeconfig: Path | None = None) -> str:
        """What helm printed. Raises RuntimeError with what it complained about."""
        return self.run("helm", *words, stdin=stdin, kubeconfig=kubeconfig).checked(f"helm {words}")

    async def kubectl_async(self, *words: str | Path, stdin: str = "", kubeconfig: Path | None = None) -> str:
        """The same beside other work."""
        return await asyncio.to_thread(lambda: self.kubectl(*words, stdin=stdin, kubeconfig=kubeconfig))

    @asynccontextmanager
    async def watching(self, *words: str) -> AsyncIterator[asyncio.StreamReader]:
        """The lines of a kubectl that runs on, such as `get hn -w -o json`."""
        process = await asyncio.create_subprocess_exec(
            *self.command("kubectl", *words),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env=self._environment(),
            limit=16 << 20,
        )
        assert process.stdout is not None
        try:
            yield process.stdout
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.stdout.read()
            await process.wait()

    def apply(self, text: str | Object) -> str:
        """`kubectl apply --server-side` of YAML, or of one object."""
        text = text if isinstance(text, str) else json.dumps(text)
        return self.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=text)

    def get(self, *words: str) -> Any:
        """`kubectl get ... -o json`, decoded; the items of a list."""
        answer = json.loads(self.kubectl("get", *words, "-o", "json"))
        return answer.get("items", answer)

    def _environment(self) -> dict[str, str]:
        # Caches of the discovery API and of helm must not outlive the cluster that they are of.
        home = str(self.plane.folder / "home")
        return os.environ | {"HOME": home, "KUBECONFIG": str(self.kubeconfig), "NO_PROXY": "127.0.0.1"}

    # --- identities -----------------------------------------------------------------------------------------

    def service_account(self, name: str, namespace: str = "default") -> None:
        """Make it if it is not there, its namespace too."""
        for path, made in (
            ("/api/v1/namespaces", namespace),
            (f"/api/v1/namespaces/{namespace}/serviceaccounts", name),
        ):
            self._make(path, {"metadata": {"name": made}})

    def token(
        self,
        service_account: str,
        namespace: str = "default",
        audience: str = "",
        *,
        pod: str = "",
        ttl_s: int = 3600,
    ) -> str:
        """A token of a service account (TokenRequest): for an audience instead of the API server, and bound
        to a pod (and so to its node) where one is named."""
        self.service_account(service_account, namespace)
        spec: Object = {"audiences": [audience] if audience else [], "expirationSeconds": ttl_s}
        if pod:
            spec["boundObjectRef"] = {"kind": "Pod", "apiVersion": "v1", "name": pod}
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{service_account}/token"
        return str(self.api.ask("POST", path, {"spec": spec})["status"]["token"])

    def pod_on(self, node: str, service_account: str, namespace: str = "default", name: str = "") -> str:
        """Post a pod that is bound to a node, for tokens that say so; returns its name."""
        self.service_account(service_account, namespace)
        name = name or f"pod-on-{next(self._numbers)}"
        container = {"name": "c", "image": "none.invalid/none"}
        spec = {"nodeName": node, "serviceAccountName": service_account, "containers": [container]}
        pod = {"metadata": {"name": name}, "spec": spec | {"automountServiceAccountToken": False}}
        self.api.ask("POST", f"/api/v1/namespaces/{namespace}/pods", pod)
        return name

    def kubeconfig_of(self, service_account: str, namespace: str = "default") -> Path:
        """A kubeconfig that acts as a service account."""
        token = self.token(service_account, namespace)
        return self.plane.kubeconfig_with(f"{namespace}-{service_account}-{next(self._numbers)}", token)

    def grant(
        self, service_account: str, rules: Iterable[Object], namespace: str = "default", *, name: str = ""
    ) -> None:
        """Give a service account a ClusterRole with these rules."""
        self.service_account(service_account, namespace)
        name = name or f"test-{namespace}-{service_account}-{next(self._numbers)}"
        self._make(f"{_RBAC}/clusterroles", {"metadata": {"name": name}, "rules": list(rules)})
        subject = {"kind": "ServiceAccount", "name": service_account, "namespace": namespace}
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
        self._make(
            f"{_RBAC}/clusterrolebindings",
            {"metadata": {"name": name}, "subjects": [subject], "roleRef": role},
        )

    def _make(self, path: str, what: Object) -> None:
        try:
            self.api.ask("POST", path, what)
        except ApiError as error:
            if error.code != 409:
                raise

    # --- nodes --------------------------------------------------------------------------------------------

    def nodes(
        self,
        names: Iterable[str],
        labels: Mapping[str, str] | None = None,
        *,
        gpus: int = 8,
    ) -> None:
        """Post nodes that are Ready; a thousand take about a second."""
        all_at_once(
            [lambda n=name: self.api.ask("POST", _NODES, _node(n, labels or {}, gpus)) for name in names]
        )

    def delete_node(self, name: str) -> None:
        self.api.ask("DELETE", f"{_NODES}/{name}")

    def set_ready(self, name: str, ready: bool) -> None:
        """Say what its kubelet would."""
        conditions = [{"type": "Ready", "status": "True" if ready else "False", "reason": "Test"}]
        body = {"status": {"conditions": conditions}}
        self.api.ask("PATCH", f"{_NODES}/{name}/status", body, content=MERGE)

    def cordon(self, name: str, unschedulable: bool = True) -> None:
        body = {"spec": {"unschedulable": unschedulable or None}}
        self.api.ask("PATCH", f"{_NODES}/{name}", body, content=MERGE)

    def label(self, name: str, **labels: str | None) -> None:
        """Set labels of a node; None takes one away."""
        self.api.ask("PATCH", f"{_NODES}/{name}", {"metadata": {"labels": labels}}, content=MERGE)

    # --- what is there ------------------------------------------------------------------------------------

    def hypernodes(self) -> dict[str, Object]:
        """All HyperNodes by name."""
        path = "/apis/topology.volcano.sh/v1alpha1/hypernodes"
        return {item["metadata"]["name"]: item for item in self.api.items(path)}

    def writes(self, resource: str) -> int:
        """How many writing requests for a kind ("hypernodes") this API server has answered since it started,
        also those that changed nothing."""
        count = 0
        for line in self.api.text("GET", "/metrics").splitlines():
            if line.startswith("apiserver_request_total{") and f'resource="{resource}"' in line:
                verb = line.partition('verb="')[2].partition('"')[0]
                if verb in {"APPLY", "PATCH", "POST", "PUT", "DELETE", "DELETECOLLECTION"}:
                    count += int(float(line.rpartition(" ")[2]))
        return count


def _node(name: str, labels: Mapping[str, str], gpus: int) -> Object:
    room = {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": str(gpus)}
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name[:63], **labels}},
        "status": {
            "capacity": room,
            "allocatable": room,
            "conditions": [{"type": "Ready", "status": "True", "reason": "Test"}],
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        },
    }


@pytest.fixture(scope="session")
def shared_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """The control plane that all tests of a worker share; ask for `kube` instead."""
    require_real("kubernetes")
    with ControlPlane(tmp_path_factory.mktemp("kube"), _SHARED) as plane:
        yield plane


@pytest.fixture(scope="session")
def untouched(shared_plane: ControlPlane) -> Any:
    return snapshot(shared_plane.api)


@pytest.fixture
def kube(shared_plane: ControlPlane, untouched: Any) -> Iterator[Cluster]:
    """The shared cluster, without a trace of the test before."""
    yield Cluster(shared_plane)
    clean(shared_plane.api, untouched)


@pytest.fixture
def own_kube(tmp_path: Path) -> Iterator[Callable[..., Cluster]]:
    """`own_kube(Options(...))` starts a cluster of the test's own; all are gone in the end."""
    require_real("kubernetes")
    with contextlib.ExitStack() as stack:
        numbers = itertools.count(1)

        def start(options: Options | None = None) -> Cluster:
            plane = ControlPlane(tmp_path / f"kube-{next(numbers)}", options)
            return Cluster(stack.enter_context(plane))

        yield start


@asynccontextmanager
async def following(kubeconfig: Path) -> AsyncIterator[tuple[Kube, Nodes]]:
    """A client, and the nodes as its watch shows them."""
    async with await connect(kubeconfig) as client:
        nodes = Nodes(client, "", rng=Random(0))
        task = asyncio.create_task(nodes.reflector.run())
        try:
            yield client, nodes
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
