"""Fuse what hosts and switches report over LLDP into one Ethernet part: cables from port to port.

A host's own report decides where its cable leads. Switch reports are a second source. They also show hosts
without an agent and the cables between switches.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from operator import itemgetter
from typing import NamedTuple

import numpy as np
from hyperscout_formats.facts.facts import LldpNeighbour, LldpPort
from hyperscout_formats.text.host_list import natural_key
from hyperscout_topology.link_changes import DENIED
from hyperscout_topology.topology import Anomaly, Endpoint, Topology, say

from hyperscout_inference.ethernet.by_name import with_identities
from hyperscout_inference.ethernet.compute import HostCable, compute_between, compute_ports
from hyperscout_inference.ethernet.dpus import MAX_PORTS, Dpus, dpus_of
from hyperscout_inference.ethernet.few_neighbours import too_many_neighbours, with_few_neighbours
from hyperscout_inference.ethernet.host_claims import (
    LLDP,
    confirmed_names,
    host_end,
    with_claims_noted,
    without_denied_ports,
)
from hyperscout_inference.ethernet.neighbours import (
    HOST,
    NAMED,
    OTHER,
    SWITCH,
    UNCLAIMED,
    Far,
    Jack,
    Neighbours,
    is_switch,
)
from hyperscout_inference.ethernet.switch_cables import Plug, SwitchCable, SwitchView, switch_view
from hyperscout_inference.ethernet.switch_identities import with_own_ports
from hyperscout_inference.ethernet.switch_names import (
    Vote,
    Votes,
    add_vote,
    distinct_names,
    heard_names,
)
from hyperscout_inference.ethernet.switch_reports import End, Row, SwitchReports, switch_reports
from hyperscout_inference.ethernet.virtual_machines import without_virtual_machines
from hyperscout_inference.fabric.few_findings import few_findings
from hyperscout_inference.fabric.foreign import any_foreign, foreign_by_name, reporting_nodes
from hyperscout_inference.fabric.inputs import FabricInputs, InferOptions
from hyperscout_inference.fabric.network import PORT_TEXTS, Ints
from hyperscout_inference.fabric.part import Part


class EthernetPart(NamedTuple):
    """`compute`: for each cable whether it belongs to the compute fabric if there is no InfiniBand.
    `near`: the hosts whose NICs nearest to GPUs are on Ethernet."""

    part: Part
    compute: list[bool]
    near: frozenset[str]


@dataclass(slots=True)
class _HostReports:
    """What hosts report. `names`: the names under which they hear switches. `claims`: the host ports that
    report a switch port, by `End`. `cables` and `states` (carrier, speed in Mbit/s) are by `Jack`. The last
    three are filled only where switches report their ports, too."""

    rows: dict[HostCable, None] = field(default_factory=dict)  # a set that stays nearly sorted
    names: Votes = field(default_factory=dict)
    claims: dict[tuple[str, str], list[Jack]] = field(default_factory=dict)
    cables: dict[tuple[str, str], HostCable] = field(default_factory=dict)
    states: dict[tuple[str, str], tuple[bool, int]] = field(default_factory=dict)


def ethernet(
    inputs: FabricInputs, options: InferOptions, previous: Topology | None = None
) -> EthernetPart | None:
    """Return all cables that LLDP shows, or None if there are none."""
    earlier = {switch.id: switch.name for switch in previous.switches} if previous is not None else {}
    inputs, many = with_few_neighbours(inputs)
    inputs, refused = with_own_ports(inputs, earlier)
    inputs = replace(inputs, tables=with_identities(inputs))
    reports = switch_reports(inputs)
    dpus = dpus_of(inputs.lldp, reports.own | _with_many_cables(reports.rows))
    by_hosts = _host_reports(inputs, reports, dpus)
    fars: list[tuple[Row, Far]] = []
    if reports.rows:
        neighbours = Neighbours(inputs, options, reports, by_hosts.claims, by_hosts.names, dpus)
        fars = without_virtual_machines([(row, neighbours.far(row)) for row in reports.rows])
        fars = _without_foreign_names(fars, by_hosts, inputs, options)
    names, clashes = _names(by_hosts, reports, fars, earlier)
    view = _view(fars, reports, by_hosts, inputs, names)
    rows, odd = _with_plugs(by_hosts, view.plugs, reports, inputs.silent, names)
    rows, twice = with_claims_noted(rows, names, previous)
    as_reported = partial(confirmed_names, by_hosts.rows, fars, reports.ports.keys(), inputs.silent)
    taken = _taken(view.cables, reports)
    rows, against = without_denied_ports(rows, taken, reports, as_reported, names, previous)
    if not rows and not view.cables:
        return None
    compute = compute_ports(rows, inputs, options)
    others = {far.end.chassis: row.neighbour.system_name for row, far in fars if far.kind == OTHER}
    part = _part(rows, view.cables, {**others, **names})
    part.mute = np.array([name not in reports.own and name not in inputs.lldp for name in part.ids], np.bool_)
    part.anomalies += [
        *refused,
        *too_many_neighbours(many, inputs),
        *clashes,
        *twice,
        *against,
        *odd,
        *view.anomalies,
    ]
    part.anomalies += [
        _unknown(row, names)
        for row, computes in zip(rows, compute.ports, strict=True)
        if computes and row.kind == UNCLAIMED
    ]
    between = compute_between(rows, compute.ports, view.cables, compute.usual_mbps)
    # A port that does not compute still counts as a used port of its leaf.
    leaves = {row.chassis for row, computes in zip(rows, compute.ports, strict=True) if computes}
    ports = [
        computes or (row.kind == OTHER and row.shapes and row.chassis in leaves)
        for row, computes in zip(rows, compute.ports, strict=True)
    ]
    return EthernetPart(part, ports + between, compute.near)


def _taken(between: Iterable[SwitchCable], reports: SwitchReports) -> set[End]:
    """Return the ports in cables between two switches of which neither is stale."""
    current = (x for x in between if x.shapes and reports.silent.isdisjoint((x.a.chassis, x.b.chassis)))
    return {end for x in current for end in (x.a, x.b)}


def _with_many_cables(rows: Sequence[Row]) -> set[str]:
    """Return chassis ids that switches hear on more ports than a DPU has."""
    ports = Counter(row.neighbour.chassis_id for row in rows)
    return {chassis for chassis, count in ports.items() if count > MAX_PORTS}


def _without_foreign_names(
    fars: list[tuple[Row, Far]], by_hosts: _HostReports, inputs: FabricInputs, options: InferOptions
) -> list[tuple[Row, Far]]:
    """Return the rows; devices that are foreign by name and wiring are of kind OTHER."""
    named = {far.end.chassis for _, far in fars if far.kind == NAMED}
    named -= reporting_nodes(inputs, options)
    if not any_foreign(named):
        return fars
    cables = {(far.end.chassis, row.near) for row, far in fars if far.kind in (NAMED, HOST)}
    cables |= {(cable.host, End(cable.chassis, cable.port)) for cable in by_hosts.rows}
    between = {(row.near.chassis, far.end.chassis) for row, far in fars if far.kind == SWITCH}
    foreign = foreign_by_name(sorted((host, end.chassis) for host, end in cables), between, named)

    def as_other(row: Row, far: Far) -> Far:
        return Far(OTHER, End(row.neighbour.chassis_id, row.neighbour.port_id), far.note)

    return [
        (row, as_other(row, far) if far.kind == NAMED and far.end.chassis in foreign else far)
        for row, far in fars
    ]


def _host_reports(inputs: FabricInputs, reports: SwitchReports, dpus: Dpus) -> _HostReports:
    by_hosts = _HostReports()
    sources = (LLDP,)
    for node in sorted(inputs.lldp):
        is_current = node not in inputs.silent
        for port in inputs.lldp[node]:
            if reports.rows:
                jack = Jack(node, port.interface)
                carrier, speed_mbps = by_hosts.states.get(jack, (False, 0))
                by_hosts.states[jack] = carrier or port.carrier, max(speed_mbps, port.speed_mbps)
            if not port.carrier or (neighbour := _switch_on(port, reports.own, dpus)) is None:
                continue
            end = reports.end(neighbour.chassis_id, neighbour.port_id)
            cable = HostCable(node, port.interface, end.chassis, end.port, port.speed_mbps, sources)
            by_hosts.rows[cable] = None
            vote = Vote(is_current, neighbour.system_name, port.interface)
            add_vote(by_hosts.names, end.chassis, node, vote)
            if reports.rows:
                by_hosts.cables[jack] = min(by_hosts.cables.get(jack, cable), cable)
                by_hosts.claims.setdefault(end, []).append(jack)
    return by_hosts


def _switch_on(port: LldpPort, own: Collection[str], dpus: Dpus) -> LldpNeighbour | None:
    """Return the switch at the other end, or None for a station, the host's own DPU or no neighbour. Of
    several neighbours (a NIC's own LLDP agent also announces itself) the one that switches comes first."""
    found: Sequence[LldpNeighbour] = port.neighbours
    if dpus:
        found = [n for n in found if n.chassis_id not in dpus]
    if len(found) > 1:
        found = sorted(found, key=lambda n: (not is_switch(n, own), n.chassis_id, n.port_id))
    if not found or ("Station" in found[0].capabilities and not is_switch(found[0], own)):
        return None
    return found[0]


def _names(
    by_hosts: _HostReports,
    reports: SwitchReports,
    fars: Sequence[tuple[Row, Far]],
    earlier: Mapping[str, str],
) -> tuple[dict[str, str], list[Anomaly]]:
    """Return switch names by chassis id: the own name, else that which most neighbours hear. `earlier`: the
    published names."""
    for row, far in fars:
        if far.kind == SWITCH and not reports.names.get(far.end.chassis):  # its own name would count
            vote = Vote(not row.silent, row.neighbour.system_name, row.near.port)
            add_vote(by_hosts.names, far.end.chassis, row.near.chassis, vote)
    sources = frozenset({LLDP} if by_hosts.rows else ()).union(*{row.sources for row in reports.rows})
    names, outvoted = heard_names(by_hosts.names, reports.names, earlier, sources)
    distinct, clashes = distinct_names(names, reports.silent, sources, earlier)
    return distinct, [*outvoted, *clashes]


def _view(
    fars: Sequence[tuple[Row, Far]],
    reports: SwitchReports,
    by_hosts: _HostReports,
    inputs: FabricInputs,
    names: Mapping[str, str],
) -> SwitchView:
    current = {
        end: mine
        for end, jacks in by_hosts.claims.items()
        if (mine := [jack for jack in jacks if jack.host not in inputs.silent])
    }
    return switch_view(fars, reports, current, names)


def _with_plugs(
    by_hosts: _HostReports,
    plugs: Sequence[Plug],
    reports: SwitchReports,
    silent_hosts: Collection[str],
    names: Mapping[str, str],
) -> tuple[list[HostCable], list[Anomaly]]:
    """Return the cables that hosts report, with the switches that confirm them, and the cables that only a
    switch reports; sorted."""
    confirmed: dict[HostCable, HostCable] = {}
    sure: set[HostCable] = set()  # that their switch confirms now
    more: dict[tuple[str, str], HostCable] = {}
    rest: set[HostCable] = set()
    odd: list[Plug] = []
    anomalies: list[tuple[str, Anomaly]] = []  # with the switch that reports
    for plug in plugs:
        jack = plug.device, plug.port
        own = by_hosts.cables.get(jack) if plug.kind == HOST else None
        if own is not None and _is_same(own, plug.end, reports):
            known = confirmed.get(own, own)
            if not plug.silent:
                sure.add(own)
            sources = tuple(sorted({*known.sources, *plug.sources}))
            note = plug.note
            if own.port != plug.end.port:
                note = "; ".join(
                    filter(None, (note, f"{say(host_end(own))} reports this port as {own.port}"))
                )
            confirmed[own] = known._replace(
                port=plug.end.port,
                speed_mbps=known.speed_mbps or plug.speed_mbps,
                sources=sources,
                note=note,
            )
        elif plug.kind == HOST and jack in by_hosts.states:
            odd.append(plug)
        else:
            rest.add(_cable(plug, plug.speed_mbps))
    # Plugs that only stale reporters report come after the others.
    for plug in sorted(odd, key=lambda x: (not x.shapes, x.silent, x.end, x.device, x.port)):
        jack = plug.device, plug.port
        carrier, speed_mbps = by_hosts.states[jack]
        cable = _cable(plug, speed_mbps or plug.speed_mbps)
        rival = by_hosts.cables.get(jack) or more.get(jack)
        if rival is None and (carrier or plug.device in silent_hosts):
            more[jack] = cable
        elif rival is not None and not plug.silent:
            switch, host = plug.end.named(names), host_end(cable)
            text = f"{say(switch)} reports {say(host)}, which is on another cable"
            note = "; ".join(filter(None, (plug.note, f"{say(host)} is on another cable")))
            rest.add(cable._replace(note=note, shapes=False))
            sources = tuple(sorted({LLDP, *plug.sources}))
            # Where another switch confirms the host's own cable, it is this switch that does not count.
            own = by_hosts.cables.get(jack)
            ends = (switch, host) if own in sure and own.chassis != plug.end.chassis else (host, switch)
            anomalies.append((plug.end.chassis, Anomaly("SourcesDisagree", *ends, None, sources, 0.7, text)))
    rows = [confirmed.get(row, row) for row in by_hosts.rows] if confirmed else by_hosts.rows
    few = few_findings(
        anomalies,
        itemgetter(0),
        itemgetter(1),
        "that this switch reports lead to hosts that are on other cables",
    )
    return sorted(dict.fromkeys((*rows, *more.values(), *rest))), few


def _is_same(own: HostCable, end: End, reports: SwitchReports) -> bool:
    """Return whether the host's cable ends in this port: the host reports this port's name, or a name that
    the switch does not have."""
    if own.chassis != end.chassis:
        return False
    return own.port == end.port or (own.chassis, own.port) not in reports.ports


def _cable(plug: Plug, speed_mbps: int) -> HostCable:
    """Return the cable of a plug. A switch that reports its own chassis id does not shape the hierarchy."""
    own = plug.device == plug.end.chassis
    note = "; ".join(filter(None, (plug.note, "the switch reports itself as neighbour" if own else "")))
    shapes = plug.shapes and not own
    return HostCable(plug.device, plug.port, *plug.end, speed_mbps, plug.sources, note, shapes, plug.kind)


def _unknown(row: HostCable, names: Mapping[str, str]) -> Anomaly:
    switch = End(row.chassis, row.port).named(names)
    text = (
        f"{row.host} in {say(switch)} is claimed by no agent and announces no name: run an agent on its host"
    )
    return Anomaly("UnknownHost", Endpoint(row.host, row.host), switch, None, row.sources, 0.9, text)


def _part(rows: Sequence[HostCable], between: Sequence[SwitchCable], names: Mapping[str, str]) -> Part:
    kinds: dict[str, int] = {}
    for row in rows:
        if row.kind > kinds.get(row.host, OTHER - 1):
            kinds[row.host] = row.kind
    nodes = sorted(kinds)
    interface, chassis = [row.interface for row in rows], [row.chassis for row in rows]
    port, sources = [row.port for row in rows], [row.sources for row in rows]
    ends = {end.chassis for cable in between for end in (cable.a, cable.b)}
    switches = sorted(ends.union(chassis))
    at_host = {name: i for i, name in enumerate(nodes)}
    at_switch = {name: len(nodes) + i for i, name in enumerate(switches)}
    # In their natural order, so that audits see the ports of a switch in order.
    texts = sorted(
        {*interface, *port, *(end.port for cable in between for end in (cable.a, cable.b))}, key=natural_key
    )
    text_at = {text: PORT_TEXTS + i for i, text in enumerate(texts)}
    source_sets = sorted({*sources, *(cable.sources for cable in between)})
    source_at = {seen_by: i for i, seen_by in enumerate(source_sets)}
    none = [False] * len(switches)
    total = len(nodes) + len(switches)

    def column(of_hosts: Iterable[int], of_switches: Iterable[int]) -> Ints:
        return np.array([*of_hosts, *of_switches], np.int32)

    speeds = [*(row.speed_mbps for row in rows), *(cable.speed_mbps for cable in between)]
    said = chain(((x.note, x.shapes) for x in rows), ((x.note, x.shapes) for x in between))
    return Part(
        [*nodes, *switches],
        [
            *(node if kinds[node] != OTHER else names.get(node) or node for node in nodes),
            *(names.get(s) or s for s in switches),
        ],
        np.arange(total) >= len(nodes),
        [*(node if kinds[node] != OTHER else None for node in nodes), *([None] * len(switches))],
        [""] * total,
        np.array([kinds[node] == UNCLAIMED for node in nodes] + none, np.bool_),
        np.zeros(total, np.bool_),
        column([at_host[row.host] for row in rows], [at_switch[c.a.chassis] for c in between]),
        column(map(text_at.__getitem__, interface), [text_at[c.a.port] for c in between]),
        column(map(at_switch.__getitem__, chassis), [at_switch[c.b.chassis] for c in between]),
        column(map(text_at.__getitem__, port), [text_at[c.b.port] for c in between]),
        np.array([mbps / 1000 for mbps in speeds], np.float32),
        np.zeros(len(speeds), np.uint8),
        np.zeros(len(speeds), np.int32),
        ["ethernet"],
        column(map(source_at.__getitem__, sources), [source_at[c.sources] for c in between]),
        source_sets,
        texts,
        notes={i: note if shapes else DENIED + note for i, (note, shapes) in enumerate(said) if note},
    )
