"""A real collector and a real agent with the settings, keys and accounts that an installed chart gives."""

import asyncio
import base64
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from kube.processes import free_port
from support.chart import NAMESPACE, RELEASE, install
from support.collector_process import CollectorProcess, collector_process
from support.kubernetes import Cluster
from support.real import require_real

require_real("kubernetes", "helm")

COLLECTOR, AGENT = f"{RELEASE}-collector", f"{RELEASE}-agent"
TIMEOUT_S = 60.0
VALUES = {"crds": {"install": False}, "agent": {"lldp": {"enabled": False}}}


def mounted(kube: Cluster, folder: Path, name: str, file: str, token: str) -> Path:
    """What a pod finds in its volumes, in this folder: the Secret, its token, and its settings, returned."""
    folder.mkdir()
    for key, data in kube.get("secret", f"{RELEASE}-tls", "-n", NAMESPACE)["data"].items():
        (folder / key).write_bytes(base64.b64decode(data))
    (folder / "token").write_text(token)
    text: str = kube.get("configmap", name, "-n", NAMESPACE)["data"][file]
    for place in ("/etc/hyperscout/tls", "/var/run/secrets/hyperscout"):
        text = text.replace(place, str(folder))
    (folder / file).write_text(text)
    return folder / file


@asynccontextmanager
async def collector(kube: Cluster, folder: Path, *flags: str, listen: str) -> AsyncIterator[CollectorProcess]:
    """A pod of the Deployment, with its service account."""
    pod = kube.pod_on("gpu-1", COLLECTOR, NAMESPACE, name=folder.name)
    token = kube.token(COLLECTOR, NAMESPACE, audience="hyperscout", pod=pod)
    config = mounted(kube, folder, COLLECTOR, "collector.yaml", token)
    words = ("--config", str(config), "--kubeconfig", str(kube.kubeconfig_of(COLLECTOR, NAMESPACE)))
    async with collector_process(folder / "data", *words, *flags, listen=listen) as process:
        yield process


async def healthz(port: int) -> bytes:
    """The agent's answer; empty while there is none."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return b""
    writer.write(b"GET /healthz HTTP/1.1\r\n\r\n")
    try:
        return await reader.read()
    finally:
        writer.close()


async def test_an_agent_and_a_collector_of_the_chart_find_each_other(kube: Cluster, tmp_path: Path) -> None:
    install(kube, VALUES)
    kube.nodes(["gpu-1"])
    pod = kube.pod_on("gpu-1", AGENT, NAMESPACE)
    token = kube.token(AGENT, NAMESPACE, audience="hyperscout", pod=pod)
    config = mounted(kube, tmp_path / "agent", AGENT, "agent.yaml", token)
    flags = ("--advertise", "127.0.0.1:1")
    async with collector(kube, tmp_path / "collector", *flags, listen="127.0.0.1:0") as process:
        port = free_port()
        agent = await asyncio.create_subprocess_exec(
            *(
                sys.executable,
                "-c",
                "from hyperscout_cli.main import main; raise SystemExit(main())",
                "agent",
            ),
            *("--config", str(config), "--node", "gpu-1"),
            *("--collector", process.address, "--metrics-port", str(port)),
            stdin=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            async with asyncio.timeout(TIMEOUT_S):
                while b"ok, connected" not in await healthz(port):
                    assert agent.returncode is None
                    await asyncio.sleep(0.05)
        finally:
            agent.terminate()
            await agent.wait()


async def test_replicas_of_the_chart_follow_each_other(kube: Cluster, tmp_path: Path) -> None:
    """Over TLS, by an address that is in no certificate, as a pod's is; then the other way round."""
    install(kube, VALUES)
    kube.nodes(["gpu-1"])
    first = collector(kube, tmp_path / "one", "--identity", "one", listen="127.0.0.2:0")
    second = collector(kube, tmp_path / "two", "--identity", "two", listen="127.0.0.3:0")
    third = collector(kube, tmp_path / "three", "--identity", "three", listen="127.0.0.4:0")
    async with first as one:
        await said(one, b"findings of")
        async with second as two:
            await said(two, b"following the leader, 127.0.0.2:")
            assert b"not following" not in two.said
            assert await one.stop() == 0
            await said(two, b"findings of")
            async with third as three:
                await said(three, b"following the leader, 127.0.0.3:")
                assert b"not following" not in three.said


async def said(process: CollectorProcess, words: bytes) -> None:
    try:
        async with asyncio.timeout(TIMEOUT_S):
            while words not in process.said:
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(f"never said {words!r}: {process.said.decode()}") from None
