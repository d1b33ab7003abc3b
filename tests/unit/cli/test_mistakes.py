"""Mistakes on the command line: each message names the cause and the next step, with one exit code."""

from pathlib import Path

import pytest
from hyperscout_cli.offline.infer import OF_EVIDENCE
from hyperscout_cli.shared import files
from support.command_line import CommandLine
from support.mistakes import NOISE, Mistake, deny_secrets, write_files

DUMP = "this is an ibnetdiscover dump"
FIRST = "run `hyperscout infer --ibnetdiscover fabric.txt -o json > fabric.json` first"
PLACE = "place --topology fabric.json"
SETUP = "--ibnetdiscover fabric.txt"

FILES = [
    Mistake("infer", 2, "give a file of evidence", "at least one of --ibnetdiscover, --lldp"),
    Mistake("infer fabric.txt", 2, "fabric.txt: a file needs an option", "use --ibnetdiscover FILE"),
    Mistake("infer smi.xml", 2, "smi.xml: a file needs an option", "`--nvlink smi.xml`"),
    Mistake("infer lldp.json", 2, "lldp.json: a file needs an option", "`--lldp lldp.json`"),
    Mistake("infer pairs.csv", 2, "pairs.csv: a file needs an option", "`--latency pairs.csv`"),
    Mistake("infer walk.txt", 2, "walk.txt: a file needs an option", "`--snmpwalk walk.txt`"),
    Mistake("infer notes.txt", 2, "needs the option of its kind", "one of --ibnetdiscover, --lldp"),
    Mistake("infer damaged.gz", 2, "needs the option of its kind", "one of --ibnetdiscover, --lldp"),
    Mistake("infer nowhere.txt", 2, "nowhere.txt: No such file or directory", "such as --ibnetdiscover FILE"),
    Mistake("infer --ibnetdiscover nowhere.txt", 2, "No such file or directory", "check the path"),
    Mistake("infer --ibnetdiscover folder", 2, "folder: Is a directory", "name a file"),
    Mistake(
        "infer --ibnetdiscover secret.txt", 2, "Permission denied", "give this user the right to read it"
    ),
    Mistake(
        "infer --ibnetdiscover empty.txt", 2, "empty.txt: empty", "expected the output of `ibnetdiscover`"
    ),
    Mistake("infer --ibnetdiscover binary.bin", 2, "no Switch, Ca or Rt block", "write it with `sudo ibnet"),
    Mistake("infer --ibnetdiscover damaged.gz", 2, "damaged.gz: damaged gzip file", "save it again"),
    Mistake("infer --ibnetdiscover pipe", 2, "pipe: no data for", "see whether the program that writes"),
    Mistake("infer --ibnetdiscover -", 2, "stdin: empty", "expected the output of `ibnetdiscover`"),
    Mistake("infer --ibnetdiscover - --node-map -", 2, "stdin (-) can be read only once", "save one of them"),
    Mistake(
        "infer --ibnetdiscover fabric.json",
        2,
        "probably JSON",
        "write it with `sudo ibnetdiscover > fabric.txt`",
    ),
    Mistake("infer --lldp fabric.txt", 2, "fabric.txt:1: not JSON", "expected the output of `lldpctl"),
    Mistake(
        "infer --lldp lldp.json folder/../lldp.json", 2, "second file for node 'lldp'", "one for each node"
    ),
    Mistake(f"infer {SETUP} --nodes empty.txt", 2, "empty.txt: no node", "or leave --nodes out"),
    Mistake(f"infer {SETUP} --nodes others.txt", 3, "none of the 8 hosts", "or give --node-map", out=True),
    Mistake(
        "infer --ibnetdiscover switches.txt",
        3,
        "the tree is empty: ",
        "check that they contain the hosts' ports",
        out=True,
    ),
    Mistake(
        "infer --ibnetdiscover switches.txt -o slurm-tree", 3, "the tree is empty", "check that they contain"
    ),
    Mistake(f"infer {SETUP} --compute-ports (", 2, "no regular expression", "such as mlx5_.*"),
    Mistake(
        f"infer {SETUP} -o slurm-yaml --block-sizes 18,40", 2, "40: expected ascending sizes", "18 times"
    ),
    Mistake(f"infer {SETUP} -o slurm-yaml --block-sizes 18+", 2, "'18+'", "numbers such as 18,72"),
    Mistake(f"infer {SETUP} -o slurm-tre", 2, "'slurm-tre' is not one of", "'slurm-tree'"),
    Mistake(f"infer {SETUP} --previous fabric.txt", 2, DUMP, FIRST),
    Mistake(
        f"infer {SETUP} --previous fabric.yaml", 2, "fabric.yaml:1: not JSON", "`hyperscout infer -o json`"
    ),
    Mistake(f"infer {SETUP} --blueprint bad.yaml", 2, "bad.yaml:3: not YAML", "expected node content"),
    Mistake("tree --topology fabric.txt", 2, DUMP, FIRST),
    Mistake("tree --topology -", 2, DUMP, "--ibnetdiscover - -o json", stdin="fabric.txt"),
    Mistake("tree --topology broken.json", 2, "broken.json:2: not JSON", "`hyperscout infer -o json`"),
    Mistake("tree --topology binary.bin", 2, "binary.bin:1: not JSON", "`hyperscout infer -o json`"),
    Mistake("tree fabric.json", 2, "unexpected argument 'fabric.json'", "use --topology fabric.json"),
    Mistake("diff fabric.txt", 2, DUMP, FIRST),
    Mistake("diff a b c", 2, "at most two saved topologies", "or --hypernodes or --blueprint"),
    Mistake("diff fabric.json --hypernodes x.yaml", 2, "not both", "give at most two saved topologies"),
    Mistake(
        "diff --hypernodes empty.txt --topology fabric.json", 2, "no HyperNode found", "expected objects"
    ),
    Mistake(
        "diff --hypernodes bad.yaml --topology fabric.json",
        2,
        "bad.yaml:3: not YAML",
        "expected node content",
    ),
    Mistake(
        "diff --hypernodes cluster --topology fabric.json --kubeconfig nowhere",
        2,
        "nowhere: No such file",
        "give --kubeconfig FILE",
    ),
    Mistake("snapshot load fabric.txt", 2, DUMP, FIRST),
    Mistake("snapshot save folder/no/x --topology fabric.json", 1, "cannot be written", "name another file"),
    Mistake("snapshot load fabric.json --data-dir d -o json", 2, "-o and --data-dir", "give one of them"),
    Mistake("tree --topology unnamed.json -o slurm-tree", 0, "1 host is left out", "--node-map", out=True),
    Mistake("doctor --replay nowhere", 2, "No such file or directory", "check the path"),
    Mistake("doctor --replay binary.bin", 2, "binary.bin: not UTF-8", "hyperscout status --event-log"),
    Mistake("doctor --replay notes.txt", 2, "notes.txt: line 1", "hyperscout status --event-log"),
    Mistake("crd columns --kubeconfig nowhere", 2, "nowhere: No such file", "give --kubeconfig FILE"),
    Mistake("crd columns --kubeconfig kubeconfig", 2, "no credentials", "give --kubeconfig FILE"),
]
PLACING = [
    Mistake("place --topology fabric.txt --workers 1", 2, DUMP, FIRST),
    Mistake("place --topology - --workers 1", 2, DUMP, "and give fabric.json", stdin="fabric.txt"),
    Mistake("place fabric.json --workers 1", 2, "unexpected argument", "use --topology fabric.json"),
    Mistake(PLACE, 2, "give --workers N", "or --request FILE"),
    Mistake(f"{PLACE} --workers x", 2, "'x': expected a whole number", "from 1 to 1000000"),
    Mistake(f"{PLACE} --workers 0", 2, "'0': expected a whole number", "from 1 to 1000000"),
    Mistake(f"{PLACE} --workers 9", 3, "9 workers are requested", "must be freed"),
    Mistake(
        "place --topology no-gpus.json --workers 1 --gpus-per-worker 8",
        3,
        "no node that accepts work has any nvidia.com/gpu",
        "request what the nodes have",
    ),
    Mistake(
        f"{PLACE} --capacity capacity.json --workers 1 --gpus-per-worker 8",
        3,
        "no node that accepts work has any nvidia.com/gpu",
        "request what the nodes have",
    ),
    Mistake("place --topology unnamed.json --workers 1", 3, "1 host is left out", "--include-unnamed"),
    Mistake("place --workers 1 --include-unnamed", 2, "--include-unnamed needs --topology", "node_map"),
    Mistake(
        "place --workers 1 --capacity capacity.json", 2, "--capacity needs --topology", "collector knows"
    ),
    Mistake("completion", 2, "Missing argument", "`hyperscout completion fish"),
    Mistake("place --workers 1 --reserve", 2, "--reserve needs --gang NAME", "the name releases"),
    Mistake("place --workers 1 --expires 1h", 2, "--expires needs --reserve", "a dry run reserves nothing"),
    Mistake("place --workers 1 --expires 5x", 2, "'5x': expected a duration", "such as 10s, 5m or 2h"),
    Mistake(f"{PLACE} --workers 1 --collector c:1", 2, "--topology and --collector", "give one of them"),
    Mistake(f"{PLACE} --workers 1 --gang g", 2, "need a collector", "a file has no reservations"),
    Mistake(f"{PLACE} --request request.json", 2, "no field 'cuont'", "expected count, resources"),
    Mistake(f"{PLACE} --request request.json --workers 1", 2, "--request and --workers", "give one of them"),
    Mistake(f"{PLACE} --workers 4 --spread x", 2, "--spread x: expected MOST:TIER", "such as 8:leaf"),
    Mistake(f"{PLACE} --workers 4 --group-size 2", 2, "--group-size and --group-tier", "as many of each"),
    Mistake(
        f"{PLACE} --workers 1 --highest-tier-allowed rack",
        2,
        "no tier 'rack'",
        "the tiers are 0 (node), 1 (leaf)",
    ),
    Mistake(f"{PLACE} --workers 1 --avoid nope", 2, "--avoid: 'nope'", "expected the name of a node"),
]
WORDS = [
    Mistake("nodes", 2, "no such command 'nodes'", "use `hyperscout get nodes`"),
    Mistake("switch", 2, "no such command 'switch'", "use `hyperscout get switches`"),
    Mistake("help", 2, "no such command 'help'", "use `hyperscout --help`"),
    Mistake("topology", 2, "no such command 'topology'", "use `hyperscout tree`"),
    Mistake("Status", 2, "no such command 'Status'", "use `hyperscout status`"),
    Mistake("statsu", 2, "no such command 'statsu'", "did you mean 'status'?"),
    Mistake("xyzzy", 2, "no such command 'xyzzy'", "`hyperscout --help` lists the commands"),
    Mistake("placements lst", 2, "no such command 'lst'", "did you mean 'list'?"),
    Mistake("measure stop", 2, "no such command 'stop'", "`hyperscout measure --help` lists the commands"),
    Mistake("status --colector c:1", 2, "--colector", "--collector"),
    Mistake("status now", 2, "unexpected argument 'now'", "`hyperscout status --help`"),
    Mistake("get", 2, "Missing argument 'KIND'", "for example `hyperscout get hypernodes`"),
    Mistake("tree --topology empty.json", 0, "no hypernodes found", "hypernodes"),
    Mistake("get nodez", 2, "no such kind: 'nodez'", "did you mean 'node'?"),
    Mistake("get nodes --topology fabric.json --collector a:1", 2, "--topology and", "give one of them"),
    Mistake("--collector a:1 get nodes --topology fabric.json", 2, "--topology and", "give one of them"),
    Mistake("get nodes --collector localhost", 2, "expected host:port", "such as localhost:50051"),
    Mistake("--timeout 5 get nodes", 2, "no such option --timeout before", "come after its name"),
    Mistake("approve", 2, "'GENERATION'", "for example `hyperscout approve 42`"),
    Mistake(
        "get nodes nope* --topology fabric.json", 1, "begins with 'nope'", "`hyperscout get nodes` lists"
    ),
    Mistake("get nodes n-[1-99] --topology fabric.json", 1, "named n-[1-99]: expected its name", "lists all"),
    Mistake("get findings --topology fabric.json", 2, "findings need a collector", "without --topology"),
    Mistake("get nodes n1 --at 2h --topology fabric.json", 2, "--at needs a collector", "has no history"),
    Mistake(
        "get nodes nope --topology fabric.json", 1, "no node named 'nope'", "`hyperscout get nodes` lists all"
    ),
    Mistake("describe node", 2, "expected a name after 'node'", "`hyperscout get nodes` lists all"),
    Mistake("describe n01", 2, "cannot describe 'n01'", "one of the kinds hypernodes, nodes"),
    Mistake("watch nodes", 2, "cannot watch 'nodes'", "repeat `hyperscout get nodes`"),
    Mistake("explain n01", 2, "expected two nodes, not 1", "name A and B"),
    Mistake("explain n01 n[02", 2, "n[02", "double quotes"),
    Mistake(
        "explain n01 nope --topology fabric.json",
        1,
        "no node 'nope'",
        "`hyperscout get nodes --topology fabric.json` lists",
    ),
    Mistake("completion tcsh", 2, "'tcsh' is not one of", "'bash'"),
    Mistake("approve latest", 2, "'latest': expected", "a whole number from 1"),
    Mistake("history --kind x", 2, "unknown kind 'x'", "expected one of AnomalyAppeared"),
    Mistake("history --since 2", 2, "'2': expected an age", "15m, 2h"),
    Mistake("history --net --flaps", 2, "contradict each other", "give one of them"),
    Mistake("status --timeout 10x", 2, "'10x': expected a duration", "10s, 5m or 2h (0.001s to 1h)"),
    Mistake("status --wait-timeout -1s", 2, "'-1s': expected a duration", "10s, 5m or 2h"),
    Mistake("status --for nodes/n1", 2, "'nodes/n1': expected ready", "node/NAME"),
    Mistake("status --event-log x --wait", 2, "cannot be used with --wait", "call status twice"),
    Mistake("measure nccl a --limit 2h", 2, "'2h': expected a duration", "(1s to 1h)"),
    Mistake("measure nccl a --size x", 2, "'x': expected 4 B to 16 GiB", "such as 8, 1K or 64M"),
    Mistake("measure nccl a b c", 2, "name one node", "or two different nodes"),
    Mistake("doctor n1 --config x", 2, "--config is for checks of this node", "leave NODE out"),
    Mistake("doctor n[1-2]", 2, "2 nodes", "give one"),
    Mistake("doctor --collector c:1", 2, "--collector needs NODE", "HYPERSCOUT_COLLECTOR"),
    Mistake("placements repair --failed n1", 2, "Missing argument 'GANG'", "give it before --failed"),
]
REACHING = [
    Mistake("status --collector http://10.0.0.1:50080", 2, "without http://", "50080 is REST's"),
    Mistake("status", 2, "without http://", "127.0.0.1:50051", env={"HYPERSCOUT_COLLECTOR": "https://c"}),
    Mistake("status --collector c", 2, "collector address 'c'", "expected host:port"),
    Mistake("status --collector 10.0.0.1:50051", 2, "the stream is not encrypted", "--insecure"),
    Mistake("status --collector 10.0.0.1:1 --token-file t", 2, "never sent in the clear", "--tls-ca"),
    Mistake("status --tls-cert a.crt", 2, "--tls-cert and --tls-key", "give both or neither"),
    Mistake("status --tls-server-name x", 2, "need --tls-ca", "give it too"),
    Mistake("status --tls-ca nowhere", 2, "nowhere: No such file", "check the path"),
    Mistake("status --tls-ca notes.txt", 2, "notes.txt: no certificates in PEM", "give the CA's file"),
    Mistake("status --collector c:1 --namespace x", 2, "--collector and --namespace", "give one of them"),
]


@pytest.mark.parametrize(
    "mistake", [*FILES, *PLACING, *WORDS, *REACHING], ids=lambda x: f"{x.arguments} {x.stdin}".strip()
)
def test_a_mistake_is_named_with_its_next_step(
    run: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mistake: Mistake
) -> None:
    monkeypatch.chdir(tmp_path)
    write_files(tmp_path)
    deny_secrets(monkeypatch)
    monkeypatch.setattr(files, "SILENT_S", 0.0)
    for name, value in mistake.env.items():
        monkeypatch.setenv(name, value)
    stdin = (tmp_path / mistake.stdin).read_bytes() if mistake.stdin else b""
    mistake.check(run(*mistake.arguments.split(), stdin=stdin))


READERS = [
    *(f"infer {option}" for option in OF_EVIDENCE),
    *(f"infer {SETUP} {option}" for option in ("--node-map", "--nodes", "--previous", "--blueprint")),
    "tree --topology",
    "diff fabric.json",
    "diff --topology fabric.json --hypernodes",
    "diff --topology fabric.json --blueprint",
    "snapshot load",
    "place --workers 1 --topology",
    f"{PLACE} --workers 1 --capacity",
    f"{PLACE} --request",
    "doctor --replay",
    "collector --config",
    "agent --config",
]
DAMAGED = ("nowhere", "folder", "secret.txt", "binary.bin", "damaged.gz", "pipe")


@pytest.mark.parametrize("command", READERS)
@pytest.mark.parametrize("file", DAMAGED)
def test_every_option_refuses_a_bad_file_with_its_name(
    run: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, file: str
) -> None:
    monkeypatch.chdir(tmp_path)
    write_files(tmp_path)
    deny_secrets(monkeypatch)
    monkeypatch.setattr(files, "SILENT_S", 0.0)
    ran = run(*command.split(), file)
    assert ran.code == 2
    assert file in ran.err
    assert not any(noise in ran.err for noise in NOISE)


def test_a_dry_run_of_a_named_gang_is_said(run: CommandLine) -> None:
    ran = run("place", "--workers", 1, "--gang", "g", "--collector", "c")
    assert "dry run: nothing is reserved: --reserve reserves the nodes for 'g'\n" in ran.err
