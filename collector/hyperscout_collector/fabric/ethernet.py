"""What hosts hear over LLDP, as one Ethernet part: cables from a host's port to a switch's port."""

import re
from collections import Counter
from typing import NamedTuple

import numpy as np
from hyperscout_formats.facts import LldpNeighbour, LldpPort

from hyperscout_collector.fabric.inputs import FabricInputs, InferOptions
from hyperscout_collector.fabric.network import PORT_TEXTS, Ints
from hyperscout_collector.fabric.part import Part
from hyperscout_collector.topology import Anomaly, Endpoint

_SWITCHING = {"Bridge", "Router"}


class _Cable(NamedTuple):
    host: str
    interface: str
    chassis: str
    port: str
    speed_mbps: int


def _switch_on(port: LldpPort) -> LldpNeighbour | None:
    """The switch at the other end: of several neighbours (a NIC's own LLDP agent talks too) the one that
    switches."""
    heard = sorted(
        port.neighbours, key=lambda n: (not _SWITCHING & set(n.capabilities), n.chassis_id, n.port_id)
    )
    if not heard or ("Station" in heard[0].capabilities and not _SWITCHING & set(heard[0].capabilities)):
        return None
    return heard[0]


def ethernet(inputs: FabricInputs, options: InferOptions) -> tuple[Part, list[bool]] | None:
    """The part, and which of its cables are of the compute fabric were there no InfiniBand."""
    cables: set[_Cable] = set()
    names: dict[str, str] = {}
    for node in sorted(inputs.lldp):
        for port in inputs.lldp[node]:
            neighbour = _switch_on(port)
            if neighbour is not None and port.carrier:
                cables.add(
                    _Cable(node, port.interface, neighbour.chassis_id, neighbour.port_id, port.speed_mbps)
                )
                known = names.get(neighbour.chassis_id, "")
                names[neighbour.chassis_id] = max(known, neighbour.system_name)
    if not cables:
        return None
    rows = sorted(cables)
    nodes = sorted({row.host for row in rows})
    switches = sorted(names)
    at = {("host", name): i for i, name in enumerate(nodes)} | {
        ("switch", name): len(nodes) + i for i, name in enumerate(switches)
    }
    texts = sorted({row.interface for row in rows} | {row.port for row in rows})
    text_at = {text: PORT_TEXTS + i for i, text in enumerate(texts)}
    total = len(at)

    def column(values: list[int]) -> Ints:
        return np.array(values, np.int32)

    part = Part(
        [*nodes, *switches],
        [*nodes, *(names[s] or s for s in switches)],
        np.arange(total) >= len(nodes),
        [*nodes, *([None] * len(switches))],
        [""] * total,
        np.zeros(total, np.bool_),
        np.zeros(total, np.bool_),
        column([at["host", r.host] for r in rows]),
        column([text_at[r.interface] for r in rows]),
        column([at["switch", r.chassis] for r in rows]),
        column([text_at[r.port] for r in rows]),
        np.array([r.speed_mbps / 1000 for r in rows], np.float32),
        np.zeros(len(rows), np.int32),
        ["ethernet"],
        np.zeros(len(rows), np.int32),
        [("lldp",)],
        texts,
        anomalies=_claimed_twice(rows, names),
    )
    return part, _compute(rows, options)


def _claimed_twice(rows: list[_Cable], names: dict[str, str]) -> list[Anomaly]:
    """One switch port heard on two host ports: two sources disagree (or a hub, or a cloned chassis id)."""
    counts = Counter((row.chassis, row.port) for row in rows)
    return [
        Anomaly(
            "SourcesDisagree",
            Endpoint(row.host, row.host, row.interface),
            Endpoint(row.chassis, names[row.chassis] or row.chassis, row.port),
            None,
            ("lldp",),
            0.7,
            f"{row.host}/{row.interface} hears {names[row.chassis] or row.chassis}/{row.port}, "
            "and so does another host's port",
        )
        for row in rows
        if counts[row.chassis, row.port] > 1
    ]


def _compute(rows: list[_Cable], options: InferOptions) -> list[bool]:
    """Ports declared by pattern; else each host's fastest class, unless all it has left is far slower than
    usual."""
    if options.compute_ports is not None:
        pattern = re.compile(options.compute_ports)
        return [bool(pattern.search(row.interface)) for row in rows]
    fastest: dict[str, int] = {}
    for row in rows:
        fastest[row.host] = max(fastest.get(row.host, 0), row.speed_mbps)
    ranked = sorted(fastest.values())
    usual = ranked[len(ranked) // 2]
    return [
        (row.speed_mbps == fastest[row.host] and row.speed_mbps * 8 > usual) or usual == 0 for row in rows
    ]
