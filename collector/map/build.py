"""Builds the map into the collector's package, once for each state of its sources, and runs its tests.

    make map               what is not built yet: npm ci, then Vite, into serve/rest/static
    make map-test          TypeScript's check of types, then vitest
    build.py --if-possible [--test]    the same; without Node.js says so and is no error (unless
                           HYPERSCOUT_REQUIRE_REAL=1)

Only the standard library, so that any Python runs it. What is built is found again by a digest of all that
goes into it, so that without a network nothing is asked for twice. Packages that npm fetched stay in
`$XDG_CACHE_HOME/hyperscout/npm`.
"""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
BUILT = HERE.parent / "hyperscout_collector" / "serve" / "rest" / "static"
MODULES = HERE / "node_modules"
_STAMP = ".built"
_LOCK = HERE / "package-lock.json"
# What Vite 8 says it needs: 20.19 or newer of 20, 22.12 or newer.
_NODE = "20.19, or 22.12 or newer"
_TIMEOUT_S = 600
_HELP = (
    f"Node.js {_NODE}, with npm: a package of your system (Debian 13: apt-get install nodejs npm), or "
    "from nodejs.org"
)


class LackError(Exception):
    """Node.js or npm is not here, or too old. The text says what to do."""


def node_lack() -> str | None:
    """What is missing; None where nothing is."""
    node = shutil.which("node")
    if node is None or shutil.which("npm") is None:
        return f"node or npm not found: install {_HELP}"
    said = subprocess.run([node, "--version"], capture_output=True, text=True, timeout=30, check=False).stdout
    found = re.match(r"v(\d+)\.(\d+)\.", said)
    version = tuple(map(int, found.groups())) if found else (0, 0)
    if not ((20, 19) <= version < (21, 0) or version >= (22, 12)):
        return f"{node} is {said.strip() or 'of no known version'}: the map needs {_HELP}"
    return None


def inputs() -> list[Path]:
    """Every file that what is served depends on."""
    names = (
        "package.json",
        "package-lock.json",
        ".npmrc",
        "tsconfig.json",
        "vite.config.ts",
        "index.html",
        "build.py",
    )
    found = [HERE / name for name in names]
    found += [path for path in (HERE / "src").rglob("*") if path.is_file()]
    return sorted(found)


def digest(paths: Sequence[Path]) -> str:
    """Of names and contents."""
    total = hashlib.sha256()
    for path in paths:
        body = path.read_bytes()
        total.update(f"{path.relative_to(HERE)}\0{len(body)}\0".encode() + body)
    return total.hexdigest()


def is_built() -> bool:
    """Whether what is served is what the sources say."""
    stamp = BUILT / _STAMP
    return stamp.is_file() and stamp.read_text().strip() == digest(inputs())


def build() -> None:
    """Build what is not built.

    Raises:
        LackError: there is no Node.js for it.
        subprocess.CalledProcessError: npm or Vite failed; they have said why.
    """
    if is_built():
        return
    wanted = digest(inputs())
    began = time.monotonic()
    _install()
    fresh, old = (BUILT.with_name(f".static-{what}-{os.getpid()}") for what in ("new", "old"))
    try:
        _npm("run", "--silent", "build", "--", "--outDir", str(fresh), "--logLevel", "warn")
        (fresh / _STAMP).write_text(wanted + "\n")
        # A collector that runs from this folder serves the one or the other, and never half of it.
        if BUILT.exists():
            BUILT.rename(old)
        fresh.rename(BUILT)
    finally:
        for folder in (fresh, old):
            shutil.rmtree(folder, ignore_errors=True)
    _say(f"built in {time.monotonic() - began:.1f} s")


def test() -> None:
    """Check types and run the tests; raises as `build` does."""
    _install()
    _npm("test", "--silent")


def _install() -> None:
    """Locked packages into node_modules, where they are not there."""
    lack = node_lack()
    if lack:
        raise LackError(lack)
    stamp, wanted = MODULES / ".hyperscout-lock", digest([_LOCK])
    if stamp.is_file() and stamp.read_text() == wanted:
        return
    _say("installing locked packages (npm ci)")
    _npm("ci", "--prefer-offline", "--ignore-scripts", "--no-progress", "--loglevel=error")
    stamp.write_text(wanted)


def _npm(*arguments: str) -> None:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hyperscout" / "npm"
    subprocess.run(
        ["npm", *arguments],
        cwd=HERE,
        env=os.environ | {"npm_config_cache": str(cache), "NO_UPDATE_NOTIFIER": "1"},
        stdin=subprocess.DEVNULL,
        check=True,
        timeout=_TIMEOUT_S,
    )


def _say(text: str) -> None:
    print(f"map: {text}", file=sys.stderr, flush=True)


def main(arguments: Sequence[str]) -> int:
    """What the make targets run. Exit status 0: done, or left out as allowed; 1: failed; 2: usage."""
    if not {"--if-possible", "--test"} >= set(arguments):
        print(__doc__, file=sys.stderr)
        return 2
    may_lack = "--if-possible" in arguments and os.environ.get("HYPERSCOUT_REQUIRE_REAL") != "1"
    # Two at once (two tests' processes, say) would take each other's packages away.
    with (HERE / ".build.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            test() if "--test" in arguments else build()
        except LackError as lack:
            _say(f"{'not tested' if '--test' in arguments else 'not built'}: {lack}")
            return 0 if may_lack else 1
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            _say(f"{error}")
            return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
