"""Read the node labels with which a cloud gives the place of its machines.

Each list belongs to one cloud, the outermost domain first. A node is read with the first list of which it has
a label. A value counts only within the domains above it, because some clouds' values are not unique. Where a
node lacks a label, the domains around its next value are those of the other nodes with that value, if these
are at least half of all with that value.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from hyperscout_topology.names import is_hyperscout_key, is_label_key

Keys = tuple[str, ...]
Path = tuple[str, ...]  # domains as "key=value", the outermost first

CLOUDS: Final[Mapping[str, Keys]] = {
    # EC2's instance topology: layer 1 is the outermost, and the last layer present is the innermost.
    "aws": tuple(f"topology.k8s.aws/network-node-layer-{n}" for n in (1, 2, 3, 4)),
    "gcp": ("cloud.google.com/gce-topology-block", "cloud.google.com/gce-topology-subblock"),
    "oci": (
        "oci.oraclecloud.com/rdma.hpc_island_id",
        "oci.oraclecloud.com/rdma.network_block_id",
        "oci.oraclecloud.com/rdma.local_block_id",
    ),
    "oci-host": ("oci.oraclecloud.com/host.network_block_id", "oci.oraclecloud.com/host.rack_id"),
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
        read_key(key)
    if len(set(item)) < len(item):
        raise ValueError(f"{', '.join(item)}: the same key twice: remove one")
    return tuple(item)


def read_key(key: object) -> str:
    """Check a label key that is read. Raises ValueError."""
    if not isinstance(key, str) or not is_label_key(key):
        raise ValueError(f"{key!r}: expected a label key such as topology.kubernetes.io/zone")
    if is_hyperscout_key(key):
        raise ValueError(f"{key}: hyperscout writes this label and does not read it: remove the key")
    return key


def domains_of(nodes: Mapping[str, Mapping[str, str]], lists: Sequence[Keys]) -> dict[str, tuple[str, ...]]:
    """Return the domains of each node that has such labels, the outermost first, as "key=value"."""
    if not lists:
        return {}
    places = {node: place for node, labels in nodes.items() if (place := place_of(labels, lists))}
    starts = {keys[:n] for keys in lists for n in range(1, len(keys) + 1)}
    # Those without gaps come first, because they fill the gaps of the others.
    order = sorted(set(places.values()), key=lambda x: (_keys_in(x) not in starts, -len(x), x))
    nodes_at = Counter(places.values())
    having: dict[str, list[Path]] = {}
    for place in order:
        for domain in place:
            having.setdefault(domain, []).append(place)
    around: dict[str, Counter[Path]] = {}
    paths: dict[Path, Path] = {}

    def path_of(place: Path) -> Path:
        """Fill the gaps of a place. What is below a value that is in several domains is not known."""
        if not place or _keys_in(place) in starts:
            return place
        *outer, nearest = place
        known = [(n, path) for path, n in around.get(nearest, {}).items() if set(outer) <= set(path)]
        all_nodes = sum(nodes_at[x] for x in having[nearest] if set(outer) <= set(x))
        most, path = max(known, default=(0, ()))
        if 2 * most >= all_nodes and sum(n == most for n, _ in known) == 1:
            return (*path, nearest)
        above = path_of(tuple(outer))
        return above if len(known) > 1 else (*above, nearest)

    for place in order:
        paths[place] = path = path_of(place)
        for n, domain in enumerate(path):
            around.setdefault(domain, Counter())[path[:n]] += nodes_at[place]
    return {node: path for node, place in places.items() if (path := paths[place])}


def place_of(labels: Mapping[str, str], lists: Sequence[Keys]) -> tuple[str, ...]:
    """Return what the labels of one node say of its place, the outermost domain first. It may have gaps."""
    for keys in lists:
        if found := tuple(f"{key}={value}" for key in keys if (value := value_of(labels, key))):
            return found
    return ()


def _keys_in(place: tuple[str, ...]) -> Keys:
    return tuple(domain.partition("=")[0] for domain in place)


def value_of(labels: Mapping[str, str], key: str) -> str:
    """Return the value of a label; "" where it is missing or means that the domain is unknown."""
    value = labels.get(key, "")
    return "" if value.lower() in _NOTHING else value
