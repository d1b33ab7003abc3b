"""How long a crawl of 200 switches with 64 neighbours each takes, and what it needs of memory.

The agent's own probe crawls, over v2c, from one switch of each plane on. The switches answer in a process of
their own, in a network namespace that has their addresses; it takes its share of this machine's cores.
"""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from hyperscout.v1.finding_pb2 import Outcome
from hyperscout_agent.fabric_settings import SnmpSettings
from hyperscout_agent.probes.snmp import SnmpProbe
from hyperscout_sim.lldp import management_address
from hyperscout_sim.shapes import clos2
from hyperscout_sim.snmp import recordings
from support.real import lack_of

# 32 leaves of 28 hosts and 18 spines, two cables between each: 50 switches, each with 64 neighbours.
PLANES = 4
SHAPE = {"leaves": 32, "hosts_per_leaf": 28, "spines": 18, "uplinks_per_spine": 2}
SWITCHES, NEIGHBOURS = 200, 64
PORT = "161"
RESPONDER = Path(__file__).resolve().parents[1] / "support" / "snmp_responder.py"
NAMESPACE = 'ip link set lo up && ip route add local 10.0.0.0/8 dev lo && exec "$@"'
MIB = 2**20


def row(what: str, measured: str, peer: str, ratio: str, budget: str) -> None:
    print(" | ".join((what, measured, peer, ratio, budget)), flush=True)


def status_bytes(name: str) -> int:
    """VmRSS or VmHWM of this process."""
    return int(Path("/proc/self/status").read_text(encoding="ascii").split(f"{name}:")[1].split()[0]) * 1024


def write_switches(folder: Path) -> list[list[str]]:
    """A file a switch; addresses by plane."""
    planes = []
    for seed in range(PLANES):
        found = []
        for switch, recording in recordings(clos2(**SHAPE, seed=seed)):
            found.append(management_address(switch))
            (folder / found[-1]).write_bytes(recording)
        planes.append(found)
    if len({address for plane in planes for address in plane}) != SWITCHES:
        raise SystemExit("two switches have one address")
    return planes


async def crawl(folder: Path, planes: list[list[str]], dead: str = "") -> dict[str, float]:
    """One crawl, as an agent that has just started makes it."""
    switches = [
        f"{address}={'silent' if address == dead else folder / address}"
        for plane in planes
        for address in plane
    ]
    with subprocess.Popen(
        [sys.executable, str(RESPONDER), PORT, *switches], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as responder:
        assert responder.stdout is not None
        responder.stdout.readline()
        (folder / "community").write_text("public")
        access = {"ranges": ["10.0.0.0/8"], "community_file": str(folder / "community")}
        settings = SnmpSettings.model_validate({"access": [access], "seeds": [plane[0] for plane in planes]})
        probe = SnmpProbe(settings, trigger=lambda: None)
        before, started_s, started_cpu_s = status_bytes("VmRSS"), time.monotonic(), time.process_time()
        look = await probe.observe()
        took_s, cpu_s = time.monotonic() - started_s, time.process_time() - started_cpu_s
        assert responder.stdin is not None
        responder.stdin.close()
    well = [sight for sight in look.sights.values() if sight.outcome == Outcome.OUTCOME_DATA]
    heard = sum(len(port.neighbours) for sight in well for port in sight.payload.ports)
    if (len(well), heard) != (SWITCHES - bool(dead), (SWITCHES - bool(dead)) * NEIGHBOURS) or look.trouble:
        raise SystemExit(f"{len(well)} switches answered and hear {heard}: {look.trouble}")
    return {
        "took_s": took_s,
        "cpu_s": cpu_s,
        "rows": probe.client_stats.rows,
        "requests": probe.client_stats.requests,
        "peak": status_bytes("VmHWM"),
        "before": before,
        "silence_s": settings.request_timeout_s * (settings.retries + 1),
    }


def run(folder: Path, planes: list[list[str]], dead: str = "") -> dict[str, float]:
    """In a process of its own, for its memory is looked at."""
    unshare = ["unshare", "-n" if os.geteuid() == 0 else "-rn", "sh", "-c", NAMESPACE, "sh"]
    argv = [*unshare, sys.executable, __file__, str(folder), json.dumps(planes), dead]
    done = subprocess.run(argv, stdout=subprocess.PIPE, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def main() -> None:
    row("what", "measured", "floor or peer", "ratio", "budget")
    what = f"SNMP crawl, {SWITCHES} switches x {NEIGHBOURS} neighbours"
    if lack := lack_of("netns"):
        row(what, f"not measured: {lack}", "-", "-", "60 s")
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        planes = write_switches(folder)
        well = run(folder, planes)
        row(
            what,
            f"{well['took_s']:.1f} s",
            f"{well['rows']:,.0f} rows, {well['requests']:,.0f} requests",
            "-",
            "60 s",
        )
        row("its processor time in the agent", f"{well['cpu_s']:.1f} s", "-", "-", "-")
        more = (well["peak"] - well["before"]) / MIB
        row(
            "its memory beside the agent's own",
            f"{more:.0f} MiB",
            f"all: {well['peak'] / MIB:.0f} MiB",
            "-",
            "256 MiB",
        )
        dead = run(folder, planes, planes[0][-1])
        late_s = dead["took_s"] - well["took_s"]
        row(
            "the same with one dead switch: longer by",
            f"{late_s:.1f} s",
            f"its time-out, {dead['silence_s']:.0f} s",
            f"{late_s / dead['silence_s']:.1f} x",
            "1 x",
        )


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(asyncio.run(crawl(Path(sys.argv[1]), json.loads(sys.argv[2]), sys.argv[3]))))
    else:
        main()
