"""Parses Kubernetes resource amounts, and computes what a pod requests as the kube-scheduler counts it.

The placer must count exactly as the scheduler does. Otherwise a gang is pinned to nodes where the scheduler
finds one millicore too few, and waits for ever.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

BITS = 62  # so that the sum of two amounts still fits a signed 64-bit column
_MAX_TEXT = 64  # characters; the canonical forms of the API have at most 20

# https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/
_QUANTITY = re.compile(
    r"(?P<sign>[+-]?)(?P<whole>[0-9]*)(?:\.(?P<part>[0-9]*))?"
    r"(?:(?P<suffix>[numkMGTPE]|[KMGTPE]i)|[eE](?P<exponent>[+-]?[0-9]{1,4}))?",
    re.ASCII,
)
_POWERS_OF_TEN = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_POWERS_OF_TWO = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}

Fields = Mapping[str, Any]
Needs = tuple[tuple[str, int], ...]


class QuantityError(ValueError):
    """The text is not an amount, or the amount is out of range. The message names the field."""


def amount(resource: str, text: str) -> int:
    """The amount in base units: milli for "cpu", else bytes or pieces; rounded up. Raises QuantityError."""
    if len(text) > _MAX_TEXT:
        raise _no_quantity(resource, text)
    return _amount(resource, text)


# The pods of a cluster request few different amounts.
@lru_cache(maxsize=4096)
def _amount(resource: str, text: str) -> int:
    match = _QUANTITY.fullmatch(text)
    if match is None or not (match["whole"] or match["part"]):
        raise _no_quantity(resource, text)
    part = match["part"] or ""
    digits = int(match["whole"] + part)
    if match["sign"] == "-" and digits:
        raise QuantityError(f"{resource}: {text!r}: expected 0 or more")
    if not digits:
        return 0
    suffix = match["suffix"] or ""
    value: int = digits << _POWERS_OF_TWO.get(suffix, 0)
    tens = int(match["exponent"]) if match["exponent"] else _POWERS_OF_TEN.get(suffix, 0)
    tens += (3 if resource == "cpu" else 0) - len(part)
    # The digits and the suffix give less than 10^100, so a power beyond 10^±100 does not change the result.
    value = value * 10 ** min(tens, 100) if tens >= 0 else -(-value // 10 ** min(-tens, 100))
    if value >= 2**BITS:
        raise QuantityError(f"{resource}: {text!r}: expected less than 2^{BITS}")
    return value


def _no_quantity(resource: str, text: str) -> QuantityError:
    return QuantityError(f"{resource}: {text[:_MAX_TEXT]!r}: expected a quantity like 4, 500m, 1.5 or 16Gi")


def amounts(where: str, listed: object) -> dict[str, int]:
    """Amounts by name of a resource list like {"cpu": "500m"}. Raises QuantityError."""
    if listed is None:
        return {}
    if not isinstance(listed, Mapping):
        raise QuantityError(f"{where}: expected resources by name")
    found: dict[str, int] = {}
    for name, text in listed.items():
        # Templates within custom resources may contain plain numbers.
        if isinstance(text, bool) or not isinstance(text, str | int | float):
            raise QuantityError(f"{where}.{name}: expected a quantity like 4, 500m, 1.5 or 16Gi")
        try:
            found[str(name)] = amount(str(name), text if isinstance(text, str) else _digits(text))
        except QuantityError as error:
            raise QuantityError(f"{where}.{error}") from error
    return found


def needs(pod_spec: Fields) -> Needs:
    """What a pod requests, by resource, sorted by name.

    For each resource this is the sum of its containers, or its largest init container if that is more; plus
    the sidecars (init containers that keep running), the overhead, and "pods": 1. Resources that are
    requested at pod level replace the sum. Raises QuantityError.
    """
    total = {"pods": 1}
    beside: dict[str, int] = {}  # sidecars that run already
    most: dict[str, int] = {}
    for i, container in enumerate(_containers(pod_spec, "initContainers")):
        requested = _requested(f"initContainers[{i}].resources", container.get("resources"))
        if container.get("restartPolicy") == "Always":
            _add(beside, requested)
        else:
            _add(requested, beside)
            _raise(most, requested)
    running = dict(beside)
    for i, container in enumerate(_containers(pod_spec, "containers")):
        _add(running, _requested(f"containers[{i}].resources", container.get("resources")))
    _raise(running, most)
    running.update(_of_pod(pod_spec.get("resources"), running))
    _add(total, running)
    _add(total, amounts("overhead", pod_spec.get("overhead")))
    for name, value in total.items():
        if value >= 2**BITS:
            raise QuantityError(f"{name}: the pod's containers together: expected less than 2^{BITS}")
    return tuple(sorted((name, value) for name, value in total.items() if value))


def is_extended(resource: str) -> bool:
    """Whether the resource is a vendor's (a GPU) and not one of Kubernetes itself (CPU, huge pages)."""
    return "/" in resource and "kubernetes.io/" not in resource


def _requested(where: str, resources: object) -> dict[str, int]:
    """Requests, or the limit where there is no request.

    The API server fills in requests for pods in the same way, but not for templates.
    """
    if resources is None:
        return {}
    if not isinstance(resources, Mapping):
        raise QuantityError(f"{where}: expected requests and limits")
    limits = amounts(f"{where}.limits", resources.get("limits"))
    return limits | amounts(f"{where}.requests", resources.get("requests"))


def _of_pod(resources: object, running: Mapping[str, int]) -> dict[str, int]:
    """The pod-level requests, which override the sum. Only cpu, memory and huge pages are possible there.

    A limit without a request counts for huge pages, and where no container names the resource.
    """
    if resources is None:
        return {}
    if not isinstance(resources, Mapping):
        raise QuantityError("resources: expected requests and limits")
    requests = amounts("resources.requests", resources.get("requests"))
    for name, value in amounts("resources.limits", resources.get("limits")).items():
        if name.startswith("hugepages-") or name not in running:
            requests.setdefault(name, value)
    return {
        name: value
        for name, value in requests.items()
        if name in ("cpu", "memory") or name.startswith("hugepages-")
    }


def _containers(pod_spec: Fields, field: str) -> list[Fields]:
    listed = pod_spec.get(field) or []
    if not isinstance(listed, list) or not all(isinstance(x, Mapping) for x in listed):
        raise QuantityError(f"{field}: expected a list of containers")
    return listed


def _add(total: dict[str, int], more: Mapping[str, int]) -> None:
    for name, value in more.items():
        total[name] = total.get(name, 0) + value


def _raise(most: dict[str, int], other: Mapping[str, int]) -> None:
    for name, value in other.items():
        most[name] = max(most.get(name, 0), value)


def _digits(number: float) -> str:
    """The text of a plain number. inf and nan stay text that `amount` refuses."""
    try:
        return str(number)
    except ValueError:  # an int with more digits than Python converts to text
        return "a number of thousands of digits"
