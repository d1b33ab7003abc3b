"""The placers: the exact one, and those that it is compared with, each as its kind is publicly described.

All see the same state, and are asked only where the job fits: `domains` (of tier `tier`) each have room for
it, and it goes into one of them. In soft mode that is the whole cluster.
"""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Protocol

import numpy as np
from bench.quality.cluster import CORE, GPU, GPUS_PER_NODE, Longs, Shape, State
from bench.quality.workload import Job
from hyperscout_placer.cluster.answer import Placement
from hyperscout_placer.cluster.capacity import Capacity
from hyperscout_placer.cluster.forest import Forest
from hyperscout_placer.cluster.request import Group, Mode, Request, Workers
from hyperscout_placer.solve.place import place


@dataclass(frozen=True, slots=True)
class Ask:
    """`tier`: the highest allowed. `fits`: of its workers, as State.fits gives them. `domains`: of that tier,
    those with room for all."""

    job: Job
    tier: int
    fits: tuple[Longs, ...]
    domains: Longs


class Placer(Protocol):
    """`take` and `give` tell of every change of the state, so that a placer may keep its own books."""

    name: str

    def choose(self, state: State, ask: Ask) -> Longs:
        """A node for each worker, by rank."""

    def take(self, nodes: Longs, need: int) -> None: ...

    def give(self, nodes: Longs, need: int) -> None: ...


class Stateless:
    """What most of them are."""

    def __init__(self, name: str, choose: Callable[[State, Ask], Longs]) -> None:
        self.name = name
        self.choose = choose

    def take(self, nodes: Longs, need: int) -> None:
        pass

    def give(self, nodes: Longs, need: int) -> None:
        pass


def filled(fit: Longs, order: Longs, workers: int) -> Longs:
    """Nodes by rank: each node of `order` as full as it goes, until all workers are placed."""
    room = fit[order]
    before = np.cumsum(room) - room
    return np.repeat(order, np.clip(workers - before, 0, room))


def first_fit(state: State, ask: Ask) -> Longs:
    """The first domain with room, and in it the first nodes, in the order of their names."""
    start = state.shape.start[ask.tier]
    d = ask.domains[0]
    return filled(ask.fits[0], np.arange(start[d], start[d + 1]), ask.job.workers)


def binpack(state: State, ask: Ask) -> Longs:
    """Most allocated first, as kube-scheduler's MostAllocated scores: the fullest domain with room, in it the
    fullest nodes. Topology is nothing to it but that bound."""
    start = state.shape.start[ask.tier]
    free = np.add.reduceat(state.free, start[:-1])[ask.domains]
    d = ask.domains[np.argmin(free)]
    nodes = np.arange(start[d], start[d + 1])
    return filled(ask.fits[0], nodes[np.argsort(state.free[nodes], kind="stable")], ask.job.workers)


def scattered(seed: int) -> Stateless:
    """Any domain with room, any nodes of it."""
    rng = Random(seed)

    def choose(state: State, ask: Ask) -> Longs:
        start = state.shape.start[ask.tier]
        d = rng.choice(ask.domains.tolist())
        nodes = np.arange(start[d], start[d + 1])[ask.fits[0][start[d] : start[d + 1]] > 0].tolist()
        rng.shuffle(nodes)
        return np.sort(filled(ask.fits[0], np.array(nodes), ask.job.workers))

    return Stateless("random", choose)


def best_fit(state: State, ask: Ask) -> Longs:
    """As Kueue's topology-aware scheduling describes its best fit: the lowest level with a domain that holds
    all, of those the one with least room; then down, level by level, the children with most room one after
    the other, the last one of them the tightest that holds the rest."""
    shape, workers = state.shape, ask.job.workers
    tier = next(t for t in range(ask.tier + 1) if ask.fits[t].max() >= workers)
    fit = np.where(ask.fits[tier] >= workers, ask.fits[tier], np.iinfo(np.int64).max)
    chosen = [(int(np.argmin(fit)), workers)]
    while tier > 0:
        tier -= 1
        below: list[tuple[int, int]] = []
        # All children of the chosen domains stand in one row, as levels are gone through one by one.
        children = np.concatenate([_children(shape, tier + 1, d) for d, _ in chosen])
        rest = workers
        order = children[np.argsort(-ask.fits[tier][children], kind="stable")]
        for i, child in enumerate(order):
            room = ask.fits[tier][child]
            if room >= rest:
                tight = order[i:][ask.fits[tier][order[i:]] >= rest]
                below.append((int(tight[np.argmin(ask.fits[tier][tight])]), rest))
                break
            below.append((int(child), int(room)))
            rest -= int(room)
        chosen = below
    return np.sort(np.repeat([node for node, _ in chosen], [count for _, count in chosen]))


def _children(shape: Shape, tier: int, domain: int) -> Longs:
    start, lower = shape.start[tier], shape.start[tier - 1]
    return np.arange(np.searchsorted(lower, start[domain]), np.searchsorted(lower, start[domain + 1]))


class Exact:
    """The placer of the collector, with its capacity kept as nodes are taken and given back."""

    def __init__(self, shape: Shape, mode: Mode) -> None:
        self.name = "exact"
        self._shape = shape
        self._mode: Mode = mode
        self._index = {name: i for i, name in enumerate(shape.names)}
        forest = Forest.of(shape.topology())
        self.capacity = Capacity(forest, {name: {GPU: GPUS_PER_NODE} for name in shape.names})

    def choose(self, state: State, ask: Ask) -> Longs:
        workers = Workers(ask.job.workers, ((GPU, ask.job.need),))
        tier = ask.tier if self._mode == "hard" else None
        answer = place(self.capacity, Request(Group(1, (workers,), tier), self._mode))
        if not isinstance(answer, Placement):
            raise AssertionError(f"{ask.job.workers} have room, but: {answer.reason}")  # noqa: TRY004
        return np.array([self._index[name] for name in answer.nodes])

    def take(self, nodes: Longs, need: int) -> None:
        self.capacity.take(self._names(nodes), self._workers(nodes, need))

    def give(self, nodes: Longs, need: int) -> None:
        self.capacity.give(self._names(nodes), self._workers(nodes, need))

    def _names(self, nodes: Longs) -> list[str]:
        return [self._shape.names[i] for i in nodes]

    @staticmethod
    def _workers(nodes: Longs, need: int) -> list[Workers]:
        return [Workers(1, ((GPU, need),))] * len(nodes)


def all_placers(shape: Shape, mode: Mode, seed: int) -> list[Placer]:
    return [
        Exact(shape, mode),
        Stateless("best fit by level", best_fit),
        Stateless("binpack", binpack),
        Stateless("first fit", first_fit),
        scattered(seed),
    ]


def asked(state: State, job: Job, tier: int) -> Ask | None:
    """What a placer is asked for; None where no domain of that tier has room."""
    fits = state.fits(job.need)
    domains = np.flatnonzero(fits[min(tier, CORE)] >= job.workers)
    return Ask(job, tier, fits, domains) if len(domains) else None
