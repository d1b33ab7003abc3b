"""The collector as the command line sees it: values in and out, gRPC's errors as one clear line."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Self

# Before gRPC starts: its own messages about connections say less than ours.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

import grpc
from hyperscout.v1 import topology_pb2, topology_pb2_grpc
from hyperscout_collector.api.mapping import topology_from_proto

from hyperscout_cli.errors import CliError

if TYPE_CHECKING:
    from hyperscout_collector.topology import Topology

MAX_ANSWER_BYTES = 512 << 20  # all links of 65,536 hosts are under 100 MiB
PAGE_SIZE = 5000
# What gRPC itself says without a connection; a collector in trouble answers UNAVAILABLE in its own words.
_NO_CONNECTION = ("connect", "dns resolution", "socket closed", "recvmsg", "name resolution")


class Collector:
    """A connection to a collector's TopologyService. Every method raises CliError, nothing else."""

    def __init__(self, address: str, timeout_s: float) -> None:
        self.address = address
        self._timeout_s = timeout_s
        options = [
            ("grpc.max_receive_message_length", MAX_ANSWER_BYTES),
            ("grpc.enable_http_proxy", 0),
            ("grpc.keepalive_time_ms", 30_000),
        ]
        self._channel = grpc.insecure_channel(address, options=options)
        self._service = topology_pb2_grpc.TopologyServiceStub(self._channel)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._channel.close()

    def topology(self, *, links: bool = True) -> "Topology":
        """The published topology; without its links it is much smaller."""
        with self._clear():
            request = topology_pb2.GetTopologyRequest(omit_links=not links)
            answer = self._service.GetTopology(request, timeout=self._timeout_s)
        return topology_from_proto(answer.topology)

    def status(self) -> topology_pb2.GetStatusResponse:
        """Agents, leases, generations."""
        with self._clear():
            return self._service.GetStatus(topology_pb2.GetStatusRequest(), timeout=self._timeout_s)

    def explain(self, node_a: str, node_b: str) -> topology_pb2.ExplainResponse:
        """Path, tier and evidence between two nodes."""
        with self._clear():
            request = topology_pb2.ExplainRequest(node_a=node_a, node_b=node_b)
            return self._service.Explain(request, timeout=self._timeout_s)

    def findings(self, node: str = "", probe: str = "") -> Iterator[topology_pb2.StoredFinding]:
        """All current findings, page by page."""
        token = ""
        while True:
            with self._clear():
                request = topology_pb2.ListFindingsRequest(
                    node=node, probe=probe, page_token=token, page_size=PAGE_SIZE
                )
                page = self._service.ListFindings(request, timeout=self._timeout_s)
            yield from page.findings
            token = page.next_page_token
            if not token:
                return

    def approve(self, generation: int) -> int:
        """Publish a held generation; returns the one that is published now."""
        with self._clear():
            request = topology_pb2.ApproveRequest(generation=generation)
            return self._service.Approve(request, timeout=self._timeout_s).generation

    def watch(self) -> Iterator[topology_pb2.WatchTopologyResponse]:
        """A snapshot, then a delta for each generation, without links; ends only with an error."""
        with self._clear():
            yield from self._service.WatchTopology(topology_pb2.WatchTopologyRequest(omit_links=True))

    @contextmanager
    def _clear(self) -> Iterator[None]:
        try:
            yield
        except grpc.RpcError as error:
            raise CliError(self._words(error)) from error

    def _words(self, error: grpc.RpcError) -> str:
        code = error.code() if isinstance(error, grpc.Call) else None
        details = (error.details() or "") if isinstance(error, grpc.Call) else str(error)
        if code is grpc.StatusCode.UNAVAILABLE and any(word in details.lower() for word in _NO_CONNECTION):
            return (
                f"cannot reach the collector at {self.address}: "
                "start it with `hyperscout collector` or set --collector"
            )
        if code is grpc.StatusCode.DEADLINE_EXCEEDED:
            return f"the collector at {self.address} gave no answer within {self._timeout_s:g} s (--timeout)"
        if code is grpc.StatusCode.UNIMPLEMENTED:
            return f"what listens at {self.address} is no collector, or one of another version"
        return details or f"the collector at {self.address} failed: {code}"
