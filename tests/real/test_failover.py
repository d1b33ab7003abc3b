"""Replicas with PostgreSQL are killed at random, and lose nothing that they acknowledged.

Meanwhile clients reserve and release GPUs at random replicas, agents move between replicas, cables are cut,
and readers follow each replica. `support.failover` is the model.
"""

import asyncio
import contextlib
import signal
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random
from typing import Any

import grpc.aio
import pytest
from hyperscout.v1 import placement_pb2 as pb
from hyperscout.v1 import topology_pb2
from hyperscout.v1.finding_pb2 import Finding
from hyperscout.v1.placement_pb2_grpc import PlacementServiceStub
from hyperscout.v1.topology_pb2_grpc import TopologyServiceStub
from hyperscout_formats.text.leader import leader_in
from hyperscout_sim.agents.player import Player
from hyperscout_sim.fabric.fabric import Cable
from hyperscout_sim.fabric.nvlink import pcie_host
from support.collector_process import CHANNEL_OPTIONS, CollectorProcess
from support.collectors import eight_hosts
from support.failover import GPUS, Gangs, Generations, Reservations, State
from support.placing import request
from support.played_findings import Held, held_by
from support.postgresql import Postgresql
from support.replicas import replica, store_flags
from support.soak import IS_SOAK, soak_s, soak_seed
from support.waiting import TIMEOUT_S, eventually, until_awaited

pytestmark = [pytest.mark.long, pytest.mark.soak]

KILLS = 200 if IS_SOAK else 10
NAMES = ("a", "b", "c")
CLIENTS = ("x", "y", "z")
ACTS = ("leader", "leader", "leader", "leader", "leader", "leader", "two", "two", "standby", "server")
REFUSED = (
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.ABORTED,
)


@contextlib.asynccontextmanager
async def channel_to(address: str) -> AsyncIterator[grpc.aio.Channel]:
    """Not one that waits longer after each refused connection, as channels of one pool do together."""
    options = (*CHANNEL_OPTIONS, ("grpc.use_local_subchannel_pool", 1))
    async with grpc.aio.insecure_channel(address, options=options) as found:
        yield found


def without_time(encoded: bytes) -> Finding:
    found = Finding.FromString(encoded)
    found.ClearField("observed_at")
    return found


class Agents:
    """One player for each host, which has the fabric that all have."""

    def __init__(self, addresses: list[str], rng: Random) -> None:
        self.fabric = eight_hosts()
        self._addresses = addresses
        self._rng = rng
        self._cut: list[Cable] = []
        self.players: dict[str, Player] = {}
        for host in self.fabric.hosts:
            self._start(host)

    def _start(self, host: str) -> None:
        """Its agent connects to the first replica, of a random order, that answers."""
        order = self._rng.sample(self._addresses, len(self._addresses))
        gpus = {x: pcie_host(x, gpus=GPUS) for x in self.fabric.hosts}
        player = Player(self.fabric, order, gpus=gpus, refresh_interval_s=3600)
        for cable in self._cut:
            player.cut(cable)
        player.revive(host)
        self.players[host] = player

    async def move(self) -> None:
        host = self._rng.choice(self.fabric.hosts)
        await self._kill(host)
        self._start(host)

    async def _kill(self, host: str) -> None:
        async with asyncio.timeout(TIMEOUT_S):
            await self.players[host].kill(host)

    def change(self) -> None:
        """Cut a cable, or restore the oldest."""
        if len(self._cut) > 2:
            cable = self._cut.pop(0)
            for player in self.players.values():
                player.restore(cable)
        else:
            cable = self._rng.choice([x for x in self.fabric.cables if x not in self._cut])
            self._cut.append(cable)
            for player in self.players.values():
                player.cut(cable)

    @property
    def settled(self) -> bool:
        return all(player.settled for player in self.players.values())

    def acknowledged(self) -> Held:
        return {
            key: finding
            for player in self.players.values()
            for key, finding in held_by(player, acked_only=True).items()
        }

    async def stop(self) -> None:
        for host in self.players:
            await self._kill(host)


class Failover:
    """The replicas, what happens to them, and the checks."""

    def __init__(self, folder: Path, postgresql: Postgresql, rng: Random) -> None:
        self.rng = rng
        self.reservations = Reservations()
        self.generations = Generations()
        self.addresses = dict.fromkeys(NAMES, "127.0.0.1:0")
        self.living: dict[str, CollectorProcess] = {}
        self.checked_findings = 0
        self._folder = folder
        self._postgresql = postgresql
        self._database = postgresql.new_database()
        self._flags = store_flags(postgresql, self._database)
        self._stacks: dict[str, AsyncExitStack] = {}

    async def start(self, name: str) -> None:
        stack = self._stacks[name] = AsyncExitStack()
        self.living[name] = await stack.enter_async_context(
            replica(self._folder, self._flags, name, self.addresses[name])
        )
        self.addresses[name] = self.living[name].address

    async def stop(self) -> None:
        for stack in self._stacks.values():
            await stack.aclose()

    async def kill_at_answer(self, *names: str) -> None:
        """When a reservation or a release has just been acknowledged."""
        done = asyncio.Event()

        def now() -> None:
            self.kill(*names)
            done.set()

        self.reservations.at_answer = now
        await eventually(done.is_set, "a reservation or a release is acknowledged")

    def kill(self, *names: str) -> None:
        """kill -9, and compare what was acknowledged with what is stored before anything else happens."""
        for name in names:
            self.living.pop(name).kill()
        self.check_database()

    async def restart(self, *names: str) -> None:
        for name in names:
            await self._stacks[name].aclose()
            await self.start(name)

    def leader(self) -> str:
        """The living replica that has the last term; "" = it is dead."""
        ((found,),) = self._postgresql.execute(self._database, "SELECT identity FROM leader")
        return str(found) if found in self.living else ""

    async def led(self) -> str:
        """Wait until a replica leads and answers, and let its answer decide what calls have done."""

        async def found() -> str:
            name = self.leader()
            undecided = self.reservations.undecided(self.living.values())
            with contextlib.suppress(grpc.aio.AioRpcError):
                answer = await self.listed(self.addresses[name]) if name else None
                if answer is not None:
                    self.reservations.decide(answer, undecided)
                    return name
            return ""

        return await until_awaited(found, "a leader that answers", pause_s=0.05)

    # Calls

    async def call(self, method: str, message: Any, by: list[CollectorProcess] | None = None) -> Any:
        """Call the leader through a random replica. `by`: gets the processes that may have done something."""
        address = self.rng.choice(list(self.addresses.values()))
        for _ in NAMES:
            processes = [x for x in self.living.values() if x.address == address]
            try:
                async with channel_to(address) as channel:
                    call = getattr(PlacementServiceStub(channel), method)
                    return await call(message, timeout=TIMEOUT_S)
            except grpc.aio.AioRpcError as error:
                leader = leader_in(error.trailing_metadata())
                if leader is None:
                    # Another process may have come to this address meanwhile.
                    processes += [x for x in self.living.values() if x.address == address]
                    if by is not None:
                        by += processes
                    raise
            if not leader:
                break
            address = leader
        raise NoLeaderError

    async def listed(self, address: str) -> Gangs:
        before = self.reservations.states()
        async with channel_to(address) as channel:
            call = PlacementServiceStub(channel).ListPlacements
            answer = await call(pb.ListPlacementsRequest(), timeout=TIMEOUT_S)
        found = {x.gang: x for x in answer.placements}
        self.reservations.check(found, before, f"the answer of {address}")
        return found

    async def place(self, gang: str, workers: int) -> None:
        message = request(workers, resources={"nvidia.com/gpu": "1"}, gang=gang)
        model = self.reservations.place(gang)
        try:
            answer = await self.call("Place", message, model.by)
        except NoLeaderError:
            self.reservations.gone(gang)
        except grpc.aio.AioRpcError as error:
            if error.code() in REFUSED:
                self.reservations.gone(gang)
        else:
            if answer.placement.placed:
                self.reservations.placed(gang, answer.placement)
            else:
                self.reservations.gone(gang)
        finally:
            model.is_open = False

    async def release(self, gang: str) -> None:
        is_held = gang in self.reservations.held()
        model = self.reservations.release(gang)
        try:
            await self.call("Release", pb.ReleaseRequest(gang=gang), model.by)
            self.reservations.gone(gang)
        except NoLeaderError:
            model.state = State.HELD if is_held else State.RELEASING
        except grpc.aio.AioRpcError as error:
            if error.code() == grpc.StatusCode.NOT_FOUND:
                if is_held:
                    raise AssertionError(f"the reservation of {gang} is lost") from error
                self.reservations.gone(gang)
        finally:
            model.is_open = False

    # Tasks

    async def client(self, client: str, rng: Random) -> None:
        number = 0
        while True:
            await asyncio.sleep(rng.uniform(0, 0.1))
            mine = self.reservations.held(client)
            if unknown := self.reservations.unknown(client):
                await self.release(rng.choice(unknown))
            elif mine and (len(mine) > 2 or rng.random() < 0.5):
                await self.release(rng.choice(mine))
            else:
                number += 1
                await self.place(f"{client}{number}", rng.randint(1, 4))

    async def lister(self) -> None:
        while True:
            await asyncio.sleep(0.1)
            before = self.reservations.states()
            with contextlib.suppress(grpc.aio.AioRpcError, NoLeaderError):
                answer = await self.call("ListPlacements", pb.ListPlacementsRequest())
                found = {x.gang: x for x in answer.placements}
                self.reservations.check(found, before, "an answer")

    async def reader(self, name: str) -> None:
        """Follow what a replica serves, also while it is a standby."""
        while True:
            with contextlib.suppress(grpc.aio.AioRpcError):
                async with channel_to(self.addresses[name]) as channel:
                    service = TopologyServiceStub(channel)
                    async for x in service.WatchTopology(topology_pb2.WatchTopologyRequest(omit_links=True)):
                        event = x.snapshot if x.HasField("snapshot") else x.delta
                        self.generations.saw(name, event.generation)
            await asyncio.sleep(0.05)

    # Checks

    def check_database(self) -> None:
        """Nothing else runs meanwhile in this process, so no answer arrives."""
        rows = self._postgresql.execute(self._database, "SELECT gang, placement FROM gangs")
        stored = {gang: pb.Placement.FromString(placement) for gang, placement in rows}
        self.reservations.check(stored, self.reservations.states(), "the database")

    def check_findings(self, agents: Agents) -> None:
        """A finding that differs in its time alone is not sent for a minute."""
        acknowledged = agents.acknowledged()
        rows = self._postgresql.execute(self._database, "SELECT node, probe, subject, finding FROM findings")
        stored = {row[:3]: without_time(row[3]) for row in rows}
        late = {key for key, finding in acknowledged.items() if stored.get(key) != without_time(finding)}
        assert not late, f"acknowledged findings are not in the database: {sorted(late)}"
        self.checked_findings += len(acknowledged)

    def check_history(self) -> None:
        rows = self._postgresql.execute(self._database, "SELECT generation FROM pictures ORDER BY id")
        self.generations.check([number for (number,) in rows])

    async def act(self, act: str, agents: Agents) -> None:
        leader = await self.led()
        standbys = [name for name in NAMES if name != leader]
        victims = {
            "leader": [leader],
            "two": [leader, self.rng.choice(standbys)],
            "standby": [self.rng.choice(standbys)],
            "server": [],
        }[act]
        if act == "server":
            how = self.rng.choice([signal.SIGINT, signal.SIGQUIT])
            await asyncio.to_thread(self._postgresql.end, how)
            await asyncio.to_thread(self._postgresql.start)
            self.check_database()
        else:
            await self.kill_at_answer(*victims)
        self.check_findings(agents)
        await agents.move()
        await self.restart(*victims)


class NoLeaderError(Exception):
    """No replica took the call."""


async def test_what_replicas_acknowledge_outlasts_kills(tmp_path: Path, own_postgresql: Postgresql) -> None:
    rng = Random(seed := soak_seed())
    print(f"HYPERSCOUT_SOAK_SEED={seed}")
    world = Failover(tmp_path, own_postgresql, rng)
    deadline_s = time.monotonic() + soak_s(0)
    try:
        await asyncio.gather(*map(world.start, NAMES))
        agents = Agents(list(world.addresses.values()), rng)
        await eventually(lambda: agents.settled, "all agents are connected")
        await world.led()
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(world.reader(name)) for name in NAMES]
            tasks += [group.create_task(world.client(x, Random(f"{seed} {x}"))) for x in CLIENTS]
            tasks.append(group.create_task(world.lister()))
            kills = 0
            deck: list[str] = []
            while kills < KILLS or time.monotonic() < deadline_s:
                deck = deck or rng.sample(ACTS, len(ACTS))
                acknowledged = world.reservations.acknowledged.copy()
                agents.change()
                await asyncio.sleep(rng.uniform(0, 1))
                act = deck.pop()
                print(f"{kills}: {act}, after {acknowledged}")
                await world.act(act, agents)
                kills += 1
                world.check_history()
                await world.led()
                await eventually(
                    lambda acknowledged=acknowledged: all(
                        world.reservations.acknowledged[x] > acknowledged[x] for x in (State.HELD, State.GONE)
                    ),
                    "clients reserve and release",
                )
            agents.change()
            await eventually(lambda: agents.settled, "all agents are connected")
            for task in tasks:
                task.cancel()
        world.check_findings(agents)
        await agents.stop()
        world.kill(*world.living)  # it decides all calls without an answer
        await world.restart(*NAMES)
        await world.led()
        assert not world.reservations.undecided([])
        world.check_database()
        world.check_history()
        assert world.checked_findings
        print(f"{kills} kills; calls without an answer: {world.reservations.decided}")
    finally:
        await world.stop()
