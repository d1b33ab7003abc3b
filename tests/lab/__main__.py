"""The command line of the lab: a Kubernetes of real kubelets on this machine, as root.

python tests/lab assets              build and fetch the programs (a quarter of an hour, once)
python tests/lab up --nodes 3        start it, or add what is missing
python tests/lab kubectl get nodes   likewise helm, with any arguments
python tests/lab exec node2 ip addr  a command on a node or a switch; `exec cp`: beside the control plane
python tests/lab kill node2          as by a power cut; `revive node2`
python tests/lab wire                switches with lldpd, and the rails of node1 to node7
python tests/lab unplug node1/rail0  `plug node1/rail0`; `move node1/rail0 leaf-b1/swp20`
python tests/lab import image.tar    give all nodes an image, also those that come later
python tests/lab down
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from kube import assets

from lab import needs
from lab.cluster import Lab
from lab.inside import LabError
from lab.machines import MAX_NODES, number_of
from lab.wires import PANEL, Wires


def default_folder() -> Path:
    """Below the user's cache."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "hyperscout" / "lab"


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        "python tests/lab", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--folder", type=Path, default=default_folder(), help="where it lives (%(default)s)")
    commands = made.add_subparsers(dest="command", required=True, metavar="COMMAND")
    one = commands.add_parser("assets", help="build and fetch the programs")
    one.add_argument("--where", action="store_true", help="only print where each one is")
    one = commands.add_parser("up", help="start it, or add what is missing")
    one.add_argument("--nodes", type=int, default=3, help="how many (%(default)s)")
    one.add_argument("--image", type=Path, action="append", default=[], help="a tar that each node gets")
    commands.add_parser("down", help="end it")
    commands.add_parser("status", help="what runs")
    for name in ("kubectl", "helm"):
        one = commands.add_parser(name, help=f"run {name} on it", add_help=False)
        one.add_argument("words", nargs=argparse.REMAINDER)
    one = commands.add_parser("exec", help="run a command on a machine")
    one.add_argument("machine", help="a node, a switch, or cp")
    one.add_argument("words", nargs=argparse.REMAINDER, metavar="COMMAND")
    for name, text in (("add", "a new one"), ("kill", "as by a power cut"), ("revive", "boot it again")):
        one = commands.add_parser(name, help=f"nodes: {text}")
        one.add_argument("nodes", nargs="+")
    commands.add_parser("wire", help="put up switches, and cables to the nodes that run")
    for name, text in (
        ("unplug", "pull a cable"),
        ("plug", "put it back"),
        ("move", "its far end elsewhere"),
    ):
        one = commands.add_parser(name, help=f"{text}: named by a port, as in node1/rail0")
        one.add_argument("port")
        if name == "move":
            one.add_argument("to", help="a port of a switch, as in leaf-b1/swp20")
    one = commands.add_parser("import", help="give nodes an image")
    one.add_argument("image", type=Path)
    one.add_argument("nodes", nargs="*", help="all, and those that come later")
    return made


def main(arguments: Sequence[str]) -> int:
    """Returns the exit status."""
    said = parser().parse_args(arguments)
    try:
        return _do(said)
    except (RuntimeError, ValueError, OSError) as error:
        print(f"lab: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _do(said: argparse.Namespace) -> int:
    if said.command == "assets":
        return _assets(said.where)
    if said.command == "up":
        return _up(said.folder, said.nodes, said.image)
    lab = Lab.attach(said.folder, _say)
    if said.command == "down":
        lab.stop()
    elif said.command == "status":
        _status(lab)
    elif said.command in ("kubectl", "helm"):
        lab.place.become([said.command, *said.words])
    elif said.command == "exec":
        everything = {**lab.nodes, **lab.switches}
        if said.machine != "cp" and said.machine not in everything:
            raise LabError(f"{said.machine} does not run; what runs is cp, {', '.join(everything)}")
        place = lab.place if said.machine == "cp" else everything[said.machine].place
        words = said.words[1:] if said.words[:1] == ["--"] else said.words
        place.become(words or [os.environ.get("SHELL", "/bin/sh")])
    elif said.command == "import":
        lab.import_image(said.image, said.nodes or None)
    elif said.command == "wire":
        Wires(lab).up()
    elif said.command in ("unplug", "plug", "move"):
        wires = Wires.attach(lab, {**lab.nodes, **lab.switches})
        getattr(wires, said.command)(said.port, *([said.to] if said.command == "move" else []))
    elif said.command == "kill":
        for name in said.nodes:
            lab.kill_node(name)
            _rewire(lab, name)
    elif said.command == "revive":
        for name in said.nodes:
            lab.revive_node(name)
            _rewire(lab, name)
        lab.await_ready([name for name in said.nodes if name in lab.nodes])
    else:
        lab.add_nodes(said.nodes)
        for name in said.nodes:
            _rewire(lab, name)
        lab.await_ready(said.nodes)
    return 0


def _rewire(lab: Lab, name: str) -> None:
    """Where there are wires: those of a machine that has just come, or gone."""
    if PANEL not in lab.switches:
        return
    wires = Wires.attach(lab, {**lab.nodes, **lab.switches})
    if name not in lab.nodes:
        wires.disconnect(name)
    elif name in wires.plan:
        wires.connect(name)


def _assets(only_print: bool) -> int:
    if not only_print:
        return needs.fetch()
    others = {"runc": needs.runc(), "network plugins": needs.plugins(), "busybox": needs.busybox()}
    found = {name: assets.find(name) for name in (*needs.PROGRAMS, *needs.OPTIONAL)} | others
    for name, where in found.items():
        print(f"{name}\t{where or '-'}")
    if trouble := needs.lack():
        print(f"lab: cannot run here: {trouble}", file=sys.stderr)
    return 0 if all(found.values()) else 1


def _up(folder: Path, nodes: int, images: Sequence[Path]) -> int:
    if not 0 <= nodes <= MAX_NODES:
        raise LabError(f"--nodes {nodes}: 0 to {MAX_NODES}")
    try:
        lab = Lab.attach(folder, _say)
    except LabError:
        lab = Lab(folder, images=images, say=_say, attached=False)
        try:
            lab.start()
        except BaseException:
            lab.stop()
            raise
    else:
        for image in images:
            lab.import_image(image)
    names = [f"node{number}" for number in range(1, nodes + 1)]
    lab.add_nodes([name for name in names if name not in lab.known])
    lab.await_ready([name for name in names if name in lab.nodes])
    _status(lab)
    return 0


def _status(lab: Lab) -> None:
    print(f"lab in {lab.folder}, kept by process {lab.keeper_pid}")
    running = {**lab.nodes, **lab.switches}
    ready = lab.ready()
    for name in sorted(lab.known, key=_order):
        kind, address = lab.known[name]
        state = ("Ready" if ready.get(name) else "NotReady") if kind == "node" else "runs"
        print(f"{name}\t{kind}\t{address}\t{state if name in running else 'off'}")


def _order(name: str) -> tuple[int, str]:
    try:
        return number_of(name), ""
    except ValueError:
        return MAX_NODES + 1, name


def _say(text: str) -> None:
    print(f"lab: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
