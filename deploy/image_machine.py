"""What a build needs from this machine: where it takes packages from, its proxies and CA.

None of it gets into an image: a build gets them as secrets, files that exist during one step only. The tests
of the installation copy the same files into a root that is deleted afterwards.
"""

import ast
import contextlib
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_QUICK_S = 60
_INDEX = "index"  # pip names two of its settings after it
# Where a root has these files; the recipes name the same places.
PLACES = {"pip": "etc/pip.conf", "apt": "etc/apt/apt.conf.d/99secret", "ca": "run/ca.pem"}
_PIP = (f"{_INDEX}-url", f"extra-{_INDEX}-url", "trusted-host", "proxy", "timeout", "retries", "cert")


def overlays(folder: Path) -> bool:
    """Whether the folder supports overlays: not if it is in an overlay itself, as in a container."""
    done = subprocess.run(["stat", "-f", "-c", "%T", folder], capture_output=True, text=True, check=True)
    kinds = Path("/proc/filesystems").read_text().split()
    return "overlay" in kinds and done.stdout.strip() != "overlayfs"


def sources(codename: str) -> list[tuple[str, str]]:
    """(URI, suite) of this machine's package sources for that Debian release, the release itself first."""
    form = "$(ORIGIN)|$(CODENAME)|$(COMPONENT)|$(REPO_URI)|$(RELEASE)"
    said = _output(["apt-get", "indextargets", "--format", form, "Created-By: Packages"])
    found: dict[tuple[str, str], None] = {}
    for line in said.splitlines():
        origin, name, component, uri, suite = line.split("|")
        if origin == "Debian" and component == "main" and name.split("-")[0] == codename:
            found[uri, suite if suite.startswith(codename) else name] = None
    return sorted(found, key=lambda source: source[1] != codename)


@contextmanager
def secrets(folder: Path) -> Iterator[list[str]]:
    """Flags that give a build this machine's package index, proxy and CA as secrets."""
    with tempfile.TemporaryDirectory(prefix="run-", dir=folder) as scratch:
        shown = access(Path(scratch))
        yield [word for name, path in shown.items() for word in ("--secret", f"id={name},src={path}")]


def access(folder: Path) -> dict[str, Path]:
    """Files for PLACES with this machine's package index, proxy and CA; without those that it has no use for.

    The files that are made are written to the folder.
    """
    pip = _pip()
    bundles = (pip.get("cert"), *map(os.environ.get, ("REQUESTS_CA_BUNDLE", "SSL_CERT_FILE")))
    bundle = next((path for path in map(Path, filter(None, bundles)) if path.is_file()), None)
    if bundle is not None:
        pip["cert"] = f"/{PLACES['ca']}"
    files = {"pip": "".join(f"{key} = {value}\n" for key, value in pip.items()), "apt": _apt()}
    files["pip"] = files["pip"] and "[global]\n" + files["pip"]
    found = {name: folder / name for name, text in files.items() if text}
    for name, path in found.items():
        path.write_text(files[name])
    return found if bundle is None else found | {"ca": bundle}


def _pip() -> dict[str, str]:
    """pip's settings on this machine, from files and the environment."""
    said = _output([sys.executable, "-m", "pip", "config", "list"])
    found: dict[str, str] = {}
    for line in said.splitlines():
        name, _, value = line.partition("=")
        key = name.rsplit(".")[-1].removeprefix("default-")
        if key in _PIP:
            with contextlib.suppress(SyntaxError, ValueError):
                found[key] = str(ast.literal_eval(value)).replace("\n", "\n  ")
    return found


def _apt() -> str:
    """apt's proxies."""
    said = _output(["apt-config", "dump"])
    return "".join(re.findall(r"^Acquire::https?::Proxy.*\n", said, re.MULTILINE))


def _output(command: list[str]) -> str:
    """Standard output of a program; "" if it is not installed."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_QUICK_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout
