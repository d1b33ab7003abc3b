"""The healthy status of each condition, and the marks of conditions that are not healthy."""

from hyperscout_topology.topology import HyperNode

HEALTHY = {"Ready": "True", "Degraded": "False", "Consistent": "True", "Stale": "False"}


def marks(hypernode: HyperNode) -> list[tuple[str, str, str]]:
    """(mark, reason, message) of each unhealthy condition.

    Marks are for example NotReady, Degraded, Stale?.
    """
    found = []
    for condition in hypernode.conditions:
        healthy = HEALTHY.get(condition.type)
        if healthy is None or condition.status == healthy:
            continue
        word = condition.type if healthy == "False" else f"Not{condition.type}"
        unsure = "?" if condition.status == "Unknown" else ""
        found.append((word + unsure, condition.reason, condition.message))
    return found
