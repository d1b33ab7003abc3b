"""The images' recipes, as far as they can be judged without a container engine."""

import fnmatch
import re
from pathlib import Path

import pytest
from support.real import ROOT

DOCKER = ROOT / "deploy" / "docker"
FILES = sorted(DOCKER.glob("*.Dockerfile"))


def instructions(path: Path) -> list[tuple[str, str]]:
    """(instruction, arguments), with continued lines put together."""
    text = re.sub(r"^\s*#.*\n", "", path.read_text(), flags=re.MULTILINE)
    text = re.sub(r"\\\n\s*", " ", text)
    lines = [line.split(maxsplit=1) for line in text.splitlines() if line.strip()]
    return [(word.upper(), rest) for word, rest in lines]


def stages(path: Path) -> list[list[tuple[str, str]]]:
    found: list[list[tuple[str, str]]] = []
    for word, rest in instructions(path):
        if word == "FROM":
            found.append([])
        if found:
            found[-1].append((word, rest))
    return found


def test_there_is_one_for_each_image() -> None:
    assert [path.name for path in FILES] == ["agent.Dockerfile", "collector.Dockerfile"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
class TestRecipe:
    def test_the_base_is_pinned(self, path: Path) -> None:
        [base] = [rest for word, rest in instructions(path) if word == "ARG" and rest.startswith("BASE=")]
        assert re.fullmatch(r"BASE=debian:\d+\.\d+-slim", base)
        first, *others, last = [rest.split()[0] for word, rest in instructions(path) if word == "FROM"]
        assert (first, set(others), last) == ("${BASE}", {"build"}, "scratch")
        assert "latest" not in path.read_text()

    def test_what_is_built_stays_behind(self, path: Path) -> None:
        *_, last = stages(path)
        assert len(stages(path)) >= 2
        assert not [rest for word, rest in last if word == "RUN"]  # there is no shell that could
        copied = [rest for word, rest in last if word == "COPY"]
        assert copied
        assert all(rest.startswith("--from=") for rest in copied)

    def test_it_runs_as_a_numeric_user(self, path: Path) -> None:
        *_, last = stages(path)
        users = [rest for word, rest in last if word == "USER"]
        assert users == ["10001:10001"]

    def test_everything_is_installed_by_hash(self, path: Path) -> None:
        image = path.stem
        text = " ".join(rest for word, rest in instructions(path) if word == "RUN")
        installs = re.findall(r"pip (?:--python \S+ )?install ([^&]*)", text)
        assert len(installs) == 3
        assert all("--require-hashes" in words or "--no-index" in words for words in installs)
        assert f"{image}.requirements.txt" in text

    def test_secrets_of_the_builder_are_shown_and_not_copied(self, path: Path) -> None:
        """Proxies, indexes and CAs of the machine that builds: mounted for one step, and not demanded."""
        runs = [rest for word, rest in instructions(path) if word == "RUN"]
        online = [rest for rest in runs if "apt-get" in rest or "--require-hashes" in rest]
        assert len(online) == 3
        for rest in online:
            names = re.findall(r"--mount=type=secret,id=(\w+),target=/\S+ ", rest)
            assert names == (["apt"] if "apt-get" in rest else ["pip", "ca"])
        assert "required" not in path.read_text()

    def test_what_seldom_changes_comes_first(self, path: Path) -> None:
        *_, last = stages(path)
        copied = [rest for word, rest in last if word == "COPY"]
        the_map = ["--from=own /map/ /"] if path.stem == "collector" else []
        assert copied == ["--from=root /bare/ /", "--from=own /own/ /", *the_map]

    def test_it_is_labelled(self, path: Path) -> None:
        labels = " ".join(rest for word, rest in stages(path)[-1] if word == "LABEL")
        for name in ("title", "description", "licenses", "version", "revision"):
            assert f"org.opencontainers.image.{name}=" in labels

    def test_what_is_copied_is_in_the_context(self, path: Path) -> None:
        context = (ROOT / ".dockerignore").read_text().splitlines()
        assert context[1] == "*"
        allowed = [line[1:] for line in context if line.startswith("!")]
        for name in ("pyproject.toml", "README.md", "LICENSE", "deploy/crd"):
            assert name in allowed
        for name in (f"deploy/docker/{path.stem}.requirements.txt", "deploy/docker/build.requirements.txt"):
            assert any(fnmatch.fnmatch(name, pattern) for pattern in allowed)
        assert all(list(ROOT.glob(pattern)) for pattern in allowed)

    def test_every_package_of_the_wheel_is_in_the_context(self, path: Path) -> None:
        text = (ROOT / "pyproject.toml").read_text().split("[tool.hatch.build.targets.wheel]")[1]
        packages = re.findall(r'^  "(.+)",$', text.split("]")[0], re.MULTILINE)
        assert packages
        assert {f"!{name}" for name in packages} <= set((ROOT / ".dockerignore").read_text().splitlines())


def test_both_are_made_of_the_same_stages() -> None:
    """Word for word, or a builder makes them twice."""
    shared = [stages(path)[:2] for path in FILES]
    assert shared[0] == shared[1]


def test_images_hold_what_they_need_and_no_more() -> None:
    def names(image: str) -> set[str]:
        text = (DOCKER / f"{image}.requirements.txt").read_text()
        return set(re.findall(r"^([a-z0-9-]+)==", text, re.MULTILINE))

    agent, collector = names("agent"), names("collector")
    assert {"grpcio", "pydantic-settings", "scapy"} <= agent
    assert not agent & {"numpy", "kubernetes", "aiohttp", "pytest", "mypy"}
    assert {"numpy", "kubernetes", "aiohttp"} <= collector
    assert not collector & {"scapy", "pytest", "mypy", "pip"}
