"""Mistakes on the command line: rows of arguments, exit code, and words of the cause and the next step."""

import errno
import gzip
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from hyperscout_sim.fabric import shapes
from hyperscout_sim.readings.sweep_text import sweep_text
from hyperscout_topology.objects import to_json

from support.command_line import Ran
from support.topologies import leaves, two_leaves

GUID = "0002c9030005f340"
FABRIC = shapes.clos2(2, 4, 2)
# What a message must not contain: names and sentences of libraries, and traces.
NOISE = ("Traceback", "Value error", "pydantic", "Input should", "Errno", "EnvSettingsSource", "StatusCode")


@dataclass(frozen=True)
class Mistake:
    """`arguments`: the command line, split at blanks. `out`: whether the command also prints data."""

    arguments: str
    code: int
    cause: str
    step: str
    stdin: str = ""  # name of a file
    env: Mapping[str, str] = field(default_factory=dict)
    out: bool = False

    def __post_init__(self) -> None:
        assert len(self.step) > 5, f"{self.arguments}: {self.step!r} may be in any message"

    def check(self, ran: Ran) -> None:
        """Assert that the command ended as this row says."""
        assert ran.code == self.code, ran
        for words in (self.cause, self.step):
            assert words in ran.err, ran.err
        for noise in NOISE:
            assert noise not in ran.err, ran.err
        assert self.out or not ran.out, ran.out


def write_files(folder: Path) -> None:
    """The files that rows name."""
    dump = sweep_text(FABRIC)
    switches, _, _ = dump.partition(b"caguid=")
    saved = two_leaves()
    texts: dict[str, bytes | str] = {
        "fabric.txt": dump,
        "switches.txt": b"\n".join(x for x in switches.split(b"\n") if b'"H-' not in x),
        "fabric.json": json.dumps(to_json(saved)),
        "unnamed.json": json.dumps(to_json(leaves((GUID,)))),
        "no-gpus.json": json.dumps(to_json(replace(saved, devices={"n01": {"example.com/nic": 1}}))),
        "broken.json": '{"hypernodes": [\n',
        "fabric.yaml": "hypernodes: []\n",
        "empty.txt": "",
        "empty.json": '{"hypernodes": []}',
        "binary.bin": bytes(range(256)) * 4,
        "damaged.gz": gzip.compress(dump)[:200],
        "smi.xml": '<?xml version="1.0" ?>\n<nvidia_smi_log>\n</nvidia_smi_log>\n',
        "lldp.json": '{"lldp": []}\n',
        "pairs.csv": "node_a,node_b,rtt_us\na,b,5\n",
        "walk.txt": ".1.0.8802.1.1.2.1.3.3.0 = STRING: leaf-1\n",
        "notes.txt": "the cable plan of row 7\n",
        "others.txt": "some-other-node\n",
        "capacity.json": '{"n01": {"workers": "1"}}',
        "request.json": '{"parts": [{"workers": {"cuont": 4}}]}',
        "bad.yaml": "settle_s: 3\nlisten: [\n",
        "binary.yaml": b"settle_s: 3\nhold_s: \x00\n",
        "list.yaml": "- settle_s\n",
        "typo.yaml": "setle_s: 3\n",
        "unit.yaml": "settle_s: 10s\n",
        "low.yaml": "evidence_max_mib: 0\n",
        "word.yaml": "log_level: verbose\n",
        "yes.yaml": "insecure: perhaps\n",
        "group.yaml": "lldp: {sorce: auto}\n",
        "flat.yaml": "lldp: auto\n",
        "role.yaml": "role: swich\n",
        "kubeconfig": "clusters: [\n",
    }
    for name, text in texts.items():
        (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    (folder / "folder").mkdir()
    (folder / "secret.txt").write_bytes(b"x")
    os.mkfifo(folder / "pipe")


def deny_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make secret.txt unreadable: the tests run as root, which may read all files."""
    opened = os.open

    def open_(path: object, *more: int, **named: int) -> int:
        if str(path).endswith("secret.txt"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return opened(path, *more, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", open_)
