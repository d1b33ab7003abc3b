"""Finds the stale nodes and switches of a snapshot: no reporter has seen them within the limit."""

from hyperscout_formats.text.reporters import is_node
from hyperscout_inference.fabric.managed_nvlink import SOURCE as NVLINK_MANAGER
from hyperscout_topology.topology import Topology

from hyperscout_collector.evidence.view import Snapshot


def stale_nodes(snapshot: Snapshot, topology: Topology) -> dict[str, int]:
    """Returns when each stale node was last seen: Unix ns by node.

    A node without an agent is known from sweeps only. It is as old as the newest of them.
    """
    stale = {name: seen_ns for name, seen_ns in snapshot.stale.items() if is_node(name)}
    newest_ns = max((row.seen_ns for row in snapshot.sweeps if row.key.probe != NVLINK_MANAGER), default=0)
    if 0 < newest_ns < snapshot.limit_ns:
        spoken_for = {*snapshot.lldp, *snapshot.infiniband, *snapshot.gpus, *snapshot.latency}
        for hypernode in topology.hypernodes:
            if hypernode.tier == 1 and hypernode.source != "labels":
                for node in hypernode.nodes:
                    if node not in spoken_for:
                        stale.setdefault(node, newest_ns)
    return stale


def stale_switches(snapshot: Snapshot) -> dict[str, int]:
    """Returns when each stale switch was last seen: Unix ns by chassis id."""
    seen_ns: dict[str, int] = {}
    fresh: set[str] = set()
    for reporter, ports in snapshot.switch_ports.items():
        chassis = {port.chassis_id for port in ports}
        if reporter in snapshot.stale:
            seen_ns |= {id_: max(seen_ns.get(id_, 0), snapshot.stale[reporter]) for id_ in chassis}
        else:
            fresh |= chassis
    for look in snapshot.tables:
        id_, row = look.chassis_id, look.row
        if row.seen_ns < snapshot.limit_ns:
            seen_ns[id_] = max(seen_ns.get(id_, 0), row.seen_ns)
        else:
            fresh.add(id_)
    return {id_: at_ns for id_, at_ns in seen_ns.items() if id_ not in fresh}
