"""The control plane of a lab: its keys, and the programs that run in the sandbox.

As in a real cluster the API server judges kubelets as nodes, and a controller manager runs all controllers.
Times are short, so that a test learns in a minute that a node is gone. They are not shorter, since kubelets
of a loaded machine report late.
"""

import fcntl
import json
import time
from collections.abc import Sequence
from pathlib import Path

from kube import kubeconfig
from kube.pki import Authority, signing_key

from lab.inside import LabError, Place, Program
from lab.machines import API_SERVICE, GATEWAY, PODS, SERVICES

SERVER = f"https://{GATEWAY}:443"
DOMAIN = "cluster.local"
_ETCD = "http://127.0.0.1:2379"
_PEER = "http://127.0.0.1:2380"
# Of DRA, off by default in 1.36; the API is off by default, too.
_GATES = "--feature-gates=DRADeviceTaintRules=true"
_READY_S = 240.0
_LOOK_EVERY_S = 0.1


class Keys:
    """The keys of a cluster in a folder; made anew by the first process, found by one that attaches to it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._authority = Authority(folder, "lab-ca", reuse=True)
        self.ca = self._authority.cert
        self.tokens = folder / "tokens.key"
        self.admin = folder / "admin.kubeconfig"

    def make(self) -> None:
        """What a control plane needs."""
        names = "DNS:kubernetes.default.svc,DNS:kubernetes.default,DNS:localhost"
        self._authority.issue(
            "apiserver", "/CN=kube-apiserver", san=f"IP:{GATEWAY},IP:{API_SERVICE},IP:127.0.0.1,{names}"
        )
        self._authority.issue("kubelet-client", "/O=system:masters/CN=kube-apiserver-kubelet-client")
        signing_key(self.tokens)
        self.kubeconfig("admin", "/O=system:masters/CN=admin")
        for name in ("kube-controller-manager", "kube-scheduler", "kube-proxy"):
            self.kubeconfig(name, f"/CN=system:{name}")

    def kubeconfig(self, name: str, subject: str) -> Path:
        """A kubeconfig for the user that the subject names; use it inside the lab."""
        with (self.folder / "lock").open("w") as lock:  # openssl counts its certificates in a file
            fcntl.flock(lock, fcntl.LOCK_EX)
            user = self._authority.issue(name, subject)
        return kubeconfig.write(self.folder / f"{name}.kubeconfig", SERVER, self.ca, user)

    def node(self, name: str) -> Path:
        """A kubelet's."""
        path = self.folder / f"{name}.kubeconfig"
        return path if path.exists() else self.kubeconfig(name, f"/O=system:nodes/CN=system:node:{name}")


def proxy_settings(machine: str, keys: Keys) -> str:
    """kube-proxy's: Services by nftables. Connection tracking's limits are all machines': it leaves them."""
    settings = {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "hostnameOverride": machine,
        "clusterCIDR": f"{PODS}.0.0/16",
        "clientConnection": {"kubeconfig": str(keys.folder / "kube-proxy.kubeconfig")},
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
    }
    return json.dumps(settings, indent=1)


class Control:
    """The programs of a control plane, in the sandbox."""

    def __init__(self, folder: Path, place: Place, keys: Keys) -> None:
        self._folder, self._place, self._keys = folder, place, keys
        self.programs: list[Program] = []
        self._apiserver: Program | None = None

    def start(self) -> None:
        """Start it all; back when the API server is ready."""
        self._start_store()
        self.start_apiserver()
        self._start_controllers()
        self._start_names()

    def kill_apiserver(self) -> None:
        """At once, as by a crash. `start_apiserver` starts it again."""
        assert self._apiserver is not None, "not started"
        self.programs.remove(self._apiserver)
        self._apiserver.kill()

    def _start_store(self) -> None:
        self._run(
            "etcd",
            *(f"--data-dir={self._folder / 'etcd'}", "--unsafe-no-fsync", "--log-level=warn"),
            *(f"--listen-client-urls={_ETCD}", f"--advertise-client-urls={_ETCD}"),
            *(f"--listen-peer-urls={_PEER}", f"--initial-advertise-peer-urls={_PEER}"),
            *(f"--initial-cluster=default={_PEER}", "--heartbeat-interval=500", "--election-timeout=5000"),
        )

    def start_apiserver(self) -> None:
        """Back when it is ready."""
        keys, issuer = self._keys.folder, f"https://kubernetes.default.svc.{DOMAIN}"
        self._apiserver = self._run(
            "kube-apiserver",
            *(f"--etcd-servers={_ETCD}", "--bind-address=0.0.0.0", "--secure-port=443"),
            *(f"--advertise-address={GATEWAY}", f"--client-ca-file={self._keys.ca}"),
            *(
                f"--tls-cert-file={keys / 'apiserver.crt'}",
                f"--tls-private-key-file={keys / 'apiserver.key'}",
            ),
            f"--kubelet-client-certificate={keys / 'kubelet-client.crt'}",
            f"--kubelet-client-key={keys / 'kubelet-client.key'}",
            "--kubelet-preferred-address-types=InternalIP",
            *(f"--service-account-issuer={issuer}", f"--service-account-key-file={self._keys.tokens}"),
            f"--service-account-signing-key-file={self._keys.tokens}",
            *("--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction"),
            *(
                f"--service-cluster-ip-range={SERVICES}",
                _GATES,
                "--runtime-config=resource.k8s.io/v1beta2=true",
            ),
        )
        self._await_ready()

    def _start_controllers(self) -> None:
        keys = self._keys.folder
        self._run(
            "kube-controller-manager",
            *(
                f"--kubeconfig={keys / 'kube-controller-manager.kubeconfig'}",
                f"--root-ca-file={self._keys.ca}",
            ),
            f"--service-account-private-key-file={self._keys.tokens}",
            *("--use-service-account-credentials", "--leader-elect=false", "--bind-address=127.0.0.1"),
            *(
                "--node-monitor-period=1s",
                "--node-monitor-grace-period=60s",
                "--node-startup-grace-period=60s",
            ),
            # By default it makes a folder in /usr.
            *(f"--flex-volume-plugin-dir={self._folder / 'run' / 'flex'}", _GATES),
        )
        self._run(
            "kube-scheduler",
            f"--kubeconfig={keys / 'kube-scheduler.kubeconfig'}",
            *("--leader-elect=false", "--bind-address=127.0.0.1", _GATES),
        )

    def _start_names(self) -> None:
        corefile = self._folder / "run" / "Corefile"
        corefile.write_text(
            f".:53 {{\n  bind {GATEWAY}\n  errors\n  kubernetes {DOMAIN} in-addr.arpa {{\n"
            f"    kubeconfig {self._keys.admin}\n    ttl 1\n  }}\n}}\n"
        )
        self._run("coredns", "-conf", str(corefile))
        # Services here too: for commands in the sandbox, and for switches, whose every way leads through it.
        proxy = self._folder / "run" / "kube-proxy.json"
        proxy.write_text(proxy_settings("lab-cp", self._keys))
        self._run("kube-proxy", "--config", str(proxy), "--v=0")

    def _run(self, name: str, *flags: str) -> Program:
        program = self._place.popen([name, *flags], self._folder / "log" / name)
        self.programs.append(program)
        return program

    def _await_ready(self) -> None:
        give_up_s = time.monotonic() + _READY_S
        ask: Sequence[str] = ["kubectl", "get", "--raw", "/readyz"]
        while True:
            done = self._place.run(ask, timeout_s=20, check=False)
            if done.returncode == 0:
                return
            for program in self.programs:
                if not program.alive:
                    raise LabError(f"{program.name} has ended; the end of {program.log}:\n{program.tail()}")
            if time.monotonic() > give_up_s:
                raise LabError(f"no API server within {_READY_S:g} s: {done.stderr}")
            time.sleep(_LOOK_EVERY_S)
