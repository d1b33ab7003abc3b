"""Relays connections from the agent's socket to the kubelet's socket: the one part that runs as root for it.

It is a process of its own, small enough to be read in one go, and made of the standard library alone. It
understands nothing of what it relays, has no credentials, and connects to the kubelet's socket only. The
PodResources API behind that socket only reads.
"""

import argparse
import asyncio
import contextlib
import signal
import sys
from pathlib import Path

_MAX_CONNECTIONS = 4  # an agent has one at a time
_MAX_OPEN_S = 30.0  # of a connection; a run of the agent takes 10 s at most
_PIECE_BYTES = 64 * 1024
KUBELET_SOCKET = Path("/var/lib/kubelet/pod-resources/kubelet.sock")


class Relay:
    """Accepts connections on `socket_path` and relays each to `kubelet`."""

    def __init__(self, socket_path: Path, kubelet: Path, *, max_open_s: float = _MAX_OPEN_S) -> None:
        self._socket_path = socket_path
        self._kubelet = kubelet
        self._max_open_s = max_open_s
        self._open = 0

    async def run(self, ended: asyncio.Event) -> None:
        """Relay until `ended` is set. Raises OSError if the socket cannot be made."""
        with contextlib.suppress(FileNotFoundError):
            self._socket_path.unlink()  # of an earlier relay
        server = await asyncio.start_unix_server(self._accept, self._socket_path, limit=_PIECE_BYTES)
        # The group of the folder may connect: in the chart's pod the group of both containers.
        self._socket_path.chmod(0o660)
        async with server:
            await ended.wait()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer):
            if self._open >= _MAX_CONNECTIONS:
                return
            self._open += 1
            try:
                async with asyncio.timeout(self._max_open_s):
                    await self._relay(reader, writer)
            except (OSError, TimeoutError, asyncio.CancelledError):
                pass  # the agent sees a closed connection; the relay cancels only when it ends
            finally:
                self._open -= 1

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner_writer = await asyncio.open_unix_connection(self._kubelet, limit=_PIECE_BYTES)
        with contextlib.closing(inner_writer):
            ways = {
                asyncio.ensure_future(_copy(reader, inner_writer)),
                asyncio.ensure_future(_copy(inner_reader, writer)),
            }
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.gather(*ways, return_exceptions=True)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while piece := await reader.read(_PIECE_BYTES):
        writer.write(piece)
        await writer.drain()


async def _run(relay: Relay) -> None:
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    await relay.run(ended)


def main(arguments: list[str] | None = None) -> int:
    """Run the command `hyperscout agent pod-resources-relay`. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="hyperscout agent pod-resources-relay", description=__doc__)
    parser.add_argument(
        "--socket", type=Path, required=True, help="socket for the agent, its setting pod_resources.socket"
    )
    parser.add_argument("--kubelet", type=Path, default=KUBELET_SOCKET, help="socket of the kubelet")
    options = parser.parse_args(arguments)
    try:
        asyncio.run(_run(Relay(options.socket, options.kubelet)))
    except OSError as error:
        print(f"{options.socket}: {error.strerror or error}", file=sys.stderr)  # noqa: T201
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
