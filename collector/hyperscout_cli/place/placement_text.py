"""Placements as text and tables: a summary, then the ranks of each domain."""

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from hyperscout_formats.text.counts import count
from hyperscout_formats.text.host_list import fold, natural_key
from hyperscout_runtime.units import NS, rfc3339
from hyperscout_topology.names import visible

from hyperscout_cli.shared.tables import Row, Table, age, facts, lines
from hyperscout_cli.show.measure_nccl import size_text

if TYPE_CHECKING:
    from hyperscout.v1 import placement_pb2 as pb
    from hyperscout_topology.topology import Topology

QUEUE_HEADINGS = ("GANG", "PRIORITY", "WORKERS", "WAITS", "KEPT", "REASON")
PLACEMENT_HEADINGS = ("GANG", "HOLDER", "WORKERS", "NODES", "TIER", "HYPERNODE", "AGE", "EXPIRES")
PLACEMENT_MORE = ("CLUSTER", "FAILED")


@dataclass(frozen=True, slots=True)
class Names:
    """Names for tables: the domain of tier 1 by node, the tierName by tier."""

    domains: Mapping[str, str]
    tiers: Mapping[int, str]

    @classmethod
    def of(cls, topology: "Topology", placement: "pb.Placement") -> "Names":
        """The names for a placement."""
        used = {x.node for x in placement.assignments}
        domains = {
            node: h.name for h in topology.hypernodes if h.tier == 1 for node in used.intersection(h.nodes)
        }
        return cls(domains, {h.tier: h.tier_name for h in topology.hypernodes})

    def tier(self, tier: int) -> str:
        """ "tier 2 (pod)"."""
        name = self.tiers.get(tier, "")
        return f"tier {tier} ({name})" if name else f"tier {tier}"


def placement_text(
    placement: "pb.Placement", topology: "Topology", request: "pb.PlaceRequest | None" = None
) -> Iterator[str]:
    """One that is placed. `request`: what was placed, if preferences of it counted."""
    names = Names.of(topology, placement)
    yield from facts(_summary(placement, names, request), 14)
    yield "\n"
    yield from ranks_table(placement.assignments, names)


def _prefers(group: "pb.PlaceRequest | pb.Group") -> bool:
    return group.spread.preferred or bool(getattr(group, "preferred", ""))


def _prefers_nodes(parts: "Iterable[pb.Part]") -> bool:
    return any(
        part.workers.affinity.node_affinity.preferred_during_scheduling_ignored_during_execution
        or _prefers_nodes(part.group.parts)
        for part in parts
    )


def _groups(parts: "Iterable[pb.Part]") -> "Iterator[pb.Group]":
    for part in parts:
        if part.HasField("group"):
            yield part.group
            yield from _groups(part.group.parts)


def _summary(placement: "pb.Placement", names: Names, request: "pb.PlaceRequest | None") -> dict[str, str]:
    cost, below = placement.cost, range(placement.cost.top - 1, 0, -1)
    held = f"{names.tier(placement.tier)}, {placement.hypernode}" if placement.hypernode else ""
    if held and placement.nodes == 1:
        held = f"{placement.assignments[0].node}, in {held}"
    whole = names.tier(cost.top) if held else "all islands"
    used = zip(cost.domains, below, strict=False)
    left = zip(cost.fragmentation, (whole, *map(names.tier, below), "its nodes"), strict=False)
    return {
        "Gang": placement.gang,
        "Workers": _workers(placement),
        "Cluster": _cluster(placement, request),
        "Within": held or "no HyperNode: it spans islands",
        "Domains": ", ".join(f"{n} of {names.tier(tier)}" for n, tier in used),
        "Nodes": str(placement.nodes),
        "Affinity": f"nodes lack preferences of weight {cost.unpreferred}" if cost.unpreferred else "",
        "Degraded": count(cost.degraded, "link"),
        "Left free": ", ".join(f"{n} in {where}" for n, where in left),
        "All-reduce": _all_reduce(placement),
        "Proof": _proof(placement, request),
        "Relaxed": placement.reason,
        "Reserved": _reserved(placement),
        "Failed nodes": _failed(placement),
    }


def _cluster(placement: "pb.Placement", request: "pb.PlaceRequest | None") -> str:
    """The cluster that was chosen; "" for the collector's own, if the request names no cluster."""
    return placement.cluster or ("the collector's own" if request and request.clusters else "")


def _workers(placement: "pb.Placement") -> str:
    """The number of workers; of an elastic gang with its limits."""
    number = len(placement.assignments)
    if not placement.max_workers:
        return str(number)
    return f"{number} (at least {placement.min_workers}, at most {placement.max_workers})"


def _proof(placement: "pb.Placement", request: "pb.PlaceRequest | None") -> str:
    from hyperscout.v1 import placement_pb2 as pb

    if placement.exact:
        groups = ", width of groups" if placement.cost.widths else ""
        asked = affinity = ""
        if request is not None:
            preferred = _prefers(request) or any(map(_prefers, _groups(request.parts)))
            asked = ", preferences" if preferred else ""
            affinity = ", preferred affinity" if _prefers_nodes(request.parts) else ""
        parts = [f"domains, nodes{affinity}, degraded links", "capacity left"]
        if request is not None and request.packing == pb.PACKING_FRAGMENTS:
            parts.reverse()
        return f"nothing is better by tier{asked}, {', '.join(parts)}{groups}"
    if placement.HasField("bound"):
        return f"not proven: the lower bound is {_cost(placement.bound)}"
    return "none: ranks that stay do not move"


def _cost(cost: "pb.PlacementCost") -> str:
    domains = "/".join(map(str, cost.domains))
    return f"tier {cost.top}" + (f", {domains} domains" if domains else "") + f", {count(cost.nodes, 'node')}"


def _all_reduce(placement: "pb.Placement") -> str:
    """The predicted times; nothing for one worker, which sends no message."""
    if not placement.HasField("predicted") or len(placement.assignments) == 1:
        return ""
    predicted = placement.predicted
    size = size_text(predicted.message_bytes)
    times = f"{size} in {seconds_text(predicted.ring_s)} (ring), {seconds_text(predicted.tree_s)} (tree)"
    return f"{times}, {predicted.sources}" if predicted.sources else times


def _reserved(placement: "pb.Placement") -> str:
    if not placement.HasField("reserved_at"):
        return ""
    if not placement.HasField("expires_at"):
        return "until it is released"
    return f"until {rfc3339(placement.expires_at.ToNanoseconds())}"


def _failed(placement: "pb.Placement") -> str:
    """The failed nodes that a gang remembers."""
    return fold([x.node for x in placement.failed_nodes])


def seconds_text(seconds: float) -> str:
    """A duration with three digits: 1.21 ms."""
    for unit, text in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if seconds >= unit:
            return f"{seconds / unit:.3g} {text}"
    return f"{seconds * NS:.3g} ns"


def ranks_table(assignments: "Sequence[pb.Assignment]", names: Names) -> Iterator[str]:
    """One line for each run of ranks in one domain of tier 1; nodes in the order of their ranks, with the
    number of workers where that is more than one: `gpu-[01-04]:8 gpu-05:3`."""
    roles = {x.role for x in assignments}
    rows = []
    for domain, run in groupby(assignments, key=lambda x: names.domains.get(x.node, "")):
        these = list(run)
        first, last = these[0].rank, these[-1].rank
        ranks = str(first) if first == last else f"{first}-{last}"
        counts = Counter(x.role for x in these)
        cells = (
            ranks,
            domain,
            *([", ".join(f"{n} {role}" for role, n in counts.items())] * (len(roles) > 1)),
        )
        rows.append(Row(ranks, (*cells, nodes_text(x.node for x in these))))
    headings = ("RANKS", "HYPERNODE", *(("ROLES",) if len(roles) > 1 else ()), "NODES")
    yield from lines(Table("rank", headings, (), tuple(rows)))


def nodes_text(nodes: Iterable[str]) -> str:
    """Nodes in this order, each with the number of its consecutive occurrences."""
    return " ".join(_folded(nodes))


def host_list(nodes: Iterable[str]) -> str:
    """Nodes in this order, each once, as a host list: `gpu-[01-04],login`."""
    return ",".join(_folded(dict.fromkeys(nodes)))


def _folded(nodes: Iterable[str]) -> list[str]:
    parts: list[str] = []
    pending: list[str] = []
    times = 0

    def flush() -> None:
        if pending:
            parts.append(fold(pending) + (f":{times}" if times > 1 else ""))
            pending.clear()

    for node, run in groupby(nodes):
        n = sum(1 for _ in run)
        if n != times or (pending and not _follows(pending[-1], node)):
            flush()
        times = n
        pending.append(node)
    flush()
    return parts


def _follows(before: str, node: str) -> bool:
    """Whether a host list of both keeps their order: equal names except for a larger number at the end."""
    digits = "0123456789"
    prefix, other = before.rstrip(digits), node.rstrip(digits)
    numbers = before[len(prefix) :], node[len(other) :]
    return prefix == other and len(numbers[0]) == len(numbers[1]) and numbers[0] < numbers[1]


def candidates_table(candidates: "Sequence[pb.PlacementCandidate]") -> Iterator[str]:
    """The candidates in the given order, which is best first."""
    rows = []
    for x in candidates:
        fits = x.HasField("cost")
        cells = (
            x.hypernode,
            str(x.tier),
            str(x.free),
            "/".join(map(str, x.cost.domains)) if fits else "",
            str(x.cost.nodes) if fits else "",
            str(x.cost.degraded) if fits else "",
            seconds_text(x.predicted.ring_s) if x.HasField("predicted") else "",
            x.why or "chosen",
        )
        rows.append(Row(x.hypernode, cells))
    headings = ("HYPERNODE", "TIER", "FREE", "DOMAINS", "NODES", "DEGRADED", "ALLREDUCE", "WHY")
    yield from lines(Table("candidate", headings, (), tuple(rows)))


def explanation_text(
    found: "pb.ExplainPlacementResponse", request: "pb.PlaceRequest | None" = None
) -> Iterator[str]:
    """The candidates as a table, then the explanation in sentences.

    `request`: what was explained; before the candidates comes the cluster that was chosen for it.
    """
    placement = found.placement
    if request is not None and placement.placed and (cluster := _cluster(placement, request)):
        yield f"Cluster: {cluster}\n\n"
    if found.candidates:
        yield from candidates_table(found.candidates)
        if found.considered > len(found.candidates):
            yield f"... and {found.considered - len(found.candidates)} more\n"
    text = "\n".join(map(visible, found.text.splitlines()))
    if text:
        yield f"\n{text}\n" if found.candidates else f"{text}\n"


def placements_table(placements: "Iterable[pb.Placement]", now_ns: int) -> Table:
    """Gangs that hold nodes, by name."""
    from hyperscout_placer.messages.placements import placement_json

    rows = []
    for x in sorted(placements, key=lambda x: natural_key(x.gang)):
        cells = (
            x.gang,
            x.holder,
            str(len(x.assignments)),
            str(x.nodes),
            str(x.tier) if x.HasField("tier") else "",
            x.hypernode,
            age(x.reserved_at.ToNanoseconds(), now_ns),
            _expires(x, now_ns),
        )
        rows.append(Row(x.gang, cells, (x.cluster, _failed(x)), placement_json(x)))
    return Table("placement", PLACEMENT_HEADINGS, PLACEMENT_MORE, tuple(rows))


def queue_table(gangs: "Iterable[pb.WaitingGang]", now_ns: int) -> Table:
    """Waiting gangs, in the order in which they are tried."""
    from hyperscout_topology.objects import plain

    rows = []
    for x in gangs:
        waits = age(x.waits_since.ToNanoseconds(), now_ns)
        cells = (x.gang, str(x.priority), str(x.workers), waits, _kept(x), x.reason)
        rows.append(Row(x.gang, cells, (x.holder,), plain(x)))
    return Table("gang", QUEUE_HEADINGS, ("HOLDER",), tuple(rows))


def _kept(gang: "pb.WaitingGang") -> str:
    """What is kept for a gang: `pod-2 (612 of 1000 fit)`."""
    if not gang.HasField("kept"):
        return ""
    where = gang.kept.hypernode or "the whole cluster"
    return f"{where} ({gang.kept.fits} of {gang.kept.workers} fit)"


def _expires(placement: "pb.Placement", now_ns: int) -> str:
    if not placement.HasField("expires_at"):
        return ""
    return f"in {age(now_ns, placement.expires_at.ToNanoseconds())}"


def moves_table(moves: "Iterable[pb.Move]") -> Iterator[str]:
    """Moves of one gang, by rank."""
    rows = tuple(Row(str(x.rank), (str(x.rank), x.source, x.target)) for x in moves)
    yield from lines(Table("move", ("RANK", "FROM", "TO"), (), rows))


def plan_table(gangs: "Iterable[pb.GangMoves]") -> Iterator[str]:
    """Moves of several gangs, in an order in which they can be carried out."""
    rows = tuple(
        Row(x.gang, (x.gang, str(move.rank), move.source, move.target)) for x in gangs for move in x.moves
    )
    yield from lines(Table("move", ("GANG", "RANK", "FROM", "TO"), (), rows))


def moved_text(
    moves: "Iterable[pb.Move]", placement: "pb.Placement", topology: "Topology", words: str
) -> Iterator[str]:
    """Moves of one gang, some words, and the gang after that."""
    yield from moves_table(moves)
    yield "\n"
    if words:
        yield words + "\n"
    yield from placement_text(placement, topology)


def plan_text(found: "pb.DefragmentResponse", topology: "Topology") -> Iterator[str]:
    """The moves of a plan, and the gang that fits after them."""
    if found.HasField("planned_at"):
        yield f"Planned: {age(found.planned_at.ToNanoseconds(), time.time_ns())} ago\n\n"
    if found.gangs:
        yield from plan_table(found.gangs)
        yield "\nThen:\n\n"
    yield from placement_text(found.placement, topology)
