"""Replicas that a Lease elects, with PostgreSQL: the next leader continues at once, with all reservations."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from support.collector_process import CollectorProcess, collector_process
from support.collectors import QUICK_FLAGS, host_cable, playing
from support.kubernetes import Cluster
from support.placement_calls import reservations, reserved
from support.postgresql import Postgresql
from support.waiting import eventually

HOSTS = [f"node-000{i}" for i in range(1, 9)]


@asynccontextmanager
async def replica(cluster: Cluster, folder: Path, name: str, *flags: str) -> AsyncIterator[CollectorProcess]:
    election = ("--leader-election", "--lease-namespace", "default", "--identity", name)
    kube = ("--kubeconfig", str(cluster.kubeconfig), "--kubernetes", "publish")
    async with collector_process(folder / name, *kube, *election, *QUICK_FLAGS, *flags) as found:
        await eventually(lambda: b"standby listens on" in found.said, "a standby")
        yield found


def trees(cluster: Cluster) -> dict[str, tuple[str, int]]:
    """Uid and version of each HyperNode, which states do not change: the same ones were never deleted."""
    found = cluster.hypernodes()
    return {name: (x["metadata"]["uid"], x["metadata"]["generation"]) for name, x in found.items()}


async def test_a_killed_leader_is_followed_by_one_with_its_evidence(
    kube: Cluster, tmp_path: Path, shared_postgresql: Postgresql
) -> None:
    name = shared_postgresql.new_database()
    password = str(shared_postgresql.password_file)
    flags = ("--store", shared_postgresql.url(name), "--store-password-file", password)
    kube.nodes(HOSTS)
    async with replica(kube, tmp_path, "a", *flags) as a:
        await eventually(lambda: b"findings of" in a.said, "a leader")
        async with replica(kube, tmp_path, "b", *flags) as b:
            async with playing([a.address, b.address]) as player:
                await eventually(lambda: player.settled and len(player.agents) == len(HOSTS))
                await eventually(lambda: len(kube.hypernodes()) == 3)
            nodes = await reserved(a.address, "train")
            before = trees(kube)
            a.kill()
            await eventually(lambda: b"findings of" in b.said, "the other one leads")
            # No agent runs any more: what it infers is what the former leader stored.
            assert b" findings of 8 nodes" in b.said
            assert await reservations(b.address) == {"train": nodes}
            assert b"take-over" not in b.said
            async with playing([b.address]) as player:
                player.cut(host_cable(player, HOSTS[5]))
                await eventually(lambda: b"pipeline: generation " in b.said, "it has inferred")
            assert trees(kube) == before
            assert await b.stop() == 0
    assert shared_postgresql.execute(name, "SELECT term, identity FROM leader") == [(2, "b")]
