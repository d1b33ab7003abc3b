"""Find the cables that switches report: between switches, and to hosts as the switch reports them.

A cable that both ends report is one cable. So is a cable that a switch's own agent, another reader and the
host report. A port is in one cable. Where reports put it in several, the cable that both ends report wins,
and a cable to a switch wins over a cable to another device. The losers are shown with a note and do not shape
the hierarchy.

The last report of a stale agent stays valid where no current reporter contradicts it: a missing agent is not
a missing cable.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import NamedTuple

from hyperscout_formats.text.counts import first_few
from hyperscout_topology.topology import Anomaly, say

from hyperscout_inference.ethernet.neighbours import HOST, SWITCH, Far, Jack
from hyperscout_inference.ethernet.switch_reports import End, Row, SwitchReports
from hyperscout_inference.fabric.few_findings import few_findings

# A port with more neighbours than this becomes a finding: it is a hub or a bridge.
_CROWD = 4
_NAMED = 3  # neighbours that a message names at most


class SwitchCable(NamedTuple):
    """A cable between two switches; `a` sorts before `b`. `shapes`: no other cable contradicts it."""

    a: End
    b: End
    speed_mbps: int  # 0 = unknown
    sources: tuple[str, ...]
    note: str = ""
    shapes: bool = True


class Plug(NamedTuple):
    """A device on a switch's port that is not a switch. `kind` as in `neighbours`."""

    end: End
    kind: int
    device: str
    port: str
    speed_mbps: int
    carrier: bool
    sources: tuple[str, ...]
    note: str = ""
    shapes: bool = True
    silent: bool = False


@dataclass(frozen=True, slots=True)
class SwitchView:
    """What switches report, each cable once."""

    cables: Sequence[SwitchCable] = ()
    plugs: Sequence[Plug] = ()
    anomalies: Sequence[Anomaly] = ()


@dataclass(slots=True)
class _Claim:
    """One cable and the rows that report it. `far`: the other end of its first row."""

    ends: tuple[End, End]  # sorted; for a plug the switch's end comes first
    far: Far
    rows: list[Row] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    down: bool = False  # its other end reports the port as down

    @property
    def by(self) -> set[End]:
        return {row.near for row in self.rows}

    @property
    def silent(self) -> bool:
        return all(row.silent for row in self.rows)

    @property
    def sources(self) -> tuple[str, ...]:
        return tuple(sorted({source for row in self.rows for source in row.sources}))


def switch_view(
    fars: Sequence[tuple[Row, Far]],
    reports: SwitchReports,
    claims: Mapping[tuple[str, str], Sequence[Jack]],
    names: Mapping[str, str],
) -> SwitchView:
    """Return all that switches report. `fars`: rows with their other ends. `claims`: the host ports that
    report a switch port, whatever the switch reports. `names`: switch names by chassis id."""
    cables, found, disputed = undisputed(fars, reports, claims)
    between, plugs = _claims(disputed)
    _other_names_of_a_port(between, reports, names)
    standing = _standing([*between.values(), *plugs.values()], reports, names)
    losers, anomalies = _settled(standing, claims, names)
    anomalies += _crowds(standing, names)
    for claim in standing:
        rivals = losers.get(id(claim))
        if rivals is not None and claim.silent:
            continue  # only stale reporters support it
        notes = [*dict.fromkeys([*claim.notes, *_doubts(claim, names), *(rivals or ())])]
        shapes = rivals is None and not claim.down and not any(row.past for row in claim.rows)
        a, b = claim.ends
        entries = [reports.ports[end].entry for end in claim.ends if end in reports.ports]
        speed_mbps = max((port.speed_mbps for port in entries), default=0)
        note = "; ".join(notes)
        if claim.far.kind == SWITCH:
            shapes &= a.chassis != b.chassis
            cables.append(SwitchCable(a, b, speed_mbps, claim.sources, note, shapes))
        else:
            carrier = any(port.carrier for port in entries)
            kind, (device, port), _ = claim.far
            found.append(
                Plug(a, kind, device, port, speed_mbps, carrier, claim.sources, note, shapes, claim.silent)
            )
    return SwitchView(sorted(cables), found, [*anomalies, *reports.anomalies])


def undisputed(
    fars: Sequence[tuple[Row, Far]],
    reports: SwitchReports,
    hosts: Mapping[tuple[str, str], Sequence[Jack]],
) -> tuple[list[SwitchCable], list[Plug], list[tuple[Row, Far]]]:
    """Return cables and plugs without contradiction or doubt, and the rows that are left.

    A cable between switches needs the reports of both ends. Most cables qualify, which saves the slow checks.
    """
    uses = Counter([row.near for row, _ in fars])
    uses.update([far.end for _, far in fars if far.kind == SWITCH])
    clear = [
        (row, far)
        for row, far in fars
        if not (row.doubt or row.past or far.note) and row.near.chassis != far.end.chassis
    ]
    to_switches = {row.near: (row, far) for row, far in clear if far.kind == SWITCH}
    cables: list[SwitchCable] = []
    plugs: list[Plug] = []
    settled: set[int] = set()  # ids of the rows of both
    for row, far in clear:
        near, end = row.near, far.end
        if far.kind != SWITCH:
            if uses[near] == 1 and (near not in hosts or Jack(*end) in hosts[near]):
                port, by = reports.ports[near].entry, tuple(sorted(row.sources))
                plugs.append(Plug(near, far.kind, *end, port.speed_mbps, port.carrier, by, silent=row.silent))
                settled.add(id(row))
            continue
        if near > end:  # judged at the other end
            continue
        back = to_switches.get(end)
        if back is not None and back[1] == (SWITCH, near, "") and uses[near] == uses[end] == 2:
            speed_mbps = max(reports.ports[x].entry.speed_mbps for x in (near, end))
            by = tuple(sorted(row.sources | back[0].sources))
            cables.append(SwitchCable(near, end, speed_mbps, by))
            settled |= {id(row), id(back[0])}
    return cables, plugs, [(row, far) for row, far in fars if id(row) not in settled]


def _claims(
    fars: Iterable[tuple[Row, Far]],
) -> tuple[dict[tuple[End, End], _Claim], dict[tuple[End, End], _Claim]]:
    """Return rows by the cable that they report: between switches, and others."""
    between: dict[tuple[End, End], _Claim] = {}
    plugs: dict[tuple[End, End], _Claim] = {}
    for row, far in fars:
        end = far.end
        if far.kind == SWITCH:
            ends = min(row.near, end), max(row.near, end)
            claim = between.setdefault(ends, _Claim(ends, far))
            if row.near.chassis == end.chassis:
                claim.notes.append("both ends are on one switch, or another switch has its chassis id")
        else:
            claim = plugs.setdefault((row.near, end), _Claim((row.near, end), far))
        claim.rows.append(row)
        if far.note:
            claim.notes.append(far.note)
    return between, plugs


def _other_names_of_a_port(
    between: dict[tuple[End, End], _Claim], reports: SwitchReports, names: Mapping[str, str]
) -> None:
    """Join, in place, two claims of one cable where one switch reports the other's port by an unknown name.

    The name means the port of the other switch that reports the first switch's port. Without such a port,
    two claims are joined if each is the only one left in its direction between the two switches.
    """
    claims_on: dict[End, list[_Claim]] = {}  # by the port that a claim of its other end is about
    unknown: list[tuple[End, End, _Claim]] = []
    for claim in between.values():
        if len(claim.by) == 1 and claim.ends[0].chassis != claim.ends[1].chassis:
            near, other = claim.ends if claim.ends[0] in claim.by else claim.ends[::-1]
            claims_on.setdefault(other, []).append(claim)
            if other.chassis in reports.own and other not in reports.ports:
                unknown.append((near, other, claim))
    left: dict[tuple[str, str], list[tuple[End, _Claim]]] = {}
    for near, other, claim in unknown:
        back = [
            x for x in claims_on.get(near, ())[: _CROWD + 1] if other.chassis in (e.chassis for e in x.ends)
        ]
        if len(back) == 1:
            del between[claim.ends]
            back[0].rows += claim.rows
            text = f"{say(near.named(names))} reports the other end as port {other.port}"
            back[0].notes += [*claim.notes, text]
        else:
            left.setdefault((near.chassis, other.chassis), []).append((near, claim))
    for (one, other_one), mine in sorted(left.items()):
        its = left.get((other_one, one), [])
        if one < other_one and len(mine) == len(its) == 1:
            (near, claim), (far, back_claim) = mine[0], its[0]
            del between[claim.ends], between[back_claim.ends]
            text = (
                "each end reports an unknown port of the other: the only unmatched ports of the two switches"
            )
            ends = min(near, far), max(near, far)
            notes = [*claim.notes, *back_claim.notes, text]
            between[ends] = _Claim(ends, claim.far, [*claim.rows, *back_claim.rows], notes)


def _standing(claims: Iterable[_Claim], reports: SwitchReports, names: Mapping[str, str]) -> list[_Claim]:
    """Return the claims that their other end does not deny. It denies a claim if its port has no carrier, or
    if only stale reporters support the claim and the other end is current.

    A port without carrier in a file is only noted, because the file may be older than the claim.
    """
    kept = []
    for claim in claims:
        other = next((end for end in claim.ends if end not in claim.by), None)
        if other is None or claim.far.kind != SWITCH:
            kept.append(claim)
            continue
        port = reports.ports.get(other)
        down = port is not None and not port.entry.carrier
        current = other.chassis in reports.own and other.chassis not in reports.silent
        if claim.silent and (current or down):
            continue
        if down and current:
            if port is not None and port.live:
                continue
            claim.notes.append(f"{say(other.named(names))} is down")
            claim.down = True
        kept.append(claim)
    return kept


def _settled(
    standing: Sequence[_Claim], hosts: Mapping[tuple[str, str], Sequence[Jack]], names: Mapping[str, str]
) -> tuple[dict[int, list[str]], list[Anomaly]]:
    """Return the claims that give way, by their `id()`, with the reasons; and the findings."""
    sure = {id(x): len(x.by) > 1 or Jack(*x.far.end) in hosts.get(x.ends[0], ()) for x in standing}
    alike = Counter((end, x.silent, x.far.kind) for x in standing if not sure[id(x)] for end in x.by)
    holder: dict[End, _Claim | None] = {}  # None: several neighbours, none of them better known
    losers: dict[int, list[str]] = {}
    findings: Counter[End] = Counter()
    anomalies: list[tuple[str, Anomaly]] = []  # with the switch that reports
    for claim in sorted(standing, key=lambda x: (not sure[id(x)], x.silent, -x.far.kind, x.ends)):
        ends = claim.ends if claim.far.kind == SWITCH else claim.ends[:1]
        if sure[id(claim)] and not any(end in holder for end in ends):
            holder.update(dict.fromkeys(ends, claim))
            continue
        why: list[str] = []
        against: End | None = None  # the port that another reporter puts into another cable
        own = Jack(*claim.far.end)
        for end in ends:
            if jacks := [jack for jack in hosts.get(end, ()) if jack != own]:
                why.append(f"{'/'.join(jacks[0])} reports that it is in {say(end.named(names))}")
                against = end
            elif (rival := holder.get(end)) is not None:
                why.append(f"{say(end.named(names))} is in another cable")
                against = against if claim.by <= rival.by else end
            elif end in holder or (end in claim.by and alike[end, claim.silent, claim.far.kind] > 1):
                why.append(f"{say(end.named(names))} reports several neighbours")
                holder[end] = None
        if not why:
            holder.update(dict.fromkeys(ends, claim))
            continue
        losers[id(claim)] = why
        if against is not None and not claim.silent and findings[against] < _CROWD and claim.far.kind != HOST:
            findings[against] += 1
            anomalies.append((claim.rows[0].near.chassis, _contradicted(claim, names, why)))
    text = "that this switch reports are contradicted by others"
    return losers, few_findings(anomalies, itemgetter(0), itemgetter(1), text)


def _contradicted(claim: _Claim, names: Mapping[str, str], why: Sequence[str]) -> Anomaly:
    a, b = (end.named(names) for end in claim.ends)
    if claim.far.kind == SWITCH:
        text = f"{say(a)} to {say(b)} is reported, but another cable already holds one of these ports"
        return Anomaly("SourcesDisagree", a, b, None, claim.sources, 0.7, text)
    text = f"{say(a)} reports {say(b)}, but {why[0]}"
    return Anomaly("SourcesDisagree", b, a, None, claim.sources, 0.7, text)


def _crowds(standing: Iterable[_Claim], names: Mapping[str, str]) -> list[Anomaly]:
    """Return one finding per port with two or more switches, or more than `_CROWD` neighbours."""
    by_port: dict[End, list[_Claim]] = {}
    for claim in standing:
        if len(claim.by) == 1 and not claim.silent:
            by_port.setdefault(claim.rows[0].near, []).append(claim)
    found = []
    for end, claims in sorted(by_port.items()):
        switches = sum(claim.far.kind == SWITCH for claim in claims)
        if switches < 2 and len(claims) <= _CROWD:
            continue
        others = sorted({say(x.ends[x.ends[0] == end].named(names)) for x in claims})
        subject = end.named(names)
        text = (
            f"{say(subject)} reports {len(claims)} neighbours: {first_few(others, _NAMED)}; "
            "one cable does not lead to all of them (a hub, or a bridge that passes LLDP on)"
        )
        sources = tuple(sorted({source for claim in claims for source in claim.sources}))
        found.append(Anomaly("SourcesDisagree", subject, None, None, sources, 0.8, text))
    return few_findings(
        found, lambda x: x.subject.device, lambda x: x, "of this switch lead to several neighbours each"
    )


def _doubts(claim: _Claim, names: Mapping[str, str]) -> list[str]:
    texts = []
    for row in claim.rows:
        if not (row.doubt or row.past):
            continue
        port = say(row.near.named(names))
        if row.doubt:
            texts.append(f"{port} {row.doubt}")
        if row.past and "is down" not in row.doubt:
            texts.append(f"{port} is down")
    return texts
