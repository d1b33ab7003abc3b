"""schemathesis against REST of a collector with a cluster: no 5xx, and no answer that is not described."""

import asyncio
import json
import os
from pathlib import Path

import pytest
from hyperscout_sim.fabric.shapes import clos2
from hyperscout_topology.topology import Topology
from support.apart import environment
from support.live import Watcher
from support.real import require_real
from support.rest_collector import played, rest_collector

EXAMPLES = 60  # of each operation and phase
MAX_TIME_S = 45
# What is not looked for: any name is fine for a filter, and callers are not authenticated (another test).
EXCLUDED = "positive_data_acceptance,ignored_auth"


def known(topology: Topology) -> str:
    """Names that there are, to be tried among others."""
    names = {
        "hypernode": [h.name for h in topology.hypernodes],
        "node": [node for h in topology.hypernodes if h.tier == 1 for node in h.nodes],
        "switch": [s.name for s in topology.switches],
    }
    lines = [f"[dictionaries.{name}]\nvalues = {json.dumps(values)}" for name, values in names.items()]
    bound = {"a": "node", "b": "node", "about": "node", "path.hypernode": "hypernode"}
    bound |= {"path.node": "node", "path.switch": "switch"}
    for parameter, name in bound.items():
        lines.append(f'[parameters."{parameter}"]\ndictionary = "{name}"\nprobability = 0.5')
    return "\n".join(lines)


async def test_nothing_is_answered_that_is_not_described(tmp_path: Path) -> None:
    require_real("schemathesis")
    python = environment("schemathesis")
    fabric = clos2(leaves=4, hosts_per_leaf=4, spines=2)
    async with rest_collector(tmp_path, hold_s=3600) as collector, played(collector, fabric) as player:
        player.cut(player.fabric.cables[0])
        await Watcher(collector.address).until(lambda t: bool(t.anomalies), "a cable is missed")
        (tmp_path / "schemathesis.toml").write_text(known(collector.watchers.current.topology))
        url = f"http://{collector.rest_address}"
        process = await asyncio.create_subprocess_exec(
            str(python),
            *("-c", "import sys; from schemathesis.cli import schemathesis; sys.exit(schemathesis())"),
            *("run", f"{url}/v1/openapi.json", "--url", url, "--header", "Authorization: Bearer token"),
            *("--exclude-path", "/v1/stream", "--exclude-checks", EXCLUDED),
            *("--phases", "examples,coverage,fuzzing"),
            *("--max-examples", str(EXAMPLES), "--max-time", str(MAX_TIME_S), "--seed", "1"),
            *("--request-timeout", "20", "--no-color", "--output-truncate", "false"),
            cwd=tmp_path,
            env={**os.environ, "COLUMNS": "150"},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            async with asyncio.timeout(10 * MAX_TIME_S):
                said, _ = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
        if process.returncode:
            pytest.fail(said.decode()[-12_000:])
        counted = collector.components.callers.rest
        assert counted is not None
        by_class: dict[str, int] = {}
        for (_, _, status), count in counted.requests.items():
            by_class[status] = by_class.get(status, 0) + count
        # How many fit into the time depends on the machine.
        assert {"2xx", "4xx"} <= by_class.keys() <= {"2xx", "3xx", "4xx"}
