"""What the operator of Slinky reads, on a real API server; the operator is not run."""

import yaml
from hyperscout_kubernetes.nodes import SLINKY_SET, SLINKY_SPEC
from hyperscout_publish.nodes.slinky import SlinkyPublisher
from support.kubernetes import Cluster, following
from support.topologies import leaves, two_leaves
from support.waiting import eventually

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


def annotations(kube: Cluster, node: str) -> dict[str, str]:
    return dict(kube.get("node", node)["metadata"].get("annotations") or {})


async def test_the_config_map_and_the_annotations_come_and_go(kube: Cluster) -> None:
    kube.nodes(["n01", "n02", "n03", "n04", "n09"])
    others = {"gres.conf": "AutoDetect=Full\n"}
    kube.api.ask("POST", CONFIG_MAPS, {"metadata": {"name": "extra"}, "data": others})
    await kube.kubectl_async("annotate", "node", "n01", f"{SLINKY_SPEC}=topo-switch:s1", "mine=yes")
    async with following(kube.kubeconfig) as (client, nodes):
        slinky = SlinkyPublisher(client, nodes, "default/extra", print)
        await slinky.publish(two_leaves())
        data = kube.api.ask("GET", f"{CONFIG_MAPS}/extra")["data"]
        assert data == others | {"topology.yaml": data["topology.yaml"]}
        assert [row["topology"] for row in yaml.safe_load(data["topology.yaml"])] == ["tree", "block", "flat"]
        assert annotations(kube, "n01") == {SLINKY_SPEC: "topo-switch:s1", "mine": "yes"}
        spec = "tree:leaf-b,block:leaf-b"
        assert annotations(kube, "n03") == {SLINKY_SPEC: spec, SLINKY_SET: spec}
        assert (slinky.notice or "").startswith("n01: the annotation")

        writes = kube.writes("nodes"), kube.writes("configmaps")
        await slinky.publish(two_leaves())
        slinky.recheck.expire()
        await slinky.publish(two_leaves())
        assert (kube.writes("nodes"), kube.writes("configmaps")) == writes, "a steady state writes nothing"

        await kube.kubectl_async("annotate", "node", "n03", f"{SLINKY_SPEC}-")
        await eventually(lambda: not (nodes.get("n03") or {})["metadata"]["slinky_spec"])
        await slinky.publish(two_leaves())
        assert annotations(kube, "n03") == {SLINKY_SPEC: spec, SLINKY_SET: spec}
        await slinky.publish(leaves(("n02",), ("n04",), generation=8))
        assert annotations(kube, "n03") == {}
    async with following(kube.kubeconfig) as (client, nodes):
        await SlinkyPublisher(client, nodes, "", print).publish(two_leaves())
    assert annotations(kube, "n01") == {SLINKY_SPEC: "topo-switch:s1", "mine": "yes"}
    assert [annotations(kube, node) for node in ("n02", "n04")] == [{}, {}]
