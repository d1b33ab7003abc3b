"""Converts measured facts (GPUs, latency, NCCL) to and from the messages of finding.proto.

As in `wire`, a fact that is read back from its message equals the original.
"""

import functools

from google.protobuf.timestamp_pb2 import Timestamp
from hyperscout.v1 import finding_pb2

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


def gpu_to_proto(gpu: Gpu) -> finding_pb2.Gpu:
    """Return the message of one GPU."""
    return finding_pb2.Gpu(
        uuid=gpu.uuid,
        model=gpu.model,
        pci_address=gpu.pci_address,
        driver_version=gpu.driver_version,
        mig_mode=gpu.mig_mode,
        mig_instances=[
            finding_pb2.MigInstance(
                uuid=x.uuid,
                profile=x.profile,
                gpu_instance=x.gpu_instance,
                compute_instance=x.compute_instance,
            )
            for x in gpu.mig_instances
        ],
        links=[
            finding_pb2.NvlinkLink(
                link=x.link,
                active=x.active,
                version=x.version,
                remote_type=x.remote_type,
                remote_pci_address=x.remote_pci_address,
                replay_errors=x.replay_errors,
                recovery_errors=x.recovery_errors,
                crc_errors=x.crc_errors,
                ber_exponent=x.ber_exponent,
                gbytes_per_s=x.gbytes_per_s,
            )
            for x in gpu.links
        ],
        fabric=None
        if gpu.fabric is None
        else finding_pb2.NvlinkFabric(
            state=gpu.fabric.state,
            status=gpu.fabric.status,
            cluster_uuid=gpu.fabric.cluster_uuid,
            clique_id=gpu.fabric.clique_id,
            health=gpu.fabric.health,
        ),
        numa_node=gpu.numa_node,
        nearest_nics=gpu.nearest_nics,
        peers=[
            finding_pb2.GpuPeer(pci_address=x.pci_address, ancestor=x.ancestor, nvlinks=x.nvlinks)
            for x in gpu.peers
        ],
    )


def gpu_from_proto(message: finding_pb2.Gpu) -> Gpu:
    """Return the fact in a message."""
    return Gpu(
        message.uuid,
        message.model,
        message.pci_address,
        message.driver_version,
        message.mig_mode,
        tuple(
            MigInstance(x.uuid, x.profile, x.gpu_instance, x.compute_instance) for x in message.mig_instances
        ),
        tuple(
            _nvlink(
                x.link,
                x.active,
                x.version,
                x.remote_type,
                x.remote_pci_address,
                x.replay_errors,
                x.recovery_errors,
                x.crc_errors,
                x.ber_exponent,
                x.gbytes_per_s,
            )
            for x in message.links
        ),
        NvlinkFabric(
            message.fabric.state,
            message.fabric.status,
            message.fabric.cluster_uuid,
            message.fabric.clique_id,
            tuple(message.fabric.health),
        )
        if message.HasField("fabric")
        else None,
        message.numa_node if message.HasField("numa_node") else None,
        tuple(message.nearest_nics),
        tuple(_peer(x.pci_address, x.ancestor, x.nvlinks) for x in message.peers),
    )


# A cluster has a million NVLinks, but only a few hundred distinct values. Sharing equal values reduces the
# memory for a host from 44 KiB to 8 KiB.
_KEPT = 16_384
_nvlink = functools.lru_cache(_KEPT)(NvlinkLink)
_peer = functools.lru_cache(_KEPT)(GpuPeer)


def latency_to_proto(port: LatencyPort) -> finding_pb2.LatencyPort:
    """Return the message of one compute interface."""
    return finding_pb2.LatencyPort(
        interface=port.interface,
        addresses=port.addresses,
        udp_port=port.udp_port,
        rdma_port=port.rdma_port,
        results=[
            finding_pb2.LatencyResult(
                peer=x.peer,
                peer_interface=x.peer_interface,
                method=x.method,
                measured_at=_time(x.at_ns),
                sent=x.sent,
                received=x.received,
                min_us=x.min_us,
                median_us=x.median_us,
                jitter_us=x.jitter_us,
                bandwidth_gbps=x.bandwidth_gbps,
                failure=x.failure,
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
        message.interface, tuple(message.addresses), message.udp_port, message.rdma_port, tuple(results)
    )


def _result(x: finding_pb2.LatencyResult, at_ns: int) -> LatencyResult:
    return LatencyResult(
        x.peer,
        x.peer_interface,
        x.method,
        at_ns,
        x.sent,
        x.received,
        x.min_us,
        x.median_us,
        x.jitter_us,
        x.bandwidth_gbps,
        x.failure,
        tuple(LatencySample(one.measured_at.ToNanoseconds(), one.min_us, one.jitter_us) for one in x.history),
    )


def nccl_to_proto(run: NcclRun) -> finding_pb2.NcclRun:
    """Return the message of one run."""
    return finding_pb2.NcclRun(
        peer=run.peer,
        method=run.method,
        measured_at=_time(run.at_ns),
        nccl_version=run.nccl_version,
        ranks=run.ranks,
        results=[
            finding_pb2.NcclResult(
                operation=x.operation,
                size_bytes=x.size_bytes,
                time_us=x.time_us,
                algorithm_gbytes_per_s=x.algorithm_gbytes_per_s,
                bus_gbytes_per_s=x.bus_gbytes_per_s,
            )
            for x in run.results
        ],
        duration_s=run.duration_s,
    )


def nccl_from_proto(message: finding_pb2.NcclRun) -> NcclRun:
    """Return the fact in a message. Raises ValueError for a timestamp out of range."""
    return NcclRun(
        message.peer,
        message.method,
        message.measured_at.ToNanoseconds(),
        message.nccl_version,
        message.ranks,
        tuple(
            NcclResult(x.operation, x.size_bytes, x.time_us, x.algorithm_gbytes_per_s, x.bus_gbytes_per_s)
            for x in message.results
        ),
        message.duration_s,
    )


def _time(at_ns: int) -> Timestamp:
    stamp = Timestamp()
    stamp.FromNanoseconds(at_ns)
    return stamp
