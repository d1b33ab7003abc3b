"""Leases in two API servers: which collector may write to each, while one of them is away."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

from hyperscout_formats.text.reporters import name_in_cluster, node_in
from kube.api import MERGE, ApiError
from kube.recorder import recording
from support.collector_process import collector_process
from support.collectors import host_cable, playing
from support.kubernetes import Cluster
from support.postgresql import Postgresql
from support.published import Published, published, status_at
from support.two_clusters import EAST, FLAGS, collector_of_two, nodes_of, shared_fabric, whole
from support.waiting import eventually

ELECTION = ("--leader-election", "--lease-namespace", "default", "--identity")
LEASE = "/apis/coordination.k8s.io/v1/namespaces/default/leases/hyperscout-collector"


def holder(cluster: Cluster) -> str:
    """The identity that holds the Lease of a cluster; "" = none."""
    try:
        found = cluster.api.ask("GET", LEASE)
    except ApiError:
        return ""
    return str(found["spec"].get("holderIdentity") or "").partition("_")[0]


async def test_a_leader_writes_to_a_cluster_while_it_holds_both_leases(
    kube: Cluster, own_kube: Callable[..., Cluster], tmp_path: Path
) -> None:
    """Collector `a` serves a cluster whose own collector `b` has the same Lease there. The API server of `a`
    dies and returns."""
    fabric, home, east = shared_fabric(), own_kube(), kube
    own, of_east = nodes_of(fabric, ""), nodes_of(fabric, EAST)
    home.nodes(own)
    east.nodes(of_east)
    alone = ("--kubernetes", "publish", "--kubeconfig", str(east.kubeconfig), *FLAGS)
    async with (
        recording(east.plane) as written_there,
        published(home) as here,
        published(east) as there,
        collector_of_two(home, east, tmp_path / "a", *ELECTION, "a") as a,
        playing(a.address, fabric, connections=4) as player,
    ):
        await whole(here, own)
        await whole(there, of_east)
        assert (holder(home), holder(east)) == ("a", "a")
        first = fabric.hosts[0]
        cable = host_cable(player, f"{EAST}/{first}")
        async with collector_process(tmp_path / "b", *alone, *ELECTION, "b") as b:
            await eventually(lambda: b"standby listens on" in b.said)
            assert holder(east) == "a"
            await asyncio.to_thread(home.plane.kill_apiserver)
            await eventually(lambda: holder(east) == "b")  # `a` does not know whether it leads: it lets it go
            player.cut(cable)
            await asyncio.to_thread(home.plane.start_apiserver)
            await asyncio.to_thread(home.plane.await_ready)
            what = b"nothing is written to cluster east until this collector holds the Lease default/"
            await eventually(lambda: what in a.said)
            assert status_at(there.now, first, "Degraded")[0] == "False"
            assert await b.stop() == 0
        await there.until(lambda now: status_at(now, first, "Degraded")[0] == "True", "`a` writes again")
        assert holder(east) == "a"
        written_there.assert_clean()
        assert await a.stop() == 0
        assert (holder(home), holder(east)) == ("", ""), "both are released"


async def test_the_next_leader_takes_the_leases_of_all_clusters(
    kube: Cluster, own_kube: Callable[..., Cluster], tmp_path: Path
) -> None:
    fabric, east = shared_fabric(), own_kube()
    own, of_east = nodes_of(fabric, ""), nodes_of(fabric, EAST)
    kube.nodes(own)
    east.nodes(of_east)
    async with (
        recording(east.plane) as written_there,
        published(east) as there,
        collector_of_two(kube, east, tmp_path / "a", *ELECTION, "a") as a,
        collector_of_two(kube, east, tmp_path / "b", *ELECTION, "b") as b,
    ):
        await eventually(lambda: holder(east) != "")
        first, second = (a, b) if holder(kube) == "a" else (b, a)
        async with playing([first.address, second.address], fabric, connections=4) as player:
            await whole(there, of_east)
            led = holder(east)
            assert led == holder(kube)
            first.kill()
            await eventually(lambda: holder(east) not in ("", led))
            node = fabric.hosts[0]
            player.cut(host_cable(player, f"{EAST}/{node}"))
            await there.until(
                lambda now: status_at(now, node, "Degraded")[0] == "True", "the next one writes"
            )
            written_there.assert_clean()


async def test_a_single_collector_goes_on_without_its_own_api_server(
    kube: Cluster, own_kube: Callable[..., Cluster], tmp_path: Path
) -> None:
    fabric, own = shared_fabric(), own_kube()
    own.nodes(nodes_of(fabric, ""))
    kube.nodes(nodes_of(fabric, EAST))
    async with (
        published(own) as here,
        published(kube) as there,
        collector_of_two(own, kube, tmp_path) as process,
        playing(process.address, fabric, connections=4) as player,
    ):
        await whole(here, nodes_of(fabric, ""))
        await whole(there, nodes_of(fabric, EAST))
        await asyncio.to_thread(own.plane.kill_apiserver)
        first = fabric.hosts[0]
        player.cut(host_cable(player, f"{EAST}/{first}"))
        await there.until(lambda now: status_at(now, first, "Degraded")[0] == "True", "written to the other")


WEST = "west"


def give_lease(cluster: Cluster, to: str) -> None:
    """Make another collector the holder of the Lease; "" releases it."""
    now = time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime())
    spec = {"holderIdentity": to, "renewTime": now, "leaseDurationSeconds": 3600}
    cluster.api.ask("PATCH", LEASE, {"spec": spec}, content=MERGE)


async def test_a_lock_in_postgresql_elects_the_writer_of_both_clusters(
    kube: Cluster, own_kube: Callable[..., Cluster], tmp_path: Path, shared_postgresql: Postgresql
) -> None:
    """Without an own cluster. The leader dies; later another collector takes the Lease of one cluster."""
    fabric, clusters = shared_fabric(WEST), {WEST: kube, EAST: own_kube()}
    for name, cluster in clusters.items():
        cluster.nodes(nodes_of(fabric, name))
    database = shared_postgresql.new_database()
    flags = [
        *("--kubernetes", "off", "--store", shared_postgresql.url(database), *FLAGS),
        *("--store-password-file", str(shared_postgresql.password_file), "--lease-duration-s", "5"),
        *(x for name, cluster in clusters.items() for x in ("--clusters", f"{name}={cluster.kubeconfig}")),
    ]

    def holders() -> set[str]:
        return set(map(holder, clusters.values()))

    first = name_in_cluster(fabric.hosts[0])

    async def degraded(there: Published, what: str) -> None:
        await there.until(lambda now: status_at(now, first, "Degraded")[0] == "True", what)

    async with (
        recording(clusters[WEST].plane) as written_west,
        recording(clusters[EAST].plane) as written_east,
        published(clusters[WEST]) as west,
        published(clusters[EAST]) as east,
        collector_process(tmp_path / "a", *flags, *ELECTION, "a") as a,
    ):
        await eventually(lambda: holders() == {"a"})
        async with (
            collector_process(tmp_path / "b", *flags, *ELECTION, "b") as b,
            playing([a.address, b.address], fabric, connections=4) as player,
        ):
            await whole(west, nodes_of(fabric, WEST))
            await whole(east, nodes_of(fabric, EAST))
            trees = [{name: h["spec"] for name, h in seen.now.items()} for seen in (west, east)]
            a.kill()
            await eventually(lambda: holders() == {"b"})
            cables = {name: host_cable(player, node_in(name, first)) for name in clusters}
            player.cut(cables[WEST])
            await degraded(west, "the next leader writes to west")
            player.cut(cables[EAST])
            await degraded(east, "and to east")
            assert [{name: h["spec"] for name, h in seen.now.items()} for seen in (west, east)] == trees
            give_lease(clusters[EAST], "other_1")
            await eventually(lambda: b"east: deposed: other_1 holds the lease" in b.said)
            what = b"nothing is written to cluster east until this collector holds the Lease default/"
            for cable in cables.values():
                player.restore(cable)
            await whole(west, nodes_of(fabric, WEST))
            await eventually(lambda: what in b.said)
            assert status_at(east.now, first, "Degraded")[0] == "True", "another collector holds its Lease"
            give_lease(clusters[EAST], "")
            await whole(east, nodes_of(fabric, EAST))
            assert holders() == {"b"}
            written_west.assert_clean()
            written_east.assert_clean()
            assert await b.stop() == 0
        assert holders() == {""}, "both are released"
    assert shared_postgresql.execute(database, "SELECT term, identity FROM leader") == [(2, "b")]
