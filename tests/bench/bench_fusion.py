"""How long one cut cable takes to be inferred where 200 switches are asked and all hosts have an agent.

Processor time, least of several; what agents and tables say comes as it does in the collector, where only the
table that changed is another object than before. The peer is the same without its switches: what the hosts'
agents alone tell.
"""

import gc
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from hyperscout_collector.app.inference.inference import uncollected
from hyperscout_inference.fabric.inputs import FabricInputs, InferOptions
from hyperscout_inference.hierarchy import infer
from hyperscout_inference.hierarchy.fuse import fuse
from hyperscout_sim.fabric.shapes import clos2
from support.bench_rows import row
from support.ethernet import inputs_of

ROUNDS = 5
# 136 leaves of 32 hosts and 64 spines: 21,760 rows of neighbours.
SHAPE = {"leaves": 136, "hosts_per_leaf": 32, "spines": 64}
SWITCHES, ROWS = 200, 21_760


def least_s(what: Callable[[], object]) -> float:
    found = []
    for _ in range(ROUNDS):
        began_s = time.process_time()
        what()
        found.append(time.process_time() - began_s)
    return min(found)


def with_cut_cable(inputs: FabricInputs) -> FabricInputs:
    """One leaf was asked again: its last port, to a spine, is dark."""
    first = inputs.tables[0]
    *others, last = (port for port in first.table.ports if port.neighbours)
    ports = (*others, replace(last, carrier=False, neighbours=()))
    later = replace(first, table=replace(first.table, ports=ports), observed_at_ns=2)
    return replace(inputs, tables=(later, *inputs.tables[1:]))


def main() -> None:
    fabric = clos2(**SHAPE)
    cabled = {
        switch.guid: max(port for cable in fabric.cables for guid, port in cable.ends if guid == switch.guid)
        for switch in fabric.switches
    }
    fabric = replace(fabric, switches=tuple(replace(s, port_count=cabled[s.guid]) for s in fabric.switches))
    inputs = inputs_of(fabric, None)
    rows = sum(len(port.neighbours) for seen in inputs.tables for port in seen.table.ports)
    if (len(inputs.tables), rows) != (SWITCHES, ROWS):
        raise SystemExit(f"{len(inputs.tables)} switches hear {rows}")
    before, cut = infer(inputs), with_cut_cable(inputs)
    after = infer(cut, previous=before)
    if [x.kind for x in before.anomalies] or [x.kind for x in after.anomalies] != ["MissingLink"]:
        raise SystemExit(f"anomalies: {before.anomalies} and {after.anomalies}")
    options = InferOptions()
    gc.collect()
    collected_s = least_s(lambda: fuse(cut, options))
    with uncollected():
        hosts_s = least_s(lambda: fuse(replace(cut, tables=()), options))
        fused_s = least_s(lambda: fuse(cut, options))
        all_s = least_s(lambda: infer(cut, previous=before))
    size = f"{SWITCHES} switches, {ROWS:,} neighbours"
    row(f"fuse, {size}", f"{fused_s:.2f} s", f"hosts alone, {hosts_s:.2f} s", f"{fused_s / hosts_s:.1f} x")
    row(
        "the same with garbage looked for",
        f"{collected_s:.2f} s",
        "without",
        f"{collected_s / fused_s:.1f} x",
    )
    row("infer, one cable cut", f"{all_s:.2f} s", f"fuse, {fused_s:.2f} s", f"{all_s / fused_s:.1f} x", "1 s")


if __name__ == "__main__":
    main()
