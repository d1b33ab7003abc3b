"""The programs of a real Kubernetes: found on this machine, or built from their Go modules into a cache.

    python tests/kube/assets.py          build what is missing, with progress
    python tests/kube/assets.py --where  print where each one is; exit status 1 when one is missing
    ... --lab                            likewise, with what real nodes need besides (tests/lab)

A program counts as found when it is new enough, in this order: `KUBEBUILDER_ASSETS`, the PATH, the cache
(`$XDG_CACHE_HOME/hyperscout/kube`). What is built is pinned, with hashes, by the go.mod and go.sum files
beside this one; they use Go's own tool dependencies (go help mod, "tool").
"""

import contextlib
import fcntl
import functools
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).parent
# The versions in the go.mod files; these programs do not know them by themselves.
KUBERNETES, CONTAINERD = "v1.36.3", "v2.2.9"
_SAY_EVERY_S = 10.0
_VERSION = re.compile(r"v?(\d+)\.(\d+)\.(\d+)")


@dataclass(frozen=True, slots=True)
class Module:
    """A folder with a go.mod. `programs`: name -> package; `lab`: likewise, what only real nodes need."""

    folder: str
    programs: dict[str, str]
    ldflags: str = ""
    lab: Mapping[str, str] = field(default_factory=dict)

    def package(self, program: str) -> str | None:
        return self.programs.get(program) or self.lab.get(program)

    @property
    def cache(self) -> Path:
        """Where its programs are built to: another pin is another folder."""
        pin = hashlib.sha256()
        for pattern in ("go.*", "*.go"):  # go.mod, go.sum, and our own source
            for path in sorted((HERE / self.folder).glob(pattern)):
                pin.update(path.read_bytes())
        pin.update(self.ldflags.encode())
        return cache_root() / f"{self.folder}-{pin.hexdigest()[:16]}"


def cache_root() -> Path:
    """Where all that is built or unpacked lies."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "hyperscout" / "kube"


_STAMP = "-X k8s.io/component-base/version.git"
_K8S = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
_K8S_LAB = ("kubelet", "kube-proxy")
_CONTAINERD = "github.com/containerd/containerd/v2"
MODULES = (
    Module("etcd", {"etcd": "go.etcd.io/etcd/server/v3"}),
    Module(
        "kubernetes",
        {name: f"k8s.io/kubernetes/cmd/{name}" for name in _K8S},
        f"{_STAMP}Version={KUBERNETES} {_STAMP}Major=1 {_STAMP}Minor={KUBERNETES.split('.')[1]}",
        # In the module of the rest, for nine tenths of it is compiled for them anyway.
        {name: f"k8s.io/kubernetes/cmd/{name}" for name in _K8S_LAB},
    ),
    Module("kwok", {"kwok": "sigs.k8s.io/kwok/cmd/kwok"}),
    Module("helm", {"helm": "helm.sh/helm/v3/cmd/helm"}),
    Module(
        "containerd",
        {},
        f"-X {_CONTAINERD}/version.Version={CONTAINERD}",
        {name: f"{_CONTAINERD}/cmd/{name}" for name in ("containerd", "containerd-shim-runc-v2", "ctr")},
    ),
    Module("coredns", {}, lab={"coredns": "github.com/coredns/coredns"}),
    Module("pause", {}, lab={"pause": "."}),
)
PROGRAMS = tuple(name for module in MODULES for name in module.programs)
LAB_PROGRAMS = tuple(name for module in MODULES for name in module.lab)
# The oldest that will do: gangs with topology came with Kubernetes 1.36, RequestWatchProgress with etcd 3.5.
# containerd's settings have their present form since 2.0. What has no entry is our own, and only ever built.
_OLDEST: dict[str, tuple[int, int]] = {
    **dict.fromkeys((*_K8S, *_K8S_LAB), (1, 36)),
    "etcd": (3, 5),
    "kwok": (0, 7),
    "helm": (3, 14),
    "coredns": (1, 10),
    **dict.fromkeys(("containerd", "containerd-shim-runc-v2", "ctr"), (2, 0)),
}
_ASK = {
    "kubectl": ("version", "--client"),
    "helm": ("version", "--short"),
    "coredns": ("-version",),
    "containerd-shim-runc-v2": ("-v",),
}
_ENVIRONMENT = {"CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false", "GOTOOLCHAIN": "local", "GOWORK": "off"}


@functools.cache
def find(program: str) -> Path | None:
    """The program, if it is on this machine and new enough."""
    module = next(m for m in MODULES if m.package(program))
    places = [Path(folder) for folder in (os.environ.get("KUBEBUILDER_ASSETS"),) if folder]
    places += [Path(path).parent for path in (shutil.which(program),) if path]
    for place in places if program in _OLDEST else ():
        if (place / program).is_file() and (_version(place / program) or (0, 0)) >= _OLDEST[program]:
            return place / program
    built = module.cache / program
    return built if built.is_file() else None


def missing(programs: Sequence[str] = PROGRAMS) -> tuple[str, ...]:
    """Those of the programs that are neither found nor built."""
    return tuple(program for program in programs if find(program) is None)


def _version(program: Path) -> tuple[int, int] | None:
    try:
        ask = [str(program), *_ASK.get(program.name, ("--version",))]
        said = subprocess.run(ask, capture_output=True, text=True, timeout=20, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _VERSION.search(said)
    return (int(found[1]), int(found[2])) if found else None


def build(programs: Sequence[str] = PROGRAMS) -> int:
    """Build what is missing of them. Returns the exit status."""
    if not missing(programs):
        return 0
    go = shutil.which("go")
    needed = max(_go_of(module) for module in MODULES if any(map(module.package, missing(programs))))
    if go is None or _go(go) < needed:
        why = "no Go toolchain" if go is None else f"{go} is too old"
        _say(f"{why}: install Go {_dotted(needed)} or newer,")
        _say(f"or set KUBEBUILDER_ASSETS to a folder with {', '.join(missing(programs))}.")
        _say("Tests that need them are skipped until then.")
        return 1
    with alone():
        # The process that held the lock before may have built it all.
        find.cache_clear()
        lack = missing(programs)
        wanted = [(m, tuple(p for p in lack if m.package(p))) for m in MODULES]
        wanted = [(module, names) for module, names in wanted if names]
        if wanted:
            _say("building a Kubernetes from its Go modules: some ten minutes of two cores, once")
        for module, names in wanted:
            began = time.monotonic()
            if not _build(go, module, names):
                return 1
            _say(f"{', '.join(names)}: {time.monotonic() - began:.0f} s")
    find.cache_clear()
    return 0


@contextmanager
def alone() -> Iterator[None]:
    """One build at a time on this cache; the lock ends with its process."""
    cache_root().mkdir(parents=True, exist_ok=True)
    with (cache_root() / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say("another build is under way: waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _go_of(module: Module) -> tuple[int, ...]:
    """The oldest Go that a module says it can be built with."""
    said = re.search(r"^go ([\d.]+)", (HERE / module.folder / "go.mod").read_text(), re.MULTILINE)
    assert said is not None
    return _numbers(said[1])


def _go(go: str) -> tuple[int, ...]:
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        ask = [go, "env", "GOVERSION"]
        environment = os.environ | _ENVIRONMENT
        done = subprocess.run(ask, capture_output=True, text=True, timeout=20, check=False, env=environment)
        if found := re.search(r"go([\d.]+)", done.stdout):
            return _numbers(found[1])
    return (0,)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.strip(".").split("."))


def _dotted(version: Iterable[int]) -> str:
    return ".".join(map(str, version))


def _build(go: str, module: Module, programs: Sequence[str]) -> bool:
    module.cache.mkdir(parents=True, exist_ok=True)
    log = module.cache / "build.log"
    for left in module.cache.glob("tmp*"):  # by a build that was killed
        shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=module.cache) as scratch:
        targets = [module.package(p) or "." for p in programs]
        output = str(Path(scratch) / programs[0]) if len(programs) == 1 else f"{scratch}/"
        command = [go, "build", "-v", "-trimpath", "-ldflags", f"-s -w {module.ldflags}".strip()]
        command += ["-o", output, *targets]
        environment = os.environ | _ENVIRONMENT
        with (
            subprocess.Popen(
                command,
                cwd=HERE / module.folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
            ) as process,
            log.open("w") as lines,
        ):
            assert process.stderr is not None
            for count, line, late in _paced(process.stderr):
                lines.write(line)
                if late:
                    _say(f"{module.folder}: {count} packages compiled")
        if process.returncode:
            tail = log.read_text().splitlines()[-15:]
            _say(f"go build failed ({process.returncode}); the end of {log}:")
            print("\n".join(tail), file=sys.stderr)
            return False
        for program in programs:
            (Path(scratch) / program).replace(module.cache / program)
    return True


def _paced(lines: Iterator[str]) -> Iterator[tuple[int, str, bool]]:
    """(how many, line, whether it is time to say something)."""
    said = time.monotonic()
    for count, line in enumerate(lines, 1):
        late = time.monotonic() - said >= _SAY_EVERY_S
        if late:
            said = time.monotonic()
        yield count, line, late


def _say(text: str) -> None:
    print(f"kube-assets: {text}", file=sys.stderr, flush=True)


def main(arguments: Sequence[str]) -> int:
    """What the make target runs."""
    if not set(arguments) <= {"--where", "--lab"}:
        print(__doc__, file=sys.stderr)
        return 2
    programs = PROGRAMS + (LAB_PROGRAMS if "--lab" in arguments else ())
    if "--where" not in arguments:
        return build(programs)
    for program in programs:
        print(f"{program}\t{find(program) or '-'}")
    return 1 if missing(programs) else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
