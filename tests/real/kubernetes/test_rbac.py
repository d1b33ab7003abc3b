"""Rights that the chart gives: each one is needed, and nothing else is there (as the service accounts)."""

import asyncio
import copy
import itertools
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hyperscout_collector.identity.reviews import ACCESS_REVIEWS, TOKEN_REVIEWS
from hyperscout_gates.control.pods import PATH as ALL_PODS
from hyperscout_gates.state.gang_plan import SELECTOR
from hyperscout_gates.workloads.kinds import KINDS, WorkloadKind
from hyperscout_kubernetes.client import APPLY, MERGE, STRATEGIC, Kube, connect
from hyperscout_kubernetes.errors import ForbiddenError, GoneError, NotFoundError
from hyperscout_publish.devices.device_taints import taint_rule
from hyperscout_publish.devices.slices import DeviceRef, new_slice
from kube.api import ApiError
from support.chart import EVERYTHING, NAMESPACE, PROFILES, RELEASE, define_others, install, render
from support.kube_objects import hypernode_object, pod
from support.kubernetes import Cluster
from support.real import require_real
from support.waiting import TIMEOUT_S

require_real("kubernetes", "helm")

HYPERNODES = "/apis/topology.volcano.sh/v1alpha1/hypernodes"
NODES = "/api/v1/nodes"
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
DEPLOYMENTS = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments"
PODS = "/api/v1/namespaces/default/pods"
EVENTS = "/api/v1/namespaces/default/events"
FEATURES = f"/apis/nfd.k8s-sigs.io/v1alpha1/namespaces/{NAMESPACE}/nodefeatures"
SLINKY = "/api/v1/namespaces/default/configmaps/slurm-config-extra"
PLANS = f"/api/v1/namespaces/{RELEASE}-gangs/configmaps"
KUEUE = "/apis/kueue.x-k8s.io/v1beta1"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
TAINT_RULES = "/apis/resource.k8s.io/v1beta2/devicetaintrules"
COLLECTOR, AGENT = f"{RELEASE}-collector", f"{RELEASE}-agent"
# The definition is there already, by the fixture.
NO_CRD = {"crds": {"install": False}}
NO_TOKEN = {"automountServiceAccountToken": False}
_numbers = itertools.count(1)


def lease(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": NAMESPACE}, "spec": {"holderIdentity": "me"}}


def make(kube: Cluster, path: str, body: dict[str, Any]) -> None:
    try:
        kube.api.ask("POST", path, body)
    except ApiError as error:
        if error.code != 409:
            raise


# --- what the collector does, request by request ------------------------------------------------------------


async def _watch(client: Kube, path: str) -> None:
    try:
        async for _ in client.watch(path, "1", timeout_s=1):
            return
    except GoneError:
        return  # the watch was allowed


async def _apply(client: Kube, path: str, body: dict[str, Any]) -> None:
    query = {"fieldManager": "hyperscout", "force": "true"}
    await client.write("PATCH", path, body, content=APPLY, query=query)


async def _apply_new(client: Kube) -> None:
    name = f"new-{next(_numbers)}"
    await _apply(client, f"{HYPERNODES}/{name}", hypernode_object(name))


async def _delete(kube: Cluster, client: Kube, collection: str, body: dict[str, Any]) -> None:
    make(kube, collection, body)
    await client.write("DELETE", f"{collection}/{body['metadata']['name']}", {})


async def _update_lease(client: Kube) -> None:
    found = await client.get(f"{LEASES}/{COLLECTOR}")
    await client.write("PUT", f"{LEASES}/{COLLECTOR}", found)


def _event() -> dict[str, Any]:
    name = f"leaf-1.{next(_numbers)}"
    about = {"apiVersion": "topology.volcano.sh/v1alpha1", "kind": "HyperNode", "name": "leaf-1"}
    return {"metadata": {"name": name, "namespace": "default"}, "involvedObject": about, "reason": "Test"}


async def _count_event(kube: Cluster, client: Kube) -> None:
    event = _event()
    make(kube, EVENTS, event)
    await client.write("PATCH", f"{EVENTS}/{event['metadata']['name']}", {"count": 2}, content=MERGE)


_STATUS = hypernode_object("leaf-1") | {"status": {"conditions": []}}
_STATUS.pop("spec")
_MAY = {"spec": {"user": "x", "resourceAttributes": {"verb": "get", "resource": "hypernodes"}}}
_FLAVORS = f"{KUEUE}/resourceflavors"
_TOPOLOGY = {"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "Topology", "metadata": {"name": "hyperscout"}}


async def _make_lease(kube: Cluster, client: Kube) -> None:
    kube.api.ask("DELETE", f"{LEASES}/{COLLECTOR}")
    try:
        await client.write("POST", LEASES, lease(COLLECTOR))
    finally:
        make(kube, LEASES, lease(COLLECTOR))


async def _make_topology(kube: Cluster, client: Kube) -> None:
    kube.api.ask("DELETE", f"{KUEUE}/topologies/hyperscout")
    try:
        await client.write("POST", f"{KUEUE}/topologies", dict(_TOPOLOGY))
    finally:
        make(kube, f"{KUEUE}/topologies", dict(_TOPOLOGY))


def _slice(name: str) -> dict[str, Any]:
    return new_slice("gpu-1", "", []) | {"metadata": {"name": name}}


def _rule(name: str) -> dict[str, Any]:
    rule = taint_rule("resource.k8s.io/v1beta2", DeviceRef("nic.hyperscout.io", "gpu-1", name))
    return rule | {"metadata": {"name": name}}


async def _patch_slice(kube: Cluster, client: Kube) -> None:
    make(kube, SLICES, _slice("patched"))
    body = {"metadata": {"labels": {"a": "b"}}}
    await client.write("PATCH", f"{SLICES}/patched", body, content=MERGE)


async def _absent(client: Kube, path: str) -> None:
    """What is allowed is looked for, and not found."""
    with pytest.raises(NotFoundError):
        await client.get(path)


async def _patch_pod(kube: Cluster, client: Kube) -> None:
    make(kube, PODS, pod("waits", NO_TOKEN))
    body = {"metadata": {"annotations": {"hyperscout.io/rank": "0"}}}
    await client.write("PATCH", f"{PODS}/waits", body, content=STRATEGIC)


def _feature(name: str = "") -> dict[str, Any]:
    metadata = {"name": name or f"feature-{next(_numbers)}"}
    return {"apiVersion": "nfd.k8s-sigs.io/v1alpha1", "kind": "NodeFeature", "metadata": metadata, "spec": {}}


async def _patch_feature(kube: Cluster, client: Kube) -> None:
    make(kube, FEATURES, _feature("there"))
    await client.write("PATCH", f"{FEATURES}/there", {"spec": {"labels": {"x": "y"}}}, content=MERGE)


def _plan(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "data": {"plan.json": "{}"}}


async def _make_plan(client: Kube) -> None:
    await client.write("POST", PLANS, _plan(f"hyperscout-gang-{next(_numbers)}"))


async def _update_plan(kube: Cluster, client: Kube) -> None:
    make(kube, PLANS, _plan("hyperscout-gang-x"))
    await client.write("PUT", f"{PLANS}/hyperscout-gang-x", _plan("hyperscout-gang-x"))


def _reads(kind: WorkloadKind) -> "Do":
    return lambda _, c: _absent(c, f"/apis/{kind.versions[0]}/namespaces/default/{kind.plural}/none")


Do = Callable[[Cluster, Kube], Awaitable[Any]]
# (API group, resource, verb) -> the collector's request that needs it.
REQUESTS: dict[tuple[str, str, str], Do] = {
    ("topology.volcano.sh", "hypernodes", "get"): lambda _, c: c.get(f"{HYPERNODES}/leaf-1"),
    ("topology.volcano.sh", "hypernodes", "list"): lambda _, c: c.list(HYPERNODES),
    ("topology.volcano.sh", "hypernodes", "watch"): lambda _, c: _watch(c, HYPERNODES),
    ("topology.volcano.sh", "hypernodes", "create"): lambda _, c: _apply_new(c),
    ("topology.volcano.sh", "hypernodes", "patch"): lambda _, c: _apply(
        c, f"{HYPERNODES}/leaf-1", hypernode_object("leaf-1")
    ),
    ("topology.volcano.sh", "hypernodes", "delete"): lambda k, c: _delete(
        k, c, HYPERNODES, hypernode_object("leaf-2")
    ),
    ("topology.volcano.sh", "hypernodes/status", "patch"): lambda _, c: _apply(
        c, f"{HYPERNODES}/leaf-1/status", _STATUS
    ),
    ("", "nodes", "list"): lambda _, c: c.list(NODES),
    ("", "nodes", "watch"): lambda _, c: _watch(c, NODES),
    ("", "nodes", "get"): lambda _, c: c.get(f"{NODES}/gpu-1"),
    ("", "nodes", "patch"): lambda _, c: c.write(
        "PATCH", f"{NODES}/gpu-1", {"metadata": {"labels": {"hyperscout.io/leaf": "a"}}}, content=MERGE
    ),
    ("", "nodes/status", "patch"): lambda _, c: c.write(
        "PATCH", f"{NODES}/gpu-1/status", {"status": {"conditions": []}}, content=STRATEGIC
    ),
    ("", "events", "create"): lambda _, c: c.write("POST", EVENTS, _event()),
    ("apps", "deployments", "get"): lambda _, c: c.get(f"{DEPLOYMENTS}/{COLLECTOR}"),
    ("", "events", "get"): lambda _, c: _absent(c, f"{EVENTS}/none"),
    ("", "events", "patch"): _count_event,
    ("coordination.k8s.io", "leases", "create"): _make_lease,
    ("coordination.k8s.io", "leases", "get"): lambda _, c: c.get(f"{LEASES}/{COLLECTOR}"),
    ("coordination.k8s.io", "leases", "update"): lambda _, c: _update_lease(c),
    ("authentication.k8s.io", "tokenreviews", "create"): lambda _, c: c.review(
        TOKEN_REVIEWS, {"spec": {"token": "x"}}
    ),
    ("authorization.k8s.io", "subjectaccessreviews", "create"): lambda _, c: c.review(ACCESS_REVIEWS, _MAY),
    ("kueue.x-k8s.io", "topologies", "create"): _make_topology,
    ("kueue.x-k8s.io", "topologies", "get"): lambda _, c: c.get(f"{KUEUE}/topologies/hyperscout"),
    ("kueue.x-k8s.io", "topologies", "delete"): lambda k, c: _delete(
        k, c, f"{KUEUE}/topologies", dict(_TOPOLOGY)
    ),
    ("kueue.x-k8s.io", "resourceflavors", "list"): lambda _, c: c.list(_FLAVORS),
    ("nfd.k8s-sigs.io", "nodefeatures", "list"): lambda _, c: c.list(FEATURES),
    ("nfd.k8s-sigs.io", "nodefeatures", "watch"): lambda _, c: _watch(c, FEATURES),
    ("nfd.k8s-sigs.io", "nodefeatures", "create"): lambda _, c: c.write("POST", FEATURES, _feature()),
    ("nfd.k8s-sigs.io", "nodefeatures", "patch"): _patch_feature,
    ("nfd.k8s-sigs.io", "nodefeatures", "delete"): lambda k, c: _delete(k, c, FEATURES, _feature("gone")),
    ("resource.k8s.io", "resourceslices", "list"): lambda _, c: c.list(SLICES),
    ("resource.k8s.io", "resourceslices", "watch"): lambda _, c: _watch(c, SLICES),
    ("resource.k8s.io", "resourceslices", "create"): lambda _, c: c.write(
        "POST", SLICES, _slice(f"new-{next(_numbers)}")
    ),
    ("resource.k8s.io", "resourceslices", "patch"): _patch_slice,
    ("resource.k8s.io", "resourceslices", "delete"): lambda k, c: _delete(k, c, SLICES, _slice("gone")),
    ("resource.k8s.io", "devicetaintrules", "list"): lambda _, c: c.list(TAINT_RULES),
    ("resource.k8s.io", "devicetaintrules", "create"): lambda _, c: c.write(
        "POST", TAINT_RULES, _rule(f"new-{next(_numbers)}")
    ),
    ("resource.k8s.io", "devicetaintrules", "delete"): lambda k, c: _delete(k, c, TAINT_RULES, _rule("gone")),
    ("", "pods", "list"): lambda _, c: c.list(ALL_PODS),
    ("", "pods", "watch"): lambda _, c: _watch(c, ALL_PODS),
    ("", "pods", "patch"): _patch_pod,
    ("", "pods", "delete"): lambda k, c: _delete(k, c, PODS, pod("stuck", NO_TOKEN)),
    ("", "configmaps", "get"): lambda _, c: c.get(SLINKY),
    ("", "configmaps", "patch"): lambda _, c: c.write(
        "PATCH", SLINKY, {"data": {"topology.yaml": "[]\n"}}, content=MERGE
    ),
    ("", "configmaps", "list"): lambda _, c: c.list(PLANS, {"labelSelector": SELECTOR}),
    ("", "configmaps", "create"): lambda _, c: _make_plan(c),
    ("", "configmaps", "update"): _update_plan,
    ("", "configmaps", "delete"): lambda k, c: _delete(k, c, PLANS, _plan("hyperscout-gang-y")),
    **{(kind.group, kind.plural, "get"): _reads(kind) for kind in KINDS},
}


@pytest.fixture
def installed(kube: Cluster) -> Cluster:
    """The chart with everything on, and an object of each kind."""
    define_others(kube)
    install(kube, EVERYTHING | NO_CRD)
    kube.nodes(["gpu-1"])
    for path, body in (
        (HYPERNODES, hypernode_object("leaf-1")),
        (LEASES, lease(COLLECTOR)),
        (f"{KUEUE}/topologies", dict(_TOPOLOGY)),
        (SLINKY.rpartition("/")[0], {"metadata": {"name": "slurm-config-extra"}}),
    ):
        make(kube, path, body)
    return kube


@dataclass(frozen=True, slots=True)
class Right:
    """One verb of one rule of a role, as the chart writes it."""

    path: str
    rule: int
    group: str
    resource: str
    verb: str

    @property
    def key(self) -> tuple[str, str, str]:
        return self.group, self.resource, self.verb


def rights(objects: list[dict[str, Any]]) -> Iterator[Right]:
    for found in objects:
        meta = found["metadata"]
        if found["kind"] not in ("Role", "ClusterRole") or not meta["name"].startswith(COLLECTOR):
            continue
        where = f"namespaces/{meta['namespace']}/roles" if found["kind"] == "Role" else "clusterroles"
        for number, rule in enumerate(found["rules"]):
            for group, resource, verb in itertools.product(
                rule["apiGroups"], rule["resources"], rule["verbs"]
            ):
                yield Right(f"{RBAC}/{where}/{meta['name']}", number, group, resource, verb)


RIGHTS = list(rights(render(EVERYTHING | NO_CRD)))


async def until_allowed(do: Callable[[], Awaitable[Any]], allowed: bool, what: str) -> None:
    """Roles reach the server's memory with a small delay: do it until it is allowed, or refused."""
    try:
        async with asyncio.timeout(TIMEOUT_S):
            while True:
                try:
                    await do()
                    seen = True
                except ForbiddenError:
                    seen = False
                if seen is allowed:
                    return
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(f"{what} is {'refused' if allowed else 'still allowed'}") from None


def test_each_right_is_asked_for_by_a_request() -> None:
    assert {right.key for right in RIGHTS} == set(REQUESTS)
    assert len(RIGHTS) == len(REQUESTS), "a right is given twice"


async def test_with_a_verb_taken_away_something_is_refused(installed: Cluster) -> None:
    kubeconfig = installed.kubeconfig_of(COLLECTOR, NAMESPACE)
    async with await connect(kubeconfig) as client:
        for right in RIGHTS:

            async def do(right: Right = right) -> None:
                await REQUESTS[right.key](installed, client)

            await until_allowed(do, True, f"{right.key} with the whole role")
            whole = installed.api.ask("GET", right.path)
            less = copy.deepcopy(whole)
            less["rules"][right.rule]["verbs"].remove(right.verb)
            rules = [rule for rule in less["rules"] if rule["verbs"]]
            installed.api.ask("PATCH", right.path, {"rules": rules}, content=MERGE)
            await until_allowed(do, False, f"{right.key} without it")
            installed.api.ask("PATCH", right.path, {"rules": whole["rules"]}, content=MERGE)


REFUSED = (
    ("list", "/api/v1/secrets"),
    ("get", "/api/v1/namespaces/default/pods/waits"),
    ("list", "/api/v1/configmaps"),
    ("get", f"/api/v1/namespaces/{NAMESPACE}/configmaps/{COLLECTOR}"),
    ("list", f"/api/v1/namespaces/{NAMESPACE}/configmaps"),
    ("get", "/api/v1/namespaces/default/configmaps/other"),
    ("list", "/apis/batch/v1/jobs"),
    ("get", f"/api/v1/namespaces/{NAMESPACE}/secrets/{RELEASE}-tls"),
    ("list", LEASES),
    ("list", DEPLOYMENTS),
    ("get", f"{DEPLOYMENTS}/other"),
    ("get", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/other"),
    ("list", f"{RBAC}/clusterroles"),
    ("list", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"),
)


@pytest.mark.parametrize("account", [COLLECTOR, AGENT])
async def test_everything_else_is_refused(installed: Cluster, account: str) -> None:
    async with await connect(installed.kubeconfig_of(account, NAMESPACE)) as client:
        for _, path in REFUSED:
            with pytest.raises(ForbiddenError):
                await client.get(path)
        for path, body in (
            (f"{NODES}/gpu-1", {"metadata": {"name": "gpu-1"}}),
            (f"{HYPERNODES}/leaf-1", hypernode_object("leaf-1")),
        ):
            with pytest.raises(ForbiddenError):
                await client.write("PUT", path, body)
        settings = f"/api/v1/namespaces/{NAMESPACE}/configmaps"  # of the agents
        for method, path in (
            ("DELETE", f"{NODES}/gpu-1"),
            ("POST", settings),
            ("PUT", f"{settings}/{AGENT}"),
            ("PATCH", f"{settings}/{AGENT}"),
            ("DELETE", f"{settings}/{AGENT}"),
        ):
            with pytest.raises(ForbiddenError):
                await client.write(method, path, {"metadata": {"name": AGENT}}, content=MERGE)


async def test_agents_may_nothing_at_all(installed: Cluster) -> None:
    async with await connect(installed.kubeconfig_of(AGENT, NAMESPACE)) as client:
        for key, request in REQUESTS.items():
            with pytest.raises(ForbiddenError):
                await request(installed, client)
            assert key


Rule = tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...], tuple[str, ...]]


async def rules_of(kube: Cluster, account: str, namespace: str) -> set[Rule]:
    """What the server says that an account may do in a namespace."""
    async with await connect(kube.kubeconfig_of(account, NAMESPACE)) as client:
        path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
        said = await client.review(path, {"spec": {"namespace": namespace}})
    return {rule_of(rule) for rule in said["status"]["resourceRules"]}


def rule_of(rule: dict[str, Any]) -> Rule:
    def names(key: str) -> tuple[str, ...]:
        return tuple(sorted(rule.get(key) or ()))

    return names("apiGroups"), names("resources"), names("resourceNames"), names("verbs")


@pytest.mark.parametrize("profile", ["default", "everything", "dry run of all", "labels", "gates tried"])
async def test_the_server_knows_of_no_other_right(kube: Cluster, profile: str) -> None:
    """Compared with an account without any grant, in three namespaces."""
    define_others(kube)
    install(kube, PROFILES[profile] | NO_CRD)
    kube.service_account("plain", NAMESPACE)
    objects = [o for o in render(PROFILES[profile] | NO_CRD) if o["kind"] in ("Role", "ClusterRole")]
    for namespace in (NAMESPACE, f"{RELEASE}-gangs", "default", "kube-system"):
        plain = await rules_of(kube, "plain", namespace)
        assert await rules_of(kube, AGENT, namespace) == plain
        given = {
            rule_of(rule)
            for o in objects
            if o["metadata"]["name"].startswith(COLLECTOR)
            if o["metadata"].get("namespace") in (None, namespace)
            for rule in o["rules"]
        }
        assert await rules_of(kube, COLLECTOR, namespace) - plain == given


@pytest.mark.parametrize(
    ("profile", "may_patch_nodes", "may_patch_hypernodes"),
    [
        ("default", False, True),
        ("labels", True, True),
        ("dry run", False, False),
        ("dry run of all", False, False),
    ],
)
def test_rights_follow_what_is_published(
    kube: Cluster, profile: str, may_patch_nodes: bool, may_patch_hypernodes: bool
) -> None:
    define_others(kube)
    install(kube, PROFILES[profile] | NO_CRD)
    me = kube.kubeconfig_of(COLLECTOR, NAMESPACE)
    for resource, may in (("nodes", may_patch_nodes), ("hypernodes", may_patch_hypernodes)):
        said = kube.run("kubectl", "auth", "can-i", "patch", resource, kubeconfig=me)
        assert said.out.strip() == ("yes" if may else "no")


# --- people -------------------------------------------------------------------------------------------------


def test_people_get_their_rights_by_the_usual_roles(kube: Cluster, tmp_path: Path) -> None:
    """The controller manager, which aggregates, is not here: its selectors are followed by hand."""
    install(kube, NO_CRD)
    path = f"{RBAC}/clusterroles"
    for role, verbs in (("view", {"get", "list", "watch"}), ("admin", {"get", "list", "watch", "update"})):
        labels = f"rbac.authorization.k8s.io/aggregate-to-{role}=true"
        ours = kube.api.items(f"{path}?labelSelector={labels},app.kubernetes.io/part-of=hyperscout")
        assert [o["metadata"]["name"] for o in ours] == [f"{RELEASE}-{role}"]
        kube.grant(f"some-{role}", ours[0]["rules"])
        account = kube.kubeconfig_of(f"some-{role}")
        for verb in ("get", "list", "watch", "update", "delete", "create", "patch"):
            said = kube.run("kubectl", "auth", "can-i", verb, "hypernodes", kubeconfig=account)
            assert said.out.strip() == ("yes" if verb in verbs else "no"), (role, verb)
