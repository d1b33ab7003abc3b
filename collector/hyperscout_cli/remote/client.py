"""The client of a collector's gRPC services. It converts gRPC errors to messages of one line."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import grpc
from hyperscout.v1 import finding_pb2, measurement_pb2, placement_pb2, topology_pb2
from hyperscout.v1.measurement_pb2_grpc import MeasurementServiceStub
from hyperscout.v1.placement_pb2_grpc import PlacementServiceStub
from hyperscout.v1.topology_pb2_grpc import TopologyServiceStub
from hyperscout_formats.text.leader import leader_in
from hyperscout_runtime.credentials import (
    NO_TLS,
    CredentialsError,
    Metadata,
    TargetError,
    bearer,
    check_target,
    protocol_hint,
    tls_hint,
)
from hyperscout_topology.proto import topology_from_proto

from hyperscout_cli.shared.errors import AnswerIsNoError, BadInputError, CliError
from hyperscout_cli.shared.options import TOKEN_VARIABLE, Endpoint

if TYPE_CHECKING:
    from hyperscout_topology.topology import Topology

MAX_ANSWER_BYTES = 512 << 20  # all links of 65,536 hosts are under 100 MiB
PAGE_SIZE = 5000
_RUN_ENDS_S = 60.0  # the time that the collector needs to start a run and to clean up after it
_MAX_HINTS = 3  # redirections by standby replicas
# gRPC's own messages about lost connections. A collector also answers UNAVAILABLE, with other messages.
_HUNG_UP = ("socket closed", "recvmsg", "reset", "broken pipe")
_NEW_ACCOUNT = """. To make an account that may only look, and a token of it:
  kubectl -n {namespace} create serviceaccount reader
  kubectl create clusterrolebinding hyperscout-reader \\
    --clusterrole hyperscout-view --serviceaccount {namespace}:reader
  kubectl -n {namespace} create token reader --audience hyperscout > token"""
_OF_THIS_GANG = (grpc.StatusCode.NOT_FOUND, grpc.StatusCode.FAILED_PRECONDITION)
_SERVICES = (TopologyServiceStub, MeasurementServiceStub, PlacementServiceStub)
_NO_CONNECTION = ("connect", "dns resolution", "socket closed", "recvmsg", "name resolution")


class NotReleasedError(CliError):
    """The gang has no reservation, or its pods hold the nodes. Other gangs can still be released."""


class Collector:
    """A connection to a collector's TopologyService. Every method raises CliError, nothing else.

    The constructor also raises UsageError, for flags that contradict each other.
    """

    def __init__(self, endpoint: Endpoint, *, or_saved: bool = False) -> None:
        """`or_saved`: the command can also read a saved topology."""
        self._or_saved = ", or give a saved topology: --topology FILE" if or_saved else ""
        address = endpoint.address
        if namespace := endpoint.namespace:
            from hyperscout_cli.remote.port_forward import cluster_ca, forwarded

            address = forwarded(namespace, endpoint.timeout_s)
            if endpoint.tls_ca is None:
                endpoint = replace(endpoint, tls_ca=cluster_ca(namespace, endpoint.timeout_s))
        self._endpoint = endpoint
        self._timeout_s = endpoint.timeout_s
        self._credentials = endpoint.credentials
        self._connect(address)

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
                # Never send the variable's token in plaintext.
                check_target(address, insecure=False, token=True)
            shown = self._credentials.for_channel()
        if shown is None:
            self._channel = grpc.insecure_channel(address, options=options)
        else:
            self._channel = grpc.secure_channel(address, shown, options=options)
        self.address = address
        self._stubs = [service(self._channel) for service in _SERVICES]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._channel.close()

    def topology(self, *, links: bool = True, at_ns: int | None = None) -> "Topology":
        """The published topology, now or at a time (Unix ns). Without links it is much smaller."""
        request = topology_pb2.GetTopologyRequest(omit_links=not links)
        if at_ns is not None:
            request.at.FromNanoseconds(at_ns)
        return topology_from_proto(self._ask("GetTopology", request).topology)

    def status(self) -> topology_pb2.GetStatusResponse:
        """The status of the collector, its agents and leases."""
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
        """Pages of events, the newest first."""
        while True:
            page = self._ask("ListHistory", request)
            yield page
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    def approve(self, generation: int) -> int:
        """Publish a held generation. Returns the generation that is published now."""
        request = topology_pb2.ApproveRequest(generation=generation)
        return int(self._ask("Approve", request).generation)

    def measuring(self) -> measurement_pb2.GetMeasuringResponse:
        """The state of measuring."""
        request = measurement_pb2.GetMeasuringRequest()
        answer: measurement_pb2.GetMeasuringResponse = self._ask("GetMeasuring", request)
        return answer

    def set_measuring(self, *, paused: bool, reason: str = "") -> None:
        """Pause or resume measuring."""
        self._ask("SetMeasuring", measurement_pb2.SetMeasuringRequest(paused=paused, reason=reason))

    def run_nccl(
        self, nodes: Sequence[str], sizes_bytes: Sequence[int], limit_s: float
    ) -> finding_pb2.NcclRun:
        """Run NCCL, and wait for the result. Raises AnswerIsNoError if it may not run now."""
        request = measurement_pb2.RunNcclRequest(nodes=nodes, sizes_bytes=sizes_bytes, timeout_s=limit_s)
        try:
            answer: measurement_pb2.RunNcclResponse = self._ask("RunNccl", request, limit_s + _RUN_ENDS_S)
        except CliError as error:
            if _code(error.__cause__) is grpc.StatusCode.FAILED_PRECONDITION:
                raise AnswerIsNoError(error.message) from error
            raise
        return answer.run

    def watch(self) -> Iterator[topology_pb2.WatchTopologyResponse]:
        """A snapshot, then a delta for each generation, without links; ends only with an error."""
        yield from self._stream("WatchTopology", topology_pb2.WatchTopologyRequest(omit_links=True))

    def place(self, request: placement_pb2.PlaceRequest) -> placement_pb2.Placement:
        """Place, and reserve unless it is a dry run."""
        answer: placement_pb2.PlaceResponse = self._ask_placer("Place", request)
        return answer.placement

    def explain_placement(
        self, request: placement_pb2.ExplainPlacementRequest
    ) -> placement_pb2.ExplainPlacementResponse:
        answer: placement_pb2.ExplainPlacementResponse = self._ask_placer("ExplainPlacement", request)
        return answer

    def release(self, gang: str) -> None:
        """Raises NotReleasedError."""
        try:
            self._ask_placer("Release", placement_pb2.ReleaseRequest(gang=gang))
        except CliError as error:
            if _code(error.__cause__) in _OF_THIS_GANG:
                raise NotReleasedError(error.message) from error
            raise

    def placements(self) -> Sequence[placement_pb2.Placement]:
        """By gang."""
        answer: placement_pb2.ListPlacementsResponse = self._ask_placer(
            "ListPlacements", placement_pb2.ListPlacementsRequest()
        )
        return answer.placements

    def queue(self) -> Sequence[placement_pb2.WaitingGang]:
        """In the order in which they are tried."""
        answer: placement_pb2.ListQueueResponse = self._ask_placer(
            "ListQueue", placement_pb2.ListQueueRequest()
        )
        return answer.gangs

    def watch_placements(self) -> Iterator[placement_pb2.WatchPlacementsResponse]:
        """All of them, then each change; ends only with an error."""
        yield from self._stream("WatchPlacements", placement_pb2.WatchPlacementsRequest())

    def repair(
        self, gang: str, failed_nodes: Sequence[str], cleared_nodes: Sequence[str], *, dry_run: bool
    ) -> placement_pb2.RepairResponse:
        request = placement_pb2.RepairRequest(
            gang=gang, failed_nodes=failed_nodes, cleared_nodes=cleared_nodes, dry_run=dry_run
        )
        answer: placement_pb2.RepairResponse = self._ask_placer("Repair", request)
        return answer

    def resize(self, gang: str, workers: int, *, dry_run: bool) -> placement_pb2.ResizeResponse:
        request = placement_pb2.ResizeRequest(gang=gang, workers=workers, dry_run=dry_run)
        answer: placement_pb2.ResizeResponse = self._ask_placer("Resize", request)
        return answer

    def improve(self, gang: str) -> placement_pb2.ImproveResponse:
        answer: placement_pb2.ImproveResponse = self._ask_placer(
            "Improve", placement_pb2.ImproveRequest(gang=gang)
        )
        return answer

    def defragment(
        self, request: placement_pb2.PlaceRequest, most_moves: int
    ) -> placement_pb2.DefragmentResponse:
        asked = placement_pb2.DefragmentRequest(request=request, most_moves=most_moves)
        answer: placement_pb2.DefragmentResponse = self._ask_placer("Defragment", asked)
        return answer

    def last_plan(self) -> placement_pb2.DefragmentResponse:
        """The newest plan of the schedule. Raises AnswerIsNoError if there is none."""
        asked = placement_pb2.DefragmentRequest(last=True)
        try:
            answer: placement_pb2.DefragmentResponse = self._ask_placer("Defragment", asked)
        except CliError as error:
            if _code(error.__cause__) is grpc.StatusCode.NOT_FOUND:
                raise AnswerIsNoError(error.message) from error
            raise
        return answer

    def _ask_placer(self, method: str, request: Any) -> Any:
        try:
            return self._ask(method, request)
        except CliError as error:
            if _code(error.__cause__) is grpc.StatusCode.INVALID_ARGUMENT:
                raise BadInputError(error.message) from error
            raise

    def event_log(self) -> Iterator[str]:
        """The latest events of the collector's state machines, as JSON lines."""
        for part in self._stream("GetEventLog", topology_pb2.GetEventLogRequest()):
            yield from part.lines

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
        return next(found for stub in self._stubs if (found := getattr(stub, name, None)))

    def _follow(self, error: grpc.RpcError) -> bool:
        """Connect to the leader if a standby replica named it. Returns False if it did not."""
        leader = leader_in(error.trailing_metadata()) if isinstance(error, grpc.Call) else None
        # The leader's own address is not reachable from outside of the cluster.
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
        code = _code(error)
        details = (error.details() or "") if isinstance(error, grpc.Call) else str(error)
        if code is grpc.StatusCode.UNAVAILABLE and NO_TLS in details:
            return f"the collector at {self.address} does not use TLS on this port: leave out --tls-ca"
        if code is grpc.StatusCode.UNAVAILABLE and (hint := tls_hint(details)):
            hint = hint.replace("(tls_", "(--tls-").replace("_", "-")
            return f"the certificate of the collector at {self.address} is not trusted: {hint}"
        if code is grpc.StatusCode.UNAVAILABLE and (cause := protocol_hint(details)):
            return f"cannot ask the collector at {self.address}: {': '.join(cause)}"
        if code is grpc.StatusCode.UNAVAILABLE and any(word in details.lower() for word in _NO_CONNECTION):
            todo = f"start it with `hyperscout collector` or set --collector{self._or_saved}"
            return f"cannot reach the collector at {self.address}: {todo}{self._maybe(details)}"
        if code is grpc.StatusCode.UNAUTHENTICATED:
            how = self._how_to_authenticate()
            return f"the collector at {self.address} rejects your credentials: {details} {how}"
        if code is grpc.StatusCode.PERMISSION_DENIED:
            return f"{details} (the collector remembers a refusal for some seconds: try again after that)"
        if code is grpc.StatusCode.DEADLINE_EXCEEDED:
            return (
                f"the collector at {self.address} did not answer within {self._timeout_s:g} s (--timeout): "
                "see whether this is its port of gRPC, or give it more time"
            )
        if code is grpc.StatusCode.UNIMPLEMENTED:
            return (
                f"the server at {self.address} is not a collector, or has another version: check --collector "
                "and `hyperscout version`"
            )
        name = code.name if code is not None else "no status"
        return details or f"the collector at {self.address} failed ({name}): read its log"

    def _how_to_authenticate(self) -> str:
        endpoint, namespace = self._endpoint, self._endpoint.namespace
        how = f"(give a token with --token-file FILE or in {TOKEN_VARIABLE})"
        if not namespace or endpoint.token or endpoint.token_file is not None:
            return how
        return how + _NEW_ACCOUNT.format(namespace=namespace)

    def _maybe(self, details: str) -> str:
        """A hint about TLS if the server closed the connection without a message."""
        if not any(word in details.lower() for word in _HUNG_UP):
            return ""
        if self._endpoint.tls_ca is None:
            return ". It closed the connection: if it uses TLS, give --tls-ca"
        if self._endpoint.tls_cert is None:
            how = "give --tls-cert and --tls-key"
            return f". It closed the connection: if it requires a client certificate, {how}"
        return ". It closed the connection: see whether the client certificate is expired or not trusted"


@contextmanager
def _readable() -> Iterator[None]:
    try:
        yield
    except CredentialsError as error:
        raise BadInputError(str(error)) from error
    except TargetError as error:  # of a leader that a standby named
        raise CliError(str(error)) from error


def _code(error: BaseException | None) -> grpc.StatusCode | None:
    return error.code() if isinstance(error, grpc.Call) else None
