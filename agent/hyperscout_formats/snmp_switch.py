"""What rows of a switch's MIBs say of it: LLDP-MIB (IEEE 802.1AB-2005, clause 12), IF-MIB (RFC 2863), system
group (RFC 3418), EtherLike-MIB (RFC 3635).
"""

from collections.abc import Iterable
from typing import Final

from hyperscout_formats.facts import SwitchTable
from hyperscout_formats.snmp_rows import Row

_LLDP: Final = (1, 0, 8802, 1, 1, 2, 1)
_LOCAL: Final = (*_LLDP, 3)
_REMOTE: Final = (*_LLDP, 4, 1, 1)
_REMOTE_ADDRESS: Final = (*_LLDP, 4, 2, 1, 3)
_INTERFACE: Final = (1, 3, 6, 1, 2, 1, 2, 2, 1)
_INTERFACE_X: Final = (1, 3, 6, 1, 2, 1, 31, 1, 1, 1)
_SYSTEM_NAME: Final = (1, 3, 6, 1, 2, 1, 1, 5)
_FCS_ERRORS: Final = (1, 3, 6, 1, 2, 1, 10, 7, 2, 1, 3)

MAX_NEIGHBOURS: Final = 20_000
"""Of one switch."""


def wanted_subtrees() -> tuple[tuple[int, ...], ...]:
    """What has to be walked for `read`, in the order in which it is best asked for: columns and scalars; nothing
    else is read. The first one, lldpLocalSystemData, tells at once who it is."""
    return (
        _LOCAL,
        _SYSTEM_NAME,
        *((*_REMOTE, column) for column in (4, 5, 6, 7, 8, 9, 12)),
        _REMOTE_ADDRESS,
        *((*_INTERFACE, column) for column in (2, 6, 8, 13, 14, 19, 20)),
        *((*_INTERFACE_X, column) for column in (1, 15, 18)),
        _FCS_ERRORS,
    )


def read(
    rows: Iterable[Row], source: str, address: str = "", *, neighbours_per_port: int = MAX_NEIGHBOURS
) -> SwitchTable:
    """The switch that these rows are of, in any order. Never raises: what is odd is told in `problems` of the
    table and `doubt` of its ports.

    `source`: what the switch is called where it tells neither a chassis id nor a name and an address (a file's
    stem, the address that was asked). `address`: where it was asked, "" = not known. More neighbours than
    `neighbours_per_port` on one port are left out, and counted.
    """
    raise NotImplementedError
