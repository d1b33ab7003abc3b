"""The way from outside of a cluster: a stand-in for kubectl that says what the real one says."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest
from hyperscout_cli.remote import port_forward
from support.command_line import CommandLine
from support.topology_service import FakeTopologyService

# What the real one answers, as of kubectl 1.32. PORT is where the collector really is.
_KUBECTL = """#!/bin/sh
printf '%s\\n' "$*" >>"{calls}"
case "$*" in
  *"get lease"*)
    {lease} ;;
  *"get configmap"*)
    {configmap} ;;
  *"get secret"*)
    {secret} ;;
  *port-forward*)
    echo $$ >"{calls}.pid"
    {forward} ;;
esac
"""
LEADER = "printf hyperscout-collector-6d4f-x2x_5e0c"
FORWARDS = 'echo "Forwarding from {address} -> 50051"; exec sleep 600'
NOT_FOUND = "echo 'Error from server (NotFound): there is none' >&2; exit 1"
FORBIDDEN = "echo 'Error from server (Forbidden): you may not' >&2; exit 1"
Make = Callable[..., None]


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    port_forward.forwarded.cache_clear()
    port_forward.cluster_ca.cache_clear()
    yield
    port_forward.forwarded.cache_clear()
    port_forward.cluster_ca.cache_clear()
    while port_forward._files:
        port_forward._files.pop().close()
    while port_forward._kept:
        process = port_forward._kept.pop()
        assert process.stdin is not None
        process.stdin.close()
        process.wait(30)
        assert process.stdout is not None
        process.stdout.close()


@pytest.fixture
def kubectl(tmp_path: Path, service: FakeTopologyService, monkeypatch: pytest.MonkeyPatch) -> Make:
    """Puts a stand-in into the PATH."""
    monkeypatch.delenv("HYPERSCOUT_COLLECTOR")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    def make(
        lease: str = LEADER, forward: str = FORWARDS, configmap: str = NOT_FOUND, secret: str = FORBIDDEN
    ) -> None:
        text = _KUBECTL.format(
            calls=tmp_path / "calls",
            lease=lease,
            forward=forward.format(address=service.address),
            configmap=configmap,
            secret=secret,
        )
        (tmp_path / "kubectl").write_text(text)
        (tmp_path / "kubectl").chmod(0o755)

    return make


def calls(tmp_path: Path) -> list[str]:
    return (tmp_path / "calls").read_text().splitlines()


def ended(tmp_path: Path) -> bool:
    """Whether the port-forward is gone, or goes within some seconds."""
    pid = int((tmp_path / "calls.pid").read_text())
    for _ in range(1000):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.01)
    return False


def test_the_pod_that_leads_is_reached_once_for_all_questions(
    run: CommandLine, kubectl: Make, tmp_path: Path
) -> None:
    kubectl()
    ran = run("describe", "node", "n01", "--namespace", "fabric")  # two connections
    assert (ran.code, ran.err) == (0, "")
    assert calls(tmp_path) == [
        "-n fabric get lease hyperscout-collector -o jsonpath={.spec.holderIdentity}",
        "-n fabric port-forward --address 127.0.0.1 pod/hyperscout-collector-6d4f-x2x :50051",
        r"-n fabric get configmap hyperscout-ca -o jsonpath={.data.ca\.crt}",
        r"-n fabric get secret hyperscout-tls -o jsonpath={.data.ca\.crt}",
    ]


@pytest.mark.parametrize(
    ("configmap", "secret", "text"),
    [
        pytest.param("printf PEM", NOT_FOUND, "PEM", id="the ConfigMap"),
        pytest.param(NOT_FOUND, "printf UEVN", "PEM", id="the Secret"),
        pytest.param(FORBIDDEN, "printf UEV", None, id="no base64"),
        pytest.param(NOT_FOUND, FORBIDDEN, None, id="neither may be read"),
    ],
)
def test_the_certificates_come_from_the_cluster(
    kubectl: Make, configmap: str, secret: str, text: str | None
) -> None:
    kubectl(configmap=configmap, secret=secret)
    file = port_forward.cluster_ca("fabric", 5.0)
    assert (file and file.read_text()) == text


def test_without_a_token_the_commands_for_one_are_named(
    run: CommandLine, kubectl: Make, tmp_path: Path, service: FakeTopologyService
) -> None:
    kubectl()
    service.refuses = grpc.StatusCode.UNAUTHENTICATED
    ran = run("tree", "--namespace", "fabric")
    assert ran.code == 1
    assert "  kubectl -n fabric create serviceaccount reader\n" in ran.err
    assert "--serviceaccount fabric:reader\n" in ran.err
    assert ran.err.endswith("  kubectl -n fabric create token reader --audience hyperscout > token\n")
    (tmp_path / "token").write_text("abc")
    ran = run("tree", "--namespace", "fabric", "--token-file", str(tmp_path / "token"))
    assert ran.code == 1
    assert "create" not in ran.err, "there is one"
    service.refuses = grpc.StatusCode.PERMISSION_DENIED
    assert "remembers a refusal for some seconds" in run("tree", "--namespace", "fabric").err


@pytest.mark.parametrize("lease", [NOT_FOUND, FORBIDDEN, "printf ''"])
def test_without_a_lease_it_is_the_service(
    run: CommandLine, kubectl: Make, tmp_path: Path, lease: str
) -> None:
    kubectl(lease=lease)
    assert run("tree", "--namespace", "fabric").code == 0
    assert calls(tmp_path)[1].endswith(" service/hyperscout-collector :50051")


def test_an_api_server_that_is_away_is_said(run: CommandLine, kubectl: Make) -> None:
    kubectl(lease="echo 'The connection to the server was refused' >&2; exit 1")
    ran = run("tree", "--namespace", "fabric")
    assert ran.err == (
        "error: kubectl get lease hyperscout-collector: The connection to the server was refused"
        ": correct what kubectl needs, or give --collector\n"
    )


def test_what_kubectl_says_is_said(run: CommandLine, kubectl: Make) -> None:
    kubectl(forward='echo "error: unable to forward port because pod is not running" >&2; exit 1')
    ran = run("tree", "--namespace", "fabric")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == (
        "error: kubectl port-forward to pod/hyperscout-collector-6d4f-x2x in namespace fabric: "
        "error: unable to forward port because pod is not running"
        ": see `kubectl -n fabric get pods`, or give --collector\n"
    )


def test_it_is_not_waited_for_without_end(run: CommandLine, kubectl: Make) -> None:
    kubectl(forward="exec sleep 600")
    ran = run("tree", "--namespace", "fabric", "--timeout", "0.5s")
    assert ran.code == 1
    assert "no connection within 0.5 s (--timeout)" in ran.err
    port_forward.forwarded.cache_clear()
    kubectl(lease="exec sleep 600")
    assert "did not answer within 0.5 s" in run("tree", "--namespace", "x", "--timeout", "0.5s").err


def test_a_machine_without_kubectl_is_told(
    run: CommandLine, kubectl: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nope")
    assert "kubectl is not in the PATH" in run("tree", "--namespace", "fabric").err


def test_an_address_wins_and_both_are_too_many(
    run: CommandLine, kubectl: Make, service: FakeTopologyService, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = run("tree", "--namespace", "fabric", "--collector", service.address)
    assert ran.code == 2
    assert "give one of them" in ran.err
    monkeypatch.setenv("HYPERSCOUT_NAMESPACE", "fabric")
    assert run("tree", "--collector", service.address).code == 0
    assert run("--collector", service.address, "tree").code == 0


def plugin(tmp_path: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    """As kubectl starts it."""
    program = tmp_path / "kubectl-hyperscout"
    program.write_text(
        f"#!{sys.executable}\nimport sys\nfrom hyperscout_cli.main import main\nsys.exit(main())\n"
    )
    program.chmod(0o755)
    environment = {"PATH": os.environ["PATH"], "XDG_CACHE_HOME": str(tmp_path / "cache"), **more}
    command = [str(program), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_kubectl_hyperscout_does_so_by_itself(
    kubectl: Make, tmp_path: Path, service: FakeTopologyService
) -> None:
    kubectl()
    ran = plugin(tmp_path, "get", "hn", "-o", "name")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.splitlines()[0] == "hypernode/leaf-a"
    assert calls(tmp_path)[0].startswith("-n hyperscout get lease")
    assert ended(tmp_path)
    (tmp_path / "calls").unlink()
    assert plugin(tmp_path, "get", "hn", HYPERSCOUT_COLLECTOR=service.address).returncode == 0
    assert plugin(tmp_path, "get", "hn", "--collector", service.address).returncode == 0
    assert plugin(tmp_path, "version").returncode == 0
    assert not (tmp_path / "calls").exists()


def test_its_forward_ends_with_it_however_that_ends(kubectl: Make, tmp_path: Path) -> None:
    kubectl()
    code = (
        "import os, hyperscout_cli.remote.port_forward as p; p.forwarded('x', 30.0); os.kill(os.getpid(), 9)"
    )
    environment = {"PATH": os.environ["PATH"]}
    ran = subprocess.run([sys.executable, "-c", code], env=environment, check=False)
    assert ran.returncode == -9
    assert ended(tmp_path)
