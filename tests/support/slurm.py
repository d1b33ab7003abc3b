"""A real Slurm of Debian on loopback: munged, slurmctld, and a slurmd for each node that runs jobs."""

import contextlib
import getpass
import os
import secrets
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from hyperscout_formats.text.host_list import expand
from kube.processes import Program, free_port

from support.real import require_real, tool
from support.waiting import TIMEOUT_S, until_seen

Switches = Mapping[str, tuple[frozenset[str], frozenset[str]]]  # by name: nodes below it, child switches


class Slurm:
    """A cluster whose nodes all are this host. `tree_file`: its topology.conf, at first without a switch."""

    def __init__(self, folder: Path, nodes: Sequence[str]) -> None:
        self.folder = folder
        self.config = folder / "slurm.conf"
        self.tree_file = folder / "topology.conf"
        self.hook = f"env SLURM_CONF={self.config} scontrol reconfigure"
        self._programs: dict[str, Program] = {}
        folder.chmod(0o755)  # munged refuses a socket that other users cannot reach
        host = socket.gethostname()
        lines = [
            "ClusterName=test",
            f"SlurmctldHost={host}(127.0.0.1)",
            f"SlurmUser={getpass.getuser()}",
            f"AuthInfo=socket={folder}/munge.sock",
            f"SlurmctldPort={free_port()}",
            f"SlurmctldPidFile={folder}/slurmctld.pid",
            f"SlurmdPidFile={folder}/slurmd-%n.pid",
            f"StateSaveLocation={folder}/state",
            f"SlurmdSpoolDir={folder}/spool-%n",
            "CommunicationParameters=NoCtldInAddrAny,NoInAddrAny",
            "ProctrackType=proctrack/linuxproc",
            "TaskPlugin=task/none",
            "SelectType=select/cons_tres",
            "TopologyPlugin=topology/tree",
            "MpiDefault=none",
            "ReturnToService=2",
            "SlurmdParameters=config_overrides",
            *(f"NodeName={x} NodeHostname={host} NodeAddr=127.0.0.1 Port={free_port()}" for x in nodes),
            "PartitionName=all Nodes=ALL Default=YES",
        ]
        self.config.write_text("\n".join([*lines, ""]))
        self.tree_file.write_text("# no switch is known yet\n")
        key = folder / "munge.key"
        key.touch(0o600)
        key.write_bytes(secrets.token_bytes(128))

    def start(self, name: str, *argv: object) -> None:
        program = tool(str(argv[0]))
        assert program is not None
        log = self.folder / f"{name}.log"
        self._programs[name] = Program([program, *map(str, argv[1:])], log)

    def start_munge(self) -> None:
        files = {"socket": "sock", "key-file": "key", "pid-file": "pid", "seed-file": "seed"}
        options = [f"--{option}={self.folder}/munge.{end}" for option, end in files.items()]
        self.start("munged", "munged", "--foreground", *options)
        until_seen((self.folder / "munge.sock").exists, self._said("munged"))

    def start_controller(self) -> None:
        """And wait until it answers."""
        self.start("slurmctld", "slurmctld", "-D", "-f", self.config)
        until_seen(lambda: "is UP" in self.run("scontrol", "ping"), self._said("slurmctld"))

    def start_node(self, node: str) -> None:
        """And wait until the controller may place jobs on it."""
        (self.folder / f"spool-{node}").mkdir()
        self.start(node, "slurmd", "-D", "-N", node, "-f", self.config)
        until_seen(lambda: self.run("sinfo", "-hn", node, "-o", "%T") == "idle", self._said(node))

    def end(self, name: str) -> None:
        self._programs.pop(name).terminate()

    def end_all(self) -> None:
        for name in reversed(list(self._programs)):  # munged last, as the others need it to end
            self.end(name)

    def run(self, *argv: str) -> str:
        """What a command of a user prints."""
        environment = os.environ | {"SLURM_CONF": str(self.config)}
        done = subprocess.run(
            argv, env=environment, cwd=self.folder, capture_output=True, timeout=TIMEOUT_S, check=False
        )
        return (done.stdout + done.stderr).decode().strip()

    @property
    def reconfigurations(self) -> int:
        """How often the controller was told to read its files again."""
        return (self.folder / "slurmctld.log").read_text().count("Processing Reconfiguration Request")

    def switches(self) -> Switches:
        """As `scontrol show topology` has them."""
        found = {}
        for line in self.run("scontrol", "show", "topology").splitlines():
            fields = dict(word.split("=", 1) for word in line.split() if "=" in word)
            nodes, children = (expand(fields.get(x) or "-") for x in ("Nodes", "Switches"))
            found[fields.get("SwitchName", line)] = frozenset(nodes), frozenset(children) - {"-"}
        return found

    def address(self, node: str) -> str:
        """The SLURM_TOPOLOGY_ADDR of a job on a node."""
        output = self.folder / f"job-{secrets.token_hex(4)}"
        script = "echo $SLURM_TOPOLOGY_ADDR"
        said = self.run("sbatch", "--wait", f"--output={output}", f"--nodelist={node}", "--wrap", script)
        return output.read_text().strip() if output.exists() else said

    def _said(self, name: str) -> str:
        return f"{name} runs; it said: {self._programs[name].tail()}"


@contextlib.contextmanager
def slurm(nodes: Sequence[str], running: Sequence[str]) -> Iterator[Slurm]:
    """A Slurm that runs. `running`: the nodes that have a slurmd."""
    require_real("slurm")
    # Not the folder of the test: the path of a socket has at most 107 bytes.
    folder = Path(tempfile.mkdtemp(prefix="hyperscout-slurm-"))
    cluster = Slurm(folder, nodes)
    try:
        cluster.start_munge()
        cluster.start_controller()
        for node in running:
            cluster.start_node(node)
        yield cluster
    finally:
        cluster.end_all()
        shutil.rmtree(folder)
