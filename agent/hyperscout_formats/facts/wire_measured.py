"""Converts measured facts (GPUs, latency, NCCL) to and from the messages of finding.proto.

As in `wire`, a fact that is read back from its message equals the original.
"""

import functools
import re
from typing import Final

from google.protobuf.timestamp_pb2 import Timestamp
from hyperscout.v1 import finding_pb2

from hyperscout_formats.facts.accelerators import KINDS, NVLINK
from hyperscout_formats.facts.facts import (
    Gpu,
    GpuPeer,
    LatencyPort,
    LatencyResult,
    LatencySample,
    MigInstance,
    NcclResult,
    NcclRun,
    NvlinkFabric,
    NvlinkLink,
)
from hyperscout_formats.facts.shared_fields import SharedFields

_GPU = SharedFields(Gpu, "mig_instances", "links", "fabric", "numa_node", "nearest_nics", "peers", "kind")
_MIG = SharedFields(MigInstance)
_LINK = SharedFields(NvlinkLink)
_FABRIC = SharedFields(NvlinkFabric, "health", "server_index")
_PEER = SharedFields(GpuPeer)
_LATENCY_PORT = SharedFields(LatencyPort, "addresses", "results")
_LATENCY_RESULT = SharedFields(LatencyResult, "at_ns", "history")
_NCCL_RUN = SharedFields(NcclRun, "at_ns", "results")
_NCCL_RESULT = SharedFields(NcclResult)
_DOMAIN: Final = re.compile(r"[0-9a-f]{0,16}")  # a number of 64 bits at most, in hex or decimal


def gpu_to_proto(gpu: Gpu) -> finding_pb2.Gpu:
    """Return the message of one GPU."""
    fabric = None
    if gpu.fabric is not None:
        fabric = finding_pb2.NvlinkFabric(
            **_FABRIC.of(gpu.fabric), health=gpu.fabric.health, server_index=gpu.fabric.server_index
        )
    return finding_pb2.Gpu(
        **_GPU.of(gpu),
        mig_instances=[finding_pb2.MigInstance(**_MIG.of(x)) for x in gpu.mig_instances],
        links=[finding_pb2.NvlinkLink(**_LINK.of(x)) for x in gpu.links],
        fabric=fabric,
        numa_node=gpu.numa_node,
        nearest_nics=gpu.nearest_nics,
        peers=[finding_pb2.GpuPeer(**_PEER.of(x)) for x in gpu.peers],
        kind="" if gpu.kind == NVLINK else gpu.kind,  # an earlier collector reads it, too
    )


def gpu_from_proto(message: finding_pb2.Gpu) -> Gpu:
    """Return the fact in a message. Raises ValueError for an unknown kind or an invalid domain."""
    kind = KINDS.get(message.kind or NVLINK)
    if kind is None:
        raise ValueError(f"kind {message.kind[:20]!a}: expected {', '.join(KINDS)}; upgrade the collector")
    fabric = None
    if message.HasField("fabric"):
        got = message.fabric
        if not _DOMAIN.fullmatch(got.domain):
            raise ValueError(f"fabric.domain {got.domain[:20]!a}: expected at most 16 digits")
        index = got.server_index if got.HasField("server_index") else None
        fabric = NvlinkFabric(**_FABRIC.of(got), health=tuple(got.health), server_index=index)
    return Gpu(
        **_GPU.of(message),
        mig_instances=tuple(MigInstance(*_MIG.values(x)) for x in message.mig_instances),
        links=tuple(_nvlink(*_LINK.values(x)) for x in message.links),
        fabric=fabric,
        numa_node=message.numa_node if message.HasField("numa_node") else None,
        nearest_nics=tuple(message.nearest_nics),
        peers=tuple(_peer(*_PEER.values(x)) for x in message.peers),
        kind=kind.name,
    )


# A cluster has a million NVLinks, but only a few hundred distinct values. Sharing equal values reduces the
# memory for a host from 44 KiB to 8 KiB.
_KEPT = 16_384
_nvlink = functools.lru_cache(_KEPT)(NvlinkLink)
_peer = functools.lru_cache(_KEPT)(GpuPeer)


def latency_to_proto(port: LatencyPort) -> finding_pb2.LatencyPort:
    """Return the message of one compute interface."""
    return finding_pb2.LatencyPort(
        **_LATENCY_PORT.of(port),
        addresses=port.addresses,
        results=[
            finding_pb2.LatencyResult(
                **_LATENCY_RESULT.of(x),
                measured_at=_time(x.at_ns),
                history=[
                    finding_pb2.LatencySample(
                        measured_at=_time(one.at_ns), min_us=one.min_us, jitter_us=one.jitter_us
                    )
                    for one in x.history
                ],
            )
            for x in port.results
        ],
    )


def latency_from_proto(message: finding_pb2.LatencyPort, before: LatencyPort | None = None) -> LatencyPort:
    """Return the fact in a message. Raises ValueError for a timestamp out of range.

    `before` is the previous fact of the same agent. Bursts that it already contains are reused and not
    converted again. Most bursts of a message are unchanged.
    """
    earlier = (
        {} if before is None else {(x.peer, x.peer_interface, x.method, x.at_ns): x for x in before.results}
    )
    results = []
    for x in message.results:
        at_ns = x.measured_at.ToNanoseconds()
        known = earlier.get((x.peer, x.peer_interface, x.method, at_ns))
        if known is None or known.min_us != x.min_us or len(known.history) != len(x.history):
            known = _result(x, at_ns)
        results.append(known)
    return LatencyPort(
        **_LATENCY_PORT.of(message), addresses=tuple(message.addresses), results=tuple(results)
    )


def _result(x: finding_pb2.LatencyResult, at_ns: int) -> LatencyResult:
    history = (LatencySample(one.measured_at.ToNanoseconds(), one.min_us, one.jitter_us) for one in x.history)
    return LatencyResult(**_LATENCY_RESULT.of(x), at_ns=at_ns, history=tuple(history))


def nccl_to_proto(run: NcclRun) -> finding_pb2.NcclRun:
    """Return the message of one run."""
    return finding_pb2.NcclRun(
        **_NCCL_RUN.of(run),
        measured_at=_time(run.at_ns),
        results=[finding_pb2.NcclResult(**_NCCL_RESULT.of(x)) for x in run.results],
    )


def nccl_from_proto(message: finding_pb2.NcclRun) -> NcclRun:
    """Return the fact in a message. Raises ValueError for a timestamp out of range."""
    return NcclRun(
        **_NCCL_RUN.of(message),
        at_ns=message.measured_at.ToNanoseconds(),
        results=tuple(NcclResult(*_NCCL_RESULT.values(x)) for x in message.results),
    )


def _time(at_ns: int) -> Timestamp:
    stamp = Timestamp()
    stamp.FromNanoseconds(at_ns)
    return stamp
