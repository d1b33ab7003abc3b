"""`hyperscout demo` as a process: it shows what it promises, and leaves nothing behind."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from support.waiting import TIMEOUT_S

COMMAND = [sys.executable, "-m", "hyperscout_cli.main"]
DEMO_S = 600.0


def environment(**more: str) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("HYPERSCOUT_", "DEMO_"))}
    return kept | more


def command_line(pid: int) -> str:
    """Arguments of a living process; empty when there is none."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        words = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return ""
    return "" if status == "Z" else words.replace(b"\0", b" ").decode()


def gone(pid: int) -> bool:
    """Whether the process ends."""
    until = time.monotonic() + TIMEOUT_S
    while command_line(pid):
        if time.monotonic() > until:
            return False
        os.sched_yield()
    return True


def test_the_demo_shows_faults_come_and_go_and_leaves_nothing(tmp_path: Path) -> None:
    ran = subprocess.run(
        [*COMMAND, "demo"],
        env=environment(TMPDIR=str(tmp_path)),
        capture_output=True,
        text=True,
        timeout=DEMO_S,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stderr == ""
    for words in (
        "64 nodes with 4 rails in 2 pods",
        "NAME",
        "the map",
        "is cut ...",
        "LinksDown",
        "is put back ...",
        "is pulled ...",
        "SwitchMissing",
        "is pushed back ...",
        "all as expected",
        "AFTER",
        "Degraded False -> True (LinksDown)",
        "no difference: all faults are repaired",
    ):
        assert words in ran.stdout, words
    found = re.search(r"listens on 127\.0\.0\.1:\d+ \(process (\d+)\)", ran.stdout)
    assert found is not None
    assert not command_line(int(found[1]))
    assert list(tmp_path.iterdir()) == []
    # Steps carry a time, so that a log of it can be read.
    assert re.match(r"\[ +\d+\.\d s\] simulating", ran.stdout)


@pytest.mark.parametrize(
    ("end", "flags", "variables", "hypernodes"),
    [
        (signal.SIGINT, ["--stay"], {}, 7),
        (signal.SIGTERM, ["--stay", "--nodes", "70"], {}, 9),
        (signal.SIGKILL, [], {"DEMO_STAY": "1"}, 7),
    ],
)
def test_a_demo_that_stays_is_looked_at_and_ends_with_its_collector(
    tmp_path: Path, end: signal.Signals, flags: list[str], variables: dict[str, str], hypernodes: int
) -> None:
    demo = subprocess.Popen(
        [*COMMAND, "demo", *flags],
        env=environment(**variables, TMPDIR=str(tmp_path), PYTHONUNBUFFERED="1"),
        stdout=subprocess.PIPE,
        text=True,
    )
    with demo:
        assert demo.stdout is not None
        try:
            address = pid = rest = ""
            for line in demo.stdout:
                if found := re.search(r"listens on (\S+) \(process (\d+)\)", line):
                    address, pid = found[1], found[2]
                if found := re.search(r"curl (http://127\.0\.0\.1:\d+/)v1/hypernodes", line):
                    rest = found[1]
                    break
            assert address
            seen = subprocess.run(
                [*COMMAND, "get", "hypernodes", "-o", "name"],
                env=environment(HYPERSCOUT_COLLECTOR=address),
                capture_output=True,
                text=True,
                check=False,
                timeout=TIMEOUT_S,
            )
            assert seen.stdout.count("hypernode/") == hypernodes, seen.stderr
            with urllib.request.urlopen(f"{rest}v1/hypernodes", timeout=TIMEOUT_S) as answer:
                assert len(json.load(answer)["items"]) == hypernodes
        finally:
            demo.send_signal(end)
        assert demo.wait(TIMEOUT_S) == (-9 if end is signal.SIGKILL else 0)
        assert gone(int(pid))
