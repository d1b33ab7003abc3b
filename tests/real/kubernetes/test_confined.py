"""An attacker with the collector's token: the policy refuses all changes of pods but those of the gates."""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from hyperscout_gates.control.pods import PLACED
from hyperscout_gates.degradation.hook import HOOK
from hyperscout_gates.state.gang import GATE
from hyperscout_kubernetes.client import MERGE, STRATEGIC, Kube, connect
from hyperscout_kubernetes.errors import ForbiddenError, KubeError
from support.gates import PODS, collectors_account
from support.kube_objects import Object, pod
from support.kubernetes import Cluster
from support.real import require_real
from support.waiting import TIMEOUT_S
from support.workloads import opened

require_real("kubernetes", "helm")

OTHER = "example.com/quota"
NO_TOKEN = {"automountServiceAccountToken": False}
NOW_NS = 1_700_000_000_000_000_000


def post(kube: Cluster, name: str, gates: tuple[str, ...] = (GATE,), **metadata: Any) -> Object:
    spec = NO_TOKEN | {"schedulingGates": [{"name": gate} for gate in gates]}
    found: Object = kube.api.ask("POST", PODS, pod(name, spec, **metadata))
    return found


async def patch(client: Kube, name: str, body: Object, content: str = STRATEGIC) -> Object:
    return await client.write("PATCH", f"{PODS}/{name}", body, content=content)


async def place(client: Kube, found: Object, node: str = "n1") -> Object:
    """What the collector itself sends to open a gate."""
    labels = {"hyperscout.io/leaf": "leaf-1"}
    return await patch(client, found["metadata"]["name"], opened(found, 0, node, NOW_NS, **labels))


IMAGE = {"spec": {"containers": [{"name": "c", "image": "evil.invalid/miner"}]}}
TERM = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["x"]}]}
PREFERRED = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": TERM}]}
DEFAULT_TOLERATIONS = [  # as the API server adds them to each pod; they cannot be taken away
    {
        "key": f"node.kubernetes.io/{key}",
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": 300,
    }
    for key in ("not-ready", "unreachable")
]
OWNER = {"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "u"}
# what -> (the patch, what the refusal names)
CHANGES: dict[str, tuple[Object, str]] = {
    "another image": (IMAGE, "spec.containers"),
    "an annotation of others": (
        {"metadata": {"annotations": {"example.com/inject": "sidecar"}}},
        "the annotation example.com/inject",
    ),
    "an annotation taken away": ({"metadata": {"annotations": {"a": None}}}, "the annotation a"),
    "a name that only begins alike": (
        {"metadata": {"annotations": {"hyperscout.io.evil/x": "y"}}},
        "the annotation hyperscout.io.evil/x",
    ),
    "a label of others": ({"metadata": {"labels": {"app": "database"}}}, "the label app"),
    "a finalizer": ({"metadata": {"finalizers": ["example.com/never"]}}, "metadata.finalizers"),
    "an owner": ({"metadata": {"ownerReferences": [OWNER]}}, "metadata.ownerReferences"),
    "a toleration": (
        {"spec": {"tolerations": [*DEFAULT_TOLERATIONS, {"operator": "Exists"}]}},
        "spec.tolerations",
    ),
    "a node selector": ({"spec": {"nodeSelector": {"a": "b"}}}, "spec.nodeSelector"),
    "a deadline": ({"spec": {"activeDeadlineSeconds": 1}}, "spec.activeDeadlineSeconds"),
    "a preferred node": (
        {"spec": {"affinity": {"nodeAffinity": PREFERRED}}},
        "spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution",
    ),
    "another's gate": (
        {"spec": {"schedulingGates": [{"$patch": "delete", "name": OTHER}]}},
        "only its own scheduling gate",
    ),
    "all gates": ({"spec": {"schedulingGates": [{"$patch": "replace"}]}}, "only its own scheduling gate"),
}


async def until(what: str, refused: bool, do: Callable[[], Any]) -> None:
    """A policy reaches the server's memory with a small delay."""
    try:
        async with asyncio.timeout(TIMEOUT_S):
            while True:
                try:
                    await do()
                    seen = False
                except KubeError as error:
                    seen = isinstance(error, ForbiddenError)
                if seen is refused:
                    return
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(f"{what} is {'never' if refused else 'still'} refused") from None


@pytest.fixture
async def attacker(kube: Cluster) -> AsyncIterator[Kube]:
    """A client with the token of the collector's account, under the chart's rights and policy."""
    kube.service_account("default")
    kube.nodes(["n1"])
    me = collectors_account(kube)
    post(kube, "probe", gates=(OTHER,))
    async with await connect(me) as client:
        await until("a stranger's pod", True, lambda: patch(client, "probe", {"metadata": {"labels": {}}}))
        yield client


@pytest.mark.parametrize(("change", "named"), CHANGES.values(), ids=list(CHANGES))
async def test_nothing_else_of_a_gated_pod_changes(
    kube: Cluster, attacker: Kube, change: Object, named: str
) -> None:
    before = post(kube, "waits", gates=(GATE, OTHER), annotations={"a": "b"})
    with pytest.raises(ForbiddenError) as caught:
        await patch(attacker, "waits", change)
    assert named in str(caught.value)
    assert kube.api.ask("GET", f"{PODS}/waits") == before


async def test_nothing_rides_along_with_the_opening_of_a_gate(kube: Cluster, attacker: Kube) -> None:
    found = post(kube, "waits")
    body = opened(found, 0, "n1", NOW_NS)
    body["spec"] |= IMAGE["spec"]
    with pytest.raises(ForbiddenError, match=r"may not change spec\.containers of pods"):
        await patch(attacker, "waits", body)
    assert kube.api.ask("GET", f"{PODS}/waits") == found


async def test_what_the_collector_does_itself_is_allowed(kube: Cluster, attacker: Kube) -> None:
    found = post(kube, "waits", gates=(GATE, OTHER), labels={"app": "train"})
    named = {"hyperscout.io/x": "y"}
    found = await patch(attacker, "waits", {"metadata": {"annotations": named, "labels": named}})
    opened = await place(attacker, found)
    assert opened["spec"]["schedulingGates"] == [{"name": OTHER}]
    assert opened["metadata"]["labels"] == {"app": "train", "hyperscout.io/leaf": "leaf-1", **named}
    await attacker.write("DELETE", f"{PODS}/waits", {})  # it is placed, and has no node
    post(kube, "waits")
    await attacker.write("DELETE", f"{PODS}/waits", {})  # it carries the gate


MARK = {"metadata": {"annotations": {PLACED: "x"}}}


@pytest.mark.parametrize("change", [IMAGE, MARK], ids=["image", "mark"])
async def test_a_strangers_pod_stays_as_it_is(kube: Cluster, attacker: Kube, change: Object) -> None:
    found = post(kube, "stranger", gates=())
    for content in (STRATEGIC, MERGE):
        with pytest.raises(ForbiddenError, match="only pods that carry its scheduling gate"):
            await patch(attacker, "stranger", change, content)
    with pytest.raises(ForbiddenError, match="may delete only pods"):
        await attacker.write("DELETE", f"{PODS}/stranger", {})
    assert kube.api.ask("GET", f"{PODS}/stranger") == found


async def test_the_mark_of_another_pod_does_not_help(kube: Cluster, attacker: Kube) -> None:
    """Templates may carry it: a copy of a pod has its annotations."""
    placed = await place(attacker, post(kube, "waits"))
    mark = placed["metadata"]["annotations"][PLACED]
    assert json.loads(mark)["pod"] == placed["metadata"]["uid"]
    post(kube, "copy", gates=(), annotations={PLACED: mark})
    with pytest.raises(ForbiddenError, match="that it placed"):
        await attacker.write("DELETE", f"{PODS}/copy", {})


async def test_a_pod_that_runs_is_out_of_reach(kube: Cluster, attacker: Kube) -> None:
    """Though the collector placed it."""
    found = await place(attacker, post(kube, "runs"))
    target = {"target": {"apiVersion": "v1", "kind": "Node", "name": "n1"}, "metadata": {"name": "runs"}}
    kube.api.ask("POST", f"{PODS}/runs/binding", {"apiVersion": "v1", "kind": "Binding", **target})
    for change in (IMAGE, {"metadata": {"annotations": {"hyperscout.io/x": "y"}}}):
        with pytest.raises(ForbiddenError, match="only pods that carry its scheduling gate"):
            await patch(attacker, "runs", change)
    with pytest.raises(ForbiddenError, match="may not delete pods that have a node"):
        await attacker.write("DELETE", f"{PODS}/runs", {})
    assert kube.api.ask("GET", f"{PODS}/runs")["metadata"]["uid"] == found["metadata"]["uid"]


async def test_a_pod_that_runs_may_be_moved_if_it_has_a_hook(kube: Cluster) -> None:
    """Only where the operator has allowed it, and the collector cannot add the hook."""
    kube.service_account("default")
    kube.nodes(["n1"])
    async with await connect(collectors_account(kube, onDegradation={"action": "move"})) as client:
        ports = itertools.count(8080)  # a patch that changes nothing is not refused

        def hook() -> Object:
            return {"metadata": {"annotations": {HOOK: f"{next(ports)}/save"}}}

        for name, annotations in (("with", {HOOK: "none"}), ("without", {})):
            pod = post(kube, name, annotations=annotations)
            await until("the hook", True, lambda: patch(client, name, hook()))  # noqa: B023
            await place(client, pod)
            target = {
                "target": {"apiVersion": "v1", "kind": "Node", "name": "n1"},
                "metadata": {"name": name},
            }
            binding = {"apiVersion": "v1", "kind": "Binding", **target}
            kube.api.ask("POST", f"{PODS}/{name}/binding", binding)
        with pytest.raises(ForbiddenError, match="only if they have a checkpoint hook"):
            await client.write("DELETE", f"{PODS}/without", {})
        await client.write("DELETE", f"{PODS}/with", {})


async def test_other_accounts_are_not_confined(kube: Cluster, attacker: Kube) -> None:
    post(kube, "theirs", gates=())
    kube.api.ask("PATCH", f"{PODS}/theirs", IMAGE, content=STRATEGIC)
    kube.api.ask("DELETE", f"{PODS}/theirs")


async def test_without_the_policy_the_attack_succeeds(kube: Cluster, attacker: Kube) -> None:
    """The rights alone do not prevent it."""
    post(kube, "stranger", gates=())
    policies = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
    kube.api.ask("DELETE", f"{policies}/hyperscout-collector-pods")
    await until("another image", False, lambda: patch(attacker, "stranger", IMAGE))
    await attacker.write("DELETE", f"{PODS}/stranger", {})


async def test_the_settings_of_agents_are_out_of_reach(kube: Cluster, attacker: Kube) -> None:
    """Plans are in a namespace of their own. The agents' settings name commands that agents run."""
    settings = "/api/v1/namespaces/hyperscout/configmaps"
    kube.api.ask("POST", settings, {"metadata": {"name": "hyperscout-agent"}, "data": {"agent.yaml": ""}})
    for method, path in (
        ("PATCH", f"{settings}/hyperscout-agent"),
        ("PUT", f"{settings}/hyperscout-agent"),
        ("DELETE", f"{settings}/hyperscout-agent"),
        ("POST", settings),
    ):
        with pytest.raises(ForbiddenError):
            await attacker.write(method, path, {"data": {"agent.yaml": "x"}}, content=MERGE)
