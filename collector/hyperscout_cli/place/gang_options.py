"""The command-line options about a gang, for all commands that take one."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any

import click
from hyperscout_formats.facts.accelerators import KINDS, NVLINK

from hyperscout_cli.place.gang_flags import Gang
from hyperscout_cli.place.placement_files import MAX_WORKERS
from hyperscout_cli.remote.live_names import names
from hyperscout_cli.shared.command import WholeNumber
from hyperscout_cli.shared.options import Command, expanded

_COUNT = WholeNumber(1, MAX_WORKERS)
_OPTIONS: Sequence[Callable[[Command], Command]] = (
    click.option("--workers", metavar="N", type=_COUNT, help="Number of workers."),
    click.option(
        "--min-workers",
        metavar="N",
        type=_COUNT,
        show_default="as --workers",
        help="Fewer workers are enough, at least N: as many as fit are placed.",
    ),
    click.option("--gpus-per-worker", metavar="G", type=WholeNumber(1, 1024), help="GPUs of each worker."),
    click.option(
        "--gpu-resource",
        type=click.Choice([kind.resource for kind in KINDS.values()]),
        show_default=KINDS[NVLINK].resource,
        help="Kind of the GPUs of --gpus-per-worker.",
    ),
    click.option(
        "--single-numa",
        is_flag=True,
        help="The GPUs of each worker are in one NUMA zone of its node; agents must report the zones.",
    ),
    click.option(
        "--mode",
        type=click.Choice(["hard", "soft"]),
        show_default="hard",
        help="hard: never above the highest tier allowed. soft: as low as possible, above it if necessary.",
    ),
    click.option(
        "--highest-tier-allowed",
        metavar="TIER",
        help="Number or name of a tier; `node` is tier 0.",
        show_default="any",
    ),
    click.option(
        "--group-size",
        "group_sizes",
        metavar="S",
        type=_COUNT,
        multiple=True,
        help="Runs of S consecutive ranks, each within one domain of its --group-tier; repeat to nest them.",
    ),
    click.option(
        "--group-tier", "group_tiers", metavar="TIER", multiple=True, help="The tier of that --group-size."
    ),
    click.option(
        "--prefer-group",
        "prefer_groups",
        metavar="S:TIER",
        multiple=True,
        help="Runs of S consecutive ranks, each within one domain of TIER if the gang needs no higher tier "
        "for that, else as close together as possible.",
    ),
    click.option(
        "--spread",
        metavar="MOST:TIER[:S]",
        multiple=True,
        help="At most MOST workers (of each group of S) in one domain of TIER.",
    ),
    click.option(
        "--prefer-spread",
        metavar="MOST:TIER[:S]",
        multiple=True,
        help="As --spread, but dropped if it needs a higher tier.",
    ),
    click.option(
        "--even",
        metavar="TIER",
        help="Split the gang evenly over as few domains of TIER as possible; groups stay whole.",
    ),
    click.option(
        "--avoid",
        metavar="NAME...",
        multiple=True,
        callback=expanded,
        shell_complete=names("nodes", "hypernodes"),
        help="Nodes and HyperNodes that are not used; a name may be a host list such as gpu-[01-16].",
    ),
    click.option(
        "--clusters",
        metavar="NAME,...",
        show_default="the collector's own",
        help='Clusters that may be used, or `any`; "" = the collector\'s own. All workers are placed in '
        "one of them: where the gang needs the lowest tier, else in the own one, else in the first by name.",
    ),
    click.option("--use-down", is_flag=True, help="Also use nodes whose own link is down."),
    click.option(
        "--packing",
        type=click.Choice(["compact", "fragments"]),
        show_default="compact",
        help="fragments: where the fewest other workers fit, rather than on few domains and nodes.",
    ),
    click.option(
        "--node-selector",
        metavar="KEY=VALUE",
        multiple=True,
        help="Labels of the nodes that may be used; repeat it, or separate them by commas.",
    ),
    click.option(
        "--toleration",
        metavar="KEY[=VALUE][:EFFECT]",
        multiple=True,
        help="Taints that do not matter. With this or --node-selector, other taints keep workers off a node.",
    ),
    click.option(
        "--priority",
        metavar="N",
        type=WholeNumber(-(2**31), 2**31 - 1),
        help="Priority, as of a pod: a higher one than that of a waiting gang may use nodes kept for it.",
    ),
    click.option(
        "--request",
        metavar="FILE",
        type=click.Path(),
        help="The whole request as JSON (PlaceRequest): several roles, leader and workers, any groups.",
    ),
)


def gang_options(command: Command) -> Command:
    """The flags about a gang; the command gets all of them as one `Gang`, named `gang`."""

    @functools.wraps(command)
    def with_gang(*args: Any, **more: Any) -> Any:
        gang = Gang(**{field.name: more.pop(field.name) for field in fields(Gang)})
        return command(*args, gang=gang, **more)

    found: Command = with_gang
    for option in reversed(_OPTIONS):
        found = option(found)
    return found


capacity_option = click.option(
    "--capacity",
    metavar="FILE",
    type=click.Path(),
    help="Free capacity of each node (JSON; with --topology).",
)

nodes_option = click.option(
    "--nodes",
    metavar="FILE",
    type=click.Path(),
    help="Labels and taints of nodes: `kubectl get nodes -o json` (with --topology).",
)
