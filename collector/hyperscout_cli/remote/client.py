"""The collector as the command line sees it: values in and out, gRPC's errors as one clear line."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

# Before gRPC starts: its own messages about connections say less than ours.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

import grpc
from hyperscout.v1 import finding_pb2, measurement_pb2, topology_pb2
from hyperscout.v1.measurement_pb2_grpc import MeasurementServiceStub
from hyperscout.v1.topology_pb2_grpc import TopologyServiceStub
from hyperscout_agent.runtime.credentials import CredentialsError, Metadata, bearer, tls_hint
from hyperscout_agent.runtime.targets import TargetError, check_target
from hyperscout_formats.text.leader import leader_in
from hyperscout_topology.proto import topology_from_proto

from hyperscout_cli.shared.errors import AnswerIsNoError, CliError
from hyperscout_cli.shared.options import TOKEN_VARIABLE, Endpoint

if TYPE_CHECKING:
    from hyperscout_topology.topology import Topology

MAX_ANSWER_BYTES = 512 << 20  # all links of 65,536 hosts are under 100 MiB
PAGE_SIZE = 5000
_RUN_ENDS_S = 60.0  # what the collector needs at most to begin a run and to clean up after it
_MAX_HINTS = 3  # of standbys, about who leads
# What gRPC itself says without a connection; a collector in trouble answers UNAVAILABLE in its own words.
_HUNG_UP = ("socket closed", "recvmsg", "reset", "broken pipe")
_HOW_TO_SHOW = f" (show it with --token-file FILE, or in {TOKEN_VARIABLE})"
_NO_CONNECTION = ("connect", "dns resolution", "socket closed", "recvmsg", "name resolution")


class Collector:
    """A connection to a collector's TopologyService. Every method raises CliError, nothing else.

    The constructor raises UsageError too, where flags do not go together.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._timeout_s = endpoint.timeout_s
        self._credentials = endpoint.credentials
        self._connect(self._address())

    def _address(self) -> str:
        if not self._endpoint.namespace:
            return self._endpoint.address
        from hyperscout_cli.remote.port_forward import forwarded

        return forwarded(self._endpoint.namespace, self._timeout_s)

    def _connect(self, address: str) -> None:
        options: list[tuple[str, int | str]] = [
            ("grpc.max_receive_message_length", MAX_ANSWER_BYTES),
            ("grpc.enable_http_proxy", 0),
            ("grpc.keepalive_time_ms", 30_000),
        ]
        options += self._credentials.options()
        with _readable():
            self._credentials.check(address)
            if self._endpoint.token and self._credentials.ca is None:
                check_target(address, insecure=False, token=True)  # of the environment: not a file's
            shown = self._credentials.for_channel()
        if shown is None:
            self._channel = grpc.insecure_channel(address, options=options)
        else:
            self._channel = grpc.secure_channel(address, shown, options=options)
        self.address = address
        self._service = TopologyServiceStub(self._channel)
        self._others = self.stubs(self._channel)

    def stubs(self, channel: grpc.Channel) -> Sequence[Any]:
        """Of the services that are asked besides."""
        return (MeasurementServiceStub(channel),)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._channel.close()

    def topology(self, *, links: bool = True, at_ns: int | None = None) -> "Topology":
        """The published topology, or that of a time (Unix ns); without its links it is much smaller."""
        request = topology_pb2.GetTopologyRequest(omit_links=not links)
        if at_ns is not None:
            request.at.FromNanoseconds(at_ns)
        return topology_from_proto(self._ask("GetTopology", request).topology)

    def status(self) -> topology_pb2.GetStatusResponse:
        """Agents, leases, generations."""
        answer: topology_pb2.GetStatusResponse = self._ask("GetStatus", topology_pb2.GetStatusRequest())
        return answer

    def explain(self, node_a: str, node_b: str) -> topology_pb2.ExplainResponse:
        """Path, tier and evidence between two nodes."""
        request = topology_pb2.ExplainRequest(node_a=node_a, node_b=node_b)
        answer: topology_pb2.ExplainResponse = self._ask("Explain", request)
        return answer

    def findings(self, node: str = "", probe: str = "") -> Iterator[topology_pb2.StoredFinding]:
        """All current findings, page by page."""
        token = ""
        while True:
            request = topology_pb2.ListFindingsRequest(
                node=node, probe=probe, page_token=token, page_size=PAGE_SIZE
            )
            page = self._ask("ListFindings", request)
            yield from page.findings
            token = page.next_page_token
            if not token:
                return

    def history(self, request: topology_pb2.ListHistoryRequest) -> Iterator[topology_pb2.ListHistoryResponse]:
        """What changed, page by page, the newest first."""
        while True:
            page = self._ask("ListHistory", request)
            yield page
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    def approve(self, generation: int) -> int:
        """Publish a held generation; returns the one that is published now."""
        request = topology_pb2.ApproveRequest(generation=generation)
        return int(self._ask("Approve", request).generation)

    def measuring(self) -> measurement_pb2.GetMeasuringResponse:
        """How measuring between nodes goes."""
        request = measurement_pb2.GetMeasuringRequest()
        answer: measurement_pb2.GetMeasuringResponse = self._ask("GetMeasuring", request)
        return answer

    def set_measuring(self, *, paused: bool, reason: str = "") -> None:
        """Pause measuring, or let it go on."""
        self._ask("SetMeasuring", measurement_pb2.SetMeasuringRequest(paused=paused, reason=reason))

    def run_nccl(
        self, nodes: Sequence[str], sizes_bytes: Sequence[int], limit_s: float
    ) -> finding_pb2.NcclRun:
        """Run NCCL, and wait for it. Raises AnswerIsNoError for what may not run now."""
        request = measurement_pb2.RunNcclRequest(nodes=nodes, sizes_bytes=sizes_bytes, timeout_s=limit_s)
        try:
            answer: measurement_pb2.RunNcclResponse = self._ask("RunNccl", request, limit_s + _RUN_ENDS_S)
        except CliError as error:
            code = error.__cause__.code() if isinstance(error.__cause__, grpc.Call) else None
            if code is grpc.StatusCode.FAILED_PRECONDITION:
                raise AnswerIsNoError(error.message) from error
            raise
        return answer.run

    def watch(self) -> Iterator[topology_pb2.WatchTopologyResponse]:
        """A snapshot, then a delta for each generation, without links; ends only with an error."""
        yield from self._stream("WatchTopology", topology_pb2.WatchTopologyRequest(omit_links=True))

    def _stream(self, method: str, request: Any) -> Iterator[Any]:
        for hints in range(_MAX_HINTS, -1, -1):
            with self._clear():
                try:
                    yield from self._method(method)(request, metadata=self._metadata())
                except grpc.RpcError as error:
                    if not hints or not self._follow(error):
                        raise
                else:
                    return

    def _ask(self, method: str, request: Any, timeout_s: float | None = None) -> Any:
        for hints in range(_MAX_HINTS, -1, -1):
            with self._clear():
                try:
                    call = self._method(method)
                    return call(request, timeout=timeout_s or self._timeout_s, metadata=self._metadata())
                except grpc.RpcError as error:
                    if not hints or not self._follow(error):
                        raise
        raise AssertionError("the last turn returns or raises")

    def _method(self, name: str) -> Any:
        return next(found for stub in (self._service, *self._others) if (found := getattr(stub, name, None)))

    def _follow(self, error: grpc.RpcError) -> bool:
        """Whether a standby said who leads; then that is whom we ask now."""
        leader = leader_in(error.trailing_metadata()) if isinstance(error, grpc.Call) else None
        # From outside of the cluster the leader's own address leads nowhere.
        if not leader or leader == self.address or self._endpoint.namespace:
            return False
        self._channel.close()
        self._connect(leader)
        return True

    def _metadata(self) -> Metadata:
        with _readable():
            if self._endpoint.token:
                return bearer(self._endpoint.token, TOKEN_VARIABLE)
            return self._credentials.metadata()

    @contextmanager
    def _clear(self) -> Iterator[None]:
        try:
            yield
        except grpc.RpcError as error:
            raise CliError(self._words(error)) from error

    def _words(self, error: grpc.RpcError) -> str:
        code = error.code() if isinstance(error, grpc.Call) else None
        details = (error.details() or "") if isinstance(error, grpc.Call) else str(error)
        if code is grpc.StatusCode.UNAVAILABLE and (hint := tls_hint(details)):
            hint = hint.replace("(tls_", "(--tls-").replace("_", "-")
            return f"no trust in the collector at {self.address}: {hint}"
        if code is grpc.StatusCode.UNAVAILABLE and any(word in details.lower() for word in _NO_CONNECTION):
            return (
                f"cannot reach the collector at {self.address}: "
                f"start it with `hyperscout collector` or set --collector{self._maybe(details)}"
            )
        if code is grpc.StatusCode.UNAUTHENTICATED:
            return f"the collector at {self.address} does not know you: {details}{_HOW_TO_SHOW}"
        if code is grpc.StatusCode.DEADLINE_EXCEEDED:
            return f"the collector at {self.address} gave no answer within {self._timeout_s:g} s (--timeout)"
        if code is grpc.StatusCode.UNIMPLEMENTED:
            return f"what listens at {self.address} is no collector, or one of another version"
        return details or f"the collector at {self.address} failed: {code}"

    def _maybe(self, details: str) -> str:
        """What else it may be when the other end hangs up without a word."""
        if not any(word in details.lower() for word in _HUNG_UP):
            return ""
        if self._endpoint.tls_ca is None:
            return ". It hung up: if it speaks TLS, give --tls-ca"
        if self._endpoint.tls_cert is None:
            return ". It hung up: if it demands a client certificate, give --tls-cert and --tls-key"
        return ". It hung up: perhaps it does not trust the client certificate, or that has expired"


@contextmanager
def _readable() -> Iterator[None]:
    try:
        yield
    except (CredentialsError, TargetError) as error:
        raise CliError(str(error)) from error
