"""Output formats of a whole topology, by their names in `-o`."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from hyperscout_cli.shared.output import terminal, yaml_text

if TYPE_CHECKING:
    from hyperscout_topology.topology import Topology

OUTPUTS = ("tree", "json", "yaml", "hypernodes", "slurm-tree", "slurm-block", "slurm-yaml", "dot")


def written(topology: "Topology", output: str) -> Iterator[str]:
    """The topology in one of OUTPUTS, in pieces."""
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
    return writers[output](topology)
