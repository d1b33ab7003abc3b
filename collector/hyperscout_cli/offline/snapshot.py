"""`hyperscout snapshot`: saves the topology to a file, and loads it."""

import os
import pwd
from pathlib import Path

import click
from click.core import ParameterSource
from hyperscout_formats.text.counts import count

from hyperscout_cli.remote.source import load as load_topology
from hyperscout_cli.shared.command import Group
from hyperscout_cli.shared.errors import CliError, unwritable
from hyperscout_cli.shared.options import Endpoint, output_option, topology_options
from hyperscout_cli.shared.output import emit, note
from hyperscout_cli.shared.saved_topology import read_topology
from hyperscout_cli.shared.writers import OUTPUTS, unnamed_option, written


@click.group(
    cls=Group,
    epilog="""\b
Examples:
  hyperscout snapshot save today.json
  hyperscout snapshot load today.json
  hyperscout diff today.json""",
)
def snapshot() -> None:
    """Save the topology to a file; show a saved one, or make a collector continue from it."""


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
    """Write the published topology with all links to FILE."""
    from hyperscout_runtime.files import replace_file
    from hyperscout_topology.objects import topology_json

    found = load_topology(topology=topology, collector=collector)
    try:
        replace_file(file.resolve(), "".join(topology_json(found)))
    except OSError as error:
        raise unwritable(file, error) from error
    note(
        f"{file}: generation {found.generation}, {count(len(found.hypernodes), 'HyperNode')}, "
        f"{count(len(found.links), 'link')}"
    )


@snapshot.command(
    epilog="""\b
Examples:
  hyperscout snapshot load before-move.json -o slurm-tree
  hyperscout snapshot load before-move.json --data-dir /var/lib/hyperscout
  hyperscout infer --lldp lldp/*.json --previous before-move.json    offline, keeps the names"""
)
@click.argument("file", metavar="FILE", type=click.Path())
@output_option(words=OUTPUTS, default="tree")
@click.option(
    "--data-dir",
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False),
    help="Data folder of a stopped collector. When it starts, it continues from FILE.",
)
@unnamed_option
def load(*, file: str, output: str, data_dir: Path | None, unnamed: bool) -> None:
    """Show the topology in FILE; or, with --data-dir, make it the last published topology of a collector.

    With --data-dir a collector that lost its disk keeps the names of HyperNodes, and reports missing links.
    At its start it shows FILE until its agents have reported, for takeover_limit_s at most.
    """
    context = click.get_current_context()
    if data_dir is not None and context.get_parameter_source("output") is ParameterSource.COMMANDLINE:
        raise click.UsageError("-o and --data-dir: give one of them")
    found = read_topology(file)
    if data_dir is None:
        emit(written(found, output, unnamed=unnamed))
        return
    from hyperscout_collector.evidence.sqlite import SqliteStore
    from hyperscout_collector.store.errors import StoreError
    from hyperscout_topology.frames import encoded_whole

    if not data_dir.exists():
        note(f"{data_dir} does not exist: it is created; check that it is the collector's data folder")
    elif (owner := data_dir.stat().st_uid) != os.getuid():
        warning = f"warning: {data_dir} belongs to user {_user(owner)}, and this is user {_user(os.getuid())}"
        note(f"{warning}: load the file as the user that the collector runs as")
    try:
        store = SqliteStore(data_dir / "evidence.db")
        try:
            store.save_topology(encoded_whole(found), lacks_evidence=True)
        finally:
            store.close()
    except StoreError as error:
        raise CliError(str(error)) from error
    note(f"{data_dir}: a collector that starts here continues from generation {found.generation}")


def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)
