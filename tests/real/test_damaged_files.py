"""Flipped bytes in the collector's files: each start succeeds, and the one after it finds nothing damaged."""

import shutil
import time
from pathlib import Path
from random import Random

import pytest
from support.damaged_files import EVIDENCE, HISTORY, PLACEMENTS, flipped, start, write
from support.soak import soak_s, soak_seed


@pytest.mark.soak
async def test_a_start_repairs_what_is_damaged(tmp_path: Path) -> None:
    random = Random(seed := soak_seed())
    print(f"HYPERSCOUT_SOAK_SEED={seed}")
    whole = tmp_path / "whole"
    await write(whole)
    data = {name: (whole / name).read_bytes() for name in (EVIDENCE, HISTORY, PLACEMENTS)}
    copy = tmp_path / "copy"
    copies = damaged = 0
    until_s = time.monotonic() + soak_s(20)
    while copies < 10 or time.monotonic() < until_s:
        copies += 1
        shutil.rmtree(copy, ignore_errors=True)
        copy.mkdir()
        for name, content in data.items():
            (copy / name).write_bytes(flipped(content, random, random.randint(1, 5)))
        found = await start(copy)
        damaged += bool(found.found)
        assert bool(found.found) <= bool(found.problems)
        again = await start(copy)
        assert (again.found, again.problems) == ({}, []), f"copy {copies}"
    print(f"{copies} copies, {damaged} with damage that was found")
    assert damaged
