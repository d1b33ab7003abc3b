"""The crawl as a probe: what becomes a finding, how often it looks, and what it says when it cannot."""

import asyncio
import ipaddress
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hyperscout.v1.discovery_pb2 import Seeds
from hyperscout.v1.finding_pb2 import Outcome
from hyperscout_agent.findings.probe import Observation, ProbeError
from hyperscout_agent.findings.scheduler import Scheduler
from hyperscout_agent.findings.store import MAX_FINDING_BYTES, FindingStore
from hyperscout_agent.probes.snmp import SnmpProbe
from hyperscout_agent.settings.fabric_settings import SnmpSettings
from hyperscout_agent.snmp.tables import TooLarge, fitted
from hyperscout_agent.snmp.walk import Walk
from hyperscout_formats.facts.facts import SwitchTable
from hyperscout_formats.facts.wire import switch_table_from_proto
from hyperscout_formats.snmp import switch as snmp_switch
from hyperscout_formats.snmp import values as snmp_values
from hyperscout_formats.snmp.rows import Row
from hyperscout_sim.fabric.fabric import SimFabric
from hyperscout_sim.fabric.shapes import clos2
from hyperscout_sim.readings import snmp
from hyperscout_sim.readings.lldp import mac_of, management_address
from support.snmp_responder import Request, Responder, Table, refusing, responding, silent
from support.waiting import eventually

COMMUNITY = "open-sesame-3f9a"
SHORT_S = 1.0  # request time-out where a switch stays silent, which takes four of them
FABRIC = clos2(3, 2, 2)
# lldpRemChassisIdSubtype, lldpRemChassisId, lldpRemPortIdSubtype, lldpRemPortId
LLDP_IDS = tuple((1, 0, 8802, 1, 1, 2, 1, 4, 1, 1, column) for column in (4, 5, 6, 7))


def local(switch: object) -> str:
    """Its management address, moved to this machine's loopback."""
    return "127." + management_address(switch).partition(".")[2]  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def _at_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snmp, "management_address", local)
    monkeypatch.setattr(snmp_values, "usable", lambda raw: str(ipaddress.ip_address(raw)))


def tables(fabric: SimFabric = FABRIC) -> dict[str, Table]:
    return {local(switch): Table.of_snmprec(text.decode()) for switch, text in snmp.recordings(fabric)}


class Here:
    """A probe beside a fabric that answers it."""

    def __init__(self, folder: Path, responder: Responder) -> None:
        self.folder = folder
        self.responder = responder
        self.now_s = 1000.0
        self.triggered = 0
        self.community = folder / "community"
        self.community.write_text(COMMUNITY + "\n")

    def probe(self, *seeds: str, ranges: tuple[str, ...] = ("127.0.0.0/8",), **more: object) -> SnmpProbe:
        given = {
            "access": [{"ranges": ranges, "community_file": str(self.community)}],
            "seeds": seeds,
            "port": self.responder.port,
            "request_timeout_s": 15.0,  # a busy machine is no dead switch
            **more,
        }
        constants: dict[str, Any] = {"retries": 3}
        for name in ("interval_s", "crawl_timeout_s"):
            if name in given:
                constants[name] = given.pop(name)
        settings = SnmpSettings.model_validate(given)
        return SnmpProbe(settings, trigger=self._trigger, clock=lambda: self.now_s, **constants)

    def _trigger(self) -> None:
        self.triggered += 1


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Here]:
    with responding(tables(), COMMUNITY) as responder:
        yield Here(tmp_path, responder)


def outcomes(look: Observation) -> Mapping[str, str]:
    return {s: Outcome.Name(x.outcome).removeprefix("OUTCOME_").lower() for s, x in look.samples.items()}


SWITCHES = {mac_of(switch.guid): local(switch) for switch, _ in snmp.recordings(FABRIC)}
FIRST = min(SWITCHES.values())


def told_by_first(look: Observation) -> SwitchTable:
    (chassis,) = (chassis for chassis, address in SWITCHES.items() if address == FIRST)
    return switch_table_from_proto(look.samples[chassis].payload)  # type: ignore[arg-type]


async def test_each_switch_is_one_finding(here: Here) -> None:
    look = await here.probe(FIRST).observe()
    assert outcomes(look) == dict.fromkeys(SWITCHES, "data")
    assert look.complete
    assert look.trouble == ""
    for chassis, sample in look.samples.items():
        table = switch_table_from_proto(sample.payload)  # type: ignore[arg-type]
        assert {port.chassis_id for port in table.ports} == {chassis}
        assert table.addresses[0] == SWITCHES[chassis]
    spine = next(s for s in FABRIC.switches if not s.name.startswith("leaf"))
    heard = switch_table_from_proto(look.samples[mac_of(spine.guid)].payload)  # type: ignore[arg-type]
    assert sum(len(port.neighbours) for port in heard.ports) == 3


async def test_one_dead_switch_costs_its_own_time_alone(here: Here) -> None:
    here.responder.add(FIRST, silent)
    others = [address for address in SWITCHES.values() if address != FIRST]
    look = await here.probe(*others, request_timeout_s=SHORT_S).observe()
    (dead,) = (chassis for chassis, address in SWITCHES.items() if address == FIRST)
    assert outcomes(look) == dict.fromkeys(SWITCHES, "data") | {dead: "failed"}
    assert look.samples[dead].reason.startswith(f"{FIRST}: no answer in 4 s")
    assert look.complete


async def test_wrong_credentials_are_told_and_the_right_ones_count_at_once(here: Here) -> None:
    here.community.write_text("wrong")
    probe = here.probe(FIRST, request_timeout_s=SHORT_S)
    look = await probe.observe()
    assert outcomes(look) == {FIRST: "failed"}
    assert "the community of snmp.access for 127.0.0.0/8 is not its own" in look.samples[FIRST].reason
    asked = dict(here.responder.asked)
    assert outcomes(await probe.observe()) == {FIRST: "failed"}
    assert here.responder.asked == asked  # it rests
    here.community.write_text(COMMUNITY)
    assert outcomes(await probe.observe()) == dict.fromkeys(SWITCHES, "data")


async def test_no_secret_leaves_it(here: Here, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    here.responder.add(FIRST, silent)
    look = await here.probe(*SWITCHES.values(), request_timeout_s=SHORT_S).observe()
    told = "".join(str(s.payload) + s.reason for s in look.samples.values())
    assert COMMUNITY not in told + look.trouble + caplog.text


@pytest.mark.parametrize(
    ("seeds", "heard", "why"),
    [
        ((), (), "no switch's address is known: `snmp.seeds` is empty"),
        (
            ("10.0.0.1",),
            ("10.0.0.2", "10.0.0.3"),
            "none of 3 known addresses is in a range .*: 10.0.0.1, 10.0.0.2",
        ),
    ],
)
async def test_no_switch_to_ask(here: Here, seeds: tuple[str, ...], heard: tuple[str, ...], why: str) -> None:
    probe = here.probe(*seeds)
    probe.take_seeds(Seeds(addresses=heard))
    with pytest.raises(ProbeError, match=why):
        await probe.observe()


async def test_a_bound_that_is_met_is_told_and_nothing_is_taken_back(here: Here) -> None:
    look = await here.probe(FIRST, max_switches=2).observe()
    assert len(look.samples) == 2
    assert not look.complete
    assert "addresses were not queried: the limit is 2 (`snmp.max_switches`)" in look.trouble


async def test_the_whole_of_it_ends_in_time_with_what_it_has(here: Here) -> None:
    here.responder.add(FIRST, silent)
    chassis, other = max(SWITCHES.items(), key=lambda item: item[1])
    for limit_s in (1, 5, 50):  # a busy machine may take longer than 1 s for the other switch
        probe = here.probe(FIRST, other, request_timeout_s=60, crawl_timeout_s=limit_s, max_depth=0)
        with suppress(ProbeError):  # neither switch has answered
            look = await probe.observe()
            break
    assert outcomes(look) == {chassis: "data"}
    assert look.trouble == (
        f"the crawl did not end in {limit_s} s: 1 addresses are left; raise `snmp.concurrency`"
    )
    assert not look.complete


async def test_one_switch_ends_in_time(here: Here) -> None:
    here.responder.add(FIRST, silent)
    look = await here.probe(FIRST, request_timeout_s=30, switch_timeout_s=0.3).observe()
    assert look.samples[FIRST].reason == f"{FIRST}: the query did not end in 0.3 s (`snmp.switch_timeout_s`)"


async def test_a_switch_without_lldp_is_told_what_to_look_at(here: Here) -> None:
    here.responder.add(FIRST, Table({(1, 3, 6, 1, 2, 1, 1, 5, 0): b"\x04\x01x"}))
    look = await here.probe(FIRST).observe()
    assert "answers, but no LLDP-MIB (1.0.8802.1.1.2)" in look.samples[FIRST].reason


async def test_a_switch_that_refuses_everything_is_quoted(here: Here) -> None:
    here.responder.add(FIRST, refusing)
    look = await here.probe(FIRST).observe()
    assert "answers, but 1.0.8802.1.1.2.1.3: answers genErr" in look.samples[FIRST].reason


async def test_neighbours_that_are_heard_during_the_walk_keep_their_ids(here: Here) -> None:
    """The walk passes the ids of an empty table, and finds the names that came meanwhile."""
    text = next(text.decode() for switch, text in snmp.recordings(FABRIC) if local(switch) == FIRST)
    ids = tuple(f"{'.'.join(map(str, column))}." for column in LLDP_IDS)
    full = Table.of_snmprec(text)
    rest = Table.of_snmprec("\n".join(line for line in text.split("\n") if not line.startswith(ids)))
    assert len(rest) < len(full)
    heard = False

    def answer(asked: Request) -> list[bytes]:
        nonlocal heard
        table = full if heard else rest
        heard |= asked.oids[0] > LLDP_IDS[-1]
        return [table.answer(asked)]

    here.responder.add(FIRST, answer)
    look = await here.probe(*SWITCHES.values()).observe()
    table = told_by_first(look)
    neighbours = [neighbour for port in table.ports for neighbour in port.neighbours]
    assert neighbours
    assert {one.chassis_id_subtype for one in neighbours} == {"mac"}
    assert all(port.doubt == "" for port in table.ports)


async def test_a_switch_that_omits_the_ids_is_asked_for_them_once_more_and_no_more(here: Here) -> None:
    text = next(text.decode() for switch, text in snmp.recordings(FABRIC) if local(switch) == FIRST)
    chassis_id = f"{'.'.join(map(str, LLDP_IDS[1]))}."
    lines = [line for line in text.split("\n") if not line.startswith(chassis_id)]
    asked: list[tuple[int, ...]] = []
    table = Table.of_snmprec("\n".join(lines))

    def answer(request: Request) -> list[bytes]:
        asked.append(request.oids[0])
        return [table.answer(request)]

    here.responder.add(FIRST, answer)
    look = await here.probe(FIRST).observe()
    told = told_by_first(look)
    assert any("identified by its management address" in port.doubt for port in told.ports)
    assert asked.count(LLDP_IDS[0]) == 1


@pytest.mark.parametrize("more", [{"request_timeout_s": SHORT_S}, {"switch_timeout_s": 5.0}])
async def test_a_second_walk_that_fails_leaves_what_the_first_one_found(
    here: Here, more: dict[str, float]
) -> None:
    text = next(text.decode() for switch, text in snmp.recordings(FABRIC) if local(switch) == FIRST)
    chassis_id = f"{'.'.join(map(str, LLDP_IDS[1]))}."
    table = Table.of_snmprec("\n".join(x for x in text.split("\n") if not x.startswith(chassis_id)))
    refused = 0

    def answer(asked: Request) -> list[bytes]:
        nonlocal refused
        if asked.oids[0] == LLDP_IDS[0]:
            refused += 1
            return []
        return [table.answer(asked)]

    here.responder.add(FIRST, answer)
    told = told_by_first(await here.probe(FIRST, **more).observe())
    assert refused
    assert any(port.neighbours for port in told.ports)


class TestPace:
    async def test_it_sleeps_until_there_is_a_switch_to_ask(self, here: Here) -> None:
        probe = here.probe()
        assert probe.interval_s is None
        probe.take_seeds(Seeds())
        assert (probe.interval_s, here.triggered) == (30.0, 1)
        probe.take_seeds(Seeds(addresses=[FIRST]))
        probe.take_seeds(Seeds(addresses=[FIRST]))
        assert here.triggered == 2
        assert here.probe(FIRST).interval_s == 30.0

    async def test_it_looks_less_often_while_nothing_changes(self, here: Here) -> None:
        probe = here.probe(*SWITCHES.values(), request_timeout_s=SHORT_S, interval_s=10, max_interval_s=100)
        intervals = []
        for turn in range(7):
            if turn == 5:
                here.responder.add(FIRST, silent)
            await probe.observe()
            intervals.append(probe.interval_s)
        assert intervals == [10, 20, 40, 80, 100, 10, 20]

    async def test_a_crawl_rests_as_long_as_it_took(self, here: Here) -> None:
        probe = here.probe(FIRST, interval_s=10, max_interval_s=100)
        ticking = iter(range(0, 1000, 17))

        def clock() -> float:
            return float(next(ticking))

        slow = SnmpProbe(probe._settings, trigger=lambda: None, clock=clock)
        await slow.observe()
        assert slow.interval_s == 34


class TestSize:
    def walk(self, neighbours: int, ports: int = 1, size: int = 30) -> Walk:
        walk = Walk(snmp_switch.wanted_subtrees())
        local_system, remote = (1, 0, 8802, 1, 1, 2, 1, 3), (1, 0, 8802, 1, 1, 2, 1, 4, 1, 1)
        rows = [Row((*local_system, 1, 0), "integer", 4), Row((*local_system, 2, 0), "string", b"\2" * 6)]
        rows += [
            Row((*local_system, 7, 1, 3, port), "string", b"swp%d" % port) for port in range(1, ports + 1)
        ]
        for port in range(1, ports + 1):
            for n in range(1, neighbours + 1):
                for column, value in ((5, b"n%d" % n), (7, b"p" * size), (9, b"x" * size)):
                    rows.append(Row((*remote, column, 0, port, n), "string", value))
        walk.answered(sorted(rows))
        return walk

    def test_ten_thousand_neighbours_on_one_port(self) -> None:
        table = fitted(self.walk(10_000), "10.0.0.1")
        (port,) = table.ports
        assert len(port.neighbours) == 256
        assert "has 10000 neighbours, of which 256 are kept" in port.doubt
        assert any("has 10000 neighbours" in problem for problem in table.problems)

    def test_a_usual_switch_is_told_whole(self) -> None:
        table = fitted(self.walk(1, ports=128, size=60), "10.0.0.1")
        assert sum(len(port.neighbours) for port in table.ports) == 128

    def test_what_cannot_be_told_at_all(self) -> None:
        with pytest.raises(TooLarge, match="the table of its 3000 ports is larger than"):
            fitted(self.walk(1, ports=3000, size=200), "10.0.0.1")


@contextmanager
def looking(probe: SnmpProbe) -> Iterator[tuple[Scheduler, FindingStore]]:
    store = FindingStore("fabric/x")
    yield Scheduler([probe], store, rng=Random(1)), store


async def test_by_the_scheduler_into_the_store(here: Here) -> None:
    """A table that is there stays when its switch gives nothing."""
    probe = here.probe(*SWITCHES.values(), request_timeout_s=SHORT_S, max_interval_s=0.2)
    (dead,) = (chassis for chassis, address in SWITCHES.items() if address == FIRST)
    with looking(probe) as (scheduler, store):
        task = asyncio.create_task(scheduler.run())
        try:
            await eventually(lambda: store.subjects("snmp") == set(SWITCHES))
            here.responder.add(FIRST, silent)
            await eventually(lambda: scheduler.stats["snmp"].success is False)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        found = store.get("snmp", dead)
        assert found is not None
        assert found.outcome == Outcome.OUTCOME_DATA
        assert found.HasField("switch_table")
        assert found.ByteSize() < MAX_FINDING_BYTES
