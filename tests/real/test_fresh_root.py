"""README on a fresh Debian: a new user installs hyperscout and runs the commands. `-s` shows the seconds."""

import json
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hyperscout_cli.main import COMMANDS
from support.debian_root import DebianRoot, debian_root
from support.modules import module_of
from support.real import ROOT, require_real

require_real("debian-root", "git-checkout")

console: Any = module_of(ROOT / "deploy" / "console.py", "deploy_console")

README = (ROOT / "README.md").read_text("utf-8")
SECTION = re.search(r"^## Install\n(.*?)^## ", README, re.MULTILINE | re.DOTALL)
INSTALL = re.findall(r"^    (.+)$", SECTION[1] if SECTION else "", re.MULTILINE)
SOURCE = "/srv/checkout"
# What needs an extra, and what each needs.
EXTRAS = {
    "agent": "[agent]",
    "collector": "[collector]",
    "demo": "[collector]",
    "loadtest": "[collector,lldp]",
    "doctor": "[agent]",
    "crd columns": "[collector]",
}


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DebianRoot]:
    """Debian with Python, and a checkout of this repository."""
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    with debian_root(tmp_path_factory.mktemp("fresh"), "python3", "python3-venv") as root:
        for name in filter(None, tracked.stdout.split("\0")):
            copy = root.folder / SOURCE[1:] / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, copy)
        yield root


@pytest.fixture(scope="module")
def said(machine: DebianRoot) -> str:
    """What the installation prints."""
    began = time.monotonic()
    text = machine.shell("\n".join([f"cd {SOURCE}", *INSTALL]))
    print(f"README's installation on a fresh Debian: {time.monotonic() - began:.0f} s")
    return text


@pytest.fixture
def user(machine: DebianRoot, said: str) -> "User":
    return User(machine)


class User:
    """A user in the checkout, in whose shell hyperscout is installed."""

    def __init__(self, machine: DebianRoot) -> None:
        self._machine = machine
        [self._activate] = [line for line in INSTALL if line.startswith(". ")]

    def __call__(self, command: str) -> "subprocess.CompletedProcess[str]":
        return self._machine.run("bash", "-c", f"{self._activate}\ncd {SOURCE}\n{command}")

    def prints(self, command: str) -> str:
        """Standard output and standard error, as on a terminal."""
        return self(f"exec 2>&1\n{command}").stdout


def test_the_installation_ends_with_the_version(said: str) -> None:
    project = (ROOT / "pyproject.toml").read_text()
    version = re.search(r'^version = "(.+)"', project, re.MULTILINE)
    assert version is not None
    assert said.splitlines()[-1] == f"hyperscout {version[1]}"


def test_runnable_commands_print_what_readme_shows(user: User) -> None:
    began = time.monotonic()
    blocks = [match["lines"] for match in console.BLOCK.finditer(README)]
    assert len(blocks) >= 2
    for block in blocks:
        assert "".join(console.transcript(block, user.prints)) == block
    print(f"README's runnable commands on a fresh Debian: {time.monotonic() - began:.0f} s")


def test_manual_pages_and_completion_scripts_are_installed(user: User) -> None:
    share = Path(user.prints('echo "$VIRTUAL_ENV/share"').strip())
    wanted = {path.relative_to(ROOT / "deploy/share") for path in (ROOT / "deploy/share").rglob("*")}
    assert len(wanted) > 40
    there = user.prints(f"cd {share} && find . -mindepth 1 -printf '%P\\n'").splitlines()
    assert wanted - set(map(Path, there)) == set()


@pytest.mark.parametrize(
    "load",
    [
        'eval "$(hyperscout completion bash)"',
        '. "$VIRTUAL_ENV/share/bash-completion/completions/hyperscout"',
    ],
)
def test_bash_completes_a_command(user: User, load: str) -> None:
    complete = """
function=$(complete -p hyperscout | grep -oP -- '(?<=-F )\\S+')
COMP_WORDS=(hyperscout inf) COMP_CWORD=1
"$function" hyperscout inf hyperscout
echo "${COMPREPLY[*]}"
"""
    assert user.prints(load + complete) == "infer\n"


@pytest.mark.parametrize("command", EXTRAS)
def test_without_its_extra_a_command_prints_one_line(user: User, command: str) -> None:
    done = user(f"hyperscout {command}")
    assert (done.returncode, done.stdout) == (1, "")
    extra = re.escape(EXTRAS[command])
    assert re.fullmatch(
        rf"error: .*: run `pip install 'hyperscout{extra}'` in this environment\n", done.stderr
    )


def test_all_other_commands_need_no_extra(user: User) -> None:
    others = COMMANDS.keys() - {"agent", "collector", "demo", "loadtest"}
    helps = [f"hyperscout {name} --help >/dev/null || exit 9" for name in sorted(others)]
    done = user("\n".join(helps))
    assert (done.returncode, done.stderr) == (0, "")
    for words, code in (("status", 1), ("get nodes", 1), ("doctor node-0001", 3)):
        done = user(f"exec 2>&1; hyperscout {words} --collector 127.0.0.1:9 --timeout 1")
        assert (done.returncode, "127.0.0.1:9" in done.stdout) == (code, True), done.stdout


def test_the_page_installs_the_tested_versions(machine: DebianRoot) -> None:
    page = (ROOT / "docs/install.md").read_text("utf-8")
    [command] = re.findall("^    (pip install .*constraints.txt.*)$", page, re.MULTILINE)
    in_venv = "python3 -m venv ~/tested\n. ~/tested/bin/activate"
    machine.shell(f"cd {SOURCE}\n{in_venv}\n{command}")
    there = machine.shell("~/tested/bin/pip list --format=freeze").lower().replace("_", "-").split()
    tested = re.findall(r"^[a-z0-9-]+==[^ ]+", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert {line.partition("==")[0] for line in set(there) - set(tested)} == {
        "hyperscout",
        "pip",
        "setuptools",
    }


@pytest.mark.parametrize("program", ["hyperscout", "kubectl-hyperscout"])
def test_without_click_it_prints_one_line(machine: DebianRoot, program: str) -> None:
    bare = f"test -d ~/bare || python3 -m venv ~/bare && ~/bare/bin/pip install --quiet --no-deps {SOURCE}"
    machine.shell(bare)
    done = machine.run("bash", "-c", f"~/bare/bin/{program} infer")
    assert (done.returncode, done.stdout) == (1, "")
    todo = "run `pip install hyperscout` in this environment"
    assert done.stderr == f"error: the Python package 'click' is missing: {todo}\n"


def test_the_printed_command_installs_what_is_missing(user: User) -> None:
    """The last test of this installation: it gets all extras."""
    for command in ("doctor", "demo", "loadtest"):
        printed = re.search("run `(.+)` in this environment$", user(f"hyperscout {command}").stderr)
        assert printed is not None
        user.prints(f"{printed[1]} --quiet")
    helps = [f"hyperscout {command} --help >/dev/null || exit 9" for command in EXTRAS]
    done = user("\n".join(helps))
    assert (done.returncode, done.stderr) == (0, "")
    checks = json.loads(user("hyperscout doctor -o json").stdout)["checks"]
    assert "settings" in {check["check"] for check in checks}
