"""Find the cables that hosts report and that other hosts, or the switch at the other end, contradict."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from hyperscout_topology.link_changes import links_at
from hyperscout_topology.topology import Anomaly, Endpoint, Topology, say

from hyperscout_inference.ethernet.compute import HostCable
from hyperscout_inference.ethernet.neighbours import SWITCH, Far
from hyperscout_inference.ethernet.switch_reports import End, Row, SwitchReports
from hyperscout_inference.fabric.few_findings import few_findings

LLDP: Final = "lldp"
_MAX_FINDINGS = 4  # for one switch port that several host ports report


def with_claims_noted(
    rows: list[HostCable], names: Mapping[str, str], previous: Topology | None
) -> tuple[list[HostCable], list[Anomaly]]:
    """Note each switch port that several host ports report: a conflict, a hub or a cloned chassis id.

    A cable that was published without a note gets none: the other reports contradict it.
    """
    reported = [row for row in rows if LLDP in row.sources]
    counts = Counter((row.chassis, row.port) for row in reported)
    if len(counts) == len(reported):
        return rows, []
    on: dict[tuple[str, str], list[HostCable]] = {}
    for row in reported:
        on.setdefault((row.chassis, row.port), []).append(row)
    noted: dict[HostCable, HostCable] = {}
    anomalies = []
    shared = {chassis for (chassis, _), mine in on.items() if len(mine) > 1}
    published = {
        ends
        for x in (links_at(previous.links, shared) if previous is not None else ())
        if not x.note
        for ends in (
            (x.a_device, x.a_port, x.b_device, x.b_port),
            (x.b_device, x.b_port, x.a_device, x.a_port),
        )
    }
    for end, mine in on.items():
        if len(mine) == 1:
            continue
        known = [row for row in mine if (row.host, row.interface, row.chassis, row.port) in published]
        switch = End(*end).named(names)
        more = len(mine) - 1
        others = "another host's port reports" if more == 1 else f"{more} other hosts' ports report"
        for i, row in enumerate(row for row in mine if known != [row]):
            note = "; ".join(filter(None, (row.note, f"{others} {say(switch)}, too")))
            noted[row] = row._replace(note=note)
            if i < _MAX_FINDINGS:
                text = f"{say(host_end(row))} reports {say(switch)}; {others} it, too"
                anomalies.append(Anomaly("SourcesDisagree", host_end(row), switch, None, (LLDP,), 0.7, text))
    return [noted.get(row, row) for row in rows] if noted else rows, anomalies


def without_denied_ports(
    rows: list[HostCable],
    fars: Sequence[tuple[Row, Far]],
    taken: Collection[End],
    reports: SwitchReports,
    names: Mapping[str, str],
) -> tuple[list[HostCable], list[Anomaly]]:
    """Return the cables; those that their switch denies do not shape.

    `taken`: ports that are in a cable between two switches. A switch also denies a cable to a port that it
    does not have, or that its agent reports as down. A stale switch denies nothing: a host knows better.
    `fars`: what switches hear.
    """
    known = _known_by_name(rows, fars, reports)
    denied: dict[HostCable, HostCable] = {}
    anomalies = []
    for row in rows:
        end = End(row.chassis, row.port)
        if LLDP not in row.sources or row.chassis in reports.silent:
            continue
        port = reports.ports.get(end)
        if end in taken:
            why = "is in a cable between switches"
        elif port is None and row.chassis in known:
            why = "does not exist, as its switch reports"
        elif port is not None and port.by_agent and not (port.entry.carrier or port.silent):
            why = "is down, as its switch reports"
        else:
            continue
        switch = end.named(names)
        note = "; ".join(filter(None, (row.note, f"{say(switch)} {why}")))
        denied[row] = row._replace(note=note, shapes=False)
        message = f"{say(host_end(row))} reports {say(switch)}, which {why}"
        anomalies.append(Anomaly("SourcesDisagree", host_end(row), None, None, (LLDP,), 0.7, message))
    few = few_findings(
        anomalies,
        lambda x: x.subject.device,
        lambda x: x,
        "that this host reports are denied by their switches",
    )
    return [denied.get(row, row) for row in rows] if denied else rows, few


def _known_by_name(
    rows: Iterable[HostCable], fars: Iterable[tuple[Row, Far]], reports: SwitchReports
) -> set[str]:
    """Return the current switches that announce their ports under the names that they report, as most of
    their neighbours show."""
    votes: dict[str, dict[str, bool]] = {}  # by chassis id and neighbour: whether the switch has the port
    heard = [(row.host, End(row.chassis, row.port)) for row in rows if LLDP in row.sources]
    heard += [(row.near.chassis, far.end) for row, far in fars if far.kind == SWITCH]
    for neighbour, end in heard:
        if end.chassis in reports.current:
            mine = votes.setdefault(end.chassis, {})
            mine[neighbour] = mine.get(neighbour, True) and end in reports.ports
    return {chassis for chassis, mine in votes.items() if 2 * sum(mine.values()) > len(mine)}


def host_end(row: HostCable) -> Endpoint:
    return Endpoint(row.host, row.host, row.interface)
