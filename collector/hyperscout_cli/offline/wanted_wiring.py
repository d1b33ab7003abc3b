"""Blueprints on the command line: reads one, compares it with the wiring, and writes the accepted wiring."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from hyperscout_formats.text.counts import are, count

from hyperscout_cli.shared.errors import BadInputError, CliError, unwritable
from hyperscout_cli.shared.files import read_bytes, shown
from hyperscout_cli.shared.output import note, warn

if TYPE_CHECKING:
    from hyperscout_inference.blueprint.comparing import Comparison
    from hyperscout_inference.blueprint.declared import Blueprint
    from hyperscout_topology.topology import Topology


def read_blueprint(path: str) -> "Blueprint":
    """Prints the number of cables left out to stderr. Raises BadInputError that names the line."""
    from hyperscout_formats.text.errors import FormatError
    from hyperscout_inference.blueprint.reading import parse

    try:
        found = parse(read_bytes(path), shown(path))
    except FormatError as error:
        raise BadInputError(str(error)) from error
    if found.omission:
        note(f"note: {shown(path)}: {found.omission}")
    return found


def compared(topology: "Topology", blueprint: "Blueprint") -> "Comparison":
    """The differences between topology and blueprint. Prints the number of cables not compared to stderr."""
    from hyperscout_inference.blueprint.comparing import compare

    found = compare(topology, blueprint)
    if found.unseen:
        were = "was" if found.unseen == 1 else "were"
        cables = count(found.declared, "cable")
        note(f"note: {found.unseen} of {cables} {were} not compared: no source can report them")
    return found


def drifted(topology: "Topology", path: str) -> "Topology":
    """The topology with differences from the blueprint as anomalies and conditions."""
    from hyperscout_inference.blueprint.drift import with_drift
    from hyperscout_inference.hierarchy.conditions import with_conditions

    found = compared(topology, read_blueprint(path))
    return with_conditions(with_drift(topology, found)) if found.drifts else topology


def drift_lines(found: "Comparison") -> Iterator[str]:
    """Lines: `-` missing, `~` different, `+` not in the blueprint."""
    yield from (f"{drift.sign} {drift.anomaly.message}" for drift in found.drifts)
    if found.more:
        yield f"and {found.more} more"


def accept(topology: "Topology", path: str) -> list[str]:
    """Write the wiring as the blueprint to that file. Returns the differences as lines. Raises CliError."""
    from hyperscout_inference.blueprint.accepting import accept as accepted
    from hyperscout_runtime.files import replace_file

    file = Path(path)
    old = read_blueprint(path) if file.exists() else None
    if old is not None and old.kind:
        raise BadInputError(
            f"{path}: --accept would replace this {old.kind}: name a new file for the blueprint"
        )
    lines = list(drift_lines(compared(topology, old))) if old is not None else []
    if not topology.links:
        raise CliError(f"{path}: not written: the topology has no cable")
    new = accepted(topology, old)
    try:
        replace_file(file.resolve(), new.text)
    except OSError as error:
        raise unwritable(path, error) from error
    warn(
        [f"pattern {name!r} no longer applies: its cables are lines now" for name in new.dropped],
        "pattern",
    )
    if new.left_out:
        out = f"{count(new.left_out, 'cable')} {are(new.left_out)} left out"
        note(f"warning: {out}: its port is used twice, or its name is invalid")
    kept, written = count(new.patterns, "pattern"), count(new.links, "cable")
    note(f"{path}: {kept} kept, {written} written as {'a line' if new.links == 1 else 'lines'}")
    return lines
