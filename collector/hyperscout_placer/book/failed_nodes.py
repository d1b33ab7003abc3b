"""Remembers the failed nodes of a gang until they are cleared or healthy again.

The caller of a repair may know of a fault that the collector does not see: the agent of a node with a broken
GPU continues to report. So a report alone does not make a node healthy. A failed node is healthy again when
all of these are true:

- It was down after it was reported as failed, as the placer sees it (`Placements.is_down`).
- It is not down any more.
- Its agent has reported since it was first seen down.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class FailedNode:
    """Times are Unix ns. `down_ns`: when it was first seen down since the report; 0 = it was not."""

    node: str
    reported_ns: int
    down_ns: int = 0


Failed = tuple[FailedNode, ...]  # by name


def after_report(failed: Failed, nodes: Collection[str], now_ns: int) -> Failed:
    """Add nodes. A node that is reported again has to be seen down again."""
    kept = {x.node: x for x in failed} | {node: FailedNode(node, now_ns) for node in nodes}
    return tuple(kept[node] for node in sorted(kept))


def after_clearing(failed: Failed, nodes: Collection[str]) -> Failed:
    return tuple(x for x in failed if x.node not in nodes)


def after_look(
    failed: Failed, is_down: Callable[[str], bool], seen_ns: Callable[[str], int], now_ns: int
) -> Failed:
    """Remove the nodes that are healthy again. `seen_ns(node)`: when its agent last reported, 0 = never."""
    found = []
    for x in failed:
        if is_down(x.node):
            found.append(x if x.down_ns else replace(x, down_ns=now_ns))
        elif not x.down_ns or seen_ns(x.node) <= x.down_ns:
            found.append(x)
    return tuple(found)
