"""Reads fields of API objects, which may contain anything."""

from typing import Any, TypeGuard

from hyperscout_kubernetes.client import Object
from hyperscout_placer.cluster.request import MAX_PARTS, MAX_WORKERS

from hyperscout_gates.state.gang import GATE, GangError


def mapping(value: Any) -> Object:
    """Return `value` if it is a dict, else {}."""
    return value if isinstance(value, dict) else {}


def text(value: Any) -> str:
    """Return `value` if it is a string, else ""."""
    return value if isinstance(value, str) else ""


def is_number(value: object) -> TypeGuard[str]:
    """Return whether `value` is the text of a number of at most nine digits."""
    return isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 10


def count(what: str, field: str, value: object, default: int = 1) -> int:
    """Return a valid count, or `default` if `value` is None. Raises GangError."""
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_WORKERS:
        raise GangError(f"{what}: {field}: {str(value)[:40]!r}: expected a number from 0 to {MAX_WORKERS}")
    return value


def some(what: str, field: str, value: object, least: int = 0) -> list[object]:
    """Return a list of `least` to MAX_PARTS values; None counts as empty. Raises GangError."""
    listed = [] if value is None else value
    if not isinstance(listed, list) or not least <= len(listed) <= MAX_PARTS:
        raise GangError(f"{what}: {field}: expected {least} to {MAX_PARTS} of them")
    return listed


def is_gated(pod: Object) -> bool:
    """Return whether the pod has this collector's scheduling gate."""
    return gated(pod.get("spec"))


def gated(pod_spec: Any) -> bool:
    """Return whether a pod of this spec has this collector's scheduling gate."""
    gates = mapping(pod_spec).get("schedulingGates")
    return isinstance(gates, list) and any(mapping(gate).get("name") == GATE for gate in gates)
