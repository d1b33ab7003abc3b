"""Converts what the roles of a request demand of nodes: messages to JSON of a pod's spec, and back.

The checks are those of the API server for pods (validation of NodeSelector, NodeAffinity and Toleration in
pkg/apis/core/validation of Kubernetes 1.36). Every error names its field as it is called in the message.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sized
from typing import Any

from google.protobuf.json_format import MessageToDict, ParseDict
from hyperscout.v1 import placement_pb2 as pb

from hyperscout_placer.cluster.request import RequestError
from hyperscout_placer.demands.eligible import CANONICAL, INTEGER, LABEL_VALUE, MAX_TERMS, MAX_WEIGHT, NAME

_MAX_CHARS = 65_536  # of the JSON of one role
_MAX_VALUES = 256
_PREFIX = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", re.ASCII)
_EFFECTS = ("", "NoSchedule", "PreferNoSchedule", "NoExecute")
# By operator of an expression: the least and the largest number of values.
_VALUES = {
    "In": (1, _MAX_VALUES),
    "NotIn": (1, _MAX_VALUES),
    "Exists": (0, 0),
    "DoesNotExist": (0, 0),
    "Gt": (1, 1),
    "Lt": (1, 1),
}

Demands = tuple[tuple[str, str], ...]  # role -> JSON, as in `Request`


def demands_of(parts: Iterable[pb.Part]) -> Demands:
    """What each role demands. Raises RequestError."""
    found: dict[str, tuple[str, str]] = {}
    for where, workers in _workers(parts, "parts"):
        role, text = workers.role or "worker", _text(workers, where)
        first, before = found.setdefault(role, (where, text))
        if before != text:
            raise RequestError(
                f"{where}: node_selector, tolerations or affinity differ from those of {first}, which has "
                f"the same role {role!r}: give it another role"
            )
    return tuple(sorted((role, text) for role, (_, text) in found.items() if text))


def put_demands(demands: Demands, parts: Iterable[pb.Part]) -> None:
    """Add to each role of a message what it demands; the inverse of `demands_of`."""
    specs = dict(demands)
    for _, workers in _workers(parts, ""):
        if (text := specs.get(workers.role)) is not None:
            ParseDict(json.loads(text), workers)


def _workers(parts: Iterable[pb.Part], where: str) -> Iterator[tuple[str, pb.Workers]]:
    for i, part in enumerate(parts):
        if part.HasField("group"):
            yield from _workers(part.group.parts, f"{where}[{i}].group.parts")
        elif part.HasField("workers"):
            yield f"{where}[{i}].workers", part.workers


def _text(workers: pb.Workers, where: str) -> str:
    """The JSON of the fields of a pod's spec; "" = no demands. Raises RequestError."""
    spec: dict[str, Any] = {}
    if workers.node_selector:
        _check_labels(workers.node_selector, f"{where}.node_selector")
        spec["nodeSelector"] = dict(workers.node_selector)
    if workers.tolerations:
        for i, toleration in enumerate(workers.tolerations):
            _check_toleration(toleration, f"{where}.tolerations[{i}]")
        spec["tolerations"] = [MessageToDict(x) for x in workers.tolerations]
    if workers.HasField("affinity"):
        _check_affinity(workers.affinity.node_affinity, f"{where}.affinity.node_affinity")
        spec["affinity"] = MessageToDict(workers.affinity)
    text = json.dumps(spec, sort_keys=True) if spec else ""
    if len(text) > _MAX_CHARS:
        raise RequestError(
            f"{where}: node_selector, tolerations and affinity have {len(text)} characters as JSON: "
            f"at most {_MAX_CHARS}"
        )
    return text


def _check_labels(labels: Mapping[str, str], where: str) -> None:
    for key, value in sorted(labels.items()):
        _check_key(key, f"{where}[{key[:317]!r}]")
        _check_value(value, f"{where}[{key[:317]!r}]")


def _check_affinity(affinity: pb.NodeAffinity, where: str) -> None:
    required = "required_during_scheduling_ignored_during_execution"
    if affinity.HasField(required):  # type: ignore[arg-type]
        at = f"{where}.{required}.node_selector_terms"
        terms = affinity.required_during_scheduling_ignored_during_execution.node_selector_terms
        if not terms:
            raise RequestError(f"{at}: expected at least one term")
        _check_most(terms, at)
        for i, term in enumerate(terms):
            _check_term(term, f"{at}[{i}]")
    all_preferred = f"{where}.preferred_during_scheduling_ignored_during_execution"
    _check_most(affinity.preferred_during_scheduling_ignored_during_execution, all_preferred)
    for i, preferred in enumerate(affinity.preferred_during_scheduling_ignored_during_execution):
        at = f"{all_preferred}[{i}]"
        if not 1 <= preferred.weight <= MAX_WEIGHT:
            raise RequestError(f"{at}.weight: {preferred.weight}: expected 1 to {MAX_WEIGHT}")
        _check_term(preferred.preference, f"{at}.preference")


def _check_most(found: Sized, where: str) -> None:
    if len(found) > MAX_TERMS:
        raise RequestError(f"{where}: {len(found)}: expected at most {MAX_TERMS}")


def _check_term(term: pb.NodeSelectorTerm, where: str) -> None:
    _check_most(term.match_expressions, f"{where}.match_expressions")
    _check_most(term.match_fields, f"{where}.match_fields")
    for i, expression in enumerate(term.match_expressions):
        at = f"{where}.match_expressions[{i}]"
        _check_key(expression.key, f"{at}.key")
        _check_count(expression, at, _VALUES)
        for value in expression.values:
            _check_value(value, f"{at}.values")
            if expression.operator in ("Gt", "Lt") and not INTEGER.fullmatch(value):
                raise RequestError(f"{at}.values: {value!r}: expected an integer for {expression.operator}")
    for i, field in enumerate(term.match_fields):
        at = f"{where}.match_fields[{i}]"
        if field.key != NAME:
            raise RequestError(f"{at}.key: {field.key[:317]!r}: expected {NAME}")
        _check_count(field, at, {"In": (1, 1), "NotIn": (1, 1)})


def _check_count(found: pb.NodeSelectorRequirement, where: str, known: Mapping[str, tuple[int, int]]) -> None:
    """Check the operator and the number of values."""
    if found.operator not in known:
        raise RequestError(f"{where}.operator: {found.operator[:40]!r}: expected {', '.join(known)}")
    least, most = known[found.operator]
    if not least <= len(found.values) <= most:
        expected = "no value" if not most else "one value" if most == 1 else f"1 to {most} values"
        raise RequestError(f"{where}.values: {len(found.values)}: expected {expected} for {found.operator}")


def _check_toleration(found: pb.Toleration, where: str) -> None:
    if found.operator not in ("", "Equal", "Exists", "Lt", "Gt"):
        raise RequestError(f"{where}.operator: {found.operator[:40]!r}: expected Equal, Exists, Lt or Gt")
    if found.effect not in _EFFECTS:
        raise RequestError(f"{where}.effect: {found.effect[:40]!r}: expected {', '.join(_EFFECTS[1:])}")
    if found.key:
        _check_key(found.key, f"{where}.key")
    elif found.operator != "Exists":
        raise RequestError(f"{where}.key: empty: expected the key of a taint, or the operator Exists")
    if found.operator == "Exists" and found.value:
        raise RequestError(f"{where}.value: {found.value[:63]!r}: expected no value for Exists")
    if found.operator not in ("Lt", "Gt"):
        _check_value(found.value, f"{where}.value")
    elif not CANONICAL.fullmatch(found.value):
        raise RequestError(f"{where}.value: {found.value[:63]!r}: expected an integer for {found.operator}")
    if found.HasField("toleration_seconds") and found.effect != "NoExecute":
        raise RequestError(f"{where}.toleration_seconds: expected only with the effect NoExecute")


def _check_key(key: str, where: str) -> None:
    prefix, slash, name = key.rpartition("/")
    valid = bool(name) and LABEL_VALUE.fullmatch(name) is not None
    if slash:
        valid = valid and len(prefix) <= 253 and _PREFIX.fullmatch(prefix) is not None
    if not valid:
        raise RequestError(f"{where}: {key[:317]!r}: expected a key such as zone or example.com/zone")


def _check_value(value: str, where: str) -> None:
    if not LABEL_VALUE.fullmatch(value):
        raise RequestError(
            f"{where}: {value[:63]!r}: expected at most 63 letters, digits, '-', '_' and '.', starting and "
            "ending with a letter or digit"
        )
