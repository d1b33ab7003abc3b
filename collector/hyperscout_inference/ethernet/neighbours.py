"""Find the device at the other end of a switch's port.

A MAC address decides first, then the cable that the host itself reports, then the name if it names a host. A
host with an agent is known by the MAC addresses that its agent reports. A host without one is known by its
system name, else by its chassis id. So is a device that does not compute; it never shapes the hierarchy.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from hyperscout_formats.facts.facts import SWITCHING, LldpNeighbour
from hyperscout_formats.text.reporters import cluster_of, name_in_cluster

from hyperscout_inference.ethernet.dpus import Dpus
from hyperscout_inference.ethernet.switch_reports import End, Row, SwitchReports, is_mac
from hyperscout_inference.fabric.identify import names_a_host
from hyperscout_inference.fabric.inputs import FabricInputs, InferOptions

# Kinds of neighbour in ascending order of certainty. Of several on one port the best known one counts.
OTHER, UNCLAIMED, NAMED, HOST, SWITCH = range(5)


class Jack(NamedTuple):
    """A host's port: node and interface."""

    host: str
    interface: str


class Far(NamedTuple):
    """The other end of a row: its kind, its device and port, and what is odd about it."""

    kind: int
    end: End
    note: str = ""


def is_switch(neighbour: LldpNeighbour, own: Collection[str]) -> bool:
    """Return whether a neighbour switches. `own`: chassis ids of switches that report themselves; their
    capabilities do not matter."""
    return not SWITCHING.isdisjoint(neighbour.capabilities) or neighbour.chassis_id in own


class Neighbours:
    """Resolves the neighbours of switches. `claims`: the host ports that report a switch port.
    `host_reported`: chassis ids that hosts report as switches. `dpus`: see `dpus_of`."""

    def __init__(
        self,
        inputs: FabricInputs,
        options: InferOptions,
        reports: SwitchReports,
        claims: Mapping[tuple[str, str], Sequence[Jack]],
        host_reported: Collection[str],
        dpus: Dpus,
    ) -> None:
        self._reports = reports
        self._dpus = dpus
        self._claims = claims
        self._host_reported = host_reported
        neighbours = [row.neighbour for row in reports.rows]
        self._addresses = _Addresses(inputs, neighbours)
        self._known, self._of_two = _known_names(inputs, options)
        self._interfaces = {
            node: {port.interface: port.mac for port in own} for node, own in inputs.lldp.items()
        }
        self._cloned = _cloned_names(neighbours)
        heard = {n.chassis_id for n in neighbours}
        own = {chassis for chassis in heard if reports.chassis(chassis) in reports.own}
        self._systems = {n.system_description for n in neighbours if n.chassis_id in own} - {""}
        switch_ids = {
            n.chassis_id
            for n in neighbours
            if not SWITCHING.isdisjoint(n.capabilities) and not self._routes_only(n)
        }
        self._switches = {reports.chassis(chassis) for chassis in switch_ids if chassis}

    def far(self, row: Row) -> Far:
        """Return the other end of a row."""
        neighbour = row.neighbour
        own = self._reports.own
        chassis = self._reports.chassis(neighbour.chassis_id)
        if (behind := self._dpus.get(neighbour.chassis_id)) is not None:
            return Far(HOST, behind.jack(neighbour.port_id))
        if (jack := self._addresses.of(neighbour, self._claims.get(row.near, ()))) is not None:
            return Far(HOST, End(*jack))
        if chassis in own:
            return Far(SWITCH, self._reports.end(neighbour.chassis_id, neighbour.port_id))
        node = self._known.get(_plain(neighbour.system_name)) if neighbour.system_name else None
        if (jack := self._by_cable(row, node)) is not None:
            return Far(HOST, End(*jack))
        if node is None or self._has_other_addresses(node, neighbour):
            node = self._addresses.host_of(neighbour)
        if node is not None:
            return Far(HOST, End(node, self._interface(node, neighbour)))
        if not chassis:
            kind = SWITCH if not SWITCHING.isdisjoint(neighbour.capabilities) else OTHER
            return Far(kind, End(f"neighbour of {row.near.chassis}/{row.near.port}", neighbour.port_id))
        if not _announces(neighbour) and chassis not in self._switches:
            return Far(OTHER, End(chassis, neighbour.port_id))
        if chassis in self._switches or chassis in self._host_reported or _announces_like_a_switch(neighbour):
            return Far(SWITCH, End(chassis, neighbour.port_id))
        return self._unclaimed(neighbour, chassis)

    def _unclaimed(self, neighbour: LldpNeighbour, chassis: str) -> Far:
        """Return a host that no agent claims, or a device that does not compute."""
        name, end = neighbour.system_name, End(chassis, neighbour.port_id)
        capabilities = neighbour.capabilities
        if capabilities and "Station" not in capabilities and not self._routes_only(neighbour):
            return Far(OTHER, end)
        if _plain(name) in self._of_two:
            return Far(UNCLAIMED, end, f"it announces the name {name}, which nodes of several clusters have")
        if _plain(name) in self._known:
            return Far(UNCLAIMED, end, f"it announces the name {name}, and has none of that host's addresses")
        if name and name not in self._cloned and names_a_host(name):
            return Far(NAMED, End(name, neighbour.port_id))
        return Far(UNCLAIMED, end)

    def _routes_only(self, neighbour: LldpNeighbour) -> bool:
        """Return whether a neighbour that switches or routes is a host: it has the name of a host, and it
        announces its ports as lldpd on a host does (by their MAC addresses), or that it is a station, too.
        A device with the system of a switch that reports itself is a switch."""
        if neighbour.system_description in self._systems:
            return False
        like_a_host = "Station" in neighbour.capabilities or neighbour.port_id_subtype == "mac"
        name = neighbour.system_name
        return like_a_host and bool(name) and name not in self._cloned and names_a_host(name)

    def _by_cable(self, row: Row, node: str | None) -> Jack | None:
        """Return the one host port that reports the cable in this port, unless the neighbour is another
        device."""
        claims = self._claims.get(row.near, ())
        if len(claims) != 1 or (node is not None and node != claims[0].host):
            return None
        if node is None and row.neighbour.chassis_id in self._switches:
            return None
        return claims[0]

    def _has_other_addresses(self, node: str, neighbour: LldpNeighbour) -> bool:
        """Return whether the neighbour is another node: its port has a MAC address that the node lacks."""
        macs = {mac for mac in self._interfaces.get(node, {}).values() if mac}
        return bool(macs) and neighbour.port_id_subtype == "mac" and neighbour.port_id not in macs

    def _interface(self, node: str, neighbour: LldpNeighbour) -> str:
        mine = self._interfaces.get(node, {})
        return next(
            (text for text in (neighbour.port_id, neighbour.port_description) if text in mine),
            neighbour.port_id,
        )


def _announces(neighbour: LldpNeighbour) -> bool:
    """Return whether the chassis id was announced: not made up by the reader, and a valid address if it is
    one."""
    return neighbour.chassis_id_subtype != "" and (
        neighbour.chassis_id_subtype != "mac" or is_mac(neighbour.chassis_id)
    )


def _announces_like_a_switch(neighbour: LldpNeighbour) -> bool:
    """Return whether a neighbour without capabilities announces more than a NIC's own agent, which sends only
    addresses."""
    return not neighbour.capabilities and (neighbour.port_id_subtype != "mac" or bool(neighbour.system_name))


class _Addresses:
    """Host ports by the MAC addresses that switches report. An address that two hosts have identifies
    neither."""

    def __init__(self, inputs: FabricInputs, neighbours: Sequence[LldpNeighbour]) -> None:
        """Only addresses that switches report are kept, because a cluster has many ports."""
        macs = {n.port_id for n in neighbours if n.port_id_subtype == "mac"}
        macs |= {n.chassis_id for n in neighbours if n.chassis_id_subtype == "mac"}
        self._jacks: dict[str, list[Jack]] = {}
        for node, own in inputs.lldp.items():
            for port in own:
                if port.mac in macs:
                    self._jacks.setdefault(port.mac, []).append(Jack(node, port.interface))
        hosts = {mac: {jack.host for jack in at} for mac, at in self._jacks.items()}
        self._hosts = {mac: mine.pop() for mac, mine in hosts.items() if len(mine) == 1}
        nodes = set(self._hosts.values())
        self._interfaces = {node: {port.interface for port in inputs.lldp[node]} for node in nodes}

    def of(self, neighbour: LldpNeighbour, claims: Sequence[Jack]) -> Jack | None:
        """Return the neighbour's host port, or None. `claims`: host ports that report the switch port; they
        distinguish ports that share one address."""
        if neighbour.port_id_subtype == "mac" and (at := self._jacks.get(neighbour.port_id)) is not None:
            if len(at) > 1:
                at = [jack for jack in at if jack in claims]
            return at[0] if len(at) == 1 else None
        if (host := self.host_of(neighbour)) is None:
            return None
        for text in (neighbour.port_id, neighbour.port_description):
            if text in self._interfaces[host]:
                return Jack(host, text)
        return None

    def host_of(self, neighbour: LldpNeighbour) -> str | None:
        """Return the host that has this chassis id, whatever the port."""
        return self._hosts.get(neighbour.chassis_id) if neighbour.chassis_id_subtype == "mac" else None


def _known_names(inputs: FabricInputs, options: InferOptions) -> tuple[dict[str, str], set[str]]:
    """Return nodes by the names that they may announce, and the names that nodes of several clusters have.
    Such a name identifies none of them, nor does a short name that two nodes have."""
    nodes = {
        *inputs.lldp,
        *inputs.infiniband,
        *inputs.gpus,
        *inputs.node_map.values(),
        *inputs.answering,
        *(options.cluster_nodes or ()),
    }
    found: dict[str, str] = {}
    short: dict[str, set[str]] = {}
    of_two: set[str] = set()
    for node in sorted(nodes):
        text = _plain(name_in_cluster(node))
        other = found.setdefault(text, node)
        if cluster_of(other) != cluster_of(node):
            of_two.add(text)
        found[text] = node
        short.setdefault(text.partition(".")[0], set()).add(node)
    of_two.update(text for text, mine in short.items() if len(set(map(cluster_of, mine))) > 1)
    for text in of_two:
        found.pop(text, None)
    for text, mine in short.items():
        if len(mine) == 1:
            found.setdefault(text, *mine)
    return found, of_two


def _plain(name: str) -> str:
    return name.lower().rstrip(".")


def _cloned_names(neighbours: Iterable[LldpNeighbour]) -> set[str]:
    """Return names that two chassis announce with one port name (cloned images): they identify no host."""
    claimed: dict[tuple[str, str], set[str]] = {}
    for neighbour in neighbours:
        if neighbour.system_name:
            key = neighbour.system_name, neighbour.port_id
            claimed.setdefault(key, set()).add(neighbour.chassis_id)
    return {name for (name, _), chassis in claimed.items() if len(chassis) > 1}
