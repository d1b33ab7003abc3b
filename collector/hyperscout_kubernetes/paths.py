"""Builds the paths of requests to the API server, and refuses a part that is not a valid name.

Names come from owner references, labels, objects and settings. The API server does not check all of them:
the name in an owner reference may be `../../victim/pods/x`, and an HTTP client resolves the dots before it
sends the request. No other module builds a path from data.
"""

import re

from hyperscout_kubernetes.errors import RejectedError

# A DNS subdomain (RFC 1123), which is what Kubernetes demands of the names of all objects that are used here.
_PART = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_NAME = re.compile(rf"{_PART}(?:\.{_PART})*")
_MAX_NAME = 253
NAME_FORM = "a Kubernetes name: lower-case letters, digits, '-' and '.', at most 253 characters"
_SHOWN = 80


def api_path(
    api_version: str,
    plural: str,
    name: str | None = None,
    *,
    namespace: str | None = None,
    subresource: str | None = None,
) -> str:
    """Return the path of an object, or of a collection if `name` is None.

    `api_version`: "v1" or "group/version". Raises RejectedError: a part is not a valid name.
    """
    group, slash, version = api_version.rpartition("/")
    parts = ["apis", _checked("API group", group)] if slash else ["api"]
    parts.append(_checked("API version", version))
    if namespace is not None:
        parts += ["namespaces", _checked("namespace", namespace)]
    parts.append(_checked("resource", plural))
    if name is not None:
        parts.append(_checked("name", name))
    if subresource is not None:
        parts.append(_checked("subresource", subresource))
    return "/" + "/".join(parts)


def group_path(group: str, version: str | None = None) -> str:
    """Return the path at which an API server lists the versions of a group, or the resources of a version.

    Raises RejectedError: a part is not a valid name.
    """
    parts = ["apis", _checked("API group", group)]
    return "/" + "/".join(parts if version is None else [*parts, _checked("API version", version)])


def is_name(text: str) -> bool:
    """Return whether an object of Kubernetes can have this name."""
    return len(text) <= _MAX_NAME and _NAME.fullmatch(text) is not None


def _checked(what: str, text: str) -> str:
    if not is_name(text):
        raise RejectedError(f"{what} {text[:_SHOWN]!r}: expected {NAME_FORM}")
    return text
