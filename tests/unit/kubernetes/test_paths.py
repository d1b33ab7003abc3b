"""One function builds the paths of requests, and what is no name of an object is refused."""

import re

import pytest
from hyperscout_gates.control.pods import path_of as pod_path
from hyperscout_gates.state.events import Pod
from hyperscout_gates.state.gang import GangError
from hyperscout_gates.workloads.membership import Owner, membership, paths_of
from hyperscout_kubernetes.errors import RejectedError
from hyperscout_kubernetes.nodes import path_of as node_path
from hyperscout_kubernetes.paths import api_path, group_path
from hyperscout_publish.hypernodes.objects import path_of as hypernode_path
from hypothesis import given
from hypothesis import strategies as st
from support.real import ROOT
from support.workloads import job_pods

# What leads elsewhere: up, into another collection, into the query, onto another server.
HOSTILE = (
    *("", ".", "..", "../../victim/pods/x", "a/b", "a/../b", "a%2Fb", "%2e%2e", "a?b", "a#b", "a b", "a\n"),
    *("A", "-a", "a-", ".a", "a.", "a..b", "ä", "a;b", "//other.invalid", "a" * 254, "a\x00", "a\\b"),
)


@pytest.mark.parametrize(
    ("path", "built"),
    [
        ("/api/v1/nodes", api_path("v1", "nodes")),
        ("/api/v1/namespaces/ml/pods/w-0", api_path("v1", "pods", "w-0", namespace="ml")),
        ("/apis/batch/v1/namespaces/ml/jobs/a.b", api_path("batch/v1", "jobs", "a.b", namespace="ml")),
        ("/apis/topology.volcano.sh/v1alpha1/hypernodes/leaf-1/status", hypernode_path("leaf-1", "status")),
        ("/api/v1/nodes/" + "n" * 253, node_path("n" * 253)),
    ],
)
def test_paths(path: str, built: str) -> None:
    assert built == path


@pytest.mark.parametrize("text", HOSTILE)
def test_no_part_of_a_path_leads_elsewhere(text: str) -> None:
    for build in (
        lambda: api_path(f"batch/{text}", "jobs"),
        lambda: api_path(f"{text}/v1", "jobs"),
        lambda: api_path("v1", text),
        lambda: api_path("v1", "pods", text, namespace="ml"),
        lambda: api_path("v1", "pods", "w-0", namespace=text),
        lambda: api_path("v1", "pods", "w-0", namespace="ml", subresource=text),
        lambda: node_path(text),
        lambda: hypernode_path(text),
        lambda: pod_path(Pod("u", "ml", text)),
        lambda: pod_path(Pod("u", text, "w-0")),
    ):
        with pytest.raises(RejectedError, match="expected a Kubernetes name"):
            build()


@given(st.text(max_size=300))
def test_a_path_has_the_parts_that_it_was_built_of(name: str) -> None:
    try:
        path = api_path("v1", "pods", name, namespace="ml")
    except RejectedError:
        return
    assert path.split("/") == ["", "api", "v1", "namespaces", "ml", "pods", name]
    assert re.fullmatch(r"[a-z0-9.-]+", name)


def test_an_owner_reference_leads_nowhere_else() -> None:
    """The API server takes any text as the name of an owner."""
    [pod] = job_pods("train", 1)
    [reference] = pod["metadata"]["ownerReferences"]
    reference["name"] = "../../victim/jobs/secret"
    owner = membership(pod).owner
    assert owner is not None
    with pytest.raises(GangError, match=r"its Job cannot exist: name '\.\./\.\./victim"):
        next(paths_of(owner))


@pytest.mark.parametrize(
    "owner",
    [
        Owner("kubeflow.org/v1/../../../api/v1", "PyTorchJob", "ml", "a"),
        Owner("kubeflow.org/..", "PyTorchJob", "ml", "a"),
        Owner("batch/v1", "Job", "../kube-system", "a"),
        Owner("batch/v1", "Job", "", "a"),
    ],
)
def test_nor_does_anything_else_of_an_owner(owner: Owner) -> None:
    with pytest.raises(GangError, match="cannot exist"):
        next(paths_of(owner))


def test_no_other_module_builds_a_path_from_data() -> None:
    built = re.compile(r"""f["'][^"']*(/apis?\b|/namespaces/|\{(PATH|NODES|HYPERNODES|COLLECTION)\}/)""")
    found = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in (ROOT / "collector").rglob("*.py")
        for line in path.read_text().splitlines()
        if built.search(line)
    ]
    assert found == []


def test_the_path_of_a_group() -> None:
    assert group_path("resource.k8s.io") == "/apis/resource.k8s.io"
    assert group_path("resource.k8s.io", "v1beta2") == "/apis/resource.k8s.io/v1beta2"
    for parts in (("../api",), ("resource.k8s.io", "v1/../../api"), ("resource.k8s.io", "")):
        with pytest.raises(RejectedError):
            group_path(*parts)
