"""Reads the files and connects to the API server that the settings name."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from hyperscout_formats.infiniband import node_map
from hyperscout_formats.text import node_list
from hyperscout_formats.text.errors import FormatError
from hyperscout_inference.fabric.inputs import InferOptions
from hyperscout_kubernetes.client import Kube, connect
from hyperscout_kubernetes.errors import KubeError
from hyperscout_runtime.errors import StartError

from hyperscout_collector.app.settings.settings import CollectorSettings

_Read = TypeVar("_Read")

_log = logging.getLogger(__name__)

_POD_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


def inference_inputs(settings: CollectorSettings) -> tuple[InferOptions, dict[int, str]]:
    """The options of inference, and the node map (adapter GUID -> host). Raises StartError."""
    nodes: frozenset[str] | None = None
    adapters: dict[int, str] = {}
    if settings.expected_nodes is not None:
        nodes = frozenset(settings.expected_nodes)
    elif (file := settings.expected_nodes_file) is not None:
        nodes = frozenset(_parsed("expected_nodes_file", file, node_list.parse))
    if (file := settings.node_map) is not None:
        adapters, problems = _parsed("node_map", file, node_map.parse)
        for problem in problems:
            _log.warning("%s", problem)
    return InferOptions(nodes, settings.compute_ports), adapters


def _parsed(setting: str, file: Path, parse: Callable[[bytes, str], _Read]) -> _Read:
    """Read the file of a setting. Raises StartError."""
    try:
        return parse(file.read_bytes(), str(file))
    except OSError as error:
        what = f"{setting}: {file}: {error.strerror}"
        raise StartError(f"{what}: name a file that the collector can read") from error
    except FormatError as error:
        raise StartError(f"{setting}: {error}") from error


async def connected(settings: CollectorSettings) -> Kube:
    """A client of the API server in the settings; it sends no request yet. Raises StartError."""
    try:
        return await connect(settings.kubeconfig)
    except KubeError as error:
        raise StartError(f"kubeconfig: {error}") from error


async def connected_clusters(settings: CollectorSettings, own: Kube | None = None) -> dict[str, Kube]:
    """A client of each other cluster, by name; they send no request yet. Raises StartError.

    `own`: the client of the own cluster. If the collector publishes to it, no other may be the same.
    """
    found: dict[str, Kube] = {}
    for name, file in settings.kubeconfigs.items():
        try:
            client = await connect(file)
        except KubeError as error:
            raise StartError(f"clusters: {name}: {error}") from error
        if own is not None and own.host == client.host and settings.kubernetes != "off":
            raise StartError(
                f"clusters: {name} has the API server {client.host} of the own cluster: remove the entry, or "
                "correct its kubeconfig"
            )
        for other, one in found.items():
            if one.host == client.host:
                raise StartError(
                    f"clusters: {name} and {other} have the API server {client.host}: remove one of them, or "
                    "correct its kubeconfig"
                )
        found[name] = client
    return found


def own_namespace(settings: CollectorSettings, why: str) -> str:
    """The namespace of the collector's own objects: `lease_namespace`, or the namespace of its pod.

    `why`: the setting that needs it, for the error message. Raises StartError.
    """
    if settings.lease_namespace:
        return settings.lease_namespace
    try:
        return _POD_NAMESPACE.read_text("utf-8").strip()
    except OSError as error:
        raise StartError(f"{why} outside of a pod: set lease_namespace to a namespace") from error
