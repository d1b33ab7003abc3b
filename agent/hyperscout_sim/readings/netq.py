"""Writes NetQ's response about a simulated fabric: the graph that its topology page draws."""

from collections import defaultdict
from typing import Any

from hyperscout_sim.fabric.fabric import SimFabric

_HOSTS = -1


def netq_graph(fabric: SimFabric) -> list[dict[str, Any]]:
    """Return the graph. Ports of switches are called "swp1" and so on, ports of hosts by adapter and port."""
    ids: dict[str, str] = {}
    tiers: dict[int, list[dict[str, Any]]] = defaultdict(list)
    name_of = {x.guid: x.name for x in fabric.switches} | {x.guid: x.host for x in fabric.adapters}
    device_of = {x.guid: x.device for x in fabric.adapters}
    wanted = [(x.name, x.level, "switch") for x in fabric.switches]
    wanted += [(host, _HOSTS, "discovered_via_lldp") for host in fabric.adapters_of()]
    for name, tier, kind in wanted:
        ids[name] = f"node{len(ids)}"
        node = {"id": ids[name], "name": name, "tier": tier, "device_type": kind, "node_type": "device"}
        tiers[tier].append(node | {"size": 1, "auto_tier": True, "layout": {"tier": {"x": 0, "y": 0}}})
    cables: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for cable in fabric.cables:
        ends = []
        for guid, port in cable.ends:
            interface = f"{device_of[guid]}p{port}" if guid in device_of else f"swp{port}"
            ends.append({"node": ids[name_of[guid]], "interface": interface})
        ident = "-*-".join(f"{end['node']}:{end['interface']}" for end in ends)
        cables[ends[0]["node"], ends[1]["node"]].append({"id": ident, "interfaces": ends})
    return [
        {
            "nodes": [
                {"id": f"tier-{tier}", "tier": tier, "node_type": "tier", "compounded_nodes": nodes}
                for tier, nodes in tiers.items()
            ],
            "links": [
                {
                    "id": f"{a}-*-{b}",
                    "src": a,
                    "target": b,
                    "size": len(mine),
                    "interfaces": [{"node": a}, {"node": b}],
                    "compounded_links": mine,
                }
                for (a, b), mine in cables.items()
            ],
        }
    ]
