"""`hyperscout doctor --replay`: what it says of good, differing and bad files."""

import json
from pathlib import Path

import pytest
from hyperscout_collector.app.status.event_logs import lines
from hyperscout_collector.decisions.publication.takeover import FullState, TakeoverFacts, TakeoverMachine
from hyperscout_runtime.event_log import EventLog
from support.command_line import CommandLine


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """An event log whose second event leads to another state than it should."""
    log = EventLog("takeover")
    machine = TakeoverMachine(TakeoverFacts(0, 10, {"n0", "n1"}, {}, set(), set()), log)
    machine.handle(FullState("n0"), 1_000_000_000)
    machine.handle(FullState("n1"), 2_000_000_000)
    text = [json.loads(line) for line in lines(log.kind, log.entries())]
    text[-1]["state"] = "complete"
    file = tmp_path / "events.jsonl"
    file.write_text("".join(f"{json.dumps(line)}\n" for line in text))
    return file


def test_the_first_difference_is_shown(run: CommandLine, file: Path) -> None:
    ran = run("doctor", "--replay", file)
    assert ran.code == 3
    assert ran.out.splitlines()[:6] == [
        f"{file}: 2 events of 1 machine: the replay reaches another state in line 3.",
        "  machine   takeover takeover#1",
        "  time      1970-01-01T00:00:02Z",
        "  event     FullState",
        "  logged    complete",
        "  replayed  fabrics",
    ]


def test_json(run: CommandLine, file: Path) -> None:
    found = json.loads(run("doctor", "--replay", file, "-o", "json").out)
    assert (found["same"], found["events"], found["difference"]["line"]) == (False, 2, 3)


def test_bad_files_are_refused_with_their_line(run: CommandLine, file: Path) -> None:
    with file.open("a") as text:
        text.write("{}\n")
    file.write_text(file.read_text().replace('"complete"', '"fabrics"'))
    ran = run("doctor", "--replay", file)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"error: {file}: line 4: expected an object of `hyperscout status --event-log`")
    missing = run("doctor", "--replay", file.parent / "none")
    assert missing.err == f"error: {file.parent}/none: No such file or directory: check the path\n"
    assert run("doctor", "gpu-1", "--replay", file).code == 2


def test_the_byte_that_is_not_utf_8_is_counted_from_the_start(run: CommandLine, file: Path) -> None:
    file.write_bytes(b" " * 100_000 + b"\xff")
    assert run("doctor", "--replay", file).err.startswith(f"error: {file}: not UTF-8 at byte 100000: ")
