"""`hyperscout snapshot`: saves the topology to a file, and loads it."""

import os
import pwd
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource
from hyperscout_formats.text.counts import count

from hyperscout_cli.remote.source import load as load_topology
from hyperscout_cli.shared.command import Group
from hyperscout_cli.shared.errors import CliError, unwritable
from hyperscout_cli.shared.options import Endpoint, output_option, topology_options
from hyperscout_cli.shared.output import emit, note
from hyperscout_cli.shared.saved_topology import read_topology
from hyperscout_cli.shared.writers import OUTPUTS, block_sizes_option, unnamed_option, written

if TYPE_CHECKING:
    from hyperscout_collector.evidence.store import EvidenceStore


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
  hyperscout snapshot load before-move.json --store postgresql://hyperscout@localhost/hyperscout \\
    --store-password-file /etc/hyperscout/db-password
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
@click.option(
    "--store",
    metavar="URL",
    default="",
    help="PostgreSQL, as in the setting store of the collectors. Stop all replicas first. The next leader "
    "continues from FILE.",
)
@click.option(
    "--store-password-file",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File of the password of the user in --store.",
)
@click.option("--insecure", is_flag=True, help="Connect to --store also beyond this machine without TLS.")
@unnamed_option
@block_sizes_option
def load(
    *,
    file: str,
    output: str,
    data_dir: Path | None,
    store: str,
    store_password_file: Path | None,
    insecure: bool,
    unnamed: bool,
    block_sizes: tuple[int, ...],
) -> None:
    """Show the topology in FILE; or make it the last published topology of a collector.

    With --data-dir or --store a collector that lost its data keeps the names of HyperNodes, and reports
    missing links. At its start it shows FILE until its agents have reported, for takeover_limit_s at most.
    Stored evidence, reservations and history stay. -o shows FILE only, so it excludes both options.
    """
    is_shown = click.get_current_context().get_parameter_source("output") is ParameterSource.COMMANDLINE
    ways = {"-o": is_shown, "--data-dir": data_dir is not None, "--store": bool(store)}
    if len(given := [way for way, is_given in ways.items() if is_given]) > 1:
        raise click.UsageError(f"{' and '.join(given)}: give one of them")
    for option, is_given in {"--store-password-file": store_password_file, "--insecure": insecure}.items():
        if is_given and not store:
            raise click.UsageError(f"{option}: give --store too")
    found = read_topology(file)
    if data_dir is None and not store:
        emit(written(found, output, unnamed=unnamed, block_sizes=block_sizes))
        return
    from hyperscout_collector.store.errors import StoreError
    from hyperscout_topology.frames import encoded_whole

    try:
        if data_dir is not None:
            name, opened = str(data_dir), _in_files(data_dir)
        else:
            name, opened = _in_postgresql(store, store_password_file, insecure=insecure)
        try:
            opened.save_topology(encoded_whole(found), lacks_evidence=True)
        finally:
            opened.close()
    except StoreError as error:
        raise CliError(str(error)) from error
    note(f"{name}: a collector that starts here continues from generation {found.generation}")


def _in_files(data_dir: Path) -> "EvidenceStore":
    """Raises StoreError."""
    from hyperscout_collector.evidence.sqlite import SqliteStore

    if not data_dir.exists():
        note(f"{data_dir} does not exist: it is created; check that it is the collector's data folder")
    elif (owner := data_dir.stat().st_uid) != os.getuid():
        warning = f"warning: {data_dir} belongs to user {_user(owner)}, and this is user {_user(os.getuid())}"
        note(f"{warning}: load the file as the user that the collector runs as")
    return SqliteStore(data_dir / "evidence.db")


def _in_postgresql(url: str, password_file: Path | None, *, insecure: bool) -> tuple[str, "EvidenceStore"]:
    """Returns the name of the database for messages, and the store. Raises StoreError.

    It takes a term of its own, which a collector that starts meanwhile ends: only one of them writes.
    """
    from hyperscout_collector.evidence.postgresql import PostgresqlStore
    from hyperscout_collector.store.postgresql import PostgresqlDatabase, claim, refuse_used
    from hyperscout_collector.store.server import PostgresqlServer
    from hyperscout_collector.store.settings import StoreSettings, store_problem

    settings = StoreSettings(store=url, store_password_file=password_file)
    if problem := store_problem(settings, insecure=insecure):
        text = problem.replace("set insecure: true", "give --insecure").replace("store_pass", "--store-pass")
        raise click.UsageError(f"--{text.replace('password_file', 'password-file')}")
    server = PostgresqlServer(url, password_file)
    refuse_used(server)
    term = claim(server, "hyperscout snapshot load", "", lambda: None)
    return server.name, PostgresqlStore(PostgresqlDatabase(server, term), PostgresqlDatabase(server))


def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)
