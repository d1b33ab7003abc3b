"""What an InfiniBand port counts: which counters are damage, and when one is full."""

import pytest
from hyperscout_formats.facts.facts import PortCounters
from hyperscout_formats.infiniband.counters import (
    SYSFS_NAMES,
    discards_are_full,
    errors_are_full,
    port_counters,
)
from hyperscout_formats.infiniband.sysfs import COUNTER_FILES, parse
from unit.formats.test_infiniband_sysfs import TREE


@pytest.mark.parametrize(
    ("values", "found"),
    [
        pytest.param({}, PortCounters(), id="nothing"),
        pytest.param({"SymbolErrorCounter": 7}, PortCounters(rx_errors=7, rx_crc_errors=7), id="symbols"),
        pytest.param(
            dict.fromkeys(SYSFS_NAMES.values(), 3),
            PortCounters(rx_errors=15, rx_crc_errors=3, tx_dropped=3),
            id="all",
        ),
        pytest.param({"PortXmitDiscards": 9}, PortCounters(tx_dropped=9), id="not-sent"),
        pytest.param(
            {"PortXmitWait": 9, "PortRcvSwitchRelayErrors": 9, "PortRcvRemotePhysicalErrors": 9, "New": 9},
            PortCounters(),
            id="no-damage-of-this-cable",
        ),
        pytest.param(
            {"SymbolErrorCounter": 2**64 - 1, "PortRcvErrors": 2**64 - 1},
            PortCounters(rx_errors=2**64 - 1, rx_crc_errors=2**64 - 1),
            id="fits-into-a-message",
        ),
    ],
)
def test_counters(values: dict[str, int], found: PortCounters) -> None:
    assert port_counters(values) == found


@pytest.mark.parametrize(
    ("values", "errors", "discards"),
    [
        ({}, False, False),
        ({"SymbolErrorCounter": 65534, "PortRcvErrors": 65534}, False, False),
        ({"SymbolErrorCounter": 65535}, True, False),
        ({"SymbolErrorCounter": 65536}, False, False),  # 64 bits, of newer switches
        ({"SymbolErrorCounter": 12, "PortRcvErrors": 65535}, True, False),
        ({"PortXmitDiscards": 65534}, False, False),
        ({"PortXmitDiscards": 65535}, False, True),
    ],
)
def test_full(values: dict[str, int], errors: bool, discards: bool) -> None:
    counters = port_counters(values)
    assert (errors_are_full(counters), discards_are_full(counters)) == (errors, discards)


@pytest.mark.parametrize(
    ("text", "count"),
    [(b"41\n", 41), (b"0\n", 0), (b"", 0), (b"-1\n", 0), (b"lots\n", 0), (b"9" * 40, 0), (b"\xff\n", 0)],
)
def test_files(text: bytes, count: int) -> None:
    """A counter that cannot be read costs the counter and not the port."""
    tree = {**TREE, "mlx5_0/ports/1/counters/symbol_error": text}
    (port,), problems = parse(tree)
    assert (port.counters, problems) == (PortCounters(rx_errors=count, rx_crc_errors=count), ())


def test_every_file_is_read() -> None:
    for name in COUNTER_FILES:
        (port,), _ = parse({**TREE, f"mlx5_0/ports/1/{name}": b"5\n"})
        assert port.counters != PortCounters(), name
