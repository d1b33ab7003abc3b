"""Ask for a real component, and say loudly when it is missing.

A test that lacks its component skips on a user's machine, with a reason that names what to install.
Under HYPERSCOUT_REQUIRE_REAL=1 (which `.ci/run` sets) the same lack is a failure, so that a proof
can never go missing in silence. Only the parts of OPTIONAL are skips there too: no machine of CI must have
them. All skips of the tests are made here; tests/integration/test_skips.py forbids others.
"""

import contextlib
import functools
import os
import runpy
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NoReturn

import pytest
from kube import assets

from support.apart import environment

ROOT: Final = Path(__file__).resolve().parents[2]
SHARED_FABRICS: Final = ROOT.parent / "shared" / "fabrics"  # recorded fabrics; not on every machine
REQUIRE_VARIABLE: Final = "HYPERSCOUT_REQUIRE_REAL"
PROBE_TIMEOUT_S: Final = 10.0
# Where Debian puts the tools that a plain user's PATH leaves out.
SYSTEM_PATH: Final = f"{os.environ.get('PATH', os.defpath)}:/usr/local/sbin:/usr/sbin:/sbin"


def tool(name: str) -> Path | None:
    """Path of an installed program, looked up in PATH and in the system folders; None where it is missing."""
    found = shutil.which(name, path=SYSTEM_PATH)
    return Path(found) if found else None


def _debian(package: str, *programs: str) -> Callable[[], str | None]:
    """A check for programs that one Debian package brings."""

    def check() -> str | None:
        missing = [program for program in programs if tool(program) is None]
        if not missing:
            return None
        return f"{', '.join(missing)} not found: install it with `apt-get install {package}`"

    return check


def _root() -> str | None:
    return None if os.geteuid() == 0 else "not root: raw sockets and namespaces need it"


def _netns() -> str | None:
    lack = _root() or _debian("iproute2", "ip")()
    if lack:
        return lack
    unshare = tool("unshare")
    if unshare is None:
        return "unshare not found: install the Debian package util-linux"
    done = subprocess.run([unshare, "-n", "true"], capture_output=True, timeout=PROBE_TIMEOUT_S, check=False)
    if done.returncode == 0:
        return None
    return "this kernel or container allows no new network namespaces: allow them (CAP_SYS_ADMIN)"


def _kubernetes(*programs: str) -> Callable[[], str | None]:
    """A check for programs of a Kubernetes that is found or built by tests/kube/assets.py."""

    def check() -> str | None:
        missing = [program for program in programs if assets.find(program) is None]
        if not missing:
            return None
        return f"{', '.join(missing)} not found: run `make kube-assets`, or set KUBEBUILDER_ASSETS"

    return check


def _images() -> str | None:
    lack = _debian("buildah debootstrap", "buildah", "debootstrap")() or _root()
    if lack is None:
        return None
    for engine in filter(None, map(tool, ("docker", "podman"))):
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            ask = [engine, "info"]
            if not subprocess.run(ask, capture_output=True, timeout=PROBE_TIMEOUT_S, check=False).returncode:
                return _root()
    return f"{lack}; and neither docker nor podman answers"


def _debian_root() -> str | None:
    release = Path("/etc/os-release")
    if not release.is_file() or "\nID=debian\n" not in f"\n{release.read_text()}":
        return "this is no Debian: the installation is tested in a root of Debian's own release"
    return _root() or _debian("debootstrap", "debootstrap")()


def postgresql_program(name: str) -> Path | None:
    """Path of a program of PostgreSQL's server. Debian keeps them outside of the PATH, by version."""
    if (found := tool(name)) is not None:
        return found
    versions = Path("/usr/lib/postgresql").glob(f"*/bin/{name}")
    return max(versions, key=lambda path: int(path.parents[1].name), default=None)


def _postgresql() -> str | None:
    missing = [name for name in ("initdb", "postgres") if postgresql_program(name) is None]
    return (
        f"{', '.join(missing)} not found: install it with `apt-get install postgresql`" if missing else None
    )


def _apart(name: str, what: str) -> Callable[[], str | None]:
    """A check for a Python environment beside ours."""

    def check() -> str | None:
        return None if environment(name) else f"{what} not found in its own environment: run `make setup`"

    return check


def _lab() -> str | None:
    from lab import needs

    return needs.lack()


def _map() -> str | None:
    """Built assets, of the sources that are there."""
    build = runpy.run_path(str(ROOT / "collector/map/build.py"))
    return None if build["is_built"]() else "the map is not built, or of other sources: run `make map`"


def _git_checkout() -> str | None:
    if tool("git") is None:
        return "git not found: install it with `apt-get install git`"
    return None if (ROOT / ".git").exists() else "not a git checkout: clone the repository"


def _recordings() -> str | None:
    if SHARED_FABRICS.is_dir():
        return None
    return "../shared/fabrics is not beside this checkout: generated fabrics of the same shapes are tested"


def _volcano() -> str | None:
    if os.environ.get("VOLCANO_BIN"):
        return None
    return "its scheduler was not tested: set VOLCANO_BIN to a folder with it (docs/volcano.md)"


def _no_rdma_device() -> str | None:
    found = list(Path("/sys/class/infiniband").glob("*"))
    return f"this host has one: {found[0].name}" if found else None


# Each check returns None when the component is there, else what is missing and what to do about it.
COMPONENTS: Final[dict[str, Callable[[], str | None]]] = {
    "ibsim": _debian("ibsim-utils", "ibsim", "ibsim-run"),
    "ibnetdiscover": _debian("infiniband-diags", "ibnetdiscover"),
    "opensm": _debian("opensm", "opensm"),
    "perftest": _debian("perftest", "ib_send_lat", "ib_send_bw"),
    "lldpd": _debian("lldpd", "lldpd", "lldpcli", "lldpctl"),
    "snmpd": _debian("snmpd", "snmpd"),
    "snmpwalk": _debian("snmp", "snmpwalk", "snmpbulkwalk"),
    "snmpsim": _apart("snmpsim", "snmpsim"),
    "schemathesis": _apart("schemathesis", "schemathesis"),
    "mosquitto": _debian("mosquitto", "mosquitto", "mosquitto_passwd"),
    "mosquitto_pub": _debian("mosquitto-clients", "mosquitto_pub"),
    "postgresql": _postgresql,
    "slurm": _debian("munge slurmctld slurmd", "munged", "slurmctld", "slurmd", "scontrol", "sbatch"),
    "prometheus": _debian("prometheus", "prometheus", "promtool"),
    "kubernetes": _kubernetes("etcd", "kube-apiserver", "kubectl"),
    "kube-controller-manager": _kubernetes("kube-controller-manager"),
    "kube-scheduler": _kubernetes("kube-scheduler"),
    "kwok": _kubernetes("kwok"),
    "helm": _kubernetes("helm"),
    "lab": _lab,
    "images": _images,
    "debian-root": _debian_root,
    "systemd": _debian("systemd", "systemd-analyze"),
    "gcc": _debian("build-essential", "gcc"),
    "ortools": _apart("oracle", "OR-tools"),
    "groff": _debian("groff-base", "groff"),
    "openssl": _debian("openssl", "openssl"),
    "curl": _debian("curl", "curl"),
    "chromium": _debian("chromium", "chromium"),
    "map": _map,
    "root": _root,
    "netns": _netns,
    "linux": lambda: None if sys.platform == "linux" else f"this is {sys.platform}: containers run Linux",
    "git-checkout": _git_checkout,
    "recordings": _recordings,
    "volcano": _volcano,
    "no-rdma-device": _no_rdma_device,
}
# Their lack is a skip everywhere. CONTRIBUTING.md has the same list.
OPTIONAL: Final = frozenset({"recordings", "volcano", "no-rdma-device"})


@functools.cache
def lack_of(component: str) -> str | None:
    """None when the component can be used here, else the reason why not.

    Raises:
        KeyError: the component is not one of COMPONENTS.
    """
    return COMPONENTS[component]()


def require_real(*components: str) -> None:
    """Skip the running test (or module) unless every component is there; fail it where they are required."""
    lacks = {component: lack for component in components if (lack := lack_of(component))}
    if lacks:
        go_without(lacks)


def go_without(lacks: Mapping[str, str]) -> NoReturn:
    """End the running test (or module) for want of components, given with what is missing.

    A component that is not in OPTIONAL is a failure where real components are required.
    """
    reason = "needs a real component: " + "; ".join(f"{name}: {lack}" for name, lack in lacks.items())
    if os.environ.get(REQUIRE_VARIABLE) == "1" and not lacks.keys() <= OPTIONAL:
        pytest.fail(f"{reason} ({REQUIRE_VARIABLE}=1 turns this skip into a failure)", pytrace=False)
    pytest.skip(reason, allow_module_level=True)


def shared_recording(name: str) -> Path:
    """Path of a recorded fabric beside the checkout; skips the test where the recordings are not at hand."""
    require_real("recordings")
    path = SHARED_FABRICS / name
    assert path.exists(), f"{path} is missing beside other recordings"
    return path
