"""The LLDP probe that asks lldpd; the tool here is a shell script."""

import json
from pathlib import Path

import pytest
from hyperscout.v1.finding_pb2 import LldpPort, Outcome
from hyperscout_agent.findings.probe import ProbeError
from hyperscout_agent.lldp.lldpd import lldpd_runs
from hyperscout_agent.lldp.neighbours import NO_CARRIER, NOTHING_HEARD
from hyperscout_agent.probes.lldp import LldpctlProbe


def neighbour(interface: str, system: str) -> dict[str, object]:
    return {
        "name": interface,
        "via": "LLDP",
        "chassis": [{"id": [{"type": "mac", "value": "02:00:00:00:00:01"}], "name": [{"value": system}]}],
        "port": [{"id": [{"type": "ifname", "value": "swp1"}], "ttl": [{"value": "120"}]}],
    }


VIEW = {"lldp": [{"interface": [neighbour(name, "leaf1") for name in ("eth0", "eth1", "veth9")]}]}


def probe(folder: Path, script: str) -> LldpctlProbe:
    for name, carrier in (("eth0", "1"), ("eth1", "0"), ("eth2", "1")):
        port = folder / "class/net" / name
        (port / "device").mkdir(parents=True)
        (port / "type").write_text("1")
        (port / "carrier").write_text(carrier)
    tool = folder / "lldpctl"
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)
    return LldpctlProbe(command=[str(tool)], sysfs=folder)


async def test_physical_ports_with_what_lldpd_heard(tmp_path: Path) -> None:
    (tmp_path / "view").write_text(json.dumps(VIEW))
    look = await probe(tmp_path, f'[ "$*" = "-f json0" ] && cat {tmp_path}/view').observe()
    seen = {name: (sample.outcome, sample.reason) for name, sample in look.samples.items()}
    assert seen == {
        "eth0": (Outcome.OUTCOME_DATA, ""),
        "eth1": (Outcome.OUTCOME_NOTHING, NO_CARRIER),
        "eth2": (Outcome.OUTCOME_NOTHING, NOTHING_HEARD),
    }, "veth9 is no port; without carrier there is no neighbour, whatever lldpd remembers"
    payload = look.samples["eth0"].payload
    assert isinstance(payload, LldpPort)
    assert payload.neighbours[0].system_name == "leaf1"


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        pytest.param("echo 'unable to connect to socket' >&2; exit 1", "unable to connect", id="no daemon"),
        pytest.param("exit 3", "exit 3", id="silent"),
        pytest.param("echo '<lldp/>'", "not JSON", id="not JSON"),
        pytest.param("while :; do echo junk; done", "bytes of output", id="a flood"),
    ],
)
async def test_cannot_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, reason: str) -> None:
    monkeypatch.setattr("hyperscout_agent.lldp.lldpd._MAX_OUTPUT_BYTES", 100_000)
    with pytest.raises(ProbeError, match=reason):
        await probe(tmp_path, script).observe()


async def test_not_installed(tmp_path: Path) -> None:
    with pytest.raises(ProbeError, match="install lldpd"):
        await LldpctlProbe(command=[str(tmp_path / "nowhere")], sysfs=tmp_path).observe()


def test_whether_an_lldpd_runs(tmp_path: Path) -> None:
    assert not lldpd_runs(tmp_path)
