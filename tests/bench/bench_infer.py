"""What a user with a saved dump waits for: the whole `hyperscout infer` process, 65,536 hosts in three tiers.

The floor is a bare `for line in file` over the same dump, as text; the same over bytes is shown beside it.
Times are the best of several whole processes: start-up, reading, inference, anomalies, the text.
"""

import os
import sys
import tempfile
import time
from pathlib import Path

from support.bench_rows import row

ROUNDS = 5
HOSTS = 65_536
MIB = 2**20
LEAVES = 2048
WRITE_DUMP = (
    "import sys; from hyperscout_sim.fabric.shapes import fat_tree;"
    "from hyperscout_sim.readings.sweep_text import sweep_text;"
    "sys.stdout.buffer.write(sweep_text(fat_tree(64)))"
)


def run(arguments: list[str], output: Path) -> tuple[float, int]:
    """Wall seconds and peak resident bytes of one process that writes to `output`."""
    started_s = time.perf_counter()
    pid = os.posix_spawn(
        sys.executable,
        [sys.executable, *arguments],
        os.environ,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 1, str(output), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600),
        ],
    )
    _, status, usage = os.wait4(pid, 0)
    wall_s = time.perf_counter() - started_s
    if status:
        raise SystemExit(f"{' '.join(arguments)}: exit {os.waitstatus_to_exitcode(status)}")
    return wall_s, usage.ru_maxrss * 1024


def loop_s(path: Path, mode: str) -> float:
    started_s = time.perf_counter()
    with path.open(mode) as file:
        for _line in file:
            pass
    return time.perf_counter() - started_s


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        dump, output = Path(folder) / "fabric", Path(folder) / "out"
        # Not here: a process inherits the peak memory of the one that started it.
        run(["-c", WRITE_DUMP], dump)
        floor_s, bytes_s = (min(loop_s(dump, mode) for _ in range(ROUNDS)) for mode in ("r", "rb"))
        floor = f"bare loop over its lines, {floor_s:.3f} s (bytes {bytes_s:.3f} s)"
        for kind, budget in (("slurm-tree", "20 x, 400 MiB"), ("tree", ""), ("hypernodes", ""), ("json", "")):
            command = ["-m", "hyperscout_cli.main", "infer", "--ibnetdiscover", str(dump), "-o", kind]
            runs = [run(command, output) for _ in range(ROUNDS if budget else 1)]
            wall_s = min(wall for wall, _ in runs)
            peak = max(peak for _, peak in runs)
            text = output.read_text()
            if kind == "slurm-tree" and text.count("Nodes=") != LEAVES:
                raise SystemExit(f"{text.count('Nodes=')} leaves, expected {LEAVES}")
            measured = f"{wall_s:.2f} s, {peak / MIB:.0f} MiB"
            row(f"infer -o {kind}, {HOSTS:,} hosts", measured, floor, f"{wall_s / floor_s:.1f} x", budget)


if __name__ == "__main__":
    main()
