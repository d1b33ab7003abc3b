"""The real collector with the rights of the chart: a whole tree comes out, and no request is refused."""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from hyperscout_kubernetes.nodes import READY, SLINKY_SPEC
from hyperscout_sim.agents.player import Player
from hyperscout_sim.fabric.shapes import rail_optimised
from kube.api import MERGE
from support.chart import NAMESPACE, RELEASE, define_others, install
from support.collector_process import CollectorProcess, collector_process
from support.collectors import playing
from support.dra import RULES, SLICES
from support.kubernetes import Cluster
from support.published import published, status_at
from support.real import require_real
from support.waiting import until_awaited

require_real("kubernetes", "helm")

ACCOUNT = f"{RELEASE}-collector"
VALUES = {
    "crds": {"install": False},
    "publish": {
        "nodeLabels": "on",
        "taints": "on",
        "nodeConditions": "on",
        "dra": "on",
        "draTaints": "on",
        "kueueTopology": "hyperscout",
        "slinkyConfigMap": "default/slurm",
    },
}
FLAGS = "--settle-s 1 --restart-grace-s 0 --takeover-limit-s 1".split()  # noqa: SIM905
FLAGS += "--taints on --node-conditions on --slinky-config-map default/slurm".split()  # noqa: SIM905
FLAGS += "--dra on --dra-taints on --taint-after-s 0.2".split()  # noqa: SIM905
FLAGS += "--kueue-topology hyperscout --leader-election".split()  # noqa: SIM905
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
FEATURES = f"/apis/nfd.k8s-sigs.io/v1alpha1/namespaces/{NAMESPACE}/nodefeatures"
_REFUSED = re.compile(r'^authorization_attempts_total\{result="(?!allowed").+"\} (\S+)', re.MULTILINE)
FABRIC = rail_optimised(2, 4, 2, 2)
ROLE = f"/apis/rbac.authorization.k8s.io/v1/clusterroles/{ACCOUNT}"


def refused(kube: Cluster) -> float:
    """How many requests, of all clients, the server has refused since it started."""
    return sum(map(float, _REFUSED.findall(kube.api.text("GET", "/metrics"))))


@asynccontextmanager
async def running(
    kube: Cluster, folder: Path, labels: str = "on"
) -> AsyncIterator[tuple[CollectorProcess, Player]]:
    """A collector with the chart's service account and agents that report a small fabric."""
    kube.nodes(FABRIC.hosts)
    words = ("--kubernetes", "publish", "--kubeconfig", str(kube.kubeconfig_of(ACCOUNT, NAMESPACE)))
    lease = ("--lease-namespace", NAMESPACE, "--lease-name", ACCOUNT, "--advertise", "127.0.0.1:1")
    async with (
        collector_process(folder, *words, *lease, *FLAGS, "--node-labels", labels) as process,
        playing(process.address, FABRIC, connections=2) as player,
    ):
        yield process, player


@pytest.mark.parametrize("labels", ["on", "nfd"])
async def test_the_charts_rights_are_enough(kube: Cluster, tmp_path: Path, labels: str) -> None:
    define_others(kube)
    install(kube, VALUES | {"publish": {**VALUES["publish"], "nodeLabels": labels}})
    kube.api.ask("POST", CONFIG_MAPS, {"metadata": {"name": "slurm"}})
    # That refusals are counted, and that the count is read:
    before = refused(kube)
    kube.run("kubectl", "get", "secrets", kubeconfig=kube.kubeconfig_of(ACCOUNT, NAMESPACE))
    assert refused(kube) == before + 1
    nodes = FABRIC.hosts
    async with published(kube) as seen, running(kube, tmp_path, labels) as (process, player):
        await seen.until(
            lambda now: all(status_at(now, n, "Ready")[0] == "True" for n in nodes), "a healthy tree"
        )
        if labels == "on":
            await until(lambda: labelled(kube) == len(nodes), "labels on all nodes")
        else:
            await until(lambda: len(kube.api.items(FEATURES)) == len(nodes), "NodeFeatures of all nodes")
        await until(lambda: annotated(kube) == len(nodes), "annotations of all nodes")
        assert "topology.yaml" in kube.api.ask("GET", f"{CONFIG_MAPS}/slurm")["data"]
        await until(lambda: conditioned(kube) == len(nodes), "conditions of all nodes")
        await until(lambda: bool(kube.api.items("/apis/kueue.x-k8s.io/v1beta1/topologies")), "kueue")
        await until(lambda: len(kube.api.items(SLICES)) == len(nodes), "slices of all nodes")
        player.cut(FABRIC.cables[0])
        await until(lambda: bool(kube.api.items(RULES)), "a tainted NIC")
        kube.cordon(next(iter(nodes)))
        await seen.until(
            lambda now: status_at(now, next(iter(nodes)), "Ready")[0] == "False", "a cordoned node"
        )
        await until(lambda: bool(kube.api.items("/api/v1/namespaces/default/events")), "an Event")
        said = process.said.decode()
        assert await process.stop() == 0
    assert "forbidden" not in said
    assert refused(kube) == before + 1


def labelled(kube: Cluster) -> int:
    nodes = kube.api.items("/api/v1/nodes")
    return sum(any(key.startswith("hyperscout.io/") for key in n["metadata"]["labels"]) for n in nodes)


def annotated(kube: Cluster) -> int:
    return sum(
        SLINKY_SPEC in (n["metadata"].get("annotations") or {}) for n in kube.api.items("/api/v1/nodes")
    )


def conditioned(kube: Cluster) -> int:
    nodes = kube.api.items("/api/v1/nodes")
    return sum(any(c["type"] == READY for c in n["status"]["conditions"]) for n in nodes)


async def until(holds: Callable[[], bool], what: str) -> None:
    await until_awaited(lambda: asyncio.to_thread(holds), what, pause_s=0.05)


# Without it, what does the collector complain of? One verb of each sort of work.
@pytest.mark.parametrize(
    ("resource", "verb"),
    [
        ("hypernodes", "list"),
        ("hypernodes", "patch"),
        ("hypernodes/status", "patch"),
        ("nodes", "list"),
        ("nodes/status", "patch"),
    ],
)
async def test_without_a_right_it_says_what_it_may_not(
    kube: Cluster, tmp_path: Path, resource: str, verb: str
) -> None:
    define_others(kube)
    install(kube, VALUES)
    rules = kube.api.ask("GET", ROLE)["rules"]
    for rule in rules:
        if resource in rule["resources"]:
            rule["verbs"].remove(verb)
    kube.api.ask("PATCH", ROLE, {"rules": [r for r in rules if r["verbs"]]}, content=MERGE)
    async with running(kube, tmp_path) as (process, _):
        with contextlib.suppress(AssertionError):
            await until(lambda: b"is forbidden" in process.said, "a complaint")
        said = process.said.decode()
    assert f'cannot {verb} resource "{resource}"' in said
