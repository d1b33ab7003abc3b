"""Connects to a collector from outside of its cluster: `kubectl port-forward` to the leader's pod.

The Service may lead to a standby replica, which names an address that is reachable only in the cluster. So
the Lease names the pod (docs/command-line.md).
"""

import functools
import re
import select
import subprocess
import tempfile
import time
from base64 import b64decode
from contextlib import suppress
from pathlib import Path
from typing import IO

from hyperscout_runtime.connections import GRPC_PORT

from hyperscout_cli.shared.errors import CliError

NAME = "hyperscout-collector"  # of the chart's Service and Lease
_MAX_OUTPUT = 2000  # bytes of kubectl's output
_FORWARDING = re.compile(r"Forwarding from (127\.0\.0\.1:[0-9]+) -> ")
# kubectl outlives a parent that is killed. This shell ends it when this process closes its end of the pipe.
_UNTIL_WE_END = 'kubectl "$@" </dev/null & child=$!; exec >&- 2>&-; cat >/dev/null; kill "$child"'


@functools.cache
def forwarded(namespace: str, limit_s: float) -> str:
    """A local host:port that is forwarded to the collector until this process ends. Raises CliError."""
    until_s = time.monotonic() + limit_s
    target = _target(namespace, limit_s)
    arguments = ["-n", namespace, "port-forward", "--address", "127.0.0.1", target, f":{GRPC_PORT}"]
    process = subprocess.Popen(
        ["sh", "-c", _UNTIL_WE_END, "sh", *arguments],
        stdin=subprocess.PIPE,  # open until this process ends
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    _kept.append(process)
    said = _words_until(process, until_s)
    match = _FORWARDING.search(said)
    if match is None:
        why = said.strip().splitlines()[-1:] or [f"no connection within {limit_s:g} s (--timeout)"]
        what = f"kubectl port-forward to {target} in namespace {namespace}: {why[0]}"
        raise CliError(f"{what}: see `kubectl -n {namespace} get pods`, or give --collector")
    return match[1]


_kept: list["subprocess.Popen[bytes]"] = []  # keeps their pipes open


@functools.cache
def cluster_ca(namespace: str, limit_s: float) -> Path | None:
    """A file with the collector's CA certificates (PEM), which exists until this process ends.

    None: the ConfigMap and the Secret are not there, or the user may read neither. Raises CliError.
    """
    text = _field(namespace, "configmap", "hyperscout-ca", r".data.ca\.crt", limit_s).encode()
    if not text:
        with suppress(ValueError):
            text = b64decode(_field(namespace, "secret", "hyperscout-tls", r".data.ca\.crt", limit_s))
    if not text:
        return None
    file = tempfile.NamedTemporaryFile(prefix="hyperscout-ca-")  # noqa: SIM115 (it is closed at the end)
    file.write(text)
    file.flush()
    _files.append(file)
    return Path(file.name)


_files: list[IO[bytes]] = []  # deleted when they are closed


def _target(namespace: str, limit_s: float) -> str:
    """The leader's pod; the Service if the Lease names no pod."""
    pod = _field(namespace, "lease", NAME, ".spec.holderIdentity", limit_s).partition("_")[0]
    return f"pod/{pod}" if pod else f"service/{NAME}"


def _field(namespace: str, kind: str, name: str, path: str, limit_s: float) -> str:
    """A field of an object; "" = there is none, or the user may not read it. Raises CliError if kubectl
    cannot ask."""
    command = ["kubectl", "-n", namespace, "get", kind, name, "-o", f"jsonpath={{{path}}}"]
    try:
        ran = subprocess.run(command, capture_output=True, timeout=limit_s, check=False)
    except FileNotFoundError as error:
        raise CliError("kubectl is not in the PATH: install it, or give --collector") from error
    except subprocess.TimeoutExpired as error:
        raise CliError(f"kubectl did not answer within {limit_s:g} s (--timeout)") from error
    said = ran.stderr.decode("utf-8", "replace").strip()
    if ran.returncode and "(NotFound)" not in said and "(Forbidden)" not in said:
        why = (said.splitlines() or ["it failed"])[-1]
        raise CliError(f"kubectl get {kind} {name}: {why}: correct what kubectl needs, or give --collector")
    return ran.stdout.decode("utf-8", "replace").strip() if ran.returncode == 0 else ""


def _words_until(process: "subprocess.Popen[bytes]", until_s: float) -> str:
    """kubectl's output up to the line with the port, or its end."""
    assert process.stdout is not None  # noqa: S101 (stdout is a pipe)
    said = b""
    while len(said) < _MAX_OUTPUT and not _FORWARDING.search(said.decode("utf-8", "replace")):
        with suppress(InterruptedError):
            ready, _, _ = select.select([process.stdout], [], [], max(0.0, until_s - time.monotonic()))
            piece = process.stdout.read1(_MAX_OUTPUT) if ready else b""  # type: ignore[attr-defined]
            if not piece:
                break
            said += piece
    return said.decode("utf-8", "replace")
