"""A cluster that only MQTT knows of: devices that report, and a reader that has nothing but the schemas."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiomqtt
import jsonschema
from google.protobuf.json_format import MessageToDict
from hyperscout.v1.discovery_pb2 import FindingBatch
from hyperscout.v1.finding_pb2 import Finding

from support.findings import called, lldp, stamp, switch_port
from support.mosquitto import Listener, Mosquitto
from support.real import ROOT

SCHEMAS = ROOT / "docs" / "schemas" / "mqtt"
# Each writes its own topic and reads its own answers, the collector everything, `reader` what is published.
ACL = """\
user collector
topic readwrite lab/#
user reader
topic read lab/hypernodes/+
topic read lab/events
topic read lab/collector
pattern write lab/findings/%u
pattern read lab/refusals/%u
"""
LEAVES = {"leaf-1": ("n1", "n2"), "leaf-2": ("n3", "n4")}
DEVICES = (
    *(f"{leaf}=switch/{leaf}" for leaf in LEAVES),
    "spine-1=switch/spine-1",
    *(f"dpu-{node}={node}" for nodes in LEAVES.values() for node in nodes),
)


def report(*findings: Finding, full: bool = False, sent_ns: int | None = None) -> dict[str, Any]:
    """A message as a device writes it."""
    batch = FindingBatch(findings=findings, full_state_ends=full)
    if sent_ns is not None:
        batch.sent_at.CopyFrom(stamp(sent_ns))
    return MessageToDict(batch)


def dpu(node: str, at_ns: int, *, neighbour: str, port: str, interface: str = "p0") -> Finding:
    return called(lldp(node, interface, at_ns, neighbour=neighbour, port=port), node, "device")


def reports(now_ns: int, *, cut: Sequence[str] = ()) -> dict[str, dict[str, Any]]:
    """What each device says, by its topic, where the cables of the nodes in `cut` are pulled."""
    found = {}
    ports: dict[str, list[Finding]] = {"spine-1": []}
    for i, (leaf, nodes) in enumerate(LEAVES.items(), 1):
        reporter = f"switch/{leaf}"
        ports[leaf] = [switch_port(reporter, "swp9", now_ns, neighbour="spine-1", port=f"swp{i}")]
        ports["spine-1"].append(switch_port("switch/spine-1", f"swp{i}", now_ns, neighbour=leaf, port="swp9"))
        for j, node in enumerate(nodes, 1):
            heard = "" if node in cut else leaf
            found[f"dpu-{node}"] = report(
                dpu(node, now_ns, neighbour=heard, port=f"swp{j}"), full=True, sent_ns=now_ns
            )
    for switch, rows in ports.items():
        found[switch] = report(*rows, full=True, sent_ns=now_ns)
    return found


async def send(broker: Mosquitto, topic: str, payload: Any, *, user: str = "", **more: Any) -> None:
    """As `mosquitto_pub -u USER -t lab/findings/TOPIC`. A payload that is no bytes is written as JSON."""
    data = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    login = {"username": user, "password": f"pw-{user}"} if user else {}
    async with aiomqtt.Client(
        "127.0.0.1", broker.port, protocol=aiomqtt.ProtocolVersion.V5, **login
    ) as client:
        await client.publish(topic, data, **{"qos": 1, **more})


def secured(broker: Mosquitto, *users: str) -> list[str]:
    """Lines of a configuration with users, whose passwords are "pw-" and their name, and `ACL`."""
    acl = broker.folder / "acl"
    acl.write_text(ACL)
    acl.chmod(0o600)
    passwords = broker.passwords(**{user: f"pw-{user}" for user in users})
    return ["allow_anonymous false", f"password_file {passwords}", f"acl_file {acl}"]


@dataclass
class Reader:
    """Knows the committed schemas and nothing else of hyperscout."""

    schemas: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for path in sorted(SCHEMAS.glob("*.schema.json")):
            schema = json.loads(path.read_text())
            jsonschema.Draft202012Validator.check_schema(schema)
            self.schemas[path.name.partition(".")[0]] = jsonschema.Draft202012Validator(schema)

    def check(self, listener: Listener) -> None:
        """Everything that was heard is as the schemas say."""
        for heard in listener.heard:
            _, room, *_ = heard.topic.split("/")
            name = {"hypernodes": "hypernode"}.get(room, room)
            if heard.payload or name != "hypernode":
                self.schemas[name].validate(json.loads(heard.payload))

    def tree(self, listener: Listener) -> dict[str, Any]:
        """HyperNodes by name, as far as a reader of Kubernetes would see them."""
        found = {}
        for topic, payload in listener.standing.items():
            _, room, *name = topic.split("/")
            if room == "hypernodes":
                state = json.loads(payload)
                assert state["name"] == name[0]
                found[state["name"]] = (
                    state["tier"],
                    state["parent"],
                    tuple(state["nodes"]),
                    {c["type"]: (c["status"], c["reason"], c["message"]) for c in state["conditions"]},
                )
        return found


def password_file(folder: Path, user: str) -> Path:
    path = folder / f"password-{user}"
    path.write_text(f"pw-{user}\n")
    path.chmod(0o600)
    return path
