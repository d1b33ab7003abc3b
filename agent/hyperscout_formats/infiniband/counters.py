"""Converts the error counters of an InfiniBand port to `PortCounters`, for all readers that find them.

Source of the counters: InfiniBand Architecture Specification, volume 1, PortCounters (16.1.3.5). Their names
in sysfs: Linux, Documentation/ABI/stable/sysfs-class-infiniband. The counters do not wrap: a counter at its
maximum stays there.

Three counters are left out. PortRcvRemotePhysicalErrors counts packets that were damaged elsewhere and only
forwarded, and PortRcvSwitchRelayErrors counts packets that a switch drops because of its tables: neither is
evidence about the link. PortXmitWait counts waiting, which is not an error.
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
"""Names of the files below `counters`, and the names of the same counters in infiniband-diags."""
FULL: Final = 0xFFFF
"""Maximum of the 16-bit counters that are used here."""
LINK_DOWNED_FULL: Final = 0xFF

_DAMAGE: Final = frozenset(SYSFS_NAMES.values()) - {"PortXmitDiscards"}
_MAX_COUNT: Final = 2**64 - 1


def port_counters(values: Mapping[str, int]) -> PortCounters:
    """Return the counters. `values` are keyed by the names of infiniband-diags.

    A missing counter is 0, and an unknown name is ignored. `rx_errors` is the sum of all damage counters.
    Symbol errors, the most frequent ones on a bad cable, are also in `rx_crc_errors`.
    """
    return PortCounters(
        rx_errors=min(sum(values.get(name, 0) for name in _DAMAGE), _MAX_COUNT),
        rx_crc_errors=values.get(SYMBOL_ERRORS, 0),
        tx_dropped=values.get("PortXmitDiscards", 0),
    )


def errors_are_full(counters: PortCounters) -> bool:
    """Return whether one of the two counters that record nearly all damage has reached its maximum."""
    return counters.rx_crc_errors == FULL or counters.rx_errors - counters.rx_crc_errors >= FULL


def discards_are_full(counters: PortCounters) -> bool:
    return counters.tx_dropped == FULL
