"""How long a crawl of 200 switches with 64 neighbours each takes, and what it needs of memory.

The agent's own probe crawls, over v2c, from one switch of each plane on. The switches answer in a process of
their own, in a network namespace that has their addresses; it takes its share of this machine's cores. What
encryption adds is measured with snmpsim, which is too slow to play them all.
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
from hyperscout_agent.probes.snmp import SnmpProbe
from hyperscout_agent.settings.fabric_settings import SnmpSettings
from hyperscout_cli.loadtest.child import rss_mib
from hyperscout_sim.fabric.shapes import clos2
from hyperscout_sim.readings.lldp import management_address
from hyperscout_sim.readings.snmp import recordings
from support.bench_rows import row
from support.real import lack_of
from support.snmpsim import running_snmpsim

# 32 leaves of 28 hosts and 18 spines, two cables between each: 50 switches, each with 64 neighbours.
PLANES = 4
SHAPE = {"leaves": 32, "hosts_per_leaf": 28, "spines": 18, "uplinks_per_spine": 2}
SWITCHES, NEIGHBOURS = 200, 64
SOME = 8
USER = "hyperscout"
PORT = "161"
RETRIES = 2
RESPONDER = Path(__file__).resolve().parents[1] / "support" / "snmp_responder.py"
NAMESPACE = 'ip link set lo up && ip route add local 10.0.0.0/8 dev lo && exec "$@"'
MIB = 2**20


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


def access(folder: Path, *, encrypted: bool = False) -> dict[str, object]:
    for name in ("community", "auth", "priv"):
        (folder / name).write_text("public" if name == "community" else f"{name}-password")
    files = {f"{name}_password_file": str(folder / name) for name in ("auth", "priv")}
    opened = {"user": USER} | files if encrypted else {"community_file": str(folder / "community")}
    return {"ranges": ["10.0.0.0/8"]} | opened


async def ask(settings: dict[str, object], switches: int) -> dict[str, float]:
    """One crawl, as an agent that has just started makes it."""
    parsed = SnmpSettings.model_validate(settings)
    probe = SnmpProbe(parsed, trigger=lambda: None, retries=RETRIES)
    before, started_s, started_cpu_s = rss_mib(os.getpid()), time.monotonic(), time.process_time()
    look = await probe.observe()
    took_s, cpu_s = time.monotonic() - started_s, time.process_time() - started_cpu_s
    well = [sample for sample in look.samples.values() if sample.outcome == Outcome.OUTCOME_DATA]
    heard = sum(len(port.neighbours) for sample in well for port in sample.payload.ports)
    if (len(well), heard) != (switches, switches * NEIGHBOURS) or look.trouble:
        raise SystemExit(f"{len(well)} switches answered and hear {heard}: {look.trouble}")
    return {
        "took_s": took_s,
        "cpu_s": cpu_s,
        "before": before,
        "peak": rss_mib(os.getpid(), "VmHWM"),
        "rows": probe.client_stats.rows,
        "requests": probe.client_stats.requests,
        "silence_s": parsed.request_timeout_s * (RETRIES + 1),
    }


async def crawl(folder: Path, planes: list[list[str]], dead: str) -> dict[str, float]:
    switches = [
        f"{address}={'silent' if address == dead else folder / address}"
        for plane in planes
        for address in plane
    ]
    with subprocess.Popen(
        [sys.executable, str(RESPONDER), PORT, *switches], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as responder:
        assert responder.stdout is not None
        assert responder.stdin is not None
        responder.stdout.readline()
        settings = {"access": [access(folder)], "seeds": [plane[0] for plane in planes]}
        figures = await ask(settings, SWITCHES - bool(dead))
        responder.stdin.close()
    return figures


async def encrypted(folder: Path, planes: list[list[str]], _: str) -> dict[str, float]:
    """Some of the switches, over v3."""
    some = planes[0][:SOME]
    flags = [f"--v3-user={USER}", "--v3-auth-key=auth-password", "--v3-auth-proto=SHA256"]
    flags += ["--v3-priv-key=priv-password", "--v3-priv-proto=AES"]
    recorded = {address: (folder / address).read_bytes() for address in some}
    settings = {
        "access": [access(folder, encrypted=True)],
        "seeds": some,
        "max_depth": 0,
        "request_timeout_s": 20,
    }
    with (
        tempfile.TemporaryDirectory() as home,
        running_snmpsim(Path(home), recorded, community="", user=flags),
    ):
        return await ask(settings, SOME)


MEASUREMENTS = {"crawl": crawl, "encrypted": encrypted}


def run(folder: Path, planes: list[list[str]], what: str, dead: str = "") -> dict[str, float]:
    """In a process of its own, for its memory is looked at."""
    unshare = ["unshare", "-n" if os.geteuid() == 0 else "-rn", "sh", "-c", NAMESPACE, "sh"]
    argv = [*unshare, sys.executable, __file__, str(folder), json.dumps(planes), what, dead]
    done = subprocess.run(argv, stdout=subprocess.PIPE, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def main() -> None:
    what = f"SNMP crawl, {SWITCHES} switches x {NEIGHBOURS} neighbours"
    if lack := lack_of("netns"):
        row(what, f"not measured: {lack}", "-", "-", "60 s")
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        planes = write_switches(folder)
        well = run(folder, planes, "crawl")
        size = f"{well['rows']:,.0f} rows, {well['requests']:,.0f} requests"
        row(what, f"{well['took_s']:.1f} s", size, "-", "60 s")
        row("its processor time in the agent", f"{well['cpu_s']:.1f} s", "-", "-", "-")
        more, peak = (well["peak"] - less for less in (well["before"], 0))
        row(
            "its memory beside the agent's own",
            f"{more:.0f} MiB",
            f"all of it, {peak:.0f} MiB",
            "-",
            "256 MiB",
        )
        dead = run(folder, planes, "crawl", planes[0][-1])
        silence = f"its time-out, {dead['silence_s']:.0f} s"
        row("the same with one dead switch", f"{dead['took_s']:.1f} s", silence, "-", "60 s")
        what = "processor time a switch, encrypted (v3)"
        if lack := lack_of("snmpsim"):
            row(what, f"not measured: {lack}", "-", "-", "-")
            return
        v3, v2c = (
            one["cpu_s"] / many for one, many in ((run(folder, planes, "encrypted"), SOME), (well, SWITCHES))
        )
        row(what, f"{v3 * 1e3:.0f} ms", f"in the clear (v2c), {v2c * 1e3:.0f} ms", f"{v3 / v2c:.1f} x", "-")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        measured = MEASUREMENTS[sys.argv[3]](Path(sys.argv[1]), json.loads(sys.argv[2]), sys.argv[4])
        print(json.dumps(asyncio.run(measured)))
    else:
        main()
