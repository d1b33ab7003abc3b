"""Which nodes a pod may run on, and which it prefers, by the rules of kube-scheduler.

The rules must match exactly: a pod is pinned to one node, and if the scheduler refuses that node, the pod
stays pending. Few labels and taints matter to pods, and many nodes agree in them, so each combination is
evaluated once.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from hyperscout_placer.cluster.capacity import Mask
from hyperscout_placer.cluster.forest import Forest

Object = dict[str, Any]  # decoded JSON

# The fields of a pod's spec that decide where it may run.
DEMANDS = ("nodeSelector", "affinity", "tolerations")
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_TERM = ("matchExpressions", "matchFields")
NAME = "metadata.name"
MAX_TERMS = 64  # each node is compared with all terms, and each term with all requirements in it
MAX_WEIGHT = 100
_CORDONED = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
_DOWN = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?", re.ASCII)
INTEGER = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)
CANONICAL = re.compile(r"0|-?[1-9][0-9]{0,18}", re.ASCII)  # integers in tolerations: no "+", no "007"

Labels = Mapping[str, str]
# Takes a node's labels and name, and returns whether one requirement of the affinity is met.
_Test = Callable[[Labels, str], bool]


def demands_key(pod_spec: Object) -> str:
    """Return a key that is equal for pods that may run on, and prefer, the same nodes, whatever exist."""
    return json.dumps(
        [
            _mapping(pod_spec.get("nodeSelector")),
            _terms(pod_spec),
            _tolerations(pod_spec),
            _preferences(pod_spec),
        ],
        sort_keys=True,
        default=str,
    )


def excess(pod_spec: Object) -> str:
    """Return which list is too long to compare each node with all of it; "" = none."""
    required, preferred = _terms(pod_spec) or [], [term for _, term in _preferences(pod_spec)]
    lists: list[tuple[str, Sequence[object]]] = [
        ("tolerations", _tolerations(pod_spec)),
        ("terms of the required node affinity", required),
        ("terms of the preferred node affinity", preferred),
    ]
    every = (*required, *preferred)
    lists += [("requirements in a term of node affinity", _objects(x.get(y))) for x in every for y in _TERM]
    return next(
        (f"{len(x)} {what}: expected at most {MAX_TERMS}" for what, x in lists if len(x) > MAX_TERMS), ""
    )


def mask_for(pod_spec: Object, node: Callable[[str], Object | None], forest: Forest) -> Mask:
    """Return the mask of allowed nodes, with what each of them lacks of the preferences.

    `node`: returns the stored form of a node, None if it is unknown.
    """
    return _Demands(pod_spec).mask(forest.nodes, node)


class _Demands:
    def __init__(self, pod_spec: Object) -> None:
        self._tolerations = _tolerations(pod_spec)
        selector = _mapping(pod_spec.get("nodeSelector"))
        self._selector = list(selector.items())
        terms = _terms(pod_spec)
        self._terms = None if terms is None else [_term(term) for term in terms]
        preferences = _preferences(pod_spec)
        self._preferences = [(weight, _term(term)) for weight, term in preferences]
        every = [*(terms or ()), *(term for _, term in preferences)]
        self._keys = sorted(str(key) for key in {*selector, *_keys_of(every)})
        self._names = _names_of(every)

    def mask(self, names: Sequence[str], node: Callable[[str], Object | None]) -> Mask:
        """Evaluate all nodes; nodes that agree in all relevant fields are evaluated once."""
        judged: dict[tuple[object, ...], tuple[bool, str, int]] = {}
        allowed, lacking = np.zeros(len(names), np.bool_), np.zeros(len(names), np.int64)
        kept_out: dict[int, str] = {}
        keys, apart = self._keys, self._names
        for i, name in enumerate(names):
            found = node(name)
            if found is None:
                continue
            labels, spec = found["metadata"]["labels"], found["spec"]
            taints = spec["taints"]
            kind = (
                tuple(map(labels.get, keys)),
                tuple([(t.get("key"), t.get("value"), t.get("effect")) for t in taints]) if taints else (),
                spec["unschedulable"],
                found["ready"]["status"],
                name if name in apart else "",
            )
            answer = judged.get(kind)
            if answer is None:
                taints_text = self._not_tolerated(found)
                matches = self._matches(found)
                why = taints_text if matches else ""
                answer = judged[kind] = matches and not taints_text, why, self._lacks(found)
            allowed[i], why, lacking[i] = answer
            if why:
                kept_out[i] = why
        lacking[~allowed] = 0
        return Mask.of(allowed, kept_out, lacking if lacking.any() else None)

    def _not_tolerated(self, node: Object) -> str:
        """Return the taints that keep the pod out, as `kubectl` writes them; "" if there are none."""
        return ", ".join(
            _taint_text(taint)
            for taint in node["spec"]["taints"]
            if taint.get("effect") in ("NoSchedule", "NoExecute") and not self._tolerates(taint)
        )

    def _matches(self, node: Object) -> bool:
        """Return whether the node accepts work and has the required labels, whatever its taints."""
        if node["ready"]["status"] != "True":
            return False
        if node["spec"]["unschedulable"] and not self._tolerates(_CORDONED):
            return False
        labels, name = node["metadata"]["labels"], node["metadata"]["name"]
        if any(key not in labels or labels[key] != value for key, value in self._selector):
            return False
        return self._terms is None or any(all(test(labels, name) for test in term) for term in self._terms)

    def _lacks(self, node: Object) -> int:
        """Return the weights of the preferred terms that the node does not match."""
        labels, name = node["metadata"]["labels"], node["metadata"]["name"]
        return sum(
            weight for weight, term in self._preferences if not all(test(labels, name) for test in term)
        )

    def _tolerates(self, taint: Object) -> bool:
        return any(_tolerated(taint, toleration) for toleration in self._tolerations)


def _taint_text(taint: Object) -> str:
    value = f"={taint['value']}" if taint.get("value") else ""
    return f"{taint.get('key')}{value}:{taint.get('effect')}"


def _tolerations(pod_spec: Object) -> list[Object]:
    """Return the tolerations without those for not-ready and unreachable nodes.

    Admission adds these to pods but not to templates. They do not matter, because such nodes are excluded.
    """
    return [
        found
        for found in _objects(pod_spec.get("tolerations"))
        if not (found.get("key") in _DOWN and found.get("effect") == "NoExecute")
    ]


def _tolerated(taint: Object, toleration: Object) -> bool:
    """Return whether a toleration matches a taint. An empty effect or key matches all.

    Lt and Gt exist since Kubernetes 1.35, behind the gate TaintTolerationComparisonOperators. Without the
    gate, the API server rejects pods that use them.
    """
    if toleration.get("effect") and toleration["effect"] != taint.get("effect"):
        return False
    if toleration.get("key") and toleration["key"] != taint.get("key"):
        return False
    operator = toleration.get("operator") or "Equal"
    wanted, there = toleration.get("value") or "", taint.get("value") or ""
    if operator == "Equal":
        return bool(wanted == there)
    if operator == "Exists":
        return True
    limit, value = _integer(wanted, CANONICAL), _integer(there, CANONICAL)
    if limit is None or value is None:
        return False
    return value < limit if operator == "Lt" else operator == "Gt" and value > limit


def _affinity(pod_spec: Object) -> Object:
    return _mapping(_mapping(pod_spec.get("affinity")).get("nodeAffinity"))


def _preferences(pod_spec: Object) -> list[tuple[int, Object]]:
    """Return the preferred terms with their weights. An empty term has no effect."""
    found = []
    for preferred in _objects(_affinity(pod_spec).get(_PREFERRED)):
        weight, term = preferred.get("weight"), _mapping(preferred.get("preference"))
        if isinstance(weight, int) and 0 < weight <= MAX_WEIGHT and any(term.get(x) for x in _TERM):
            found.append((weight, term))
    return found


def _terms(pod_spec: Object) -> list[Object] | None:
    """Return the terms of the required node affinity, one of which must match; None if there is none."""
    affinity = _affinity(pod_spec)
    if affinity.get(_REQUIRED) is None:
        return None
    return _objects(_mapping(affinity[_REQUIRED]).get("nodeSelectorTerms"))


def _term(term: Object) -> list[_Test]:
    """Return the tests of a term, all of which must pass. An empty or invalid term never matches."""
    tests: list[_Test] = [_expression(found) for found in _objects(term.get("matchExpressions"))]
    tests += [_field(found) for found in _objects(term.get("matchFields"))]
    return tests or [_never]


def _never(labels: Labels, name: str) -> bool:
    return False


def _expression(expression: Object) -> _Test:
    key, operator, values = _parts(expression)
    if not all(LABEL_VALUE.fullmatch(value) for value in values):
        return _never
    known = frozenset(values)
    if operator == "In":
        return lambda labels, name: labels.get(key) in known
    if operator == "NotIn" and values:
        return lambda labels, name: labels.get(key) not in known
    if operator == "Exists" and not values:
        return lambda labels, name: key in labels
    if operator == "DoesNotExist" and not values:
        return lambda labels, name: key not in labels
    if operator in ("Gt", "Lt") and len(values) == 1:
        limit = _integer(values[0], INTEGER)
        sign = 1 if operator == "Gt" else -1
        if limit is None:
            return _never

        def compare(labels: Labels, name: str) -> bool:
            value = _integer(labels.get(key), INTEGER)
            return value is not None and sign * value > sign * limit

        return compare
    return _never


def _field(expression: Object) -> _Test:
    """Return the test of a field requirement: In or NotIn, with one value, on the node's name."""
    key, operator, values = _parts(expression)
    if len(values) != 1 or operator not in ("In", "NotIn"):
        return _never
    wanted = values[0]
    return lambda labels, name: ((name if key == NAME else "") == wanted) == (operator == "In")


def _parts(expression: Object) -> tuple[str, str, Sequence[str]]:
    values = expression.get("values")
    texts = [value for value in values if isinstance(value, str)] if isinstance(values, list) else []
    return str(expression.get("key")), str(expression.get("operator")), texts


def _keys_of(terms: Sequence[Object]) -> set[str]:
    return {_parts(found)[0] for term in terms for found in _objects(term.get("matchExpressions"))}


def _names_of(terms: Sequence[Object]) -> set[str]:
    """Return the node names that terms mention. These nodes are evaluated individually."""
    return {
        name for term in terms for found in _objects(term.get("matchFields")) for name in _parts(found)[2]
    }


def _integer(text: Any, form: re.Pattern[str]) -> int | None:
    """Return a 64-bit integer; None if the text is not one."""
    if not isinstance(text, str) or not form.fullmatch(text):
        return None
    value = int(text)
    return value if -(2**63) <= value < 2**63 else None


def _mapping(value: Any) -> Object:
    return value if isinstance(value, dict) else {}


def _objects(value: Any) -> list[Object]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
