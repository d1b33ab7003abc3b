"""A device plugin with the real API of the kubelet (v1beta1), whose devices are in NUMA zones and do nothing.

Messages are those of kubernetes/kubelet, pkg/apis/deviceplugin/v1beta1/api.proto, written field by field. All
of them are texts and lists of messages, which need no stubs.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path

import grpc
import grpc.aio
from hyperscout.v1.kubelet_pb2 import KubeletNumaNode, KubeletTopology

DEVICES = "DEVICES"  # variable of containers with the ids of their devices, separated by commas


def _field(number: int, value: bytes | str) -> bytes:
    """A field that is a text or a message of fewer than 16,384 bytes."""
    raw = value.encode() if isinstance(value, str) else value
    size = bytes([len(raw)]) if len(raw) < 128 else bytes([len(raw) & 127 | 128, len(raw) >> 7])
    return bytes([number << 3 | 2]) + size + raw


def _fields(message: bytes) -> Iterator[bytes]:
    """The values of a message whose only field is a list of texts or messages."""
    at = 0
    while at < len(message):
        at += 1
        size = shift = 0
        while True:
            size |= (message[at] & 127) << shift
            shift += 7
            at += 1
            if message[at - 1] < 128:
                break
        yield message[at : at + size]
        at += size


def _allocated(request: bytes) -> bytes:
    """The answer of Allocate: each container gets a variable that names its devices."""
    answer = b""
    for container in _fields(request):
        ids = ",".join(sorted(one.decode() for one in _fields(container)))
        answer += _field(1, _field(1, _field(1, DEVICES) + _field(2, ids)))
    return answer


def _device(name: str, zone: int) -> bytes:
    topology = KubeletTopology(nodes=[KubeletNumaNode(ID=zone)]).SerializeToString()
    return _field(1, name) + _field(2, "Healthy") + _field(3, topology)


@contextlib.asynccontextmanager
async def device_plugin(folder: Path, resource: str, zones: Mapping[str, int]) -> AsyncIterator[None]:
    """Offer devices to the kubelet. `folder`: its folder device-plugins. `zones`: NUMA zone by device."""
    listed = b"".join(_field(1, _device(name, zone)) for name, zone in zones.items())
    endpoint = resource.replace("/", "-") + ".sock"

    async def empty(_request: bytes, _context: object) -> bytes:
        return b""

    async def allocate(request: bytes, _context: object) -> bytes:
        return _allocated(request)

    async def list_and_watch(_request: bytes, _context: object) -> AsyncIterator[bytes]:
        yield listed
        with contextlib.suppress(asyncio.CancelledError):  # the server stops
            await asyncio.Event().wait()

    server = grpc.aio.server()
    handlers = {
        "GetDevicePluginOptions": grpc.unary_unary_rpc_method_handler(empty),
        "ListAndWatch": grpc.unary_stream_rpc_method_handler(list_and_watch),
        "Allocate": grpc.unary_unary_rpc_method_handler(allocate),
        "PreStartContainer": grpc.unary_unary_rpc_method_handler(empty),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("v1beta1.DevicePlugin", handlers),))
    server.add_insecure_port(f"unix:{folder / endpoint}")
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"unix:{folder / 'kubelet.sock'}") as channel:
            register: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(
                "/v1beta1.Registration/Register", request_serializer=None, response_deserializer=None
            )
            await register(_field(1, "v1beta1") + _field(2, endpoint) + _field(3, resource), timeout=10)
        yield
    finally:
        await server.stop(None)
