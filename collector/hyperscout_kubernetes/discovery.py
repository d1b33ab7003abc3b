"""Asks an API server which resources it serves, and what this account may do. All accounts may ask that."""

from collections.abc import Sequence

from hyperscout_kubernetes.client import Kube
from hyperscout_kubernetes.errors import NotFoundError
from hyperscout_kubernetes.paths import api_path, group_path

_OWN_RIGHTS = api_path("authorization.k8s.io/v1", "selfsubjectaccessreviews")


async def served_version(kube: Kube, group: str, resource: str, known: Sequence[str]) -> str | None:
    """Return "group/version", the version that the server prefers of those that are `known`.

    None = the server serves the resource in none of them. Raises KubeError.
    """
    try:
        found = await kube.get(group_path(group))
        for version in (v["version"] for v in found.get("versions", [])):
            if version in known:
                resources = (await kube.get(group_path(group, version))).get("resources", [])
                if any(r.get("name") == resource for r in resources):
                    return f"{group}/{version}"
    except NotFoundError:
        pass
    return None


async def may(kube: Kube, verb: str, group: str, resource: str) -> bool:
    """Return whether this account has a right in the whole cluster. Raises KubeError."""
    attributes = {"verb": verb, "group": group, "resource": resource}
    found = await kube.review(_OWN_RIGHTS, {"spec": {"resourceAttributes": attributes}})
    return bool((found.get("status") or {}).get("allowed"))
