"""Reads from the kubelet which devices this node has, in which NUMA zones, and which are in use.

Off by default. Subjects are names of resources, such as "nvidia.com/gpu". The kubelet serves the PodResources
API on a socket that only root may open. It accepts 100 requests a second of all clients together; a run makes
two.
"""

import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import grpc
import grpc.aio
from hyperscout_formats.facts.facts import DeviceResource
from hyperscout_formats.facts.wire import device_resource_to_proto
from hyperscout_formats.kubelet.pod_resources import MAX_RESOURCES, parse
from hyperscout_formats.text.clean_text import cleaned
from hyperscout_formats.text.errors import FormatError

from hyperscout_agent.findings.probe import (
    Observation,
    ProbeContext,
    ProbeError,
    ProbeParts,
    Sample,
    Scope,
    data,
    failed,
)
from hyperscout_agent.runtime.threads import in_thread

_SERVICE: Final = "/v1.PodResourcesLister"
_MAX_ANSWER_BYTES: Final = 4 * 1024 * 1024  # 110 pods with 16 devices each take about 0.2 MiB
_CALL_S: Final = 4.0
_OPTIONS: Final = (
    ("grpc.max_receive_message_length", _MAX_ANSWER_BYTES),
    ("grpc.enable_http_proxy", 0),
    # Each run has a connection of its own, so that no connection is open while nothing is read.
    ("grpc.use_local_subchannel_pool", 1),
)


def build(context: ProbeContext) -> ProbeParts | None:
    settings = context.settings.pod_resources
    return ProbeParts(PodResourcesProbe(settings.socket)) if settings.enabled else None


class PodResourcesProbe:
    """Reads the devices of device plugins. `socket`: of the kubelet's PodResources API."""

    name = "pod_resources"
    scope: Scope = "node"
    timeout_s = 10.0
    max_findings = MAX_RESOURCES

    def __init__(self, socket: Path, *, interval_s: float = 5.0) -> None:
        self.interval_s: float | None = interval_s
        self._socket = socket

    async def observe(self) -> Observation:
        await in_thread(self._check_socket, "pod-resources")
        target = f"unix:{self._socket.absolute()}"
        try:
            async with grpc.aio.insecure_channel(target, options=_OPTIONS) as channel:
                allocatable = await _answer(channel, "GetAllocatableResources")
                pods = await _answer(channel, "List")
        except grpc.aio.AioRpcError as error:
            raise ProbeError(self._why(error)) from error
        try:
            return Observation(_samples(parse(allocatable, pods, str(self._socket))))
        except FormatError as error:
            raise ProbeError(str(error)) from error

    def _check_socket(self) -> None:
        """Raises ProbeError if there is no socket, which gRPC reports only after its own retries."""
        try:
            is_socket = stat.S_ISSOCK(self._socket.stat().st_mode)
        except FileNotFoundError:
            is_socket = False
        except OSError as error:
            raise ProbeError(f"{self._socket}: {error.strerror}: {_NEEDS_ROOT}") from error
        if not is_socket:
            raise ProbeError(
                f"{self._socket}: there is no socket of the kubelet: mount its folder, set "
                "pod_resources.socket, or set pod_resources.enabled: false on a host without a kubelet"
            )

    def _why(self, error: grpc.aio.AioRpcError) -> str:
        code, text = error.code(), cleaned(error.details() or "")
        if code is grpc.StatusCode.UNIMPLEMENTED:
            return (
                f"{self._socket}: the kubelet has no PodResources API v1: Kubernetes 1.28 or newer is needed"
            )
        if code is grpc.StatusCode.RESOURCE_EXHAUSTED and "limit" not in text.lower():
            return f"{self._socket}: {text}: an answer has at most {_MAX_ANSWER_BYTES >> 20} MiB"
        if "permission denied" in text.lower():
            return f"{self._socket}: Permission denied: {_NEEDS_ROOT}"
        if code is grpc.StatusCode.UNAVAILABLE:
            return f"{self._socket}: the kubelet does not answer: check that it runs ({text})"
        return f"{self._socket}: {code.name.lower().replace('_', ' ')}: {text}"


_NEEDS_ROOT: Final = (
    "the kubelet's socket is for root: set agent.podResources.enabled in the chart, or run "
    "`hyperscout agent pod-resources-relay` as root"
)


async def _answer(channel: grpc.aio.Channel, method: str) -> bytes:
    """Return the encoded answer of a method without parameters."""
    call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(
        f"{_SERVICE}/{method}", request_serializer=None, response_deserializer=None
    )
    return await call(b"", timeout=_CALL_S)


def _samples(found: Mapping[str, DeviceResource | str]) -> dict[str, Sample]:
    return {
        name: failed(one) if isinstance(one, str) else data(device_resource_to_proto(one))
        for name, one in found.items()
    }
