"""Run a command with a Kubernetes of its own: an API server with the HyperNode CRD, gone with it.

    python tests/kube/run.py -- COMMAND [ARGUMENT...]

The command finds it by KUBECONFIG, and kubectl on its PATH. What is missing of Kubernetes is built first.
"""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from kube import assets
from kube.control_plane import ControlPlane
from kube.processes import dying_with_us


def main(arguments: Sequence[str]) -> int:
    """Returns the command's exit status."""
    if not arguments or arguments[0] != "--" or len(arguments) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    if any(assets.find(name) is None for name in ("etcd", "kube-apiserver", "kubectl")) and assets.build():
        return 1
    print("starting an API server ...", file=sys.stderr, flush=True)
    # A plain end, also before the command is there, takes the control plane and its folder away.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    prefix = "hyperscout-kube-"
    with tempfile.TemporaryDirectory(prefix=prefix) as folder, ControlPlane(Path(folder)) as plane:
        return _run(arguments[1:], plane)


def _run(command: Sequence[str], plane: ControlPlane) -> int:
    kubectl = assets.find("kubectl")
    assert kubectl is not None
    path = f"{os.environ.get('PATH', os.defpath)}:{kubectl.parent}"
    environment = os.environ | {
        "KUBECONFIG": str(plane.kubeconfig),
        "PATH": path,
        "KUBECACHEDIR": str(plane.folder),
    }
    # Ctrl-C reaches the command too, and it is the command that decides what becomes of it.
    signal.signal(signal.SIGINT, lambda *_: None)
    with subprocess.Popen(dying_with_us(command, signal.SIGTERM), env=environment) as process:
        signal.signal(signal.SIGTERM, lambda *_: process.terminate())
        return process.wait()


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
