"""The names of reporters: nodes of any cluster, switches, and agents of whole fabrics."""

import pytest
from hyperscout_formats.text.reporters import (
    cluster_of,
    device_of,
    is_cluster,
    is_fabric,
    is_node,
    is_reporter,
    is_switch,
    name_in_cluster,
    node_in,
)
from hypothesis import given
from hypothesis import strategies as st

NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,20}", fullmatch=True)
CLUSTERS = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,20}[a-z0-9])?", fullmatch=True).filter(is_cluster)


@given(st.just("") | CLUSTERS, NAMES)
def test_a_node_has_one_cluster_and_one_name(cluster: str, name: str) -> None:
    node = node_in(cluster, name)
    assert is_reporter(node)
    assert is_node(node)
    assert (cluster_of(node), name_in_cluster(node), device_of(node)) == (cluster, name, node)


@given(st.text(alphabet="ab/-.switchfabr", max_size=20))
def test_each_reporter_is_of_one_kind(text: str) -> None:
    if is_reporter(text):
        assert is_node(text) + is_switch(text) + is_fabric(text) == 1
        assert text.count("/") <= 1
        assert cluster_of(text) == "" or is_node(text)


@pytest.mark.parametrize(
    "text", ["", "switch/", "fabric/", "switch/a/b", "a/b/c", "/a", "a/", "A/b", "-a/b", "a" * 64 + "/b"]
)
def test_what_is_no_reporter(text: str) -> None:
    assert not is_reporter(text)


@pytest.mark.parametrize("text", ["", "switch", "fabric", "a/b", "A", "a.b", "-a", "a-", "a" * 64])
def test_what_is_no_cluster(text: str) -> None:
    assert not is_cluster(text)


def test_names_of_switches_and_fabrics_have_no_cluster() -> None:
    assert [cluster_of(x) for x in ("switch/leaf-01", "fabric/ufm", "gpu-01")] == ["", "", ""]
    assert [device_of(x) for x in ("switch/leaf-01", "fabric/ufm", "gpu-01")] == ["leaf-01", "ufm", "gpu-01"]
