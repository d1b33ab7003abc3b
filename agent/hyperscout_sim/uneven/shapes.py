"""Fabrics that do not come from a plan: networks that are no tree, and directors with hosts.

Switches without a hierarchy have level 1. The truth of a network that is no tree has only tier 1.
"""

from collections.abc import Callable, Iterable
from itertools import combinations, product
from random import Random
from typing import Final, NamedTuple

from hyperscout_sim.fabric.build import Builder, whole
from hyperscout_sim.fabric.fabric import SimFabric
from hyperscout_sim.fabric.shapes import dragonfly_plus as plain_dragonfly_plus
from hyperscout_sim.uneven.naming import Naming


class Shape(NamedTuple):
    """`tree`: there is a true hierarchy above tier 1."""

    make: Callable[[Random, int], SimFabric]
    tree: bool
    causes: tuple[int, ...]


_Edges = Iterable[tuple[int, int]]


def _network(name: str, rng: Random, seed: int, switches: int, edges: _Edges, each: int = 1) -> SimFabric:
    """Make switches with hosts, and `each` cables for each edge. The first switches may have more hosts."""
    naming = Naming.draw(rng, ethernet=False)
    build = Builder(name, seed)
    size = rng.randint(1, 4)
    guids = [build.switch(naming.leaf(0, n, 0), 1, n) for n in range(switches)]
    domains = []
    for n, guid in enumerate(guids):
        hosts = naming.hosts(n, size + (rng.random() < 0.2))
        for host in hosts:
            build.adapter(host, naming.styles[0][0], [guid])
        build.skip_to(guid, 10)
        domains.append(frozenset(hosts))
    for a, b in edges:
        for _ in range(each):
            build.cable(guids[a], guids[b])
    return build.finish(tuple(domains))


def ring(rng: Random, seed: int) -> SimFabric:
    """Each switch is cabled to the next."""
    count = rng.randint(4, 12)
    return _network("ring", rng, seed, count, _around(count), rng.choice((1, 2)))


def grid(rng: Random, seed: int) -> SimFabric:
    """Switches in rows and columns, without cables around the ends."""
    rows, columns = rng.randint(3, 5), rng.randint(3, 6)
    across = [(r * columns + c, r * columns + c + 1) for r in range(rows) for c in range(columns - 1)]
    down = [(r * columns + c, (r + 1) * columns + c) for r in range(rows - 1) for c in range(columns)]
    return _network("mesh", rng, seed, rows * columns, across + down)


def torus(rng: Random, seed: int) -> SimFabric:
    """A torus of two or three dimensions."""
    sizes = rng.choice(((3, 4), (4, 4), (4, 6), (3, 3, 3), (3, 4, 3)))
    places = list(product(*map(range, sizes)))
    number = {place: i for i, place in enumerate(places)}
    edges = [
        (number[place], number[*place[:axis], (place[axis] + 1) % size, *place[axis + 1 :]])
        for place in places
        for axis, size in enumerate(sizes)
    ]
    return _network("torus", rng, seed, len(places), edges)


def dragonfly(rng: Random, seed: int) -> SimFabric:
    """Groups of switches that are all joined, with one cable between every two groups."""
    size = rng.randint(3, 5)
    groups = rng.randint(4, 6)
    edges = [(g * size + a, g * size + b) for g in range(groups) for a, b in combinations(range(size), 2)]
    turn = [0] * groups
    for a, b in combinations(range(groups), 2):
        edges.append((a * size + turn[a] % size, b * size + turn[b] % size))
        turn[a] += 1
        turn[b] += 1
    return _network("dragonfly", rng, seed, groups * size, edges)


def hyperx(rng: Random, seed: int) -> SimFabric:
    """Every two switches of a row or column are joined."""
    rows, columns = rng.randint(2, 4), rng.randint(3, 5)
    edges = [
        (a, b)
        for a, b in combinations(range(rows * columns), 2)
        if a // columns == b // columns or a % columns == b % columns
    ]
    return _network("hyperx", rng, seed, rows * columns, edges)


def two_switches(rng: Random, seed: int) -> SimFabric:
    """Two switches with hosts, joined by several cables."""
    return _network("two switches", rng, seed, 2, [(0, 1)], rng.randint(2, 8))


def star(rng: Random, seed: int) -> SimFabric:
    """A switch in the centre has hosts, and all other switches are cabled to it."""
    count = rng.randint(3, 8)
    return _network(
        "star", rng, seed, count + 1, [(n, 0) for n in range(1, count + 1)], rng.choice((1, 2, 4))
    )


def dragonfly_plus(rng: Random, seed: int) -> SimFabric:
    """Groups of leaves and spines, with cables between the spines of every two groups."""
    return plain_dragonfly_plus(
        rng.randint(3, 5),
        rng.randint(2, 4),
        rng.randint(2, 4),
        rng.randint(3, 8),
        rng.choice((2, 4)),
        seed=seed,
    )


def director(rng: Random, seed: int) -> SimFabric:
    """The line chips of a director have hosts, and edge switches with hosts are cabled to the same chips."""
    naming = Naming.draw(rng, ethernet=False)
    build = Builder("director", seed)
    lines = [build.switch(f"director1/L{n + 1}", 2, n) for n in range(rng.randint(3, 6))]
    edges = [build.switch(naming.leaf(0, n, 0), 1, len(lines) + n) for n in range(rng.randint(3, 6))]
    on_line, on_edge = rng.randint(2, 4), rng.randint(5, 10)
    domains = []
    for n, switch in enumerate([*lines, *edges]):
        hosts = naming.hosts(n, on_line if switch in lines else on_edge)
        for host in hosts:
            build.adapter(host, naming.styles[0][0], [switch])
        build.skip_to(switch, 11)
        domains.append(frozenset(hosts))
    build.mesh(edges, lines)
    build.mesh(lines, [build.switch(f"director1/F{n + 1}", 3) for n in range(rng.choice((3, 6)))], 2)
    return build.finish(tuple(domains), whole(host for domain in domains for host in domain))


def _around(count: int) -> list[tuple[int, int]]:
    return [(n, (n + 1) % count) for n in range(count)]


SHAPES: Final[dict[str, Shape]] = {
    "ring": Shape(ring, False, (13,)),
    "mesh": Shape(grid, False, (13,)),
    "torus": Shape(torus, False, (13,)),
    "dragonfly": Shape(dragonfly, False, (13,)),
    "HyperX": Shape(hyperx, False, (13,)),
    "two switches joined": Shape(two_switches, False, (13,)),
    "switch in the centre": Shape(star, False, (13,)),
    "dragonfly+": Shape(dragonfly_plus, True, ()),
    "director with hosts": Shape(director, True, (4,)),
}
