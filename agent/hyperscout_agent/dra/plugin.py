"""Answers the kubelet that each claim is prepared: a pod uses the NICs of its node without preparation.

The kubelet starts no pod with a claim on a driver that has no plugin on the node. This one is a process of
its own, because only root may create a socket in the kubelet's folder. It reads no file, opens no device and
connects to nothing. A container gets no device from it; what it sees of a NIC is what its pod has anyway.
"""

import argparse
import asyncio
import contextlib
import errno
import logging
import os
import secrets
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import grpc
import grpc.aio
from hyperscout.v1.kubelet_pb2 import (
    KubeletClaimResult,
    KubeletClaimResults,
    KubeletClaims,
    KubeletPluginInfo,
    KubeletRegistrationStatus,
)
from hyperscout_formats.kubelet.dra import (
    DRIVER,
    PLUGIN_SERVICE,
    PLUGIN_TYPE,
    PLUGIN_VERSION,
    REGISTRATION_SERVICE,
)
from hyperscout_formats.text.clean_text import cleaned

_log = logging.getLogger(__name__)

REGISTRY: Final = Path("/var/lib/kubelet/plugins_registry")
SOCKET_NAME: Final = f"{DRIVER}-reg.sock"
_GRACE_S: Final = 1.0
CHECK_S: Final = 5.0
_MAX_MESSAGE_BYTES: Final = 1 << 18  # the claims of one pod
_SHOWN: Final = 500  # characters of the kubelet's text in the log


def handlers() -> tuple[grpc.GenericRpcHandler, ...]:
    """Return the handlers of both services. The kubelet finds both behind the socket of the registration."""
    registration = {
        "GetInfo": _unary(_info, bytes),
        "NotifyRegistrationStatus": _unary(_registered, KubeletRegistrationStatus.FromString),
    }
    claims = KubeletClaims.FromString
    plugin = {
        "NodePrepareResources": _unary(_done, claims),
        "NodeUnprepareResources": _unary(_done, claims),
    }
    return (
        grpc.method_handlers_generic_handler(REGISTRATION_SERVICE, registration),
        grpc.method_handlers_generic_handler(PLUGIN_SERVICE, plugin),
    )


def _unary(
    answer: Callable[[Any], bytes], read: Callable[[bytes], Any]
) -> "grpc.RpcMethodHandler[Any, bytes]":
    async def call(request: Any, context: object) -> bytes:
        return answer(request)

    return grpc.unary_unary_rpc_method_handler(call, request_deserializer=read)


def _info(request: bytes) -> bytes:
    found = KubeletPluginInfo(type=PLUGIN_TYPE, name=DRIVER, supported_versions=[PLUGIN_VERSION])
    return found.SerializeToString()


def _registered(status: KubeletRegistrationStatus) -> bytes:
    if status.plugin_registered:
        _log.info("the kubelet has registered the plugin of %s", DRIVER)
    else:
        _log.error("the kubelet refuses the plugin: %s", cleaned(status.error)[:_SHOWN])
    return b""


def _done(request: KubeletClaims) -> bytes:
    """Return that each claim is prepared, or is no longer: the answers have the same form."""
    done = {claim.uid: KubeletClaimResult() for claim in request.claims}
    return KubeletClaimResults(claims=done).SerializeToString()


async def serve(socket: Path, ended: asyncio.Event) -> None:
    """Serve on `socket` until `ended` is set. Raises OSError if it cannot be created, or was removed: a
    container that ends is started again.

    The end removes the socket, by which the kubelet sees that the plugin is gone. The socket of another
    plugin that was started later stays. So gRPC, which removes the path that it was given, gets another one;
    the kubelet ignores names with a dot.
    """
    made = socket.with_name(f".{secrets.token_hex(4)}.sock")
    server = grpc.aio.server(options=[("grpc.max_receive_message_length", _MAX_MESSAGE_BYTES)])
    server.add_generic_rpc_handlers(handlers())
    try:
        server.add_insecure_port(f"unix:{made}")
    except RuntimeError as error:
        raise OSError(f"cannot be created: {error}") from error
    await server.start()
    mine = _inode(made)
    try:
        made.replace(socket)  # also in place of that of an earlier plugin
        _log.info("%s is there; waiting for the kubelet", socket)
        while not ended.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(ended.wait(), CHECK_S)
            if not ended.is_set() and _inode(socket) is None:
                raise FileNotFoundError(errno.ENOENT, f"{socket.name} was removed by another program")
    finally:
        _remove(socket, mine)
        await server.stop(_GRACE_S)


def _remove(socket: Path, mine: int | None) -> None:
    if _inode(socket) == mine:
        socket.unlink(missing_ok=True)


def _inode(socket: Path) -> int | None:
    try:
        return socket.lstat().st_ino
    except FileNotFoundError:
        return None


async def _run(registry: Path) -> None:
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    await serve(registry / SOCKET_NAME, ended)


def main(arguments: list[str] | None = None) -> int:
    """Run the command `hyperscout agent dra-plugin`. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="hyperscout agent dra-plugin", description=__doc__)
    parser.add_argument(
        "--registry", type=Path, default=REGISTRY, help="the kubelet's folder for sockets of plugins"
    )
    options = parser.parse_args(arguments)
    if not os.access(options.registry, os.W_OK):
        print(  # noqa: T201
            f"{options.registry}: no such folder, or not writable: run this as root beside a kubelet; "
            "if that has another --root-dir, give --registry ROOT_DIR/plugins_registry",
            file=sys.stderr,
        )
        return 1
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        asyncio.run(_run(options.registry.absolute()))
    except OSError as error:
        print(f"{options.registry}: {error.strerror or error}", file=sys.stderr)  # noqa: T201
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
