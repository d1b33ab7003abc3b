"""Find the host that an adapter belongs to from the adapter's description.

Identity and the node map come first; the description counts only where it names a host. Many real adapters
all report "MT4129 ConnectX7 Mellanox Technologies", which names no host. A description that the operating
system wrote ("node-0001 mlx5_0", "node-0001 HCA-1") names the host.
"""

import re
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from hyperscout_formats.infiniband.ibnetdiscover import CA, ROUTER, Sweep

from hyperscout_inference.fabric.network import distinct

_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")
_LABEL = re.compile(r"HCA-\d+|(?:mlx|hfi|qib|irdma|bnxt_re|rocep?|ibp|ib|opap|roceo?)[A-Za-z0-9_]*")
_FACTORY_NAMES = frozenset({"localhost", "mellanox", "nvidia", "unknown", "none"})
_MODEL = re.compile(r"MT\d{4,6}")  # PCI device ids of adapters: MT4129, MT27800
_SHARP = re.compile(r"Aggregation Node", re.IGNORECASE)
_SYSNAME = re.compile(r"[^;:]*;([^;:]+)(?::.*)?")


class Claim(NamedTuple):
    """The content of a description: the host ("" if it names none) and the adapter's name on that host."""

    host: str
    label: str = ""
    sharp: bool = False


def claims(descriptions: Sequence[str]) -> list[Claim]:
    """Return one claim per description. A description with an adapter name that occurs twice (cloned images)
    names no host."""
    labels: dict[str, str | None] = {}
    stems: dict[tuple[str, bool], bool] = {}
    found = []
    for text in descriptions:
        host, _, label = text.partition(" ")
        # A cluster's host names differ mostly in their numbers, so results are cached by the rest of the
        # name.
        stem = host.rstrip("0123456789")
        kind = (stem, stem != host)
        if kind not in stems:
            stems[kind] = _names_a_host(*kind)
        if label not in labels:
            bare = label.lstrip(" ")
            labels[label] = bare if not label or _LABEL.fullmatch(bare) else None
        adapter = labels[label]
        if adapter is None:
            found.append(Claim("", sharp=_SHARP.search(text) is not None))
        else:
            # A number such as MT4129 without an adapter's name is the model of the adapter.
            named = stems[kind] and (bool(adapter) or _MODEL.fullmatch(host) is None)
            found.append(Claim(host if named else "", adapter))
    counts = Counter(descriptions)
    if len(counts) == len(found):
        return found
    return [
        claim._replace(host="") if claim.label and counts[text] > 1 else claim
        for claim, text in zip(found, descriptions, strict=True)
    ]


class ShownDevices(NamedTuple):
    """The devices that sweeps show, in the order of their GUIDs. The caller must not change it.

    `places`: where the devices of each sweep are. `endpoint`: which are no switches; `claims`: what the
    descriptions of these say.
    """

    guids: npt.NDArray[np.uint64]
    ids: Sequence[str]
    places: Sequence[npt.NDArray[np.intp]]
    kind: npt.NDArray[np.uint8]
    declared: npt.NDArray[np.bool_]
    texts: Sequence[str]
    endpoint: Sequence[int]
    claims: Sequence[Claim]


@lru_cache(maxsize=1)  # sweeps change far less often than what agents report
def shown_devices(sweeps: tuple[Sweep, ...]) -> ShownDevices:
    """The later sweeps are more trusted."""
    guids = distinct(np.concatenate([sweep.guid for sweep in sweeps]))
    places = [np.searchsorted(guids, sweep.guid) for sweep in sweeps]
    kind = np.zeros(len(guids), np.uint8)
    declared = np.zeros(len(guids), np.bool_)
    texts: list[str] = [""] * len(guids)
    for sweep, place in zip(sweeps, places, strict=True):
        known = sweep.kind > 0
        kind[place[known]] = sweep.kind[known]
        declared[place] |= sweep.declared
        for i, text in zip(place.tolist(), sweep.descriptions, strict=True):
            if text:
                texts[i] = text
    ids = [f"{guid:016x}" for guid in guids.tolist()]
    endpoint = np.flatnonzero((kind == CA) | (kind == ROUTER)).tolist()
    named = _claims_kept(tuple(texts[i] for i in endpoint))
    return ShownDevices(guids, ids, places, kind, declared, texts, endpoint, named)


@lru_cache(maxsize=1)  # a cable that moves changes a sweep, and no description
def _claims_kept(descriptions: tuple[str, ...]) -> Sequence[Claim]:
    return claims(descriptions)


def _names_a_host(stem: str, numbered: bool) -> bool:
    """Return whether a name without its trailing number can be a host name and is not a vendor's name."""
    whole = stem + "0" if numbered else stem
    lower = stem.lower()
    maker = (lower in _FACTORY_NAMES and not numbered) or lower.startswith("connectx")
    return _HOST.fullmatch(whole) is not None and not maker


def names_a_host(name: str) -> bool:
    """Return whether a system name can be a host name and is not a factory default."""
    stem = name.partition(".")[0].rstrip("0123456789")
    usable = _HOST.fullmatch(name) is not None and _MODEL.fullmatch(name) is None
    return usable and _names_a_host(stem, stem != name)


def switch_name(description: str) -> str:
    """Return a switch's own name from its description. Managed switches send "MF0;NAME:MODEL/U1"."""
    match = _SYSNAME.fullmatch(description)
    return match[1] if match else description
