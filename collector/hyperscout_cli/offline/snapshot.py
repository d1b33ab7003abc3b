"""`hyperscout snapshot`: the present topology in a file, to look at, to compare with and to go on from."""

import json
import time
from pathlib import Path

import click
from click.core import ParameterSource

from hyperscout_cli.remote.source import load as load_topology
from hyperscout_cli.shared.command import Group
from hyperscout_cli.shared.errors import CliError
from hyperscout_cli.shared.files import read_topology
from hyperscout_cli.shared.options import Endpoint, output_option, topology_options
from hyperscout_cli.shared.output import emit, note
from hyperscout_cli.shared.writers import OUTPUTS, written


@click.group(
    cls=Group,
    epilog="""\b
Examples:
  hyperscout snapshot save today.json
  hyperscout snapshot load today.json
  hyperscout diff today.json""",
)
def snapshot() -> None:
    """Save the present topology to a file; look at a saved one, or have a collector go on from it."""


@snapshot.command(
    epilog="""\b
Examples:
  hyperscout snapshot save before-move.json
  hyperscout diff before-move.json               what changed since
  hyperscout get links --topology before-move.json"""
)
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@topology_options
def save(*, file: Path, topology: str | None, collector: Endpoint) -> None:
    """Write what is published now, with all its links, to FILE."""
    from hyperscout_publish.hypernodes.file import replace_file
    from hyperscout_topology.json_text import topology_json

    found = load_topology(topology=topology, collector=collector)
    try:
        replace_file(file.resolve(), "".join(topology_json(found)))
    except OSError as error:
        raise CliError(f"{file}: {error.strerror or error}") from error
    note(
        f"{file}: generation {found.generation}, {len(found.hypernodes)} HyperNodes, {len(found.links)} links"
    )


@snapshot.command(
    epilog="""\b
Examples:
  hyperscout snapshot load before-move.json -o slurm-tree
  hyperscout snapshot load before-move.json --data-dir /var/lib/hyperscout
  hyperscout infer --lldp lldp/*.json --previous before-move.json    offline, names live on"""
)
@click.argument("file", metavar="FILE", type=click.Path())
@output_option(words=OUTPUTS, default="tree")
@click.option(
    "--data-dir",
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False),
    help="Data folder of a collector that is not running: when it starts, it goes on from FILE.",
)
def load(*, file: str, output: str, data_dir: Path | None) -> None:
    """Show the topology in FILE; or, with --data-dir, make it what a collector published last.

    So names of HyperNodes live on when a collector's disk was lost, and what is missing since is told.
    """
    context = click.get_current_context()
    if data_dir is not None and context.get_parameter_source("output") is ParameterSource.COMMANDLINE:
        raise click.UsageError("-o and --data-dir: show FILE, or give it to a collector, one at a time")
    found = read_topology(file)
    if data_dir is None:
        emit(written(found, output))
        return
    from hyperscout_collector.evidence.sqlite import SqliteStore
    from hyperscout_collector.evidence.store import StoreError
    from hyperscout_topology.json_objects import to_json

    try:
        store = SqliteStore(data_dir / "evidence.db", now_ns=time.time_ns)
        try:
            store.save_topology(json.dumps(to_json(found)).encode())
        finally:
            store.close()
    except StoreError as error:
        raise CliError(str(error)) from error
    note(f"{data_dir}: a collector that starts here goes on from generation {found.generation}")
