"""NetBox's cables: JSON of its API, CSV of its import and of its table; what is no cable of the network."""

import json
from typing import Any

import pytest
from hyperscout_formats.cabling import netbox_csv, netbox_json
from hyperscout_formats.text.errors import FormatError
from support.cabling_files import NETBOX_HEADER, netbox_cable, netbox_end, rows
from support.cabling_files import netbox_json as answer

A, B = netbox_end("leaf-1", "swp1"), netbox_end("gpu-1", "eth0")
GOOD = netbox_cable(1, netbox_end("leaf-1", "swp9"), netbox_end("spine-1", "swp1"))
GOOD_ROW = ("leaf-1", "swp9", "spine-1", "swp1")
TABLE = "Label,Termination A,Termination B,Device A,Device B,Status"


def test_a_list_of_cables_is_read_as_a_page() -> None:
    for cables in ([GOOD], [GOOD | {"id": None, "status": "planned"}], [GOOD | {"status": None}]):
        assert rows(netbox_json.parse(json.dumps(cables).encode())) == [GOOD_ROW]
    assert netbox_json.parse(answer(GOOD)).cables[0].place.name == "cable 1"
    assert netbox_json.parse(answer(GOOD | {"id": None})).cables[0].place.name == "cable 1 of the list"


def test_the_port_of_a_breakout_cable_is_any_port() -> None:
    one = netbox_cable(2, A, B, netbox_end("gpu-2", "eth0"))
    other = one | {"a_terminations": one["b_terminations"], "b_terminations": one["a_terminations"]}
    assert rows(netbox_json.parse(answer(one))) == [
        ("leaf-1", "", "gpu-1", "eth0"),
        ("leaf-1", "", "gpu-2", "eth0"),
    ]
    assert rows(netbox_json.parse(answer(other))) == [
        ("gpu-1", "eth0", "leaf-1", ""),
        ("gpu-2", "eth0", "leaf-1", ""),
    ]


@pytest.mark.parametrize(
    ("cable", "reason"),
    [
        (netbox_cable(2, A, B, status="decommissioning"), "decommissioning"),
        (netbox_cable(2, A, netbox_end("pp-1", "1", "dcim.frontport")), "at a patch panel"),
        (netbox_cable(2, netbox_end("pp-1", "1", "dcim.rearport"), B), "at a patch panel"),
        (netbox_cable(2, A, {"object_type": "circuits.circuittermination"}), "at no network interface"),
        (netbox_cable(2, A), "without two ends"),
        (netbox_cable(2, A, B) | {"b_terminations": None}, "without two ends"),
        (netbox_cable(2, A, B) | {"b_terminations": []}, "without two ends"),
        (netbox_cable(2, A, B, B) | {"a_terminations": [A, A]}, "with several ends"),
    ],
)
def test_what_is_no_cable_of_the_network_is_counted(cable: Any, reason: str) -> None:
    found = netbox_json.parse(answer(GOOD, cable))
    assert (rows(found), found.left_out) == ([GOOD_ROW], {reason: 1})
    with pytest.raises(FormatError, match=f"no cable between two network ports; 1 {reason}"):
        netbox_json.parse(answer(cable))


NAMELESS = {"object_type": "dcim.interface", "object": {"device": {"name": None}, "name": "x"}}


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b'{"results": [{"a_terminations": ', "not JSON"),
        (
            answer(GOOD).replace(b'"next": null', b'"next": "https://x/?offset=50"'),
            "next: there are more pages",
        ),
        (b'{"results": {"a_terminations": []}}', "no list of cables"),
        (b'["x", {"a_terminations": []}]', "cable 1 of the list: not an object"),
        (answer(GOOD | {"a_terminations": "x"}), "cable 1: a_terminations: expected a list of objects"),
        (answer(GOOD | {"b_terminations": [3]}), "cable 1: b_terminations: expected a list of objects"),
        (answer(netbox_cable(7, A, {})), "cable 7: b_terminations.object_type: found no text"),
        (
            answer(netbox_cable(7, {"object_type": "dcim.interface"}, B)),
            "a_terminations.object.device: expected",
        ),
        (answer(netbox_cable(7, A, B) | {"b_terminations": False}), "b_terminations: expected a list"),
        (answer(netbox_cable(7, NAMELESS, B)), "a_terminations.object.device.name: found no text"),
        (answer(netbox_cable(7, A, netbox_end("x", "a\x07"))), "b_terminations.object.name: found 'a\\x07'"),
    ],
)
def test_an_error_of_json_has_its_field(data: bytes, reason: str) -> None:
    assert netbox_json.matches(data)
    with pytest.raises(FormatError) as caught:
        netbox_json.parse(data, "cables.json")
    assert reason in caught.value.reason
    assert caught.value.source == "cables.json"


def test_the_import_may_have_more_columns_in_any_order() -> None:
    text = (
        b"side_b_name;side_b_type;side_b_device;status;side_a_name;side_a_type;side_a_device;label\n"
        b'eth0;dcim.interface;gpu-1;planned;"swp;1";dcim.interface;leaf-1;x\n'
        b"eth1;dcim.interface;gpu-1;Decommissioning;swp2;dcim.interface;leaf-1;x\n"
        b"pwr;dcim.powerport;gpu-1;;2;dcim.poweroutlet;pdu-1\n"
    )
    assert netbox_csv.matches(text)
    found = netbox_csv.parse(text)
    assert rows(found) == [("leaf-1", "swp;1", "gpu-1", "eth0")]
    assert found.left_out == {"decommissioning": 1, "at no network interface": 1}
    assert found.cables[0].place.line == 2


def test_comments_before_the_header_are_skipped() -> None:
    text = f"# export, of today\n\n{NETBOX_HEADER}\nh1,dcim.interface,#1,l1,dcim.interface,1\n".encode()
    assert netbox_csv.matches(text)
    assert rows(netbox_csv.parse(text)) == [("h1", "#1", "l1", "1")]


def test_the_table_of_cables_is_read() -> None:
    text = (
        f"{TABLE}\n,swp1,eth0,leaf-1,gpu-1,Connected\n,swp2,,leaf-1,,Connected\n"
        ',swp3,"eth0,eth0",leaf-1,"gpu-3,gpu-2",Connected\n,swp4,eth0,leaf-1,gpu-4,Decommissioning\n'
    ).encode()
    assert netbox_csv.matches(text)
    found = netbox_csv.parse(text)
    assert rows(found) == [("leaf-1", "swp1", "gpu-1", "eth0")]
    assert found.left_out == {"without two ends": 1, "with several ends": 1, "decommissioning": 1}


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        (f"{NETBOX_HEADER}\n", 0, "no cable between two network ports"),
        (f"{NETBOX_HEADER}\nleaf-1,dcim.interface,swp1,gpu-1\n", 2, "side_b_type: found no text"),
        (f"{NETBOX_HEADER}\nleaf-1,dcim.interface,,gpu-1,dcim.interface,eth0\n", 2, "side_a_name: found ''"),
        (
            f"{NETBOX_HEADER}\n\nl\x1b,dcim.interface,1,g,dcim.interface,2\n",
            3,
            "side_a_device: found 'l\\x1b'",
        ),
        (f"{NETBOX_HEADER}\nleaf-1,dcim.interface,swp1,g,dcim.interface,e,0\n", 2, "7 cells: expected 6"),
        (f'{NETBOX_HEADER}\n"leaf-1"x,\n', 2, "not CSV: "),
        (f"{NETBOX_HEADER}\n{'x' * 200_000}\n", 2, "not CSV: field larger than field limit"),
        ("Termination A,Termination B,Status\nswp1,eth0,Connected\n", 1, "no column Device A, Device B"),
        (f"{TABLE}\n,swp1,eth0,leaf\x07,gpu-1,Connected\n", 2, "Device A: found 'leaf\\x07'"),
    ],
)
def test_an_error_of_csv_has_its_line_and_column(text: str, line: int, reason: str) -> None:
    assert netbox_csv.matches(text.encode())
    with pytest.raises(FormatError) as caught:
        netbox_csv.parse(text.encode(), "cables.csv")
    assert reason in caught.value.reason
    assert (caught.value.source, caught.value.line) == ("cables.csv", line)
