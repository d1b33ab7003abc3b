"""Which interfaces ping, and at which addresses."""

import re
import socket
import struct
from pathlib import Path

import pytest
from hyperscout_agent.ping.interfaces import (
    PingInterface,
    parse_addresses,
    ping_interfaces,
    rdma_port,
    read_addresses,
)
from hypothesis import given
from hypothesis import strategies as st


def attribute(kind: int, value: bytes) -> bytes:
    raw = struct.pack("=HH", 4 + len(value), kind) + value
    return raw + bytes(-len(raw) % 4)


def message(address: str, *, index: int = 2, flags: int = 0x80, local: str = "", kind: int = 20) -> bytes:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    body = struct.pack("=BBBBi", family, 24, flags & 0xFF, 0, index)
    body += attribute(1, socket.inet_pton(family, address))
    if local:
        body += attribute(2, socket.inet_pton(family, local))
    body += attribute(8, struct.pack("=I", flags))
    return struct.pack("=IHHII", 16 + len(body), kind, 2, 1, 0) + body


@pytest.mark.parametrize(
    ("raw", "found"),
    [
        pytest.param(message("10.0.0.1"), [(2, "10.0.0.1")], id="IPv4"),
        pytest.param(message("fd00::1", index=7), [(7, "fd00::1")], id="IPv6"),
        pytest.param(message("10.0.0.9", local="10.0.0.1"), [(2, "10.0.0.1")], id="point to point"),
        pytest.param(message("fe80::1"), [], id="link-local"),
        pytest.param(message("169.254.3.4"), [], id="link-local, IPv4"),
        pytest.param(message("fd00::1", flags=0xC0), [], id="tentative"),
        pytest.param(message("fd00::1", flags=0x88), [], id="a duplicate"),
        pytest.param(message("fd00::1", flags=0xA0), [], id="deprecated"),
        pytest.param(message("fd00::1", flags=0x01), [], id="temporary"),
        pytest.param(
            message("10.0.0.1") + message("10.0.0.9", flags=0x81), [(2, "10.0.0.1")], id="secondary"
        ),
        pytest.param(message("10.0.0.1", kind=21), [], id="deleted"),
        pytest.param(message("10.0.0.1")[:30], [], id="cut short"),
        pytest.param(
            message("10.0.0.1") + message("10.0.0.2", index=3), [(2, "10.0.0.1"), (3, "10.0.0.2")], id="two"
        ),
    ],
)
def test_messages(raw: bytes, found: list[tuple[int, str]]) -> None:
    assert list(parse_addresses(raw)) == found


@given(st.binary(max_size=300) | st.binary(max_size=80).map(lambda x: message("10.0.0.1")[:20] + x))
def test_any_bytes(raw: bytes) -> None:
    list(parse_addresses(raw))


def test_the_kernel_tells_its_addresses() -> None:
    assert "127.0.0.1" in read_addresses()["lo"]


def port(sysfs: Path, name: str, **files: str) -> Path:
    folder = sysfs / "class/net" / name
    (folder / "device").mkdir(parents=True)
    for file, text in {"type": "1", "dev_port": "0", **files}.items():
        (folder / file).write_text(text + "\n")
    return folder


def test_the_fastest_ones_with_an_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fast = {"speed": "400000", "carrier": "1"}
    (port(tmp_path, "eth0", **fast) / "device/infiniband/mlx5_0").mkdir(parents=True)
    (port(tmp_path, "eth1", dev_port="1", **fast) / "device/infiniband/mlx4_0").mkdir(parents=True)
    port(tmp_path, "eth2", **fast)
    port(tmp_path, "eno1", speed="1000", carrier="1")
    (port(tmp_path, "bond0", **fast) / "bonding").mkdir(parents=True)
    (tmp_path / "class/net/bond0/device").rmdir()
    (tmp_path / "class/net/veth7").mkdir()
    names = ("eth0", "eth1", "eno1", "bond0", "veth7", "lo")
    addresses = {name: (f"10.0.0.{at}", f"fd00::{at}") for at, name in enumerate(names, 1)}
    monkeypatch.setattr("hyperscout_agent.ping.interfaces.read_addresses", lambda: addresses)
    assert ping_interfaces(tmp_path, None) == [
        PingInterface("bond0", ("10.0.0.4", "fd00::4")),
        PingInterface("eth0", ("10.0.0.1", "fd00::1"), "mlx5_0/1"),
        PingInterface("eth1", ("10.0.0.2", "fd00::2"), "mlx4_0/2"),
    ]
    assert [one.name for one in ping_interfaces(tmp_path, re.compile("veth.|lo"))] == ["lo", "veth7"]


def test_ports_of_unknown_speed_are_equals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A virtual machine in a cloud."""
    for name in ("ens3", "ens4"):
        port(tmp_path, name, speed="-1", carrier="1")
    monkeypatch.setattr(
        "hyperscout_agent.ping.interfaces.read_addresses",
        lambda: {"ens3": ("10.0.0.1",), "ens4": ("10.0.1.1",)},
    )
    assert [one.name for one in ping_interfaces(tmp_path, None)] == ["ens3", "ens4"]


@pytest.mark.parametrize("layer", ["InfiniBand", "Ethernet"])
def test_with_infiniband_only_what_goes_over_it_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layer: str
) -> None:
    port(tmp_path, "eth0", speed="100000", carrier="1")
    port(tmp_path, "ib0", type="32")
    port(tmp_path, "ib1", type="32")
    folder = tmp_path / "class/infiniband/mlx5_0/ports/1"
    folder.mkdir(parents=True)
    (folder / "link_layer").write_text(layer + "\n")
    monkeypatch.setattr(
        "hyperscout_agent.ping.interfaces.read_addresses",
        lambda: {"eth0": ("10.0.0.1",), "ib0": ("10.1.0.1",)},
    )
    expected = ["ib0"] if layer == "InfiniBand" else ["eth0"]
    assert [one.name for one in ping_interfaces(tmp_path, None)] == expected


@pytest.mark.parametrize("text", ["", "x", "99999999", "-1"])
def test_an_odd_number_of_a_port(tmp_path: Path, text: str) -> None:
    (port(tmp_path, "eth0", dev_port=text) / "device/infiniband/mlx5_0").mkdir(parents=True)
    assert rdma_port(tmp_path, "eth0") == ""
    assert rdma_port(tmp_path, "eth9") == ""
