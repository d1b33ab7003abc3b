"""Amounts as Kubernetes writes them; what a pod asks for, as its scheduler counts it."""

import contextlib
import math
from fractions import Fraction

import pytest
from hyperscout_placer.cluster.quantity import QuantityError, amount, is_extended, needs
from hypothesis import given
from hypothesis import strategies as st

GI = 2**30


@pytest.mark.parametrize(
    ("resource", "text", "expected"),
    [
        ("cpu", "2", 2000),
        ("cpu", "1500m", 1500),
        ("cpu", "0.5", 500),
        ("cpu", ".5", 500),
        ("cpu", "5.", 5000),
        ("cpu", "100u", 1),  # a tenth of a millicore, rounded up
        ("cpu", "1n", 1),
        ("cpu", "0n", 0),
        ("cpu", "1k", 1_000_000),
        ("cpu", "1e-3", 1),
        ("memory", "64Gi", 64 * GI),
        ("memory", "1.5Gi", 3 * GI // 2),
        ("memory", "128974848", 128974848),
        ("memory", "129e6", 129_000_000),
        ("memory", "129E6", 129_000_000),
        ("memory", "1E", 10**18),
        ("memory", "3Ei", 3 * 2**60),
        ("memory", "128974848000m", 128974848),
        ("memory", "1m", 1),
        ("memory", "+1Ki", 1024),
        ("memory", "1Mi", 2**20),
        ("memory", "1M", 10**6),
        ("memory", "1Ti", 2**40),
        ("memory", "1T", 10**12),
        ("memory", "1Pi", 2**50),
        ("memory", "1P", 10**15),
        ("memory", "1G", 10**9),
        ("nvidia.com/gpu", "8", 8),
        ("nvidia.com/gpu", "-0", 0),
        ("pods", "1e-9999", 1),
        ("pods", "0e9999", 0),
        ("pods", str(2**62 - 1), 2**62 - 1),
    ],
)
def test_amount(resource: str, text: str, expected: int) -> None:
    assert amount(resource, text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        ".",
        "+",
        "Gi",
        "1 Gi",
        " 1",
        "1gi",
        "1K",
        "1mi",
        "-1",
        "-1m",
        "1e",
        "1e3.5",
        "1e3Ki",
        "0x10",
        "1_0",
        "١",
        "1e9999",
        "4Ei",
        "4.7E",
        str(2**62),
        "9" * 65,
        "1\n",
        "nan",
        "inf",
        "1e99999",
    ],
)
def test_what_is_no_amount_is_refused_by_name(text: str) -> None:
    with pytest.raises(QuantityError, match=r"^memory: "):
        amount("memory", text)


@given(st.text(alphabet="0123456789+-.eEnumkKMGTPi ", max_size=80) | st.text(max_size=20))
def test_any_text_is_an_amount_or_a_named_error(text: str) -> None:
    with contextlib.suppress(QuantityError):
        assert 0 <= amount("cpu", text) < 2**62


@given(
    st.integers(0, 10**6),
    st.integers(0, 999),
    st.sampled_from(
        [("n", -9), ("u", -6), ("m", -3), ("", 0), ("k", 3), ("M", 6), ("G", 9), ("e2", 2), ("E-4", -4)]
    ),
    st.booleans(),
)
def test_amounts_are_exact_and_rounded_up(whole: int, part: int, suffix: tuple[str, int], cpu: bool) -> None:
    text = f"{whole}.{part:03}{suffix[0]}"
    value = (whole + Fraction(part, 1000)) * Fraction(10) ** suffix[1] * (1000 if cpu else 1)
    assert amount("cpu" if cpu else "memory", text) == math.ceil(value)


def _container(
    restart: str | None = None, limits: dict[str, object] | None = None, **requests: object
) -> dict[str, object]:
    found: dict[str, object] = {"name": "c", "resources": {"requests": requests, "limits": limits or {}}}
    return found | ({"restartPolicy": restart} if restart else {})


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, {"pods": 1}),
        (
            {"containers": [_container(cpu="1"), _container(cpu="500m", memory="1Gi")]},
            {"cpu": 1500, "memory": GI, "pods": 1},
        ),
        # The largest init container, not the sum; each resource for itself.
        (
            {
                "initContainers": [_container(cpu="4", memory="1Ki"), _container(cpu="3")],
                "containers": [_container(cpu="1", memory="2Ki")],
            },
            {"cpu": 4000, "memory": 2048, "pods": 1},
        ),
        # A sidecar runs beside the containers and beside the init containers after it, not before it.
        (
            {
                "initContainers": [_container(cpu="4"), _container("Always", cpu="2"), _container(cpu="5")],
                "containers": [_container(cpu="1")],
            },
            {"cpu": 7000, "pods": 1},
        ),
        (
            {
                "initContainers": [
                    _container(cpu="6"),
                    _container("Always", cpu="2"),
                    _container("Always", cpu="1"),
                ],
                "containers": [_container(cpu="2")],
            },
            {"cpu": 6000, "pods": 1},
        ),
        (
            {"initContainers": [_container("Always", cpu="2")], "containers": [_container(cpu="2")]},
            {"cpu": 4000, "pods": 1},
        ),
        # The limit is the request where there is none; "0" is a request.
        (
            {"containers": [_container(limits={"nvidia.com/gpu": "8", "cpu": "9"}, cpu="1")]},
            {"cpu": 1000, "nvidia.com/gpu": 8, "pods": 1},
        ),
        ({"containers": [_container(limits={"cpu": "9"}, cpu="0")]}, {"pods": 1}),
        ({"containers": [_container(cpu="1")], "overhead": {"cpu": "250m"}}, {"cpu": 1250, "pods": 1}),
        # The pod's own level: replaces, for CPU, memory and huge pages alone; the overhead comes on top.
        (
            {
                "containers": [_container(cpu="1", memory="1", **{"nvidia.com/gpu": "2"})],
                "resources": {
                    "requests": {"cpu": "3", "nvidia.com/gpu": "9"},
                    "limits": {"memory": "5", "hugepages-2Mi": "4Mi"},
                },
                "overhead": {"cpu": "1m"},
            },
            {"cpu": 3001, "memory": 1, "nvidia.com/gpu": 2, "hugepages-2Mi": 4 * 2**20, "pods": 1},
        ),
        ({"resources": {"limits": {"memory": "5"}}}, {"memory": 5, "pods": 1}),
        # Templates within custom resources: plain numbers.
        (
            {"containers": [_container(cpu=2, memory=1.5, **{"nvidia.com/gpu": 8})]},
            {"cpu": 2000, "memory": 2, "nvidia.com/gpu": 8, "pods": 1},
        ),
        ({"containers": None, "initContainers": None, "overhead": None, "resources": None}, {"pods": 1}),
        (
            {"containers": [{"name": "c"}, {"resources": None}, {"resources": {"requests": None}}]},
            {"pods": 1},
        ),
    ],
)
def test_what_a_pod_asks_for(spec: dict[str, object], expected: dict[str, int]) -> None:
    assert needs(spec) == tuple(sorted(expected.items()))


@pytest.mark.parametrize(
    ("spec", "names"),
    [
        ({"containers": "x"}, "containers: expected a list"),
        ({"containers": [1]}, "containers: expected a list"),
        ({"containers": [{"resources": 1}]}, "containers[0].resources: expected requests"),
        ({"containers": [{}, _container(cpu="x")]}, "containers[1].resources.requests.cpu: 'x'"),
        (
            {"containers": [_container(limits={"memory": True})]},
            "containers[0].resources.limits.memory: expected",
        ),
        (
            {"initContainers": [_container(cpu=float("nan"))]},
            "initContainers[0].resources.requests.cpu: 'nan'",
        ),
        ({"overhead": [1]}, "overhead: expected resources by name"),
        ({"resources": "x"}, "resources: expected requests"),
        (
            {"containers": [_container(memory="3Ei"), _container(memory="3Ei")]},
            "memory: the pod's containers together",
        ),
        (
            {"containers": [_container(cpu=10**5000)]},
            "containers[0].resources.requests.cpu: 'a number of thou",
        ),
    ],
)
def test_junk_in_a_pod_is_named(spec: dict[str, object], names: str) -> None:
    with pytest.raises(QuantityError) as caught:
        needs(spec)
    assert str(caught.value).startswith(names)


_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=6)
    | st.sampled_from(["1", "2Gi", "Always"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "containers",
                    "initContainers",
                    "resources",
                    "requests",
                    "limits",
                    "overhead",
                    "cpu",
                    "memory",
                    "restartPolicy",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@given(st.dictionaries(st.sampled_from(["containers", "initContainers", "resources", "overhead"]), _JSON))
def test_any_pod_has_needs_or_a_named_error(spec: dict[str, object]) -> None:
    try:
        found = needs(spec)
    except QuantityError:
        return
    assert ("pods", 1) in found
    assert all(0 < value < 2**62 for _, value in found)
    assert list(found) == sorted(found)


def test_extended_resources_are_those_of_vendors() -> None:
    names = ["nvidia.com/gpu", "nvidia.com/mig-1g.10gb", "rdma/hca", "cpu", "hugepages-1Gi", "requests.cpu"]
    assert [is_extended(name) for name in names] == [True, True, True, False, False, False]
    assert not is_extended("attachable-volumes.kubernetes.io/x")
