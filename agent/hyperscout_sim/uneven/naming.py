"""Names of hosts, switches and adapters, and switch models, as sites choose them."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Final, NamedTuple


class Model(NamedTuple):
    """A switch model: its number of ports, and the name that its description contains."""

    ports: int
    name: str


MODELS: Final = (
    Model(32, "SN4600"),
    Model(36, "SB7800"),
    Model(40, "MQM8700"),
    Model(64, "MQM9700"),
    Model(90, "IS5600"),
    Model(144, "Q3400"),
    Model(216, "CS7520"),
    Model(800, "CS8500"),
)
FACTORY_NAMES: Final = ("Infiniscale-IV Mellanox Technologies", "Quantum Mellanox Technologies")

# A host pattern gets the serial number of the host {n}, its unit {u}, and its place in the unit {i}.
_HOSTS: Final = (
    "node-{n:04d}",
    "gpu{n:03d}",
    "dgx-{n:03d}",
    "nid{n:06d}",
    "r{u:02d}n{i:02d}",
    "fra1-row{u:02d}-h200-{i:02d}",
    "c{n:d}",
)
# Names that also occur as names of equipment that does not compute (subnet manager, gateway, storage).
ROLE_HOSTS: Final = (
    "sm-{n:03d}",
    "gw-gpu{n:02d}",
    "vast-gpu-{n:02d}",
    "head-{n:02d}",
    "weka-client{n:02d}",
    "nvidia{n:02d}",
    "MT{n:03d}",
    "storage-gpu-{n:03d}",
    "ufm-lab-{n:02d}",
)
# A switch pattern gets the pod {p}, the unit or number {u}, the rail {r}, and the serial number {s}.
_LEAVES: Final = ("ib-p{p}-su{u}-leaf{r}", "leaf-{p}-{u:02d}-r{r}", "p{p}l{u:02d}{r:02d}", "sw-{s:04d}")
_SPINES: Final = ("ib-p{p}-spine{u:02d}", "spine-{p}-{u:02d}", "p{p}s{u:02d}", "sw-{s:04d}")
_CORES: Final = ("ib-core{u:02d}", "core-{u:02d}", "c{u:02d}x", "sw-{s:04d}")

_EIGHT: Final = (
    tuple(f"mlx5_{n}" for n in range(8)),
    tuple(f"mlx5_{n}" for n in (0, 3, 4, 5, 6, 9, 10, 11)),
    tuple(f"HCA-{n}" for n in range(1, 9)),
    tuple(f"ibp{n}s0" for n in (24, 64, 79, 94, 154, 192, 206, 220)),
)
_INTERFACES: Final = (
    tuple(f"eth{n}" for n in range(8)),
    tuple(f"ens{n}np0" for n in (11, 12, 13, 14, 21, 22, 23, 24)),
    tuple(f"rail{n}" for n in range(8)),
)


@dataclass(slots=True)
class Naming:
    """The names of one site. `base`: the number of the first host, unit, rail and switch, 0 or 1.

    `styles` are the adapter names of one host model each, by rail. The first is the usual one.
    """

    base: int
    host_pattern: str
    switch_style: int
    styles: Sequence[tuple[str, ...]]
    _serial: int = 0
    _hosts: int = 0

    @classmethod
    def draw(cls, rng: Random, *, ethernet: bool) -> "Naming":
        styles = list(_INTERFACES if ethernet else _EIGHT)
        if not ethernet and rng.random() < 0.5:
            styles[1:] = rng.sample(styles[1:], len(styles) - 1)
        else:
            rng.shuffle(styles)
        return cls(rng.randrange(2), rng.choice(_HOSTS), rng.randrange(len(_LEAVES)), styles)

    def hosts(self, unit: int, count: int, pattern: str = "") -> list[str]:
        """Return the names of `count` new hosts. `unit` counts from 0 over the fabric."""
        found = [
            (pattern or self.host_pattern).format(
                n=self.base + self._hosts + i, u=self.base + unit, i=self.base + i
            )
            for i in range(count)
        ]
        self._hosts += count
        return found

    def leaf(self, pod: int, unit: int, rail: int) -> str:
        return self._switch(_LEAVES, pod, unit, rail)

    def spine(self, pod: int, number: int) -> str:
        return self._switch(_SPINES, pod, number, 0)

    def core(self, number: int) -> str:
        return self._switch(_CORES, 0, number, 0)

    def _switch(self, patterns: Sequence[str], pod: int, number: int, rail: int) -> str:
        self._serial += 1
        b = self.base
        return patterns[self.switch_style].format(p=b + pod, u=b + number, r=b + rail, s=b + self._serial)


def model_for(ports: int, rng: Random | None = None) -> Model:
    """Return the smallest model with that many ports, or with `rng` sometimes the next larger one."""
    fitting = [m for m in MODELS if m.ports >= ports] or [Model(ports, MODELS[-1].name)]
    larger = rng is not None and len(fitting) > 1 and rng.random() < 0.3
    return fitting[1 if larger else 0]
