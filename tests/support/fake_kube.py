"""An API server in memory, as far as publishers beside HyperNodes ask one: objects, versions, merge patches.

Of strategic merge patches it knows those of a node's conditions.

It answers as a real one does where that matters here (404, 409 on another version or an object that is
there, no new version for a write that changes nothing); the same publishers are tested on a real one too.
"""

import copy
from collections.abc import Callable, Iterable, Mapping
from random import Random
from typing import Any, cast

from hyperscout_kubernetes.client import STRATEGIC, Kube
from hyperscout_kubernetes.errors import ConflictError, KubeError, NotFoundError
from hyperscout_kubernetes.nodes import PATH, Nodes

Object = dict[str, Any]


class FakeKube:
    """`objects` by path; `writes` are the requests that came; `before` may raise or interfere.

    `allows`: what the server says of the client's rights; it enforces none.
    """

    def __init__(self) -> None:
        self.objects: dict[str, Object] = {}
        self.writes: list[tuple[str, str, Any]] = []
        self.before: Callable[[str, str], None] = lambda method, path: None
        self.allows = True
        self._version = 0

    def put(self, path: str, found: Object) -> Object:
        self._version += 1
        found["metadata"]["resourceVersion"] = str(self._version)
        found["metadata"].setdefault("uid", f"uid-{self._version}")
        self.objects[path] = found
        return found

    async def get(self, path: str, query: Mapping[str, Any] | None = None) -> Object:
        self.before("GET", path)
        if path not in self.objects:
            raise NotFoundError(f"GET {path}: not found")
        return copy.deepcopy(self.objects[path])

    async def review(self, path: str, body: Object) -> Object:
        self.before("POST", path)
        return {"status": {"allowed": self.allows}}

    async def delete(self, path: str, metadata: Object) -> Object:
        exactly = {key: metadata[key] for key in ("uid", "resourceVersion")}
        return await self.write("DELETE", path, {"preconditions": exactly})

    async def write(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content: str = "",
        query: Mapping[str, Any] | None = None,
    ) -> Object:
        self.before(method, path)
        self.writes.append((method, path, body))
        if method == "POST":
            path = f"{path}/{body['metadata']['name']}"
            if path in self.objects:
                raise ConflictError(f"POST {path}: it exists")
            return copy.deepcopy(self.put(path, copy.deepcopy(body)))
        path = path.removesuffix("/status")
        found = await self.get(path)
        if content == STRATEGIC and "conditions" in body.get("status", {}):
            body = {"status": {"conditions": merged_by_type(self.conditions(path), body)}}
        metadata = body.get("preconditions", {}) if method == "DELETE" else body.get("metadata", {})
        if (
            metadata.get("resourceVersion", found["metadata"]["resourceVersion"])
            != found["metadata"]["resourceVersion"]
        ):
            raise ConflictError(f"{method} {path}: the object has been modified")
        if method == "DELETE":
            return self.objects.pop(path)
        merged = merge(found, body)
        if merged == found:
            return merged
        return copy.deepcopy(self.put(path, merged))

    # nodes

    def add_node(self, name: str, labels: Mapping[str, str] | None = None, *taints: Object) -> None:
        metadata = {"name": name, "labels": dict(labels or {})}
        self.put(f"{PATH}/{name}", {"metadata": metadata, "spec": {"taints": list(taints)}})

    def labels(self, name: str) -> dict[str, str]:
        return dict(self.objects[f"{PATH}/{name}"]["metadata"]["labels"])

    def annotations(self, name: str) -> dict[str, str]:
        return dict(self.objects[f"{PATH}/{name}"]["metadata"].get("annotations") or {})

    def taints(self, name: str) -> list[Object]:
        return list(self.objects[f"{PATH}/{name}"]["spec"].get("taints") or [])

    def conditions(self, path: str) -> list[Object]:
        return list(self.objects[path].get("status", {}).get("conditions", ()))

    def kube(self) -> Kube:
        return cast("Kube", self)

    def nodes(self) -> Nodes:
        """As the watch would have them now."""
        nodes = Nodes(self.kube(), "", rng=Random(1))
        self.follow(nodes)
        return nodes

    def follow(self, nodes: Nodes) -> None:
        """Let the watch catch up."""
        there = {x["metadata"]["name"]: x for p, x in self.objects.items() if p.startswith(PATH)}
        for node in list(nodes):
            if node["metadata"]["name"] not in there:
                nodes.reflector.forget(node["metadata"]["name"])
        for node in there.values():
            nodes.reflector.learn(copy.deepcopy(node))
        nodes.reflector.synced.set()

    # last: the name hides the builtin
    async def list(self, path: str, query: Mapping[str, Any] | None = None) -> tuple[list[Object], str]:
        self.before("GET", path)
        below = f"{path}/"
        items = [copy.deepcopy(x) for p, x in sorted(self.objects.items()) if p.startswith(below)]
        return items, str(self._version)


def merge(target: Any, patch: Any) -> Any:
    """RFC 7396."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge(merged.get(key), value)
    return merged


def merged_by_type(conditions: Iterable[Object], patch: Object) -> list[Object]:
    """Strategic merge of `status.conditions`, whose merge key is `type`."""
    found = {c["type"]: c for c in conditions}
    for row in patch["status"]["conditions"]:
        if row.get("$patch") == "delete":
            found.pop(row["type"], None)
        else:
            found[row["type"]] = found.get(row["type"], {}) | row
    return list(found.values())


def failing(error: KubeError, *, method: str = "PATCH", times: int = 1_000_000) -> Callable[[str, str], None]:
    """A `before` that raises for the first so many requests of a method."""
    left = [times]

    def before(asked: str, path: str) -> None:
        if asked == method and left[0]:
            left[0] -= 1
            raise error

    return before
