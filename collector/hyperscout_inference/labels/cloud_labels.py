"""Read the node labels with which a cloud gives the place of its machines.

Each list belongs to one cloud, the outermost domain first. A node is read with the first list of which it has
the first label, up to the first missing label: a label after a gap has no known domain around it. A value
counts only within the domains above it, because some clouds' values are not unique.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from hyperscout_topology.names import is_label_key, is_own_label_key

Keys = tuple[str, ...]

CLOUDS: Final[Mapping[str, Keys]] = {
    # EC2's instance topology: layer 1 is the outermost, and the last layer present is the innermost.
    "aws": tuple(f"topology.k8s.aws/network-node-layer-{n}" for n in (1, 2, 3, 4)),
    "gcp": ("cloud.google.com/gce-topology-block", "cloud.google.com/gce-topology-subblock"),
    "oci": (
        "oci.oraclecloud.com/rdma.hpc_island_id",
        "oci.oraclecloud.com/rdma.network_block_id",
        "oci.oraclecloud.com/rdma.local_block_id",
    ),
    "coreweave": (
        "backend.coreweave.cloud/fabric",
        "backend.coreweave.cloud/superpod",
        "backend.coreweave.cloud/leafgroup",
    ),
    "kubernetes": ("topology.kubernetes.io/region", "topology.kubernetes.io/zone"),
}
_MAX_LISTS: Final = 16
_MAX_KEYS: Final = 8
# Values with which clouds mark an unknown domain.
_NOTHING: Final = frozenset({"", "-", "none", "null", "unknown", "n/a", "not-available", "no-imds-data"})


def lists_of(value: object) -> tuple[Keys, ...]:
    """Parse the setting: names of clouds (several in a text), and lists of label keys. Raises ValueError."""
    if isinstance(value, str):
        value = [name.strip() for name in value.split(",")]
    if not isinstance(value, list | tuple):
        raise ValueError(f"expected a list of clouds ({', '.join(CLOUDS)}) or of lists of label keys")  # noqa: TRY004
    if len(value) > _MAX_LISTS:
        raise ValueError(f"{len(value)} lists: expected at most {_MAX_LISTS}")
    return tuple(_keys(item) for item in value)


def _keys(item: object) -> Keys:
    if isinstance(item, str):
        if item not in CLOUDS:
            raise ValueError(f"{item!r}: expected one of {', '.join(CLOUDS)}, or a list of label keys")
        return CLOUDS[item]
    if not isinstance(item, list | tuple) or not 0 < len(item) <= _MAX_KEYS:
        raise ValueError(f"expected a cloud, or 1 to {_MAX_KEYS} label keys, the farthest first: {item!r}")
    for key in item:
        if not isinstance(key, str) or not is_label_key(key):
            raise ValueError(f"{key!r}: expected a label key such as topology.kubernetes.io/zone")
        if is_own_label_key(key):
            raise ValueError(f"{key}: hyperscout writes this label and does not read it: remove the key")
    if len(set(item)) < len(item):
        raise ValueError(f"{', '.join(item)}: the same key twice: remove one")
    return tuple(item)


def domains_of(nodes: Mapping[str, Mapping[str, str]], lists: Sequence[Keys]) -> dict[str, tuple[str, ...]]:
    """Return the domains of each node that has such labels, the outermost first, as "key=value"."""
    found = ((node, place_of(labels, lists)) for node, labels in nodes.items())
    return {node: path for node, path in found if path}


def place_of(labels: Mapping[str, str], lists: Sequence[Keys]) -> tuple[str, ...]:
    """Return the domains of one node, the outermost first; () where its labels give none."""
    for keys in lists:
        if path := tuple(_path(labels, keys)):
            return path
    return ()


def _path(labels: Mapping[str, str], keys: Keys) -> Iterable[str]:
    for key in keys:
        value = labels.get(key, "")
        if value.lower() in _NOTHING:
            return
        yield f"{key}={value}"
