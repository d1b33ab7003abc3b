"""The InfiniBand of the take-over tests: one leaf for each rack and rail under two spines, and its sweeps."""

import hashlib
import zlib
from collections.abc import Collection, Sequence
from functools import lru_cache

from hyperscout.v1.finding_pb2 import Finding, FindingKey, Outcome
from hyperscout_collector.evidence.state import Bulk
from hyperscout_formats.facts.wire import infiniband_to_proto
from hyperscout_sim.fabric.fabric import Cable, SimAdapter, SimFabric, SimSwitch, Truth
from hyperscout_sim.readings.sweep_text import sweep_text
from hyperscout_sim.readings.sysfs import port_facts

from support.findings import stamp, sweep

SPINES = ("spine-1", "spine-2")
_PORTS = 40
_UPLINKS = (39, 40)


@lru_cache
def fabric_of(
    hosts: Sequence[str], leaves: Sequence[str], cables: frozenset[tuple[str, int, str]]
) -> SimFabric:
    """`cables`: host, rail and leaf, of those that are plugged in and have light."""
    guids = {name: 0xB83FD203_00AA0000 + 0x100 * n for n, name in enumerate((*leaves, *SPINES))}
    switches = tuple(
        SimSwitch(guid, name, f"MF0;{name}:MQM8700/U1", 2 if name in SPINES else 1, _PORTS)
        for name, guid in guids.items()
    )
    adapters = {
        (host, rail): SimAdapter(guid, guid + 1, host, f"mlx5_{rail}", f"{host} mlx5_{rail}")
        for n, host in enumerate(hosts)
        for rail in (0, 1)
        for guid in (0x98039B03_00BB0000 + 0x100 * n + 0x10 * rail,)
    }
    ends = [
        Cable(adapters[host, rail].guid, 1, guids[leaf], hosts.index(host) + 1)
        for host, rail, leaf in sorted(cables)
    ]
    ends += [
        Cable(guids[leaf], port, guids[spine], n)
        for n, leaf in enumerate(leaves, 1)
        for port, spine in zip(_UPLINKS, SPINES, strict=True)
    ]
    return SimFabric("racks", switches, tuple(adapters.values()), tuple(ends), Truth(()))


@lru_cache
def _text(fabric: SimFabric, guid: int) -> bytes:
    return sweep_text(fabric, guid)


def findings_of(
    fabric: SimFabric, alive: Collection[str], now_ns: int
) -> tuple[list[Finding], list[tuple[Bulk, bytes]]]:
    """The ports of all hosts whose agents are alive, the sweeps of two of them, and the texts of these."""
    cable_of = {cable.a: cable for cable in fabric.cables}
    found: list[Finding] = []
    texts: list[tuple[Bulk, bytes]] = []
    for one in fabric.adapters:
        if one.host not in alive:
            continue
        fact = port_facts(one, cable_of.get(one.guid))
        key = FindingKey(node=one.host, probe="infiniband", subject=f"{one.device}/1")
        port = Finding(key=key, observed_at=stamp(now_ns), outcome=Outcome.OUTCOME_DATA)
        port.infiniband.CopyFrom(infiniband_to_proto(fact))
        found.append(port)
        if one.device == "mlx5_0" and one.guid in cable_of and len(texts) < 2:
            text = _text(fabric, one.guid)
            digest = hashlib.sha256(text).digest()
            texts.append((Bulk(digest, len(text), zlib.compress(text)), text))
            swept = sweep(one.host, digest, now_ns, size_bytes=len(text))
            swept.sweep.port_guid = one.port_guid
            found.append(swept)
    return found, texts
