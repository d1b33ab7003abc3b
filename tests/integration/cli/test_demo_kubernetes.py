"""How the demo reads kubectl; with a shell script for kubectl, whose answers are files."""

import asyncio
from pathlib import Path

import pytest
from hyperscout_cli.demo.demo_collector import DemoError
from hyperscout_cli.demo.demo_kubernetes import Kubectl
from support.waiting import TIMEOUT_S

CALL_S = 5.0  # for a call of kubectl whose answer is awaited, and is not the expected one
SILENCE_S = 0.2  # for a line that is not expected
HEADING = "NAME   TIER   TIERNAME   NODES   READY   DEGRADED   REASON   AGE"


def row(name: str, degraded: str = "False", reason: str = "LinksHealthy") -> str:
    return f"{name}   1      leaf       8       True    {degraded}   {reason}   3s"


def kubectl(
    tmp_path: Path, table: str = "", watch: str = "", *, status: int = 0, stays: bool = True
) -> Kubectl:
    (tmp_path / "table").write_text(table)
    (tmp_path / "watch").write_text(watch)
    path = tmp_path / "kubectl"
    path.write_text(
        "#!/bin/sh\n"
        f'case "$*" in\n*--watch*) cat {tmp_path}/watch; {"exec sleep 600" if stays else ":"} ;;\n'
        f"*) cat {tmp_path}/table; echo no way >&2; exit {status} ;;\nesac\n"
    )
    path.chmod(0o755)
    return Kubectl(str(path), tmp_path / "kubeconfig")


async def test_it_waits_until_all_are_there_with_all_columns(tmp_path: Path) -> None:
    young = "leaf-b   1      leaf       8                                   3s"
    found = kubectl(tmp_path, f"{HEADING}\n{row('leaf-a')}\n{young}\n")
    names = frozenset(["leaf-a", "leaf-b"])
    with pytest.raises(DemoError, match=r"(?s)2 HyperNodes; it shows\nNAME.*leaf-b"):
        await found.whole(names, CALL_S)
    (tmp_path / "table").write_text(whole := f"{HEADING}\n{row('leaf-a')}\n{row('leaf-b')}\n")
    assert await found.whole(names, TIMEOUT_S) == whole
    with pytest.raises(DemoError, match="1 HyperNodes"):
        await found.whole(frozenset(["NAME"]), CALL_S)


async def test_what_kubectl_complains_about_is_said(tmp_path: Path) -> None:
    with pytest.raises(DemoError, match="no way"):
        await kubectl(tmp_path, status=1).whole(frozenset(["a"]), CALL_S)


async def test_the_last_line_of_the_watch_counts(tmp_path: Path) -> None:
    bad, good = row("leaf-a", "True", "LinksDown"), row("leaf-a")
    found = kubectl(
        tmp_path, watch=f"{good}\n{bad}\n{row('leaf-b', 'True')}\n{row('leaf-c', 'True')}\n{row('leaf-c')}\n"
    )
    async with asyncio.timeout(TIMEOUT_S), found.watching():
        assert await found.turned("leaf-c", "False", TIMEOUT_S) == row("leaf-c") + "\n"
        assert await found.turned("leaf-a", "True", TIMEOUT_S) == bad + "\n"
        for name, degraded in (("leaf-a", "False"), ("leaf-c", "True"), ("leaf", "True")):
            with pytest.raises(DemoError, match=f"{name} with DEGRADED {degraded}; nothing within 0.2 s"):
                await found.turned(name, degraded, SILENCE_S)


async def test_a_watch_that_ends_is_said(tmp_path: Path) -> None:
    found = kubectl(tmp_path, stays=False)
    async with asyncio.timeout(TIMEOUT_S), found.watching():
        with pytest.raises(DemoError, match="it has ended"):
            await found.turned("leaf-a", "True", TIMEOUT_S)
