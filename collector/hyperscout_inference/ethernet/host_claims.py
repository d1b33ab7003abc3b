"""Find the cables that hosts report and that other hosts, or the switch at the other end, contradict."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import numpy as np
from hyperscout_topology.link_changes import links_at
from hyperscout_topology.topology import Anomaly, Endpoint, Topology, say

from hyperscout_inference.ethernet.host_cables import HostCable, HostCables
from hyperscout_inference.ethernet.host_reports import LLDP
from hyperscout_inference.ethernet.neighbours import SWITCH, Far
from hyperscout_inference.ethernet.switch_reports import End, Row, SwitchReports
from hyperscout_inference.fabric.few_findings import few_findings

_MAX_FINDINGS = 4  # for one switch port that several host ports report


def with_claims_noted(
    cables: HostCables, names: Mapping[str, str], previous: Topology | None
) -> tuple[Sequence[HostCable], list[Anomaly]]:
    """Note each switch port that several host ports report: a conflict, a hub or a cloned chassis id.

    A cable that was published without a note gets none: the other reports contradict it.
    """
    by_hosts = np.array([LLDP in sources for sources in cables.sources.values], np.bool_)
    reported = np.flatnonzero(by_hosts[cables.sources.at])
    ends = cables.ends[reported]
    ordered = np.sort(ends)
    if not (several := ordered[1:][ordered[1:] == ordered[:-1]]).size:
        return cables.rows, []
    rows = list(cables.rows)
    on: dict[tuple[str, str], list[int]] = {}
    for i in reported[np.isin(ends, several)].tolist():
        on.setdefault((rows[i].chassis, rows[i].port), []).append(i)
    anomalies = []
    published = _published_ends(previous, {chassis for chassis, _ in on})
    for end, mine in on.items():
        known = [i for i in mine if (rows[i].host, rows[i].interface, *end) in published]
        switch = End(*end).named(names)
        more = len(mine) - 1
        others = "another host's port reports" if more == 1 else f"{more} other hosts' ports report"
        for n, i in enumerate(i for i in mine if known != [i]):
            row = rows[i]
            rows[i] = row._replace(note="; ".join(filter(None, (row.note, f"{others} {say(switch)}, too"))))
            if n < _MAX_FINDINGS:
                text = f"{say(host_end(row))} reports {say(switch)}; {others} it, too"
                anomalies.append(Anomaly("SourcesDisagree", host_end(row), switch, None, (LLDP,), 0.7, text))
    return rows, anomalies


def without_denied_ports(
    rows: Sequence[HostCable],
    taken: Collection[End],
    reports: SwitchReports,
    announces_as_reported: Callable[[Collection[str]], Collection[str]],
    names: Mapping[str, str],
    previous: Topology | None,
) -> tuple[Sequence[HostCable], list[Anomaly]]:
    """Return the cables; those that their switch denies do not shape.

    `taken`: ports that are in a cable between two switches. A switch's agent also denies a cable that was not
    published to a port that is down, or that it does not report. The latter only if `announces_as_reported`
    returns the switch: it announces its ports under the names that it reports. A stale switch denies nothing:
    a host knows better.
    """
    if not (taken or reports.ports or reports.agents):  # no switch reports
        return rows, []
    found: dict[HostCable, str] = {}
    unknown: list[HostCable] = []
    for row in rows:
        if LLDP not in row.sources or row.chassis in reports.silent:
            continue
        end = End(row.chassis, row.port)
        port = reports.ports.get(end)
        if end in taken:
            found[row] = "is in a cable between switches"
        elif port is None:
            unknown.append(row)
        elif port.by_agent and not (port.entry.carrier or port.silent):
            found[row] = "is down, as its switch reports"
    if asked := reports.agents.intersection(row.chassis for row in unknown):
        sure = announces_as_reported(asked)
        found |= {row: "is no port that its switch reports" for row in unknown if row.chassis in sure}
    if not found:
        return rows, []
    # A host that has lost its power cannot report that its cable is down.
    published = _published_ends(previous, {row.chassis for row in found})
    denied: dict[HostCable, HostCable] = {}
    anomalies = []
    for row, why in found.items():
        switch = End(row.chassis, row.port)
        if (row.host, row.interface, *switch) in published and switch not in taken:
            continue
        text = say(switch.named(names))
        denied[row] = row._replace(note="; ".join(filter(None, (row.note, f"{text} {why}"))), shapes=False)
        message = f"{say(host_end(row))} reports {text}, which {why}"
        anomalies.append(Anomaly("SourcesDisagree", host_end(row), None, None, (LLDP,), 0.7, message))
    text = "that this host reports are denied by their switches"
    few = few_findings(anomalies, lambda x: x.subject.device, lambda x: x, text)
    return [denied.get(row, row) for row in rows], few


def confirmed_names(
    cables: Iterable[HostCable],
    fars: Iterable[tuple[Row, Far]],
    ports: Collection[tuple[str, str]],
    silent: Collection[str],
    asked: Collection[str],
) -> set[str]:
    """Return those of the `asked` switches that announce ports under the names that they report, as most of
    their current neighbours show.

    `cables`: as hosts report them; `silent`: stale hosts; `fars`: what switches hear; `ports`: what they
    report.
    """
    votes: dict[str, dict[str, bool]] = {}  # by chassis id and neighbour: whether the switch has the port
    heard = [(x.host, End(x.chassis, x.port)) for x in cables if x.host not in silent]
    heard += [(row.near.chassis, far.end) for row, far in fars if far.kind == SWITCH and not row.silent]
    for neighbour, end in heard:
        if end.chassis in asked:
            mine = votes.setdefault(end.chassis, {})
            mine[neighbour] = mine.get(neighbour, True) and end in ports
    return {chassis for chassis, mine in votes.items() if 2 * sum(mine.values()) > len(mine)}


def _published_ends(previous: Topology | None, switches: set[str]) -> set[tuple[str, str, str, str]]:
    """Return the cables of these switches that were published without a note, as seen from either end."""
    links = links_at(previous.links, switches) if previous is not None else []
    return {
        ends
        for x in links
        if not x.note
        for ends in (
            (x.a_device, x.a_port, x.b_device, x.b_port),
            (x.b_device, x.b_port, x.a_device, x.a_port),
        )
    }


def host_end(row: HostCable) -> Endpoint:
    return Endpoint(row.host, row.host, row.interface)
