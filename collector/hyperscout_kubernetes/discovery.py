"""Finds the version in which an API server serves a resource. All accounts may read that."""

from collections.abc import Sequence

from hyperscout_kubernetes.client import Kube
from hyperscout_kubernetes.errors import NotFoundError


async def served_version(kube: Kube, group: str, resource: str, known: Sequence[str]) -> str | None:
    """Return "group/version", the version that the server prefers of those that are `known`.

    None = the server serves the resource in none of them. Raises KubeError.
    """
    try:
        found = await kube.get(f"/apis/{group}")
        for version in (v["version"] for v in found.get("versions", [])):
            if version in known:
                resources = (await kube.get(f"/apis/{group}/{version}")).get("resources", [])
                if any(r.get("name") == resource for r in resources):
                    return f"{group}/{version}"
    except NotFoundError:
        pass
    return None
