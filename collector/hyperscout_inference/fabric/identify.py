"""Find the host that an adapter belongs to from the adapter's description.

Identity and the node map come first; the description counts only where it names a host. Many real adapters
all report "MT4129 ConnectX7 Mellanox Technologies", which names no host. A description that the operating
system wrote ("node-0001 mlx5_0", "node-0001 HCA-1") names the host.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from hyperscout_formats.infiniband.ibnetdiscover import CA, ROUTER, Sweep
from hyperscout_formats.text.reporters import cluster_of, name_in_cluster
from hyperscout_topology.memo import memoized

from hyperscout_inference.fabric.network import distinct_places

_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")
_LABEL = re.compile(r"HCA-\d+|(?:mlx|hfi|qib|irdma|bnxt_re|rocep?|ibp|ib|opap|roceo?)[A-Za-z0-9_]*")
_FACTORY_NAMES = frozenset({"localhost", "mellanox", "nvidia", "unknown", "none"})
_MODEL = re.compile(r"MT\d{4,6}")  # PCI device ids of adapters: MT4129, MT27800
_SHARP = re.compile(r"Aggregation Node", re.IGNORECASE)
_MAX_CHARS = 255
_NO_PARTS = ("", "", "")
_DIGITS = "0123456789"
_SYSNAME = re.compile(r"[^;:]*;([^;:]+)(?::.*)?")


class Claim(NamedTuple):
    """The content of a description: the host ("" if it names none) and the adapter's name on that host."""

    host: str
    label: str = ""
    sharp: bool = False


class Claims(NamedTuple):
    """The claims of many descriptions, in columns."""

    hosts: list[str]
    labels: list[str]
    sharp: list[bool]


def announced_names(nodes: Iterable[str]) -> dict[str, str]:
    """Return the `node_names` of `FabricInputs` for these nodes of all clusters.

    A host may announce its name without its domain: such a name of nodes of several clusters means none.
    """
    found: dict[str, set[str]] = {}
    short: dict[str, set[str]] = {}
    for node in nodes:
        name = name_in_cluster(node)
        found.setdefault(name, set()).add(node)
        short.setdefault(name.partition(".")[0], set()).add(cluster_of(node))
    names = {name: "" if len(mine) > 1 else min(mine) for name, mine in found.items() if mine != {name}}
    return names | {name: "" for name, clusters in short.items() if len(clusters) > 1}


def claims(descriptions: Sequence[str], node_names: Mapping[str, str] = MappingProxyType({})) -> list[Claim]:
    """Return one claim per description. A description with an adapter name that occurs twice (cloned images)
    names no host. `node_names`: see `FabricInputs`."""
    return list(map(Claim, *claim_columns(descriptions, node_names)))


def claim_columns(
    descriptions: Sequence[str], node_names: Mapping[str, str], wanted: Sequence[int] | None = None
) -> Claims:
    """Return the `claims` of the `wanted` descriptions (None = all) in columns.

    Most descriptions are a name with a number and the name of an adapter. A cluster's names differ mostly in
    their numbers, and names of adapters are few, so both are decided once.
    """
    mine = descriptions
    if wanted is not None and len(wanted) < len(descriptions):
        mine = [descriptions[i] for i in wanted]
    if not mine:
        return Claims([], [], [])
    parts = [text.partition(" ") if len(text) <= _MAX_CHARS else _NO_PARTS for text in mine]
    hosts, labels = [part[0] for part in parts], [part[2] for part in parts]
    stems = [host.rstrip(_DIGITS) for host in hosts]
    usable = {stem for stem in set(stems).difference(hosts) if _names_a_host(stem, numbered=True)}
    adapters = {label: adapter for label in set(labels) if (adapter := _adapter(label))}
    found = Claims(hosts, [adapters.get(label, "") for label in labels], [False] * len(hosts))
    if not (usable.issuperset(stems) and adapters.keys() >= set(labels)):
        for i, (stem, label) in enumerate(zip(stems, labels, strict=True)):
            if not (stem in usable and label in adapters):
                found.hosts[i], found.labels[i], found.sharp[i] = _claim(mine[i])
    if len(set(descriptions)) < len(descriptions):
        counts = Counter(descriptions)
        for i, text in enumerate(mine):
            if found.labels[i] and counts[text] > 1:
                found.hosts[i] = ""
    if node_names:
        found.hosts[:] = [node_names.get(host, host) for host in found.hosts]
    return found


def any_sharp(descriptions: Iterable[str]) -> bool:
    """Return whether one of the descriptions may be that of a SHARP aggregation node."""
    return _SHARP.search("\n".join(descriptions)) is not None


def _claim(description: str) -> Claim:
    # Longer than any description (64 characters) and not to be kept: it names no host.
    if len(description) > _MAX_CHARS:
        return Claim("", sharp=_SHARP.search(description) is not None)
    return _short_claim(description)


@lru_cache(maxsize=1 << 17)
def _short_claim(description: str) -> Claim:
    host, _, label = description.partition(" ")
    stem = host.rstrip(_DIGITS)
    adapter = _adapter(label)
    if adapter is None:
        return Claim("", sharp=_SHARP.search(description) is not None)
    # A number such as MT4129 without an adapter's name is the model of the adapter.
    named = _names_a_host(stem, numbered=stem != host) and (bool(adapter) or _MODEL.fullmatch(host) is None)
    return Claim(host if named else "", adapter)


@lru_cache(maxsize=1024)
def _adapter(label: str) -> str | None:
    """Return the adapter's name at the end of a description, None for another text."""
    bare = label.lstrip(" ")
    return bare if not label or _LABEL.fullmatch(bare) else None


@dataclass(frozen=True, slots=True, eq=False)
class Devices:
    """Devices in the order of their GUIDs. `endpoint`: which are no switches."""

    guids: npt.NDArray[np.uint64]
    kind: npt.NDArray[np.uint8]
    ids: Sequence[str]
    endpoint: Sequence[int]


class ShownDevices(NamedTuple):
    """The devices that sweeps show, and more adapters. `texts`: their descriptions. `places`: where those of
    each sweep are."""

    devices: Devices
    texts: Sequence[str]
    places: Sequence[npt.NDArray[np.intp]]
    declared: npt.NDArray[np.bool_]


def shown_devices(sweeps: Sequence[Sweep], adapters: npt.NDArray[np.uint64]) -> ShownDevices:
    """The later sweeps are more trusted. `adapters`: GUIDs of adapters that sweeps need not show."""
    columns = [adapters, *(sweep.guid for sweep in sweeps)]
    guids, place_of = distinct_places(np.concatenate(columns))
    of_adapters, *places = np.split(place_of, np.cumsum([len(column) for column in columns])[:-1])
    kind = np.zeros(len(guids), np.uint8)
    kind[of_adapters] = CA
    declared = np.zeros(len(guids), np.bool_)
    texts: list[str] = [""] * len(guids)
    for sweep, place in zip(sweeps, places, strict=True):
        known = sweep.kind > 0
        kind[place[known]] = sweep.kind[known]
        declared[place] |= sweep.declared
        for i, text in zip(place.tolist(), sweep.descriptions, strict=True):
            if text:
                texts[i] = text
    return ShownDevices(_devices(guids, kind), texts, places, declared)


@memoized  # a cable that moves changes a sweep, and no device
def _devices(guids: npt.NDArray[np.uint64], kind: npt.NDArray[np.uint8]) -> Devices:
    endpoint = np.flatnonzero((kind == CA) | (kind == ROUTER)).tolist()
    digits = guids.astype(">u8").tobytes().hex(" ", guids.itemsize)
    return Devices(guids, kind, digits.split(), endpoint)


@lru_cache(maxsize=1024)
def _names_a_host(stem: str, *, numbered: bool) -> bool:
    """Return whether a name without its trailing number can be a host name and is not a vendor's name."""
    whole = stem + "0" if numbered else stem
    lower = stem.lower()
    maker = (lower in _FACTORY_NAMES and not numbered) or lower.startswith("connectx")
    return _HOST.fullmatch(whole) is not None and not maker


def names_a_host(name: str) -> bool:
    """Return whether a system name can be a host name and is not a factory default."""
    stem = name.partition(".")[0].rstrip(_DIGITS)
    usable = _HOST.fullmatch(name) is not None and _MODEL.fullmatch(name) is None
    return usable and _names_a_host(stem, numbered=stem != name)


def switch_name(description: str) -> str:
    """Return a switch's own name from its description. Managed switches send "MF0;NAME:MODEL/U1"."""
    match = _SYSNAME.fullmatch(description)
    return match[1] if match else description
