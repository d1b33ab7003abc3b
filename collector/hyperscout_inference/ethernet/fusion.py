"""Fuse what hosts and switches report over LLDP into one Ethernet part: cables from port to port.

A host's own report decides where its cable leads. Switch reports are a second source. They also show hosts
without an agent and the cables between switches.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from operator import itemgetter
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from hyperscout_formats.text.host_list import natural_key
from hyperscout_topology.link_changes import DENIED
from hyperscout_topology.memo import memoized
from hyperscout_topology.topology import Anomaly, Endpoint, Switch, Topology, say

from hyperscout_inference.ethernet.by_name import with_identities
from hyperscout_inference.ethernet.compute import compute_between, compute_ports
from hyperscout_inference.ethernet.dpus import MAX_PORTS, dpus_of
from hyperscout_inference.ethernet.few_neighbours import too_many_neighbours, with_few_neighbours
from hyperscout_inference.ethernet.host_cables import HostCable, HostCables
from hyperscout_inference.ethernet.host_claims import (
    confirmed_names,
    host_end,
    with_claims_noted,
    without_denied_ports,
)
from hyperscout_inference.ethernet.host_reports import LLDP, HostReports, dpus_in, host_reports, reports_of
from hyperscout_inference.ethernet.neighbours import (
    HOST,
    NAMED,
    OTHER,
    SWITCH,
    UNCLAIMED,
    Far,
    Neighbours,
)
from hyperscout_inference.ethernet.switch_cables import Plug, SwitchCable, SwitchView, switch_view
from hyperscout_inference.ethernet.switch_identities import with_own_ports
from hyperscout_inference.ethernet.switch_names import names_of_switches
from hyperscout_inference.ethernet.switch_reports import End, Row, SwitchReports, switch_reports
from hyperscout_inference.ethernet.virtual_machines import without_virtual_machines
from hyperscout_inference.fabric.few_findings import few_findings
from hyperscout_inference.fabric.foreign import any_foreign, foreign_by_name, reporting_nodes
from hyperscout_inference.fabric.inputs import FabricInputs, InferOptions
from hyperscout_inference.fabric.network import PORT_TEXTS, Ints
from hyperscout_inference.fabric.part import Mask, Part


class EthernetPart(NamedTuple):
    """`compute`: for each cable whether it belongs to the compute fabric if there is no InfiniBand.
    `near`: the hosts whose NICs nearest to GPUs are on Ethernet."""

    part: Part
    compute: Mask
    near: frozenset[str]


def ethernet(
    inputs: FabricInputs, options: InferOptions, previous: Topology | None = None
) -> EthernetPart | None:
    """Return all cables that LLDP shows, or None if there are none."""
    earlier = _names_of(previous.switches if previous is not None else ())
    inputs, many = with_few_neighbours(inputs)
    inputs, refused = with_own_ports(inputs, earlier)
    inputs = replace(inputs, tables=with_identities(inputs))
    reports = switch_reports(inputs)
    of_nodes = reports_of(inputs.lldp)
    dpus = dpus_of(dpus_in(of_nodes), reports.own | _with_many_cables(reports.rows))
    by_hosts = host_reports(of_nodes, inputs, reports, dpus)
    fars: list[tuple[Row, Far]] = []
    if reports.rows:
        neighbours = Neighbours(inputs, options, reports, by_hosts.claims, by_hosts.switches, dpus)
        fars = without_virtual_machines([(row, neighbours.far(row)) for row in reports.rows])
        fars = _without_foreign_names(fars, by_hosts, inputs, options)
    names, clashes = names_of_switches(by_hosts.cables, reports, fars, inputs.silent, earlier)
    view = _view(fars, reports, by_hosts, inputs, names)
    rows, odd = _with_plugs(by_hosts, view.plugs, reports, inputs.silent, names)
    cables = by_hosts.cables.with_rows(rows)
    rows, twice = with_claims_noted(cables, names, previous)
    as_reported = partial(confirmed_names, by_hosts.cables.rows, fars, reports.ports.keys(), inputs.silent)
    taken = _taken(view.cables, reports)
    rows, against = without_denied_ports(rows, taken, reports, as_reported, names, previous)
    if not rows and not view.cables:
        return None
    cables = cables.with_rows(rows)
    compute = compute_ports(cables, inputs, options)
    others = {far.end.chassis: row.neighbour.system_name for row, far in fars if far.kind == OTHER}
    part = _part(cables, view.cables, {**others, **names})
    part.mute = _mute(part.ids, reports.own, list(inputs.lldp))
    part.anomalies += [
        *refused,
        *too_many_neighbours(many, inputs),
        *clashes,
        *twice,
        *against,
        *odd,
        *view.anomalies,
    ]
    unclaimed = np.flatnonzero(compute.ports & (cables.kind == UNCLAIMED))
    part.anomalies += [_unknown(rows[i], names) for i in unclaimed.tolist()]
    between = compute_between(cables, compute.ports, view.cables, compute.usual_mbps)
    # A port that does not compute still counts as a used port of its leaf.
    leaves = cables.chassis.has(compute.ports)
    ports = compute.ports | (cables.shapes & (cables.kind == OTHER) & leaves[cables.chassis.at])
    return EthernetPart(part, np.concatenate([ports, np.array(between, np.bool_)]), compute.near)


@memoized
def _names_of(switches: Sequence[Switch]) -> dict[str, str]:
    return {switch.id: switch.name for switch in switches}


@memoized
def _mute(ids: Sequence[str], *reporting: Collection[str]) -> Mask:
    known = frozenset().union(*reporting)
    return np.array([name not in known for name in ids], np.bool_)


def _taken(between: Iterable[SwitchCable], reports: SwitchReports) -> set[End]:
    """Return the ports in cables between two switches of which neither is stale."""
    current = (x for x in between if x.shapes and reports.silent.isdisjoint((x.a.chassis, x.b.chassis)))
    return {end for x in current for end in (x.a, x.b)}


def _with_many_cables(rows: Sequence[Row]) -> set[str]:
    """Return chassis ids that switches hear on more ports than a DPU has."""
    ports = Counter(row.neighbour.chassis_id for row in rows)
    return {chassis for chassis, count in ports.items() if count > MAX_PORTS}


def _without_foreign_names(
    fars: list[tuple[Row, Far]], by_hosts: HostReports, inputs: FabricInputs, options: InferOptions
) -> list[tuple[Row, Far]]:
    """Return the rows; devices that are foreign by name and wiring are of kind OTHER."""
    named = {far.end.chassis for _, far in fars if far.kind == NAMED}
    named -= reporting_nodes(inputs, options)
    if not any_foreign(named):
        return fars
    cables = {(far.end.chassis, row.near) for row, far in fars if far.kind in (NAMED, HOST)}
    cables |= {(cable.host, End(cable.chassis, cable.port)) for cable in by_hosts.cables.rows}
    between = {(row.near.chassis, far.end.chassis) for row, far in fars if far.kind == SWITCH}
    foreign = foreign_by_name(sorted((host, end.chassis) for host, end in cables), between, named)

    def as_other(row: Row, far: Far) -> Far:
        return Far(OTHER, End(row.neighbour.chassis_id, row.neighbour.port_id), far.note)

    return [
        (row, as_other(row, far) if far.kind == NAMED and far.end.chassis in foreign else far)
        for row, far in fars
    ]


def _view(
    fars: Sequence[tuple[Row, Far]],
    reports: SwitchReports,
    by_hosts: HostReports,
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
    by_hosts: HostReports,
    plugs: Sequence[Plug],
    reports: SwitchReports,
    silent_hosts: Collection[str],
    names: Mapping[str, str],
) -> tuple[Sequence[HostCable], list[Anomaly]]:
    """Return the cables that hosts report, with the switches that confirm them, and the cables that only a
    switch reports; sorted."""
    if not plugs:
        return by_hosts.cables.rows, []
    confirmed: dict[HostCable, HostCable] = {}
    sure: set[HostCable] = set()  # that their switch confirms now
    more: dict[tuple[str, str], HostCable] = {}
    rest: set[HostCable] = set()
    odd: list[Plug] = []
    anomalies: list[tuple[str, Anomaly]] = []  # with the switch that reports
    for plug in plugs:
        jack = plug.device, plug.port
        own = by_hosts.of_jacks.get(jack) if plug.kind == HOST else None
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
        rival = by_hosts.of_jacks.get(jack) or more.get(jack)
        if rival is None and (carrier or plug.device in silent_hosts):
            more[jack] = cable
        elif rival is not None and not plug.silent:
            switch, host = plug.end.named(names), host_end(cable)
            text = f"{say(switch)} reports {say(host)}, which is on another cable"
            note = "; ".join(filter(None, (plug.note, f"{say(host)} is on another cable")))
            rest.add(cable._replace(note=note, shapes=False))
            sources = tuple(sorted({LLDP, *plug.sources}))
            # Where another switch confirms the host's own cable, it is this switch that does not count.
            own = by_hosts.of_jacks.get(jack)
            ends = (switch, host) if own in sure and own.chassis != plug.end.chassis else (host, switch)
            anomalies.append((plug.end.chassis, Anomaly("SourcesDisagree", *ends, None, sources, 0.7, text)))
    rows = [confirmed.get(row, row) for row in by_hosts.cables.rows]
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


def _part(cables: HostCables, between: Sequence[SwitchCable], names: Mapping[str, str]) -> Part:
    nodes = cables.host.values
    kinds = np.zeros(len(nodes), np.int8)
    np.maximum.at(kinds, cables.host.at, cables.kind)
    ends = [end for cable in between for end in (cable.a, cable.b)]
    switches = cables.chassis.with_values({end.chassis for end in ends})
    # In their natural order, so that audits see the ports of a switch in order.
    texts = cables.texts.with_values({end.port for end in ends}, natural_key)
    source_sets = cables.sources.with_values({cable.sources for cable in between})
    first, total = len(nodes), len(nodes) + len(switches.values)  # of the switches, and of all devices

    def column(of_hosts: Ints, of_switches: Iterable[int]) -> Ints:
        return np.concatenate([of_hosts, np.fromiter(of_switches, np.int32)])

    rows = len(cables.rows)
    more_mbps = np.array([cable.speed_mbps for cable in between], np.float64)
    speeds = np.concatenate([cables.speed_mbps, more_mbps])
    said: Iterable[tuple[int, HostCable | SwitchCable]]  # by cable
    said = chain(
        ((i, cables.rows[i]) for i in np.flatnonzero(cables.noted).tolist()), enumerate(between, rows)
    )
    ids, shown, hosts, labels = _devices(nodes, switches.values, names, kinds)
    return Part(
        ids,
        shown,
        np.arange(total) >= len(nodes),
        hosts,
        labels,
        np.concatenate([kinds == UNCLAIMED, np.zeros(len(switches.values), np.bool_)]),
        np.zeros(total, np.bool_),
        column(cables.host.at, (first + switches.places[c.a.chassis] for c in between)),
        column(
            texts.at[:rows] + np.int32(PORT_TEXTS), (PORT_TEXTS + texts.places[c.a.port] for c in between)
        ),
        column(switches.at + np.int32(first), (first + switches.places[c.b.chassis] for c in between)),
        column(
            texts.at[rows:] + np.int32(PORT_TEXTS), (PORT_TEXTS + texts.places[c.b.port] for c in between)
        ),
        (speeds / 1000).astype(np.float32),
        np.zeros(len(speeds), np.uint8),
        np.zeros(len(speeds), np.int32),
        ["ethernet"],
        column(source_sets.at, (source_sets.places[c.sources] for c in between)),
        list(source_sets.values),
        list(texts.values),
        notes={i: x.note if x.shapes else DENIED + x.note for i, x in said if x.note},
    )


@memoized
def _devices(
    nodes: Sequence[str], switches: Sequence[str], names: Mapping[str, str], kinds: npt.NDArray[np.int8]
) -> tuple[list[str], list[str], list[str | None], list[str]]:
    """Return the ids, names, hosts and labels of all devices: the nodes, then the switches. `names`: by id.
    `kinds`: of nodes."""
    shown = [*nodes, *(names.get(switch) or switch for switch in switches)]
    hosts = [*nodes, *[None] * len(switches)]
    for i in np.flatnonzero(kinds == OTHER).tolist():
        shown[i], hosts[i] = names.get(nodes[i]) or nodes[i], None
    return [*nodes, *switches], shown, hosts, [""] * len(hosts)
