"""The real Prometheus: scrapes what a test names, evaluates our rules, answers queries."""

import asyncio
import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import yaml
from hyperscout_formats.text.prometheus_text import CONTENT_TYPE
from hyperscout_runtime.health_server import Answer, serving
from kube.processes import Program, free_port

from support.real import ROOT, tool
from support.waiting import TIMEOUT_S

ALERTS = ROOT / "deploy" / "prometheus" / "alerts.yaml"
_LOOK_S = 0.2
Job = Mapping[str, Any]  # of scrape_configs


def job(name: str, *targets: str, **more: Any) -> Job:
    return {"job_name": name, "static_configs": [{"targets": list(targets)}], **more}


def hasty_rules() -> dict[str, Any]:
    """Our rules, with nothing to wait for: what fires after minutes fires at once."""
    found: dict[str, Any] = yaml.safe_load(ALERTS.read_text())
    for group in found["groups"]:
        for rule in group["rules"]:
            rule.pop("for", None)
    return found


class Prometheus:
    """Answers of one that runs. Queries raise AssertionError with what it says of them."""

    def __init__(self, address: str) -> None:
        self.address = address

    async def ask(self, path: str, **query: str) -> Any:
        url = f"http://{self.address}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        return await asyncio.to_thread(_fetched, url)

    async def query(self, expr: str) -> list[dict[str, Any]]:
        """Series of an instant query: [{"metric": labels, "value": [time, text]}, ...]."""
        found: list[dict[str, Any]] = (await self.ask("query", query=expr))["result"]
        return found

    async def firing(self) -> set[str]:
        """Names of alerts that fire now."""
        alerts = (await self.ask("alerts"))["alerts"]
        return {alert["labels"]["alertname"] for alert in alerts if alert["state"] == "firing"}

    async def until(self, expr: str, holds: Callable[[list[dict[str, Any]]], object] = bool) -> None:
        """Until a query's answer is as wanted (default: it has any)."""
        answer: list[dict[str, Any]] = []
        try:
            async with asyncio.timeout(TIMEOUT_S):
                while not holds(answer := await self.query(expr)):
                    await asyncio.sleep(_LOOK_S)
        except TimeoutError:
            raise AssertionError(f"never so: {expr}; last: {answer}") from None

    async def until_fires(self, *names: str) -> None:
        fire: set[str] = set()
        try:
            async with asyncio.timeout(TIMEOUT_S):
                while not set(names) <= (fire := await self.firing()):
                    await asyncio.sleep(_LOOK_S)
        except TimeoutError:
            raise AssertionError(f"never fired: {set(names) - fire}; those did: {sorted(fire)}") from None


def _fetched(url: str) -> Any:
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_S) as answer:
            return json.load(answer)["data"]
    except urllib.error.HTTPError as error:
        raise AssertionError(f"{url}: {error.read().decode()}") from error


@asynccontextmanager
async def prometheus(
    folder: Path, jobs: Sequence[Job], rules: Mapping[str, Any]
) -> AsyncIterator[Prometheus]:
    """Scrapes and evaluates each second."""
    program, address = tool("prometheus"), f"127.0.0.1:{free_port()}"
    assert program is not None
    folder.mkdir()
    (folder / "rules.yaml").write_text(yaml.safe_dump(dict(rules)))
    config = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(folder / "rules.yaml")],
        "scrape_configs": [dict(one) for one in jobs],
    }
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(config))
    flags = ("--config.file", folder / "prometheus.yaml", "--storage.tsdb.path", folder / "data")
    flags = (*flags, "--web.listen-address", address, "--log.level", "warn")
    running, found = Program([program, *flags], folder / "log"), Prometheus(address)
    try:
        async with asyncio.timeout(TIMEOUT_S):
            while not await asyncio.to_thread(_is_ready, address):
                assert running.alive, running.tail()
                await asyncio.sleep(_LOOK_S)
        yield found
    finally:
        running.terminate()


def _is_ready(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"http://{address}/-/ready", timeout=TIMEOUT_S):
            return True
    except OSError:
        return False


@asynccontextmanager
async def exporter(page: str) -> AsyncIterator[str]:
    """Another program's metrics, at the address that this gives."""
    pages = {"/metrics": lambda: Answer(page.encode(), content_type=CONTENT_TYPE)}
    async with serving("127.0.0.1", 0, pages) as port:
        yield f"127.0.0.1:{port}"
