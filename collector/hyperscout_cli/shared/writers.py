"""Output formats of a whole topology, by their names in `-o`."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from hyperscout_cli.shared.options import Command
from hyperscout_cli.shared.output import note, terminal, yaml_text

if TYPE_CHECKING:
    from hyperscout_topology.topology import Topology

OUTPUTS = ("tree", "json", "yaml", "hypernodes", "slurm-tree", "slurm-block", "slurm-yaml", "dot")


def unnamed_option(command: Command) -> Command:
    """--include-unnamed."""
    return click.option(
        "--include-unnamed",
        "unnamed",
        is_flag=True,
        help="Keep hosts that only a GUID identifies as nodes of Slurm and of placements.",
    )(command)


def block_sizes_option(command: Command) -> Command:
    """--block-sizes."""
    return click.option(
        "--block-sizes",
        metavar="SIZES",
        callback=_block_sizes,
        default="",
        help="Block sizes of slurm-block and slurm-yaml, such as 18,72 (default: found in the fabric).",
    )(command)


def _block_sizes(_context: click.Context, _option: click.Parameter, text: Any) -> tuple[int, ...]:
    from hyperscout_publish.slurm.blocks import sizes_problem

    try:
        sizes = tuple(int(word) for word in text.split(",")) if text else ()
    except ValueError as error:
        raise click.BadParameter(f"{text!r}: expected numbers such as 18,72") from error
    if problem := sizes_problem(sizes):
        raise click.BadParameter(problem)
    return sizes


def note_unnamed(topology: "Topology") -> None:
    """Say on stderr how many hosts are left out because only a GUID identifies them."""
    from hyperscout_formats.text.counts import are, count
    from hyperscout_topology.gaps import names_line, unnamed_hosts

    if out := unnamed_hosts(topology):
        them = "it" if len(out) == 1 else "them"
        note(
            f"warning: {count(len(out), 'host')} {are(len(out))} left out, because only a GUID identifies "
            f"{them} ({names_line(out)}): name {them} with `infer --node-map` (or the collector's node_map), "
            "or give --include-unnamed"
        )


def is_empty(topology: "Topology", output: str, *, unnamed: bool) -> bool:
    """Whether the output has no node."""
    if not topology.hypernodes or not output.startswith("slurm-"):
        return not topology.hypernodes
    from hyperscout_publish.slurm import text as slurm

    return slurm.is_empty(topology, slurm.SlurmOptions(unnamed))


def written(
    topology: "Topology", output: str, *, unnamed: bool, block_sizes: Sequence[int] = ()
) -> Iterator[str]:
    """The topology in one of OUTPUTS, in pieces.

    Of Slurm's formats: `unnamed` keeps hosts without a name; `block_sizes` replace the found ones.
    """
    if output == "tree":
        from hyperscout_cli.shared.tree import tree

        to = terminal()
        return tree(topology, colour=to.colour, columns=to.columns)
    if output == "json":
        from hyperscout_topology.objects import topology_json

        return topology_json(topology)
    if output == "yaml":
        from hyperscout_topology.objects import to_json

        return iter([yaml_text(to_json(topology))])
    if output == "dot":
        from hyperscout_cli.shared.dot import dot

        return dot(topology)
    if output == "hypernodes":
        from hyperscout_publish.hypernodes.yaml_text import hypernodes_yaml

        return hypernodes_yaml(topology)
    from hyperscout_publish.slurm import text as slurm

    writers = {
        "slurm-tree": slurm.slurm_tree,
        "slurm-block": slurm.slurm_block,
        "slurm-yaml": slurm.slurm_yaml,
    }
    if not unnamed:
        note_unnamed(topology)
    return writers[output](topology, slurm.SlurmOptions(unnamed, tuple(block_sizes)))
