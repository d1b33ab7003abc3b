"""What is true of the lab while its parts fail, and whether what is shown of it is true.

A claim is what an anomaly or a condition says against parts of the fabric. It is false where none of these
parts is faulty. It takes a moment until a claim goes after its part is whole: so what counts is for how long
a false claim was shown.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from lab.plan import IB_DEVICE, Plan
from lab.watching import Object, condition, members

Kind = Literal["dead", "elsewhere"]
Tree = frozenset[tuple[int, frozenset[str]]]  # tier and nodes of each domain
# The condition, its status, and which faults explain it.
_CONDITIONS: tuple[tuple[str, str, Kind], ...] = (
    ("Ready", "False", "dead"),
    ("Consistent", "False", "elsewhere"),
    ("Stale", "True", "dead"),
)
# A cable that is in another port, or two reports that cannot both be right. A dead part explains neither.
_ELSEWHERE = ("Miswired", "SourcesDisagree", "UnknownHost")
# No act makes a path slow, but all nodes share a few cores.
_IGNORED = ("SlowLink",)
_QUIET_S, _HOLD_DOWN_S = 60.0, 10.0  # as the damping of the collector has them
_COUNTED = "ErroringLink"  # it stays for an hour, as it says
_OVER = re.compile(r"\b(up|over) since \S+; flapped ")


@dataclass(slots=True)
class Fault:
    """`parts`: ports ("node1/rail0") and devices ("node1"). `ended_s`: None while it lasts. `is_shown`: a
    claim named one of its parts meanwhile."""

    kind: Kind
    parts: frozenset[str]
    began_s: float
    ended_s: float | None = None
    is_shown: bool = False


@dataclass(frozen=True, slots=True)
class Seen:
    """What is shown. `anomalies` and `generation`: as REST gives them, None where no leader answered."""

    hypernodes: Mapping[str, Object]
    anomalies: Sequence[Object] | None
    generation: int | None = None


@dataclass(frozen=True, slots=True)
class _Claim:
    """`parts`: any of them explains it. `ever`: also long after it is whole."""

    kind: Kind
    parts: frozenset[str]
    text: str
    ever: bool = False


@dataclass(slots=True)
class Oracle:
    """`limit_s`: for how long a false claim may be shown. `nodes`: of each unit, as the cables are now."""

    plan: Plan
    limit_s: float
    nodes: dict[str, set[str]] = field(init=False)
    worst_s: float = 0.0  # the longest time that a false claim was shown
    worst: str = ""
    violations: list[str] = field(default_factory=list)
    news: list[str] = field(default_factory=list)  # claims that came (+) and went (-); the caller empties it
    faults: list[Fault] = field(default_factory=list)
    _leads_s: float = 0.0  # from then on a leader can publish what it sees
    _moving: set[str] = field(default_factory=set)  # may be shown where they were, or where they are
    _shown_s: dict[tuple[str, ...], float] = field(default_factory=dict)  # since when a claim is shown
    _newest: tuple[int, Sequence[Object]] = (0, ())  # a generation, and its anomalies

    def __post_init__(self) -> None:
        self.nodes = {unit: set(names) for unit, names in self.plan.domains.items()}

    # --- what is done ---------------------------------------------------------------------------------------

    def begin(self, kind: Kind, parts: Iterable[str], now_s: float) -> Fault:
        """Call it before the parts are broken."""
        fault = Fault(kind, frozenset(parts), now_s)
        self.faults.append(fault)
        return fault

    def end(self, fault: Fault, now_s: float) -> None:
        """Call it after the parts are whole again."""
        fault.ended_s = now_s

    def no_leader(self, until_s: float) -> None:
        """Until then no leader may publish, so that what is shown cannot be newer."""
        self._leads_s = max(self._leads_s, until_s)

    def move(self, node: str, unit: str) -> None:
        """All cables of a node are about to be plugged in at another unit."""
        for names in self.nodes.values():
            names.discard(node)
        self.nodes[unit].add(node)
        self._moving.add(node)

    @property
    def truth(self) -> Tree:
        units = {unit: frozenset(names) for unit, names in self.nodes.items() if names}
        pods = [[units[unit] for unit in pod if unit in units] for pod in self.plan.pods]
        tiers = [list(units.values()), [frozenset().union(*pod) for pod in pods if pod]]
        if len(pods) > 1:
            tiers.append([frozenset().union(*units.values())])
        return frozenset((tier, names) for tier, domains in enumerate(tiers, 1) for names in domains)

    # --- what is shown --------------------------------------------------------------------------------------

    def judge(self, seen: Seen, now_s: float) -> None:
        """Judge what is shown at a time, and keep what is wrong with it in `violations`."""
        self._judge_number(seen)
        tree = tree_of(seen.hypernodes)
        if tree == self.truth:
            self._moving.clear()
        elif _without(self._moving, tree) != _without(self._moving, self.truth):
            self._complain(f"members changed: {_words(tree)}; it is {_words(self.truth)}")
        claims = dict(self._claims(seen))
        is_blind = seen.anomalies is None  # anomalies that were shown before go on
        shown = (*claims, *(self._shown_s if is_blind else ()))
        self.news += [f"+ {claim.text}" for key, claim in claims.items() if key not in self._shown_s]
        self.news += [f"- {' '.join(key)}" for key in self._shown_s if key not in shown]
        self._shown_s = {key: self._shown_s.get(key, now_s) for key in shown}
        for key, claim in claims.items():
            for fault in self.faults:
                if fault.ended_s is None and fault.kind == claim.kind and fault.parts & claim.parts:
                    fault.is_shown = True
            false_s = now_s - max(self._shown_s[key], self._explained_s(claim, now_s), self._leads_s)
            if false_s > self.worst_s:
                self.worst_s, self.worst = false_s, claim.text
            if false_s > self.limit_s:
                self._complain(f"false for more than {self.limit_s:g} s: {claim.text}")

    def _judge_number(self, seen: Seen) -> None:
        """A number names one generation, and none is lower than one before, also of another leader."""
        if seen.generation is None or seen.anomalies is None:
            return
        newest, anomalies = self._newest
        if seen.generation < newest:
            self._complain(f"generation {seen.generation} was shown after {newest}")
            return
        if seen.generation == newest and seen.anomalies != anomalies:
            self._complain(f"generation {seen.generation} was shown with two lists of anomalies")
        self._newest = seen.generation, seen.anomalies

    def wrong(self, seen: Seen) -> list[str]:
        """What is not as it is in a whole fabric."""
        found = [claim.text for _, claim in self._claims(seen) if not claim.ever]
        found += [x for x, one in seen.hypernodes.items() if condition(one, "Ready").get("status") != "True"]
        if seen.anomalies is None:
            found.append("no leader answers")
        if (tree := tree_of(seen.hypernodes)) != self.truth:
            found.append(f"{_words(tree)}; it is {_words(self.truth)}")
        return found

    def _complain(self, text: str) -> None:
        if text not in self.violations:
            self.violations.append(text)

    def _explained_s(self, claim: _Claim, now_s: float) -> float:
        """Return until when a fault explained the claim. A part that fails again soon flaps: it is not called
        healthy before it has stood still for a moment."""
        until_s = 0.0
        for fault in self.faults:
            if fault.kind == claim.kind and fault.parts & claim.parts:
                if claim.ever or fault.ended_s is None:
                    return now_s
                is_again = until_s > 0.0 and fault.began_s - until_s < _QUIET_S
                # A new leader sees only then that the part stands still.
                still_s = max(fault.ended_s, self._leads_s) + _HOLD_DOWN_S if is_again else fault.ended_s
                until_s = max(until_s, still_s)
        return until_s

    def _claims(self, seen: Seen) -> Iterator[tuple[tuple[str, ...], _Claim]]:
        """What is said against parts, by what it is about. What says itself that it is over is no claim."""
        nodes = nodes_of(seen.hypernodes)
        for name, one in seen.hypernodes.items():
            for condition_kind, status, fault in _CONDITIONS:
                found = condition(one, condition_kind)
                if found.get("status") == status and not _OVER.search(found["message"]):
                    text = f"{name}: {condition_kind}={status} {found['reason']}: {found['message']}"
                    yield (name, condition_kind), _Claim(fault, self._around(nodes[name]), text)
        for anomaly in seen.anomalies or ():
            is_over = anomaly.get("flaps") and anomaly.get("clearsAt")
            if not is_over and anomaly["kind"] not in _IGNORED:
                ends = [self._part(end) for end in (anomaly["subject"], anomaly.get("peer")) if end]
                kind: Kind = "elsewhere" if anomaly["kind"] in _ELSEWHERE else "dead"
                text = f"{anomaly['kind']} {' -- '.join(ends)}: {anomaly['message']}"
                key = (anomaly["kind"], *ends)
                yield key, _Claim(kind, frozenset(ends), text, anomaly["kind"] == _COUNTED)

    def _around(self, nodes: Collection[str]) -> frozenset[str]:
        """Nodes, their ports, and the leaves of their present units."""
        units = [unit for unit, names in self.nodes.items() if not names.isdisjoint(nodes)]
        leaves = {leaf for unit in units for leaf in self.plan.leaves(unit)}
        ports = {f"{node}/{port}" for node in nodes for port in (*self.plan.node(node).rails, IB_DEVICE)}
        return frozenset({*nodes, *leaves, *ports})

    def _part(self, end: Mapping[str, Any]) -> str:
        """A port as it is called here; a device where it has no port."""
        name, port = end["name"], end.get("port")
        if not port:
            return str(name)
        is_adapter = name in self.plan and not port.startswith("rail")
        return f"{name}/{IB_DEVICE if is_adapter else port}"


def nodes_of(hypernodes: Mapping[str, Object]) -> dict[str, frozenset[str]]:
    """All nodes below each HyperNode, by its name."""

    def below(name: str, depth: int) -> frozenset[str]:
        one = hypernodes.get(name)
        if one is None:
            return frozenset()
        names = members(one)
        if one["spec"]["tier"] == 1 or depth > len(hypernodes):
            return names
        return frozenset().union(*(below(member, depth + 1) for member in names))

    return {name: below(name, 0) for name in hypernodes}


def tree_of(hypernodes: Mapping[str, Object]) -> Tree:
    nodes = nodes_of(hypernodes)
    return frozenset((one["spec"]["tier"], nodes[name]) for name, one in hypernodes.items())


def _without(nodes: Collection[str], tree: Tree) -> Tree:
    """The tree without some nodes, and without domains that have no others."""
    left = ((tier, names.difference(nodes)) for tier, names in tree)
    return frozenset((tier, names) for tier, names in left if names) if nodes else tree


def _words(tree: Tree) -> str:
    return "; ".join(f"{tier}: {' '.join(sorted(names))}" for tier, names in sorted(tree, key=_order))


def _order(domain: tuple[int, frozenset[str]]) -> tuple[int, list[str]]:
    return domain[0], sorted(domain[1])
