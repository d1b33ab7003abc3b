"""Names for shell completion, from the collector: nodes, HyperNodes, switches, gangs, generations.

A shell completes at each press of Tab. So a query ends within a second, a cache keeps the answer for some
seconds, and errors are not printed.
"""

import hashlib
import json
import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem
from hyperscout_formats.text.host_list import natural_key
from hyperscout_runtime.files import replace_file

from hyperscout_cli.shared.options import DEFAULT_COLLECTOR, TOKEN_VARIABLE, Endpoint, reached_in

DEADLINE_S = 1.0
KEPT_S = 10.0
_MAX_NAMES = 20_000  # for each kind
_MAX_BYTES = 4 << 20
_MAX_FILES = 16  # cached collectors
_MAX_SAVED_BYTES = 16 << 20  # reading a larger topology takes too long
# Other names would need quotes, which differ between shells.
_PLAIN = re.compile(r"[A-Za-z0-9._/@%+-]+")

Names = Mapping[str, list[str]]
Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]

# Names that `get KIND NAME` accepts, by kind.
_OF_KIND = {
    "hypernodes": ("hypernodes",),
    "nodes": ("nodes",),
    "findings": ("nodes",),
    "switches": ("switches",),
    "links": ("nodes", "switches"),
    "anomalies": ("hypernodes", "nodes", "switches"),
}


def names(*kinds: str) -> Completer:
    """A `shell_complete` for names of these kinds, or without kinds for names of the argument KIND."""

    def complete(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
        try:
            wanted = kinds or _OF_KIND[_kind(ctx)]
            return [CompletionItem(name) for name in _matching(known(ctx), wanted, incomplete)]
        except Exception:
            return []

    return complete


def _kind(ctx: click.Context) -> str:
    from hyperscout_cli.shared.kinds import KINDS

    return KINDS[ctx.params["kind"].lower()]


def _matching(found: Names, kinds: Iterable[str], incomplete: str) -> list[str]:
    every = dict.fromkeys(name for kind in kinds for name in found.get(kind, ()))
    return [name for name in every if name.startswith(incomplete) and _PLAIN.fullmatch(name)]


def known(ctx: click.Context) -> Names:
    """All names, from the file of --topology or from the collector."""
    if saved := ctx.params.get("topology"):
        from hyperscout_cli.shared.saved_topology import read_topology

        small = saved != "-" and Path(saved).stat().st_size <= _MAX_SAVED_BYTES
        return names_of_topology(read_topology(saved)) if small else {}
    given = {name: ctx.params.get(name) for name in ("tls_ca", "tls_cert", "tls_key", "token_file")}
    namespace = reached_in(ctx, ctx.params.get("namespace") or "")
    endpoint = Endpoint(
        (not namespace and ctx.params.get("collector")) or DEFAULT_COLLECTOR,
        DEADLINE_S,
        **given,
        tls_server_name=ctx.params.get("tls_server_name") or "",
        insecure=bool(ctx.params.get("insecure")),
        namespace=namespace,
        token="" if given["token_file"] else os.environ.get(TOKEN_VARIABLE, "").strip(),
    )
    cache = Cache(_folder(), repr(endpoint) + endpoint.token, time.time)
    found = cache.read()
    if found is None:
        # On a busy machine this import alone can take a second. The limit is for the collector.
        import hyperscout_cli.remote.client  # noqa: F401

        found = within(DEADLINE_S, lambda: ask(endpoint)) or {}
        cache.write(found)  # also an empty answer, so that the next Tab does not wait again
    return found


def within(limit_s: float, ask_: Callable[[], Names]) -> Names | None:
    """The answer, or None if it takes too long or fails. The thread of a call that hangs continues."""
    answers: list[Names] = []

    def run() -> None:
        try:
            answers.append(ask_())
        except Exception:
            return

    thread = threading.Thread(target=run, name="names", daemon=True)
    thread.start()
    thread.join(limit_s)
    return answers[0] if answers else None


def ask(endpoint: Endpoint) -> Names:
    """All names that the collector knows. Raises CliError."""
    from hyperscout_cli.remote.client import Collector
    from hyperscout_cli.shared.errors import CliError

    with Collector(endpoint) as connection:
        found = names_of_topology(connection.topology(links=False))
        status = connection.status()
        generations = [status.held.generation] if status.HasField("held") else []
        found["generations"] = [str(n) for n in (*generations, status.generation) if n]
        try:
            found["gangs"] = [x.gang for x in connection.placements()][:_MAX_NAMES]
        except CliError:  # the user may have no right to list gangs
            found["gangs"] = []
    return found


def names_of_topology(topology: Any) -> dict[str, list[str]]:
    nodes = {node for h in topology.hypernodes for node in h.nodes} | {*topology.nodes_without_evidence}
    return {
        "nodes": sorted(nodes, key=natural_key)[:_MAX_NAMES],
        "hypernodes": sorted((h.name for h in topology.hypernodes), key=natural_key)[:_MAX_NAMES],
        "switches": sorted({s.name or s.id for s in topology.switches}, key=natural_key)[:_MAX_NAMES],
    }


def _folder() -> Path:
    """The cache folder of the XDG Base Directory Specification, which ignores a relative path."""
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (base if base.is_absolute() else Path.home() / ".cache") / "hyperscout" / "completion"


class Cache:
    """The last answer for one collector and one caller (`key`), in a file that only the user can read."""

    def __init__(self, folder: Path, key: str, clock: Callable[[], float]) -> None:
        self._folder = folder
        self._file = folder / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.json"
        self._clock = clock

    def read(self) -> Names | None:
        """The cached names; None if there are none or they are too old."""
        try:
            with os.fdopen(os.open(self._file, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
                stat = os.fstat(file.fileno())
                fresh = 0 <= self._clock() - stat.st_mtime < KEPT_S
                if not fresh or stat.st_uid != os.getuid():
                    return None
                found = json.loads(file.read(_MAX_BYTES))
        except (OSError, ValueError, RecursionError):
            return None
        if not isinstance(found, dict):
            return None
        return {k: [x for x in v if isinstance(x, str)] for k, v in found.items() if isinstance(v, list)}

    def write(self, found: Names) -> None:
        """Write the names. An error is ignored: the next Tab queries the collector again."""
        text = json.dumps(found)  # ASCII
        if len(text) > _MAX_BYTES:
            return
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._prune()
            replace_file(self._file, text, 0o600)
            os.utime(self._file, (self._clock(),) * 2)
        except OSError:
            return

    def _prune(self) -> None:
        """Delete all but the newest files, including unfinished ones."""
        others = [x for x in self._folder.iterdir() if x != self._file]
        others.sort(key=lambda x: x.stat().st_mtime, reverse=True)
        for old in others[_MAX_FILES - 1 :]:
            old.unlink(missing_ok=True)
