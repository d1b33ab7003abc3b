"""Tell hosts from the virtual machines that announce themselves through a host's port.

A switch port with several stations is the port of one host. The host has the address of a NIC; virtual
machines have addresses that their hypervisor made up.
"""

from hyperscout_formats.facts.facts import LldpNeighbour

from hyperscout_inference.ethernet.neighbours import NAMED, OTHER, UNCLAIMED, Far
from hyperscout_inference.ethernet.switch_reports import End, Row, is_mac

_LOCALLY_ADMINISTERED = 0x02  # bit of the first octet (IEEE 802-2014, 8.2.2): KVM, containers, clouds
# Prefixes that hypervisors use for virtual NICs: VMware, VMware (set by hand), Hyper-V, Xen, Parallels.
_HYPERVISORS = ("00:0c:29", "00:50:56", "00:15:5d", "00:16:3e", "00:1c:42")


def without_virtual_machines(fars: list[tuple[Row, Far]]) -> list[tuple[Row, Far]]:
    """Return the rows. Where one of several stations on a port has the address of a NIC and the others do
    not, the others are of kind OTHER."""
    stations: dict[End, list[bool]] = {}
    for row, far in fars:
        if far.kind in (NAMED, UNCLAIMED):
            stations.setdefault(row.near, []).append(_is_virtual(row.neighbour))
    crowded = {end for end, virtual in stations.items() if len(virtual) > 1 and virtual.count(False) == 1}
    if not crowded:
        return fars
    return [
        (row, Far(OTHER, End(row.neighbour.chassis_id, row.neighbour.port_id), "a virtual machine"))
        if row.near in crowded and far.kind in (NAMED, UNCLAIMED) and _is_virtual(row.neighbour)
        else (row, far)
        for row, far in fars
    ]


def _is_virtual(neighbour: LldpNeighbour) -> bool:
    """Return whether the neighbour's port, else the neighbour itself, has an address that was made up."""
    mac = neighbour.port_id if neighbour.port_id_subtype == "mac" else neighbour.chassis_id
    if not is_mac(mac):
        return False
    return bool(int(mac[:2], 16) & _LOCALLY_ADMINISTERED) or mac.startswith(_HYPERVISORS)
