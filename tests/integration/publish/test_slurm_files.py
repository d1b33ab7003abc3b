"""Slurm's files: rewritten on change only, whole, and the hook runs for each change until it succeeds."""

import asyncio
import contextlib
import errno
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hyperscout_publish.publisher.base import PublishError
from hyperscout_publish.slurm.publisher import SlurmFilesPublisher
from hyperscout_publish.slurm.text import SlurmOptions, slurm_block, slurm_tree, slurm_yaml
from hyperscout_topology.topology import Adapter, Condition, Topology
from support.builders import hypernode
from support.fake_time import FakeTime
from support.nccl_stubs import alive
from support.topologies import leaves, placed, two_leaves
from support.waiting import TIMEOUT_S, eventually


def files(folder: Path) -> dict[str, Path]:
    return {
        "tree": folder / "topology.conf",
        "block": folder / "block.conf",
        "yaml": folder / "topology.yaml",
    }


def python(code: str) -> str:
    """A hook that is a Python program; no shell takes the quotes apart."""
    return f"{sys.executable} -c '{code}'"


def counting(folder: Path, then: str = "") -> str:
    """A hook that leaves a line each time."""
    return python(f'open("{folder}/runs", "a").write("ran\\n"); {then}')


def runs(folder: Path) -> int:
    path = folder / "runs"
    return len(path.read_text().splitlines()) if path.exists() else 0


async def test_all_three_texts_are_those_of_the_command_line(tmp_path: Path) -> None:
    await SlurmFilesPublisher(files(tmp_path)).publish(two_leaves())
    for path, writer in zip(files(tmp_path).values(), (slurm_tree, slurm_block, slurm_yaml), strict=True):
        assert path.read_text() == "".join(writer(two_leaves()))
    assert len(list(tmp_path.iterdir())) == 3, "and nothing beside them"


async def test_the_hook_runs_after_a_change_and_never_without_one(tmp_path: Path) -> None:
    publisher = SlurmFilesPublisher(files(tmp_path), counting(tmp_path))
    await publisher.publish(two_leaves())
    assert runs(tmp_path) == 1
    sick = replace(two_leaves().hypernodes[0], conditions=(Condition("Degraded", "True", "X", "y"),))
    await publisher.publish(replace(two_leaves(), hypernodes=(sick, *two_leaves().hypernodes[1:])))
    assert runs(tmp_path) == 1, "conditions are no change of the tree"
    await publisher.publish(leaves(("n01",), ("n02",)))
    assert runs(tmp_path) == 2
    again = SlurmFilesPublisher(files(tmp_path), counting(tmp_path))
    await again.publish(leaves(("n01",), ("n02",)))
    assert runs(tmp_path) == 2, "a restart finds the files right"
    assert not [path.name for path in tmp_path.iterdir() if path.name.startswith(".")]


async def test_a_node_that_loses_its_evidence_changes_the_file(tmp_path: Path) -> None:
    publisher = SlurmFilesPublisher(files(tmp_path), counting(tmp_path))
    await publisher.publish(two_leaves())
    await publisher.publish(replace(two_leaves(), nodes_without_evidence=("n08", "n09")))
    assert "SwitchName=no-topology Nodes=n[08-09]\n" in files(tmp_path)["tree"].read_text()
    assert runs(tmp_path) == 2


async def test_given_block_sizes_are_written(tmp_path: Path) -> None:
    options = SlurmOptions(block_sizes=(2,))
    await SlurmFilesPublisher(files(tmp_path), options=options).publish(two_leaves())
    assert files(tmp_path)["block"].read_text().endswith("BlockSizes=2\n")


async def test_changes_within_the_interval_are_one_change(tmp_path: Path) -> None:
    time = FakeTime()
    publisher = SlurmFilesPublisher(files(tmp_path), counting(tmp_path), interval_s=60, timer=time.clock)
    await publisher.publish(two_leaves())
    assert runs(tmp_path) == 1, "the first change does not wait"
    before = files(tmp_path)["tree"].read_text()
    for topology in (leaves(("n01",)), leaves(("n01",), ("n02",))):
        time.now_s += 29
        await publisher.publish(topology)
        assert files(tmp_path)["tree"].read_text() == before
        assert publisher.notice is None, "a short wait is no problem"
    time.now_s += 2
    await publisher.publish(leaves(("n01",), ("n02",)))
    assert files(tmp_path)["tree"].read_text() == "".join(slurm_tree(leaves(("n01",), ("n02",))))
    assert (runs(tmp_path), publisher.notice) == (2, None)


async def test_a_long_wait_is_reported(tmp_path: Path) -> None:
    time = FakeTime()
    publisher = SlurmFilesPublisher(files(tmp_path), counting(tmp_path), interval_s=3600, timer=time.clock)
    for topology in (two_leaves(), leaves(("n01",))):
        await publisher.publish(topology)
    assert "is written slurm_hook_interval_s after the last run" in (publisher.notice or "")
    await publisher.publish(two_leaves())
    assert publisher.notice is None


async def test_the_publisher_wakes_at_the_end_of_the_interval(tmp_path: Path) -> None:
    time = FakeTime()
    hook = counting(tmp_path)
    publisher = SlurmFilesPublisher(files(tmp_path), hook, interval_s=0.01, timer=time.clock)
    woken = asyncio.Event()
    publisher.wake.subscribe(woken.set)
    await publisher.publish(two_leaves())
    await publisher.publish(leaves(("n01",)))
    assert runs(tmp_path) == 1
    async with asyncio.timeout(TIMEOUT_S):
        await woken.wait()
    time.now_s += 0.01
    await publisher.publish(leaves(("n01",)))
    assert runs(tmp_path) == 2


async def test_a_change_that_is_undone_within_the_interval_changes_nothing(tmp_path: Path) -> None:
    time = FakeTime()
    publisher = SlurmFilesPublisher(files(tmp_path), counting(tmp_path), interval_s=60, timer=time.clock)
    for topology in (two_leaves(), leaves(("n01",)), two_leaves()):
        await publisher.publish(topology)
        time.now_s += 30
    await publisher.publish(two_leaves())
    assert runs(tmp_path) == 1


async def test_a_failed_hook_is_repeated_without_the_interval(tmp_path: Path) -> None:
    time = FakeTime()
    failing = counting(tmp_path, "import sys; sys.exit(1)")
    publisher = SlurmFilesPublisher(files(tmp_path), failing, interval_s=60, timer=time.clock)
    for _ in range(2):
        with pytest.raises(PublishError):
            await publisher.publish(two_leaves())
    assert runs(tmp_path) == 2


async def test_what_is_undone_after_a_failed_hook_is_written_again(tmp_path: Path) -> None:
    hook = python(f'import os, sys; sys.exit(os.path.exists("{tmp_path}/down"))')
    time = FakeTime()
    publisher = SlurmFilesPublisher(files(tmp_path), hook, timer=time.clock)
    await publisher.publish(two_leaves())
    (tmp_path / "down").touch()
    with pytest.raises(PublishError):
        await publisher.publish(leaves(("n01",)))
    for _ in range(2):
        with pytest.raises(PublishError):
            await publisher.publish(two_leaves())
    assert files(tmp_path)["tree"].read_text() == "".join(slurm_tree(two_leaves()))
    (tmp_path / "down").unlink()
    time.now_s += 60
    await publisher.publish(two_leaves())


async def test_after_a_failed_hook_new_generations_do_not_run_it_sooner(tmp_path: Path) -> None:
    time = FakeTime()
    failing = counting(tmp_path, "import sys; sys.exit(1)")
    publisher = SlurmFilesPublisher(files(tmp_path), failing, timer=time.clock)
    counts: list[int] = []
    for number in range(40):
        with pytest.raises(PublishError, match="exit status 1"):
            await publisher.publish(leaves((f"n{number}",)))
        assert f"n{number}" in files(tmp_path)["tree"].read_text(), "the files do not wait"
        counts.append(runs(tmp_path))
        time.now_s += 1
    starts = [second for second in range(1, 40) if counts[second] > counts[second - 1]]
    assert starts == [1, 3, 7, 15, 31]
    time.now_s += 60
    publisher = SlurmFilesPublisher(files(tmp_path), counting(tmp_path), timer=time.clock)
    await publisher.publish(leaves(("n1",)))
    await publisher.publish(leaves(("n2",)))
    assert runs(tmp_path) == counts[-1] + 2, "after a success there is no wait"


async def test_the_publisher_wakes_when_the_next_run_may_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hyperscout_publish.slurm.publisher._RETRY_BASE_S", 0.01)
    publisher = SlurmFilesPublisher(
        files(tmp_path), counting(tmp_path, "import sys; sys.exit(1)"), timer=FakeTime().clock
    )
    woken = asyncio.Event()
    publisher.wake.subscribe(woken.set)
    for topology in (two_leaves(), leaves(("n01",))):
        with pytest.raises(PublishError):
            await publisher.publish(topology)
    assert runs(tmp_path) == 1
    async with asyncio.timeout(TIMEOUT_S):
        await woken.wait()


async def test_a_write_that_failed_and_is_undone_runs_no_hook(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, text: str) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    publisher = SlurmFilesPublisher(files(tmp_path), counting(tmp_path))
    await publisher.publish(two_leaves())
    with monkeypatch.context() as patch:
        patch.setattr("hyperscout_publish.slurm.publisher.replace_file", full)
        with pytest.raises(PublishError, match="No space left"):
            await publisher.publish(leaves(("n01",)))
    await publisher.publish(two_leaves())
    assert runs(tmp_path) == 1
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


async def test_a_bad_path_does_not_stop_the_other_file(tmp_path: Path) -> None:
    bad = {"tree": tmp_path / "none" / "topology.conf", "yaml": tmp_path / "topology.yaml"}
    publisher = SlurmFilesPublisher(bad, counting(tmp_path))
    for topology in (two_leaves(), two_leaves(), leaves(("n01",))):
        with pytest.raises(PublishError, match=r"none/topology\.conf: No such file"):
            await publisher.publish(topology)
        assert bad["yaml"].read_text() == "".join(slurm_yaml(topology))
    assert runs(tmp_path) == 2, "for each change of the file that can be written"


async def test_with_a_bad_path_the_hook_keeps_its_interval(tmp_path: Path) -> None:
    time = FakeTime()
    bad = {"tree": tmp_path / "none" / "topology.conf", "yaml": tmp_path / "topology.yaml"}
    publisher = SlurmFilesPublisher(bad, counting(tmp_path), interval_s=60, timer=time.clock)
    for number in range(7):
        with pytest.raises(PublishError, match="No such file"):
            await publisher.publish(leaves((f"n{number}",)))
        time.now_s += 20
    assert runs(tmp_path) == 3


async def test_a_file_that_was_deleted_or_edited_is_written_again(tmp_path: Path) -> None:
    publisher = SlurmFilesPublisher(files(tmp_path), counting(tmp_path))
    woken: list[None] = []
    publisher.wake.subscribe(lambda: woken.append(None))
    await publisher.publish(two_leaves())
    publisher.recheck.expire()
    assert woken
    await publisher.publish(two_leaves())
    assert runs(tmp_path) == 1, "they are as they were"
    assert not publisher.recheck.is_due
    for spoil in (Path.unlink, Path.touch, lambda path: path.write_text("mine")):
        spoil(files(tmp_path)["tree"])
        publisher.recheck.expire()
        await publisher.publish(two_leaves())
        assert files(tmp_path)["tree"].read_text() == "".join(slurm_tree(two_leaves()))
    assert runs(tmp_path) == 3


async def test_with_live_updates_a_file_that_was_deleted_runs_the_hook(tmp_path: Path) -> None:
    publisher = live_publisher(tmp_path)
    await publisher.publish(two_leaves())
    files(tmp_path)["tree"].unlink()
    publisher.recheck.expire()
    await publisher.publish(two_leaves())
    assert runs(tmp_path) == 2
    assert not (tmp_path / "updates").exists()


async def test_files_without_a_hook_do_not_wait(tmp_path: Path) -> None:
    publisher = SlurmFilesPublisher(files(tmp_path), interval_s=60, timer=FakeTime().clock)
    for topology in (two_leaves(), leaves(("n01",))):
        await publisher.publish(topology)
    assert files(tmp_path)["tree"].read_text() == "".join(slurm_tree(leaves(("n01",))))


def live_publisher(folder: Path, then: str = "", *, interval_s: float = 0.0) -> SlurmFilesPublisher:
    """With a scontrol that leaves a line with its arguments in `updates`."""
    code = f'import sys; open("{folder}/updates", "a").write(" ".join(sys.argv[1:]) + "\\n"); {then}'
    tree = {"tree": files(folder)["tree"]}
    return SlurmFilesPublisher(tree, counting(folder), live=python(code), interval_s=interval_s)


async def test_nodes_that_move_are_told_without_the_hook(tmp_path: Path) -> None:
    publisher = live_publisher(tmp_path, interval_s=3600)
    for topology in (leaves(("n1", "n2"), ("n3",)), leaves(("n1",), ("n2", "n3")), leaves(("n1",), ("n3",))):
        await publisher.publish(topology)
        assert files(tmp_path)["tree"].read_text() == "".join(slurm_tree(topology))
    assert (tmp_path / "updates").read_text().splitlines() == [
        "update NodeName=n2 Topology=default:core:l2",
        "update NodeName=n2 Topology=",
    ]
    assert runs(tmp_path) == 1, "for the first file only"
    again = live_publisher(tmp_path)
    await again.publish(leaves(("n1",), ("n3",)))
    await again.publish(leaves(("n1", "n3"), ()))
    assert (tmp_path / "updates").read_text().splitlines()[2:] == [
        "update NodeName=n3 Topology=default:core:l1"
    ]
    assert runs(tmp_path) == 1, "a restart finds the files right"


async def test_a_new_root_runs_the_hook(tmp_path: Path) -> None:
    publisher = live_publisher(tmp_path)
    for name in ("r1", "r2"):
        await publisher.publish(Topology(1, (hypernode(name, ("n1",)),)))
    assert runs(tmp_path) == 2
    assert not (tmp_path / "updates").exists()


async def test_after_a_restart_a_new_switch_may_be_an_empty_one_elsewhere(tmp_path: Path) -> None:
    others = {"n1": ("l1", "p1"), "n3": ("l3", "p2")}
    before = live_publisher(tmp_path)
    for place in (("l2", "p1"), ("l1", "p1")):
        await before.publish(placed({**others, "n2": place}))
    again = live_publisher(tmp_path)
    await again.publish(placed({**others, "n2": ("l1", "p1")}))
    assert runs(tmp_path) == 1
    for place, count in ((("l2", "p2"), 2), (("l4", "p2"), 2)):  # the hook made the rest known
        await again.publish(placed({**others, "n2": place}))
        assert runs(tmp_path) == count


async def test_a_host_that_gets_a_name_changes_the_file(tmp_path: Path) -> None:
    guid = "0002c90300000001"
    publisher = SlurmFilesPublisher(files(tmp_path))
    unnamed = replace(leaves((guid, "n1")), adapters=(Adapter(guid, guid, ""),))
    await publisher.publish(unnamed)
    assert f"Nodes={guid}" not in files(tmp_path)["tree"].read_text()
    await publisher.publish(replace(unnamed, adapters=(Adapter("a1", guid, ""),)))
    assert f"Nodes={guid},n1" in files(tmp_path)["tree"].read_text()


async def test_a_switch_that_became_empty_is_remembered(tmp_path: Path) -> None:
    publisher = live_publisher(tmp_path)
    others = {"n1": ("l1", "p1"), "n3": ("l3", "p2")}
    for place, count in ((("l2", "p1"), 1), (("l1", "p1"), 1), (("l2", "p2"), 2)):
        await publisher.publish(placed({**others, "n2": place}))
        assert runs(tmp_path) == count


async def test_after_a_failed_update_the_hook_runs(tmp_path: Path) -> None:
    """At once: Slurm may have a part of the change."""
    publisher = live_publisher(tmp_path, 'sys.exit("Invalid node name")', interval_s=3600)
    await publisher.publish(leaves(("n1", "n2"), ("n3",)))
    with pytest.raises(PublishError, match=r"slurm_live .*NodeName=n2 .*exit status 1: Invalid node name"):
        await publisher.publish(leaves(("n1",), ("n2", "n3")))
    assert runs(tmp_path) == 1
    await publisher.publish(leaves(("n1",), ("n2", "n3")))
    assert runs(tmp_path) == 2
    assert len((tmp_path / "updates").read_text().splitlines()) == 1


async def test_the_file_is_written_before_the_hook_runs(tmp_path: Path) -> None:
    path = tmp_path / "topology.conf"
    hook = python(f'import shutil; shutil.copy("{path}", "{tmp_path}/seen")')
    await SlurmFilesPublisher({"tree": path}, hook).publish(two_leaves())
    assert (tmp_path / "seen").read_text() == path.read_text()


async def test_a_failing_hook_is_told_with_its_last_words_and_runs_again(tmp_path: Path) -> None:
    bad = counting(tmp_path, 'import sys; sys.stderr.write("x" * 9000 + " slurmctld is down"); sys.exit(3)')
    publisher = SlurmFilesPublisher(files(tmp_path), bad)
    for count in (1, 2):
        with pytest.raises(PublishError, match=r"exit status 3: x+ slurmctld is down$") as caught:
            await publisher.publish(two_leaves())
        assert caught.value.retry
        assert len(str(caught.value)) < 2500
        assert runs(tmp_path) == count
    restarted = SlurmFilesPublisher(files(tmp_path), counting(tmp_path))
    await restarted.publish(two_leaves())
    assert runs(tmp_path) == 3, "not even a restart forgets a hook that is due"
    await restarted.publish(two_leaves())
    assert runs(tmp_path) == 3


async def test_a_hook_that_hangs_is_ended_with_what_it_started(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    hook = python(
        'import subprocess; child = subprocess.Popen(["sleep", "600"]); '
        f'open("{pid}", "w").write(str(child.pid)); child.wait()'
    )
    for timeout_s in (0.3, 3, 30):  # a busy machine may take longer than 0.3 s to start the hook
        publisher = SlurmFilesPublisher(files(tmp_path), hook, hook_timeout_s=timeout_s)
        with pytest.raises(PublishError, match=f"not finished within {timeout_s:g} s"):
            await publisher.publish(two_leaves())
        if pid.exists() and pid.read_text():
            break
    child = int(pid.read_text())
    await eventually(lambda: not alive(child), "the hook's child has ended")


@pytest.mark.parametrize(("status", "said"), [(0, contextlib.nullcontext()), (1, None)])
async def test_a_hook_is_done_when_it_ends_whatever_it_leaves_behind(
    tmp_path: Path, status: int, said: Any
) -> None:
    """As one that starts a daemon, which holds the pipe: it would be run, and leave one more, each minute."""
    pid = tmp_path / "pid"
    hook = python(
        'import subprocess, sys; child = subprocess.Popen(["sleep", "600"]); sys.stderr.write("last words"); '
        f'open("{pid}", "w").write(str(child.pid)); sys.exit({status})'
    )
    try:
        with said or pytest.raises(PublishError, match="exit status 1: last words"):
            await SlurmFilesPublisher(files(tmp_path), hook, hook_timeout_s=60).publish(two_leaves())
    finally:
        os.kill(int(pid.read_text()), signal.SIGKILL)


@pytest.mark.parametrize(
    ("hook", "said"), [("/no/such/command now", "No such file"), ("/", "Permission denied|Is a directory")]
)
async def test_a_hook_that_cannot_run_is_told(tmp_path: Path, hook: str, said: str) -> None:
    with pytest.raises(PublishError, match=f"slurm_hook .*({said})"):
        await SlurmFilesPublisher(files(tmp_path), hook).publish(two_leaves())


async def test_no_shell_reads_the_hook(tmp_path: Path) -> None:
    """`;` and `$` are plain text."""
    words = tmp_path / "words"
    hook = python("import sys; open(sys.argv[1], sys.argv[3]).write(sys.argv[2])")
    hook += f" {words} '; echo $HOME' w"
    await SlurmFilesPublisher(files(tmp_path), hook).publish(two_leaves())
    assert words.read_text() == "; echo $HOME"


async def test_hosts_without_a_name_write_nothing(tmp_path: Path) -> None:
    """Agents are away, and no node map is set: the files of before stay."""
    publisher = SlurmFilesPublisher(files(tmp_path), counting(tmp_path))
    for _ in range(2):
        before = list(tmp_path.iterdir())
        await publisher.publish(leaves(("506b4b0300aa0001",)))
        assert list(tmp_path.iterdir()) == before
        assert publisher.notice == (
            "no host has a name that Slurm accepts: the files are unchanged (set node_map)"
        )
        await publisher.publish(leaves(("n01",)))
        assert publisher.notice is None
        assert list(tmp_path.iterdir()) != []


async def test_an_empty_hierarchy_writes_nothing(tmp_path: Path) -> None:
    publisher = SlurmFilesPublisher(files(tmp_path), counting(tmp_path))
    await publisher.publish(Topology(1))
    assert list(tmp_path.iterdir()) == []
    assert publisher.notice == "no hierarchy is known: the files are unchanged"
    await publisher.publish(two_leaves())
    assert publisher.notice is None


async def test_an_edit_of_the_file_is_put_right_at_the_next_start(tmp_path: Path) -> None:
    await SlurmFilesPublisher(files(tmp_path)).publish(two_leaves())
    path = files(tmp_path)["tree"]
    path.write_text(path.read_text() + "# mine\n")
    await SlurmFilesPublisher(files(tmp_path)).publish(two_leaves())
    assert path.read_text() == "".join(slurm_tree(two_leaves()))


async def test_a_folder_that_is_not_there_is_said_and_can_be_helped(tmp_path: Path) -> None:
    publisher = SlurmFilesPublisher(files(tmp_path / "slurm"), counting(tmp_path))
    with pytest.raises(PublishError, match=r"slurm/.*No such file"):
        await publisher.publish(two_leaves())
    assert runs(tmp_path) == 0
    (tmp_path / "slurm").mkdir()
    await publisher.publish(two_leaves())
    assert runs(tmp_path) == 1


def test_a_hook_with_an_open_quote_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="quotation"):
        SlurmFilesPublisher(files(tmp_path), "scontrol 'reconfigure")
