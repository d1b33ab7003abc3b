"""The collector process seldom traverses its evidence for cyclic garbage."""

import subprocess
import sys
from pathlib import Path

from support.waiting import TIMEOUT_S

_KEEPS = """
import asyncio, gc, sys
from hyperscout_collector.app.replica.process import run
from hyperscout_collector.app.settings.settings import CollectorSettings

settings = CollectorSettings(data_dir=sys.argv[1], listen="127.0.0.1:0", http_listen="", rest_listen="")
assert asyncio.run(run(settings)) == 1, "its data_dir is a file"
before = gc.get_stats()
evidence = [[] for _ in range(200_000)]
print([now["collections"] - was["collections"] for now, was in zip(gc.get_stats(), before)])
"""


def test_new_evidence_causes_few_collections(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    command = sys.executable, "-c", _KEEPS, str(tmp_path / "file")
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)
    assert done.returncode == 0, done.stderr
    young, older, full = map(int, done.stdout.strip("[]\n").split(","))
    assert young <= 5
    assert older == full == 0
