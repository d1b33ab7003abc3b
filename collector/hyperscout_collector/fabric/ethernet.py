"""What hosts and switches hear over LLDP, as one Ethernet part: cables from port to port."""

import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from hyperscout_formats.facts import LldpNeighbour, LldpPort

from hyperscout_collector.fabric.inputs import FabricInputs, InferOptions
from hyperscout_collector.fabric.network import PORT_TEXTS, Ints
from hyperscout_collector.fabric.part import Part
from hyperscout_collector.fabric.switch_cables import (
    SOURCE,
    Jack,
    SwitchCable,
    SwitchView,
    is_switch,
    switch_view,
)
from hyperscout_collector.topology import Anomaly, Endpoint

# Who saw a cable: the host at its one end, the switch at its other, both.
_HOST, _SWITCH, _BOTH = ("lldp",), (SOURCE,), ("lldp", SOURCE)
# A port this much slower than what hosts compute with is no part of what they compute with.
_FAR_SLOWER = 8


class _Cable(NamedTuple):
    host: str
    interface: str
    chassis: str
    port: str
    speed_mbps: int
    sources: tuple[str, ...]


def _switch_on(port: LldpPort, view: SwitchView) -> LldpNeighbour | None:
    """The switch at the other end: of several neighbours (a NIC's own LLDP agent talks too) the one that
    switches."""

    own = view.own
    heard: Sequence[LldpNeighbour] = port.neighbours
    if len(heard) > 1:
        heard = sorted(heard, key=lambda n: (not is_switch(n, own), n.chassis_id, n.port_id))
    if not heard or ("Station" in heard[0].capabilities and not is_switch(heard[0], own)):
        return None
    return heard[0]


def ethernet(inputs: FabricInputs, options: InferOptions) -> tuple[Part, list[bool]] | None:
    """The part, and which of its cables are of the compute fabric were there no InfiniBand."""
    view = switch_view(inputs)
    names: dict[str, str] = {}
    rows, anomalies = _host_cables(inputs, view, names)
    between = view.cables
    if not rows and not between:
        return None
    names |= {chassis: name for chassis, name in view.names.items() if name}
    nodes = sorted({row.host for row in rows})
    ends = {end.chassis for cable in between for end in (cable.a, cable.b)}
    switches = sorted({row.chassis for row in rows} | ends)
    at_host = {name: i for i, name in enumerate(nodes)}
    at_switch = {name: len(nodes) + i for i, name in enumerate(switches)}
    texts = sorted(
        {row.interface for row in rows}
        | {row.port for row in rows}
        | {end.port for cable in between for end in (cable.a, cable.b)}
    )
    text_at = {text: PORT_TEXTS + i for i, text in enumerate(texts)}
    sources = sorted({row.sources for row in rows} | ({_SWITCH} if between else set()))
    source_at = {seen_by: i for i, seen_by in enumerate(sources)}
    total = len(nodes) + len(switches)

    def column(of_hosts: list[int], of_switches: list[int]) -> Ints:
        return np.array(of_hosts + of_switches, np.int32)

    speeds = [r.speed_mbps for r in rows] + [c.speed_mbps for c in between]
    part = Part(
        [*nodes, *switches],
        [*nodes, *(names.get(s) or s for s in switches)],
        np.arange(total) >= len(nodes),
        [*nodes, *([None] * len(switches))],
        [""] * total,
        np.zeros(total, np.bool_),
        np.zeros(total, np.bool_),
        column([at_host[r.host] for r in rows], [at_switch[c.a.chassis] for c in between]),
        column([text_at[r.interface] for r in rows], [text_at[c.a.port] for c in between]),
        column([at_switch[r.chassis] for r in rows], [at_switch[c.b.chassis] for c in between]),
        column([text_at[r.port] for r in rows], [text_at[c.b.port] for c in between]),
        np.array([speed / 1000 for speed in speeds], np.float32),
        np.zeros(len(speeds), np.int32),
        ["ethernet"],
        column([source_at[r.sources] for r in rows], [source_at.get(_SWITCH, 0)] * len(between)),
        sources,
        texts,
        anomalies=[*_claimed_twice(rows, names), *anomalies, *view.anomalies],
    )
    compute, usual_mbps = _compute(rows, options)
    return part, compute + _compute_between(rows, compute, between, usual_mbps)


def _host_cables(
    inputs: FabricInputs, view: SwitchView, names: dict[str, str]
) -> tuple[list[_Cable], list[Anomaly]]:
    """Cables that hosts report, then those of their ports of which only a switch knows; sorted. Fills in
    `names` of switches, as hosts hear them."""
    rows: set[_Cable] = set()
    ports: dict[tuple[str, str], tuple[bool, int]] = {}  # carrier and speed of those that switches hear
    reported: dict[tuple[str, str], _Cable] = {}  # of those
    wanted = set(view.hosts.values())
    nobody: set[str] = set()
    interfaces: dict[str, set[str]] = {}
    for jack in wanted:
        interfaces.setdefault(jack.host, set()).add(jack.interface)
    for node in sorted(inputs.lldp):
        mine = interfaces.get(node, nobody)
        for port in inputs.lldp[node]:
            if heard := port.interface in mine:
                carrier, speed_mbps = ports.get((node, port.interface), (False, 0))
                state = carrier or port.carrier, max(speed_mbps, port.speed_mbps)
                ports[node, port.interface] = state
            neighbour = _switch_on(port, view)
            if neighbour is None or not port.carrier:
                continue
            end = neighbour.chassis_id, neighbour.port_id
            both = heard and view.hosts.get(end) == (node, port.interface)
            cable = _Cable(node, port.interface, *end, port.speed_mbps, _BOTH if both else _HOST)
            rows.add(cable)
            if heard:
                known = reported.get((node, port.interface), cable)
                reported[node, port.interface] = min(known, cable)
            names[end[0]] = max(names.get(end[0], ""), neighbour.system_name)
    more: dict[Jack, _Cable] = {}
    anomalies: list[Anomaly] = []
    # What a host hears decides where its cable leads; a switch that speaks no more comes last.
    odd = [
        (end[0] in view.silent, end, jack)
        for end, jack in view.hosts.items()
        if (own := reported.get(jack)) is None or (own.chassis, own.port) != end
    ]
    for is_silent, end, jack in sorted(odd):
        carrier, speed_mbps = ports[jack]
        rival = reported.get(jack) or more.get(jack)
        if rival is None and (carrier or jack.host in inputs.silent):
            more[jack] = _Cable(*jack, *end, speed_mbps, _SWITCH)
        elif rival is not None and not is_silent:
            name = view.names.get(end[0]) or end[0]
            anomalies.append(
                Anomaly(
                    "SourcesDisagree",
                    Endpoint(jack.host, jack.host, jack.interface),
                    Endpoint(end[0], name, end[1]),
                    None,
                    _BOTH,
                    0.7,
                    f"{name}/{end[1]} hears {jack.host}/{jack.interface}, which is on another cable",
                )
            )
    return sorted([*rows, *more.values()]), anomalies


def _claimed_twice(rows: list[_Cable], names: dict[str, str]) -> list[Anomaly]:
    """One switch port heard on two host ports: two sources disagree (or a hub, or a cloned chassis id)."""
    counts = Counter((row.chassis, row.port) for row in rows)
    return [
        Anomaly(
            "SourcesDisagree",
            Endpoint(row.host, row.host, row.interface),
            Endpoint(row.chassis, names.get(row.chassis) or row.chassis, row.port),
            None,
            _HOST,
            0.7,
            f"{row.host}/{row.interface} hears {names.get(row.chassis) or row.chassis}/{row.port}, "
            "and so does another host's port",
        )
        for row in rows
        if counts[row.chassis, row.port] > 1
    ]


def _compute(rows: list[_Cable], options: InferOptions) -> tuple[list[bool], int]:
    """Ports declared by pattern; else each host's fastest class, unless all it has left is far slower than
    usual. And what is usual (Mbit/s, 0 = unknown)."""
    fastest: dict[str, int] = {}
    if options.compute_ports is not None:
        pattern = re.compile(options.compute_ports)
        chosen = [bool(pattern.search(row.interface)) for row in rows]
        speeds = sorted(row.speed_mbps for row, mine in zip(rows, chosen, strict=True) if mine)
        return chosen, speeds[len(speeds) // 2] if speeds else 0
    for row in rows:
        fastest[row.host] = max(fastest.get(row.host, 0), row.speed_mbps)
    ranked = sorted(fastest.values())
    usual = ranked[len(ranked) // 2] if ranked else 0
    chosen = [
        (row.speed_mbps == fastest[row.host] and row.speed_mbps * _FAR_SLOWER > usual) or usual == 0
        for row in rows
    ]
    return chosen, usual


def _compute_between(
    rows: list[_Cable], compute: list[bool], between: Sequence[SwitchCable], usual_mbps: int
) -> list[bool]:
    """Which cables between switches belong to the compute fabric: those by which a switch that hosts compute
    with is reached, neither through a switch that they only use otherwise nor through a management port."""
    reached = {row.chassis for row, mine in zip(rows, compute, strict=True) if mine}
    other = {row.chassis for row in rows} - reached
    usable = [
        not {cable.a.chassis, cable.b.chassis} & other
        and (not (cable.speed_mbps and usual_mbps) or cable.speed_mbps * _FAR_SLOWER > usual_mbps)
        for cable in between
    ]
    around: dict[str, list[str]] = {}
    for cable, may in zip(between, usable, strict=True):
        if may:
            around.setdefault(cable.a.chassis, []).append(cable.b.chassis)
            around.setdefault(cable.b.chassis, []).append(cable.a.chassis)
    waiting = list(reached)
    while waiting:
        more = [x for x in around.get(waiting.pop(), ()) if x not in reached]
        reached.update(more)
        waiting += more
    return [may and cable.a.chassis in reached for cable, may in zip(between, usable, strict=True)]
