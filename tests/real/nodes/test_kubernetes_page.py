"""docs/kubernetes.md as a reader follows it: its commands, in its order, on real kubelets with real cables.

The commands are read from the page. Replaced is only what the lab does not have:

| the page | the lab |
|---|---|
| `docker build`, `docker push` | the images of this checkout, which each node has already |
| the registry, the node and the port of the page | those of the lab (`NAMES`) |
| `ssh root@NODE COMMAND` | the command, run on that node |
| ports and InfiniBand adapters in hardware | veth and ibsim; `helm install` gets the values of `hardware` |
| a device plugin and node feature discovery | resource and label are written into the node objects |

Commands that show a later state are repeated until they show it, as a reader would repeat them.
"""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from lab.cluster import Lab
from lab.infiniband import InfinibandFabric
from lab.plan import make_plan
from support.real import ROOT, require_real
from support.waiting import TIMEOUT_S, eventually
from support.wired_lab import wired_lab

require_real("lab", "helm", "lldpd", "ibsim")

PAGE = ROOT / "docs" / "kubernetes.md"
PLAN = make_plan({"a": ("node1", "node2"), "b": ("node3", "node4")}, later={})
NAMES = {
    "registry.example.com/infra": "docker.io",
    "gpu-[01-06]": "node[1-4]",
    "gpu-01": "node1",
    "eth2": "rail0",
}
CUT, FAR_END = "node1/rail0", "leaf-a1/swp1"
CUT_IN_PAGE, FAR_END_IN_PAGE = ("node-0003/eth0", CUT), ("leaf-u01-r0/swp3", FAR_END)
WITH_DEVICES = ("node2", "node3")
COMMAND_S = 2 * TIMEOUT_S  # longer than the limits in the commands themselves
RELEASE_S = "app.kubernetes.io/part-of=hyperscout"
HYPERNODES = "kubectl get hypernodes"


@dataclass(frozen=True, slots=True)
class Section:
    """One section: its indented lines (commands), and the output that it shows of a simulated cluster."""

    commands: tuple[str, ...]
    output: tuple[str, ...]


def sections(text: str) -> dict[str, Section]:
    """By title. A command may go on in the next line, after a backslash."""
    found = {}
    for part in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        title, _, body = part.partition("\n")
        indented = "\n".join(line[4:] for line in body.splitlines() if line.startswith("    "))
        commands = tuple(re.sub(r"\s*\\\n\s*", " ", indented).splitlines())
        shown = "".join(re.findall(r"^```console\n(.*?)^```$", body, re.MULTILINE | re.DOTALL))
        found[title] = Section(commands, tuple(x for x in shown.splitlines() if not x.startswith("$ ")))
    return found


@dataclass(frozen=True, slots=True)
class Reader:
    """Types the commands in a folder like the root of the checkout, on a machine that is no node."""

    lab: Lab
    folder: Path
    exports: list[str] = field(default_factory=list)

    def types(self, command: str) -> str:
        """What a command prints. Raises CommandError when it fails."""
        for theirs, ours in NAMES.items():
            command = command.replace(theirs, ours)
        print(f"$ {command}", flush=True)
        if command.startswith("export "):
            self.exports.append(command)
            return ""
        if command.startswith("ssh root@"):
            node, *words = command.removeprefix("ssh root@").split()
            return self.lab.nodes[node].run(words).stdout
        if command.startswith("helm install "):
            command += f" --values {self.lab.folder / 'hardware.json'}"
        start = [f"cd {self.folder}", f"PATH={ROOT / '.venv' / 'bin'}:$PATH"]
        printed = self.lab.run(
            ["sh", "-ec", "\n".join([*start, *self.exports, command])], timeout_s=COMMAND_S
        )
        print(printed.stdout + printed.stderr, flush=True)
        return printed.stdout

    def follows(self, section: Section) -> dict[str, str]:
        """Type all commands of a section; what each one printed."""
        return {command: self.types(command) for command in section.commands}


def hardware(infiniband: InfinibandFabric) -> dict[str, Any]:
    """Values by which agents see the lab's veth and ibsim as ports. Sweeps stay off, as by default.

    Round trips are not measured: all nodes share a few cores, so that a path is slow now and then. Only
    `ibnetdiscover` is led to ibsim, so `ibqueryerrors` is off.
    """
    agent = infiniband.values()["agent"]
    del agent["settings"]["ibnetdiscover"]["enabled"]
    off = {"enabled": False}
    agent["settings"] |= {"lldp": {"ports": "^rail"}, "latency": off, "ibqueryerrors": off}
    return {"agent": agent, "collector": {"settings": {"compute_ports": "^(rail|mlx5_)"}}}


def offer_devices(lab: Lab) -> None:
    """Do what a device plugin and node feature discovery do on nodes with adapters."""
    offer = json.dumps([{"op": "add", "path": "/status/capacity/rdma~1hca_shared", "value": "1"}])
    for node in WITH_DEVICES:
        lab.kubectl("patch", "node", node, "--subresource=status", "--type=json", "-p", offer)
        lab.kubectl("label", "node", node, "feature.node.kubernetes.io/pci-15b3.present=true")


def checkout(folder: Path) -> Path:
    """A folder that looks like the root of the checkout, for the files that the page makes there."""
    folder.mkdir()
    for entry in ROOT.iterdir():
        (folder / entry.name).symlink_to(entry)
    return folder


def rows(table: str) -> list[dict[str, str]]:
    """A table of kubectl, whose columns are two spaces apart at least."""
    head, *lines = table.splitlines()
    starts = [match.start() for match in re.finditer(r"\S+(?: \S+)*", head)]
    ends = [*starts[1:], None]
    return [
        {head[a:b].strip(): line[a:b].strip() for a, b in zip(starts, ends, strict=True)} for line in lines
    ]


def pods(lab: Lab) -> list[dict[str, Any]]:
    found = lab.get("pods", "-n", "hyperscout")["items"]
    return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]


def nodes_of(lab: Lab, component: str) -> set[str]:
    key = "app.kubernetes.io/component"
    return {p["spec"]["nodeName"] for p in pods(lab) if p["metadata"]["labels"].get(key) == component}


# --- the page's steps ---------------------------------------------------------------------------------------


def images_are_named_as_the_chart_does(section: Section, lab: Lab) -> None:
    words = " ".join(section.commands).replace("$REGISTRY", NAMES["registry.example.com/infra"]).split()
    for recipe in (word for word in words if word.endswith("Dockerfile")):
        assert (ROOT / recipe).is_file(), recipe
    pushed = {line.split()[-1] for line in section.commands if line.startswith("docker push ")}
    built = {line.split()[5] for line in section.commands if line.startswith("docker build ")}
    pulled = {c["image"] for pod in pods(lab) for c in pod["spec"]["containers"]}
    assert pushed == built == {image.replace("docker.io", "$REGISTRY") for image in pulled}


def install_begins_reports(printed: dict[str, str], namespace: Section, lab: Lab) -> None:
    """The roll-outs ended, and the chart's notes give the commands of the page."""
    install, rollout = printed
    notes = printed[install]
    label = next(command for command in namespace.commands if " label " in command)
    for command in (rollout, label):
        assert command in notes, notes
    assert "InfiniBand: no agent sweeps a fabric" in notes
    assert nodes_of(lab, "agent") == set(PLAN.names)
    assert all(c["ready"] for pod in pods(lab) for c in pod["status"]["containerStatuses"])
    containers = [c for pod in pods(lab) for c in pod["spec"]["containers"]]
    assert not any(c["securityContext"].get("privileged") for c in containers)


def second_daemon_set_runs_where_the_label_is(printed: dict[str, str], lab: Lab) -> None:
    upgrade, _, daemon_sets = printed.values()
    [selector] = re.findall(r"kubectl get nodes -l '(\S+)'", upgrade)
    labelled = {one["metadata"]["name"] for one in lab.get("nodes", "-l", selector)["items"]}
    assert labelled == set(WITH_DEVICES)
    desired = {row["NAME"]: row["DESIRED"] for row in rows(daemon_sets)}
    others = len(PLAN.names) - len(WITH_DEVICES)
    assert desired == {"hyperscout-agent": f"{others}", "hyperscout-agent-infiniband": f"{len(WITH_DEVICES)}"}
    assert nodes_of(lab, "agent-infiniband") == set(WITH_DEVICES)
    limits = [c["resources"].get("limits", {}) for pod in pods(lab) for c in pod["spec"]["containers"]]
    assert [one["rdma/hca_shared"] for one in limits if "rdma/hca_shared" in one] == ["1"] * len(WITH_DEVICES)


async def all_is_well(status: str, table: Callable[[], str]) -> None:
    count = len(PLAN.names)
    assert f"{count} of {count} connected" in status
    assert status.endswith("\nNothing is wrong.\n")
    assert any(node in status for node in WITH_DEVICES), "no sweep"

    def found() -> bool:
        text = table()
        states = {(row["READY"], row["DEGRADED"], row["REASON"]) for row in rows(text)}
        tiers = sorted((row["TIER"], row["TIERNAME"], row["NODES"]) for row in rows(text))
        return states == {("True", "False", "LinksHealthy")} and tiers == [
            ("1", "leaf", "2"),
            ("1", "leaf", "2"),
            ("2", "pod", "4"),
        ]

    await eventually(found, "two leaves in one pod")


def names_the_cable(line: str) -> bool:
    """Whether a line has both ends, with the port after a slash or in the next column."""
    return {*CUT.split("/"), *FAR_END.split("/")} <= set(re.split(r"[\s/,:]+", line))


def cut_is_named(section: Section, table: str) -> bool:
    """Whether the wide table has the columns of the page, and a message in the page's form."""
    degraded = [row for row in rows(table) if row["TIER"] == "1" and row["DEGRADED"] == "True"]
    if not degraded:
        return False
    [row] = degraded
    [shown] = [shown for shown in rows("\n".join(section.output)) if shown["DEGRADED"] == "True"]
    assert list(row) == list(shown)
    assert (row["READY"], row["REASON"], row["NODES"]) == ("True", "LinksDown", "2")
    wanted = shown["MESSAGE"].replace(*CUT_IN_PAGE).replace(*FAR_END_IN_PAGE).replace("lldp, snmp", "lldp")
    counts_and_times = re.compile(r"^\d+ of \d+|\S+Z$")
    assert counts_and_times.sub("", row["MESSAGE"]) == counts_and_times.sub("", wanted)
    assert row["MESSAGE"].startswith("1 of 6 ")  # two nodes with two rails and one adapter each
    return True


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with wired_lab(tmp_path_factory.mktemp("page") / "lab", PLAN) as story:
        values = story.lab.folder / "hardware.json"
        values.write_text(json.dumps(hardware(story.infiniband)))
        yield story.lab


async def test_the_page_works_as_written(lab: Lab, tmp_path: Path) -> None:
    page = sections(PAGE.read_text(encoding="utf-8"))
    build, namespace, install, infiniband, verify, cut = (
        next(section for title, section in page.items() if title.startswith(f"{number}. "))
        for number in range(1, 7)
    )
    reader = Reader(lab, checkout(tmp_path / "checkout"))

    for command in build.commands:
        if not command.startswith("docker "):
            reader.types(command)
    reader.follows(namespace)
    install_begins_reports(reader.follows(install), namespace, lab)
    images_are_named_as_the_chart_does(build, lab)

    offer_devices(lab)
    second_daemon_set_runs_where_the_label_is(reader.follows(infiniband), lab)
    *first, status, hypernodes = verify.commands
    for command in first:
        reader.types(command)
    await all_is_well(reader.types(status), lambda: reader.types(hypernodes))

    links, down, hypernodes, anomalies, up, wait = cut.commands
    assert [line for line in reader.types(links).splitlines() if names_the_cable(line)]
    reader.types(down)
    await eventually(lambda: cut_is_named(cut, reader.types(hypernodes)), "the cut cable in a HyperNode")
    assert [line for line in reader.types(anomalies).splitlines() if names_the_cable(line)]
    reader.types(up)
    assert "Nothing is wrong." in reader.types(wait)
    assert {row["REASON"] for row in rows(reader.types(HYPERNODES))} == {"LinksHealthy"}

    uninstall(page["Uninstall"], reader, lab)


def uninstall(section: Section, reader: Reader, lab: Lab) -> None:
    helm, hypernodes, definition, *rest = section.commands
    before = lab.kubectl("get", "hypernodes", "-o", "name").split()
    reader.types(helm)
    kinds = "deployments,daemonsets,services,configmaps,secrets,serviceaccounts,roles,rolebindings,pdb"
    found = lab.get(kinds, "-n", "hyperscout")["items"]
    assert {o["metadata"]["name"] for o in found} == {"kube-root-ca.crt", "default", "reader"}
    assert lab.get("clusterroles,clusterrolebindings", "-l", RELEASE_S)["items"] == []
    assert before == lab.kubectl("get", "hypernodes", "-o", "name").split()
    reader.types(hypernodes)
    assert lab.get("hypernodes")["items"] == []
    for command in (definition, *rest):
        reader.types(command)
    left = "namespaces,crds,clusterroles,clusterrolebindings"
    assert "hyper" not in lab.kubectl("get", left, "-o", "name")
