"""A real Chromium that looks at the map, and what must never happen while it does.

No error in its console, no breach of the page's policy (CSP), no request to another host: each of them fails
the test in which it happens.
"""

import asyncio
import contextlib
import os
import re
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from playwright.async_api import Browser, ConsoleMessage, Error, Page, async_playwright

from support.real import ROOT, tool

# No display, no sandbox in a container, nothing that calls home.
_FLAGS = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
TIMEOUT_MS = 90_000
SIZE = {"width": 1440, "height": 900}
# Breaches of the page's policy, kept where a test can read them.
_NOTE_BREACHES = """
window.policyBreaches = [];
document.addEventListener("securitypolicyviolation", (e) => window.policyBreaches.push(
  `${e.violatedDirective} ${e.blockedURI} ${e.sourceFile}:${e.lineNumber}`));
"""
SCREENSHOTS = ROOT / "build" / "screenshots"
DOCS_IMAGES = ROOT / "docs" / "images"
WRITE_VARIABLE = "HYPERSCOUT_WRITE_SCREENSHOTS"


@dataclass
class Tab:
    """`page` looks at the map at `address`. `allowed`: what its console may say, as regular expressions."""

    page: Page
    address: str
    allowed: tuple[str, ...] = ()
    problems: list[str] = field(default_factory=list)

    async def open(self, hash_: str = "") -> None:
        """Until there is a picture, drawn whole."""
        await self.page.goto(f"http://{self.address}/{hash_}")
        await self.until(
            "window.hyperscoutMap?.stats().generation > 0 && window.hyperscoutMap.stats().links > 0"
        )

    async def until(self, condition: str, argument: Any = None) -> Any:
        """Wait for an expression, or for a function of one argument, to be true in the page; what it was.

        Asked from here again and again: Playwright's own waiting evaluates texts in the page, which the
        page's policy forbids.
        """
        until_s = time.monotonic() + TIMEOUT_MS / 1000
        while True:
            with contextlib.suppress(Error):  # while it is being loaded anew
                if found := await self.page.evaluate(condition, argument):
                    return found
            assert time.monotonic() < until_s, f"never: {condition} {argument or ''}"
            await asyncio.sleep(0.02)

    async def text(self, selector: str) -> str:
        """What stands there for people."""
        return await self.page.locator(selector).inner_text(timeout=TIMEOUT_MS)

    async def says(self, selector: str, *words: str) -> None:
        """Wait until all of the words stand there."""
        find = "([s, words]) => words.every((w) => document.querySelector(s)?.innerText.includes(w))"
        try:
            await self.until(find, [selector, list(words)])
        except AssertionError as error:
            shown = await self.page.locator(selector).all_inner_texts()
            raise AssertionError(f"{selector} never said {words}, but {shown}") from error

    async def click_on(self, item: str) -> None:
        """Click a thing where it is drawn."""
        where = await self.until("(id) => window.hyperscoutMap.screenPositionOf(id)", item)
        box = await self.page.locator("#map").bounding_box()
        assert box is not None
        await self.page.mouse.click(box["x"] + where["x"], box["y"] + where["y"])

    async def hash(self) -> str:
        return str(await self.page.evaluate("decodeURIComponent(location.hash)"))

    async def screenshot(self, name: str) -> Path:
        """Kept for people to look at, and in docs/images where it is asked for."""
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        path = SCREENSHOTS / f"{name}.png"
        await self.page.screenshot(path=path, animations="disabled")
        print(f"screenshot: {path}")
        return path

    def _heard(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning") and not any(re.search(x, message.text) for x in self.allowed):
            self.problems.append(f"console {message.type}: {message.text}")

    def _asked(self, url: str) -> None:
        if not url.startswith((f"http://{self.address}/", "data:")):
            self.problems.append(f"asked another host: {url}")

    async def check(self) -> None:
        breaches = await self.page.evaluate("window.policyBreaches ?? []")
        found = [*self.problems, *breaches]
        assert not found, "\n".join(found)


def writes_docs() -> bool:
    """Whether the images of the docs are to be written anew."""
    return os.environ.get(WRITE_VARIABLE, "") not in {"", "0"}


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    path = tool("chromium")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=path, args=_FLAGS)
        try:
            yield browser
        finally:
            await browser.close()


@asynccontextmanager
async def tab(
    browser: Browser, address: str, *, allowed: Iterable[str] = (), **options: Any
) -> AsyncIterator[Tab]:
    """A tab of its own, with nothing kept from others. `options`: of Playwright's `new_context`."""
    context = await browser.new_context(viewport=SIZE, **options)  # type: ignore[arg-type]
    try:
        await context.add_init_script(_NOTE_BREACHES)
        page = await context.new_page()
        found = Tab(page, address, tuple(allowed))
        page.on("console", found._heard)
        page.on("pageerror", lambda error: found.problems.append(f"uncaught: {error}"))
        page.on("request", lambda request: found._asked(request.url))
        yield found
        await found.check()
    finally:
        await context.close()
