"""`hyperscout measure nccl`: measures collective operations within a node or between two."""

import re
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click
from hyperscout_formats.text.counts import count
from hyperscout_topology import objects
from hyperscout_topology.names import visible

from hyperscout_cli.remote.live_names import names
from hyperscout_cli.shared.command import Command
from hyperscout_cli.shared.options import Endpoint, collector_options, expanded, output_option
from hyperscout_cli.shared.output import emit, emit_data, note
from hyperscout_cli.shared.tables import Row, Table, lines
from hyperscout_cli.shared.times import Duration

if TYPE_CHECKING:
    from hyperscout.v1.finding_pb2 import NcclRun

MAX_NODES, MAX_SIZES = 2, 32
_MAX_SIZE_BYTES = 16 << 30
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_SIZE = re.compile(r"(\d{1,12})([KMG]?)(i?B)?", re.IGNORECASE)


def size_bytes(text: str) -> int:
    """Bytes of "1024", "64M" or "1GiB", each unit a power of two. Raises BadParameter."""
    match = _SIZE.fullmatch(text)
    size = int(match[1]) * _UNITS[match[2].upper()] if match else 0
    if not 4 <= size <= _MAX_SIZE_BYTES or size % 4:
        raise click.BadParameter(f"{text!r}: expected 4 B to 16 GiB in steps of 4 B, such as 8, 1K or 64M")
    return size


@click.command(
    cls=Command,
    epilog="""\b
Examples:
  hyperscout measure nccl gpu-01
  hyperscout measure nccl gpu-01 gpu-77
  hyperscout measure nccl gpu-01 gpu-77 --size 8 --size 1G -o json

Exit codes: 0 measured, 1 failure, 2 wrong usage, 3 it may not run now (the message says what to do).""",
)
@click.argument(
    "nodes", metavar="NODE [NODE]", nargs=-1, required=True, callback=expanded, shell_complete=names("nodes")
)
@click.option(
    "--size",
    "sizes",
    metavar="SIZE",
    multiple=True,
    callback=lambda ctx, param, values: tuple(map(size_bytes, values)),
    help="Size of messages; may be repeated. Default: 8 B to 1 KiB and 64 MiB to 1 GiB.",
)
@click.option(
    "--limit",
    "limit_s",
    type=Duration(1, 3600),
    default="2m",
    show_default=True,
    help="Time limit of the run; an agent may have a lower limit (nccl.timeout_s).",
)
@output_option()
@collector_options
def nccl(
    *, nodes: tuple[str, ...], sizes: tuple[int, ...], limit_s: float, output: str, collector: Endpoint
) -> None:
    """Run NCCL within one NODE or between two, and show the results.

    It uses all GPUs of one node (nccl-tests), or the first GPU of each of two. It runs only if the agent's
    probe nccl is on and NVML reports all GPUs as idle, and in a Kubernetes cluster only on nodes that are
    cordoned or labelled hyperscout.io/reserved-for-measuring=true. Ctrl-C ends it.
    """
    if len(nodes) > MAX_NODES or len(set(nodes)) < len(nodes):
        raise click.UsageError(
            "name one node (to run within it) or two different nodes (to run between them)"
        )
    if len(sizes) > MAX_SIZES:
        raise click.UsageError(f"--size: give at most {MAX_SIZES}")
    from hyperscout_cli.remote.client import Collector

    where = f"between {nodes[0]} and {nodes[1]}" if len(nodes) > 1 else f"within {nodes[0]}"
    with Collector(collector) as connection, progress(f"NCCL {where}: {limit_s:g} s at most"):
        run = connection.run_nccl(nodes, sizes, limit_s)
    if not emit_data(objects.plain(run), output):
        emit(report(run, where))


def report(run: "NcclRun", where: str) -> Iterator[str]:
    """A run as text."""
    version = f", NCCL {run.nccl_version}" if run.nccl_version else ""
    yield (
        visible(f"{run.method}{version}, {count(run.ranks, 'rank')} {where}, {run.duration_s:.1f} s") + "\n\n"
    )
    rows = tuple(
        Row(
            x.operation,
            (
                x.operation,
                size_text(x.size_bytes),
                f"{x.time_us:.1f} us",
                f"{x.algorithm_gbytes_per_s:.3g} GB/s",
                f"{x.bus_gbytes_per_s:.3g} GB/s",
            ),
        )
        for x in run.results
    )
    yield from lines(Table("result", ("OPERATION", "SIZE", "TIME", "DATA", "BUS"), (), rows))


def size_text(size_bytes: int) -> str:
    """1024 is 1 KiB."""
    for unit, text in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size_bytes >= unit and size_bytes % unit == 0:
            return f"{size_bytes // unit} {text}"
    return f"{size_bytes} B"


@contextmanager
def progress(what: str) -> Iterator[None]:
    """Print on stderr what runs; on a terminal also for how long."""
    if not sys.stderr.isatty():
        note(what)
        yield
        return
    over, began_s = threading.Event(), time.monotonic()

    def tick() -> None:
        while not over.wait(1.0):
            sys.stderr.write(f"\r{visible(what)}, {time.monotonic() - began_s:.0f} s so far")
            sys.stderr.flush()

    thread = threading.Thread(target=tick, name="progress", daemon=True)
    sys.stderr.write(visible(what))
    sys.stderr.flush()
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        sys.stderr.write("\r\033[K")
        sys.stderr.flush()
