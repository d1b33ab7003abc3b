"""Prints links for NetBox's bulk import of cables."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from hyperscout_formats.text.counts import are, count
from hyperscout_inference.blueprint.netbox_export import netbox_csv
from hyperscout_topology.objects import Object
from hyperscout_topology.topology import Link, LinkTable, Topology

from hyperscout_cli.shared.output import note


def cables_csv(topology: Topology, links: Sequence[Object]) -> Iterator[str]:
    """The rows of these links, as `objects.links` makes them. Prints the number left out to stderr."""
    ends = [(x["a"]["device"], x["a"]["port"], x["b"]["device"], x["b"]["port"]) for x in links]
    chosen = [Link(*e, x["fabric"], (), x.get("note", "")) for e, x in zip(ends, links, strict=True)]
    found = netbox_csv(replace(topology, links=LinkTable.of(chosen)))
    yield found.text
    if number := found.left_out:
        why = "without both ports, on a port that is used twice, or with an invalid name"
        note(f"warning: {count(number, 'link')} {are(number)} left out: {why}")
