"""Whatever comes in, a reader gives facts or raises FormatError: never anything else."""

import json
from collections.abc import Callable

import pytest
from hyperscout.v1 import finding_pb2
from hyperscout_formats.facts import interface_counters
from hyperscout_formats.facts.wire import switch_table_from_proto, switch_table_to_proto
from hyperscout_formats.huawei import ascend
from hyperscout_formats.infiniband import ibnetdiscover, ibnetdiscover_text, node_map
from hyperscout_formats.infiniband.sysfs import COUNTER_FILES, DEVICE_FILES, PORT_FILES
from hyperscout_formats.infiniband.sysfs import parse as parse_sysfs
from hyperscout_formats.lldp import frame as lldp_frame
from hyperscout_formats.lldp import lldpctl
from hyperscout_formats.nvidia import nccl_tests, nvidia_smi
from hyperscout_formats.snmp import rows as snmp_rows
from hyperscout_formats.snmp import switch as snmp_switch
from hyperscout_formats.text import latency_csv, node_list
from hyperscout_formats.text.errors import FormatError
from hyperscout_sim.fabric import shapes
from hyperscout_sim.fabric.nvlink import cluster_uuid, nvl72_tray, unhealthy, with_mig
from hyperscout_sim.readings import snmp
from hyperscout_sim.readings.nvidia_smi_text import nvidia_smi_text
from hypothesis import given
from hypothesis import strategies as st
from support.accelerators import NPU_MAP, super_pod
from support.examples import examples
from support.lldp_frames import address, capabilities, frame, tlv
from support.small_fabric import TEXT

LLDPCTL = json.dumps(
    {
        "lldp": [
            {
                "interface": [
                    {
                        "name": "eth0",
                        "via": "LLDP",
                        "chassis": [
                            {
                                "id": [{"type": "mac", "value": "02:00:00:00:00:09"}],
                                "name": [{"value": "leaf"}],
                                "mgmt-ip": [{"value": "10.0.0.1"}],
                                "capability": [{"type": "Bridge", "enabled": True}],
                            }
                        ],
                        "port": [{"id": [{"type": "ifname", "value": "swp1"}], "ttl": [{"value": "120"}]}],
                    }
                ]
            }
        ]
    }
).encode()
FRAME = frame(
    tlv(5, b"leaf"),
    tlv(6, b"text"),
    capabilities(20, 20),
    address(1, b"\x0a\0\0\1"),
    tlv(127, b"\0\x80\xc2\1"),
)
NCCL_TESTS = (
    b'{"version":3,"env":["A=b"],"nccl_version":22903,"config":{"nthreads":1,"ngpus":2,"devices":[{"rank":0}]},'
    b'"results":[{"size":8,"count":2,"out_of_place":{"time":11.5,"alg_bw":0.1,"bus_bw":0.2,"nwrong":0.0},'
    b'"in_place":null}],"errors":[""]}'
)
NODE_MAP = b'# map\nH-0002c90300080e84 r510\n0x2c90300080d58 "r 511" # x\n'

NVIDIA_SMI = nvidia_smi_text(
    with_mig(unhealthy(nvl72_tray("n1", cluster_uuid("r1")), "route recovery"), 1, "1g")
)


def read_walk(data: bytes) -> object:
    return snmp_switch.read(snmp_rows.parse(data)[0], "leaf.txt")


# A small switch in the manner of one vendor, and all ways in which snmpwalk writes strings.
((_, ROWS_OF_A_SWITCH),) = snmp.walks(shapes.single_rack(2), [snmp.STYLES["slx-os"]])
SNMPWALK = (
    snmp.walk_text(ROWS_OF_A_SWITCH[::40])
    + b'.1.3.6.1.2.1.1.1.0 = STRING: "a \\"quote\\"\nand more"\n.1.3.6.1.2.1.1.4.0 = STRING: plain\ntext\n'
    + b'.1.3.6.1.2.1.1.5.0 = Hex-STRING: 00 01 02  [...]\n03 04 \n.1.3.6.1.2.1.1.6.0 "61 62 "\n'
)

READERS: dict[str, tuple[Callable[[bytes], object], bytes]] = {
    "ibnetdiscover": (ibnetdiscover.parse, TEXT),
    "ibnetdiscover_text": (ibnetdiscover_text.summary, TEXT),
    "latency_csv": (latency_csv.parse, b"node_a,node_b,rtt_us,samples\na,b,3.25,16\nb,c,4 # x\n"),
    "lldp_frame": (lldp_frame.dissect, FRAME),
    "lldpcli_interfaces": (lldpctl.parse_own, LLDPCTL),
    "lldpctl": (lldpctl.parse, LLDPCTL),
    "nccl_tests": (nccl_tests.parse, NCCL_TESTS),
    "node_map": (node_map.parse, NODE_MAP),
    "node_list": (node_list.parse, b"a\nb # c\n"),
    "nvidia_smi": (nvidia_smi.parse, NVIDIA_SMI),
    "npu_map": (ascend.parse_map, NPU_MAP.encode()),
    "npu_super_pod": (ascend.parse_super_pod, super_pod().encode()),
    "npu_link": (ascend.parse_link, b"link status: UP\n"),
    "npu_health": (ascend.parse_health, b"net health status: Receive timeout\n"),
    "snmprec": (read_walk, snmp.snmprec(ROWS_OF_A_SWITCH[::20])),
    "snmpwalk": (read_walk, SNMPWALK),
}
PIECES = [b"\0", b"\r\n", b"\n", b'"', b"[", b"]", b"#", b"\xff", b" " * 70, b"\t", b"[" * 300, b"x" * 5000]


@st.composite
def mutated(draw: st.DrawFn, valid: bytes) -> bytes:
    """A valid input after a few accidents."""
    data = valid
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data)))
        to = min(len(data), at + draw(st.integers(0, 40)))
        match draw(st.sampled_from(["cut", "drop", "flip", "piece", "bytes", "splice", "crlf"])):
            case "cut":
                data = data[:at]
            case "drop":
                data = data[:at] + data[to:]
            case "flip":
                data = (
                    data[:at]
                    + bytes(byte ^ draw(st.integers(1, 255)) for byte in data[at : at + 2])
                    + data[at + 2 :]
                )
            case "piece":
                data = data[:at] + draw(st.sampled_from(PIECES)) + data[to:]
            case "bytes":
                data = data[:at] + draw(st.binary(max_size=20)) + data[to:]
            case "splice":
                other = draw(st.integers(0, len(valid)))
                data = data[:at] + valid[other:]
            case "crlf":
                data = data.replace(b"\n", b"\r\n")
    return data


def read(reader: Callable[[bytes], object], data: bytes) -> None:
    try:
        reader(data)
    except FormatError as error:
        message = str(error)
    else:
        return
    assert message.isprintable()  # it goes to a terminal
    assert len(message) < 1000


@pytest.mark.parametrize("name", READERS)
@examples(2)
@given(data=st.data())
def test_mutated(name: str, data: st.DataObject) -> None:
    reader, valid = READERS[name]
    read(reader, data.draw(mutated(valid)))


@pytest.mark.parametrize("name", READERS)
@given(data=st.binary(max_size=300))
def test_random(name: str, data: bytes) -> None:
    reader, valid = READERS[name]
    read(reader, data)
    read(reader, valid[: len(valid) // 2] + data + valid[len(valid) // 2 :])
    read(reader, valid[:15] + data)


@examples(2)
@given(data=st.data())
def test_what_a_sweep_says_holds_together(data: st.DataObject) -> None:
    """However damaged the text: indices are within the devices, each device and each port is there once."""
    try:
        sweep = ibnetdiscover.parse(data.draw(mutated(TEXT)))
    except FormatError:
        return
    n, m = len(sweep.guid), len(sweep.device)
    per_device = (sweep.kind, sweep.port_count, sweep.declared, sweep.system_image_guid, sweep.descriptions)
    assert {len(column) for column in per_device} == {n}
    per_record = (
        sweep.port,
        sweep.port_guid,
        sweep.peer,
        sweep.peer_port,
        sweep.rate_gbps,
        sweep.width,
        sweep.line,
    )
    assert {len(column) for column in per_record} == {m}
    assert len(set(sweep.guid.tolist())) == n
    assert 0 not in sweep.guid.tolist()
    assert set(sweep.device.tolist()) | set(sweep.peer.tolist()) <= set(range(n))
    assert len(set(zip(sweep.device.tolist(), sweep.port.tolist(), strict=True))) == m
    assert all(sweep.declared[sweep.device])
    assert all(text.isprintable() for text in sweep.descriptions)
    assert sweep.line.tolist() == sorted(set(sweep.line.tolist()))
    assert all(str(problem).isprintable() for problem in sweep.problems)


SYSFS_NAMES = [f"mlx5_0/{name}" for name in DEVICE_FILES]
SYSFS_NAMES += [f"mlx5_0/ports/1/{name}" for name in (*PORT_FILES, *COUNTER_FILES)]
SYSFS_TEXTS = [b"4: ACTIVE\n", b"InfiniBand\n", b"0002:c903:0008:0e84\n", b"0x1\n", b"10 Gb/sec (4X)\n"]


@examples(2)
@given(
    st.dictionaries(
        st.sampled_from(SYSFS_NAMES) | st.text(max_size=30),
        st.binary(max_size=50) | st.sampled_from(SYSFS_TEXTS),
        max_size=14,
    )
)
def test_any_tree(tree: dict[str, bytes]) -> None:
    ports, problems = parse_sysfs(tree)
    assert all(str(problem).isprintable() for problem in problems)
    assert all(port.node_guid for port in ports)


@examples(2)
@given(
    st.dictionaries(
        st.sampled_from(interface_counters.COUNTERS) | st.text(max_size=20),
        st.binary(max_size=30) | st.integers(-5, 2**70).map(lambda n: b"%d\n" % n),
        max_size=6,
    )
)
def test_any_counters(files: dict[str, bytes]) -> None:
    found = interface_counters.parse(files)
    assert all(0 <= getattr(found, name) < 2**64 for name in interface_counters.COUNTERS)


# Rows as an agent gets them from a switch that answers whatever it likes.
COLUMNS = snmp_switch.wanted_subtrees()
OIDS = st.builds(
    tuple.__add__,
    st.sampled_from([*COLUMNS, *((*COLUMNS[0], 7, 1, n) for n in (2, 3, 4))]),
    st.lists(st.sampled_from([0, 1, 2, 4, 16, 255, 256, 2**32 - 1]), max_size=9).map(tuple),
)
VALUES = (
    st.binary(max_size=20)
    | st.sampled_from([b"\x28\0", b"<private>", b"28 00 2 4", b"swp1", bytes(6), b"10.0.0.1", b"00 " * 90])
    | st.integers(-(2**63), 2**64)
    | st.lists(st.integers(0, 2**32 - 1), max_size=5).map(tuple)
)
ROWS = st.builds(snmp_rows.Row, OIDS, st.sampled_from(snmp_rows.KINDS), VALUES)


@pytest.mark.slow
@examples(5)
@given(st.lists(ROWS, max_size=40), st.sampled_from(["", "10.0.0.1"]))
def test_any_rows_are_a_switch(rows: list[snmp_rows.Row], address: str) -> None:
    """And all that is said of it can be shown, sent and told apart."""
    table = snmp_switch.read(rows, "leaf", address, neighbours_per_port=3)
    finding_pb2.SwitchTable.FromString(switch_table_to_proto(table).SerializeToString())
    assert switch_table_from_proto(switch_table_to_proto(table)) == table
    assert len({port.chassis_id for port in table.ports}) <= 1
    hearing = [port for port in table.ports if port.neighbours]
    assert len({port.port_id for port in hearing}) == len(hearing)
    for port in table.ports:
        texts = [port.interface, port.chassis_id, port.port_id, port.doubt]
        assert len(port.neighbours) <= 3
        for near in port.neighbours:
            texts += [near.chassis_id, near.port_id]
        assert all(texts[:3])
        assert all(near.port_id for near in port.neighbours)
        assert all(text.isprintable() and len(text) < 1200 for text in texts)
    assert all(problem.isprintable() and len(problem) < 600 for problem in table.problems)
