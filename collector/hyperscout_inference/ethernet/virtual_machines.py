"""Tell hosts from the virtual machines that announce themselves through a host's port.

A switch port with several stations is the port of one host. The host has the address of a NIC; virtual
machines have addresses that their hypervisor made up.
"""

from hyperscout_formats.facts.facts import LldpNeighbour

from hyperscout_inference.ethernet.neighbours import NAMED, OTHER, UNCLAIMED, Far
from hyperscout_inference.ethernet.switch_reports import End, Row, is_mac

_LOCALLY_ADMINISTERED = 0x02  # bit of the first octet (IEEE 802-2014, 8.2.2): KVM, containers, clouds
# Prefixes that hypervisors use for virtual NICs: KVM, VMware, VMware (set by hand), Hyper-V, Xen, Parallels.
_HYPERVISORS = ("52:54:00", "00:0c:29", "00:50:56", "00:15:5d", "00:16:3e", "00:1c:42")


def without_virtual_machines(fars: list[tuple[Row, Far]]) -> list[tuple[Row, Far]]:
    """Return the rows. Where one of several stations on a port has an address that is more like that of a NIC
    than the others have, the others are of kind OTHER."""
    stations: dict[End, list[int]] = {}
    for row, far in fars:
        if far.kind in (NAMED, UNCLAIMED):
            stations.setdefault(row.near, []).append(made_up(row.neighbour))
    crowded = {end: min(x) for end, x in stations.items() if len(x) > 1 and x.count(min(x)) == 1}
    if not crowded:
        return fars
    return [
        (row, Far(OTHER, End(row.neighbour.chassis_id, row.neighbour.port_id), "a virtual machine"))
        if far.kind in (NAMED, UNCLAIMED) and crowded.get(row.near, 2) < made_up(row.neighbour)
        else (row, far)
        for row, far in fars
    ]


def made_up(neighbour: LldpNeighbour) -> int:
    """Return how far the address of the neighbour's port, else of the neighbour, is from that of a NIC: 2 = a
    hypervisor's, 1 = locally administered, 0 = a NIC's or no address."""
    mac = neighbour.port_id if neighbour.port_id_subtype == "mac" else neighbour.chassis_id
    if not is_mac(mac):
        return 0
    return 2 if mac.startswith(_HYPERVISORS) else int(bool(int(mac[:2], 16) & _LOCALLY_ADMINISTERED))
