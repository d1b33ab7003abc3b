"""`hyperscout approve`: publish a generation that the collector holds back."""

import click

from hyperscout_cli.remote.live_names import names
from hyperscout_cli.shared.command import Command
from hyperscout_cli.shared.options import Endpoint, collector_options, output_option
from hyperscout_cli.shared.output import emit, emit_data


@click.command(
    cls=Command,
    epilog="""\b
Examples:
  hyperscout status            shows what is held, and why
  hyperscout diff              shows what it would remove
  hyperscout approve 42""",
)
@click.argument("generation", type=click.IntRange(min=1), shell_complete=names("generations"))
@output_option()
@collector_options
def approve(*, generation: int, output: str, collector: Endpoint) -> None:
    """Publish the held GENERATION now, or accept the published one as it is wired.

    The collector holds a generation that would remove many HyperNodes or nodes at once, or change the
    number of tiers. Naming the generation makes sure that you approve what you have looked at.

    While nothing is held, approving the published generation accepts the wiring: nodes, links and
    switches that are missing from it are gone for good, and are no longer remembered.
    """
    from hyperscout_cli.remote.client import Collector

    with Collector(collector) as connection:
        published = connection.approve(generation)
    if not emit_data({"generation": published}, output):
        emit([f"generation {published} is published\n"])
