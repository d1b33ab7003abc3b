"""Prints the topology as an indented tree with sizes and problems."""

from collections.abc import Iterable, Iterator

from hyperscout_formats.text.counts import count
from hyperscout_formats.text.host_list import fold, natural_key
from hyperscout_topology.health import marks
from hyperscout_topology.names import visible
from hyperscout_topology.topology import Topology

from hyperscout_cli.shared.columns import shortened, width

_BAD, _GOOD, _QUIET = "\x1b[31m", "\x1b[1m", "\x1b[2m"
_RESET = "\x1b[0m"
_NARROWEST = 12  # minimum columns of a list of hosts, at any depth


def tree(
    topology: Topology, *, colour: bool = False, nodes: bool = True, columns: int | None = None
) -> Iterator[str]:
    """Lines of the tree, roots first; `nodes` adds the hosts under each tier-1 HyperNode.

    Lists of hosts are cut to fit a line of `columns` columns.
    """

    def hosts(names: Iterable[str], before: str) -> str:
        text = visible(fold(names))
        return text if columns is None else shortened(text, max(_NARROWEST, columns - width(before)))

    def paint(code: str, text: str) -> str:
        return f"{code}{text}{_RESET}" if colour else text

    by_name = {h.name: h for h in topology.hypernodes}
    roots = sorted(
        (h for h in topology.hypernodes if h.parent not in by_name),
        key=lambda h: (-h.tier, natural_key(h.name)),
    )
    stack = [(h, "", "") for h in reversed(roots)]
    while stack:
        hypernode, own, below = stack.pop()
        counts = [count(len(hypernode.nodes), "node")]
        if hypernode.switches:  # a tier of NVLink or latency has no switches
            counts.append(count(len(hypernode.switches), "switch"))
        level = f"tier {hypernode.tier}" + (f" {hypernode.tier_name}" if hypernode.tier_name else "")
        wrong = ", ".join(
            paint(_BAD, mark) + (f" ({visible(reason)})" if reason else "")
            for mark, reason, _ in marks(hypernode)
        )
        yield (
            own
            + paint(_GOOD, visible(hypernode.name))
            + f"  {level}  {', '.join(counts)}"
            + (f"  {wrong}" if wrong else "")
            + "\n"
        )
        children = [by_name[c] for c in sorted(hypernode.children, key=natural_key) if c in by_name]
        if nodes and not children and hypernode.nodes:
            yield below + "   " + paint(_QUIET, hosts(hypernode.nodes, below + "   ")) + "\n"
        for i, child in reversed(list(enumerate(children))):
            last = i == len(children) - 1
            stack.append((child, below + ("└─ " if last else "├─ "), below + ("   " if last else "│  ")))
    if topology.nodes_without_evidence:
        missing = topology.nodes_without_evidence
        what = f"{count(len(missing), 'node')} without evidence"
        yield f"{paint(_BAD, what)}: {hosts(missing, what + ': ')}\n"
