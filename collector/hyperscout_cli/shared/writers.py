"""Output formats of a whole topology, by their names in `-o`."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

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

    return slurm.is_empty(topology, unnamed=unnamed)


def written(topology: "Topology", output: str, *, unnamed: bool) -> Iterator[str]:
    """The topology in one of OUTPUTS, in pieces. `unnamed`: Slurm's formats keep hosts without a name."""
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
    return writers[output](topology, unnamed=unnamed)
