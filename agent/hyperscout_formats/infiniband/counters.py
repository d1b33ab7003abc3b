"""What an InfiniBand port counts as damage and as not sent, whoever reads it: as `PortCounters`.

Source of the counters: InfiniBand Architecture Specification, volume 1, PortCounters (16.1.3.5); their names
in sysfs: Linux, Documentation/ABI/stable/sysfs-class-infiniband. They do not wrap: a full one stays as it is.

What was damaged elsewhere and only passed on (PortRcvRemotePhysicalErrors), and what a switch drops by its
tables (PortRcvSwitchRelayErrors), says nothing of the cable; what waits (PortXmitWait) is no error.
"""

from collections.abc import Mapping
from typing import Final

from hyperscout_formats.facts.facts import PortCounters

SYMBOL_ERRORS: Final = "SymbolErrorCounter"
LINK_DOWNED: Final = "LinkDownedCounter"
SYSFS_NAMES: Final = {
    "symbol_error": SYMBOL_ERRORS,
    "link_error_recovery": "LinkErrorRecoveryCounter",
    "port_rcv_errors": "PortRcvErrors",
    "local_link_integrity_errors": "LocalLinkIntegrityErrors",
    "excessive_buffer_overrun_errors": "ExcessiveBufferOverrunErrors",
    "port_xmit_discards": "PortXmitDiscards",
}
"""Names of files below `counters` -> names as infiniband-diags have them."""
FULL: Final = 0xFFFF
"""Where those that matter end: 16 bits."""
LINK_DOWNED_FULL: Final = 0xFF

_DAMAGE: Final = frozenset(SYSFS_NAMES.values()) - {"PortXmitDiscards"}
_MOST: Final = 2**64 - 1


def port_counters(values: Mapping[str, int]) -> PortCounters:
    """`values` by the names of infiniband-diags; what is missing is 0, what is not known is passed over.

    All damage is `rx_errors`; of it symbol errors, the most on a bad cable, are told apart: `rx_crc_errors`.
    """
    return PortCounters(
        rx_errors=min(sum(values.get(name, 0) for name in _DAMAGE), _MOST),
        rx_crc_errors=values.get(SYMBOL_ERRORS, 0),
        tx_dropped=values.get("PortXmitDiscards", 0),
    )


def errors_are_full(counters: PortCounters) -> bool:
    """Whether one of the two that count nearly all damage can count no more."""
    return counters.rx_crc_errors == FULL or counters.rx_errors - counters.rx_crc_errors >= FULL


def discards_are_full(counters: PortCounters) -> bool:
    return counters.tx_dropped == FULL
