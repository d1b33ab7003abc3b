"""A real Kubernetes control plane on free loopback ports: etcd, API server and, when asked for, the rest.

    with ControlPlane(folder) as kube:
        ...                       # KUBECONFIG=kube.kubeconfig, kube.api, kube.etcd

TLS everywhere but to etcd, RBAC on, tokens for service accounts. All programs end with this process, whatever
ends it; the API server can be killed, stopped and started again on the same port and data. Start things on
the main thread (see `processes`).
"""

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kube import kubeconfig
from kube.api import APPLY, Api, ApiError
from kube.assets import find
from kube.pki import LOOPBACK, Authority, Pair, signing_key
from kube.processes import Program, free_port

REPOSITORY = Path(__file__).resolve().parents[2]
CRD = REPOSITORY / "deploy" / "crd" / "hypernodes.yaml"
CRD_NAME = "hypernodes.topology.volcano.sh"
_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_HYPERNODES = "/apis/topology.volcano.sh/v1alpha1/hypernodes"
_READY_S = 240.0
_LOOK_EVERY_S = 0.02

# What kwok is to play: pods that are bound run at once, and stay until they are deleted. It looks at no pods
# unless there is a stage for nodes; the one here fits none, since tests say themselves how a node fares.
_STAGES = """\
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: node-as-it-is}
spec:
  resourceRef: {apiGroup: v1, kind: Node}
  selector: {matchLabels: {hyperscout.test/never: ""}}
  next: {}
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: pod-runs}
spec:
  resourceRef: {apiGroup: v1, kind: Pod}
  selector:
    matchExpressions:
    - {key: .metadata.deletionTimestamp, operator: DoesNotExist}
    - {key: .status.podIP, operator: DoesNotExist}
  next:
    statusTemplate: |
      {{ $now := Now }}
      phase: Running
      startTime: {{ $now }}
      hostIP: 127.0.0.1
      podIP: 127.0.0.1
      conditions:
      {{ range (list "Initialized" "Ready" "ContainersReady") }}
      - {type: {{ . }}, status: "True", lastTransitionTime: {{ $now }}}
      {{ end }}
      containerStatuses:
      {{ range .spec.containers }}
      - name: {{ .name }}
        image: {{ .image }}
        imageID: ""
        ready: true
        restartCount: 0
        state: {running: {startedAt: {{ $now }}}}
      {{ end }}
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: pod-goes}
spec:
  resourceRef: {apiGroup: v1, kind: Pod}
  selector:
    matchExpressions:
    - {key: .metadata.deletionTimestamp, operator: Exists}
  next: {delete: true, finalizers: {empty: true}}
"""


@dataclass(frozen=True, slots=True)
class Options:
    """What a control plane is made of.

    `gates` are feature gates of all parts. `scheduler` is a KubeSchedulerConfiguration in YAML, whose
    clientConnection is filled in; "" is the usual one, None runs no scheduler.
    """

    gates: Sequence[str] = ()
    runtime_config: Sequence[str] = ()
    controller_manager: bool = False
    scheduler: str | None = None
    kwok: bool = False
    crd: Path | None = CRD
    api_flags: Sequence[str] = ()


class ControlPlane:
    """See above. `kubeconfig` and `api` are the administrator's; `etcd` is where etcd answers."""

    def __init__(self, folder: Path, options: Options | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.options = options or Options()
        self._tls = Authority(folder / "tls")
        self._serving = self._tls.issue(
            "apiserver", "/CN=kube-apiserver", san=f"{LOOPBACK},DNS:kubernetes.default.svc"
        )
        self._tokens = signing_key(folder / "tls" / "tokens.key")
        self._port, self._etcd_port = free_port(), free_port()
        self._peer_port = free_port()
        self.programs: list[Program] = []
        self._apiserver: Program | None = None
        self._has_crd = False
        self.url = f"https://127.0.0.1:{self._port}"
        self.etcd = f"http://127.0.0.1:{self._etcd_port}"
        self.ca = self._tls.cert
        admin = self.user("admin", "/O=system:masters/CN=admin")
        self.kubeconfig = self._kubeconfig("admin", admin)
        self.api = Api(self._port, self.ca, admin)

    def user(self, name: str, subject: str) -> Pair:
        """A client certificate: "/O=group/CN=user"."""
        return self._tls.issue(name, subject)

    def _kubeconfig(self, name: str, user: Pair | str) -> Path:
        return kubeconfig.write(self.folder / f"{name}.kubeconfig", self.url, self.ca, user)

    def kubeconfig_with(self, name: str, token: str) -> Path:
        """A kubeconfig for a bearer token."""
        return self._kubeconfig(name, token)

    def __enter__(self) -> "ControlPlane":
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start it all and wait until it is ready."""
        self._run(
            "etcd",
            *("--data-dir", str(self.folder / "etcd"), "--unsafe-no-fsync", "--log-level=warn"),
            *("--listen-client-urls", self.etcd, "--advertise-client-urls", self.etcd),
            *("--listen-peer-urls", f"http://127.0.0.1:{self._peer_port}"),
            # It should have no other members, and say so on no other port.
            *("--initial-advertise-peer-urls", f"http://127.0.0.1:{self._peer_port}"),
            *("--initial-cluster", f"default=http://127.0.0.1:{self._peer_port}"),
            *("--heartbeat-interval=50", "--election-timeout=250"),
        )
        self.start_apiserver()
        self.await_ready()
        if self.options.crd is not None:
            self.install_crd(self.options.crd)
        if self.options.controller_manager:
            self._start_controller_manager()
        if self.options.scheduler is not None:
            self._start_scheduler(self.options.scheduler)
        if self.options.kwok:
            self._start_kwok()

    def stop(self) -> None:
        """Kill it all: nothing in it is worth a goodbye."""
        self.api.close()
        for program in reversed(self.programs):
            program.kill()
        self.programs.clear()

    # --- the API server -----------------------------------------------------------------------------------

    def start_apiserver(self) -> None:
        """Start it, on the port and data that it had before. `await_ready` waits for it."""
        options = self.options
        flags = [
            *(f"--etcd-servers={self.etcd}", "--bind-address=127.0.0.1", f"--secure-port={self._port}"),
            *("--advertise-address=127.0.0.1", "--endpoint-reconciler-type=none"),
            *(f"--tls-cert-file={self._serving.cert}", f"--tls-private-key-file={self._serving.key}"),
            *(f"--client-ca-file={self.ca}", "--authorization-mode=Node,RBAC"),
            "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
            "--api-audiences=https://kubernetes.default.svc.cluster.local",
            *(
                f"--service-account-signing-key-file={self._tokens}",
                f"--service-account-key-file={self._tokens}",
            ),
            *("--service-cluster-ip-range=10.96.0.0/16", "--enable-admission-plugins=NodeRestriction"),
            # A recorder reads each revision, also those from before a restart.
            "--etcd-compaction-interval=0",
            *options.api_flags,
        ]
        # No controller takes a new node's taint away; default service accounts need a controller manager.
        off = "TaintNodesByCondition" + ("" if options.controller_manager else ",ServiceAccount")
        flags.append(f"--disable-admission-plugins={off}")
        if options.gates:
            flags.append(f"--feature-gates={','.join(options.gates)}")
        if options.runtime_config:
            flags.append(f"--runtime-config={','.join(options.runtime_config)}")
        if self._apiserver is not None:
            self.programs.remove(self._apiserver)
        self._apiserver = self._run("kube-apiserver", *flags)

    def kill_apiserver(self) -> None:
        """kill -9."""
        self.apiserver.kill()

    def pause_apiserver(self) -> None:
        """SIGSTOP: connections stay open and nothing answers."""
        self.apiserver.pause()

    def resume_apiserver(self) -> None:
        self.apiserver.resume()

    @property
    def apiserver(self) -> Program:
        assert self._apiserver is not None, "not started"
        return self._apiserver

    @property
    def ready(self) -> bool:
        """Whether the API server says that it is. Raises RuntimeError when a program has ended."""
        for program in self.programs:
            if not program.alive:
                raise RuntimeError(f"{program.name} has ended; the end of {program.log}:\n{program.tail()}")
        try:
            self.api.text("GET", "/readyz", timeout_s=2.0)
            # After a restart the cache of our kind is filled some time after the server says it is ready;
            # until then it refuses a plain list (and no limited one).
            if self._has_crd:
                self.api.text("GET", _HYPERNODES, timeout_s=2.0)
        except ApiError:
            return False
        return True

    def await_ready(self, timeout_s: float = _READY_S) -> None:
        give_up_s = time.monotonic() + timeout_s
        while not self.ready:
            if time.monotonic() > give_up_s:
                raise RuntimeError(f"no API server within {timeout_s:g} s:\n{self.apiserver.tail()}")
            time.sleep(_LOOK_EVERY_S)

    # --- what runs on it ----------------------------------------------------------------------------------

    def install_crd(self, path: Path) -> None:
        """Apply the HyperNode CRD and wait until it is served."""
        self.api.text(
            "PATCH", f"{_CRDS}/{CRD_NAME}?fieldManager=test&force=true", path.read_text(), content=APPLY
        )
        self._has_crd = True
        self.await_ready()

    def _start_controller_manager(self) -> None:
        self._run(
            "kube-controller-manager",
            *("--kubeconfig", str(self._component("kube-controller-manager"))),
            *(f"--root-ca-file={self.ca}", f"--service-account-private-key-file={self._tokens}"),
            *("--use-service-account-credentials", "--leader-elect=false", "--bind-address=127.0.0.1"),
            *("--secure-port=0", "--allocate-node-cidrs=false", *self._gates()),
            # kwok's and our own nodes have no kubelet that says that it lives.
            *(
                "--controllers=*,-nodelifecycle,-node-ipam-controller",
                f"--flex-volume-plugin-dir={self.folder / 'flex'}",
            ),
        )
        give_up_s = time.monotonic() + _READY_S
        while True:
            with contextlib.suppress(ApiError):
                self.api.ask("GET", "/api/v1/namespaces/default/serviceaccounts/default")
                return
            if time.monotonic() > give_up_s or not self.programs[-1].alive:
                raise RuntimeError(f"the controller manager does nothing:\n{self.programs[-1].tail()}")
            time.sleep(_LOOK_EVERY_S)

    def _start_scheduler(self, config: str) -> None:
        where = self._component("kube-scheduler")
        config = config or "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        if "kubeconfig:" not in config:
            config += f"\nclientConnection: {{kubeconfig: {where}, qps: 5000, burst: 10000}}\n"
        if "leaderElection:" not in config:
            config += "leaderElection: {leaderElect: false}\n"
        path = self.folder / "scheduler.yaml"
        path.write_text(config)
        self._run(
            "kube-scheduler",
            f"--config={path}",
            "--bind-address=127.0.0.1",
            "--secure-port=0",
            *self._gates(),
        )

    def _start_kwok(self) -> None:
        stages = self.folder / "kwok.yaml"
        stages.write_text(_STAGES)
        self._run(
            "kwok",
            *(f"--kubeconfig={self.kubeconfig}", f"--config={stages}", "--manage-all-nodes=true"),
            *("--node-lease-duration-seconds=0", "--server-address="),
        )

    def _component(self, name: str) -> Path:
        return self._kubeconfig(name, self.user(name, f"/CN=system:{name}"))

    def _gates(self) -> list[str]:
        return [f"--feature-gates={','.join(self.options.gates)}"] if self.options.gates else []

    def _run(self, name: str, *flags: str) -> Program:
        binary = find(name)
        if binary is None:
            raise RuntimeError(f"{name} not found: run `make kube-assets`")
        program = Program([binary, *flags], self.folder / f"{name}.log")
        self.programs.append(program)
        return program
