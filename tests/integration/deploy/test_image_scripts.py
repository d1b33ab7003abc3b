"""What builds the images: when it builds, what it shows the builder of this machine, and what it says."""

import importlib
import io
import json
import os
import sys
import tarfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.real import ROOT

sys.path.append(str(ROOT / "deploy"))
builders: Any = importlib.import_module("image_builders")
machine: Any = importlib.import_module("image_machine")
script: Any = importlib.import_module("images")
steps: Any = importlib.import_module("image_steps")


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!{sys.executable}\n{text}")
    path.chmod(0o755)
    return path


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine that tells pip and apt nothing; returns the one folder of programs that it has."""
    for name in os.environ:
        if name.startswith("PIP_") or name in ("REQUESTS_CA_BUNDLE", "SSL_CERT_FILE"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(builders, "_PATH", str(tmp_path / "bin"))
    return tmp_path / "bin"


class TestSteps:
    def test_each_step_is_said(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setattr(steps, "_STEP_S", 0.0)
        lines = (
            "[1/2] STEP 1/2: FROM base AS build",
            "STEP 2/2: RUN --mount=type=secret,id=a,target=/b    make",
        )
        said: list[str] = []
        command = [sys.executable, "-c", f"print({lines[0]!r}); print('-> 17'); print({lines[1]!r})"]
        steps.follow(command, "agent", tmp_path / "log", said.append)
        assert said == ["agent: FROM base AS build: 0 s", "agent: RUN make: 0 s"]
        assert "-> 17" in (tmp_path / "log").read_text()

    def test_docker_says_steps_otherwise(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setattr(steps, "_STEP_S", 0.0)
        said: list[str] = []
        command = [sys.executable, "-c", "print('#7 [build 2/5] RUN make'); print('#7 0.1 some output')"]
        steps.follow(command, "agent", tmp_path / "log", said.append)
        assert said == ["agent: RUN make: 0 s"]

    def test_what_failed_is_told_with_its_last_words(self, tmp_path: Path) -> None:
        (tmp_path / "log").write_text("of the step before\n")
        command = [sys.executable, "-c", "print('no space left'); raise SystemExit(7)"]
        with pytest.raises(steps.BuildError, match=r"(?s)agent failed \(7\).*no space left") as caught:
            steps.follow(command, "agent", tmp_path / "log", print)
        assert "of the step before" not in str(caught.value)
        with pytest.raises(steps.BuildError, match="no-such-program"):
            steps.follow(["/no-such-program"], "agent", tmp_path / "log", print)

    def test_what_hangs_is_ended(self, tmp_path: Path) -> None:
        command = [sys.executable, "-c", "import signal; signal.pause()"]
        with pytest.raises(steps.BuildError, match="not done after 0 s"):
            steps.follow(command, "base", tmp_path / "log", print, timeout_s=0.0)


class TestMachine:
    def test_packages_come_from_where_this_machine_has_them(self, quiet: Path) -> None:
        table = (
            "Debian|bookworm-updates|main|http://mirror/debian/|stable-updates",
            "Other|bookworm|main|http://other/|bookworm",
            "Debian|bookworm|contrib|http://mirror/contrib/|bookworm",
            "Debian|bookworm|main|http://mirror/debian/|stable",
            "Debian|trixie|main|http://mirror/debian/|trixie",
            "Debian|bookworm-security|main|http://mirror/security/|bookworm-security",
        )
        program(quiet / "apt-get", f"print({chr(10).join(table)!r})")
        assert machine.sources("bookworm") == [
            ("http://mirror/debian/", "bookworm"),
            ("http://mirror/debian/", "bookworm-updates"),
            ("http://mirror/security/", "bookworm-security"),
        ]

    def test_a_machine_without_apt_has_none(self, quiet: Path) -> None:
        assert machine.sources("bookworm") == []

    def test_one_that_is_told_nothing_shows_nothing(self, quiet: Path, tmp_path: Path) -> None:
        with machine.secrets(tmp_path) as flags:
            assert flags == []

    def test_index_proxy_and_ca_are_shown_and_gone_again(
        self, quiet: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        bundle = tmp_path / "bundle.pem"
        bundle.write_text("a certificate")
        monkeypatch.setenv("PIP_INDEX_URL", "https://index.test/simple")
        monkeypatch.setenv("PIP_DEFAULT_TIMEOUT", "180")
        monkeypatch.setenv("PIP_CERT", str(bundle))
        monkeypatch.setenv("PIP_FIND_LINKS", "/of/this/machine")
        program(quiet / "apt-config", """print('Acquire::http::Proxy "http://proxy.test/";\\nDir "/";')""")
        with machine.secrets(tmp_path) as flags:
            shown = dict(word.removeprefix("id=").split(",src=") for word in flags[1::2])
            text = {name: Path(path).read_text() for name, path in shown.items()}
        assert set(flags[::2]) == {"--secret"}
        assert text["ca"] == "a certificate"
        assert text["apt"] == 'Acquire::http::Proxy "http://proxy.test/";\n'
        assert text["pip"].startswith("[global]\n")
        assert set(text["pip"].splitlines()[1:]) == {
            f"{'index'}-url = https://index.test/simple",
            "timeout = 180",
            "cert = /run/ca.pem",
        }
        assert not Path(shown["pip"]).exists()


class TestBuilders:
    def test_with_none_it_says_what_to_install(self, quiet: Path, tmp_path: Path) -> None:
        with pytest.raises(builders.NoBuilderError, match="apt-get install buildah debootstrap"):
            builders.find(tmp_path, print)

    def test_an_engine_that_does_not_answer_is_none(self, quiet: Path, tmp_path: Path) -> None:
        program(quiet / "docker", "raise SystemExit(1)")
        with pytest.raises(builders.NoBuilderError):
            builders.find(tmp_path, print)

    @pytest.mark.parametrize("name", ["docker", "podman"])
    def test_an_engine_builds_and_saves(self, quiet: Path, tmp_path: Path, name: str) -> None:
        note = tmp_path / "asked"
        program(quiet / name, f"import sys; print(sys.argv[1:], file=open({str(note)!r}, 'a'))")
        engine = builders.find(tmp_path, print)
        assert engine.name == name
        engine.build(tmp_path / "context", "deploy/docker/agent.Dockerfile", "hub/agent:1", {"VERSION": "1"})
        engine.save("deploy/docker/agent.Dockerfile", "hub/agent:1", tmp_path / "agent.tar")
        _, build, save = map(json.loads, note.read_text().replace("'", '"').splitlines())
        folder = str(tmp_path / "context")
        words = ["build", "--tag", "hub/agent:1", "--build-arg", "VERSION=1"]
        assert build == [*words, "--file", f"{folder}/deploy/docker/agent.Dockerfile", folder]
        assert save == ["save", "--output", str(tmp_path / "agent.tar"), "hub/agent:1"]


class Fake:
    """A builder that writes down what it was asked, and archives of one small layer each."""

    name = "fake"

    def __init__(self, fails: str = "") -> None:
        self.built: list[str] = []
        self.fails = fails
        self.hold = threading.Event()
        self.hold.set()

    def prepare(self, base: str, context: Path, recipe: str) -> None:
        assert base.startswith("debian:")
        assert (context / recipe).is_file()

    def build(self, context: Path, recipe: str, image: str, arguments: dict[str, str]) -> None:
        self.hold.wait(30)
        self.built.append(image)
        if self.fails and self.fails in image:
            raise steps.BuildError("no")

    def save(self, recipe: str, image: str, archive: Path) -> None:
        with tarfile.open(archive, "w") as tar:
            info = tarfile.TarInfo("1.tar")
            info.size = 100_000
            with Path("/dev/zero").open("rb") as zeros:
                tar.addfile(info, zeros)
            manifest = json.dumps([{"Config": "c.json", "RepoTags": [image], "Layers": ["1.tar"]}]).encode()
            info = tarfile.TarInfo("manifest.json")
            info.size = len(manifest)
            tar.addfile(info, io.BytesIO(manifest))


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout of a few files, and a cache of its own."""
    root = tmp_path / "checkout"
    for name in ("pyproject.toml", ".dockerignore", "deploy/docker/agent.Dockerfile"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes((ROOT / name).read_bytes())
    (root / "deploy/docker/collector.Dockerfile").write_text("FROM scratch\n")
    (root / "agent/hyperscout_agent").mkdir(parents=True)
    (root / "agent/hyperscout_agent/main.py").write_text("1\n")
    monkeypatch.setattr(script, "ROOT", root)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return root


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Callable[[Fake], Fake]:
    def given(fake: Fake) -> Fake:
        monkeypatch.setattr(script, "find", lambda cache, say: fake)
        return fake

    return given


def digest(folder: Path) -> str:
    return str(script.snapshot(folder))


class TestImages:
    def test_they_are_built_once(self, checkout: Path, use: Callable[[Fake], Fake]) -> None:
        fake = use(Fake())
        first, second = script.images(print), script.images(print)
        assert sorted(fake.built) == [f"docker.io/hyperscout/{n}:{script.version()}" for n in script.NAMES]
        assert (first.built, second.built) == (True, False)
        assert first.agent == second.agent
        assert first.agent.is_file()
        assert first.collector.is_file()
        contents = json.loads(first.agent.with_suffix(".cdx.json").read_text())
        assert contents["metadata"]["component"]["name"] == "docker.io/hyperscout/agent"
        assert {p.name for p in script.cache().iterdir()} == {"lock", first.agent.parent.name}

    @pytest.mark.parametrize(
        ("name", "changes"),
        [
            ("agent/hyperscout_agent/main.py", True),
            ("agent/hyperscout_agent/probes/new.py", True),
            ("deploy/docker/collector.Dockerfile", True),
            ("agent/hyperscout_agent/__pycache__/main.pyc", False),
            ("docs/page.md", False),
            ("tests/test.py", False),
        ],
    )
    def test_what_goes_in_decides(self, checkout: Path, tmp_path: Path, name: str, changes: bool) -> None:
        before = digest(tmp_path / "before")
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        (checkout / name).write_text("2\n")
        assert (digest(tmp_path / "after") != before) == changes
        assert (tmp_path / "after" / name).exists() == changes

    def test_when_a_file_was_written_does_not(self, checkout: Path, tmp_path: Path) -> None:
        before = digest(tmp_path / "before")
        os.utime(checkout / "pyproject.toml", (1, 1))
        assert digest(tmp_path / "after") == before
        assert (tmp_path / "after/pyproject.toml").stat().st_mtime == 0

    def test_what_a_file_is_called_does(self, checkout: Path, tmp_path: Path) -> None:
        before = digest(tmp_path / "before")
        package = checkout / "agent/hyperscout_agent"
        (package / "main.py").rename(package / "other.py")
        assert digest(tmp_path / "after") != before

    def test_a_build_that_fails_leaves_nothing_that_looks_whole(
        self, checkout: Path, use: Callable[[Fake], Fake]
    ) -> None:
        use(Fake(fails="collector"))
        with pytest.raises(steps.BuildError):
            script.images(print)
        assert {p.name for p in script.cache().iterdir()} == {"lock"}
        use(Fake())
        assert script.images(print).built

    def test_what_a_killed_build_left_goes(self, checkout: Path, use: Callable[[Fake], Fake]) -> None:
        for name in ("new-1", "run-1", "context-1", "context-2"):
            (script.cache() / name).mkdir(parents=True)
        os.utime(script.cache() / "context-1", (0, 0))
        use(Fake())
        script.images(print)
        assert [p.name for p in script.cache().glob("*-?")] == ["context-2"]  # whose build may wait

    def test_two_at_once_build_once(self, checkout: Path, use: Callable[[Fake], Fake]) -> None:
        fake, waits, found = use(Fake()), threading.Event(), []
        fake.hold.clear()
        threads = [
            threading.Thread(
                target=lambda: found.append(script.images(lambda text: "waiting" in text and waits.set()))
            )
            for _ in range(2)
        ]
        for thread in threads:
            thread.start()
        assert waits.wait(30)
        fake.hold.set()
        for thread in threads:
            thread.join(30)
        assert len(fake.built) == 2
        assert len({f.agent for f in found}) == 1
        assert len(found) == 2

    def test_old_archives_go(self, checkout: Path, use: Callable[[Fake], Fake]) -> None:
        for age in range(9):
            folder = script.cache() / f"{age:016x}"
            folder.mkdir(parents=True)
            os.utime(folder, (1000 - age, 1000 - age))
        use(Fake())
        newest = script.images(print).agent.parent
        kept = {p.name for p in script.cache().iterdir()} - {"lock", newest.name}
        assert kept == {f"{age:016x}" for age in range(3)}

    def test_sizes_are_of_what_is_pulled(self, checkout: Path, use: Callable[[Fake], Fake]) -> None:
        use(Fake())
        plain, packed = script.sizes(script.images(print).agent)
        assert plain == 100_000
        assert 0 < packed < 1000

    def test_without_a_builder_it_says_why(
        self, checkout: Path, quiet: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert script.main([]) == 1
        assert "no builder of images found" in capsys.readouterr().err
        assert script.main(["--no-such"]) == 2
