"""How long the ibnetdiscover reader takes for 65,536 hosts, beside a bare loop over the lines of the file.

Each measurement is made in a fresh process, as `infer` is one: its first call pays for memory that later
ones have.
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from hyperscout_sim.fabric.shapes import fat_tree
from hyperscout_sim.readings.sweep_text import sweep_text
from support.bench_rows import row

ROUNDS = 5


def peak_bytes() -> int:
    """Of this program's memory. getrusage would count what the parent had before exec."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.split("VmHWM:")[1].split()[0]) * 1024


def measure(path: Path) -> dict[str, float]:
    """Seconds and bytes, in this process, which should have done nothing before."""
    from hyperscout_formats.infiniband.ibnetdiscover import parse
    from hyperscout_formats.infiniband.ibnetdiscover_text import summary

    loops_s = []
    for _ in range(3):
        begin_s = time.perf_counter()
        with path.open("rb") as file:
            for _line in file:
                pass
        loops_s.append(time.perf_counter() - begin_s)
    data = path.read_bytes()
    before = peak_bytes()
    begin_s = time.perf_counter()
    sweep = parse(data)
    first_s = time.perf_counter() - begin_s
    peak = peak_bytes()
    begin_s = time.perf_counter()
    parse(data)
    second_s = time.perf_counter() - begin_s
    begin_s = time.perf_counter()
    counts = summary(data)
    summary_s = time.perf_counter() - begin_s
    if (counts.adapters, counts.switches, len(sweep.device)) != (65_536, 5_120, 393_216) or sweep.problems:
        raise SystemExit("the reader got it wrong")
    return {
        "text": len(data),
        "loop_s": min(loops_s),
        "first_s": first_s,
        "second_s": second_s,
        "summary_s": summary_s,
        "memory": peak - before,
    }


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "fat-tree.ibnetdiscover"
        path.write_bytes(sweep_text(fat_tree(64)))
        runs = []
        for _ in range(ROUNDS):
            done = subprocess.run([sys.executable, __file__, str(path)], capture_output=True, check=True)
            runs.append(json.loads(done.stdout))
    median = {name: statistics.median(run[name] for run in runs) for name in runs[0]}
    loop_s, text = median["loop_s"], median["text"]
    loop = f"bare loop over the lines, {loop_s:.3f} s"
    for what, name, budget in (
        ("ibnetdiscover reader, 65,536 hosts, first call", "first_s", "8 x"),
        ("ibnetdiscover reader, 65,536 hosts, second call", "second_s", "8 x"),
        ("the agent's count of the same text", "summary_s", "-"),
    ):
        row(what, f"{median[name]:.3f} s", loop, f"{median[name] / loop_s:.1f} x", budget)
    memory = median["memory"]
    size = f"the text, {text / 1e6:.0f} MB"
    row("its memory beside the text", f"{memory / 1e6:.0f} MB", size, f"{memory / text:.1f} x", "4 x")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(measure(Path(sys.argv[1]))))
    else:
        main()
