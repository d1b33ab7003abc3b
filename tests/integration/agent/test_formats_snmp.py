"""What the real snmpwalk prints of a switch, by each of its output options, reads as the switch answered."""

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from hyperscout_formats.snmp.rows import STRING, Row, parse
from hyperscout_formats.snmp.switch import read, wanted_subtrees
from hyperscout_sim.fabric.shapes import single_rack
from hyperscout_sim.readings.snmp import STYLES, snmprec, walks
from support.lldpd import lldp_lab
from support.real import require_real, tool
from support.snmpsim import running_snmpsim, whole_net
from support.waiting import TIMEOUT_S

DESCRIPTION = (1, 3, 6, 1, 2, 1, 1, 1, 0)
CONTACT = (1, 3, 6, 1, 2, 1, 1, 4, 0)
LOCATION = (1, 3, 6, 1, 2, 1, 1, 6, 0)
# Strings that the tool writes in several lines, or with quotes and backslashes.
STRINGS = (
    Row(DESCRIPTION, STRING, b'Some "NOS" C:\\x\nTAC: none\r\n\nand more'),
    Row(CONTACT, STRING, bytes(range(100))),
    Row(LOCATION, STRING, b""),
)


@dataclass(frozen=True)
class Played:
    """A style, its rows, and where it answers."""

    style: str
    rows: list[Row]
    address: str


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, list[Played]]]:
    """The namespace, and switches of three vendors' manners."""
    for what in ("snmpsim", "snmpwalk", "netns"):
        require_real(what)
    switches = []
    for i, name in enumerate(("linux", "os10", "slx-os"), 1):
        ((_, rows),) = walks(single_rack(3, 2), [STYLES[name]])
        own = [row for row in rows if row.oid != DESCRIPTION]
        switches.append(Played(name, sorted([*own, *STRINGS]), f"10.0.0.{i}"))
    with lldp_lab() as lab:
        namespace = whole_net(lab, "walked")
        recordings = {one.address: snmprec(one.rows) for one in switches}
        with running_snmpsim(tmp_path_factory.mktemp("snmpsim"), recordings, namespace=namespace):
            yield namespace, switches


def walked(namespace: str, address: str, *options: str) -> bytes:
    command = ["snmpbulkwalk", "-v2c", "-c", "public", "-Cr50", *options, address]
    found = b""
    for root in (".1.0.8802", ".1.3.6.1.2.1"):
        inside = [tool("ip") or "ip", "netns", "exec", namespace, *command, root]
        ran = subprocess.run(
            inside, capture_output=True, check=True, timeout=TIMEOUT_S, env={"MIBS": "", "PATH": "/usr/bin"}
        )
        found += ran.stdout
    return found


@pytest.mark.parametrize(
    "options", ["n", "nU", "nt", "nT", "n0", "nb", "nX", "nE", "ne", "nxT", "nx", "nQ", "nq", ""]
)
def test_each_output_option(played: tuple[str, list[Played]], options: str) -> None:
    namespace, switches = played
    for one in switches:
        rows, problems = parse(
            walked(namespace, one.address, f"-O{options}") if options else walked(namespace, one.address)
        )
        assert problems == ()
        assert [row.oid for row in rows] == [row.oid for row in one.rows]
        assert read(rows, "leaf") == read(one.rows, "leaf")
        if "q" not in options and "Q" not in options:
            assert [row.value for row in rows] == [row.value for row in one.rows]


def test_a_walk_of_what_is_wanted_alone(played: tuple[str, list[Played]], tmp_path: Path) -> None:
    namespace, switches = played
    (one,) = [switch for switch in switches if switch.style == "linux"]
    text = b""
    for prefix in wanted_subtrees():
        command = ["snmpwalk", "-v2c", "-c", "public", "-On", one.address, "." + ".".join(map(str, prefix))]
        inside = [tool("ip") or "ip", "netns", "exec", namespace, *command]
        text += subprocess.run(inside, capture_output=True, check=True, timeout=TIMEOUT_S).stdout
    rows, problems = parse(text)
    assert (read(rows, "leaf"), problems) == (read(one.rows, "leaf"), ())
