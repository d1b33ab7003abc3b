"""The map's files: the same for each client, under one strict policy, and nothing from beside the folder."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from hyperscout_collector.serve.http.hosts import Hosts
from hyperscout_collector.serve.rest.static import Pages


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "secret").write_text("classified")
    built = tmp_path / "static"
    (built / "assets").mkdir(parents=True)
    (built / "index.html").write_text("<title>map</title>")
    (built / "assets" / "app-1a2b.js").write_text("1")
    (built / "assets" / "link").symlink_to(tmp_path / "secret")
    return built


async def asked(
    folder: Path, path: str, method: str = "GET", host: str = "localhost"
) -> tuple[int, dict[str, str], bytes]:
    sent: list[dict[str, Any]] = []
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "query_string": b"",
        "headers": [(b"host", host.encode())],
        "server": ("localhost", 80),
        "scheme": "http",
        "root_path": "",
    }

    async def receive() -> dict[str, Any]:
        await asyncio.Event().wait()  # it stays connected, and says no more
        raise AssertionError

    async def send(message: Any) -> None:
        sent.append(dict(message))

    await Pages(Hosts([]), folder)(scope, receive, send)
    headers = {name.decode().lower(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], headers, b"".join(x.get("body", b"") for x in sent[1:])


async def test_the_page_is_looked_at_again_and_what_it_names_never(folder: Path) -> None:
    status, headers, body = await asked(folder, "/")
    assert (status, body) == (200, b"<title>map</title>")
    assert headers["cache-control"] == "no-cache"
    status, headers, body = await asked(folder, "/assets/app-1a2b.js")
    assert (status, body) == (200, b"1")
    assert headers["cache-control"] == "public, max-age=31536000, immutable"
    assert "javascript" in headers["content-type"]


async def test_the_policy_allows_nothing_of_any_other_host(folder: Path) -> None:
    for path in ("/", "/assets/app-1a2b.js"):
        policy = dict(
            part.strip().partition(" ")[::2]
            for part in (await asked(folder, path))[1]["content-security-policy"].split(";")
        )
        assert policy["default-src"] == "'none'"
        assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
        assert policy["frame-ancestors"] == policy["base-uri"] == policy["form-action"] == "'none'"
        assert "unsafe" not in str(policy)


@pytest.mark.parametrize(
    "path",
    ["/../secret", "/assets/../../secret", "/assets/link", "//etc/passwd", "/assets", "/none", "/a\0b"],
)
async def test_nothing_else_is_served(folder: Path, path: str) -> None:
    status, headers, body = await asked(folder, path)
    assert status == 404
    assert headers["content-type"] == "application/problem+json"
    assert b"classified" not in body


async def test_a_missing_asset_is_not_kept_as_missing(folder: Path) -> None:
    status, headers, _ = await asked(folder, "/assets/app-0000.js")
    assert (status, headers["cache-control"]) == (404, "no-store")


async def test_files_are_only_read_and_only_under_our_name(folder: Path) -> None:
    assert (await asked(folder, "/", "POST"))[0] == 405
    assert (await asked(folder, "/", host="evil.example"))[0] == 403


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST"])
@pytest.mark.parametrize("path", ["/", "/x", "/v1/x", "/assets/../..", "/assets/..%2f.."])
@pytest.mark.parametrize("built", ["absent", "empty"])
async def test_without_the_built_map_every_path_is_a_404_problem(
    tmp_path: Path, built: str, path: str, method: str
) -> None:
    status, headers, body = await asked(tmp_path / "none" if built == "absent" else tmp_path, path, method)
    assert (status, headers["content-type"]) == (404, "application/problem+json")
    problem = json.loads(body)
    assert (problem["status"], problem["type"]) == (404, "urn:hyperscout:problem:not-found")
    assert ("make map" in problem["detail"]) == (path == "/")
