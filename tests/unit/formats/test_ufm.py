"""A UFM's answers as a sweep's text: quirks of its JSON, and that nothing of the fabric is lost."""

import contextlib
import json
from collections.abc import Mapping
from typing import Any

import pytest
from hyperscout_formats.infiniband import ibnetdiscover
from hyperscout_formats.managers import ufm
from hyperscout_formats.text.errors import FormatError
from hyperscout_formats.text.json_array import ArrayReader, objects
from hyperscout_sim.fabric.shapes import clos2, clos3
from hyperscout_sim.readings.ufm import ufm_answers
from hypothesis import given
from hypothesis import strategies as st

LEAF = "0c42a103009d7af6"
PORT = {
    "description": "Switch IB Port",
    "number": 5,
    "guid": LEAF,
    "systemID": LEAF,
    "system_name": "leaf-01",
    "node_description": "leaf-01:1/3/1",
    "physical_state": "Link Up",
    "logical_state": "Active",
    "active_speed": "NDR",
    "active_width": "4x",
    "peer": "0c42a103001b8256_1",
    "name": f"{LEAF}_5",
}
HOST = {
    "description": "Computer IB Port",
    "number": 1,
    "guid": "0c42a103001b8256",
    "systemID": "0c42a103001b8256",
    "system_name": "gpu-01",
    "node_description": "gpu-01 mlx5_0",
    "physical_state": "Link Up",
    "logical_state": "Active",
    "active_speed": "NDR",
    "active_width": "4x",
    "peer": f"{LEAF}_5",
    "dname": "HCA-1/1",
}
LINK = {
    "source_guid": LEAF,
    "source_port": "5",
    "destination_guid": "0c42a103001b8256",
    "destination_port": "1",
    "width": "IB_4x",
}


def read(*items: Mapping[str, Any]) -> ufm.Fabric:
    return ufm.parse(json.dumps(items).encode())


def cables(fabric: ufm.Fabric) -> set[tuple[str, int, str, int, float]]:
    """Every record of the text: own GUID, port, peer, port, rate."""
    sweep = ibnetdiscover.parse(fabric.text)
    assert not sweep.problems
    guid = [f"{x:016x}" for x in sweep.guid.tolist()]
    columns = sweep.device, sweep.port, sweep.peer, sweep.peer_port, sweep.rate_gbps
    rows = zip(*(x.tolist() for x in columns), strict=True)
    return {(guid[a], p, guid[b], q, rate) for a, p, b, q, rate in rows}


BOTH = {(LEAF, 5, "0c42a103001b8256", 1, 400.0), ("0c42a103001b8256", 1, LEAF, 5, 400.0)}


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        pytest.param([PORT, HOST], BOTH, id="each port names its peer"),
        pytest.param([PORT, HOST, LINK], BOTH, id="and a link says it again"),
        pytest.param([PORT | {"peer": "N/A"}, HOST | {"peer": ""}, LINK], BOTH, id="only a link says it"),
        pytest.param(
            [PORT, HOST | {"peer": None}], {row for row in BOTH if row[0] == LEAF}, id="one end alone"
        ),
        pytest.param(
            [PORT | {"number": "5", "active_width": "IB_4x"}, HOST], BOTH, id="older versions' words"
        ),
        pytest.param([PORT | {"guid": f"0x{LEAF}"}, HOST], BOTH, id="GUIDs with 0x"),
        pytest.param([PORT | {"physical_state": "Polling"}, HOST, LINK], set(), id="down by its state"),
        pytest.param([PORT, HOST | {"logical_state": "Down"}, LINK], set(), id="the other end is down"),
        pytest.param(
            [PORT | {"active_speed": "200GbE"}, HOST | {"active_speed": ""}],
            {(*row[:4], 0.0) for row in BOTH},
            id="no rate that is known",
        ),
        pytest.param([PORT | {"active_speed": None}, HOST], BOTH, id="the rate of the other end"),
    ],
)
def test_cables(items: list[Mapping[str, Any]], expected: object) -> None:
    assert cables(read(*items)) == expected


@pytest.mark.parametrize(
    ("items", "problem"),
    [
        ([PORT, HOST, PORT], "is listed twice"),
        ([PORT, HOST | {"number": 255}], "or a valid number"),
        ([PORT, HOST, {"guid": ""}], "expected a port, link or system"),
        ([PORT], "which is not among the ports"),
        ([PORT, HOST, LINK | {"destination_port": "x"}], "without two ends"),
        ([PORT, HOST, LINK | {"source_port": "6"}], "names the peer"),
        ([PORT, HOST, HOST | {"guid": "1", "description": "", "dname": ""}], "belongs neither to a switch"),
    ],
)
def test_what_is_passed_over_is_named(items: list[Mapping[str, Any]], problem: str) -> None:
    assert any(problem in str(x) for x in read(*items).problems)


def test_kinds_and_names() -> None:
    gateway = HOST | {
        "guid": "9",
        "description": "",
        "dname": "",
        "systemID": "99",
        "node_description": "gw-1",
    }
    named = read(
        PORT | {"system_name": "", "number": 7},
        PORT,
        HOST | {"node_description": 'a "quoted"\nname ' + "x" * 80},
        gateway,
        {"type": "Gateway", "system_guid": "99"},
    )
    sweep = ibnetdiscover.parse(named.text)
    assert list(sweep.descriptions) == ["leaf-01", "a  quoted  name " + "x" * 48, "gw-1"]
    assert sweep.kind.tolist() == [ibnetdiscover.SWITCH, ibnetdiscover.CA, ibnetdiscover.ROUTER]
    assert sweep.port_count.tolist() == [7, 1, 1]
    assert sweep.port_guid.max() == 0x0C42A103001B8256


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{}",
        b"[1]",
        b"[{}]",
        b'{"ports": 1}',
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b"\xff",
        b"[{",
        b"<html>",
    ],
)
def test_other_texts_are_refused(data: bytes) -> None:
    with pytest.raises(FormatError):
        ufm.parse(data)


def test_a_whole_fabric() -> None:
    fabric = clos3(2, 2, 3, 2, 2)
    answers = ufm_answers(fabric)
    whole = ufm.parse(json.dumps(answers).encode())
    assert not whole.problems
    assert (whole.switches, whole.adapters, whole.cables) == (
        len(fabric.switches),
        len(fabric.adapters),
        len(fabric.cables),
    )
    assert ufm.parse(json.dumps(answers["ports"]).encode()).text == whole.text
    shuffled = {"links": answers["links"], "ports": answers["ports"][::-1]}
    assert ufm.parse(json.dumps(shuffled).encode()).text == whole.text


@pytest.mark.slow
@given(st.integers(1, 4000), st.booleans())
def test_pieces_of_any_size(size: int, indented: bool) -> None:
    answers = ufm_answers(clos2(1, 2, 1))["ports"]
    answers[0]["system_name"] = "schön"
    text = json.dumps(answers, indent=2 if indented else None, ensure_ascii=False).encode()
    reader = ArrayReader("x")
    found = []
    for begin in range(0, len(text), size):
        found += reader.feed(text[begin : begin + size])
    reader.close()
    assert found == answers == list(objects(text, "x"))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@given(
    st.lists(
        st.tuples(st.sampled_from([PORT, HOST, LINK]), st.sampled_from(sorted(PORT | LINK)), json_values)
    )
)
def test_any_value_anywhere(changes: list[tuple[dict[str, Any], str, Any]]) -> None:
    items = [item | {key: value} for item, key, value in changes]
    try:
        fabric = ufm.parse(json.dumps(items).encode())
    except FormatError:
        return
    ibnetdiscover.parse(fabric.text)


@given(st.binary(max_size=60))
def test_any_bytes(data: bytes) -> None:
    for text in (data, b"[" + data, b"{" + data, json.dumps([PORT, HOST]).encode()[: len(data)] + data):
        with contextlib.suppress(FormatError):
            ufm.parse(text)


def test_an_object_that_is_too_large_or_has_a_bad_number_is_refused() -> None:
    reader = ArrayReader("ufm")
    assert list(reader.feed(b'[{"a": "')) == []
    with pytest.raises(FormatError, match="an object of more than 1048576 characters, or a damaged one"):
        list(reader.feed(b"x" * (2 << 20)))
    with pytest.raises(FormatError, match="an object with an invalid number or too many levels"):
        list(objects(b'[{"a": ' + b"9" * 5000 + b"}]", "ufm"))


def test_what_is_no_array_and_no_object_is_refused() -> None:
    for text in (b"3", b'"x"'):
        with pytest.raises(FormatError):
            ufm.parse(text)


def test_a_port_that_is_listed_twice_and_an_object_of_no_kind_are_named() -> None:
    found = ufm.parse(json.dumps([PORT, PORT, {"colour": "red"}]).encode())
    said = {problem.reason for problem in found.problems}
    assert said >= {
        f"port {LEAF}_5 is listed twice; the first is used",
        "expected a port, link or system, found an object with ['colour']",
    }
