"""Building the map: once for each state of its sources, and said clearly where it cannot be.

npm is played by a script that notes how it was called; tests/real/test_map_built.py looks at
what the real one makes.
"""

import shutil
from pathlib import Path
from types import ModuleType

import pytest
from support.modules import module_of
from support.real import ROOT

NPM = """#!/bin/sh
echo "$@" >> "$NPM_CALLS"
case "$1" in
  ci) mkdir -p node_modules ;;
  run)
    while [ "$1" != --outDir ]; do shift; done
    mkdir -p "$2"
    cat src/main.ts > "$2/index.html" ;;
esac
exit "${NPM_STATUS:-0}"
"""


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where npm's calls are noted; nothing but it, a node 22 and a shell's tools are installed."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, text in (("npm", NPM), ("node", "#!/bin/sh\necho ${NODE_SAYS:-v22.20.0}\n")):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    for name in ("sh", "mkdir", "cat"):
        found = shutil.which(name)
        assert found
        (programs / name).symlink_to(found)
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.setenv("NPM_CALLS", str(tmp_path / "calls"))
    monkeypatch.delenv("HYPERSCOUT_REQUIRE_REAL", raising=False)
    return tmp_path / "calls"


@pytest.fixture
def build(tmp_path: Path) -> ModuleType:
    """The script, in a checkout of its own."""
    here = tmp_path / "collector" / "map"
    (here / "src").mkdir(parents=True)
    (tmp_path / "collector" / "hyperscout_collector" / "serve" / "rest").mkdir(parents=True)
    source = ROOT / "collector" / "map"
    for path in [*source.glob("*.json"), *source.glob("*.ts"), source / "build.py"]:
        shutil.copy(path, here / path.name)
    for name in (".npmrc", "index.html"):
        shutil.copy(source / name, here / name)
    (here / "src" / "main.ts").write_text("first")
    return module_of(here / "build.py", "map_build")


def noted(calls: Path) -> list[str]:
    found = calls.read_text().splitlines() if calls.exists() else []
    calls.unlink(missing_ok=True)
    return [line.split(" ", 1)[0] for line in found]


def test_it_is_built_once_for_each_state_of_the_sources(build: ModuleType, calls: Path) -> None:
    served = build.BUILT / "index.html"
    assert build.main([]) == 0
    assert (noted(calls), served.read_text(), build.is_built()) == (["ci", "run"], "first", True)
    assert build.main([]) == 0
    assert noted(calls) == []
    (build.HERE / "src" / "main.ts").write_text("second")
    assert not build.is_built()
    assert build.main([]) == 0
    assert (noted(calls), served.read_text()) == (["run"], "second")  # the same packages
    (build.HERE / "package-lock.json").write_text("{}")
    assert build.main([]) == 0
    assert noted(calls) == ["ci", "run"]
    assert [p.name for p in build.BUILT.parent.iterdir()] == ["static"]


def test_what_is_built_needs_no_node(build: ModuleType, calls: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert build.main([]) == 0
    monkeypatch.setenv("PATH", "")
    assert build.main([]) == 0


def test_what_was_built_stays_when_a_build_fails(
    build: ModuleType, calls: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert build.main([]) == 0
    (build.HERE / "src" / "main.ts").write_text("second")
    monkeypatch.setenv("NPM_STATUS", "1")
    assert build.main([]) == 1
    assert build.main(["--if-possible"]) == 1  # that is no lack
    assert (build.BUILT / "index.html").read_text() == "first"
    assert not build.is_built()
    assert [p.name for p in build.BUILT.parent.iterdir()] == ["static"]


@pytest.mark.parametrize(
    ("said", "enough"),
    [
        ("v18.20.4", False),
        ("v20.18.3", False),
        ("v20.19.0", True),
        ("v21.7.0", False),
        ("v22.11.0", False),
        ("v22.12.0", True),
        ("v24.1.0", True),
        ("no idea", False),
    ],
)
def test_versions_of_node(
    build: ModuleType, calls: Path, monkeypatch: pytest.MonkeyPatch, said: str, enough: bool
) -> None:
    monkeypatch.setenv("NODE_SAYS", said)
    assert (build.node_lack() is None) == enough


@pytest.mark.parametrize("arguments", [[], ["--test"]])
def test_a_lack_is_said_and_an_error_unless_it_is_allowed(
    build: ModuleType,
    calls: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    arguments: list[str],
) -> None:
    monkeypatch.setenv("PATH", "")
    assert build.main(arguments) == 1
    assert "node or npm not found: install Node.js 20.19" in capfd.readouterr().err
    assert build.main([*arguments, "--if-possible"]) == 0
    assert "install Node.js" in capfd.readouterr().err
    monkeypatch.setenv("HYPERSCOUT_REQUIRE_REAL", "1")
    assert build.main([*arguments, "--if-possible"]) == 1


def test_it_says_how_it_is_used(build: ModuleType, capfd: pytest.CaptureFixture[str]) -> None:
    assert build.main(["--tests"]) == 2
    assert "make map-test" in capfd.readouterr().err


def test_the_lock_does_not_say_where_packages_came_from() -> None:
    assert "resolved" not in (ROOT / "collector/map/package-lock.json").read_text()
