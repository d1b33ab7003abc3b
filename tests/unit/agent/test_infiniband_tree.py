"""The files of /sys/class/infiniband, from trees of files."""

from pathlib import Path

import pytest
from hyperscout_agent.runtime import infiniband_tree
from hyperscout_agent.runtime.infiniband_tree import read_tree

TREE = {
    "mlx5_0/node_guid": b"0002:c903:0008:0e84\n",
    "mlx5_0/node_desc": b"node-0001 mlx5_0\n",
    "mlx5_0/ports/1/state": b"4: ACTIVE\n",
    "mlx5_0/ports/1/rate": b"200 Gb/sec (4X HDR)\n",
    "mlx5_0/ports/1/lid": b"0x48\n",
    "mlx5_0/ports/1/gids/0": b"fe80:0000:0000:0000:0002:c903:0008:0e85\n",
    "mlx5_0/ports/1/counters/link_downed": b"7\n",
}


def written(root: Path, tree: dict[str, bytes]) -> Path:
    for path, content in tree.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(content)
    return root


def test_a_tree_of_files(tmp_path: Path) -> None:
    extra = {
        "mlx5_0/ports/1/gids/1": b"no",
        "mlx5_0/fw_ver": b"no",
        "abi_version": b"1\n",
        "uverbs0/dev": b"no",
    }
    assert read_tree(written(tmp_path, {**TREE, **extra})) == TREE


def test_a_device_in_a_slot_and_a_virtual_function(tmp_path: Path) -> None:
    root = written(tmp_path / "class", {**TREE, "mlx5_1/ports/1/state": b"4: ACTIVE\n"})
    slots = [tmp_path / f"devices/pci0000:15/0000:18:00.{n}" for n in (0, 2)]
    for device, slot in zip(("mlx5_0", "mlx5_1"), slots, strict=True):
        slot.mkdir(parents=True)
        (root / device / "device").symlink_to(slot)
    (slots[1] / "physfn").symlink_to(slots[0])
    found = read_tree(root)
    assert found["mlx5_0/device"] == str(slots[0]).encode()
    assert "mlx5_1/device" not in found


def test_no_rdma_is_nothing(tmp_path: Path) -> None:
    assert read_tree(tmp_path / "absent") == {}
    assert read_tree(tmp_path) == {}


def test_what_is_read_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = {**TREE, "mlx5_0/node_desc": b"x" * 100_000}
    assert len(read_tree(written(tmp_path, tree))["mlx5_0/node_desc"]) == 4096
    monkeypatch.setattr(infiniband_tree, "MAX_FILES", 5)
    assert len(read_tree(tmp_path)) == 5


def test_a_file_that_cannot_be_read_is_left_out(tmp_path: Path) -> None:
    written(tmp_path, TREE)
    (tmp_path / "mlx5_0/ports/1/rate").unlink()
    (tmp_path / "mlx5_0/ports/1/rate").mkdir()  # reading it is an OSError, as EIO is
    (tmp_path / "mlx5_0/ports/1/lid").unlink()
    (tmp_path / "mlx5_0/ports/1/lid").symlink_to("nowhere")
    assert set(TREE) - set(read_tree(tmp_path)) == {"mlx5_0/ports/1/rate", "mlx5_0/ports/1/lid"}
