"""`hyperscout infer --snmpwalk`: what people saved of their switches, real recordings and simulated ones."""

import gzip
import itertools
import json
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hyperscout_sim.fabric.fabric import SimFabric
from hyperscout_sim.fabric.shapes import clos2, clos3, dual_homed, rail_optimised
from hyperscout_sim.readings.lldp import lldpctl_json0, uplinks
from hyperscout_sim.readings.snmp import PLAIN, STYLES, Style, snmprec, walk_text, walks
from support.infer_process import domains, inferred, run
from support.real import SHARED_FABRICS, require_real

RECORDINGS = sorted((SHARED_FABRICS / "snmp").glob("*.snmprec"))
TELLING = [style for style in STYLES.values() if style.tells_itself]


@pytest.fixture
def real_recordings() -> None:
    require_real("recordings")


def saved(folder: Path, fabric: SimFabric, styles: Sequence[Style], *, text: bool = False) -> list[Path]:
    """One file a switch."""
    paths = []
    for switch, rows in walks(fabric, styles):
        paths.append(folder / (f"{switch.name}.txt" if text else f"{switch.name}.snmprec"))
        paths[-1].write_bytes(walk_text(rows) if text else snmprec(rows))
    return paths


def remote_rows(recording: Path) -> set[tuple[str, str, str]]:
    """Local port, chassis id and port id of each row of lldpRemTable, read off the file's own lines."""
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for line in recording.read_text(errors="replace").splitlines():
        if match := re.match(r"1\.0\.8802\.1\.1\.2\.1\.4\.1\.1\.(\d+)\.(\d+\.(\d+)\.\d+)\|[^|]*\|(.*)", line):
            column, index, port, value = match.groups()
            found[index] |= {column: value, "port": port}
    return {(row["port"], row.get("5", ""), row.get("7", "")) for row in found.values()}


def ends_of(topology: dict[str, Any], device: str) -> list[str]:
    """The device's ports, one for each link."""
    return [link[end]["port"] for link in topology["links"] for end in "ab" if link[end]["device"] == device]


@pytest.mark.usefixtures("real_recordings")
@pytest.mark.parametrize("recording", RECORDINGS, ids=lambda path: path.stem)
def test_each_row_of_a_real_switch_is_one_link(recording: Path) -> None:
    wanted = remote_rows(recording)
    assert wanted
    topology = inferred("--snmpwalk", recording)
    assert len(topology["links"]) == len(wanted)
    ports = Counter(ends_of(topology, recording.stem))
    assert sorted(ports.values()) == sorted(Counter(port for port, _, _ in wanted).values())
    assert all(link["sources"] == ["snmp"] for link in topology["links"])
    macs = {bytes.fromhex(text).hex(":") for _, text, _ in wanted if re.fullmatch("[0-9A-Fa-f]{12}", text)}
    assert macs <= {link[end]["device"] for link in topology["links"] for end in "ab"}


@pytest.mark.usefixtures("real_recordings")
def test_all_real_switches_together() -> None:
    topology = inferred("--snmpwalk", *RECORDINGS)
    assert len(topology["links"]) == sum(len(remote_rows(recording)) for recording in RECORDINGS) == 81
    backwards, forwards = (
        run("--snmpwalk", *order, "-o", "json", check=False).stdout
        for order in (reversed(RECORDINGS), RECORDINGS)
    )
    assert backwards == forwards
    unsure = {"edgecos_dcs203", "slxos_slx9150", "junos_qfx5100"}
    noted = {link[end]["device"] for link in topology["links"] if link.get("note") for end in "ab"}
    assert unsure <= noted


@pytest.mark.parametrize("text", [False, True], ids=["snmprec", "snmpwalk"])
@pytest.mark.parametrize("style", TELLING, ids=lambda style: style.port_name)
def test_hosts_without_agents_are_grouped_by_walks_alone(tmp_path: Path, style: Style, text: bool) -> None:
    fabric = clos3(2, 2, 4, 2, 2)
    topology = inferred("--snmpwalk", *saved(tmp_path, fabric, [style], text=text))
    for tier, partition in enumerate(fabric.truth.tiers, 1):
        assert domains(topology, tier) == set(partition)
    assert len(topology["links"]) == len(fabric.cables)


def test_walks_that_leave_out_the_switch_s_identity(tmp_path: Path) -> None:
    """Their neighbours know; so each cable is one link all the same."""
    fabric = clos3(2, 2, 4, 2, 2)
    topology = inferred("--snmpwalk", *saved(tmp_path, fabric, [replace(PLAIN, tells_itself=False)]))
    for tier, partition in enumerate(fabric.truth.tiers, 1):
        assert domains(topology, tier) == set(partition)
    assert len(topology["links"]) == len(fabric.cables)


@pytest.mark.parametrize(
    "fabric",
    [clos2(4, 4, 3), rail_optimised(2, 4, 4, 2), dual_homed(3, 4, 2, peer_links=2)],
    ids=lambda fabric: fabric.name,
)
def test_vendors_side_by_side(tmp_path: Path, fabric: SimFabric) -> None:
    topology = inferred("--snmpwalk", *saved(tmp_path, fabric, TELLING))
    for tier, partition in enumerate(fabric.truth.tiers, 1):
        assert domains(topology, tier) == set(partition)
    assert len(topology["links"]) == len(fabric.cables)


def test_hosts_and_switches_that_see_the_same_cable_are_two_witnesses(tmp_path: Path) -> None:
    fabric = rail_optimised(2, 4, 2, 2)
    hosts = []
    for host, links in uplinks(fabric).items():
        hosts.append(tmp_path / f"{host}.json")
        hosts[-1].write_bytes(lldpctl_json0(links))
    topology = inferred("--lldp", *hosts, "--snmpwalk", *saved(tmp_path, fabric, [STYLES["linux"]]))
    assert len(topology["links"]) == len(fabric.cables)
    seen = Counter(tuple(link["sources"]) for link in topology["links"])
    between = sum(cable.a in fabric.levels() for cable in fabric.cables)
    assert seen == {("snmp",): between, ("lldp", "snmp"): len(fabric.cables) - between}
    assert domains(topology, 1) == set(fabric.truth.tiers[0])


def test_walks_of_switches_without_hosts(tmp_path: Path) -> None:
    fabric = clos2(4, 1, 2)
    spines = [path for path in saved(tmp_path, fabric, [STYLES["linux"]]) if "spine" in path.name]
    topology = inferred("--snmpwalk", *spines)
    assert topology["hypernodes"] == []
    assert len(topology["links"]) == 8
    assert {switch["name"] for switch in topology["switches"]} >= {"spine-01", "spine-02"}
    for output in ("tree", "hypernodes", "slurm-tree"):
        ran = run("--snmpwalk", *spines, "-o", output, check=False)
        assert (ran.returncode, b"the files show no cable of a host" in ran.stderr) == (3, True)


def test_a_walk_from_stdin_and_one_that_is_compressed(tmp_path: Path) -> None:
    (first, *_) = saved(tmp_path, clos2(2, 2, 1), [STYLES["linux"]])
    expected = inferred("--snmpwalk", first)
    assert json.loads(run("--snmpwalk", "-", "-o", "json", stdin=first.read_bytes()).stdout) == expected
    packed = tmp_path / "packed" / f"{first.name}.gz"
    packed.parent.mkdir()
    packed.write_bytes(gzip.compress(first.read_bytes()))
    assert inferred("--snmpwalk", packed) == expected


@pytest.mark.parametrize(
    ("files", "code", "says"),
    [
        ({"leaf.txt": b""}, 2, "leaf.txt: empty: expected the output of `snmpwalk -On`"),
        ({"leaf.txt": b"{}"}, 2, "leaf.txt: no row; expected the output of `snmpwalk -On`"),
        ({"leaf.txt": b"SNMPv2-MIB::sysName.0 = STRING: leaf"}, 2, "walk with `snmpwalk -On`"),
        ({"a/leaf.txt": b"1.3.6|2|1", "b/leaf.txt": b"1.3.6|2|1"}, 2, "a second file named 'leaf'"),
        ({"leaf.txt": b"1.3.6|2|1"}, 3, "leaf.txt: no LLDP-MIB (1.0.8802.1.1.2)"),
    ],
)
def test_endings(tmp_path: Path, files: dict[str, bytes], code: int, says: str) -> None:
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    ran = run("--snmpwalk", *(tmp_path / name for name in files), check=False)
    assert ran.returncode == code
    assert says in ran.stderr.decode()


def test_the_files_order_does_not_matter(tmp_path: Path) -> None:
    paths = saved(tmp_path, dual_homed(1, 2, 1), [STYLES["os10"]])
    outputs = {run("--snmpwalk", *order, "-o", "json").stdout for order in itertools.permutations(paths)}
    assert len(outputs) == 1
