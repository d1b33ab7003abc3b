"""Find the cables that hosts report and that others contradict: one switch port in several cables."""

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Final

from hyperscout_topology.link_changes import links_at
from hyperscout_topology.topology import Anomaly, Endpoint, Topology, say

from hyperscout_inference.ethernet.compute import HostCable
from hyperscout_inference.ethernet.switch_cables import SwitchCable
from hyperscout_inference.ethernet.switch_reports import End

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


def without_taken_ports(
    rows: list[HostCable],
    taken: Mapping[End, SwitchCable],
    silent: Collection[str],
    names: Mapping[str, str],
) -> tuple[list[HostCable], list[Anomaly]]:
    """Return the cables; those to a port that two switches report in a cable between them do not shape.

    `taken`: these cables by both ends. `silent`: switches that only stale reporters describe; a host knows
    better than they do.
    """
    found: list[HostCable] = []
    anomalies = []
    for row in rows:
        end = End(row.chassis, row.port)
        cable = taken.get(end)
        if cable is None or LLDP not in row.sources or {cable.a.chassis, cable.b.chassis} & {*silent}:
            found.append(row)
            continue
        switch = end.named(names)
        text = f"{say(switch)} is in a cable between switches"
        note = "; ".join(filter(None, (row.note, text)))
        found.append(row._replace(note=note, shapes=False))
        message = f"{say(host_end(row))} reports {say(switch)}, which is in a cable between switches"
        anomalies.append(Anomaly("SourcesDisagree", host_end(row), None, None, (LLDP,), 0.7, message))
    return found, anomalies


def host_end(row: HostCable) -> Endpoint:
    return Endpoint(row.host, row.host, row.interface)
