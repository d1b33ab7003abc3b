"""The LLDP probes with real lldpd at the other end of real (virtual) cables."""

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hyperscout.v1.finding_pb2 import Outcome
from hyperscout_agent.findings.probe import Sample
from hyperscout_agent.lldp.dissection import Dissector
from hyperscout_agent.lldp.neighbours import NO_CARRIER, NOTHING_YET
from hyperscout_agent.probes.lldp import LldpctlProbe, LldpProbe
from hyperscout_agent.runtime.rtnetlink import LinkWatch
from hyperscout_formats.facts.facts import LldpNeighbour
from hyperscout_formats.facts.wire import lldp_from_proto
from hyperscout_formats.lldp.lldpctl import parse
from support.fake_collector import FakeCollector
from support.lldpd import Lab, ip, lldp_lab
from support.real import require_real, tool

require_real("root", "netns", "lldpd")

WAIT_S = 90.0
DATA, NOTHING, FAILED = Outcome.OUTCOME_DATA, Outcome.OUTCOME_NOTHING, Outcome.OUTCOME_FAILED
PORTS = re.compile("eth[01]")
GROUP = bytes.fromhex("0180c200000e")


@pytest.fixture
def lab() -> Iterator[Lab]:
    """host eth0 - leaf1 swp1, host eth1 - leaf2 swp7; no daemon yet."""
    with lldp_lab() as made:
        made.cable(("host", "eth0"), ("leaf1", "swp1"))
        made.cable(("host", "eth1"), ("leaf2", "swp7"))
        yield made


class Listening:
    """The probe in this process, its listener inside the namespace."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self.changed = asyncio.Event()
        self.socket_path = folder / "s"
        self.sysfs = lab.sysfs("host")
        self.probe = self._probe()
        self.watch = LinkWatch(self.changed.set)
        self.lab = lab
        self._tasks: list[asyncio.Task[None]] = []

    def _probe(self) -> LldpProbe:
        return LldpProbe(
            socket_path=self.socket_path,
            dissector=Dissector(),
            sysfs=self.sysfs,
            pattern=PORTS,
            trigger=self.changed.set,
        )

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        self._tasks = [asyncio.create_task(self.probe.serve())]
        with self.lab.inside("host"):  # the first step of the watch opens its socket
            self._tasks.append(asyncio.create_task(self.watch.run()))
            await asyncio.sleep(0)
        argv = [str(tool("ip")), "netns", "exec", self.lab.namespace("host"), sys.executable, "-m"]
        argv += [
            "hyperscout_agent.lldp.listener",
            "--socket",
            str(self.socket_path),
            "--ports",
            PORTS.pattern,
        ]
        listener = subprocess.Popen(argv)
        try:
            yield
            assert not any(task.done() for task in self._tasks)
            assert listener.poll() is None
        finally:
            listener.terminate()
            await self._end_tasks()
            assert listener.wait(WAIT_S) == 0

    async def restart_agent(self) -> None:
        """A new agent that knows nothing, with the listener of the old one."""
        await self._end_tasks()
        self.probe = self._probe()
        self._tasks = [asyncio.create_task(self.probe.serve())]

    async def _end_tasks(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def until(self, happened: Callable[[dict[str, Sample]], bool]) -> dict[str, Sample]:
        """Look whenever the probe asks for it, never on a timer, until it is so."""
        async with asyncio.timeout(WAIT_S):
            while True:
                self.changed.clear()
                samples = dict((await self.probe.observe()).samples)
                if happened(samples):
                    return samples
                await self.changed.wait()


@pytest.fixture
async def listening(lab: Lab, tmp_path: Path) -> AsyncIterator[Listening]:
    made = Listening(lab, tmp_path)
    async with made.running():
        yield made


def neighbours(sample: Sample) -> tuple[LldpNeighbour, ...]:
    return lldp_from_proto(sample.payload).neighbours  # type: ignore[arg-type]


def both(samples: dict[str, Sample]) -> bool:
    return all(samples[name].outcome == DATA for name in ("eth0", "eth1"))


async def test_the_own_view_equals_lldpctls(lab: Lab, listening: Listening) -> None:
    lab.lldpd(
        "leaf1", ["swp1"], 'configure system description "an OS"', "configure system ip management pattern *"
    )
    lab.lldpd("leaf2", ["swp7"])
    host = lab.lldpd("host", ["eth0", "eth1"])
    host.await_neighbours(2)
    await listening.until(both)
    theirs = {port.interface: port.neighbours for port in parse(host.view())[0]}
    samples = await listening.until(lambda s: all(neighbours(s[name]) == theirs[name] for name in theirs))
    assert sorted(theirs) == sorted(samples) == ["eth0", "eth1"]
    assert {name: theirs[name][0].system_name for name in theirs} == {"eth0": "leaf1", "eth1": "leaf2"}


async def test_both_sources_report_the_same(lab: Lab, listening: Listening) -> None:
    lab.lldpd("leaf1", ["swp1"])
    lab.lldpd("leaf2", ["swp7"])
    host = lab.lldpd("host", ["eth0", "eth1"])
    host.await_neighbours(2)
    mine = await listening.until(both)
    asked = LldpctlProbe(command=host.ctl(), sysfs=listening.sysfs, pattern=PORTS)
    theirs = (await asked.observe()).samples
    assert {name: sample.payload for name, sample in mine.items()} == {
        name: sample.payload for name, sample in theirs.items()
    }
    assert all(lldp_from_proto(x.payload).speed_mbps > 0 for x in mine.values())  # type: ignore[arg-type]


async def test_a_neighbour_that_falls_silent_expires_by_its_ttl(lab: Lab, listening: Listening) -> None:
    leaf = lab.lldpd("leaf1", ["swp1"], ttl=(1, 2))
    samples = await listening.until(lambda s: s["eth0"].outcome == DATA)
    assert neighbours(samples["eth0"])[0].ttl_s == 2
    leaf.kill()
    await listening.until(lambda s: s["eth0"].outcome == NOTHING)


async def test_a_neighbour_that_says_goodbye_is_gone_at_once(lab: Lab, listening: Listening) -> None:
    leaf = lab.lldpd("leaf1", ["swp1"], ttl=(5, 24))
    await listening.until(lambda s: s["eth0"].outcome == DATA)
    leaf.stop()
    await listening.until(lambda s: s["eth0"].outcome == NOTHING)


async def test_carrier_loss_is_noticed_at_once(lab: Lab, listening: Listening) -> None:
    """Long before the TTL: the kernel says so, and no process polls here."""
    lab.lldpd("leaf1", ["swp1"], ttl=(2, 60))
    before = await listening.until(lambda s: s["eth0"].outcome == DATA)
    changes = lldp_from_proto(before["eth0"].payload).carrier_changes  # type: ignore[arg-type]
    lab.link_set(("leaf1", "swp1"), "down")
    samples = await listening.until(lambda s: s["eth0"].outcome == NOTHING)
    assert samples["eth0"].reason == NO_CARRIER
    port = lldp_from_proto(samples["eth0"].payload)  # type: ignore[arg-type]
    assert (port.carrier, port.carrier_changes > changes) == (False, True)
    lab.link_set(("leaf1", "swp1"), "up")
    await listening.until(lambda s: s["eth0"].outcome == DATA)


async def test_a_port_that_is_made_anew_under_its_old_number_is_heard(lab: Lab, listening: Listening) -> None:
    """A driver that is loaded again: name and index may be those of before, the old socket is deaf."""
    lab.lldpd("leaf2", ["swp7"])
    await listening.until(lambda s: s["eth1"].outcome == DATA)
    host, leaf = lab.namespace("host"), lab.namespace("leaf1")
    index = (listening.sysfs / "class/net/eth0/ifindex").read_text().strip()
    ip("-n", host, "link", "del", "eth0")
    ip(
        "-n",
        host,
        "link",
        "add",
        "eth0",
        "index",
        index,
        "type",
        "veth",
        "peer",
        "name",
        "swp1",
        "netns",
        leaf,
    )
    for end in (("host", "eth0"), ("leaf1", "swp1")):
        lab.link_set(end, "up")
    lab.lldpd("leaf1", ["swp1"])
    await listening.until(lambda s: s["eth0"].outcome == DATA)


def tlv(kind: int, value: bytes, size: int | None = None) -> bytes:
    return (kind << 9 | (len(value) if size is None else size)).to_bytes(2, "big") + value


IDS = tlv(1, b"\x04\x02\0\0\0\0\x01") + tlv(2, b"\x05evil1") + tlv(3, b"\0\x78")
HOSTILE = {
    "empty": b"",
    "all ones": b"\xff" * 1000,
    "cut in a TLV": IDS[:7],
    "a length beyond the frame": tlv(1, b"\x04", 511) + bytes(10),
    "empty identifiers": tlv(1, b"") + tlv(2, b"") + tlv(3, b""),
    "the wrong order": tlv(3, b"\0\x78") + IDS,
    "everything twice": IDS + IDS,
    "a management address that lies about its length": IDS + tlv(8, b"\xff" * 30),
    "a name that is too long": IDS + tlv(5, b"x" * 511),
    "organisations' junk, then no end": IDS + tlv(127, b"\0\x80\xc2\xff" + b"x" * 500) * 2,
    "hundreds of TLVs, none of them needed": b"".join(tlv(127, b"abcd") for _ in range(240)),
}


async def test_hostile_frames_do_no_harm(lab: Lab, listening: Listening) -> None:
    lab.lldpd("leaf1", ["swp1"])
    lab.lldpd("leaf2", ["swp7"])
    good = {name: neighbours(sample) for name, sample in (await listening.until(both)).items()}
    for number, body in enumerate(HOSTILE.values()):
        sender = bytes([2, 0, 0, 0, 1, number])
        lab.inject(("leaf1", "swp1"), GROUP + sender + b"\x88\xcc" + body)
    # A good frame of a sender of its own, after all those, shows that all those were dealt with.
    marker = tlv(1, b"\x07marker") + tlv(2, b"\x07marker") + tlv(3, b"\0\x78") + tlv(0, b"")
    lab.inject(("leaf1", "swp1"), GROUP + b"\x02marke" + b"\x88\xcc" + marker)
    samples = await listening.until(
        lambda s: any(one.chassis_id == "marker" for one in neighbours(s["eth0"]))
    )
    assert both(samples)
    assert set(good["eth0"]) <= set(neighbours(samples["eth0"]))
    assert neighbours(samples["eth1"]) == good["eth1"]
    for one in neighbours(samples["eth0"]):
        assert len(one.system_name) <= 255


async def test_what_may_come_from_further_away_is_not_heard(lab: Lab, listening: Listening) -> None:
    """Other group addresses pass through bridges, broadcast too: a sender there is no neighbour."""
    far = tlv(1, b"\x07far") + tlv(2, b"\x07away") + tlv(3, b"\0\x78") + tlv(0, b"")
    marker = tlv(1, b"\x07marker") + tlv(2, b"\x07marker") + tlv(3, b"\0\x78") + tlv(0, b"")
    await listening.until(lambda s: s["eth0"].reason == NOTHING_YET)  # the listener is there
    lab.inject(
        ("leaf1", "swp1"),
        b"\xff" * 6 + b"\x02far01" + b"\x88\xcc" + far,
        bytes.fromhex("0180c2000003") + b"\x02far02" + b"\x88\xcc" + far,
        GROUP + b"\x02marke" + b"\x88\xcc" + marker,
    )
    samples = await listening.until(lambda s: s["eth0"].outcome == DATA)
    assert [one.chassis_id for one in neighbours(samples["eth0"])] == ["marker"]


async def test_a_storm_on_one_port_leaves_the_other_alone(lab: Lab, listening: Listening) -> None:
    lab.lldpd("leaf2", ["swp7"])
    await listening.until(lambda s: s["eth1"].outcome == DATA)
    storm = [
        GROUP
        + b"\x02"
        + number.to_bytes(5, "big")
        + b"\x88\xcc"
        + tlv(1, b"\x07%d" % number)
        + tlv(2, b"\x07x")
        for number in range(20_000)
    ]
    lab.inject(("leaf1", "swp1"), *storm)
    lab.lldpd("leaf1", ["swp1"])
    samples = await listening.until(lambda s: s["eth0"].outcome == DATA)
    assert samples["eth1"].outcome == DATA


async def test_an_agent_that_restarts_knows_its_neighbours_at_once(lab: Lab, tmp_path: Path) -> None:
    """Though they speak seldom: the listener stays, and tells it all."""
    lab.lldpd("leaf1", ["swp1"], ttl=(5, 24))
    listening = Listening(lab, tmp_path)
    async with listening.running():
        await listening.until(lambda s: s["eth0"].outcome == DATA)
        await listening.restart_agent()
        await listening.until(lambda s: s["eth0"].outcome == DATA)


async def test_a_whole_agent_in_a_namespace(lab: Lab, tmp_path: Path) -> None:
    """As it is run: listener spawned, frames heard, findings streamed, a cut cable seen, a clean end."""
    lab.lldpd("leaf1", ["swp1"])
    collector = FakeCollector(address=f"unix:{tmp_path}/collector.sock")
    await collector.start()
    code = (
        "import asyncio, sys; from hyperscout_agent.settings.settings import load_settings;"
        "from hyperscout_agent.main import run; sys.exit(asyncio.run(run(load_settings())))"
    )
    process = subprocess.Popen(
        [str(tool("ip")), "netns", "exec", lab.namespace("host"), sys.executable, "-c", code],
        env={
            **os.environ,
            "HYPERSCOUT_AGENT_NODE": "host",
            "HYPERSCOUT_AGENT_COLLECTORS": f"unix:{tmp_path}/collector.sock",
            "HYPERSCOUT_AGENT_LLDP__SOURCE": "listener",
            "HYPERSCOUT_AGENT_LLDP__SOCKET": f"{tmp_path}/lldp.sock",
            "HYPERSCOUT_AGENT_LLDP__PORTS": PORTS.pattern,
            "HYPERSCOUT_AGENT_METRICS__PORT": "0",
            "HYPERSCOUT_AGENT_METRICS__HOST": "::",
        },
    )

    def finding(name: str) -> Any:
        return collector.evidence.get(("host", "lldp", name))

    try:
        await collector.until(lambda: finding("eth0") is not None and finding("eth0").outcome == DATA)
        assert finding("eth0").lldp.neighbours[0].system_name == "leaf1"
        assert finding("eth1").outcome != DATA
        lab.link_set(("leaf1", "swp1"), "down")
        await collector.until(lambda: finding("eth0").outcome == NOTHING)
        assert not finding("eth0").lldp.carrier
        process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(process.wait, 20) == 0
        assert not (tmp_path / "lldp.sock").exists()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait(WAIT_S)
        await collector.stop()
