"""Tiers from latency alone: how right, for how many probes, in how long.

Simulated fabrics of three tiers that show no wires, 2 % of hosts noisy, each host with a part of its own of
0 to 2 us, one router hop (1.5 us) between tiers, jitter as measured between namespaces. The index is the
worst tier's (adjusted for chance, over hosts that are not noisy), the peer the 12 n log2 n probes allowed.
"""

import time

from hyperscout_inference.latency.planner import plan
from hyperscout_inference.latency.tiers import tiers_of
from hyperscout_sim.fabric.opaque import even, opaque
from support.bench_rows import row
from support.opaque_loop import S_NS, budget, domains_for, indices, learn

SHAPES = {256: even(4, 4, 16), 1024: even(4, 8, 32), 4096: even(8, 16, 32), 16384: even(16, 32, 32)}


def main() -> None:
    for hosts, sizes in SHAPES.items():
        fabric = opaque(sizes, seed=hosts)
        began_s = time.perf_counter()
        # Large rounds for many hosts, and no last ones for a few: the time of a round is that of inference.
        many = hosts > 1024
        learnt = learn(fabric, seed=1, limit=(18 if many else 8) * hosts, least=hosts // 50 if many else 0)
        whole_s = time.perf_counter() - began_s
        began_s = time.perf_counter()
        tiers_of.__wrapped__(learnt.pairs)  # not what is remembered of it
        infer_s = time.perf_counter() - began_s
        began_s = time.perf_counter()
        plan(
            fabric.names, learnt.pairs, domains_for(list(fabric.names), learnt.found),
            wired=False, now_ns=S_NS, reverify_ns=S_NS, limit=hosts, seed=1,
        )  # fmt: skip
        plan_s = time.perf_counter() - began_s
        index = min(indices(fabric, learnt.found), default=0.0)
        most = budget(hosts)
        share = 100 * learnt.probes / most
        title = f"tiers by latency, {hosts:,} hosts"
        row(
            f"{title}: index (1 = right)",
            f"{index:.4f}",
            "0.99 asked for",
            f"{100 * (1 - index):.2f} %",
            "1 %",
        )
        row(f"{title}: probes", f"{learnt.probes:,}", f"{most:,.0f}", f"{share:.0f} %", "100 %")
        row(f"{title}: one inference", f"{1000 * infer_s:.0f} ms", f"{len(learnt.pairs):,} pairs", "", "")
        row(
            f"{title}: one plan",
            f"{1000 * plan_s:.0f} ms",
            f"{learnt.plans} plans, {whole_s:.0f} s in all",
            "",
            "",
        )


if __name__ == "__main__":
    main()
