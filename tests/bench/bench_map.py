"""The map in a real Chromium without a GPU, against real REST: 5,000 nodes, 392 switches, 41,056 links.

First paint counts from the start of the navigation. Frames are those that the page is given while a mouse
drags or a wheel turns for some seconds. The heap is looked at after a collection, over as many changes of
links as an hour brings at 1 % of them a minute. The collector runs in this process, beside the browser's.
"""

import asyncio
import itertools
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from hyperscout_collector.app.build.collector import Collector
from hyperscout_sim.fabric.shapes import rail_optimised
from hyperscout_sim.readings.sweep_text import sweep_texts
from hyperscout_topology.json_reader import from_json
from hyperscout_topology.link_changes import table_of, without
from hyperscout_topology.topology import Anomaly, Endpoint, Topology
from playwright.async_api import Page
from support.bench_rows import row
from support.browser import Tab, chromium, tab
from support.rest_collector import publish, rest_collector

GESTURE_S = 3.0
CHANGES = 24_600  # links in an hour, at 1 % a minute
BATCHES = 100
FRAME_BUDGET = "33.4 ms"  # 30 frames a second
MIB = 2**20
NOTE_TIMES = """
(() => {
  window.gaps = [];
  let last = 0;
  const look = (now) => {
    if (last) gaps.push(now - last);
    last = now;
    const map = window.hyperscoutMap?.stats();
    if (map?.frames && map.nodes) window.firstMs ??= performance.now();
    if (map?.frames && map.links) window.wholeMs ??= performance.now();
    requestAnimationFrame(look);
  };
  requestAnimationFrame(look);
})();
"""


def topology(folder: Path) -> Topology:
    """Two pods of 20 units; each has 125 hosts and a leaf for each of 8 rails."""
    flags = []
    for i, text in enumerate(sweep_texts(rail_optimised(20, 125, 8, 3, pods=2))):
        (folder / f"{i}.txt").write_bytes(text)
        flags += ["--ibnetdiscover", str(folder / f"{i}.txt")]
    command = [sys.executable, "-m", "hyperscout_cli.main", "infer", *flags, "-o", "json"]
    return from_json(json.loads(subprocess.run(command, check=True, capture_output=True).stdout))


def cut(whole: Topology, first: int, count: int, generation: int) -> Topology:
    """Without some of its links, and with an anomaly for each."""
    table = table_of(whole.links)
    chosen = [(first + i) % len(table) for i in range(count)]
    owner = {x.id: x.node for x in whole.adapters}
    names = owner | {s.id: s.name for s in whole.switches}
    home = {switch: h.name for h in whole.hypernodes for switch in h.switches}
    found = []
    for link in (table[i] for i in chosen):
        a = Endpoint(link.a_device, names[link.a_device], link.a_port)
        b = Endpoint(link.b_device, names[link.b_device], link.b_port)
        lower = home.get(link.a_device) or home.get(link.b_device)
        found.append(Anomaly("MissingLink", a, b, 1, ("ibnetdiscover",), 0.9, "cut", lower, time.time_ns()))
    return replace(whole, generation=generation, links=without(table, chosen), anomalies=tuple(found))


async def first_paint(one: Tab) -> None:
    await one.open()
    first, whole = await one.page.evaluate("[firstMs, wholeMs]")
    row("first paint of the map, 5,000 nodes", f"{first / 1e3:.2f} s", budget="2 s")
    row("the same with every cable", f"{whole / 1e3:.2f} s")


async def gesture(page: Page, what: str, zoom: float) -> None:
    """Drag to and fro, then turn the wheel, about the middle of the map. `zoom`: 0 = all of it in view."""
    await page.evaluate("hyperscoutMap.fit()")
    if zoom:
        await page.evaluate("(zoom) => hyperscoutMap.setCamera({...hyperscoutMap.camera(), zoom})", zoom)
    await asyncio.sleep(1)
    for kind in ("panning", "zooming"):
        await page.mouse.move(900, 450)
        if kind == "panning":
            await page.mouse.down()
        frames = await page.evaluate("gaps.length = 0, hyperscoutMap.stats().frames")
        began = time.monotonic()
        for i in itertools.count():
            if time.monotonic() - began > GESTURE_S:
                break
            if kind == "panning":
                swing = abs(i % 50 - 25)
                await page.mouse.move(600 + 20 * swing, 450 + 4 * swing)
            else:
                await page.mouse.wheel(0, -40 if i // 30 % 2 == 0 else 40)
        took_s = time.monotonic() - began
        await page.mouse.up()
        gaps, now = await page.evaluate("[gaps.slice().sort((a, b) => a - b), hyperscoutMap.stats().frames]")
        row(
            f"{kind} {what}: time a frame, mean",
            f"{took_s * 1e3 / max(1, len(gaps)):.1f} ms",
            f"{len(gaps) / took_s:.0f} frames a second, {(now - frames) / took_s:.0f} of them drawn; "
            f"95 of 100 within {gaps[int(0.95 * len(gaps))]:.0f} ms, worst {gaps[-1]:.0f}",
            budget=FRAME_BUDGET,
        )


async def heap_bytes(page: Page) -> int:
    session = await page.context.new_cdp_session(page)
    try:
        await session.send("HeapProfiler.collectGarbage")
        return int((await session.send("Runtime.getHeapUsage"))["usedSize"])
    finally:
        await session.detach()


async def an_hour(one: Tab, collector: Collector, whole: Topology) -> None:
    """Each batch cuts links and mends those of the batch before."""
    per_batch = CHANGES // BATCHES // 2
    heaps, seen = [await heap_bytes(one.page)], []
    for batch in range(BATCHES):
        fresh = cut(whole, batch * per_batch * 7, per_batch, whole.generation + 1 + batch)
        began = time.monotonic()
        await publish(collector, fresh)
        await one.until("(g) => hyperscoutMap.stats().generation === g", fresh.generation)
        seen.append(time.monotonic() - began)
        if (batch + 1) % (BATCHES // 5) == 0:
            heaps.append(await heap_bytes(one.page))
    texts = " ".join(f"{x / MIB:.0f}" for x in heaps)
    row(
        f"heap after an hour of changes ({CHANGES:,} of links) against the first fifth of it",
        f"{heaps[-1] / MIB:.0f} MiB",
        f"{heaps[1] / MIB:.0f} MiB; over time {texts}",
        budget=f"{1.2 * heaps[1] / MIB:.0f} MiB",
    )
    row(f"from a change of {per_batch} links to its paint, worst", f"{max(seen):.2f} s", budget="2 s")


async def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        whole = topology(folder)
        async with (
            rest_collector(folder, whole) as collector,
            chromium() as browser,
            tab(browser, collector.rest_address) as one,
        ):
            await one.page.add_init_script(NOTE_TIMES)
            await first_paint(one)
            for what, zoom in (("at a glance", 0), ("among single cables", 2), ("among ports", 9)):
                await gesture(one.page, what, zoom)
            await one.page.evaluate("hyperscoutMap.fit()")
            await an_hour(one, collector, whole)


if __name__ == "__main__":
    asyncio.run(main())
