"""Writes examples/: files that README and the pages use, from the simulator: they show no real site.

`make docs-assets` runs this first.
"""

import json
from dataclasses import replace
from random import Random

import generated
from hyperscout_sim.fabric.faults import plant
from hyperscout_sim.fabric.planted import Fault
from hyperscout_sim.fabric.shapes import clos3
from hyperscout_sim.readings.sweep_text import sweep_text

FOLDER = generated.ROOT / "examples"


# The wiring of the cluster that the pages' live commands query (`live_cluster.py`).
_BLUEPRINT = """\
# Two units of four nodes with two rails: the simulated cluster of docs/blueprints.md.
version: 1
switches:
- leaf-u[01-02]-r[0-1]
- spine-r0-01
- spine-r1-02
patterns:
- name: rails
  for: {u: 1-2, n: 1-4, r: 0-1}
  link: node-{4*(u-1)+n:04}/eth{r} -> leaf-u{u:02}-r{r}/swp{n}
- name: uplinks
  for: {u: 1-2, r: 0-1}
  link: leaf-u{u:02}-r{r}/swp5 -> spine-r{r}-{r+1:02}/swp{u}
"""

# Free workers of each leaf of the small fabric, in the order of the leaves.
_SMALL_FREE = (2, 4, 3, 4, 4, 0)


def _small() -> dict[str, str]:
    """Two pods of three leaves with four nodes each; a leaf of the second pod lacks a cable to a spine."""
    fabric = clos3(2, 3, 4, 2, 2)
    ids = {switch.name: switch.guid for switch in fabric.switches}
    ends = {ids["leaf-p02-01"], ids["spine-p02-02"]}
    cables = tuple(cable for cable in fabric.cables if {cable.a, cable.b} != ends)
    hosts = sorted(adapter.host for adapter in fabric.adapters if adapter.host)
    free = {host: int(i % 4 < _SMALL_FREE[i // 4]) for i, host in enumerate(hosts)}
    sweep = sweep_text(replace(fabric, cables=cables)).decode()
    return {"small.txt": sweep, "small-free.json": json.dumps(free, indent=1) + "\n"}


def files() -> dict[str, str]:
    """The text of each file: 64 nodes in two pods of four leaves; one cable between switches is missing."""
    fabric, _ = plant(clos3(2, 4, 8, 4, 2), Fault.UPLINK, Random(2))  # noqa: S311 (a simulation)
    hosts = sorted({adapter.host for adapter in fabric.adapters if adapter.host})
    job = {
        "mode": "PLACEMENT_MODE_SOFT",
        "parts": [
            {
                "group": {
                    "count": 4,
                    "tier": "leaf",
                    "parts": [
                        {"workers": {"count": 1, "role": "leader"}},
                        {"workers": {"count": 7, "resources": {"cpu": "16", "nvidia.com/gpu": "8"}}},
                    ],
                }
            }
        ],
    }
    free = {host: {"nvidia.com/gpu": 8, "cpu": 64, "workers": 1} for host in hosts}
    return _small() | {
        "blueprint.yaml": _BLUEPRINT,
        "fabric.txt": sweep_text(fabric).decode(),
        "free.json": json.dumps(free, indent=1) + "\n",
        "job.json": json.dumps(job, indent=2) + "\n",
        "nodes.txt": "".join(f"{host}\n" for host in hosts),
    }


if __name__ == "__main__":
    texts = {FOLDER / name: text for name, text in files().items()}
    generated.run("docs-assets", texts, FOLDER)
