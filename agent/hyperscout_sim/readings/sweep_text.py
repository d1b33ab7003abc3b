"""Writes the output of `ibnetdiscover`, byte for byte except for local identifiers and the date.

Format and order are those of infiniband-diags 44 (ibnetdiscover(8)): switches before adapters, each in the
reverse order of a breadth-first walk from the port that runs the sweep.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace

from hyperscout_sim.fabric.fabric import SimAdapter, SimFabric, SimSwitch, walk

# The text contains its date. A fixed date gives equal texts for equal fabrics.
_GENERATED = "Thu Jan  1 00:00:00 2026"
_LAST_UNICAST_LID = 0xBFFF  # InfiniBand Architecture Specification, volume 1, 4.1.3
_SHARP_DEVICE_ID = 0xCF09
_ADAPTER_DEVICE_ID = 0x101B
_SWITCH_DEVICE_ID = 0xD2F0


def sweep_text(fabric: SimFabric, start: int | None = None) -> bytes:
    """Return the text of a sweep from the adapter with node GUID `start`.

    `start` None is the first computing, cabled adapter. The sweep contains the devices that are connected to
    that adapter, without a cable only the adapter itself. Raises KeyError for a GUID that is not an adapter,
    and ValueError if `start` is None and no computing adapter has a cable.
    """
    if start is None:
        start = next(iter(_first_adapters(fabric)), None)
        if start is None:
            raise ValueError(f"{fabric.name}: no adapter has a cable")
    adapter = next((x for x in fabric.adapters if x.guid == start), None)
    if adapter is None:
        raise KeyError(f"{fabric.name}: no adapter {start:016x}")
    head = (
        f"#\n# Topology file: generated on {_GENERATED}\n#\n"
        f"# Initiated from node {start:016x} port {adapter.port_guid:016x}\n"
    )
    return (head + "".join(blocks(fabric, list(walk(fabric, start))))).encode()


def sweep_texts(fabric: SimFabric) -> list[bytes]:
    """Return one text for each disjoint part with a computing adapter. Together they contain everything."""
    starts = _first_adapters(fabric)
    if len(starts) == 1:
        return [sweep_text(fabric, starts[0])]
    part_of = {guid: i for i, part in enumerate(fabric.components()) for guid in part}
    switches, adapters, cables = defaultdict(list), defaultdict(list), defaultdict(list)
    for switch in fabric.switches:
        switches[part_of.get(switch.guid)].append(switch)
    for adapter in fabric.adapters:
        adapters[part_of.get(adapter.guid)].append(adapter)
    for cable in fabric.cables:
        cables[part_of[cable.a]].append(cable)

    def part(i: int) -> SimFabric:
        """Return the fabric reduced to one part, so that the work for a text depends only on that part."""
        return replace(
            fabric, switches=tuple(switches[i]), adapters=tuple(adapters[i]), cables=tuple(cables[i])
        )

    return [sweep_text(part(part_of[start]), start) for start in starts]


def blocks(fabric: SimFabric, found: Iterable[int]) -> Iterator[str]:
    """Yield the blocks of the devices with these GUIDs, which are in order of discovery."""
    switches = {x.guid: x for x in fabric.switches}
    adapters = {x.guid: x for x in fabric.adapters}
    lid = {guid: 1 + i % _LAST_UNICAST_LID for i, guid in enumerate([*switches, *adapters])}
    # Text of a port line about the other end, before and after the port number of that end.
    before = {guid: f'"S-{guid:016x}"[' for guid in switches}
    before |= {guid: f'"H-{guid:016x}"[' for guid in adapters}
    named = {guid: f'"{x.description}" lid {lid[guid]} ' for guid, x in (switches | adapters).items()}
    ports = _port_lines(fabric, adapters, lid, before, named)
    order = list(found)
    order.reverse()
    for guid in order:
        if switch := switches.get(guid):
            yield _switch_head(switch, lid[guid])
            yield from (line for _, line in sorted(ports[guid]))
    for guid in order:
        if adapter := adapters.get(guid):
            yield _adapter_head(adapter)
            yield from (line for _, line in sorted(ports[guid]))


def _port_lines(
    fabric: SimFabric,
    adapters: dict[int, SimAdapter],
    lid: dict[int, int],
    before: dict[int, str],
    named: dict[int, str],
) -> dict[int, list[tuple[int, str]]]:
    """Return GUID -> (port, line) of its cabled ports that have a record."""
    lines: dict[int, list[tuple[int, str]]] = defaultdict(list)
    for a, a_port, b, b_port, rate in fabric.cables:
        for own, port, peer, peer_port in ((a, a_port, b, b_port), (b, b_port, a, a_port)):
            if fabric.hidden and (own, port) in fabric.hidden:
                continue
            local = adapters.get(own)
            other = adapters.get(peer)
            tail = f"]({other.port_guid + peer_port - 1:x}) \t\t# " if other else "]\t\t# "
            if local is None:
                line = f"[{port}]\t{before[peer]}{peer_port}{tail}{named[peer]}{rate}\n"
            else:
                line = (
                    f"[{port}]({local.port_guid + port - 1:x}) \t{before[peer]}{peer_port}{tail}"
                    f"lid {lid[own]} lmc 0 {named[peer]}{rate}\n"
                )
            lines[own].append((port, line))
    return lines


def _switch_head(switch: SimSwitch, lid: int) -> str:
    guid = switch.guid
    return (
        f"\nvendid=0x2c9\ndevid=0x{_SWITCH_DEVICE_ID:x}\nsysimgguid=0x{guid:x}\n"
        f"switchguid=0x{guid:x}({guid:x})\n"
        f'Switch\t{switch.port_count} "S-{guid:016x}"\t\t# "{switch.description}"'
        f" base port 0 lid {lid} lmc 0\n"
    )


def _adapter_head(adapter: SimAdapter) -> str:
    guid = adapter.guid
    device_id = _SHARP_DEVICE_ID if adapter.foreign == "sharp" else _ADAPTER_DEVICE_ID
    return (
        f"\nvendid=0x2c9\ndevid=0x{device_id:x}\nsysimgguid=0x{guid:x}\ncaguid=0x{guid:x}\n"
        f'Ca\t{adapter.port_count} "H-{guid:016x}"\t\t# "{adapter.description}"\n'
    )


def _first_adapters(fabric: SimFabric) -> list[int]:
    """Return the first computing adapter of each disjoint part, in the fabric's order."""
    part_of = {guid: i for i, part in enumerate(fabric.components()) for guid in part}
    first: dict[int, int] = {}
    for adapter in fabric.adapters:
        if not adapter.foreign and adapter.guid in part_of:
            first.setdefault(part_of[adapter.guid], adapter.guid)
    return list(first.values())
