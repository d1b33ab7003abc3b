"""A real collector and a real agent with the settings, keys and accounts that an installed chart gives."""

import asyncio
import base64
import sys
from pathlib import Path

from kube.processes import free_port
from support.chart import NAMESPACE, RELEASE, install
from support.collector_process import collector_process
from support.kubernetes import Cluster
from support.real import require_real

require_real("kubernetes", "helm")

COLLECTOR, AGENT = f"{RELEASE}-collector", f"{RELEASE}-agent"
TIMEOUT_S = 60.0


def settings(kube: Cluster, folder: Path, name: str, file: str) -> Path:
    """A ConfigMap's file, with the pod's folders found elsewhere."""
    text: str = kube.get("configmap", name, "-n", NAMESPACE)["data"][file]
    text = text.replace("/etc/hyperscout/tls", str(folder)).replace(
        "/var/run/secrets/hyperscout", str(folder)
    )
    (folder / file).write_text(text)
    return folder / file


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
    install(kube, {"crds": {"install": False}, "agent": {"lldp": {"enabled": False}}})
    kube.nodes(["gpu-1"])
    secret = kube.get("secret", f"{RELEASE}-tls", "-n", NAMESPACE)["data"]
    for name, data in secret.items():
        (tmp_path / name).write_bytes(base64.b64decode(data))
    pod = kube.pod_on("gpu-1", AGENT, NAMESPACE)
    (tmp_path / "token").write_text(kube.token(AGENT, NAMESPACE, audience="hyperscout", pod=pod))

    words = ("--config", str(settings(kube, tmp_path, COLLECTOR, "collector.yaml")))
    account = ("--kubeconfig", str(kube.kubeconfig_of(COLLECTOR, NAMESPACE)))
    async with collector_process(
        tmp_path / "data", *words, *account, "--advertise", "127.0.0.1:1"
    ) as process:
        port = free_port()
        agent = await asyncio.create_subprocess_exec(
            *(
                sys.executable,
                "-c",
                "from hyperscout_cli.main import main; raise SystemExit(main())",
                "agent",
            ),
            *("--config", str(settings(kube, tmp_path, AGENT, "agent.yaml")), "--node", "gpu-1"),
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
