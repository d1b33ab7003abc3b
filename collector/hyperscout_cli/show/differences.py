"""What changed between two topologies, in lines: `+` new, `-` gone, `~` changed."""

from collections.abc import Iterator

from hyperscout_formats.text.host_list import fold, natural_key
from hyperscout_topology.diff import Changes, Diff
from hyperscout_topology.objects import device_names
from hyperscout_topology.topology import HyperNode, Topology

from hyperscout_cli.shared.kinds import end_text

_CHANGES = {"+": "added", "-": "removed", "~": "changed"}


def difference(line: str) -> dict[str, str]:
    """A line as an object. `change`: added, removed, changed, or empty where the line is a sentence."""
    sign, _, rest = line.partition(" ")
    if sign not in _CHANGES:
        return {"change": "", "what": "", "message": line}
    what, _, message = rest.partition(" ")
    return {"change": _CHANGES[sign], "what": what, "message": message.strip()}


def differences(before: Topology, after: Topology) -> Iterator[str]:
    """HyperNodes, then cables, then anomalies; nothing when the two are alike."""
    diff = Diff(before, after)
    yield from _hypernodes(diff.hypernodes)
    removed, added = (
        {(x.a_device, x.a_port, x.b_device, x.b_port) for x in links}
        for links in (diff.links.removed, diff.links.added)
    )
    names = device_names(before) | device_names(after)

    def cable(ends: tuple[str, str, str, str]) -> str:
        a, a_port, b, b_port = ends
        return f"link {names.get(a, a)}/{a_port} -- {names.get(b, b)}/{b_port}"

    yield from (f"- {text}" for text in sorted(map(cable, removed - added), key=natural_key))
    yield from (f"+ {text}" for text in sorted(map(cable, added - removed), key=natural_key))
    for sign, anomalies in (("-", diff.anomalies.removed), ("+", diff.anomalies.added)):
        lines = (
            f"{sign} anomaly {x.kind} "
            f"{' -> '.join(filter(None, (end_text(x.subject), end_text(x.peer))))}: {x.message}"
            for x in anomalies
        )
        yield from sorted(lines, key=natural_key)


def _hypernodes(found: Changes[HyperNode]) -> Iterator[str]:
    for sign, hypernodes in (("-", found.removed), ("+", found.added)):
        for h in sorted(hypernodes, key=lambda h: natural_key(h.name)):
            yield f"{sign} hypernode {h.name}  {_level(h)}  {fold(h.nodes)}"
    for old, new in sorted(found.changed, key=lambda pair: natural_key(pair[0].name)):
        if changes := list(_changes(old, new)):
            yield f"~ hypernode {old.name}: {'; '.join(changes)}"


def _level(hypernode: HyperNode) -> str:
    return f"tier {hypernode.tier} {hypernode.tier_name}".rstrip()


def _changes(old: HyperNode, new: HyperNode) -> Iterator[str]:
    if _level(old) != _level(new):
        yield f"{_level(old)} -> {_level(new)}"
    if old.source != new.source:
        yield f"source {old.source} -> {new.source}"
    if old.parent != new.parent:
        yield f"parent {old.parent or 'none'} -> {new.parent or 'none'}"
    for sign, these, others in (("+", new, old), ("-", old, new)):
        if nodes := set(these.nodes) - set(others.nodes):
            yield f"{sign} nodes {fold(nodes)}"
        if switches := set(these.switches) - set(others.switches):
            yield f"{sign} switches {fold(switches)}"
    was = {c.type: (c.status, c.reason) for c in old.conditions}
    for c in new.conditions:
        if was.get(c.type) != (c.status, c.reason):
            before = was.get(c.type, ("unset", ""))[0]
            yield f"{c.type} {before} -> {c.status} ({c.reason})"
