"""Read the NVLink domain of nodes from their labels, for hosts whose GPUs no agent reports.

GPU Feature Discovery labels a node with what its driver reports: `<ClusterUUID>.<CliqueID>`. Clouds have
names of their own for the domain.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from hyperscout_formats.facts.facts import Gpu, NvlinkFabric

from hyperscout_inference.labels.cloud_labels import CLOUDS, read_key, value_of

NVLINK_KEYS: Final = (
    "nvidia.com/gpu.clique",
    "topology.k8s.aws/ultraserver-id",
    "topology.k8s.aws/capacity-block-id",  # only nodes of UltraServers have it
    "oci.oraclecloud.com/host.gpu_memory_fabric_id",
)
_CLIQUE = re.compile(r"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\.([0-9]{1,9})")


def nvlink_key(labels: Mapping[str, str], keys: Sequence[str]) -> tuple[str, int] | None:
    """Return cluster UUID and clique of a node by the first of these labels that names a domain, or None.

    A cluster UUID of zeros is no domain: the driver of a GPU without NVLink fabric reports it.
    """
    for key in keys:
        if value := value_of(labels, key):
            match = _CLIQUE.fullmatch(value.lower())
            if match is None:
                return f"{key}={value}", 0
            if match[1].strip("0-"):
                return match[1], int(match[2])
    return None


def nvlink_keys(keys: tuple[str, ...]) -> tuple[str, ...]:
    """Check the setting. Raises ValueError."""
    for key in map(read_key, keys):
        if key in CLOUDS:
            raise ValueError(
                f"{key!r} is a name for cloud_labels: expected a label key such as {', '.join(NVLINK_KEYS)}"
            )
    if twice := sorted({key for key in keys if keys.count(key) > 1}):
        raise ValueError(f"{', '.join(twice)}: the same key twice: remove one")
    return keys


def labelled_gpus(nodes: Mapping[str, Mapping[str, str]], keys: Sequence[str]) -> dict[str, tuple[Gpu, ...]]:
    """Return one entry for all GPUs of each node that has such a label."""
    found = {node: key for node, labels in nodes.items() if (key := nvlink_key(labels, keys)) is not None}
    return {
        node: (
            Gpu(
                f"label:{node}",
                "",
                "all GPUs",
                fabric=NvlinkFabric("completed", cluster_uuid=cluster, clique_id=clique),
            ),
        )
        for node, (cluster, clique) in found.items()
    }
