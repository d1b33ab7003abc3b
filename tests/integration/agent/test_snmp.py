"""The crawl against switches that answer over the network: snmpsim plays recorded and generated ones, and
others misbehave in every way that was thought of."""

import asyncio
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hyperscout.v1.finding_pb2 import Outcome
from hyperscout_agent.findings.probe import Observation
from hyperscout_agent.findings.store import MAX_FINDING_BYTES
from hyperscout_agent.probes.snmp import SnmpProbe
from hyperscout_agent.settings.fabric_settings import SnmpSettings
from hyperscout_formats.facts.facts import SwitchTable
from hyperscout_formats.facts.wire import switch_table_from_proto
from hyperscout_formats.snmp import rows as snmp_rows
from hyperscout_formats.snmp import switch as snmp_switch
from hyperscout_sim.fabric.fabric import SimFabric
from hyperscout_sim.fabric.shapes import clos2, multi_plane
from hyperscout_sim.readings.lldp import mac_of, management_address
from hyperscout_sim.readings.snmp import STYLES, recordings
from support.lldpd import Lab, lldp_lab
from support.real import require_real, shared_recording
from support.snmp_responder import MISBEHAVIOURS, OCTETS, Answers, Table, responding, tlv
from support.snmpsim import PORT, running_snmpsim, whole_net

NET = "sim"
# An answer of a switch that lives comes in time on a busy machine; a dead switch costs this twice.
REQUEST_S = 20.0
DEAD_S = 3.0


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """A namespace whose loopback has all addresses of 10.0.0.0/8."""
    require_real("netns")
    with lldp_lab() as found:
        whole_net(found, NET)
        yield found


def crawl(
    lab: Lab, folder: Path, *seeds: str, retries: int = 1, **more: object
) -> tuple[Observation, SnmpProbe]:
    """One, from inside the namespace."""
    (folder / "community").write_text("public\n")
    settings = {
        "access": [{"ranges": ["10.0.0.0/8"], "community_file": str(folder / "community")}],
        "seeds": seeds,
        "port": PORT,
        "request_timeout_s": REQUEST_S,
    }
    probe = SnmpProbe(SnmpSettings.model_validate(settings | more), trigger=lambda: None, retries=retries)
    with lab.inside(NET):
        return asyncio.run(probe.observe()), probe


def tables(look: Observation) -> dict[str, SwitchTable]:
    return {
        subject: switch_table_from_proto(sample.payload)
        for subject, sample in look.samples.items()
        if sample.outcome == Outcome.OUTCOME_DATA
    }


def failures(look: Observation) -> dict[str, str]:
    return {
        subject: sample.reason
        for subject, sample in look.samples.items()
        if sample.outcome == Outcome.OUTCOME_FAILED
    }


_NO_HEX = re.compile(rb"[^|\n]*\|4x\|(?!(?:[0-9A-Fa-f]{2})*\n)[^\n]*\n")


def playable(recording: bytes) -> bytes:
    """Without rows that are said to be in hex and are not, and blanks at ends, which snmpsim drops."""
    return re.sub(rb" +\n", b"\n", _NO_HEX.sub(b"", recording))


RECORDED = (
    "dell-os10",
    "dnos_z9100-on",
    "edgecos_dcs203",
    "junos_qfx5100",
    "nxos_n3k-3064pq",
    "slxos_slx9150",
)


@pytest.fixture(scope="module")
def recorded(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, tuple[str, bytes]]]:
    """Address and recording of each, which snmpsim plays."""
    require_real("snmpsim")
    found = {
        name: (f"10.1.0.{i}", playable(shared_recording(f"snmp/{name}.snmprec").read_bytes()))
        for i, name in enumerate(RECORDED, 1)
    }
    folder = tmp_path_factory.mktemp("recorded")
    with running_snmpsim(folder, dict(found.values()), namespace=lab.namespace(NET)):
        yield found


@pytest.mark.parametrize("name", RECORDED)
def test_a_recorded_switch_is_the_same_asked_and_read(
    lab: Lab, tmp_path: Path, recorded: dict[str, tuple[str, bytes]], name: str
) -> None:
    """The real tool's answers to real questions, and the recording itself."""
    address, recording = recorded[name]
    look, _ = crawl(lab, tmp_path, address, max_depth=0)
    rows, _ = snmp_rows.parse(recording, name)
    asked = snmp_switch.wanted_subtrees()
    walked = [row for row in rows if any(row.oid[: len(part)] == part for part in asked)]
    wanted = snmp_switch.read(walked, address, address)
    ((_, found),) = tables(look).items()
    assert (found.ports, found.addresses) == (wanted.ports, wanted.addresses)
    assert any(port.neighbours for port in found.ports)


def fabric_of_all_vendors() -> SimFabric:
    return clos2(6, 4, 3)


def test_a_fabric_of_all_vendors_is_crawled_from_one_switch(lab: Lab, tmp_path: Path) -> None:
    require_real("snmpsim")
    styles = [style for name, style in STYLES.items() if name != "os10"]  # it tells no addresses of others
    switches = {
        management_address(switch): recording
        for switch, recording in recordings(fabric_of_all_vendors(), styles)
    }
    first = next(iter(switches))
    with running_snmpsim(tmp_path / "sim", switches, namespace=lab.namespace(NET)):
        look, probe = crawl(lab, tmp_path, first)
    assert (len(tables(look)), failures(look), look.complete) == (len(switches), {}, True)
    assert probe.counts.asked == len(switches), "no switch is asked twice"
    assert set(tables(look)) == {mac_of(switch.guid) for switch in fabric_of_all_vendors().switches}


def plain(fabric: SimFabric) -> dict[str, Table | Answers]:
    return {
        management_address(switch): Table.of_snmprec(recording.decode())
        for switch, recording in recordings(fabric)
    }


def test_those_that_misbehave_take_nothing_from_the_others(lab: Lab, tmp_path: Path) -> None:
    fabric = clos2(2, 2, len(MISBEHAVIOURS) + 1)
    switches = plain(fabric)
    _, *spines = (switch for switch in fabric.switches if switch.level == 2)
    for spine, answers in zip(spines, MISBEHAVIOURS.values(), strict=True):
        switches[management_address(spine)] = answers
    leaves = [switch for switch in fabric.switches if switch.level == 1]
    with lab.inside(NET), responding(switches, port=PORT) as responder:
        # Time enough for those that answer well, in one thread with those that flood.
        limits = {"request_timeout_s": DEAD_S, "switch_timeout_s": 20}
        look, _ = crawl(lab, tmp_path, management_address(leaves[0]), retries=2, **limits)
    found, lost = tables(look), failures(look)
    assert set(found) >= {mac_of(leaf.guid) for leaf in leaves}, lost
    for leaf in leaves:
        assert sum(len(port.neighbours) for port in found[mac_of(leaf.guid)].ports) == 3 + len(spines)
    named = set(lost) | set(found)
    missing = [
        name
        for spine, name in zip(spines, MISBEHAVIOURS, strict=True)
        if not {mac_of(spine.guid), management_address(spine)} & named
    ]
    assert missing == [], "each of them is told of"
    assert all(lost.values()), lost
    assert look.complete
    assert max(responder.asked.values()) < 20_000
    asked = {
        name: responder.asked[management_address(spine)]
        for spine, name in zip(spines, MISBEHAVIOURS, strict=True)
    }
    assert {name: many for name, many in asked.items() if name != "endless" and many > 100} == {}


def test_one_dead_switch_costs_its_own_time_out(lab: Lab, tmp_path: Path) -> None:
    fabric = clos2(6, 2, 4)
    switches = plain(fabric)
    dead = fabric.switches[-1]
    switches[management_address(dead)] = MISBEHAVIOURS["silent"]
    with lab.inside(NET), responding(switches, port=PORT) as responder:
        look, _ = crawl(lab, tmp_path, next(iter(switches)), concurrency=1, request_timeout_s=DEAD_S)
    assert len(tables(look)) == len(fabric.switches) - 1
    assert set(failures(look)) == {mac_of(dead.guid)}
    assert "no answer" in failures(look)[mac_of(dead.guid)]
    assert responder.asked[management_address(dead)] == 2, "one question, sent again once"


def test_loops_end_and_planes_are_apart(lab: Lab, tmp_path: Path) -> None:
    """Every Clos is full of loops; what no seed leads to is not asked; two addresses may be one switch."""
    fabric = multi_plane(2, 3, 2, 2)
    switches = plain(fabric)
    first, other = next(iter(switches)), "10.255.0.1"
    with lab.inside(NET), responding(switches | {other: switches[first]}, port=PORT) as responder:
        look, probe = crawl(lab, tmp_path, first, other, concurrency=1)
    assert len(tables(look)) == len(switches) // 2
    assert probe.counts.asked == len(switches) // 2 + 1
    assert sum(1 for asked in responder.asked.values() if asked) == len(switches) // 2 + 1
    assert responder.asked[other] == 1, "after it gave its identity there was no more to ask"


def crowded(many: int) -> Table:
    """A switch that hears so many on one port."""
    local, remote = (1, 0, 8802, 1, 1, 2, 1, 3), (1, 0, 8802, 1, 1, 2, 1, 4, 1, 1)
    number = bytes.fromhex
    values = {
        (*local, 1, 0): tlv(2, b"\x04"),
        (*local, 2, 0): tlv(OCTETS, number("020000000001")),
        (*local, 3, 0): tlv(OCTETS, b"crowded"),
        (*local, 7, 1, 2, 1): tlv(2, b"\x05"),
        (*local, 7, 1, 3, 1): tlv(OCTETS, b"swp1"),
        (1, 3, 6, 1, 2, 1, 2, 2, 1, 2, 1): tlv(OCTETS, b"swp1"),
    }
    for one in range(1, many + 1):
        values |= {
            (*remote, 4, 0, 1, one): tlv(2, b"\x04"),
            (*remote, 5, 0, 1, one): tlv(OCTETS, number(f"0301{one:08x}")),
            (*remote, 6, 0, 1, one): tlv(2, b"\x05"),
            (*remote, 7, 0, 1, one): tlv(OCTETS, b"eth0"),
            (*remote, 9, 0, 1, one): tlv(OCTETS, f"host-{one}".encode()),
            (*remote, 12, 0, 1, one): tlv(OCTETS, b"\x01"),
        }
    return Table(values)


@pytest.mark.parametrize("many", [100, 10_000])
def test_many_neighbours_on_one_port_are_bounded_and_counted(lab: Lab, tmp_path: Path, many: int) -> None:
    with lab.inside(NET), responding({"10.0.0.1": crowded(many)}, port=PORT):
        look, _ = crawl(lab, tmp_path, "10.0.0.1")
    ((chassis, table),) = tables(look).items()
    assert chassis == "02:00:00:00:00:01"
    assert look.samples[chassis].payload.ByteSize() < MAX_FINDING_BYTES
    (port,) = table.ports
    told = len(port.neighbours)
    said = f"{port.doubt} {' '.join(table.problems)}"
    assert told == many or (0 < told < many and str(many) in said), said


def strange(change: Callable[[bytes], bytes]) -> Table:
    """A switch whose texts are all changed."""
    ((_, recording),) = list(recordings(clos2(1, 2, 1)))[:1]
    lines = []
    for line in recording.decode().splitlines():
        oid, tag, value = line.split("|", 2)
        if tag in ("4", "4x"):
            octets = bytes.fromhex(value) if tag == "4x" else value.encode()
            tag, value = "4x", change(octets).hex()
        lines.append(f"{oid}|{tag}|{value}")
    return Table.of_snmprec("\n".join(lines))


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda text: b"\x00\x1b[31m\xff\xfe" + text, id="control characters and no UTF-8"),
        pytest.param(lambda text: text * 40, id="long"),
        pytest.param(lambda _: b"", id="empty"),
        pytest.param(lambda text: text + b"\n{{7*7}}'; --<script>", id="markup"),
    ],
)
def test_strange_texts_come_as_text_or_not_at_all(
    lab: Lab, tmp_path: Path, change: Callable[[bytes], bytes]
) -> None:
    with lab.inside(NET), responding({"10.0.0.1": strange(change)}, port=PORT):
        look, _ = crawl(lab, tmp_path, "10.0.0.1", max_depth=0)
    assert look.samples
    assert "\x1b" not in str(list(look.samples.items()))
    for table in tables(look).values():
        texts = [t for p in table.ports for t in (p.interface, p.port_id, p.system_name, p.chassis_id)]
        texts += [t for p in table.ports for n in p.neighbours for t in (n.system_name, n.port_id)]
        assert all(text.isprintable() and len(text) <= 1024 for text in texts)
