"""Cabling plans of other systems for the five cables of `support.topologies.two_leaves`."""

import json
from collections.abc import Iterable
from typing import Any

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


def netbox_end(device: str, port: str, kind: str = "dcim.interface") -> dict[str, Any]:
    """An end of a cable, as NetBox 4.6 writes it."""
    found = {"id": 5, "display": port, "device": {"id": 3, "display": device, "name": device}, "name": port}
    return {"object_type": kind, "object_id": 5, "object": found}


def netbox_cable(ident: int, *ends: Any, status: str = "connected") -> dict[str, Any]:
    """A cable as NetBox 4.6 writes it. `ends`: one of side A, then those of side B."""
    return {
        "id": ident,
        "display": f"#{ident}",
        "type": "aoc",
        "a_terminations": list(ends[:1]),
        "b_terminations": list(ends[1:]),
        "status": {"value": status, "label": status.title()},
        "profile": None,
    }


def netbox_json(*cables: Any) -> bytes:
    """The answer to `GET /api/dcim/cables/`."""
    page = {"count": len(cables), "next": None, "previous": None, "results": list(cables)}
    return json.dumps(page).encode()


NETBOX_HEADER = "side_a_device,side_a_type,side_a_name,side_b_device,side_b_type,side_b_name"


def _netbox_csv(cables: Iterable[tuple[str, ...]]) -> bytes:
    lines = (f"{a},dcim.interface,{p},{b},dcim.interface,{q}\n" for a, p, b, q in cables)
    return f"{NETBOX_HEADER}\n{''.join(lines)}".encode()


PLANS = {
    "Graphviz DOT": _dot(CABLES),
    "NetBox JSON": netbox_json(
        *(netbox_cable(i, netbox_end(a, p), netbox_end(b, q)) for i, (a, p, b, q) in enumerate(CABLES, 1))
    ),
    "NetBox CSV": _netbox_csv(CABLES),
}
