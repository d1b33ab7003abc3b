"""The probe of a switch: what lldpd says of it and its neighbours; the tools here are shell scripts."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hyperscout.v1.finding_pb2 import Outcome, SwitchPort
from hyperscout_agent.findings.probe import Observation, ProbeError
from hyperscout_agent.lldp.neighbours import NO_CARRIER
from hyperscout_agent.probes.switch import NOT_LLDPD, NOTHING_HEARD, SwitchProbe
from hyperscout_agent.settings.settings import lldpcli_of

DATA, NOTHING = Outcome.OUTCOME_DATA, Outcome.OUTCOME_NOTHING


def interface(name: str, chassis: str, system: str, port: str) -> dict[str, Any]:
    return {
        "name": name,
        "chassis": [{"id": [{"type": "mac", "value": chassis}], "name": [{"value": system}]}],
        "port": [{"id": [{"type": "ifname", "value": port}], "ttl": [{"value": "120"}]}],
    }


def own(*names: str) -> bytes:
    ports = [interface(name, "02:00:00:00:00:01", "leaf-1", name) for name in names]
    return json.dumps({"lldp": [{"interface": ports}]}).encode()


def heard(**spine_port_by_name: str) -> bytes:
    ports = [interface(name, "02:00:00:00:00:99", "spine", port) for name, port in spine_port_by_name.items()]
    return json.dumps({"lldp": [{"interface": ports}]}).encode()


class Switch:
    """Files of sysfs, the tools' answers, and a clock."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.now_s = 0.0
        self.tool("lldpcli", f'[ "$*" = "-f json0 show interfaces" ] && cat {folder}/own')
        self.tool("lldpctl", f'[ "$*" = "-f json0" ] && cat {folder}/heard')
        self.says(own("swp1", "swp2"), heard(swp1="swp7"))
        for name in ("swp1", "swp2", "eth0"):
            self.port(name)

    def tool(self, name: str, script: str) -> None:
        (self.folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (self.folder / name).chmod(0o755)

    def says(self, own: bytes, heard: bytes) -> None:
        (self.folder / "own").write_bytes(own)
        (self.folder / "heard").write_bytes(heard)

    def port(self, name: str, *, carrier: int = 1, changes: int = 1, **counters: int) -> None:
        folder = self.folder / "class/net" / name
        (folder / "statistics").mkdir(parents=True, exist_ok=True)
        files = {
            "carrier": carrier,
            "carrier_changes": changes,
            "speed": 10_000,
            "address": "02:00:00:00:01:01",
        }
        for file, value in files.items():
            (folder / file).write_text(f"{value}\n")
        for counter, value in counters.items():
            (folder / "statistics" / counter).write_text(f"{value}\n")

    def probe(self, pattern: str | None = None) -> SwitchProbe:
        return SwitchProbe(
            lldpctl=[str(self.folder / "lldpctl")],
            lldpcli=[str(self.folder / "lldpcli")],
            sysfs=self.folder,
            pattern=None if pattern is None else re.compile(pattern),
            interval_s=30.0,
            clock=lambda: self.now_s,
        )


@pytest.fixture
def switch(tmp_path: Path) -> Switch:
    return Switch(tmp_path)


def outcomes(look: Observation) -> dict[str, tuple[Outcome.ValueType, str]]:
    return {name: (sample.outcome, sample.reason) for name, sample in look.samples.items()}


def payload(look: Observation, name: str) -> SwitchPort:
    found = look.samples[name].payload
    assert isinstance(found, SwitchPort)
    return found


async def test_ports_of_lldpd_with_what_they_announce_and_hear(switch: Switch) -> None:
    switch.port("swp2", carrier=0)
    switch.port("swp1", changes=5, rx_errors=3, tx_dropped=1, rx_bytes=99)
    look = await switch.probe().observe()
    assert outcomes(look) == {"swp1": (DATA, ""), "swp2": (NOTHING, NO_CARRIER)}, "eth0 is none of lldpd's"
    port = payload(look, "swp1")
    assert (port.chassis_id, port.system_name, port.port_id) == ("02:00:00:00:00:01", "leaf-1", "swp1")
    assert (port.carrier, port.speed_mbps, port.carrier_changes) == (True, 10_000, 5)
    assert (port.counters.rx_errors, port.counters.tx_dropped) == (3, 1)
    assert [(n.system_name, n.port_id) for n in port.neighbours] == [("spine", "swp7")]
    assert payload(look, "swp2").port_id == "swp2"


async def test_without_carrier_there_is_no_neighbour_whatever_lldpd_remembers(switch: Switch) -> None:
    switch.port("swp1", carrier=0)
    look = await switch.probe().observe()
    assert outcomes(look)["swp1"] == (NOTHING, NO_CARRIER)
    assert not payload(look, "swp1").neighbours


@pytest.mark.parametrize("pattern", ["swp.*|eth0", "^swp|^eth"])
async def test_a_pattern_takes_the_place_of_lldpds_ports(switch: Switch, pattern: str) -> None:
    look = await switch.probe(pattern).observe()
    assert outcomes(look) == {
        "swp1": (DATA, ""),
        "swp2": (NOTHING, NOTHING_HEARD),
        "eth0": (NOTHING, NOT_LLDPD),
    }
    assert payload(look, "eth0").port_id == ""
    assert payload(look, "eth0").chassis_id == "02:00:00:00:00:01"


async def test_a_pattern_that_matches_nothing_is_said(switch: Switch) -> None:
    with pytest.raises(ProbeError, match=r"`lldp.ports` \(swp\) matches no port.*lldpd uses swp1, swp2"):
        await switch.probe("swp").observe()


async def test_ports_that_are_not_in_sysfs_are_said(switch: Switch) -> None:
    switch.says(own("Ethernet0"), heard())
    with pytest.raises(ProbeError, match="class/net has none of the ports that lldpd uses"):
        await switch.probe().observe()


@pytest.mark.parametrize(
    ("tool", "script", "reason"),
    [
        pytest.param(
            "lldpcli", "echo 'unable to connect' >&2; exit 1", "lldpcli: exit 1: unable", id="no daemon"
        ),
        pytest.param("lldpctl", "exit 3", "lldpctl: exit 3", id="silent"),
        pytest.param("lldpcli", "echo '<lldp/>'", "not JSON", id="not JSON"),
        pytest.param("lldpcli", "echo '{\"lldp\": [{}]}'", "lldpd uses no port", id="no ports"),
    ],
)
async def test_cannot_look(switch: Switch, tool: str, script: str, reason: str) -> None:
    switch.tool(tool, script)
    with pytest.raises(ProbeError, match=reason):
        await switch.probe().observe()


async def test_not_installed(tmp_path: Path) -> None:
    with pytest.raises(ProbeError, match="install lldpd"):
        await SwitchProbe(lldpcli=[str(tmp_path / "lldpcli")], sysfs=tmp_path).observe()


async def test_a_counter_alone_is_no_news_for_a_minute(switch: Switch) -> None:
    probe = switch.probe()
    switch.port("swp1", rx_dropped=1)
    first = payload(await probe.observe(), "swp1")
    for now_s, drops, told in ((30.0, 2, 1), (59.0, 3, 1), (60.0, 4, 4), (70.0, 5, 4)):
        switch.now_s = now_s
        switch.port("swp1", rx_dropped=drops)
        assert payload(await probe.observe(), "swp1").counters.rx_dropped == told, now_s
    switch.port("swp1", rx_dropped=6, changes=9)
    told = payload(await probe.observe(), "swp1")
    assert (told.carrier_changes, told.counters.rx_dropped) == (9, 6), "with whatever else is news"
    assert first.counters.rx_dropped == 1


async def test_a_port_that_came_up_is_looked_at_soon_again(switch: Switch) -> None:
    probe = switch.probe()
    assert probe.interval_s == 30.0
    switch.port("swp2", carrier=0)
    await probe.observe()
    assert probe.interval_s == 30.0, "all that is up is heard"
    switch.now_s = 100.0
    switch.port("swp2", changes=2)
    await probe.observe()
    assert probe.interval_s == 0.5, "plugged in, and not heard yet"
    switch.now_s = 105.0
    await probe.observe()
    assert probe.interval_s == 2.0
    switch.now_s = 159.0
    await probe.observe()
    assert probe.interval_s == 2.0
    switch.now_s = 161.0
    await probe.observe()
    assert probe.interval_s == 30.0, "it sends no LLDP"
    switch.says(own("swp1", "swp2"), heard())
    await probe.observe()
    assert probe.interval_s == 0.5, "swp1 lost its neighbour while its carrier stayed"
    switch.says(own("swp1", "swp2"), heard(swp1="swp7", swp2="swp8"))
    await probe.observe()
    assert probe.interval_s == 30.0


@pytest.mark.parametrize(
    ("lldpctl", "lldpcli"),
    [
        (["lldpctl"], ("lldpcli",)),
        (["/usr/sbin/lldpctl", "-u", "/run/x"], ("/usr/sbin/lldpcli", "-u", "/run/x")),
        (["docker", "exec", "-i", "lldp", "lldpctl"], ("docker", "exec", "-i", "lldp", "lldpcli")),
        (["my-wrapper"], None),
    ],
)
def test_the_other_tool_by_its_name(lldpctl: list[str], lldpcli: tuple[str, ...] | None) -> None:
    assert lldpcli_of(lldpctl) == lldpcli
