"""kill -9 of the collector while 200 simulated agents stream: nothing twice, nothing lost.

The agents are the real uplink and the real store, the collector is the real process. While they stream,
cables are cut and put back, so that findings change under way; the collector is killed at arbitrary points.
"""

import asyncio
import sqlite3
import time
from pathlib import Path
from random import Random

import pytest
from hyperscout.v1.finding_pb2 import Finding
from hyperscout_sim.agents.player import Player
from hyperscout_sim.fabric.shapes import clos2
from support.collector_process import CollectorProcess, collector_process, listed
from support.played_findings import Held, held_by
from support.soak import soak_s, soak_seed
from support.waiting import eventually, until

pytestmark = pytest.mark.long

HOSTS = 200


def on_disk(data_dir: Path) -> Held:
    with sqlite3.connect(data_dir / "evidence.db") as db:
        rows = db.execute(
            "SELECT node, probe, subject, finding FROM findings WHERE probe != 'ibnetdiscover'"
        ).fetchall()
    db.close()
    assert len({row[:3] for row in rows}) == len(rows)
    return {row[:3]: row[3] for row in rows}


async def until_settled(player: Player) -> None:
    await eventually(lambda: player.settled and len(player.agents) == HOSTS)


async def until_acked(player: Player, agents: int) -> None:
    """Until so many agents were told in this stream that everything is stored."""
    await until(
        lambda: sum(a.uplink.stats.connected and not a.store.dirty for a in player.agents.values()) >= agents
    )


async def shake(player: Player, rng: Random) -> None:
    """Cut and restore cables until cancelled."""
    cables = list(player.fabric.cables)
    out: list[int] = []
    while True:
        if len(out) > 20:
            player.restore(cables[out.pop(0)])
        else:
            out.append(rng.choice([i for i in range(len(cables)) if i not in out]))
            player.cut(cables[out[-1]])
        await asyncio.sleep(0.005)


async def killed(collector: CollectorProcess, player: Player, data_dir: Path) -> None:
    """Kill it this instant, and see that every acknowledged finding is on disk."""
    collector.kill()
    acked = held_by(player, acked_only=True)
    assert await collector.ended() == -9
    disk = on_disk(data_dir)
    late = {key for key, finding in acked.items() if disk.get(key) != finding}
    assert late == set(), f"{len(late)} of {len(acked)} acknowledged findings are not on disk"


@pytest.mark.soak
async def test_nothing_is_lost_and_nothing_twice(tmp_path: Path) -> None:
    rng = Random(seed := soak_seed())
    print(f"HYPERSCOUT_SOAK_SEED={seed}")
    fabric = clos2(leaves=10, hosts_per_leaf=20, spines=4)
    assert len(fabric.hosts) == HOSTS
    flags = ("--restart-grace-s", "0")
    async with collector_process(tmp_path, *flags) as first:
        address = first.address
        player = Player(fabric, [address], lldp=True, connections=8, refresh_interval_s=3600)
        playing = asyncio.create_task(player.run())
        await until_acked(player, 60)  # in the middle of the first full states
        await killed(first, player, tmp_path)
    shaking = asyncio.create_task(shake(player, rng))
    deadline = time.monotonic() + soak_s(0)
    while True:
        async with collector_process(tmp_path, *flags, listen=address) as next_one:
            await until_acked(player, rng.randint(1, 150))  # streams come back, findings change all the time
            await killed(next_one, player, tmp_path)
        if time.monotonic() >= deadline:
            break
    async with collector_process(tmp_path, *flags, listen=address) as last:
        await until_acked(player, 100)
        shaking.cancel()
        await asyncio.gather(shaking, return_exceptions=True)
        await until_settled(player)
        expected = held_by(player)
        assert len(expected) == 2 * HOSTS
        # Of a sweep there may be two looks: the last whole one and a partial one since (its own cable cut).
        stored = [f for f in await listed(last.address) if f.finding.key.probe != "ibnetdiscover"]
        keys = [(f.finding.key.node, f.finding.key.probe, f.finding.key.subject) for f in stored]
        assert len(keys) == len(set(keys))
        found = {key: f.finding.SerializeToString() for key, f in zip(keys, stored, strict=True)}
        assert found.keys() == expected.keys()
        assert {
            key for key in found if Finding.FromString(found[key]) != Finding.FromString(expected[key])
        } == set()
        assert await last.stop() == 0
    assert on_disk(tmp_path) == expected
    playing.cancel()
    await asyncio.gather(playing, return_exceptions=True)
