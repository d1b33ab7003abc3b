"""Where the programs of a Kubernetes come from; with shell scripts for programs and for Go."""

import fcntl
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from kube import assets


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing of this machine's: an empty cache, PATH and environment."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    assets.find.cache_clear()
    yield
    assets.find.cache_clear()


def program(folder: Path, name: str, says: str = "", script: str = "") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script or f'echo {says!r}'}\n")
    path.chmod(0o755)
    return path


def go(folder: Path, version: str = "go1.99.0", *, status: int = 0) -> Path:
    """A Go that "builds" whatever it is asked for and keeps count."""
    return program(
        folder,
        "go",
        script=f"""
if [ "$1" = env ]; then echo {version}; exit; fi
echo "$@" >> {folder}/asked
for last in "$@"; do :; done
while [ "$1" != -o ]; do shift; done
out=$2; shift 2
echo some/package >&2
for package in "$@"; do
  case $out in */) file=$out/$(basename $package) ;; *) file=$out ;; esac
  echo '#!/bin/sh' > $file; chmod +x $file
done
exit {status}""",
    )


VERSIONS = [
    ("kubectl", "Client Version: v1.36.3\nKustomize Version: v5.7.1", True),
    ("kubectl", "Client Version: v1.35.9", False),
    ("kube-apiserver", "Kubernetes v1.36.0-alpha.1", True),
    ("kube-apiserver", "Kubernetes v2.0.0", True),
    ("kube-apiserver", "Kubernetes v1.4.12", False),
    ("etcd", "etcd Version: 3.6.1\nGit SHA: 1", True),
    ("etcd", "etcd Version: 3.4.23", False),
    ("helm", "v3.19.0+g1234", True),
    ("kwok", "kwok version v0.6.0", False),
    ("kwok", "no version at all", False),
]


@pytest.mark.parametrize(("name", "says", "good"), VERSIONS)
@pytest.mark.parametrize("where", ["KUBEBUILDER_ASSETS", "PATH"])
def test_a_program_is_found_if_it_is_new_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, says: str, good: bool, where: str
) -> None:
    path = program(tmp_path / "bin", name, says)
    if where == "KUBEBUILDER_ASSETS":
        monkeypatch.setenv("KUBEBUILDER_ASSETS", str(path.parent))
        monkeypatch.setenv("PATH", "/usr/bin:/bin")
    assert assets.find(name) == (path if good else None)


def test_which_place_is_asked_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = assets.MODULES[0]
    said = "etcd Version: 3.6.1"
    built = program(module.cache, "etcd", said)
    assert assets.find("etcd") == built
    on_path = program(tmp_path / "bin", "etcd", said)
    assets.find.cache_clear()
    assert assets.find("etcd") == on_path
    named = program(tmp_path / "named", "etcd", said)
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(named.parent))
    assets.find.cache_clear()
    assert assets.find("etcd") == named
    program(tmp_path / "named", "etcd", "etcd Version: 3.4.0")
    assets.find.cache_clear()
    assert assets.find("etcd") == on_path


def test_another_pin_is_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assets, "HERE", tmp_path)
    (tmp_path / "m").mkdir()
    found = set()
    for mod, checksums, ldflags in (("a", "b", ""), ("a2", "b", ""), ("a", "b2", ""), ("a", "b", "-X v=1")):
        (tmp_path / "m" / "go.mod").write_text(mod)
        (tmp_path / "m" / "go.sum").write_text(checksums)
        cache = assets.Module("m", {}, ldflags).cache
        assert cache == assets.Module("m", {}, ldflags).cache
        assert cache.parent == tmp_path / "cache" / "hyperscout" / "kube"
        found.add(cache)
    assert len(found) == 4


@pytest.mark.parametrize(
    ("version", "said"), [(None, "no Go toolchain"), ("go1.3", "is too old"), ("nonsense", "is too old")]
)
def test_without_a_good_go_it_says_what_to_install(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    version: str | None,
    said: str,
) -> None:
    if version:
        go(tmp_path / "bin", version)
    else:
        monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert assets.main([]) == 1
    complaint = capsys.readouterr().err
    assert said in complaint
    assert "install Go 1." in complaint
    assert "KUBEBUILDER_ASSETS" in complaint
    assert "kube-apiserver" in complaint
    assert not list((tmp_path / "bin").glob("asked"))


def test_it_builds_what_is_missing_and_that_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    go(tmp_path / "bin")
    had = program(tmp_path / "bin", "helm", "v3.19.0")
    assert assets.main(["--where"]) == 1
    left = assets.MODULES[1].cache / "tmpkilled"
    left.mkdir(parents=True)
    assert assets.main([]) == 0
    asked = (tmp_path / "bin" / "asked").read_text().splitlines()
    assert len(asked) == 3
    assert not any("helm" in line for line in asked)
    assert all("-trimpath" in line for line in asked)
    assert not left.exists()
    capsys.readouterr()
    assert assets.main(["--where"]) == 0
    where = dict(line.split("\t") for line in capsys.readouterr().out.splitlines())
    assert where.pop("helm") == str(had)
    assert set(where) == set(assets.PROGRAMS) - {"helm"}
    assert all(Path(path).is_file() and str(tmp_path / "cache") in path for path in where.values())
    assert assets.main([]) == 0
    assert len((tmp_path / "bin" / "asked").read_text().splitlines()) == 3


def test_what_only_real_nodes_need_is_built_when_it_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    go(tmp_path / "bin")
    assert assets.main([]) == 0
    assert assets.missing() == ()
    assert set(assets.missing(assets.LAB_PROGRAMS)) == set(assets.LAB_PROGRAMS)
    assert not set(assets.LAB_PROGRAMS) & set(assets.PROGRAMS)
    assert assets.main(["--where", "--lab"]) == 1
    assert assets.main(["--lab"]) == 0
    asked = (tmp_path / "bin" / "asked").read_text()
    assert asked.count("cmd/kube-apiserver") == 1
    assert asked.count("cmd/kubelet") == 1
    capsys.readouterr()
    assert assets.main(["--where", "--lab"]) == 0
    where = dict(line.split("\t") for line in capsys.readouterr().out.splitlines())
    assert set(where) == {*assets.PROGRAMS, *assets.LAB_PROGRAMS}
    # A control plane of the caller's own has no nodes' programs, and need have none.
    module = next(module for module in assets.MODULES if "kubelet" in module.lab)
    assert Path(where["kubelet"]).parent == module.cache
    # Our own program is none that happens to have its name.
    program(tmp_path / "bin", "pause", "pause v9.9.9")
    assets.find.cache_clear()
    assert str(assets.find("pause")) == where["pause"]


def test_a_build_that_fails_leaves_nothing_that_looks_built(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    go(tmp_path / "bin", status=7)
    assert assets.main([]) == 1
    complaint = capsys.readouterr().err
    assert "go build failed (7)" in complaint
    assert "some/package" in complaint
    assert set(assets.missing()) == set(assets.PROGRAMS)


def test_two_builds_wait_for_each_other(tmp_path: Path) -> None:
    go(tmp_path / "bin")
    root = tmp_path / "cache" / "hyperscout" / "kube"
    root.mkdir(parents=True)
    with (root / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        command = [sys.executable, assets.__file__]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as other:
            watchdog = threading.Timer(30, other.kill)
            watchdog.start()
            assert other.stderr is not None
            assert "another build is under way" in other.stderr.readline()
            for module in assets.MODULES:  # as if we had built them
                for name in module.programs:
                    program(module.cache, name)
            fcntl.flock(lock, fcntl.LOCK_UN)
            assert other.wait(30) == 0
            watchdog.cancel()
    assert not (tmp_path / "bin" / "asked").exists()


def test_other_arguments_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert assets.main(["--help"]) == 2
    assert "--where" in capsys.readouterr().err
