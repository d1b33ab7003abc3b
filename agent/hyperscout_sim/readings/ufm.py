"""Writes a UFM's responses about a simulated fabric: the arrays of its ports, links and systems.

The keys are those of the NVIDIA UFM Enterprise REST API guide. Values that hyperscout does not read have one
example of each kind.
"""

from typing import Any

from hyperscout_sim.fabric.fabric import End, SimAdapter, SimFabric, SimSwitch

Objects = list[dict[str, Any]]


def ufm_answers(fabric: SimFabric) -> dict[str, Objects]:
    """Return the arrays by the last word of the resource: "ports", "links", "systems"."""
    switches = {x.guid: x for x in fabric.switches}
    adapters = {x.guid: x for x in fabric.adapters}
    peers: dict[End, tuple[End, str]] = {}
    for cable in fabric.cables:
        one, other = cable.ends
        peers[one], peers[other] = (other, cable.rate), (one, cable.rate)

    def end(own: End) -> tuple[int, int]:
        """Return the end as a UFM identifies it: an adapter by the GUID of the port."""
        guid, port = own
        return (adapters[guid].port_guid + port - 1, port) if guid in adapters else own

    ports: Objects = []
    for switch in fabric.switches:
        ports += [_port((switch.guid, n), switch, peers, end) for n in range(1, switch.port_count + 1)]
    for adapter in fabric.adapters:
        ports += [_port((adapter.guid, n), adapter, peers, end) for n in range(1, adapter.port_count + 1)]
    links = []
    for cable in fabric.cables:
        (a, a_port), (b, b_port) = end(cable.ends[0]), end(cable.ends[1])
        links.append(
            {
                "source_guid": f"{a:016x}",
                "source_port": str(a_port),
                "destination_guid": f"{b:016x}",
                "destination_port": str(b_port),
                "source_port_dname": str(a_port),
                "destination_port_dname": str(b_port),
                "width": cable.rate.partition("x")[0] + "x",
                "severity": "Info",
                "name": f"{a:016x}_{a_port}:{b:016x}_{b_port}",
                "capabilities": [],
            }
        )
    systems: Objects = [_system(x.guid, x.name, "switch") for x in switches.values()]
    systems += [_system(mine[0].guid, host, "host") for host, mine in fabric.adapters_of().items()]
    return {"ports": ports, "links": links, "systems": systems}


def _port(
    own: End, device: SimSwitch | SimAdapter, peers: dict[End, tuple[End, str]], end: Any
) -> dict[str, Any]:
    guid, number = end(own)
    peer, rate = peers.get(own, (None, ""))
    there = "{:016x}_{}".format(*end(peer)) if peer else "N/A"
    width, _, speed = rate.partition("x")
    is_switch = isinstance(device, SimSwitch)
    name = device.name if isinstance(device, SimSwitch) else device.host
    return {
        "description": "Switch IB Port" if is_switch else "Computer IB Port",
        "number": number,
        "external_number": number,
        "physical_state": "Link Up" if peer else "Polling",
        "logical_state": "Active" if peer else "Down",
        "path": f"default / {name} / NA / {number}",
        "tier": 1,
        "lid": 1,
        "mtu": 4096,
        "peer": there,
        "peer_node_guid": there[:16],
        "active_speed": speed,
        "active_width": f"{width}x" if width else "",
        "dname": str(number) if is_switch else f"HCA-1/{number}",
        "systemID": f"{device.guid:016x}",
        "node_description": f"{name}:{number}" if is_switch else device.description,
        "name": f"{guid:016x}_{number}",
        "guid": f"{guid:016x}",
        "system_name": name,
        "severity": "Info",
        "capabilities": ["reset", "disable"],
    }


def _system(guid: int, name: str, kind: str) -> dict[str, Any]:
    return {
        "guid": f"{guid:016x}",
        "system_guid": f"{guid:016x}",
        "system_name": name,
        "name": f"{guid:016x}",
        "type": kind,
        "state": "active",
        "total_alarms": 0,
    }
