"""A hundred megabytes of junk: refused, or read in memory that does not grow with it."""

import tracemalloc
from collections.abc import Callable

import pytest
from hyperscout_formats import (
    ibnetdiscover,
    ibnetdiscover_text,
    ibqueryerrors,
    latency_csv,
    lldp_frame,
    lldpcli_interfaces,
    lldpctl,
    nccl_tests,
    netq,
    nmx,
    node_labels,
    node_list,
    node_map,
    nvidia_smi,
    snmp_rows,
    ufm,
)
from hyperscout_formats.errors import FormatError
from hyperscout_formats.infiniband_sysfs import parse as parse_sysfs
from support.small_fabric import RECORDS, TEXT

SIZE = 100_000_000
MOST_BYTES = 80_000_000  # of memory, beside the junk itself

JUNK: dict[str, Callable[[], bytes]] = {
    "zeros": lambda: bytes(SIZE),
    "binary": lambda: (bytes(range(256)) * (SIZE // 256))[:SIZE],
    "one long line": lambda: b"x" * SIZE,
    "lines": lambda: b"Switch or Ca, what is this\n" * (SIZE // 27),
    "brackets": lambda: b"[1]" * (SIZE // 3),
    "empty lines": lambda: b"\n" * SIZE,
}
READERS: dict[str, Callable[[bytes], object]] = {
    "ibnetdiscover": ibnetdiscover.parse,
    "ibqueryerrors": ibqueryerrors.parse,
    "latency_csv": latency_csv.parse,
    "lldp_frame": lldp_frame.dissect,
    "lldpcli_interfaces": lldpcli_interfaces.parse,
    "lldpctl": lldpctl.parse,
    "nccl_tests": nccl_tests.parse,
    "netq": netq.parse,
    "nmx": nmx.parse,
    "node_labels": node_labels.parse,
    "node_map": node_map.parse,
    "node_list": node_list.parse,
    "nvidia_smi": nvidia_smi.parse,
    "snmp_rows": snmp_rows.parse,
    "ufm": ufm.parse,
}


def peak_of(work: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        work()
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return peak


@pytest.mark.parametrize("kind", JUNK)
def test_junk(kind: str) -> None:
    junk = JUNK[kind]()
    for name, reader in READERS.items():

        def refused(reader: Callable[[bytes], object] = reader) -> None:
            with pytest.raises(FormatError):
                reader(junk)

        assert peak_of(refused) < MOST_BYTES, name
    assert peak_of(lambda: ibnetdiscover_text.summary(junk)) < MOST_BYTES
    assert parse_sysfs({"mlx5_0/ports/1/state": junk, "mlx5_0/ports/1/link_layer": b"InfiniBand\n"})[0] == ()


@pytest.mark.parametrize("kind", ["zeros", "one long line", "brackets"])
def test_junk_behind_a_sweep(kind: str) -> None:
    """It is one line: passed over, and the rest counts."""

    def read() -> None:
        sweep = ibnetdiscover.parse(text)
        assert len(sweep.device) == len(RECORDS)
        assert sweep.problems[0].line == 37

    text = b"".join([TEXT, JUNK[kind](), b"\n", TEXT[TEXT.index(b"vendid") :]])
    assert peak_of(read) < MOST_BYTES


def test_lines_of_junk_behind_a_sweep_are_refused() -> None:
    junk = TEXT + JUNK["lines"]()
    with pytest.raises(FormatError, match="cannot be read"):
        ibnetdiscover.parse(junk)
