"""The LLDP probe from the listener's socket to what it reports, on a tree of files and in fake time."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hyperscout.v1.finding_pb2 import Outcome
from hyperscout_agent.findings.probe import Sample
from hyperscout_agent.lldp.dissection import DissectorError, UnreadableError
from hyperscout_agent.lldp.messages import Heard, encode
from hyperscout_agent.lldp.neighbours import NO_CARRIER, NOTHING_HEARD, NOTHING_YET
from hyperscout_agent.probes.lldp import LldpProbe
from hyperscout_formats.facts.facts import LldpNeighbour
from support.fake_time import FakeTime, settle
from support.waiting import TIMEOUT_S, until

DATA, NOTHING, FAILED = Outcome.OUTCOME_DATA, Outcome.OUTCOME_NOTHING, Outcome.OUTCOME_FAILED
LEAF = LldpNeighbour("mac", "02:00:00:00:00:01", "ifname", "swp1", 120, system_name="leaf1")
A = b"aaaaaa"


class FakeDissector:
    """Knows a few frames by heart."""

    def __init__(self) -> None:
        self.asked: list[bytes] = []
        self.idle = asyncio.Event()  # not set: it takes its time
        self.idle.set()
        self.answers: dict[bytes, LldpNeighbour | Exception] = {
            b"leaf": LEAF,
            b"other": replace(LEAF, chassis_id="02:00:00:00:00:02", system_name="leaf2"),
            b"bye": replace(LEAF, ttl_s=0),
            b"bad": UnreadableError("cut short in TLV 3"),
            b"bomb": DissectorError("no answer in 30 s"),
        }

    async def dissect(self, frame: bytes) -> LldpNeighbour:
        self.asked.append(frame)
        await self.idle.wait()
        answer = self.answers[frame]
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def end_when_idle(self) -> None:
        await asyncio.Event().wait()


class World:
    """A probe that serves, its sysfs, and a listener to speak for."""

    def __init__(self, folder: Path) -> None:
        self.time = FakeTime()
        self.dissector = FakeDissector()
        self.sysfs = folder / "sys"
        self.path = folder / "lldp.sock"
        self.triggered = 0
        self.listener: socket.socket | None = None
        for name in ("eth0", "eth1"):
            self.port(name)
        self.probe = LldpProbe(
            socket_path=self.path,
            dissector=self.dissector,  # type: ignore[arg-type]
            sysfs=self.sysfs,
            trigger=self._trigger,
            clock_ns=self.time.wall_ns,
            wait=self.time.wait,
        )

    def _trigger(self) -> None:
        self.triggered += 1

    def port(self, name: str, **files: str) -> None:
        folder = self.sysfs / "class/net" / name
        (folder / "device").mkdir(parents=True, exist_ok=True)
        given = {"type": "1", "address": "02:00:00:00:00:aa", "carrier": "1", "speed": "100000", **files}
        for file, text in {"carrier_changes": "2", **given}.items():
            (folder / file).write_text(text)

    async def connect(self) -> None:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(TIMEOUT_S):
            while not self.path.exists():
                await asyncio.sleep(0)
            self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self.listener.setblocking(False)
            await loop.sock_connect(self.listener, str(self.path))
            await self.until(lambda: self.probe._link.connected == 1)

    async def say(
        self, port: str, frame: bytes | None, sender: bytes = A, *, at_s: float | None = None
    ) -> None:
        assert self.listener is not None
        at_ns = self.time.wall_ns() if at_s is None else int(at_s * 1e9)
        asked = len(self.dissector.asked)
        await asyncio.get_running_loop().sock_sendall(
            self.listener, encode(Heard(port, sender, at_ns, frame))
        )
        if frame is not None:
            await self.until(lambda: len(self.dissector.asked) > asked)
        await settle()

    async def until(self, happened: Any) -> None:
        await until(happened)

    async def look(self) -> dict[str, Sample]:
        return dict((await self.probe.observe()).samples)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    made = World(tmp_path)
    serving = asyncio.create_task(made.probe.serve())
    await settle()
    yield made
    assert not serving.done()
    serving.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await serving
    if made.listener:
        made.listener.close()
    assert not made.path.exists()


async def test_without_a_listener_it_says_what_to_start(world: World) -> None:
    samples = await world.look()
    assert samples["eth0"].outcome == FAILED
    assert f"lldp-listener --socket {world.path}" in samples["eth0"].reason
    world.port("eth1", carrier="0")
    assert (await world.look())["eth1"].outcome == NOTHING, "no carrier is seen without any listener"


async def test_heard_then_expired(world: World) -> None:
    await world.connect()
    assert (await world.look())["eth0"].reason == NOTHING_YET
    before = world.triggered
    await world.say("eth0", b"leaf")
    assert world.triggered == before + 1, "news is looked at at once"
    sample = (await world.look())["eth0"]
    assert sample.outcome == DATA
    port: Any = sample.payload
    assert (port.interface, port.mac, port.carrier, port.speed_mbps, port.carrier_changes) == (
        "eth0", "02:00:00:00:00:aa", True, 100_000, 2,
    )  # fmt: skip
    assert [(n.chassis_id, n.port_id, n.system_name, n.ttl_s) for n in port.neighbours] == [
        ("02:00:00:00:00:01", "swp1", "leaf1", 120)
    ]
    await world.time.pass_s(100)
    await world.say("eth0", None)  # heard again: another 120 s
    await settle()
    before = world.triggered
    await world.time.pass_s(119)
    assert world.triggered == before
    assert (await world.look())["eth0"].outcome == DATA
    await world.time.pass_s(2)
    assert world.triggered > before, "the look comes with the expiry, not with the interval"
    sample = (await world.look())["eth0"]
    assert (sample.outcome, sample.reason) == (NOTHING, NOTHING_HEARD)


async def test_goodbye_is_nothing_at_once(world: World) -> None:
    await world.connect()
    await world.say("eth0", b"leaf")
    await world.say("eth0", b"bye")
    assert (await world.look())["eth0"].outcome == NOTHING


async def test_carrier_loss_forgets_the_neighbour(world: World) -> None:
    await world.connect()
    await world.say("eth0", b"leaf")
    world.port("eth0", carrier="0", carrier_changes="3")
    sample = (await world.look())["eth0"]
    payload: Any = sample.payload
    assert (sample.outcome, sample.reason) == (NOTHING, NO_CARRIER)
    assert (payload.carrier, payload.carrier_changes, payload.speed_mbps) == (False, 3, 0)
    world.port("eth0", carrier="1", carrier_changes="4")
    assert (await world.look())["eth0"].outcome == NOTHING, "another device may have come back"
    await world.say("eth0", b"leaf")
    assert (await world.look())["eth0"].outcome == DATA


async def test_a_cable_that_is_moved_faster_than_the_probe_looks(world: World) -> None:
    """The carrier's counter tells: the next sender replaces the earlier one."""

    def heard(samples: dict[str, Sample]) -> list[str]:
        payload: Any = samples["eth0"].payload
        return [one.system_name for one in payload.neighbours]

    await world.connect()
    await world.say("eth0", b"leaf")
    assert heard(await world.look()) == ["leaf1"]
    await world.time.pass_s(1)
    world.port("eth0", carrier_changes="4")
    assert heard(await world.look()) == ["leaf1"], "most cables that blink are where they were"
    await world.time.pass_s(1)
    await world.say("eth0", b"other", b"bbbbbb")
    assert heard(await world.look()) == ["leaf2"]


@pytest.mark.parametrize(
    ("frame", "reason"), [(b"bad", "cut short in TLV 3"), (b"bomb", "no answer in 30 s")]
)
async def test_frames_that_cannot_be_read(world: World, frame: bytes, reason: str) -> None:
    await world.connect()
    await world.say("eth0", frame)
    samples = await world.look()
    assert samples["eth0"].outcome == FAILED
    assert reason in samples["eth0"].reason
    assert samples["eth1"].reason == NOTHING_YET, "the other port is none the worse"
    await world.say("eth0", b"leaf")
    assert (await world.look())["eth0"].outcome == DATA
    await world.say("eth0", frame, b"evil!!")
    assert (await world.look())["eth0"].outcome == DATA, "junk beside a good neighbour removes no neighbour"


async def test_an_innocent_frame_gets_another_try(world: World) -> None:
    """The listener sends it once; then it says only that it was heard again."""
    await world.connect()
    await world.say("eth0", b"bomb")
    assert (await world.look())["eth0"].outcome == FAILED
    world.dissector.answers[b"bomb"] = LEAF
    await world.say("eth0", None)
    await world.until(lambda: world.dissector.asked == [b"bomb", b"bomb"])
    await world.until(lambda: world.probe.table.neighbours("eth0", world.time.wall_ns()))
    assert (await world.look())["eth0"].outcome == DATA
    await world.say("eth0", b"bad")
    await world.say("eth0", None)
    await world.say("eth0", b"leaf")
    assert world.dissector.asked.count(b"bad") == 1, "what is no LLDP stays none"


async def test_the_frame_tried_again_is_the_newest(world: World) -> None:
    """While one is taken apart in vain, the next one of the same sender comes in."""
    await world.connect()
    world.dissector.idle.clear()
    await world.say("eth0", b"bomb")
    assert world.listener is not None
    newer = encode(Heard("eth0", A, world.time.wall_ns(), b"leaf"))
    await asyncio.get_running_loop().sock_sendall(world.listener, newer)
    await world.until(lambda: world.probe._waiting)
    world.dissector.idle.set()
    await world.until(lambda: world.probe.table.neighbours("eth0", world.time.wall_ns()))
    world.dissector.answers[b"bomb"] = replace(LEAF, port_id="swp9")
    await world.say("eth0", None)
    await settle()
    assert world.dissector.asked == [b"bomb", b"leaf"]
    neighbours = (await world.look())["eth0"].payload.neighbours
    assert [neighbour.port_id for neighbour in neighbours] == ["swp1"]


async def test_a_neighbour_outlives_the_listener_by_its_ttl(world: World) -> None:
    await world.connect()
    await world.say("eth0", b"leaf")
    assert world.listener is not None
    world.listener.close()
    await world.until(lambda: world.probe._link.connected == 0)
    samples = await world.look()
    assert (samples["eth0"].outcome, samples["eth1"].outcome) == (DATA, FAILED)
    await world.time.pass_s(121)
    assert (await world.look())["eth0"].outcome == FAILED, "no listener runs, so the state is unknown"
    await world.connect()
    assert (await world.look())["eth0"].outcome == FAILED, (
        "a listener that has just begun does not know either"
    )
    await world.time.pass_s(61)
    assert (await world.look())["eth0"].outcome == NOTHING


async def test_a_listener_that_has_just_begun_calls_no_neighbour_gone(world: World) -> None:
    """An agent that was killed comes back to a collector that knows its neighbours."""
    await world.connect()
    sample = (await world.look())["eth0"]
    assert (sample.outcome, sample.reason, sample.payload.carrier) == (FAILED, NOTHING_YET, True)
    await world.say("eth0", b"leaf")
    assert (await world.look())["eth0"].outcome == DATA
    world.port("eth0", carrier="0")
    assert (await world.look())["eth0"].outcome == NOTHING, "no carrier is seen at once"
    world.port("eth0", carrier="1")
    sample = (await world.look())["eth0"]
    assert (sample.outcome, sample.reason) == (NOTHING, NOTHING_YET), "it was another cable's neighbour"


async def test_whose_frame_is_still_being_read_is_not_gone(world: World) -> None:
    """The agent starts anew beside a listener that tells it all at once; reading that takes a while."""
    await world.connect()
    world.dissector.idle.clear()
    await world.say("eth0", b"leaf")
    assert (await world.look())["eth0"].outcome == FAILED
    world.dissector.idle.set()
    await world.until(lambda: world.probe.table.neighbours("eth0", world.time.wall_ns()))
    assert (await world.look())["eth0"].outcome == DATA


async def test_times_from_the_future_do_not_outlast(world: World) -> None:
    await world.connect()
    await world.say("eth0", b"leaf", at_s=10**9)
    await world.time.pass_s(121)
    assert (await world.look())["eth0"].outcome == NOTHING


async def test_the_hint_comes_after_a_minute(world: World) -> None:
    await world.connect()
    assert (await world.look())["eth0"].reason == NOTHING_YET
    await world.time.pass_s(61)
    assert (await world.look())["eth0"].reason == NOTHING_HEARD


async def test_junk_on_the_socket_ends_that_connection_only(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    await world.connect()
    assert world.listener is not None
    await asyncio.get_running_loop().sock_sendall(world.listener, b"junk")
    await world.until(lambda: world.probe._link.connected == 0)
    assert "sent an invalid message" in caplog.text
    world.listener.close()
    await world.connect()
    await world.say("eth0", b"leaf")
    assert (await world.look())["eth0"].outcome == DATA


async def test_connections_are_bounded(world: World) -> None:
    await world.connect()
    others = []
    loop = asyncio.get_running_loop()
    for _ in range(10):
        other = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        other.setblocking(False)
        await loop.sock_connect(other, str(world.path))
        others.append(other)
        await settle()
    assert world.probe._link.connected == 4
    for other in others:
        other.close()
    await world.until(lambda: world.probe._link.connected == 1)
