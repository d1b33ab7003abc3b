"""Where GPUs and NICs sit, on a tree of files."""

from pathlib import Path

import pytest
from hyperscout_agent.accelerators.pci_tree import read_pci_tree
from support.nvml import named, pci_device

GPU, NIC, VGA, NET = "0x030200", "0x020700", "0x030000", "0x020000"
NVIDIA, MELLANOX, INTEL = "0x10de", "0x15b3", "0x8086"


def gpu(sysfs: Path, path: str, numa: int | None = 0, driver: str = "nvidia", kind: str = GPU) -> None:
    pci_device(sysfs, sysfs / "devices" / path, NVIDIA, kind, numa, driver)


def nic(sysfs: Path, path: str, name: str, numa: int | None = 0, kind: str = "infiniband") -> None:
    named(sysfs, kind, name, pci_device(sysfs, sysfs / "devices" / path, MELLANOX, NIC, numa, "mlx5_core"))


def test_no_sysfs_at_all(tmp_path: Path) -> None:
    tree = read_pci_tree(tmp_path / "nowhere")
    assert (dict(tree.gpus), dict(tree.nics)) == ({}, {})
    assert tree.nearest_nics("0000:1b:00.0") == ()


def test_the_nic_behind_the_same_switch_is_nearest(tmp_path: Path) -> None:
    above = "pci0000:15/0000:15:01.0/0000:16:00.0"
    gpu(tmp_path, f"{above}/0000:17:00.0/0000:1b:00.0")
    nic(tmp_path, f"{above}/0000:17:01.0/0000:18:00.0", "mlx5_0")
    nic(tmp_path, "pci0000:15/0000:15:02.0/0000:19:00.0", "mlx5_1")
    nic(tmp_path, "pci0000:37/0000:37:01.0/0000:38:00.0", "mlx5_2")
    tree = read_pci_tree(tmp_path)
    assert tree.nearest_nics("0000:1b:00.0") == ("mlx5_0",)
    assert tree.gpus["0000:1b:00.0"].numa_node == 0
    assert tree.gpus["0000:1b:00.0"].driver == "nvidia"


def link(sysfs: Path, path: str, speed: str, lanes: str) -> None:
    folder = sysfs / "devices" / path
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "max_link_speed").write_text(f"{speed}\n")
    (folder / "current_link_width").write_text(f"{lanes}\n")


@pytest.mark.parametrize(
    ("gpu_link", "nic_link", "gbps"),
    [
        (("32.0 GT/s PCIe", "16"), ("32.0 GT/s PCIe", "16"), 504.1),  # 32 x 16 x 128/130
        (("32.0 GT/s PCIe", "16"), ("16.0 GT/s PCIe", "8"), 126.0),  # 16 x 8 x 128/130
        (("5 GT/s", "16"), ("32.0 GT/s PCIe", "16"), 64.0),  # 5 x 16 x 8/10
        (("64.0 GT/s PCIe", "16"), ("Unknown", "0"), 944.0),  # 64 x 16 x 236/256
        (("Unknown", "63"), ("32.0 GT/s PCIe", "255"), 0.0),
    ],
)
def test_the_slowest_link_between_gpu_and_nic(
    tmp_path: Path, gpu_link: tuple[str, str], nic_link: tuple[str, str], gbps: float
) -> None:
    above = "pci0000:15/0000:15:01.0"
    gpu(tmp_path, f"{above}/0000:1b:00.0")
    nic(tmp_path, f"{above}/0000:18:00.0", "mlx5_0")
    link(tmp_path, above, "2.5 GT/s PCIe", "1")  # above both: not between them
    link(tmp_path, f"{above}/0000:1b:00.0", *gpu_link)
    link(tmp_path, f"{above}/0000:18:00.0", *nic_link)
    assert read_pci_tree(tmp_path).nic_gbps("0000:1b:00.0") == gbps
    assert read_pci_tree(tmp_path).nic_gbps("0000:1c:00.0") == 0.0


def test_one_shared_step_beats_the_numa_node(tmp_path: Path) -> None:
    gpu(tmp_path, "pci0000:15/0000:1b:00.0", numa=1)
    nic(tmp_path, "pci0000:15/0000:18:00.0", "mlx5_0", numa=0)
    nic(tmp_path, "pci0000:37/0000:38:00.0", "mlx5_1", numa=1)
    assert read_pci_tree(tmp_path).nearest_nics("0000:1b:00.0") == ("mlx5_0",)


def test_a_tie_goes_to_the_numa_node_and_then_to_both(tmp_path: Path) -> None:
    """As on a Grace processor: every device has a root complex of its own."""
    gpu(tmp_path, "pci0008:00/0008:01:00.0", numa=0)
    gpu(tmp_path, "pci0018:00/0018:01:00.0", numa=1)
    gpu(tmp_path, "pci0020:00/0020:01:00.0", numa=None)
    for number in range(4):
        nic(tmp_path, f"pci000{number}:00/000{number}:01:00.0", f"mlx5_{number}", numa=number // 2)
    tree = read_pci_tree(tmp_path)
    assert tree.nearest_nics("0008:01:00.0") == ("mlx5_0", "mlx5_1")
    assert tree.nearest_nics("0018:01:00.0") == ("mlx5_2", "mlx5_3")
    assert tree.nearest_nics("0020:01:00.0") == ("mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3")
    assert tree.gpus["0020:01:00.0"].numa_node is None


def test_network_interfaces_count_where_there_is_no_rdma(tmp_path: Path) -> None:
    gpu(tmp_path, "pci0000:15/0000:1b:00.0")
    nic(tmp_path, "pci0000:15/0000:18:00.0", "eth0", kind="net")
    (tmp_path / "class/net/lo").mkdir()  # no device behind it
    virtio = tmp_path / "devices/pci0000:15/0000:19:00.0/virtio0"
    pci_device(tmp_path, virtio.parent, "0x1af4", NET, None, "virtio-pci")
    virtio.mkdir()
    named(tmp_path, "net", "eth1", virtio)
    platform = tmp_path / "devices/platform/usb0"
    platform.mkdir(parents=True)
    named(tmp_path, "net", "usb0", platform)
    tree = read_pci_tree(tmp_path)
    assert set(tree.nics) == {"eth0", "eth1"}
    assert tree.nics["eth1"].address == "0000:19:00.0"
    assert tree.nearest_nics("0000:1b:00.0") == ("eth0",)
    nic(tmp_path, "pci0000:37/0000:38:00.0", "mlx5_0")
    assert read_pci_tree(tmp_path).nearest_nics("0000:1b:00.0") == ("mlx5_0",)


def test_what_is_no_gpu_or_nic_of_this_host_is_left_out(tmp_path: Path) -> None:
    gpu(tmp_path, "pci0000:15/0000:1b:00.0", driver="vfio-pci")  # a virtual machine has it
    gpu(tmp_path, "pci0000:15/0000:1c:00.0", driver="", kind=VGA)
    gpu(tmp_path, "pci0000:15/0000:1c:00.1", kind="0x040300")  # its sound
    gpu(tmp_path, "pci0000:15/0000:05:00.0", kind="0x068000", driver="nvidia-nvswitch")
    pci_device(tmp_path, tmp_path / "devices/pci0000:00/0000:00:02.0", INTEL, VGA, 0, "i915")
    nic(tmp_path, "pci0000:15/0000:18:00.0", "mlx5_0")
    nic(tmp_path, "pci0000:15/0000:18:00.2", "mlx5_9")
    (tmp_path / "devices/pci0000:15/0000:18:00.2/physfn").symlink_to(
        tmp_path / "devices/pci0000:15/0000:18:00.0"
    )
    (tmp_path / "bus/pci/devices/0000:ff:00.0").symlink_to(tmp_path / "gone")
    tree = read_pci_tree(tmp_path)
    assert {at: x.driver for at, x in tree.gpus.items()} == {"0000:1c:00.0": ""}
    assert set(tree.nics) == {"mlx5_0"}
