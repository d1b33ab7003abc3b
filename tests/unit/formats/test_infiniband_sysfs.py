"""A host's own RDMA ports, from trees of files."""

import pytest
from hyperscout_formats.facts.facts import InfinibandPort
from hyperscout_formats.infiniband.sysfs import MAX_PORTS, parse

TREE = {
    "mlx5_0/node_guid": b"0002:c903:0008:0e84\n",
    "mlx5_0/sys_image_guid": b"0002:c903:0008:0e87\n",
    "mlx5_0/node_desc": b"node-0001 mlx5_0\n",
    "mlx5_0/board_id": b"MT_0000000223\n",
    "mlx5_0/ports/1/state": b"4: ACTIVE\n",
    "mlx5_0/ports/1/phys_state": b"5: LinkUp\n",
    "mlx5_0/ports/1/rate": b"200 Gb/sec (4X HDR)\n",
    "mlx5_0/ports/1/lid": b"0x48\n",
    "mlx5_0/ports/1/sm_lid": b"0x1\n",
    "mlx5_0/ports/1/link_layer": b"InfiniBand\n",
    "mlx5_0/ports/1/gids/0": b"fe80:0000:0000:0000:0002:c903:0008:0e85\n",
    "mlx5_0/ports/1/counters/link_downed": b"7\n",
}
PORT = InfinibandPort(
    device="mlx5_0",
    port=1,
    node_guid=0x0002C90300080E84,
    port_guid=0x0002C90300080E85,
    system_image_guid=0x0002C90300080E87,
    state="ACTIVE",
    physical_state="LinkUp",
    rate_gbps=200.0,
    lid=0x48,
    sm_lid=1,
    node_description="node-0001 mlx5_0",
    link_layer="InfiniBand",
    board_id="MT_0000000223",
    link_downed=7,
)


def with_port(name: str, content: bytes | None) -> dict[str, bytes]:
    tree = {key: value for key, value in TREE.items() if not key.endswith("/" + name)}
    return tree if content is None else {**tree, f"mlx5_0/ports/1/{name}": content}


def with_device(name: str, content: bytes) -> dict[str, bytes]:
    return {**TREE, f"mlx5_0/{name}": content}


def renamed(device: str) -> dict[str, bytes]:
    return {key.replace("mlx5_0", device): value for key, value in TREE.items()}


def test_a_port() -> None:
    assert parse(TREE) == ((PORT,), ())


@pytest.mark.parametrize(
    ("tree", "field", "value"),
    [
        (with_port("state", b"1: DOWN\n"), "state", "DOWN"),
        (with_port("state", b"2: INIT\n"), "state", "INIT"),
        (with_port("state", b"5: ACTIVE_DEFER\n"), "state", "ACTIVE_DEFER"),
        (with_port("phys_state", b"3: Disabled\n"), "physical_state", "Disabled"),
        (with_port("phys_state", b"7: Phy Test\n"), "physical_state", "Phy Test"),
        (with_port("phys_state", None), "physical_state", ""),
        (with_port("rate", b"2.5 Gb/sec (1X SDR)\n"), "rate_gbps", 2.5),
        (with_port("rate", b"400 Gb/sec (4X NDR)\r\n"), "rate_gbps", 400.0),
        (with_port("rate", b""), "rate_gbps", 0.0),
        (with_port("lid", b"0xFFFF\n"), "lid", 0xFFFF),
        (with_port("sm_lid", None), "sm_lid", 0),
        (with_port("gids/0", None), "port_guid", 0),
        (with_port("counters/link_downed", None), "link_downed", 0),
        (with_port("counters/link_downed", b"4294967295\n"), "link_downed", 2**32 - 1),
        (with_port("link_layer", b"Ethernet\n"), "port_guid", 0),  # RoCE: GIDs are addresses
        (with_device("node_desc", b"a\x1b[0m\xff\n"), "node_description", "a [0m\ufffd"),
        (with_device("node_desc", b"x" * 10_000), "node_description", "x" * 4096),
        (with_device("board_id", b""), "board_id", ""),
        (with_device("sys_image_guid", b""), "system_image_guid", 0),
        (with_device("device", b"/sys/devices/pci0000:15/0000:18:00.0"), "pci_address", "0000:18:00.0"),
        (with_device("device", b"/sys/devices/pci0000:15/0000:18:00.0"), "pcie_root", "pci0000:15"),
        (with_device("device", b"/sys/devices/\xff"), "pci_address", ""),
        (with_device("device/numa_node", b"1\n"), "numa_node", 1),
        (with_device("device/numa_node", b"-1\n"), "numa_node", None),
        (with_device("device/numa_node", b"1024\n"), "numa_node", None),
        (with_device("device/numa_node", b"\xb2\n"), "numa_node", None),
    ],
)
def test_a_file_that_says_otherwise(tree: dict[str, bytes], field: str, value: object) -> None:
    (port,), problems = parse(tree)
    assert getattr(port, field) == value
    assert problems == ()


@pytest.mark.parametrize(
    ("tree", "part"),
    [
        (with_port("state", None), "state is missing"),
        (with_port("state", b"ACTIVE\n"), "unexpected state 'ACTIVE'"),
        (with_port("link_layer", b"\n"), "link_layer is missing"),
        (with_port("lid", b"72\n"), "unexpected lid "),
        (with_port("rate", b"fast\n"), "unexpected rate "),
        (with_port("rate", b"\xff" * 10_000), "unexpected rate "),
        (with_port("gids/0", b"fe80::1\n"), "unexpected gids/0 "),
        (with_port("counters/link_downed", b"-1\n"), "unexpected counters/link_downed "),
        (with_port("counters/link_downed", b"9" * 30), "unexpected counters/link_downed "),
        (with_device("node_guid", b"0000:0000:0000:0000\n"), "node_guid is 0"),
        (with_device("node_guid", b"\n"), "node_guid is missing"),
        (with_device("node_guid", b"2c90300080e84\n"), "unexpected node_guid "),
    ],
)
def test_a_port_that_cannot_be_read(tree: dict[str, bytes], part: str) -> None:
    ports, problems = parse({**tree, **renamed("mlx5_1")}, "sysfs")
    assert [port.device for port in ports] == ["mlx5_1"]
    (problem,) = problems
    assert problem.source == "sysfs"
    assert problem.reason.startswith("mlx5_0/ports/1: ")
    assert part in problem.reason


def test_order_is_that_of_numbers() -> None:
    tree = renamed("mlx5_10") | renamed("mlx5_2") | renamed("hfi1_0")
    tree |= {key.replace("ports/1/", "ports/2/"): value for key, value in renamed("mlx5_2").items()}
    ports, problems = parse(tree)
    assert [(port.device, port.port) for port in ports] == [
        ("hfi1_0", 1),
        ("mlx5_2", 1),
        ("mlx5_2", 2),
        ("mlx5_10", 1),
    ]
    assert problems == ()


@pytest.mark.parametrize("path", ["x", "a/ports/x/state", "a/ports/1", "a/b/1/state", "a/ports/²/state"])
def test_other_paths_are_passed_over(path: str) -> None:
    assert parse({path: b"1"}) == ((), ())


def test_the_number_of_ports_is_bounded() -> None:
    tree = {f"mlx5_{i}/ports/1/state": b"x" for i in range(MAX_PORTS + 5)}
    ports, problems = parse(tree)
    assert ports == ()
    assert len(problems) == 101
