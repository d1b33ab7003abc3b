"""`hyperscout place` and `placements` as processes, at a collector in a process of its own."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hyperscout_sim.fabric.shapes import clos2
from support.collector_process import collector_process
from support.collectors import QUICK_FLAGS, playing
from support.live import Watcher, domains
from support.waiting import TIMEOUT_S

HOSTS = [f"node-{i:04}" for i in range(1, 17)]


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Hyperscout:
    """The command line, with what each call of it has at its end."""

    def __init__(self, *flags: object) -> None:
        self._flags = flags

    async def start(self, *arguments: object) -> asyncio.subprocess.Process:
        command = (sys.executable, "-m", "hyperscout_cli.main", *map(str, (*arguments, *self._flags)))
        return await asyncio.create_subprocess_exec(
            *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )

    async def __call__(self, *arguments: object) -> Ran:
        process = await self.start(*arguments)
        async with asyncio.timeout(TIMEOUT_S):
            out, err = await process.communicate()
        assert b"Traceback" not in err, err.decode()
        assert process.returncode is not None
        return Ran(process.returncode, out.decode(), err.decode())


@asynccontextmanager
async def sixteen_hosts(tmp_path: Path) -> AsyncIterator[Hyperscout]:
    """Four leaves of four hosts, published."""
    fabric = clos2(leaves=4, hosts_per_leaf=4, spines=2)
    async with (
        collector_process(tmp_path / "data", *QUICK_FLAGS) as collector,
        playing(collector.address, fabric),
    ):
        leaves = {frozenset(HOSTS[i : i + 4]) for i in range(0, 16, 4)}
        await Watcher(collector.address).until(lambda t: domains(t) == leaves, "four leaves")
        yield Hyperscout("--collector", collector.address)


def nodes(answer: dict[str, Any]) -> list[str]:
    return [x["node"] for x in answer["assignments"]]


async def test_a_gang_from_its_reservation_to_its_release(tmp_path: Path) -> None:
    async with sixteen_hosts(tmp_path) as run:
        watching = await run.start("placements", "watch", "-o", "json")
        assert watching.stdout is not None
        events = watching.stdout

        async def event() -> dict[str, Any]:
            async with asyncio.timeout(TIMEOUT_S):
                found: dict[str, Any] = json.loads(await events.readline())
            return found

        try:
            assert (await event())["snapshot"] is True
            dry = (await run("place", "--workers", 6, "-o", "json")).json
            assert (dry["placed"], dry["tier"], dry["domains"]["1"], "holder" in dry) == (True, 2, 2, False)
            assert (await run("placements", "list")).err == "no gang holds nodes\n"

            ran = await run(
                "place", "--workers", 6, "--gang", "a", "--reserve", "--expires", "1h", "-o", "json"
            )
            assert ran.code == 0, ran.err
            held = nodes(ran.json)
            assert held == nodes(dry)
            assert ran.json["expiresAt"] > ran.json["reservedAt"]
            came = await event()
            assert [(x["gang"], nodes(x)) for x in came["placements"]] == [("a", held)]
            (listed,) = (await run("placements", "list", "-o", "json")).json
            assert (listed["gang"], listed["holder"], nodes(listed)) == ("a", "api", held)
            assert "a      api" in (await run("placements", "list")).out

            again = await run("place", "--workers", 1, "--gang", "a", "--reserve")
            assert (again.code, again.out) == (1, "")
            assert "'a'" in again.err or " a " in again.err
            rest = (await run("place", "--workers", 10, "-o", "json")).json
            assert set(nodes(rest)) == set(HOSTS) - set(held)
            full = await run("place", "--workers", 11)
            assert (full.code, full.out) == (3, "")
            assert "10" in full.err

            why = await run("explain-placement", "--gang", "a", "-o", "json")
            assert why.code == 0, why.err
            assert nodes(why.json["placement"]) == held
            assert why.json["candidates"][0]["why"] == ""

            lost = held[0]
            repaired = await run("placements", "repair", "a", "--failed", lost, "-o", "json")
            assert repaired.code == 0, repaired.err
            assert [x["source"] for x in repaired.json["moves"]] == [lost]
            assert lost not in nodes(repaired.json["placement"])
            (moved,) = (await event())["placements"]
            if nodes(moved) == held:  # the failed node is recorded before the rank moves
                (moved,) = (await event())["placements"]
            assert nodes(moved) == nodes(repaired.json["placement"])
            assert [x["node"] for x in moved["failedNodes"]] == [lost]

            assert (await run("placements", "release", "a")).out == "released a\n"
            assert (await event())["released"] == ["a"]

            few = await run("place", "--workers", 20, "--min-workers", 3, "--gang", "e", "--reserve")
            assert few.code == 0, few.err
            assert "Workers:      16 (at least 3, at most 20)" in few.out
            whole = nodes((await event())["placements"][0])
            for workers in (4, 10):
                sized = await run("placements", "resize", "e", "--workers", workers, "-o", "json")
                assert sized.code == 0, sized.err
                now = nodes((await event())["placements"][0])
                assert nodes(sized.json["placement"]) == now
                assert (len(now), now[:4]) == (workers, whole[:4])
            wrong = await run("placements", "resize", "e", "--workers", 2)
            assert (wrong.code, "workers: 2: expected 3 to 20" in wrong.err) == (2, True)
            assert (await run("placements", "release", "e")).out == "released e\n"
            assert (await event())["released"] == ["e"]
            gone = await run("placements", "release", "a")
            assert (gone.code, gone.out) == (1, "")
        finally:
            watching.terminate()
            await watching.wait()


async def test_a_collector_and_a_file_of_its_topology_answer_alike(tmp_path: Path) -> None:
    async with sixteen_hosts(tmp_path) as run:
        saved = tmp_path / "t.json"
        saved.write_text((await run("tree", "-o", "json")).out)
        file = Hyperscout("--topology", saved)
        for flags in (
            ("--workers", 6),
            ("--workers", 8, "--group-size", 2, "--group-tier", "leaf", "--spread", "2:leaf"),
            ("--workers", 17),
            ("--workers", 5, "--highest-tier-allowed", "leaf"),
            ("--workers", 5, "--highest-tier-allowed", "leaf", "--mode", "soft"),
            ("--workers", 4, "--avoid", "node-0001", "node-0009"),
            ("--workers", 4, "--highest-tier-allowed", "rack"),
        ):
            for command in ("place", "explain-placement") if flags[1] in (6, 17) else ("place",):
                online = await run(command, *flags, "-o", "json")
                assert await file(command, *flags, "-o", "json") == online


async def test_improve_and_defragment(tmp_path: Path) -> None:
    async with sixteen_hosts(tmp_path) as run:
        # Two leaves are full; in each of the other two one worker is left, in the way of a gang of four.
        for gang, workers in (("big", 8), ("x", 3), ("a", 1), ("y", 3), ("b", 1)):
            ran = await run("place", "--workers", workers, "--gang", gang, "--reserve")
            assert ran.code == 0, ran.err
        assert (await run("placements", "release", "x", "y")).code == 0
        well = await run("placements", "improve", "a")
        assert (well.code, well.out) == (3, "")
        wanted = ("--workers", 4, "--highest-tier-allowed", "leaf")
        assert (await run("place", *wanted)).code == 3
        plan = await run("placements", "defragment", *wanted, "-o", "json")
        assert plan.code == 0, plan.err
        assert plan.json["moved"] == 1
        (moved,) = plan.json["gangs"]
        assert moved["gang"] in "ab"
        assert plan.json["placement"]["domains"]["1"] == 1
        text = (await run("placements", "defragment", *wanted)).out
        assert text.startswith("GANG   RANK   FROM")
        none = await run("placements", "defragment", "--workers", 7)
        assert (none.code, none.out) == (3, "")
