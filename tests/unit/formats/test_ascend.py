"""The output of npu-smi and hccn_tool."""

import pytest
from hyperscout_formats.huawei.ascend import (
    Chip,
    SuperPod,
    parse_health,
    parse_link,
    parse_map,
    parse_super_pod,
)
from hyperscout_formats.text.errors import FormatError
from support.accelerators import NO_SUPER_POD, NPU_MAP, OLD_NPU_MAP, super_pod

NAME = "Ascend910"


def test_the_chips_of_an_atlas_900_a3() -> None:
    assert parse_map(NPU_MAP.encode()) == (
        Chip(0, 0, 0, NAME),
        Chip(0, 1, 1, NAME),
        Chip(1, 0, 2, NAME),
        Chip(1, 1, 3, NAME),
    )


def test_a_table_without_physical_numbers_and_one_with_slots() -> None:
    assert parse_map(OLD_NPU_MAP.encode()) == (Chip(8, 0, 0, "Ascend310P3"),)
    text = "NPU ID  Slot ID  Chip ID  Chip Phy-ID  Chip Name\n4  9  0  2  Ascend 950\n"
    assert parse_map(text.encode()) == (Chip(4, 0, 2, "Ascend 950"),)


BAD_MAPS = {
    "no table": ("dcmi module initialize failed. ret is -8005\n", "no table of chips"),
    "unknown columns": ("NPU ID  Chip ID  Chip Name\n0  0  x\n", "unknown columns"),
    "a short row": ("NPU ID  Chip ID  Chip Logic ID  Chip Name\n0  0  0\n", "expected 4 columns"),
    "no number": ("NPU ID  Chip ID  Chip Logic ID  Chip Name\nx  0  0  a\n", "expected numbers"),
    "a chip twice": (OLD_NPU_MAP + OLD_NPU_MAP.splitlines()[1] + "\n", "each of them once"),
}


@pytest.mark.parametrize("name", BAD_MAPS)
def test_other_maps_are_refused(name: str) -> None:
    text, why = BAD_MAPS[name]
    with pytest.raises(FormatError, match=why):
        parse_map(text.encode())


@pytest.mark.parametrize(
    ("text", "pod"),
    [
        (super_pod(3, 4), SuperPod(3, 4)),
        (super_pod(0, 0, 0), SuperPod(0, 0)),  # 0 is a super pod
        (super_pod(4294967295, 1023), SuperPod(None, None)),  # a server outside of super pods
        ("Super Pod ID : 5\nChassis ID : 2\n", SuperPod(5, None)),
        (NO_SUPER_POD, None),
    ],
)
def test_super_pods(text: str, pod: SuperPod | None) -> None:
    assert parse_super_pod(text.encode()) == pod


@pytest.mark.parametrize(
    "text", ["", "Super Pod ID : x\n", "Super Pod ID : 4294967296\n", super_pod(1) + super_pod(2)]
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(FormatError):
        parse_super_pod(text.encode())


def test_links_and_their_health() -> None:
    assert parse_link(b"link status: UP\n")
    assert not parse_link(b"link status: DOWN\n")
    assert parse_health(b"net health status: Success\n") == ""
    assert parse_health(b"net health status: Init\n") == "", "no address to ping is configured"
    assert parse_health(b"net health status: Fault\n") == "Fault"
    assert parse_health(b"net health status: Receive timeout\n") == "Receive timeout"
    for reader, text in ((parse_link, b"link status: ?\n"), (parse_link, b""), (parse_health, b"\n")):
        with pytest.raises(FormatError):
            reader(text)
