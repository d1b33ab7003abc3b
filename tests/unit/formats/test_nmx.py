"""NVLink domains as their manager tells of them: partitions, hosts without GPUs, quirks."""

import contextlib
import json
from typing import Any

import pytest
from hyperscout_formats.managers import nmx
from hyperscout_formats.text.errors import FormatError
from hypothesis import given
from hypothesis import strategies as st

NODE = {"ID": "n1", "Name": "tray-01", "DomainUUID": "D-1", "GpuIDList": ["g1"]}
GPU = {"ID": "g1", "DeviceID": 3, "DomainUUID": "D-1", "PartitionID": 7, "Health": "HEALTHY"}


def read(nodes: Any, gpus: Any = ()) -> dict[str, list[tuple[str, str, int]]]:
    """By host: address, domain and clique of each GPU."""
    found = nmx.parse(json.dumps({nmx.NODES: nodes, nmx.GPUS: gpus}).encode())
    return {
        host: [(gpu.pci_address, gpu.fabric.cluster_uuid, gpu.fabric.clique_id) for gpu in mine if gpu.fabric]
        for host, mine in found.gpus.items()
    }


@pytest.mark.parametrize(
    ("nodes", "gpus", "expected"),
    [
        ([NODE], [GPU], [("GPU 3", "d-1", 7)]),
        ([NODE], [], [("all GPUs", "d-1", 0)]),
        ([NODE | {"GpuIDList": None}], [GPU], [("all GPUs", "d-1", 0)]),
        ([NODE], [GPU | {"PartitionID": "7", "DomainUUID": ""}], [("GPU 3", "d-1", 7)]),
        ([NODE], [GPU | {"PartitionID": -1, "DeviceID": None}], [("all GPUs", "d-1", 0)]),
        ([NODE], [GPU | {"DomainUUID": "D-2"}], [("GPU 3", "d-2", 7)]),
    ],
)
def test_domains(nodes: Any, gpus: Any, expected: Any) -> None:
    assert read(nodes, gpus) == {"tray-01": expected}


def test_a_saved_answer_alone() -> None:
    assert list(nmx.parse(json.dumps([NODE]).encode()).gpus) == ["tray-01"]


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        (NODE, "a second compute node 'tray-01'"),
        (NODE | {"Name": ""}, "without a name or a domain"),
        (
            NODE | {"Name": "x", "DomainUUID": "00000000-0000-0000-0000-000000000000"},
            "without a name or a domain",
        ),
        (NODE | {"Name": "x", "GpuIDList": [str(n) for n in range(129)]}, "129 GPUs; only 128 are kept"),
    ],
)
def test_what_is_passed_over_is_named(more: Any, problem: str) -> None:
    (found,) = nmx.parse(json.dumps([NODE, more]).encode()).problems
    assert problem in str(found)


@pytest.mark.parametrize(
    "data", [b"", b"{}", b"[]", b"7", b"\xff", b"[" * 100_000, b'{"a":' * 100_000, b"[{}]"]
)
def test_other_texts_are_refused(data: bytes) -> None:
    with pytest.raises(FormatError):
        nmx.parse(data)


def test_the_text_has_nothing_that_changes_while_the_domains_do_not() -> None:
    gpus = [GPU, GPU | {"ID": "g2"}]
    nodes = [NODE | {"GpuIDList": ["g1", "g2"]}, NODE | {"ID": "n2", "Name": "tray-02"}]
    again = [nodes[1] | {"UpdatedAt": "x"}, nodes[0] | {"GpuIDList": ["g2", "g1"], "Description": "y"}]
    assert nmx.text(nodes, gpus) == nmx.text(again, [x | {"LIDs": [3]} for x in gpus[::-1]])
    assert nmx.text(nodes, gpus) != nmx.text(nodes, [GPU, GPU | {"ID": "g2", "PartitionID": 8}])


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@given(
    st.lists(st.tuples(st.sampled_from([NODE, GPU]), st.sampled_from(sorted(NODE | GPU)), json_values)),
    st.binary(max_size=40),
)
def test_any_value_anywhere(changes: list[tuple[dict[str, Any], str, Any]], data: bytes) -> None:
    items = [item | {key: value} for item, key, value in changes]
    for text in (nmx.text(items, items), json.dumps(items).encode(), data):
        with contextlib.suppress(FormatError):
            nmx.parse(text)


def test_more_nodes_than_there_can_be_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nmx, "MAX_NODES", 2)
    with pytest.raises(FormatError, match="3 compute nodes; expected at most 2"):
        read([NODE] * 3)
