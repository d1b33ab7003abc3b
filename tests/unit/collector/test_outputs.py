"""Which publishers the settings ask for, and settings of theirs that cannot be meant."""

import asyncio
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hyperscout_collector.app.publication.publishers import Soon, chosen
from hyperscout_collector.app.settings.settings import SettingsError, load_settings
from support.fake_kube import FakeKube


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"node_labels": "on"}, "node_labels: nothing is written into a cluster while kubernetes is off"),
        ({"taints": "dry-run", "kueue_topology": "x"}, "taints, kueue_topology: nothing is written"),
        ({"kubernetes": "publish", "kueue_topology": "Wires!"}, "'Wires!' is no name"),
        ({"kubernetes": "publish", "taint_share": 1.5}, "taint_share"),
        ({"slurm_hook": "scontrol reconfigure"}, "set slurm_tree_file"),
        (
            {"slurm_tree_file": "/x", "slurm_hook": "scontrol 'reconfigure"},
            "slurm_hook: No closing quotation",
        ),
    ],
)
def test_what_cannot_be_meant_is_said(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        load_settings(None, settings)


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ({}, []),
        ({"slurm_yaml_file": "/x/topology.yaml"}, ["slurm-files"]),
        ({"kubernetes": "publish"}, ["kubernetes", "node-labels", "taints"]),
        ({"kubernetes": "dry-run"}, ["kubernetes", "node-labels"]),
        ({"kubernetes": "dry-run", "taints": "on"}, ["kubernetes", "node-labels", "taints"]),
        (
            {"kubernetes": "publish", "kueue_topology": "wires"},
            ["kubernetes", "node-labels", "taints", "kueue"],
        ),
    ],
)
async def test_publishers_by_settings(settings: dict[str, Any], names: list[str]) -> None:
    loaded = load_settings(None, settings)
    kube = FakeKube().kube() if loaded.kubernetes != "off" else None
    found = chosen(
        loaded, kube, look_around=lambda: None, clock_ns=lambda: 0, timer=lambda: 0.0, rng=Random(0)
    )
    assert [publisher.name for publisher in found.publishers] == names


async def test_nodes_that_change_wake_those_that_write_to_nodes_once() -> None:
    woken: list[str] = []
    done = asyncio.Event()
    fake = FakeKube()
    found = chosen(
        load_settings(None, {"kubernetes": "publish"}),
        fake.kube(),
        look_around=lambda: woken.append("inference"),
        clock_ns=lambda: 0,
        timer=lambda: 0.0,
        rng=Random(0),
    )
    for publisher in found.publishers:
        publisher.wake = lambda name=publisher.name: woken.append(name)  # type: ignore[misc]
    found.publishers[-1].wake = done.set
    nodes = found.publishers[1]._nodes  # type: ignore[attr-defined]
    fake.add_node("n1")
    fake.add_node("n2")
    fake.follow(nodes)
    async with asyncio.timeout(10):
        await done.wait()
    assert woken == ["inference", "inference", "node-labels"]


async def test_soon_is_once_for_many_and_again_for_the_next() -> None:
    acted: list[int] = []
    soon = Soon(lambda: acted.append(1), after_s=0.0)
    for expected in (1, 2):
        soon.call()
        soon.call()
        assert len(acted) == expected - 1
        async with asyncio.timeout(10):
            while len(acted) < expected:
                await asyncio.sleep(0)
    assert len(acted) == 2


def test_files_for_slurm_are_paths() -> None:
    assert load_settings(None, {"slurm_tree_file": "/etc/slurm/topology.conf"}).slurm_tree_file == Path(
        "/etc/slurm/topology.conf"
    )
