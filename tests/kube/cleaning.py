"""Back to how it was: whatever came into a cluster after a snapshot goes, of every kind there is.

Generic on purpose: a test may install a chart with anything in it, and the next one must not see it.
"""

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass

from kube.api import MERGE, Api, ApiError, Object, all_at_once

_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_NAMESPACES = "/api/v1/namespaces"
# Last, in this order: what lies in or belongs to them goes first.
_LATE = (_NAMESPACES, _CRDS)
# The server keeps these for itself and makes them anew.
_ITS_OWN = (
    "/apis/coordination.k8s.io/v1/leases/kube-system/apiserver-",
    "/apis/apiregistration.k8s.io/",
    "/api/v1/componentstatuses",
)
_GONE_S = 240.0
_LOOK_EVERY_S = 0.05
_NOW = {
    "kind": "DeleteOptions",
    "apiVersion": "v1",
    "gracePeriodSeconds": 0,
    "propagationPolicy": "Background",
}


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All objects there were, as (collection path, namespace, name); and the CRDs, whole, by name."""

    objects: frozenset[tuple[str, str, str]]
    crds: dict[str, Object]


def snapshot(api: Api) -> Snapshot:
    crds = {crd["metadata"]["name"]: crd for crd in api.items(_CRDS)}
    return Snapshot(frozenset(key for key, _ in _objects(api)), crds)


def clean(api: Api, before: Snapshot) -> None:
    """Delete what is new, finalizers or not; undo changes of CRDs. Raises RuntimeError when that fails."""
    give_up_s = time.monotonic() + _GONE_S
    while not _crds_as_before(api, before):
        if time.monotonic() > give_up_s:
            raise RuntimeError(f"after {_GONE_S:g} s the CRDs are not what they were")
        time.sleep(_LOOK_EVERY_S)
    while True:
        left = [(key, meta) for key, meta in _objects(api) if key not in before.objects]
        if not left:
            return
        if time.monotonic() > give_up_s:
            raise RuntimeError(
                f"still there {_GONE_S:g} s after their deletion: {sorted(key for key, _ in left)}"
            )
        early = [item for item in left if item[0][0] not in _LATE]
        for items in (early, [item for item in left if item not in early]):
            all_at_once([lambda i=item: _delete(api, *i) for item in items])


def _crds_as_before(api: Api, before: Snapshot) -> bool:
    """Whether they are, and are served; if not, a step towards it."""
    now = {crd["metadata"]["name"]: crd for crd in api.items(_CRDS)}
    same = True
    for name, old in before.crds.items():
        with contextlib.suppress(
            ApiError
        ):  # it is going, or another client has changed it: the next look tells
            if name not in now:
                kept = {key: old["metadata"].get(key) or {} for key in ("labels", "annotations")}
                kind = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}
                api.ask("POST", _CRDS, kind | {"metadata": {"name": name, **kept}, "spec": old["spec"]})
            elif now[name]["spec"] != old["spec"]:
                api.ask("PUT", f"{_CRDS}/{name}", now[name] | {"spec": old["spec"]})
            elif "deletionTimestamp" not in now[name]["metadata"]:
                spec = old["spec"]
                served = next(version["name"] for version in spec["versions"] if version["served"])
                api.ask("GET", f"/apis/{spec['group']}/{served}/{spec['names']['plural']}?limit=1")
                continue
        same = False
    return same


def _objects(api: Api) -> Iterator[tuple[tuple[str, str, str], Object]]:
    paths = list(_collections(api))
    found = all_at_once([lambda p=path: _names(api, p) for path in paths])
    for path, items in zip(paths, found, strict=True):
        for meta in items:
            key = (path, meta.get("namespace", ""), meta["name"])
            if not "/".join(key).startswith(_ITS_OWN):
                yield key, meta


def _names(api: Api, path: str) -> list[Object]:
    with contextlib.suppress(ApiError):  # of a CRD that is just going
        return api.names(path)
    return []


def _collections(api: Api) -> Iterator[str]:
    """The path of each kind that can be listed and deleted, each kind once."""
    groups = [
        f"/apis/{group['preferredVersion']['groupVersion']}" for group in api.ask("GET", "/apis")["groups"]
    ]
    for path in ("/api/v1", *groups):
        with contextlib.suppress(ApiError):
            for kind in api.ask("GET", path)["resources"]:
                if {"list", "delete"} <= set(kind["verbs"]) and not (
                    path != "/api/v1" and kind["name"] == "events"
                ):
                    yield f"{path}/{kind['name']}"


def _delete(api: Api, key: tuple[str, str, str], meta: Object) -> None:
    path, namespace, name = key
    root, _, kind = path.rpartition("/")
    one = f"{root}/namespaces/{namespace}/{kind}/{name}" if namespace else f"{path}/{name}"
    with contextlib.suppress(ApiError):  # gone already, or changed in between: the next look tells
        if path == _NAMESPACES:
            api.ask("DELETE", one, _NOW)
            # There may be no controller manager that would do this.
            whole = api.ask("GET", one)
            api.ask("PUT", f"{one}/finalize", whole | {"spec": {"finalizers": []}})
            return
        if meta.get("finalizers") and path != _CRDS:
            api.ask("PATCH", one, {"metadata": {"finalizers": None}}, content=MERGE)
        api.ask("DELETE", one, _NOW)
