"""What a machine lacks that cannot run the lab, and what is refused before anything is started."""

import ctypes
import json
import os
import tarfile
from pathlib import Path

import pytest
from lab import machines, needs, oci
from lab.__main__ import main
from lab.cluster import Lab
from lab.inside import LabError

SYSTEMD = """\
22 1 0:20 / /sys rw - sysfs sysfs rw
31 23 0:28 / /sys/fs/cgroup ro - tmpfs tmpfs ro,mode=755
32 31 0:29 / /sys/fs/cgroup/unified rw shared:9 - cgroup2 cgroup2 rw
33 31 0:30 / /sys/fs/cgroup/systemd rw shared:10 - cgroup cgroup rw,xattr,name=systemd
34 31 0:31 / /sys/fs/cgroup/cpu,cpuacct rw shared:15 - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 / /sys/fs/cgroup/net_cls,net_prio rw shared:16 - cgroup cgroup rw,net_cls,net_prio
36 31 0:33 / /sys/fs/cgroup/memory rw shared:17 - cgroup cgroup rw,memory
37 31 0:33 / /elsewhere/memory rw shared:17 - cgroup cgroup rw,memory
"""


def test_hierarchies_are_found_with_the_controllers_that_they_share() -> None:
    found = needs.hierarchies(SYSTEMD)
    assert [(one.options, one.name, str(one.folder)) for one in found] == [
        ("none,name=systemd", "systemd", "/sys/fs/cgroup/systemd"),
        ("cpu,cpuacct", "cpu,cpuacct", "/sys/fs/cgroup/cpu,cpuacct"),
        ("memory", "memory", "/sys/fs/cgroup/memory"),
    ]
    assert needs.hierarchies("") == ()


def test_a_user_that_is_not_root_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "not root" in (needs.lack_of_machine() or "")


@pytest.mark.parametrize(
    ("mounted", "unified", "said"),
    [
        ("", True, "cgroup version 2"),
        ("", False, "no cgroup controllers cpu, cpuacct, cpuset, memory, devices, freezer, blkio, pids"),
        (SYSTEMD, True, "no cgroup controllers cpuset, devices, freezer, blkio, pids"),
    ],
)
def test_a_machine_without_the_cgroups_is_told_which(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mounted: str, unified: bool, said: str
) -> None:
    found = needs.hierarchies(mounted)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(needs, "hierarchies", lambda: found)
    monkeypatch.setattr(needs, "CGROUP_ROOT", tmp_path)
    if unified:
        (tmp_path / "cgroup.controllers").touch()
    assert said in (needs.lack_of_machine() or "")


def test_what_is_not_built_is_named_with_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(needs, "lack_of_machine", lambda: None)
    monkeypatch.setattr(needs.assets, "find", lambda name: None if name == "kubelet" else Path("/bin/true"))
    monkeypatch.setattr(needs, "packages_missing", lambda: ("runc",))
    assert needs.lack() == "kubelet, runc not found: run `make lab-assets`"
    with pytest.raises(LabError, match="no lab can run here: kubelet, runc not found"):
        Lab(tmp_path / "lab").start()
    assert not (tmp_path / "lab").exists()


def test_without_apt_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(needs, "packages_missing", lambda: ("runc", "containernetworking-plugins"))
    assert needs.fetch_packages() == 1
    said = capsys.readouterr().err
    assert "runc containernetworking-plugins come from Debian packages" in said
    assert "/opt/cni/bin" in said


@pytest.mark.parametrize("folder", ["/run/lab", "/var/lib/x/lab", "/dev/shm/lab"])
def test_a_folder_that_a_machine_has_its_own_of_is_refused(
    monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    monkeypatch.setattr(needs, "lack", lambda: None)
    with pytest.raises(LabError, match="choose another folder"):
        Lab(Path(folder)).start()
    assert not Path(folder).exists()


def test_an_image_that_is_not_there_is_named_before_anything_is_started(tmp_path: Path) -> None:
    with pytest.raises(LabError, match=r"no such image: .*gone\.tar"):
        Lab(tmp_path / "lab", images=[tmp_path / "gone.tar"]).start()
    assert not (tmp_path / "lab").exists()


@pytest.mark.parametrize(
    ("nodes", "used", "fits"), [(7, 58, True), (7, 59, False), (1, 118, True), (0, 500, True)]
)
def test_more_nodes_than_the_kernel_lets_be_watched_are_refused(nodes: int, used: int, fits: bool) -> None:
    trouble = needs.inotify_trouble(nodes, used, 128)
    assert (trouble is None) is fits
    if trouble:
        assert f"{used} of 128 are in use" in trouble
        assert "fs.inotify.max_user_instances" in trouble


def test_inotify_instances_are_counted() -> None:
    libc = ctypes.CDLL(None)
    opened = [libc.inotify_init1(0) for _ in range(3)]
    try:
        assert needs._inotify_used(str(os.getpid())) >= 3
    finally:
        for fd in opened:
            os.close(fd)


def test_names() -> None:
    assert [machines.number_of(name) for name in ("node1", "node80")] == [1, 80]
    for name in ("node0", "node81", "node", "node1x", "leaf1", "node-1", ""):
        with pytest.raises(ValueError, match="nodes are named node1 to node80"):
            machines.number_of(name)
    for name in ("leaf-a1", "x" * 13):
        machines.check_name(name)
    for name in ("", "x" * 14, "a b", "a;b", "../a", "a/b"):
        with pytest.raises(ValueError, match="13 at most"):
            machines.check_name(name)


def test_an_image_is_the_same_each_time_and_says_its_name(tmp_path: Path) -> None:
    made = [
        oci.write(tmp_path / name, "lab.local/x:2", {"x": b"x"}, {"bin/y": "../x"}, ["/x"]) for name in "ab"
    ]
    assert made[0].read_bytes() == made[1].read_bytes()
    with tarfile.open(made[0]) as tar:
        index = json.load(tar.extractfile("index.json"))  # type: ignore[arg-type]
        digests = {name.rpartition("/")[2] for name in tar.getnames() if name.startswith("blobs/")}
    (manifest,) = index["manifests"]
    assert manifest["annotations"]["io.containerd.image.name"] == "lab.local/x:2"
    assert manifest["digest"].removeprefix("sha256:") in digests
    assert len(digests) == 3


@pytest.mark.parametrize(
    "words", [["down"], ["status"], ["kill", "node1"], ["kubectl", "get", "nodes"], ["exec", "node1", "ls"]]
)
def test_the_command_line_says_that_no_lab_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    assert main(["--folder", str(tmp_path / "none"), *words]) == 1
    assert f"lab: {tmp_path / 'none'}: no lab runs there" in capsys.readouterr().err
    assert not (tmp_path / "none").exists()


def test_the_command_line_refuses_and_helps(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["--folder", str(tmp_path), "up", "--nodes", "99"]) == 1
    assert "--nodes 99: 0 to 80" in capsys.readouterr().err
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    said = capsys.readouterr().out
    for word in ("up", "down", "status", "kubectl", "exec", "kill", "revive", "add", "import", "assets"):
        assert f"    {word}" in said or f"lab {word}" in said
