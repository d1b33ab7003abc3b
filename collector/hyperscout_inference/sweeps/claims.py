"""Judge the sweeps of agents by the published cables and by what agents report of their own ports.

A sweep describes the ports of all nodes, so one agent could move every host of a fabric. The published
topology is the record that each sweep is compared with:

- A whole sweep counts only if it contains the port that it started from, with the GUID of that port.
- A sweep is provisional while its port is in no published cable of its reporter, and not in the missing one
  again. Where it describes a published fabric, it counts when the sweep of another node shows all its cables.
- Of a sweep from a published port, the disputed cables count when the sweep of another node shows the same.
  Until then published cables stay, and new ones are left out. All other cables count at once.
- A fabric that was never published is taken from its first sweep, without the disputed cables.
- An older sweep of a published port that a newer one contradicts counts for nothing, without an accusation.
- A partial sweep may lack any port, also its own. It is judged like a whole one by the cables that it shows.

Disputed are:

- published cables of which the sweep connects an end to another port;
- published cables that a whole sweep lacks, unless the current agent at an end reports that the port is not
  ACTIVE, or only since the sweep;
- new cables between switches, and all cables of new switches;
- new cables of adapters whose port no current agent reports as connected. It must be the agent of the node
  that the record, the node map or the description names, if that is current. Without a record, and where no
  other agent can confirm the sweep, cables of nodes without a current agent are not disputed. Neither is a
  published missing cable whose agent reported the port as down since the sweep: inference leaves it out.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal, NamedTuple

import numpy as np
from hyperscout_formats.facts.facts import InfinibandPort
from hyperscout_formats.infiniband.ibnetdiscover import CA, SWITCH, Sweep
from hyperscout_formats.text.counts import and_more, count
from hyperscout_topology.link_changes import contains, table_of
from hyperscout_topology.topology import Anomaly, Endpoint, Topology

from hyperscout_inference.fabric.adapter_owners import owners_of, reporters
from hyperscout_inference.fabric.inputs import SURE, TAKES_NS
from hyperscout_inference.fabric.network import distinct
from hyperscout_inference.sweeps.comparing import Comparison, PortShown, compare, other_kinds
from hyperscout_inference.sweeps.confirming import (
    confirmed_new,
    confirmed_rows,
    share_a_device,
    share_a_switch,
    shows_all_of,
)
from hyperscout_inference.sweeps.record import Rows, cable_at, guids_of_switches, names_of, record_of
from hyperscout_inference.sweeps.reduced import reduced

SOURCE: Final = "ibnetdiscover"
# A reporter is accused if more published cables than this share of a fabric, and more than so many, are
# moved, or missing although a current agent reports them. Other changes wait without an accusation.
WHOLESALE_SHARE: Final = 0.05
WHOLESALE_LEAST: Final = 2
_NAMED: Final = 2  # cables in a message
_NO_ROWS: Final[Rows] = np.zeros(0, np.intp)


@dataclass(frozen=True, slots=True, eq=False)
class SweepClaim:
    """A sweep of an agent. `device`, `port_guid`: the port that it started from. `is_current`: it is not
    stale. `observed_at_ns`: when it ended, Unix ns."""

    node: str
    device: str
    port_guid: int
    sweep: Sweep
    is_partial: bool = False
    is_current: bool = True
    observed_at_ns: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class SweepVerdict:
    """How a claim counts. `sweep` is what counts of a `reduced` one.

    `reason`: what waits for the sweep of another node, "" = nothing. `is_known`: it is not provisional.
    `is_first`: it counts only because its fabric was never published. `agreeing`: the indices of the claims
    of other nodes without which it would not count so. `is_answered`: a current sweep of another node shows a
    device of it. `disputed`: the ends of the published cables that stay in `sweep`.
    """

    counts: Literal["whole", "reduced", "nothing"]
    sweep: Sweep
    reason: str = ""
    is_known: bool = True
    is_first: bool = False
    agreeing: tuple[int, ...] = ()
    anomaly: Anomaly | None = None
    is_answered: bool = False
    disputed: frozenset[tuple[int, int]] = frozenset()


@dataclass(frozen=True, slots=True)
class Witnesses:
    """What agents report. `ports`, `at_ns`, `up_ns`: `infiniband`, `infiniband_at_ns`, `infiniband_up_ns` of
    `FabricInputs`. `current`: the nodes whose agents are current and report InfiniBand ports with GUIDs.
    `node_map`: adapter GUID -> node. `alone`: nodes and devices whose sweeps no other agent can confirm."""

    ports: Mapping[str, tuple[InfinibandPort, ...]]
    current: Collection[str]
    node_map: Mapping[int, str]
    alone: Collection[tuple[str, str]] = ()
    up_ns: Mapping[str, Mapping[tuple[int, int], int]] = field(default_factory=dict)
    at_ns: Mapping[str, int] = field(default_factory=dict)
    node_names: Mapping[str, str] = field(default_factory=dict)  # of `FabricInputs`


class _Disputed(NamedTuple):
    """`cables`: rows of the record. `new`: rows of the sweep, two for a cable."""

    cables: Rows
    new: Rows

    def __len__(self) -> int:
        return len(self.cables) + (len(self.new) + 1) // 2


def judge_sweeps(
    claims: Sequence[SweepClaim], previous: Topology | None, witnesses: Witnesses
) -> list[SweepVerdict]:
    """Return a verdict on each claim. The newest claim comes first."""
    return _Judge(claims, previous, witnesses).verdicts() if claims else []


class _Judge:
    def __init__(self, claims: Sequence[SweepClaim], previous: Topology | None, witnesses: Witnesses) -> None:
        self._record = record_of(table_of(previous.links if previous is not None else ()))
        self._switches = guids_of_switches(previous.switches if previous is not None else ())
        kinds = other_kinds(tuple(claim.sweep for claim in claims), self._record, self._switches)
        self._other_kinds = [self._only_there(i, claims, kinds) for i in range(len(claims))]
        self._claims = [
            self._with_recorded_kinds(claim, devices)
            for claim, devices in zip(claims, self._other_kinds, strict=True)
        ]
        self._previous = previous
        self._witnesses = witnesses
        self._compared = compare([claim.sweep for claim in self._claims], previous)
        self._starts = [_starts_at(claim) for claim in self._claims]
        self._own = [start[1] if start is not None else None for start in self._starts]
        starts = {end[0] for end in self._own if end is not None}
        rows = distinct(np.concatenate([one.missing for one in self._compared]))
        ends = {guid for row in rows.tolist() for guid, _ in self._record.ends(row)}
        shown = {port.guid for one in self._compared for port in one.ports}
        self._owner = owners_of(starts | ends | shown, previous)
        anomalies = previous.anomalies if previous is not None else ()
        self._missing = {x.ends: x for x in anomalies if x.kind == "MissingLink" and x.confidence > SURE}
        self._dead: dict[int, bool] = {}  # of each row of the record that was asked for
        self._reported: dict[tuple[int, int], dict[str, InfinibandPort]] = {}  # by port and node
        nodes_of = reporters(witnesses.ports)
        for guid in ends | shown:
            for node in filter(witnesses.current.__contains__, nodes_of.get(guid, ())):
                for port in witnesses.ports[node]:
                    if port.node_guid == guid and port.link_layer == "InfiniBand":
                        self._reported.setdefault((guid, port.port), {})[node] = port
        known = [self._is_known(i) for i in range(len(claims))]
        self._known = [mine and not self._has_other_guid(i, known) for i, mine in enumerate(known)]

    @staticmethod
    def _only_there(i: int, claims: Sequence[SweepClaim], kinds: Sequence[Rows]) -> Rows:
        """Return the devices that no sweep of another node shows as this other kind, too."""
        found = kinds[i]
        for other, its in zip(claims, kinds, strict=True):
            if len(found) and len(its) and other.node != claims[i].node:
                found = found[~np.isin(claims[i].sweep.guid[found], other.sweep.guid[its])]
        return found

    def _with_recorded_kinds(self, claim: SweepClaim, devices: Rows) -> SweepClaim:
        if not len(devices):
            return claim
        kind = claim.sweep.kind.copy()
        kind[devices] = np.where(contains(self._switches, claim.sweep.guid[devices]), SWITCH, CA)
        return replace(claim, sweep=replace(claim.sweep, kind=kind))

    def verdicts(self) -> list[SweepVerdict]:
        found: list[SweepVerdict] = []
        for i in range(len(self._claims)):
            verdict = self._verdict(i, found)
            found.append(replace(verdict, is_answered=self._is_answered(i)) if verdict.reason else verdict)
        return found

    def _verdict(self, i: int, verdicts: Sequence[SweepVerdict]) -> SweepVerdict:
        claim, compared, is_known = self._claims[i], self._compared[i], self._known[i]
        if self._own[i] is None and not claim.is_partial:
            text = "its sweep does not contain the port that it started from"
            return SweepVerdict("nothing", claim.sweep, text, anomaly=_anomaly(claim, text))
        disputed = self._disputed(claim, compared)
        if compared.known and not is_known and not (claim.is_partial and not disputed):
            return self._provisional(i, disputed)
        is_new = not compared.known and not claim.is_partial and len(claim.sweep.device) > 0
        is_first = is_new and next(self._showing_all_of(i), None) is None
        disputed, agreeing = self._unconfirmed(i, disputed)
        if not len(disputed):
            others = len(self._other_kinds[i])
            text = f"it shows {count(others, 'device')} as another kind than published" if others else ""
            return SweepVerdict("whole", claim.sweep, text, is_known, is_first, agreeing)
        newer = [
            j
            for j, one in enumerate(verdicts)
            if one.counts != "nothing" and self._known[j] and share_a_switch(claim.sweep, one.sweep)
        ]
        if any(not self._claims[j].is_partial for j in newer):  # it is outdated, and not false
            return SweepVerdict("nothing", claim.sweep)
        kept = reduced(claim.sweep, self._record, disputed.cables, disputed.new, self._previous)
        if newer:  # a partial sweep does not replace it
            return SweepVerdict("reduced", kept, agreeing=agreeing)
        text = self._changes(claim, disputed)
        rows = disputed.cables.tolist()
        contradicted = sum(row in compared.moved or self._has_agent(row) for row in rows)
        is_wholesale = contradicted > max(WHOLESALE_LEAST, WHOLESALE_SHARE * compared.known)
        anomaly = _anomaly(claim, text) if is_wholesale else None
        ends = frozenset(end for row in rows for end in self._record.ends(row))
        return SweepVerdict("reduced", kept, text, is_known, is_first, agreeing, anomaly, disputed=ends)

    def _is_answered(self, i: int) -> bool:
        sweep = self._claims[i].sweep
        return any(
            self._claims[j].is_current and share_a_device(sweep, self._claims[j].sweep)
            for j in self._others(i)
        )

    def _provisional(self, i: int, disputed: _Disputed) -> SweepVerdict:
        """Judge the sweep of an unknown port in a published fabric."""
        claim = self._claims[i]
        agreeing = tuple(self._showing_all_of(i))
        if agreeing or (claim.node, claim.device) in self._witnesses.alone:
            return SweepVerdict("whole", claim.sweep, "", False, False, agreeing)
        text = (
            self._changes(claim, disputed)
            if len(disputed)
            else "its port is not confirmed yet, so it waits for the sweep of a second node"
        )
        # With new cables alone it may only be newer: the agent that holds the lease sweeps now.
        anomaly = _anomaly(claim, text) if len(disputed.cables) else None
        return SweepVerdict("nothing", claim.sweep, text, False, anomaly=anomaly)

    def _changes(self, claim: SweepClaim, disputed: _Disputed) -> str:
        """Say how many cables wait, and between which ends the first ones are."""
        sweep = claim.sweep
        cables = [self._record.ends(row) for row in disputed.cables[:_NAMED].tolist()]
        for row in disputed.new[: 2 * _NAMED].tolist():
            own = int(sweep.guid[sweep.device[row]]), int(sweep.port[row])
            far = int(sweep.guid[sweep.peer[row]]), int(sweep.peer_port[row])
            if (far, own) not in cables:
                cables.append((own, far))
        cables = cables[:_NAMED]
        names = names_of({guid for cable in cables for guid, _ in cable}, sweep, self._previous)
        named = ", ".join(" -- ".join(sorted(f"{names[g]}/p{p}" for g, p in cable)) for cable in cables)
        more = and_more(len(disputed) - len(cables))
        changed = count(len(disputed), "cable")
        return f"it changes {changed}, which no sweep of another node confirms: {named}{more}"

    def _others(self, i: int) -> Iterator[int]:
        """Yield the claims of other nodes that contain their own port."""
        for j, other in enumerate(self._claims):
            if other.node != self._claims[i].node and self._own[j] is not None:
                yield j

    def _of_same_fabric(self, i: int) -> Iterator[int]:
        sweep = self._claims[i].sweep
        return (j for j in self._others(i) if share_a_switch(sweep, self._claims[j].sweep))

    def _showing_all_of(self, i: int) -> Iterator[int]:
        """Yield the claims of other nodes that show all cables of this one."""
        swept = self._compared[i].swept
        return (j for j in self._of_same_fabric(i) if shows_all_of(swept, self._compared[j].swept))

    def _unconfirmed(self, i: int, disputed: _Disputed) -> tuple[_Disputed, tuple[int, ...]]:
        """Return what stays disputed, and the claims that confirm the rest."""
        agreeing = []
        one, others = self._compared[i].swept, self._of_same_fabric(i)
        # Mostly nothing is disputed. Then no sweep is looked for, which takes milliseconds for each.
        while len(disputed) and (j := next(others, None)) is not None:
            other, is_partial = self._compared[j].swept, self._claims[j].is_partial
            cables = confirmed_rows(one, other, self._record, disputed.cables, is_partial=is_partial)
            new = confirmed_new(one, other, disputed.new)
            if len(cables) + len(new):
                agreeing.append(j)
                disputed = _Disputed(np.setdiff1d(disputed.cables, cables), np.setdiff1d(disputed.new, new))
        return disputed, tuple(agreeing)

    def _disputed(self, claim: SweepClaim, compared: Comparison) -> _Disputed:
        is_alone = (claim.node, claim.device) in self._witnesses.alone
        is_strict = compared.known > 0 and not is_alone
        shown = [
            x.row
            for x in compared.ports
            if not (self._is_reported(x, is_strict=is_strict) or self._is_out(x, claim))
        ]
        ports = np.array(shown, np.intp)
        if is_alone:
            return _Disputed(_NO_ROWS, distinct(ports))
        missing = [] if claim.is_partial else compared.missing.tolist()
        missing = [row for row in missing if not (self._is_dead(row) or self._is_newer(row, claim))]
        cables = np.concatenate([compared.moved, np.array(missing, np.intp)])
        return _Disputed(np.sort(cables), distinct(np.concatenate([compared.between, ports])))

    def _has_agent(self, row: int) -> bool:
        ends = self._record.ends(row)
        return any(self._owner.get(guid) in self._witnesses.current for guid, _ in ends)

    def _is_dead(self, row: int) -> bool:
        """`_has_dead_end`, once for each row: many sweeps may lack it."""
        if row not in self._dead:
            self._dead[row] = self._has_dead_end(row)
        return self._dead[row]

    def _has_dead_end(self, row: int) -> bool:
        """Return whether the current agent at an end of a published cable does not report it as ACTIVE."""
        for end in self._record.ends(row):
            node = self._owner.get(end[0], "")
            if node in self._witnesses.current:
                port = self._reported.get(end, {}).get(node)
                if port is None or port.state != "ACTIVE":
                    return True
        return False

    def _is_newer(self, row: int, claim: SweepClaim) -> bool:
        """Return whether an agent at an end of a published cable sees its port as ACTIVE only since then."""
        since_ns = claim.observed_at_ns - TAKES_NS
        ends = self._record.ends(row)
        ports = ((self._witnesses.up_ns.get(self._owner.get(end[0], ""), {}), end) for end in ends)
        return any(end in up_ns and up_ns[end] > since_ns for up_ns, end in ports)

    def _is_reported(self, shown: PortShown, *, is_strict: bool) -> bool:
        """Return whether the current agent of its node reports a port as connected.

        A port of a node without a current agent can be reported by any agent; it must be if `is_strict`.
        """
        reports = self._reported.get((shown.guid, shown.port), {})
        host = self._witnesses.node_names.get(shown.host, shown.host)
        node = self._owner.get(shown.guid) or self._witnesses.node_map.get(shown.guid) or host
        if node in self._witnesses.current:
            return node in reports and reports[node].state != "DOWN"
        return not is_strict or any(port.state != "DOWN" for port in reports.values())

    def _is_out(self, shown: PortShown, claim: SweepClaim) -> bool:
        """Return whether the cable in this port is a published missing one, and its agent reported the port
        as DOWN since the sweep."""
        missing = self._missing.get(cable_at(claim.sweep, shown.row))
        if missing is None or missing.peer is None:
            return False
        named = {one.device: one.name for one in (missing.subject, missing.peer)}
        node = self._owner.get(shown.guid) or named[f"{shown.guid:016x}"]
        port = self._reported.get((shown.guid, shown.port), {}).get(node)
        is_down = port is not None and port.state == "DOWN"
        return is_down and self._witnesses.at_ns.get(node, 0) > claim.observed_at_ns

    def _is_known(self, i: int) -> bool:
        start, claim = self._starts[i], self._claims[i]
        if start is None:
            return False
        row, end = start
        missing = self._missing.get(cable_at(claim.sweep, row))
        if missing is not None and missing.peer is not None:
            named = {one.device: one.name for one in (missing.subject, missing.peer)}
            return named.get(f"{end[0]:016x}") == claim.node
        if self._owner.get(end[0]) != claim.node:
            return False
        return self._record.has(*end)

    def _has_other_guid(self, i: int, known: Sequence[bool]) -> bool:
        """Return whether the sweep of another known node shows the port of this claim with another GUID."""
        end = self._own[i]
        if end is None:
            return False
        for j in self._others(i):
            sweep = self._claims[j].sweep
            for device in np.flatnonzero(sweep.guid == np.uint64(end[0])).tolist() if known[j] else []:
                guids = sweep.port_guid[(sweep.device == device) & (sweep.port == end[1])].tolist()
                if any(guid and guid != self._claims[i].port_guid for guid in guids):
                    return True
        return False


def _anomaly(claim: SweepClaim, text: str) -> Anomaly:
    subject = Endpoint(claim.node, claim.node, claim.device)
    message = f"the sweep of {claim.node} from {claim.device} does not count as a whole: {text}"
    return Anomaly("SourcesDisagree", subject, None, None, (SOURCE,), 0.9, message, nodes=(claim.node,))


def _starts_at(claim: SweepClaim) -> tuple[int, tuple[int, int]] | None:
    """Return the row of the port that the sweep started from, its adapter and its number; None if it is not
    there."""
    sweep = claim.sweep
    rows = np.flatnonzero(sweep.port_guid == np.uint64(claim.port_guid))
    if not claim.port_guid or not len(rows):
        return None
    row = int(rows[0])
    return row, (int(sweep.guid[sweep.device[row]]), int(sweep.port[row]))
