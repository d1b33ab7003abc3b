"""Counters of this host's NICs in what its LLDP probe tells: seldom enough to be no news."""

from pathlib import Path

import pytest
from hyperscout.v1.finding_pb2 import LldpPort
from hyperscout_agent.findings.probe import Observation, data, failed, nothing
from hyperscout_agent.lldp.counters import CounterCache
from hyperscout_formats.facts.wire import lldp_from_proto


class World:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.now_s = 1000.0
        self.changes = {"eth0": 1, "eth1": 1}
        self.cache = CounterCache(folder, clock=lambda: self.now_s)

    def count(self, port: str, **counters: int) -> None:
        folder = self.folder / "class/net" / port / "statistics"
        folder.mkdir(parents=True, exist_ok=True)
        for name, value in counters.items():
            (folder / name).write_text(f"{value}\n")

    async def observe(self) -> Observation:
        ports = {name: LldpPort(interface=name, carrier_changes=n) for name, n in self.changes.items()}
        (first, port), *rest = ports.items()
        return await self.cache.add_to(
            Observation({first: data(port), **{name: nothing("", one) for name, one in rest}})
        )

    async def told(self) -> dict[str, tuple[int, int]]:
        found = {}
        for name, sample in (await self.observe()).samples.items():
            assert isinstance(sample.payload, LldpPort)
            counters = lldp_from_proto(sample.payload).counters
            found[name] = (counters.rx_errors, counters.tx_dropped)
        return found


@pytest.fixture
def world(tmp_path: Path) -> World:
    found = World(tmp_path)
    found.count("eth0", rx_errors=3, tx_dropped=5)
    return found


async def test_once_a_minute(world: World) -> None:
    assert await world.told() == {"eth0": (3, 5), "eth1": (0, 0)}
    world.count("eth0", rx_errors=9)
    world.count("eth1", tx_dropped=1)
    for world.now_s in (1001.0, 1059.0):
        assert await world.told() == {"eth0": (3, 5), "eth1": (0, 0)}
    world.now_s = 1060.0
    assert await world.told() == {"eth0": (9, 5), "eth1": (0, 1)}


async def test_at_once_where_the_carrier_changed(world: World) -> None:
    await world.told()
    world.count("eth0", rx_errors=90)
    world.count("eth1", rx_errors=80)
    world.changes["eth0"] = 2
    world.now_s = 1001.0
    assert await world.told() == {"eth0": (90, 5), "eth1": (0, 0)}


async def test_ports_come_and_go(world: World) -> None:
    await world.told()
    world.changes = {"eth5": 1}
    assert await world.told() == {"eth5": (0, 0)}
    world.count("eth0", rx_errors=90)
    world.changes = {"eth0": 1}
    assert await world.told() == {"eth0": (90, 5)}, "another port of that name"


async def test_without_counters_nothing_is_sent(world: World) -> None:
    payload = (await world.observe()).samples["eth1"].payload
    assert isinstance(payload, LldpPort)
    assert not payload.HasField("counters")


async def test_a_subject_without_a_port(world: World) -> None:
    observation = Observation({"eth0": failed("no listener")}, complete=False)
    assert await world.cache.add_to(observation) is observation
