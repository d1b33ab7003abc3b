"""Reads the files and connects to the API server that the settings name."""

import logging
from pathlib import Path

from hyperscout_formats.infiniband import node_map
from hyperscout_formats.text import node_list
from hyperscout_formats.text.errors import FormatError
from hyperscout_inference.fabric.inputs import InferOptions
from hyperscout_kubernetes.client import Kube, connect
from hyperscout_kubernetes.errors import KubeError
from hyperscout_runtime.errors import StartError

from hyperscout_collector.app.settings.settings import CollectorSettings

_log = logging.getLogger(__name__)

_POD_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


def inference_inputs(settings: CollectorSettings) -> tuple[InferOptions, dict[int, str]]:
    """The options of inference, and the node map (adapter GUID -> host). Raises StartError."""
    nodes: frozenset[str] | None = None
    adapters: dict[int, str] = {}
    try:
        if settings.expected_nodes is not None:
            nodes = frozenset(settings.expected_nodes)
        elif (file := settings.expected_nodes_file) is not None:
            nodes = frozenset(node_list.parse(file.read_bytes(), str(file)))
        if (file := settings.node_map) is not None:
            adapters, problems = node_map.parse(file.read_bytes(), str(file))
            for problem in problems:
                _log.warning("%s", problem)
    except OSError as error:
        raise StartError(f"{error.filename}: {error.strerror}") from error
    except FormatError as error:
        raise StartError(str(error)) from error
    return InferOptions(nodes, settings.compute_ports), adapters


async def connected(settings: CollectorSettings) -> Kube:
    """A client of the API server in the settings; it sends no request yet. Raises StartError."""
    try:
        return await connect(settings.kubeconfig)
    except KubeError as error:
        raise StartError(str(error)) from error


def own_namespace(settings: CollectorSettings, why: str) -> str:
    """The namespace of the collector's own objects: `lease_namespace`, or the namespace of its pod.

    `why`: the setting that needs it, for the error message. Raises StartError.
    """
    if settings.lease_namespace:
        return settings.lease_namespace
    try:
        return _POD_NAMESPACE.read_text("utf-8").strip()
    except OSError as error:
        raise StartError(f"{why} outside of a pod: set lease_namespace") from error
