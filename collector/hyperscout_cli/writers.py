"""Outputs of a whole topology, by the name that `-o` gives them."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from hyperscout_cli.output import terminal, yaml_text

if TYPE_CHECKING:
    from hyperscout_collector.topology import Topology

OUTPUTS = ("tree", "json", "yaml", "hypernodes", "slurm-tree", "slurm-block", "slurm-yaml")


def written(topology: "Topology", output: str) -> Iterator[str]:
    """The topology in one of OUTPUTS, in pieces."""
    if output == "tree":
        from hyperscout_collector.publish.texts.tree import tree

        to = terminal()
        return tree(topology, colour=to.colour, columns=to.columns)
    if output == "json":
        from hyperscout_collector.publish.texts.topology_json import topology_json

        return topology_json(topology)
    if output == "yaml":
        from hyperscout_collector.topology_json import to_json

        return iter([yaml_text(to_json(topology))])
    if output == "hypernodes":
        from hyperscout_collector.publish.texts.hypernodes import hypernodes_yaml

        return hypernodes_yaml(topology)
    from hyperscout_collector.publish.texts import slurm

    writers = {
        "slurm-tree": slurm.slurm_tree,
        "slurm-block": slurm.slurm_block,
        "slurm-yaml": slurm.slurm_yaml,
    }
    return writers[output](topology)
