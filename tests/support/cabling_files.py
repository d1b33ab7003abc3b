"""Cabling plans of other systems for the five cables of `support.topologies.two_leaves`."""

from collections.abc import Iterable

from hyperscout_formats.cabling.plan import Plan

CABLES = [
    ("n01", "mlx5_0", "leaf-a", "1"),
    ("n02", "mlx5_0", "leaf-a", "2"),
    ("n04", "mlx5_0", "leaf-b", "2"),
    ("leaf-a", "9", "spine", "1"),
    ("leaf-b", "9", "spine", "2"),
]


def rows(plan: Plan) -> list[tuple[str, ...]]:
    """The cables of a plan: device and port of both ends."""
    return [(*cable.a, *cable.b) for cable in plan.cables]


def _dot(cables: Iterable[tuple[str, ...]]) -> bytes:
    edges = "".join(f'    "{a}":"{p}" -- "{b}":"{q}";\n' for a, p, b, q in cables)
    return f"// Hall 1\ngraph G {{\n{edges}}}\n".encode()


PLANS = {"Graphviz DOT": _dot(CABLES)}
