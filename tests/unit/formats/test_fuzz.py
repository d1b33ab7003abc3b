"""Whatever comes in, a reader gives facts or raises FormatError: never anything else."""

import json
from collections.abc import Callable

import pytest
from hyperscout_formats import (
    ibnetdiscover,
    ibnetdiscover_text,
    interface_counters,
    latency_csv,
    lldp_frame,
    lldpcli_interfaces,
    lldpctl,
    nccl_tests,
    node_list,
    node_map,
    nvidia_smi,
)
from hyperscout_formats.errors import FormatError
from hyperscout_formats.infiniband_sysfs import COUNTER_FILES, DEVICE_FILES, PORT_FILES
from hyperscout_formats.infiniband_sysfs import parse as parse_sysfs
from hyperscout_sim.nvidia_smi_text import nvidia_smi_text
from hyperscout_sim.nvlink import cluster_uuid, nvl72_tray, unhealthy, with_mig
from hypothesis import given, settings
from hypothesis import strategies as st
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

READERS: dict[str, tuple[Callable[[bytes], object], bytes]] = {
    "ibnetdiscover": (ibnetdiscover.parse, TEXT),
    "ibnetdiscover_text": (ibnetdiscover_text.summary, TEXT),
    "latency_csv": (latency_csv.parse, b"node_a,node_b,rtt_us,samples\na,b,3.25,16\nb,c,4 # x\n"),
    "lldp_frame": (lldp_frame.dissect, FRAME),
    "lldpcli_interfaces": (lldpcli_interfaces.parse, LLDPCTL),
    "lldpctl": (lldpctl.parse, LLDPCTL),
    "nccl_tests": (nccl_tests.parse, NCCL_TESTS),
    "node_map": (node_map.parse, NODE_MAP),
    "node_list": (node_list.parse, b"a\nb # c\n"),
    "nvidia_smi": (nvidia_smi.parse, NVIDIA_SMI),
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
@settings(max_examples=100)
@given(data=st.data())
def test_mutated(name: str, data: st.DataObject) -> None:
    reader, valid = READERS[name]
    read(reader, data.draw(mutated(valid)))


@pytest.mark.parametrize("name", READERS)
@settings(max_examples=50)
@given(data=st.binary(max_size=300))
def test_random(name: str, data: bytes) -> None:
    reader, valid = READERS[name]
    read(reader, data)
    read(reader, valid[: len(valid) // 2] + data + valid[len(valid) // 2 :])
    read(reader, valid[:15] + data)


@settings(max_examples=100)
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


@settings(max_examples=100)
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


@settings(max_examples=100)
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
