"""Join all reports about switch ports, port by port: from switch agents, other readers and managers.

A switch port is identified by the chassis id and port id that the switch announces. A switch agent's report
counts as current. A table is as old as its reading. Of two reports of one port, the newer one decides where
the cable leads. The older one's neighbours count where the newer one reports none.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from hyperscout_formats.facts.facts import LldpNeighbour, SwitchPort
from hyperscout_formats.text.reporters import is_switch
from hyperscout_topology.topology import Anomaly, Endpoint

from hyperscout_inference.ethernet.reported_ids import Report, reported_ids
from hyperscout_inference.fabric.inputs import FabricInputs

SOURCE = "switch"
_ALWAYS_NOW_NS = 2**63 - 1
_FILE_NS = 0  # a reading without a timestamp: a file of unknown age
_MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")


class End(NamedTuple):
    """A switch port: chassis id and port id."""

    chassis: str
    port: str

    def named(self, names: Mapping[str, str]) -> Endpoint:
        """Return it as an endpoint. `names`: names of switches by chassis id."""
        return Endpoint(self.chassis, names.get(self.chassis) or self.chassis, self.port)


@dataclass(slots=True)
class Row:
    """A neighbour of a switch port. `silent`: all reporters of it are stale. `past`: it comes from a file
    that reports the port as down. The newest reporter decides about everything but the sources."""

    near: End
    neighbour: LldpNeighbour
    sources: frozenset[str]
    silent: bool
    doubt: str = ""
    past: bool = False


class Port(NamedTuple):
    """A switch port as its newest reporter describes it. `live`: the report is not from a file. `by_agent`:
    it is from the switch's own agent."""

    end: End
    entry: SwitchPort
    silent: bool
    live: bool
    by_agent: bool


@dataclass(frozen=True, slots=True)
class SwitchReports:
    """`own`: chassis ids of switches that are reported as a whole; `silent`: those of them that only stale
    reporters describe; `agents`: those of them that report themselves, and no other switch does under the
    same id. `names`: the switches' own names, by chassis id. `known_as`: the chassis ids that neighbours
    report, by the ids that the tables have instead.
    """

    ports: Mapping[tuple[str, str], Port] = field(default_factory=dict)  # by `End`
    rows: Sequence[Row] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    own: frozenset[str] = frozenset()
    silent: frozenset[str] = frozenset()
    agents: frozenset[str] = frozenset()
    known_as: Mapping[str, str] = field(default_factory=dict)
    anomalies: Sequence[Anomaly] = ()
    _aliases: dict[str, dict[str, str]] = field(default_factory=dict)  # by chassis id, filled on first use

    def chassis(self, chassis_id: str) -> str:
        """Return the switch's id for a chassis id that a neighbour reports."""
        return self.known_as.get(chassis_id, chassis_id)

    def end(self, chassis_id: str, port_id: str) -> End:
        """Return the port that a neighbour reports, under the switch's own name for it."""
        if not (self.ports or self.known_as or self.own):  # no switch reports
            return End(chassis_id, port_id)
        chassis = self.known_as.get(chassis_id, chassis_id)
        if (known := self.ports.get((chassis, port_id))) is not None:
            return known.end
        if chassis in self.own:
            if not self._aliases:
                self._aliases.update(_aliases(self.ports))
            port_id = self._aliases.get(chassis, {}).get(port_id.lower(), port_id)
        return End(chassis, port_id)


def switch_reports(inputs: FabricInputs) -> SwitchReports:
    """Return all reports, joined. The order of the evidence does not matter."""
    if not (inputs.switch_ports or inputs.tables):
        return SwitchReports()
    reports = _reports(inputs)
    known_as = reported_ids([r for r in reports if r.source != SOURCE], inputs)
    reports = [r._replace(chassis=known_as.get(r.chassis, r.chassis)) for r in reports]
    reporters: dict[
        str, list[tuple[str, str]]
    ] = {}  # by chassis id: current reporters and the names they use
    sources: dict[str, set[str]] = {}
    names: dict[str, str] = {}
    by_chassis: dict[str, dict[str, list[tuple[Report, SwitchPort]]]] = {}  # and by port
    by_end: list[tuple[End, list[tuple[Report, SwitchPort]]]] = []
    for report in _in_order(reports):
        mine = reporters.setdefault(report.chassis, [])
        name = next((entry.system_name for entry in report.ports if entry.system_name), "")
        names[report.chassis] = name or names.get(report.chassis, "")
        if not report.silent:
            mine.append((report.reporter, name))
            sources.setdefault(report.chassis, set()).add(report.source)
        by_port = by_chassis.setdefault(report.chassis, {})
        for port, entry in _named_ports(report):
            if (of_port := by_port.get(port)) is None:
                of_port = by_port[port] = []
                by_end.append((End(report.chassis, port), of_port))
            of_port.append((report, entry))
    ports: dict[tuple[str, str], Port] = {}
    rows: list[Row] = []
    source_sets = {report.source: frozenset((report.source,)) for report in reports}
    for end, of_port in by_end:
        newest, entry = of_port[-1]
        live = newest.at_ns != _FILE_NS
        ports[end] = Port(end, entry, newest.silent, live, newest.source == SOURCE)
        if entry.neighbours or len(of_port) > 1:
            rows += _rows(end, of_port, source_sets)
    silent = frozenset(chassis for chassis, current in reporters.items() if not current)
    anomalies = _clones(reporters, sources, names)
    own = frozenset(reporters)
    agents = {r.chassis for r in reports if r.source == SOURCE and not r.silent}
    agents -= {x.subject.device for x in anomalies}
    return SwitchReports(ports, rows, names, own, silent, frozenset(agents), known_as, anomalies)


def _reports(inputs: FabricInputs) -> list[Report]:
    found: list[Report] = []
    for reporter, ports in inputs.switch_ports.items():
        by_chassis: dict[str, list[SwitchPort]] = {}
        for entry in ports:
            by_chassis.setdefault(entry.chassis_id, []).append(entry)
        silent = reporter in inputs.silent
        found += [
            Report(chassis, mine, SOURCE, reporter, silent, _ALWAYS_NOW_NS)
            for chassis, mine in by_chassis.items()
        ]
    for seen in inputs.tables:
        table = seen.table
        if not table.ports:
            continue
        reporter = f"{seen.source} at {table.addresses[0]}" if table.addresses else seen.source
        chassis = table.ports[0].chassis_id
        at_ns = seen.observed_at_ns
        found.append(Report(chassis, table.ports, seen.source, reporter, seen.silent, at_ns, table.addresses))
    return found


def _in_order(reports: list[Report]) -> list[Report]:
    """Sort reports: stale ones first, then by age with the newest last. Reports that differ only in their
    ports (one switch in two files) are sorted by these."""

    def key(report: Report) -> tuple[bool, int, str, str, str]:
        return (not report.silent, report.at_ns, report.source, report.reporter, report.chassis)

    tied = Counter(map(key, reports))
    return sorted(reports, key=lambda r: (key(r), repr(r.ports) if tied[key(r)] > 1 else ""))


def _named_ports(report: Report) -> Iterable[tuple[str, SwitchPort]]:
    """Yield ports with a distinct id: the port id, or the interface where several ports share a port id."""
    ids = [entry.port_id for entry in report.ports]
    if "" not in ids and len(set(ids)) == len(ids):
        yield from zip(ids, report.ports, strict=True)
        return
    twice = Counter(ids)
    taken: set[str] = set()
    for entry in report.ports:
        port = entry.port_id
        if report.source != SOURCE and (not port or twice[port] > 1) and entry.interface:
            port = entry.interface
        if report.source != SOURCE and port in taken:
            port = f"{port} #{len(taken) + 1}"
        if port:
            taken.add(port)
            yield port, entry


def _rows(
    end: End, reports: Sequence[tuple[Report, SwitchPort]], source_sets: Mapping[str, frozenset[str]]
) -> Iterable[Row]:
    """Return the neighbours of a port, each once. `reports`: the newest last. `source_sets`: a set for each
    source."""
    newest, best = reports[-1]
    rows: dict[tuple[str, str], Row] = {}
    for report, entry in reversed(reports):
        live = report.at_ns != _FILE_NS
        if live and not entry.carrier:
            continue
        older = (report.silent, -report.at_ns) > (newest.silent, -newest.at_ns)
        settled = older and (bool(best.neighbours) or not best.carrier)
        by = source_sets[report.source]
        for neighbour in entry.neighbours:
            key = neighbour.chassis_id, neighbour.port_id
            if (known := rows.get(key)) is not None:
                known.sources |= by
            elif not settled:
                past = not (live or entry.carrier)
                rows[key] = Row(end, neighbour, by, report.silent, entry.doubt, past)
    return rows.values()


def _clones(
    reporters: Mapping[str, Sequence[tuple[str, str]]],
    sources: Mapping[str, set[str]],
    names: Mapping[str, str],
) -> list[Anomaly]:
    """Return one finding per chassis id of several switches: several agents, or tables under several
    names."""
    found = []
    for chassis, current in sorted(reporters.items()):
        clones = sorted({reporter for reporter, _ in current if is_switch(reporter)})
        if len(clones) < 2:
            clones = sorted({name for _, name in current if name})
            if len({name.partition(".")[0].lower() for name in clones}) < 2:
                continue
        text = (
            f"{', '.join(clones)} announce one chassis id, {chassis}: their cables cannot be distinguished; "
            "give each switch its own id"
        )
        subject = Endpoint(chassis, names.get(chassis) or chassis)
        found.append(
            Anomaly("SourcesDisagree", subject, None, None, tuple(sorted(sources[chassis])), 0.9, text)
        )
    return found


def _aliases(ports: Mapping[tuple[str, str], Port]) -> dict[str, dict[str, str]]:
    """Return ports by chassis id and other name (interface, description, address), in lower case. A name that
    two ports share is left out."""
    found: dict[str, dict[str, str]] = {}
    for (chassis, port), known in ports.items():
        entry = known.entry
        mine = found.setdefault(chassis, {})
        for text in {entry.interface, entry.port_id, entry.port_description, entry.mac} - {""}:
            other = mine.setdefault(text.lower(), port)
            if other != port:
                mine[text.lower()] = ""
    return {c: {text: port for text, port in mine.items() if port} for c, mine in found.items()}


def is_mac(text: str) -> bool:
    return _MAC.fullmatch(text) is not None
