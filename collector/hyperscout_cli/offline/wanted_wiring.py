"""Blueprints on the command line: read, compared with what is wired, and written when that is accepted."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from hyperscout_cli.shared.errors import CliError
from hyperscout_cli.shared.files import read_bytes, shown
from hyperscout_cli.shared.output import note, warn

if TYPE_CHECKING:
    from hyperscout_inference.blueprint.comparing import Comparison
    from hyperscout_inference.blueprint.declared import Blueprint
    from hyperscout_topology.topology import Topology


def read_blueprint(path: str) -> "Blueprint":
    """Raises CliError that names the line."""
    from hyperscout_formats.text.errors import FormatError
    from hyperscout_inference.blueprint.reading import parse

    try:
        return parse(read_bytes(path), shown(path))
    except FormatError as error:
        raise CliError(str(error)) from error


def compared(topology: "Topology", blueprint: "Blueprint") -> "Comparison":
    """Where the two differ; what could not be compared is said on stderr."""
    from hyperscout_inference.blueprint.comparing import compare

    found = compare(topology, blueprint)
    if found.unseen:
        note(f"note: {found.unseen} of {found.declared} cables were not compared: nobody can see them")
    return found


def drifted(topology: "Topology", path: str) -> "Topology":
    """The topology with what differs from the blueprint as anomalies, and conditions that say so."""
    from hyperscout_inference.blueprint.drift import with_drift
    from hyperscout_inference.hierarchy.conditions import with_conditions

    found = compared(topology, read_blueprint(path))
    return with_conditions(with_drift(topology, found)) if found.drifts else topology


def drift_lines(found: "Comparison") -> Iterator[str]:
    """`-` missing, `~` another, `+` not in the blueprint."""
    yield from (f"{drift.sign} {drift.anomaly.message}" for drift in found.drifts)
    if found.more:
        yield f"and {found.more} more"


def accept(topology: "Topology", path: str) -> list[str]:
    """Make what is wired the blueprint in that file; the lines of what differed. Raises CliError."""
    from hyperscout_inference.blueprint.accepting import accept as accepted
    from hyperscout_publish.hypernodes.file import replace_file

    file = Path(path)
    old = read_blueprint(path) if file.exists() else None
    lines = list(drift_lines(compared(topology, old))) if old is not None else []
    if not topology.links:
        raise CliError(f"{path}: left as it is: there is no cable to accept")
    new = accepted(topology, old)
    try:
        replace_file(file.resolve(), new.text)
    except OSError as error:
        raise CliError(f"{path}: {error.strerror or error}") from error
    warn([f"pattern {name!r} holds no more: its cables are lines now" for name in new.dropped], "patterns")
    if new.left_out:
        note(f"warning: {new.left_out} cables are left out: another one claims their port, or an odd name")
    note(f"{path}: {new.patterns} patterns kept, {new.links} cables written as lines")
    return lines
