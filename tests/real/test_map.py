"""The map in a real Chromium, at a real collector that simulated agents stream to."""

import asyncio
import contextlib
import json
import re
import socket
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from hyperscout_sim.agents.player import Player
from hyperscout_sim.fabric.fabric import Cable, SimFabric
from hyperscout_sim.fabric.shapes import rail_optimised
from playwright.async_api import Browser, Route
from support.browser import DOCS_IMAGES, TIMEOUT_MS, Tab, chromium, tab, writes_docs
from support.collector_process import CollectorProcess, collector_process
from support.collectors import playing
from support.palette import write_small
from support.real import require_real
from support.rest import ask

require_real("chromium", "map")

pytestmark = pytest.mark.asyncio(loop_scope="module")

QUICK = (
    "--settle-s",
    "0.5",
    "--hold-down-s",
    "0.1",
    "--restart-grace-s",
    "0",
)
REFUSED = (r"^Failed to load resource: the server responded with a status of (401|403|404|503)",)


def free_address() -> str:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{found.getsockname()[1]}"


@dataclass
class World:
    """A collector with REST at `address`, and `player`, which plays the agents of `fabric`."""

    collector: CollectorProcess
    address: str
    player: Player
    fabric: SimFabric

    def cable(self, host: str) -> Cable:
        """The first one of a host."""
        guids = [x.guid for x in self.fabric.adapters if x.host == host]
        return next(c for c in self.fabric.cables if c.a == guids[0])

    @contextlib.contextmanager
    def cut(self, host: str) -> Any:
        cable = self.cable(host)
        self.player.cut(cable)
        try:
            yield cable
        finally:
            self.player.restore(cable)

    async def get(self, path: str) -> Any:
        reply = await ask(self.address, path)
        assert reply.status == 200, reply.body
        return reply.json

    async def until(self, wanted: Callable[[Any], bool], path: str = "/v1/topology?links=false") -> Any:
        async with asyncio.timeout(TIMEOUT_MS / 1000):
            while not wanted(found := await self.get(path)):
                await asyncio.sleep(0.05)
        return found

    async def well(self) -> None:
        """Nothing is wrong, and all domains are ready."""
        await self.until(lambda t: not t["anomalies"] and readiness(t) == {"True"})


def readiness(topology: Any) -> set[str]:
    """The statuses of the condition Ready of all domains."""
    return {c["status"] for h in topology["hypernodes"] for c in h["conditions"] if c["type"] == "Ready"}


async def changed_map(seen: Tab, before: bytes) -> None:
    """Wait until the map is drawn differently."""
    async with asyncio.timeout(TIMEOUT_MS / 1000):
        while await seen.page.locator("#map").screenshot() == before:
            await asyncio.sleep(0.05)


@contextlib.asynccontextmanager
async def world(folder: Path, fabric: SimFabric, *flags: str) -> AsyncIterator[World]:
    address = free_address()
    async with (
        collector_process(folder, *QUICK, "--rest-listen", address, *flags) as collector,
        playing(collector.address, fabric) as player,
    ):
        found = World(collector, address, player, fabric)
        await found.until(
            lambda t: sum(len(h["nodes"]) for h in t["hypernodes"] if h["tier"] == 1) == len(fabric.hosts)
        )
        yield found


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as found:
        yield found


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def demo(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    """64 nodes with 4 rails in 2 pods."""
    async with world(tmp_path_factory.mktemp("demo"), rail_optimised(2, 16, 4, 2, pods=2)) as found:
        yield found


# --- live -----------------------------------------------------------------------------------------


async def test_a_cut_cable_shows_and_goes_when_it_is_back(demo: World, browser: Browser) -> None:
    await demo.well()
    async with tab(browser, demo.address) as seen:
        await seen.open()
        await seen.says("#domains-bad", "all domains well")
        place = await seen.until("() => window.hyperscoutMap.screenPositionOf('node:node-0001')")
        box = await seen.page.locator("#map").bounding_box()
        assert box is not None
        clip = {"x": box["x"] + place["x"] - 8, "y": box["y"] + place["y"] - 8, "width": 16, "height": 16}
        before = await seen.page.screenshot(clip=clip)  # type: ignore[arg-type]
        generation = await seen.page.evaluate("window.hyperscoutMap.stats().generation")
        began_s = time.monotonic()
        with demo.cut("node-0001"):
            await seen.until("(old) => window.hyperscoutMap.stats().generation > old", generation)
            painted_s = time.monotonic() - began_s
            await seen.says("#links-down", "1 link down")
            told_s = time.monotonic() - began_s
            print(f"a cut cable: painted after {painted_s:.2f} s, told in the header after {told_s:.2f} s")
            await seen.says("#panel-wrong", "Missing link", "node-0001")
            await seen.says("#spoken", "New: Missing link")
            assert await seen.page.screenshot(clip=clip) != before, "the node looks otherwise"  # type: ignore[arg-type]
        await seen.says("#panel-wrong", "Nothing is wrong")
        await seen.says("#spoken", "Over: Missing link")


async def test_a_problem_leads_to_its_place_and_names_its_start_and_its_witnesses(
    demo: World, browser: Browser
) -> None:
    async with tab(browser, demo.address) as seen:
        await seen.open()
        with demo.cut("node-0002"):
            await seen.page.locator("#panel-wrong button", has_text="node-0002").click()
            await seen.says(
                "#details",
                "Missing link",
                "is gone",
                "Since",
                "Seen by i",
                "Evidence",
                "History",
                "Cable went",
            )
            await seen.page.locator("#details .link", has_text="node-0002").first.click()
            await seen.says("#details", "Node", "Degraded", "Evidence", "infiniband", "mlx5_1", "Domains")
            await seen.page.locator("#details .link", has_text="leaf-").first.click()
            await seen.says("#details", "Domain", "Conditions", "Degraded: True", "Links down", "Since")
            await seen.page.keyboard.press("Escape")
            assert not await seen.page.locator("#details").is_visible()
        await demo.well()


async def test_a_click_on_the_map_selects_switch_node_and_cable(demo: World, browser: Browser) -> None:
    await demo.well()
    topology = await demo.get("/v1/topology")
    switch = next(x for x in topology["switches"] if x["level"] == 2)
    async with tab(browser, demo.address) as seen:
        await seen.open()
        await seen.click_on(f"switch:{switch['id']}")
        await seen.says("#details", "Switch", switch["name"], "Healthy", "Seen by", "ibnetdiscover", "Cables")
        await seen.click_on("node:node-0003")
        await seen.says("#details", "node-0003", "mlx5_0")
        await seen.page.locator("#details .row", has_text="mlx5_0/1").click()
        await seen.says("#details", "Cable", "From", "To", "Fabric", "infiniband", "Rail", "mlx5_0")
        await seen.page.locator("#details .link[data-id^='port:']").first.click()
        await seen.says("#details", "Port", "Leads to")


# --- find, explain, filter, place -----------------------------------------------------------------


# Near the middle of the map, and large enough to be read.
_IN_THE_MIDDLE = """
(id) => {
  const box = document.getElementById("map").getBoundingClientRect();
  const at = window.hyperscoutMap.screenPositionOf(id);
  const off = Math.hypot(at.x - box.width / 2, at.y - box.height / 2);
  return off < 60 && window.hyperscoutMap.camera().zoom > 1;
}
"""


async def test_search_finds_names_guids_and_host_lists(demo: World, browser: Browser) -> None:
    adapter = demo.fabric.adapters[5]
    async with tab(browser, demo.address) as seen:
        await seen.open()
        await seen.page.keyboard.press("/")
        await seen.page.keyboard.type("node-0017")
        await seen.says("#found", "node-0017", "Node")
        await seen.page.keyboard.press("Enter")
        await seen.says("#details", "node-0017")
        await seen.until(_IN_THE_MIDDLE, "node:node-0017")
        for text in (f"{adapter.guid:016x}", f"0x{adapter.guid:x}", "leaf-p01-u01-r0"):
            await seen.page.fill("#search", text)
            await seen.says("#found", adapter.host if "leaf" not in text else text)
        await seen.page.fill("#search", "node-[0001-0016],node-9999")
        await seen.says("#found", "Mark 16 nodes")
        await seen.page.keyboard.press("Enter")
        assert "mark=node-[0001-0016]" in await seen.hash()
        await seen.page.fill("#search", "no such thing")
        await seen.says("#found", "Nothing is called so")


async def test_a_path_is_explained_in_words_and_on_the_map(demo: World, browser: Browser) -> None:
    await demo.well()
    async with tab(browser, demo.address) as seen:
        await seen.open("#tab=path")
        await seen.click_on("node:node-0001")
        await seen.click_on("node:node-0064")
        await seen.says("#panel-path", "core neighbours", "6 cables", "holds both")
        assert await seen.page.locator("#panel-path ol .row").count() == 6
        assert "path=node-0001&path=node-0064" in await seen.hash()
        await seen.page.get_by_role("button", name="Swap").click()
        await seen.says("#panel-path", "node-0064 and node-0001")
        seen.allowed = REFUSED
        await seen.page.fill("#path-b", "absent")
        await seen.page.keyboard.press("Enter")
        await seen.says("#panel-path", "no node 'absent'")


async def test_filters_dim_and_are_kept_in_the_address(demo: World, browser: Browser) -> None:
    async with tab(browser, demo.address) as seen:
        await seen.open("#tab=filters")
        await seen.says("#panel-filters", "infiniband-1", "mlx5_3", "1 · leaf", "Degraded")
        bright = await seen.page.locator("#map").screenshot()
        await seen.page.get_by_label("mlx5_2").check()
        await seen.page.get_by_label("infiniband-1").check()
        await changed_map(seen, bright)
        assert "fabrics=infiniband-1&rails=mlx5_2" in await seen.hash()
        await seen.page.reload()
        await seen.until("window.hyperscoutMap?.stats().links > 0")
        assert await seen.page.get_by_label("mlx5_2").is_checked()
        await seen.page.get_by_role("button", name="Clear all filters").click()
        assert not await seen.page.get_by_label("mlx5_2").is_checked()


async def test_a_placement_is_previewed_and_nothing_is_reserved(demo: World, browser: Browser) -> None:
    await demo.well()
    async with tab(browser, demo.address) as seen:
        await seen.open("#tab=place")
        plain = await seen.page.locator("#map").screenshot()
        await seen.page.fill("#workers", "20")
        await seen.page.get_by_role("button", name="Preview").click()
        await seen.says(
            "#panel-place",
            "20 workers on 20 nodes",
            "within",
            "Domains used",
            "2 × leaf",
            "nothing is better",
        )
        assert await seen.page.locator("#panel-place ul .row").count() == 20
        await changed_map(seen, plain)
        await seen.page.select_option("#tier", "1")
        await seen.page.get_by_role("button", name="Preview").click()
        await seen.says("#panel-place", "No place", "20")
        await seen.page.fill("#workers", "16")
        await seen.page.fill("#gpus", "8")
        await seen.page.get_by_role("button", name="Preview").click()
        await seen.says("#panel-place", "No place", "nvidia.com/gpu")
        await seen.page.select_option("#resource", "amd.com/gpu")
        await seen.page.get_by_role("button", name="Preview").click()
        await seen.says("#panel-place", "No place", "amd.com/gpu")
    assert (await demo.get("/v1/placements"))["items"] == []


# --- time -----------------------------------------------------------------------------------------


async def test_the_past_is_looked_at_and_left(demo: World, browser: Browser) -> None:
    await demo.well()
    with demo.cut("node-0005"):
        await demo.until(lambda t: len(t["anomalies"]) == 1)
    await demo.well()
    # The history is written a moment after the generation. The cable itself may come back in a later one.
    history = "/v1/history?about=node-0005&kind=AnomalyAppeared&kind=AnomalyCleared"
    changes = await demo.until(lambda h: [x["kind"] for x in h["items"]][:1] == ["AnomalyCleared"], history)
    appeared = next(x for x in changes["items"] if x["kind"] == "AnomalyAppeared")
    cut_at = datetime.fromisoformat(appeared["at"])
    async with tab(browser, demo.address) as seen:
        await seen.open()
        await seen.until("document.querySelectorAll('.track .mark').length >= 3")
        await seen.page.click("#earlier")  # the last change: well again
        await seen.says("#notice-past", "not how it is")
        await seen.says("#panel-wrong", "Nothing is wrong")
        while _time_in(await seen.hash()) - cut_at > timedelta(milliseconds=10):
            await seen.page.click("#earlier")
        await seen.says("#panel-wrong", "Missing link", "node-0005")
        await seen.says("#connection", "The past")
        await seen.says(".timebar", "node-0005", "ago")
        address = await seen.hash()
        assert "at=20" in address
        await seen.click_on("node:node-0005")
        await seen.says("#details", "Missing link", "History")
        await seen.page.reload()
        await seen.says("#panel-wrong", "Missing link", "node-0005")
        await seen.page.keyboard.press("l")
        await seen.says("#connection", "Live")
        await seen.says("#panel-wrong", "Nothing is wrong")
        await seen.says("#details", "Missing link is over")
        await seen.page.click("#play")
        await seen.says("#connection", "The past")
        await seen.says("#connection", "Live")  # it ends where it is now


def _time_in(place: str) -> datetime:
    """The time that the address of a page names."""
    found = re.search(r"\bat=([0-9TZ:.-]+)", place)
    assert found is not None, place
    return datetime.fromisoformat(found[1])


# --- keyboard, deep links -------------------------------------------------------------------------


async def test_everything_is_reached_by_the_keyboard_alone(demo: World, browser: Browser) -> None:
    await demo.well()
    async with tab(browser, demo.address, reduced_motion="reduce") as seen:
        await seen.open()
        await seen.page.keyboard.press("Tab")
        assert await seen.page.evaluate("document.activeElement.textContent") == "To the map"
        await seen.page.keyboard.press("Enter")
        assert await seen.page.evaluate("document.activeElement.id") == "map"
        await seen.page.keyboard.press("ArrowDown")
        await seen.says("#details", "core")
        for _ in range(6):
            if "Node\n" in await seen.text("#details header"):
                break
            await seen.page.keyboard.press("ArrowDown")
            await asyncio.sleep(0.05)
        await seen.says("#details header", "Node", "node-")
        await seen.says("#spoken", "Node node-", "healthy")
        first = await seen.text("#details h2")
        await seen.page.keyboard.press("ArrowRight")
        await seen.until("(old) => document.querySelector('#details h2').innerText !== old", first)
        before = await seen.page.evaluate("window.hyperscoutMap.camera()")
        await seen.page.keyboard.press("Shift+ArrowLeft")
        await seen.page.keyboard.press("+")
        await seen.until(
            "(old) => JSON.stringify(window.hyperscoutMap.camera()) !== JSON.stringify(old)", before
        )
        await seen.page.keyboard.press("Escape")
        await seen.page.keyboard.press("?")
        assert await seen.page.locator("#help").is_visible()
        await seen.page.keyboard.press("Escape")
        for key, panel in zip("234", ("filters", "path", "place"), strict=True):
            await seen.page.keyboard.press(key)
            assert await seen.page.locator(f"#panel-{panel}").is_visible()
        unseen = await seen.page.evaluate(_FOCUS_ROUND)
        assert unseen == []


# Each thing that takes the keyboard, in turn: does it show that it has it?
_FOCUS_ROUND = """
() => [...document.querySelectorAll('a[href], button, input, select, summary, [tabindex="0"]')]
  .filter((e) => e.checkVisibility() && !e.disabled)
  .filter((e) => {
    e.focus({ focusVisible: true });
    const style = getComputedStyle(e);
    const shows = style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2;
    return document.activeElement !== e || !shows;
  })
  .map((e) => e.outerHTML.slice(0, 120))
"""
_NAMELESS = """
() => [...document.querySelectorAll('button, a[href], input, select, dialog, [role]')]
  .filter((e) => e.checkVisibility() && !['none', 'status', 'log', 'search'].includes(e.getAttribute('role')))
  .filter((e) => {
    const ids = (e.getAttribute('aria-labelledby') ?? '').split(' ');
    const by = ids.map((id) => document.getElementById(id)?.textContent ?? '');
    const labels = [...(e.labels ?? [])].map((x) => x.textContent);
    const own = e.matches('button, a, [role=option], [role=tab]') ? [e.textContent] : [];
    return ![e.getAttribute('aria-label') ?? '', ...by, ...labels, ...own].join('').trim();
  })
  .map((e) => e.outerHTML.slice(0, 120))
"""


async def test_every_control_has_a_name(demo: World, browser: Browser) -> None:
    with demo.cut("node-0006"):
        await demo.until(lambda t: len(t["anomalies"]) == 1)
        async with tab(browser, demo.address) as seen:
            await seen.open("#select=node:node-0006")
            await seen.says("#details", "Missing link", "Evidence")
            for name in ("wrong", "filters", "path", "place"):
                await seen.page.click(f"#tab-{name}")
                assert await seen.page.evaluate(_NAMELESS) == []
            await seen.page.click("#keys")
            assert await seen.page.evaluate(_NAMELESS) == []
            ids = await seen.page.evaluate("[...document.querySelectorAll('[id]')].map((e) => e.id)")
            assert len(ids) == len(set(ids))
    await demo.well()


async def test_a_link_leads_to_the_same_view_and_back_goes_back(demo: World, browser: Browser) -> None:
    async with tab(browser, demo.address) as seen:
        await seen.open("#tab=path&path=node-0001&path=node-0040&select=node:node-0033")
        await seen.says("#details", "node-0033")
        await seen.says("#panel-path", "A shortest path")
        await seen.page.evaluate("window.hyperscoutMap.setCamera({x: 120, y: 80, zoom: 1.5})")
        await seen.until("() => location.hash.includes('camera=')")
        address = await seen.page.evaluate("location.hash")
        async with tab(browser, demo.address) as other:
            await other.open(address)
            await other.says("#details", "node-0033")
            await other.says("#panel-path", "A shortest path")
            camera = await other.page.evaluate("window.hyperscoutMap.camera()")
            assert camera == pytest.approx({"x": 120, "y": 80, "zoom": 1.5}, rel=1e-3)
        await seen.page.fill("#search", "node-0050")
        await seen.page.keyboard.press("Enter")
        await seen.says("#details", "node-0050")
        await seen.page.go_back()
        await seen.says("#details", "node-0033")
        await seen.page.go_forward()
        await seen.says("#details", "node-0050")


# --- rights to look, and a collector that does not answer ---------------------------------------


def problem(status: int, title: str, **more: str) -> dict[str, Any]:
    body = json.dumps({"type": "about:blank", "title": title, "status": status, **more})
    return {"status": status, "content_type": "application/problem+json", "body": body}


async def test_a_token_is_asked_for_kept_in_the_tab_and_in_no_address(demo: World, browser: Browser) -> None:
    async def guard(route: Route) -> None:
        if route.request.headers.get("authorization") == "Bearer right":
            await route.continue_()
        else:
            await route.fulfill(**problem(401, "Unauthenticated"))

    async with tab(browser, demo.address, allowed=REFUSED) as seen:
        await seen.page.route("**/v1/**", guard)
        await seen.page.goto(f"http://{demo.address}/")
        await seen.says("#token-dialog", "Sign in")
        for token in ("wrong", "right"):
            await seen.page.fill("#token", token)
            await seen.page.keyboard.press("Enter")
            if token == "wrong":
                await seen.says("#token-dialog", "was not accepted")
        await seen.until("window.hyperscoutMap.stats().links > 0")
        assert not await seen.page.locator("#token-dialog").is_visible()
        await seen.page.reload()
        await seen.until("window.hyperscoutMap?.stats().links > 0")
        assert "right" not in seen.page.url
        assert await seen.page.evaluate("JSON.stringify(localStorage).includes('right')") is False


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (
            problem(403, "Not allowed", detail="bob may not get hypernodes"),
            ("Access is denied", "bob may not get", "verb get"),
        ),
        (problem(503, "Stands by", leader="10.0.0.7:50080"), ("stands by", "The leader is 10.0.0.7:50080")),
    ],
    ids=["403", "503"],
)
async def test_a_refusal_says_what_to_do(
    demo: World, browser: Browser, answer: dict[str, Any], words: tuple[str, ...]
) -> None:
    async with tab(browser, demo.address, allowed=REFUSED) as seen:
        await seen.page.route("**/v1/**", lambda route: route.fulfill(**answer))
        await seen.page.goto(f"http://{demo.address}/")
        await seen.says("#notice-collector", *words)


async def test_a_collector_that_was_away_is_followed_again(tmp_path: Path, browser: Browser) -> None:
    fabric = rail_optimised(2, 2, 2, 1)
    async with (
        world(tmp_path, fabric) as first,
        tab(
            browser,
            first.address,
            allowed=(
                r"ERR_(CONNECTION_REFUSED|CONNECTION_RESET|EMPTY_RESPONSE)",
                r"ERR_(INCOMPLETE_CHUNKED_ENCODING|CONTENT_LENGTH_MISMATCH)",  # killed in an answer
            ),
        ) as seen,
    ):
        await seen.open()
        await seen.says("#connection", "Live")
        first.collector.kill()
        await seen.says("#connection", "Reconnecting", "away since")
        flags = ("--rest-listen", first.address, *QUICK)
        async with collector_process(tmp_path, *flags, listen=first.collector.address):
            await seen.says("#connection", "Live")
            await seen.says("#spoken", "Live again")


# --- names of any kind ----------------------------------------------------------------------------

HOSTILE = [
    "<script>alert(document.domain)</script>",
    "<img src=x onerror=alert(1)>",
    "\u202egnp.exe\u202c evil",
    "x" * 3000,
    "bell\x07 \x1b[31mred\x1b[0m\nnewline\u2028",
    "javascript:alert(1)//' onclick='alert(1)",
    "{{constructor.constructor('alert(1)')()}}",
    "\U0001f600 zero\u200bwidth\ufeff",
]


async def test_hostile_names_are_texts(demo: World, browser: Browser) -> None:
    topology = await demo.get("/v1/topology")
    names = {x["id"]: HOSTILE[i % len(HOSTILE)] for i, x in enumerate(topology["switches"])}
    text = json.dumps(topology)
    for node in range(1, 9):
        text = text.replace(json.dumps(f"node-{node:04}")[1:-1], json.dumps(HOSTILE[node - 1])[1:-1])
    hostile = json.loads(text)
    for switch in hostile["switches"]:
        switch["name"] = names[switch["id"]]
    for n, link in enumerate(hostile["links"]):
        link["fabric"] = HOSTILE[n % 2]
        link["note"] = HOSTILE[2]
    subject = {"device": hostile["switches"][0]["id"], "name": HOSTILE[0], "port": HOSTILE[1]}
    for n, kind in enumerate(("MissingLink", "Miswired", HOSTILE[0])):
        peer = {"device": hostile["switches"][n + 1]["id"], "name": HOSTILE[n], "port": "1"}
        hostile["anomalies"].append(
            {
                "kind": kind,
                "subject": subject,
                "peer": peer,
                "tier": 1,
                "sources": [HOSTILE[1]],
                "confidence": 1,
                "message": HOSTILE[4],
                "hypernode": HOSTILE[0],
            }
        )
    stream = f"event: snapshot\nid: 1-x\ndata: {json.dumps(hostile)}\n\n"
    async with tab(browser, demo.address) as seen:
        dialogs: list[str] = []
        seen.page.on("dialog", lambda dialog: dialogs.append(dialog.message))
        await seen.page.route("**/v1/topology*", lambda route: route.fulfill(json=hostile))
        await seen.page.route(
            "**/v1/stream*", lambda route: route.fulfill(content_type="text/event-stream", body=stream)
        )
        await seen.open()
        elements = await seen.page.evaluate("document.querySelectorAll('script, img, iframe').length")
        await seen.says(
            "#panel-wrong", "<script>alert(document.domain)</script>", "<img src=x onerror=alert(1)>"
        )
        for i, name in enumerate(HOSTILE):
            await seen.page.fill("#search", name[:40])
            await seen.page.keyboard.press("Enter")
            switch = next(x["id"] for x in hostile["switches"] if x["name"] == name)
            await seen.page.evaluate(
                "(id) => { location.hash = new URLSearchParams({select: `switch:${id}`}).toString(); }",
                switch,
            )
            await seen.says("#details header", "Switch")
            shown = await seen.text("#details h2")
            assert len(shown) < 400, i
            assert not any(ord(c) < 32 or c in "\u202e\u2028\u200b\ufeff" for c in shown), shown
            assert "\u202e" not in await seen.page.evaluate("document.body.innerText")
        for row in await seen.page.locator("#panel-wrong .row").all():
            await row.click()
        for name in ("filters", "path", "place"):
            await seen.page.click(f"#tab-{name}")
        assert await seen.page.evaluate("document.querySelectorAll('script, img, iframe').length") == elements
        assert dialogs == []
        side = await seen.page.locator(".side").bounding_box()
        assert side is not None
        assert side["width"] < 400, "a long name pushes nothing aside"


async def test_a_hostile_description_on_the_wire_is_text(tmp_path: Path, browser: Browser) -> None:
    fabric = rail_optimised(2, 2, 2, 1)
    named = [replace(x, description=HOSTILE[i % 2]) for i, x in enumerate(fabric.switches)]
    async with (
        world(tmp_path, replace(fabric, switches=tuple(named))) as found,
        tab(browser, found.address) as seen,
    ):
        await seen.open()
        await seen.page.fill("#search", "<script>")
        await seen.says("#found", HOSTILE[0])
        await seen.page.keyboard.press("Enter")
        await seen.says("#details", "Switch", HOSTILE[0])


# --- size, and how it looks -----------------------------------------------------------------------


@contextlib.asynccontextmanager
async def swept_by_one(folder: Path, fabric: SimFabric) -> AsyncIterator[World]:
    """The agent of one host alone tells of the whole fabric; a file says whose the other adapters are."""
    address = free_address()
    node_map = folder / "node-map"
    node_map.write_text("".join(f"{x.guid:016x} {x.host}\n" for x in fabric.adapters))
    flags = ("--rest-listen", address, "--node-map", str(node_map))
    async with (
        collector_process(folder, *QUICK, *flags) as collector,
        playing(collector.address, fabric, hosts=fabric.hosts[:1]) as player,
    ):
        found = World(collector, address, player, fabric)
        await found.until(lambda t: len(t["hypernodes"]) > 0)
        yield found


_BOTH_IN_SIGHT = """
(ids) => {
  const box = document.getElementById("map").getBoundingClientRect();
  const places = ids.map((id) => window.hyperscoutMap.screenPositionOf(id));
  return places.every((at) => at.x > 0 && at.y > 0 && at.x < box.width && at.y < box.height);
}
"""


async def test_five_thousand_nodes_load_and_stay_usable(tmp_path: Path, browser: Browser) -> None:
    fabric = rail_optimised(20, 128, 8, shared_spines=16, pods=2)
    print(f"{len(fabric.hosts)} nodes, {len(fabric.switches)} switches, {len(fabric.cables)} cables")
    async with swept_by_one(tmp_path, fabric) as found, tab(browser, found.address) as seen:
        began_s = time.monotonic()
        await seen.page.goto(f"http://{found.address}/")
        await seen.until("window.hyperscoutMap?.stats().generation > 0")
        coarse_s = time.monotonic() - began_s
        await seen.until("window.hyperscoutMap.stats().links > 0")
        print(f"first paint after {coarse_s:.2f} s, with all cables after {time.monotonic() - began_s:.2f} s")
        await seen.says("#facts", "5,120 nodes")
        await seen.page.fill("#search", "node-4321")
        await seen.page.keyboard.press("Enter")
        await seen.says("#details", "node-4321", "Cables (8)")
        await seen.page.evaluate("location.hash = '#tab=path&path=node-0001&path=node-5120'")
        await seen.says("#panel-path", "6 cables")
        await seen.until(_BOTH_IN_SIGHT, ["node:node-0001", "node:node-5120"])
        await seen.screenshot("map-5000")
        uplink = next(c for c in fabric.cables if c.a in {x.guid for x in fabric.switches})
        generation = await seen.page.evaluate("window.hyperscoutMap.stats().generation")
        began_s = time.monotonic()
        found.player.cut(uplink)
        await seen.until("(old) => window.hyperscoutMap.stats().generation > old", generation)
        await seen.says("#links-down", "1 link down")
        print(f"a cut cable among {len(fabric.cables)}: seen after {time.monotonic() - began_s:.2f} s")


async def test_it_looks_as_the_docs_show_it(demo: World, browser: Browser) -> None:
    await demo.well()
    written = []
    with demo.cut("node-0001"), demo.cut("node-0026"):
        await demo.until(lambda t: len(t["anomalies"]) == 2)
        for scheme in ("light", "dark"):
            async with tab(browser, demo.address, color_scheme=scheme) as seen:
                await seen.open("#select=node:node-0001")
                await seen.says("#details", "Missing link", "Evidence", "infiniband")
                written.append(await seen.screenshot(f"map-{scheme}"))
                light = await seen.page.evaluate("getComputedStyle(document.body).backgroundColor")
                assert (light == "rgb(245, 246, 248)") == (scheme == "light")
        async with tab(browser, demo.address, color_scheme="light") as seen:
            await seen.open("#tab=path&path=node-0001&path=node-0060")
            await seen.says("#panel-path", "6 cables")
            written.append(await seen.screenshot("map-path"))
            await seen.page.get_by_role("button", name="Clear").click()
            await seen.page.click("#tab-place")
            await seen.page.fill("#workers", "24")
            await seen.page.get_by_role("button", name="Preview").click()
            await seen.says("#panel-place", "24 workers")
            await seen.page.wait_for_timeout(400)  # the camera's way there
            written.append(await seen.screenshot("map-placement"))
    await demo.well()
    async with tab(browser, demo.address, color_scheme="light") as seen:
        await seen.open()
        await seen.until("document.querySelectorAll('.track .mark').length >= 2")
        await seen.page.keyboard.press(",")
        async with asyncio.timeout(TIMEOUT_MS / 1000):
            while not await seen.page.locator("#links-down").is_visible():
                await seen.page.keyboard.press(",")
                await seen.page.wait_for_timeout(300)
        written.append(await seen.screenshot("map-past"))
    if writes_docs():
        DOCS_IMAGES.mkdir(exist_ok=True)
        for path in written:
            await write_small(browser, path, DOCS_IMAGES / path.name)
