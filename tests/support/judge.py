"""Judges an inferred topology against the known truth of a fabric.

`expected` has the format of a generated case.json:
- "truth": for each tier from tier 1 up, host -> label of its domain. None if the switches are no tree.
- "or": other truths that are right as well.
- "tier1": for a fabric without a tree, host -> label of its switch.
- "may_be_missing": hosts that may be left out if this is reported.
- "foreign": endpoints that do not compute.
- "faults": "kind" is the kind of the expected anomaly. "ends" are lists of the names that a device may have,
  then the port, None = any. Of a switch that is down the first end is the switch, the others are what was
  cabled to it.
- "allow": kinds of anomalies that are acceptable.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hyperscout_topology.topology import Anomaly, Endpoint, Topology

Expected = Mapping[str, Any]
Fault = Mapping[str, Any]
Tiers = list[dict[str, str]]

ACCUSING = 0.5  # the lowest confidence that accuses
ACCUSATIONS = frozenset({"MissingLink", "MissingSwitch", "Miswired", "SlowLink"})
# Kinds that are about one device or cable. Any other kind is a note about the fabric.
_LOCAL = ACCUSATIONS | {"ErroringLink", "SourcesDisagree", "UnknownHost"}
_NAMING = {"Miswired": frozenset({"Miswired", "SourcesDisagree"})}
# What a fault causes besides: anomalies of these kinds at one of its ends are not false.
_BESIDES = {
    "MissingSwitch": frozenset({"MissingSwitch", "MissingLink"}),
    "Miswired": frozenset({"Miswired", "SourcesDisagree", "MissingLink"}),
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """Every field is empty if the topology is right.

    `tree`: what is wrong with it, in words. `unnamed`: planted faults without an anomaly. `false`: anomalies
    that accuse healthy parts. `silent`: hosts that are neither in the tree nor reported.
    """

    tree: tuple[str, ...] = ()
    unnamed: tuple[Fault, ...] = ()
    false: tuple[Anomaly, ...] = ()
    silent: frozenset[str] = frozenset()

    @property
    def right(self) -> bool:
        return not (self.tree or self.unnamed or self.false or self.silent)


def judge(expected: Expected, topology: Topology, warnings: Sequence[str] = ()) -> Verdict:
    """Judge a topology. `warnings`: lines that the command prints about it, other than anomalies."""
    faults = expected.get("faults", ())
    naming = [[f for f in faults if names(a, f, topology)] for a in topology.anomalies]
    accused = [
        a
        for a, named in zip(topology.anomalies, naming, strict=True)
        if not named and accuses(a) and a.kind not in expected.get("allow", ()) and not follows(a, faults)
    ]
    return Verdict(
        tuple(_tree(expected, topology) if expected["truth"] else _no_tree(expected, topology, warnings)),
        tuple(f for f in faults if not any(f is other for named in naming for other in named)),
        tuple(accused),
        _silent(expected, topology, warnings),
    )


def is_real(anomaly: Anomaly, expected: Expected, topology: Topology) -> bool:
    """Whether an anomaly names a planted fault or follows from one."""
    faults = expected.get("faults", ())
    return any(names(anomaly, f, topology) for f in faults) or follows(anomaly, faults)


def accuses(anomaly: Anomaly) -> bool:
    return anomaly.kind in ACCUSATIONS and anomaly.confidence >= ACCUSING


def names(anomaly: Anomaly, fault: Fault, topology: Topology) -> bool:
    """Whether an anomaly names a planted fault: the right kind with both ends."""
    if anomaly.kind not in _NAMING.get(fault["kind"], {fault["kind"]}):
        return False
    ends, planted = _ends(anomaly), fault["ends"]
    if fault["kind"] == "MissingSwitch":
        return _names_switch(anomaly, planted, topology)
    if len(planted) == 1:
        return any(_is(end, planted[0]) for end in ends)
    orders = (ends, ends[::-1]) if len(ends) == 2 else ()
    return any(_is(a, planted[0]) and _is(b, planted[1]) for a, b in orders)


def _names_switch(anomaly: Anomaly, planted: Sequence[Sequence[Any]], topology: Topology) -> bool:
    """By its name, by a port or host that was cabled to it, or by a domain whose hosts all were."""
    if any(_is_port(end, p) for end in _ends(anomaly) for p in planted):
        return True
    cabled = {name for *end_names, _ in planted for name in end_names}
    below = next((set(h.nodes) for h in topology.hypernodes if h.name == anomaly.hypernode), set())
    return bool(below) and below <= cabled


def follows(anomaly: Anomaly, faults: Iterable[Fault]) -> bool:
    """Whether an anomaly is at one end of a planted fault and of a kind that such a fault causes."""
    return any(
        anomaly.kind in _BESIDES.get(fault["kind"], {fault["kind"]})
        and any(_is_port(end, planted) for end in _ends(anomaly) for planted in fault["ends"])
        for fault in faults
    )


def _ends(anomaly: Anomaly) -> list[Endpoint]:
    return [end for end in (anomaly.subject, anomaly.peer) if end is not None]


def _is(end: Endpoint, planted: Sequence[Any]) -> bool:
    *device, port = planted
    unknown = port is None or end.port is None
    return bool({end.device, end.name}.intersection(device)) and (unknown or end.port == str(port))


def _is_port(end: Endpoint, planted: Sequence[Any]) -> bool:
    """As `_is`, but where the planted end has a port, the anomaly must give one."""
    return _is(end, planted) and (planted[-1] is None or end.port is not None)


# The tree


def _tiers(topology: Topology) -> tuple[Tiers, set[str]]:
    """Return host -> HyperNode for each tier from the lowest up, and the hosts that are twice in a tier."""
    found: dict[int, dict[str, str]] = {}
    twice: set[str] = set()
    for hypernode in topology.hypernodes:
        tier = found.setdefault(hypernode.tier, {})
        twice |= tier.keys() & set(hypernode.nodes)
        tier |= dict.fromkeys(hypernode.nodes, hypernode.name)
    return [found[tier] for tier in sorted(found)], twice


def domains(labels: Mapping[str, str], hosts: Iterable[str]) -> set[frozenset[str]]:
    """Return the domains of one tier, reduced to these hosts."""
    found: dict[str, set[str]] = {}
    for host in labels.keys() & set(hosts):
        found.setdefault(labels[host], set()).add(host)
    return {frozenset(domain) for domain in found.values()}


def _tree(expected: Expected, topology: Topology) -> list[str]:
    """Compare with the truth that fits best."""
    truths = [expected["truth"], *expected.get("or", ())]
    return min((_against(truth, expected, topology) for truth in truths), key=len)


def _against(truth: Tiers, expected: Expected, topology: Topology) -> list[str]:
    found, twice = _tiers(topology)
    placed = {host for tier in found for host in tier}
    hosts, optional = set(truth[0]), set(expected.get("may_be_missing", ()))
    wrong = [
        f"{what}: {_some(which)}"
        for what, which in (
            ("not in the tree", hosts - optional - placed),
            ("not a host", placed - hosts - optional - set(expected.get("foreign", ()))),
            ("twice in one tier", twice),
        )
        if which
    ]
    here = hosts & placed
    mine = [some for some in (domains(tier, here) for tier in found) if some]
    true = [some for some in (domains(tier, here) for tier in truth) if some]
    if len(mine) != len(true):
        return [*wrong, f"domains by tier {[len(t) for t in mine]}, expected {[len(t) for t in true]}"]
    pairs = enumerate(zip(mine, true, strict=True), 1)
    return [
        *wrong,
        *(f"tier {n}: {len(m - t)} of {len(m)} domains are wrong" for n, (m, t) in pairs if m != t),
    ]


def _no_tree(expected: Expected, topology: Topology, warnings: Sequence[str]) -> list[str]:
    """Tier 1 has a domain for each switch, and there is one root over all hosts or a note about the shape."""
    found, twice = _tiers(topology)
    placed = {host for tier in found for host in tier}
    wrong = [f"twice in one tier: {_some(twice)}"] if twice else []
    if found and domains(found[0], placed) != domains(expected["tier1"], placed):
        wrong.append("tier 1 does not have one domain for each switch")
    noted = bool(warnings) or any(a.kind not in _LOCAL for a in topology.anomalies)
    roots = [h for h in topology.hypernodes if h.parent is None]
    if not noted and (len(roots) != 1 or set(expected["tier1"]) - placed):
        wrong.append(f"{len(roots)} roots, and no note that the fabric is no tree")
    return wrong


def _some(names_: Iterable[str]) -> str:
    listed = sorted(names_)
    return ", ".join(listed[:3]) + (f" and {len(listed) - 3} more" if len(listed) > 3 else "")


# Silence

_LIST = re.compile(r"([\w.-]*)\[(\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*)\]([\w.-]*)")
_WORD = re.compile(r"[\w.-]*\w")
_NUMBER = re.compile(r"(?<![\w./-])\d+(?![\w./-])")


def _silent(expected: Expected, topology: Topology, warnings: Sequence[str]) -> frozenset[str]:
    """Return the hosts in no domain that no text names.

    A line with their number suffices if they are listed as nodes without evidence or foreign endpoints.
    """
    hosts = set(expected["truth"][0] if expected["truth"] else expected["tier1"])
    hosts |= set(expected.get("may_be_missing", ()))
    away = hosts - {node for h in topology.hypernodes for node in h.nodes}
    if not away:
        return frozenset()
    texts = [*warnings, *(a.message for a in topology.anomalies)]
    texts += [end.name for a in topology.anomalies for end in _ends(a)]
    said = {word for text in texts for word in _WORD.findall(_LIST.sub(_expanded, text))}
    unsaid = away - said
    listed = {*topology.nodes_without_evidence, *topology.foreign_endpoints}
    numbers = {int(number) for line in warnings for number in _NUMBER.findall(line)}
    counted = {len(unsaid), len(away), len(listed), len(listed - said)}
    return frozenset() if unsaid <= listed and numbers & counted else frozenset(unsaid)


def _expanded(match: re.Match[str]) -> str:
    """n[1-3,7] -> "n1 n2 n3 n7"."""
    found = []
    for part in match[2].split(","):
        low, _, high = part.partition("-")
        last = min(int(high or low), int(low) + 10_000)
        found += [f"{match[1]}{n:0{len(low)}d}{match[3]}" for n in range(int(low), last + 1)]
    return " ".join(found)
