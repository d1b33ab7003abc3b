"""A hundred megabytes of junk, or less: refused, or read in memory that does not grow with it."""

import tracemalloc
from collections.abc import Callable

import pytest
from hyperscout_formats.cabling import dot, netbox_csv, netbox_json, ufm_p2p, ufm_topo
from hyperscout_formats.infiniband import ibnetdiscover, ibnetdiscover_text, ibqueryerrors, node_map
from hyperscout_formats.infiniband.sysfs import parse as parse_sysfs
from hyperscout_formats.lldp import frame as lldp_frame
from hyperscout_formats.lldp import lldpctl
from hyperscout_formats.managers import netq, nmx, ufm
from hyperscout_formats.nvidia import nccl_tests, nvidia_smi
from hyperscout_formats.snmp import rows as snmp_rows
from hyperscout_formats.text import latency_csv, node_labels, node_list
from hyperscout_formats.text.errors import FormatError
from support.examples import slow_after
from support.small_fabric import RECORDS, TEXT

SIZES = slow_after(1, (1_000_000, 100_000_000))
MAX_BYTES = 80_000_000  # of memory, beside the junk itself

JUNK: dict[str, Callable[[int], bytes]] = {
    "zeros": bytes,
    "binary": lambda size: (bytes(range(256)) * (size // 256))[:size],
    "one long line": lambda size: b"x" * size,
    "lines": lambda size: b"Switch or Ca, what is this\n" * (size // 27),
    "brackets": lambda size: b"[1]" * (size // 3),
    "empty lines": lambda size: b"\n" * size,
}
READERS: dict[str, Callable[[bytes], object]] = {
    "dot": dot.parse,
    "ibnetdiscover": ibnetdiscover.parse,
    "ibqueryerrors": ibqueryerrors.parse,
    "latency_csv": latency_csv.parse,
    "lldp_frame": lldp_frame.dissect,
    "lldpcli_interfaces": lldpctl.parse_own,
    "lldpctl": lldpctl.parse,
    "nccl_tests": nccl_tests.parse,
    "netbox_csv": netbox_csv.parse,
    "netbox_json": netbox_json.parse,
    "netq": netq.parse,
    "nmx": nmx.parse,
    "node_labels": node_labels.parse,
    "node_map": node_map.parse,
    "node_list": node_list.parse,
    "nvidia_smi": nvidia_smi.parse,
    "snmp_rows": snmp_rows.parse,
    "ufm": ufm.parse,
    "ufm_p2p": ufm_p2p.parse,
    "ufm_topo": ufm_topo.parse,
}


def peak_of(work: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        work()
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return peak


# A few empty lines are an empty table to some readers.
CASES = [(kind, 50_000) for kind in JUNK if kind != "empty lines"]
CASES += [pytest.param(kind, 100_000_000, marks=pytest.mark.slow) for kind in JUNK]


@pytest.mark.parametrize(("kind", "size"), CASES)
def test_junk(kind: str, size: int) -> None:
    junk = JUNK[kind](size)
    for name, reader in READERS.items():

        def refused(reader: Callable[[bytes], object] = reader) -> None:
            with pytest.raises(FormatError):
                reader(junk)

        assert peak_of(refused) < MAX_BYTES, name
    assert peak_of(lambda: ibnetdiscover_text.summary(junk)) < MAX_BYTES
    assert parse_sysfs({"mlx5_0/ports/1/state": junk, "mlx5_0/ports/1/link_layer": b"InfiniBand\n"})[0] == ()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", ["zeros", "one long line", "brackets"])
def test_junk_behind_a_sweep(kind: str, size: int) -> None:
    """It is one line: passed over, and the rest counts."""

    def read() -> None:
        sweep = ibnetdiscover.parse(text)
        assert len(sweep.device) == len(RECORDS)
        assert sweep.problems[0].line == 37

    text = b"".join([TEXT, JUNK[kind](size), b"\n", TEXT[TEXT.index(b"vendid") :]])
    assert peak_of(read) < MAX_BYTES


@pytest.mark.parametrize("size", SIZES)
def test_lines_of_junk_behind_a_sweep_are_refused(size: int) -> None:
    junk = TEXT + JUNK["lines"](size)
    with pytest.raises(FormatError, match="cannot be read"):
        ibnetdiscover.parse(junk)
