"""Real nodes, installed with helm: how soon a pulled cable shows in kubectl, what an agent costs at rest.

Six kubelets, six switches with lldpd, two collectors, a control plane and a watching kubectl share the
machine's cores, so the figures are for all of them together. `hold_down_s` is shorter still, since
the same few cables are pulled again and again; nothing else differs from what
tests/real/nodes/test_nodes.py installs.
"""

import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from lab.cluster import Lab
from lab.images import Images, images
from lab.infiniband import InfinibandFabric
from lab.plan import PLAN
from lab.story import NAMESPACE, Story
from lab.watching import Object, condition
from lab.wires import Wires
from support.bench_rows import p99, row

PULLS = 50
HOLD_DOWN_S = 0.15
REST_S = 120.0
BUDGET_MIB, BUDGET_CPU = 96, 1
PARTS = ("probe", "stream", "inference", "API write")
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def unix_s(text: str) -> float:
    """RFC 3339, to the nanosecond, as protobuf's JSON has it."""
    whole, _, rest = text.removesuffix("Z").partition(".")
    return datetime.fromisoformat(whole + "+00:00").timestamp() + float(f"0.{rest or 0}")


def pulls(story: Story) -> None:
    """Pull cables of all nodes in turn; where the time between carrier and kubectl goes."""
    rails = [f"{node.name}/{rail}" for node in PLAN.nodes for rail in node.rails]
    totals: list[float] = []
    parts: dict[str, list[float]] = {name: [] for name in PARTS}
    for number in range(PULLS):
        cable = rails[number % len(rails)]
        node, _, port = cable.partition("/")
        domain = story.domain_of(node)

        def shown(hypernodes: Mapping[str, Object], domain: str = domain, cable: str = cable) -> bool:
            found = condition(hypernodes[domain], "Degraded")
            return found["status"] == "True" and cable in found["message"]

        began_s = time.time()
        story.wires.unplug(cable)
        story.watch.until(shown, f"{cable} in kubectl", 30.0)
        seen_s = time.time()
        findings = json.loads(story.ask("get", "findings", node, "-o", "json"))
        keys = {(x["finding"]["key"]["probe"], x["finding"]["key"]["subject"]): x for x in findings}
        held = keys["lldp", port]
        status = json.loads(story.ask("status", "-o", "json"))
        stamps = (
            began_s,
            unix_s(held["finding"]["observedAt"]),
            unix_s(held["receivedAt"]),
            unix_s(status["publishedAt"]),
            seen_s,
        )
        totals.append(seen_s - began_s)
        for name, start, end in zip(PARTS, stamps, stamps[1:], strict=False):
            parts[name].append(end - start)
        story.wires.plug(cable)
        story.watch.until(story.is_well, f"{cable} is back", 60.0)
        time.sleep(1.0)  # longer than 6 times `hold_down_s`
        note(f"{number + 1} of {PULLS}: {cable} {totals[-1] * 1000:.0f} ms")
    row(f"cable pulled -> kubectl shows it, median of {PULLS}", f"{statistics.median(totals) * 1000:.0f} ms")
    row("cable pulled -> kubectl shows it, p99", f"{p99(totals):.2f} s", "", "", "1 s")
    for name, values in parts.items():
        row(f"   of it {name}, median", f"{statistics.median(values) * 1000:.0f} ms")
        row(f"   of it {name}, p99", f"{p99(values) * 1000:.0f} ms")


# What runs in an agent's pod, told by its command line.
_COMMAND_MARKS = {"agent": "hyperscout agent", "lldp": "lldp.listener", "dissector": "lldp.dissector"}
_LOOK = """\
for pid in $(pgrep -f 'hyperscout agent|lldp.listener|lldp.dissector'); do
  case $(readlink /proc/$pid/exe) in *python*) ;; *) continue ;; esac
  printf '%s\\t' "$(tr '\\0' ' ' < /proc/$pid/cmdline)"
  printf '%s\\t' "$(cat /proc/$pid/stat)"
  awk '/^Pss:/ {print $2}' /proc/$pid/smaps_rollup
done
"""


def used(lab: Lab, node: str) -> dict[str, tuple[float, float]]:
    """(CPU seconds so far, MiB) of each process of a node's agent pod."""
    found: dict[str, tuple[float, float]] = {}
    for line in lab.nodes[node].run(["sh", "-c", _LOOK]).stdout.splitlines():
        command, stat, pss = line.split("\t")
        fields = stat.rpartition(")")[2].split()
        for name, mark in _COMMAND_MARKS.items():
            if mark in command:
                found[name] = ((int(fields[11]) + int(fields[12])) * _TICK_S, int(pss) / 1024)
    return found


def at_rest(lab: Lab) -> None:
    """Two minutes in which nothing happens: all probes on, measuring included."""
    before = {node: used(lab, node) for node in PLAN.names}
    began_s = time.monotonic()
    time.sleep(REST_S)
    seconds = time.monotonic() - began_s
    after = {node: used(lab, node) for node in PLAN.names}
    cpu: list[float] = []
    memory: list[float] = []
    for node in PLAN.names:
        cpu.append(
            sum(after[node][n][0] - before[node].get(n, (0, 0))[0] for n in after[node]) / seconds * 100
        )
        memory.append(sum(mib for _, mib in after[node].values()))
        note(f"{node}: {after[node]}")
    row(
        "agent pod at rest, CPU of one core, median of 6",
        f"{statistics.median(cpu):.2f} %",
        "",
        "",
        f"{BUDGET_CPU} %",
    )
    row("agent pod at rest, CPU, worst of 6", f"{max(cpu):.2f} %", "", "", f"{BUDGET_CPU} %")
    row("agent pod at rest, memory (Pss), worst of 6", f"{max(memory):.0f} MiB", "", "", f"{BUDGET_MIB} MiB")


def start_up(story: Story) -> None:
    """From a container's start to the collector's first word, by the agents' own logs and the kernel."""
    took: list[float] = []
    boot_s = float(
        next(x for x in Path("/proc/stat").read_text().splitlines() if x.startswith("btime")).split()[1]
    )
    for pod in story.pods("agent"):
        node, name = pod["spec"]["nodeName"], pod["metadata"]["name"]
        log = story.lab.kubectl("logs", "-n", NAMESPACE, name, "-c", "agent").splitlines()
        connected = [line for line in log if "connected, version" in line]
        pid = story.lab.nodes[node].run(["pgrep", "-o", "-f", "hyperscout agent"]).stdout.strip()
        stat = story.lab.nodes[node].run(["cat", f"/proc/{pid}/stat"]).stdout
        began_s = boot_s + int(stat.rpartition(")")[2].split()[19]) * _TICK_S
        if connected:
            said = datetime.strptime(connected[0][:23] + "+0000", "%Y-%m-%d %H:%M:%S,%f%z").timestamp()
            took.append(said - began_s)
    row(
        "agents of six nodes and the collectors started at once: -> taken, median",
        f"{statistics.median(took):.1f} s",
    )
    again: list[float] = []
    for node in PLAN.names:
        restarts, killed_s = story.restarts(), time.monotonic()
        story.lab.nodes[node].run(["pkill", "-KILL", "-o", "-f", "hyperscout agent"])
        while story.restarts() == restarts or b"ok, connected" not in story.health(node):
            time.sleep(0.05)
        again.append(time.monotonic() - killed_s)
        note(f"{node}: back after {again[-1]:.1f} s")
    row(
        "one agent killed -> started by its kubelet, taken by a collector, median",
        f"{statistics.median(again):.1f} s",
    )


def sizes(found: Images) -> None:
    for name, path in (("agent", found.agent), ("collector", found.collector)):
        row(f"image of {name}, archive", f"{path.stat().st_size / 1e6:.0f} MB")


def main() -> int:
    found = images(note)
    sizes(found)
    with tempfile.TemporaryDirectory(prefix="hyperscout-bench-") as folder:
        began_s = time.monotonic()
        with Lab(Path(folder) / "lab", images=[found.agent, found.collector], say=note) as lab:
            lab.add_nodes(PLAN.names)
            wires, infiniband = Wires(lab), InfinibandFabric(lab)
            wires.up()
            infiniband.up()
            lab.await_ready(PLAN.names, 120.0)
            row("six nodes, six switches, control plane up", f"{time.monotonic() - began_s:.0f} s")
            story = Story(lab, wires, infiniband, note, HOLD_DOWN_S)
            try:
                story.install()
                story.discovered()
                start_up(story)
                with story.forwarded():
                    story.witnessed()  # a device that no witness has heard yet cannot be missed by name
                    story.await_well("with all witnesses heard")
                    pulls(story)
                at_rest(lab)
            finally:
                story.close()
                wires.down()
                infiniband.down()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
