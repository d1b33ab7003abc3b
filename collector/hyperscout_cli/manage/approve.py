"""`hyperscout approve`: publishes a held generation."""

import click

from hyperscout_cli.remote.live_names import names
from hyperscout_cli.shared.command import Command, WholeNumber
from hyperscout_cli.shared.options import Endpoint, collector_options, output_option
from hyperscout_cli.shared.output import emit, emit_data


@click.command(
    cls=Command,
    epilog="""\b
Examples:
  hyperscout status            shows the held generation, and why it is held
  hyperscout diff              shows what it would remove
  hyperscout approve 42""",
)
@click.argument("generation", type=WholeNumber(min=1), shell_complete=names("generations"))
@output_option()
@collector_options
def approve(*, generation: int, output: str, collector: Endpoint) -> None:
    """Publish the held GENERATION now, or accept the wiring of the published one.

    The collector holds a generation that would remove many HyperNodes or nodes at once, or change the
    number of tiers. The number of the generation ensures that you approve the one that you have reviewed.

    If no generation is held, approving the published generation accepts its wiring: nodes, links and
    switches that are missing from it are no longer remembered.
    """
    from hyperscout_cli.remote.client import Collector

    with Collector(collector) as connection:
        published = connection.approve(generation)
    if not emit_data({"generation": published}, output):
        emit([f"generation {published} is published\n"])
