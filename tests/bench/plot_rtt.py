"""Draws round trips between real network namespaces, tier by tier: docs/images/rtt-by-tier.svg.

    python tests/bench/plot_rtt.py [--bursts 8] [--load] [-o FILE]      # root; also `make plot-rtt`

A fabric of three tiers (tests/support/netlab.py) is built, every pair of its hosts is measured from both
ends by the agent's own code, and the smallest round trip of each burst is drawn. Prints the figures that
docs/probes/latency.md shows. Nothing here is a test: the tests see to it that tiers come out right.
"""

import argparse
import asyncio
import itertools
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from hyperscout_agent.ping.bucket import Bucket
from hyperscout_agent.ping.burst import Burst, BurstPlan
from hyperscout_agent.ping.keys import Keyring, LiveTask
from hyperscout_agent.ping.responder import Responder
from support.netlab import INTERFACE, Host, Netlab, netlab, three_tiers
from support.svg_plot import COLOURS, svg

OUTPUT = Path(__file__).resolve().parents[2] / "docs/images/rtt-by-tier.svg"
KEY = bytes(range(32))
PINGS = 16
HOPS = (2, 6)  # routers in a row above a leaf and above a pod
AT_ONCE = 8  # bursts; of their pings, one at a time
UNLIMITED_KBPS = 1e9
NAMES = ("same leaf", "same pod, another leaf", "another pod")
WIDTH, ROW, LEFT, RIGHT, TOP, BOTTOM = 760, 84, 16, 16, 44, 44


class End:
    """One host's responder, in its namespace."""

    def __init__(self, lab: Netlab, host: Host) -> None:
        self.keyring = Keyring()
        self.responder = Responder(self.keyring, Bucket(UNLIMITED_KBPS, time.monotonic), clock=time.monotonic)
        lab.inside(host.name, lambda: self.responder.open(INTERFACE, [host.address]))
        self.responder.wake()


async def measure(lab: Netlab, bursts: int) -> Mapping[int, Sequence[float]]:
    """Smallest round trip of each burst, by tier."""
    ends = {host.name: End(lab, host) for host in lab.hosts}
    found: dict[int, list[float]] = defaultdict(list)
    numbers = itertools.count(1)
    turn, places = threading.Lock(), asyncio.Semaphore(AT_ONCE)

    async def one(a: Host, b: Host) -> None:
        async with places:
            number = next(numbers)
            task = LiveTask(number, KEY, False, INTERFACE, b.address, a.address, time.monotonic() + 60)
            ends[b.name].keyring.add(task)
            port = ends[b.name].responder.port_of(INTERFACE)
            plan = BurstPlan(number, KEY, True, INTERFACE, a.address, b.address, port, PINGS)
            burst = Burst(plan, Bucket(UNLIMITED_KBPS, time.monotonic), turn)
            result = await asyncio.to_thread(lab.inside, a.name, burst.run)
            ends[b.name].keyring.forget(number)
            if result is not None and not result.failure:
                found[lab.tier(a, b)].append(result.min_us)

    for _ in range(bursts):
        await asyncio.gather(*(one(a, b) for a, b in itertools.permutations(lab.hosts, 2)))
    for end in ends.values():
        end.responder.close_all()
    return found


def quantile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def figures(found: Mapping[int, Sequence[float]], hops: Mapping[int, int]) -> str:
    """A table in Markdown."""
    lines = [
        "| tier | routers between | bursts | minimum | median | p90 | p99 |",
        "|---|---|---|---|---|---|---|",
    ]
    for tier, values in sorted(found.items()):
        numbers = [f"{min(values):.1f}", *(f"{quantile(values, share):.1f}" for share in (0.5, 0.9, 0.99))]
        lines.append(f"| {NAMES[tier - 1]} | {hops[tier]} | {len(values)} | {' | '.join(numbers)} |")
    return "\n".join(lines)


def drawing(found: Mapping[int, Sequence[float]], hops: Mapping[int, int], caption: str) -> str:
    """An SVG with one row of dots and quartiles for each tier."""
    tiers = sorted(found)
    most = max(quantile(values, 0.995) for values in found.values()) * 1.06
    height = TOP + ROW * len(tiers) + BOTTOM

    def x(value: float) -> float:
        return LEFT + value / most * (WIDTH - LEFT - RIGHT)

    parts = []
    step = next(one for one in (1, 2, 5, 10, 20, 50, 100) if most / one <= 12)
    for mark in range(0, int(most) + 1, step):
        base = height - BOTTOM
        parts.append(f'<line class="grid" x1="{x(mark):.1f}" y1="{TOP}" x2="{x(mark):.1f}" y2="{base}"/>')
        parts.append(
            f'<text x="{x(mark):.1f}" y="{base + 16}" text-anchor="middle" class="soft">{mark}</text>'
        )
    parts.append(
        f'<text x="{WIDTH / 2}" y="{height - 8}" text-anchor="middle" class="soft">microseconds</text>'
    )
    for row, tier in enumerate(tiers):
        values, colour = found[tier], COLOURS[tier - 1]
        top = TOP + row * ROW
        for at, value in enumerate(values):
            if value <= most:
                # Spread by a fixed irrational step: no chance in a picture that is committed.
                y = top + 34 + (at * 0.6180339887 % 1) * 40
                parts.append(
                    f'<circle cx="{x(value):.1f}" cy="{y:.1f}" r="1.6" fill="{colour}" fill-opacity=".45"/>'
                )
        low, middle, high = (quantile(values, share) for share in (0.25, 0.5, 0.75))
        parts.append(
            f'<rect x="{x(low):.1f}" y="{top + 32}" width="{max(x(high) - x(low), 1):.1f}" height="44" '
            f'fill="{colour}" fill-opacity=".18" stroke="{colour}"/>'
        )
        parts.append(
            f'<line x1="{x(middle):.1f}" y1="{top + 32}" x2="{x(middle):.1f}" y2="{top + 76}" '
            f'stroke="{colour}" stroke-width="2"/>'
        )
        routers = f"{hops[tier]} router{'s' if hops[tier] > 1 else ''}"
        text = f"{NAMES[tier - 1]} ({routers}): median {middle:.1f}"
        at, anchor = (low, "start") if x(middle) < WIDTH / 2 else (high, "end")
        parts.append(f'<text x="{x(at):.1f}" y="{top + 25}" text-anchor="{anchor}">{text}</text>')
    title = f"Round trips between namespaces, by tier. {caption}"
    heading = f"Smallest round trip of {PINGS} pings, by tier"
    return svg(WIDTH, height, title, heading, caption, parts, LEFT)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bursts", type=int, default=8, help="from each host to each other (default 8)")
    parser.add_argument("--load", action="store_true", help="keep all CPUs busy meanwhile")
    parser.add_argument("-o", "--output", type=Path, default=OUTPUT)
    chosen = parser.parse_args()
    busy = []
    try:
        with netlab(lambda lab: three_tiers(lab, hops=HOPS)) as lab:
            if chosen.load:
                busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
            found = asyncio.run(measure(lab, chosen.bursts))
            hops = {lab.tier(a, b): lab.distance(a, b) for a, b in itertools.combinations(lab.hosts, 2)}
    finally:
        for one in busy:
            one.kill()
            one.wait()
    bursts = sum(len(values) for values in found.values())
    caption = (
        f"{len(lab.hosts)} hosts in network namespaces, {bursts} bursts"
        f"{', both CPUs busy' if chosen.load else ''}; dots are bursts, boxes hold half of them"
    )
    chosen.output.write_text(drawing(found, hops, caption))
    print(figures(found, hops))


if __name__ == "__main__":
    main()
