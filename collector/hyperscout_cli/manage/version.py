"""`hyperscout version`: prints versions."""

import platform
from importlib import metadata

import click

from hyperscout_cli.shared.command import Command
from hyperscout_cli.shared.options import output_option
from hyperscout_cli.shared.output import emit, emit_data

PACKAGES = ("grpcio", "protobuf", "numpy")


@click.command(cls=Command, epilog="\b\nExamples:\n  hyperscout version\n  hyperscout version -o json")
@output_option()
def version(output: str) -> None:
    """Print the versions of hyperscout, Python and libraries."""
    found = {"hyperscout": own_version(), "python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = "not installed"
    if not emit_data(found, output):
        emit(f"{name} {number}\n" for name, number in found.items())


def own_version() -> str:
    """The version of the installed package."""
    return metadata.version("hyperscout")
