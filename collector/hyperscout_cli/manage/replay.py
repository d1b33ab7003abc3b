"""`hyperscout doctor --replay`: do the installed state machines reach the states of an event log?"""

import io
from dataclasses import asdict
from functools import partial
from pathlib import Path

from hyperscout_collector.app.status.event_logs import MAX_LINE_CHARS, EventLogError, Replay, replay
from hyperscout_formats.text.counts import count
from hyperscout_runtime.units import rfc3339
from hyperscout_topology.names import visible

from hyperscout_cli.shared.errors import NO, BadInputError
from hyperscout_cli.shared.files import read_bytes
from hyperscout_cli.shared.output import emit, emit_data

EVENT_LOG = "a file of `hyperscout status --event-log`"


def replayed(file: Path, output: str) -> int:
    """Replay a file and show the result. Raises BadInputError if it cannot be read or is not an event log."""
    try:
        text = io.StringIO(read_bytes(str(file), EVENT_LOG).decode())
        found = replay(iter(partial(text.readline, MAX_LINE_CHARS + 1), ""), str(file))
    except UnicodeDecodeError as error:
        raise BadInputError(f"{file}: not UTF-8 at byte {error.start}: expected {EVENT_LOG}") from error
    except EventLogError as error:
        raise BadInputError(f"{error}. Write the file again with `hyperscout status --event-log`") from error
    if not emit_data({"file": str(file), "same": found.difference is None, **asdict(found)}, output):
        emit(report(str(file), found))
    return NO if found.difference is not None else 0


def report(file: str, found: Replay) -> list[str]:
    """The result as text."""
    what = f"{count(found.events, 'event')} of {count(found.machines, 'machine')}"
    difference = found.difference
    if difference is None:
        return [f"{file}: {what}: the replay reaches the same states.\n"]
    events = ", ".join(difference.events) or "no event"
    return [
        f"{file}: {what}: the replay reaches another state in line {difference.line}.\n",
        visible(f"  machine   {difference.machine} {difference.subject}") + "\n",
        f"  time      {rfc3339(difference.at_ns)}\n",
        f"  event     {events}\n",
        visible(f"  logged    {difference.logged or '-'}") + "\n",
        visible(f"  replayed  {difference.replayed or '-'}") + "\n",
        "Replay the file with the version that wrote it, and report both results.\n",
    ]
