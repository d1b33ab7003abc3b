"""The JSON Schema of device messages. Incoming messages are checked against this object.

Its fields are those of the wire contract's messages, under protobuf's JSON names, so the two cannot disagree.
Source: JSON Schema, draft 2020-12; protobuf's JSON mapping (protobuf.dev, "ProtoJSON Format").
"""

from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from hyperscout.v1.discovery_pb2 import FindingBatch
from hyperscout.v1.finding_pb2 import InfinibandPort, LldpPort, SwitchPort
from hyperscout_mqtt.envelope import SCHEMA_VERSION

from hyperscout_collector.evidence.rows import MAX_NAME_CHARS, MAX_REASON_CHARS

Schema = dict[str, Any]

TIME = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-][0-9]{2}:[0-9]{2})$"
_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_MAX_FINDINGS = 4096
_MAX_ITEMS = 256
_MAX_TEXT = 1024


def top(name: str, title: str, body: Schema) -> Schema:
    """Returns a complete schema document."""
    return {
        "$schema": _DIALECT,
        "$id": f"urn:hyperscout:mqtt:v{SCHEMA_VERSION}:{name}",
        "title": title,
    } | body


_ABOUT = {
    "FindingBatch.findings": "newest look at each port; keys that were told before and are not here stay",
    "FindingBatch.removed": "keys that are no more, as a port that was taken out",
    "FindingBatch.full_state_ends": "true: this is all there is; keys of this device that are not here go",
    "FindingBatch.sent_at": "when this was sent, by the device's clock: with it ages are right whatever that "
    "clock says; left out, the clocks are taken to agree",
    "FindingKey.node": "the device's own name: what mqtt_devices says of this topic",
    "FindingKey.probe": '"switch" where a switch reports, "device" where a device in a node does',
    "FindingKey.subject": "what was looked at, unique for this device: its port",
    "Finding.key": "identity; a newer finding with the same key takes the place of the older one",
    "Finding.observed_at": "when it was seen, by the device's clock",
    "Finding.outcome": "DATA: the payload says what is there; NOTHING: it looked, and nobody is there; "
    "FAILED: it could not look, and what was known stays known",
    "Finding.reason": "of NOTHING and FAILED: why",
    "Finding.lldp": "one port of a device in a node, and who is heard on it",
    "Finding.infiniband": "one port of an RDMA device in a node",
    "Finding.switch_port": "one port of this switch, and who is heard on it",
    "interface": "name of the port",
    "mac": "permanent address, lower-case hex with colons",
    "carrier": "whether the link is up",
    "speed_mbps": "megabits per second; 0 = unknown, or no carrier",
    "carrier_changes": "times that the carrier changed since the port appeared",
    "neighbours": "who is heard by LLDP (IEEE 802.1AB) on it",
    "counters": "what went wrong since the port appeared; numbers that only grow",
    "chassis_id_subtype": "mac, ifname, ifalias, ip, local, or unhandled (the id is bytes in hex)",
    "chassis_id": "a MAC address is lower-case hex with colons, everything else as it was sent",
    "port_id_subtype": "mac, ifname, ifalias, ip, local, or unhandled",
    "port_id": "as chassisId",
    "ttl_s": "seconds that what was heard is good for",
    "port_description": "for people; no identity",
    "system_name": "for people; no identity",
    "system_description": "for people; no identity",
    "management_addresses": "IPv4 and IPv6",
    "capabilities": "enabled ones: Bridge, Router, Station, Wlan, Repeater, Tel, Docsis, Other",
    "doubt": "what is uncertain about it, in words that follow the port's name",
    "rx_errors": "packets received with errors",
    "rx_crc_errors": "packets received with a wrong checksum",
    "rx_dropped": "packets received and dropped",
    "tx_errors": "packets that could not be sent",
    "tx_dropped": "packets dropped before they were sent",
    "device": "name of the RDMA device",
    "port": "number of its port",
    "node_guid": "64 bits; as a text where the writer's numbers have fewer",
    "port_guid": "64 bits; 0 for RoCE",
    "system_image_guid": "64 bits",
    "state": "ACTIVE, DOWN, INIT, ARMED",
    "physical_state": "LinkUp, Polling, Disabled ...",
    "rate_gbps": "gigabits per second",
    "lid": "local identifier",
    "sm_lid": "that of the subnet manager",
    "node_description": "for people; no identity",
    "link_layer": "InfiniBand or Ethernet",
    "board_id": "PSID of the board",
    "link_downed": "times that the link failed and was retrained",
}
# Not used in a message: the broker keeps the order, and texts travel by stream only.
_LEFT_OUT = frozenset({"FindingBatch.sequence"})
_PAYLOADS = ("lldp", "infiniband", "switch_port")
_REQUIRED = {
    "FindingBatch": ("findings",),
    "Finding": ("key", "observedAt", "outcome"),
    "FindingKey": ("node", "probe", "subject"),
}
_BITS = {
    FieldDescriptor.TYPE_UINT32: 32,
    FieldDescriptor.TYPE_UINT64: 64,
    FieldDescriptor.TYPE_FIXED64: 64,
}


def _of_message(descriptor: Descriptor) -> Schema:
    properties = {
        field.json_name: _of_field(field)
        for field in descriptor.fields
        if f"{descriptor.name}.{field.name}" not in _LEFT_OUT
        and (descriptor.name != "Finding" or field.containing_oneof is None or field.name in _PAYLOADS)
    }
    found: Schema = {"type": "object", "properties": properties, "additionalProperties": False}
    if required := _REQUIRED.get(descriptor.name):
        found["required"] = list(required)
    if descriptor.name == "Finding":
        names = [name for name in properties if name in ("lldp", "infiniband", "switchPort")]
        pairs = [[a, b] for i, a in enumerate(names) for b in names[i + 1 :]]
        found["allOf"] = [{"not": {"required": pair}} for pair in pairs]
    return found


def _of_field(field: FieldDescriptor) -> Schema:
    owner = _name(field.containing_type)
    about = _ABOUT.get(f"{owner}.{field.name}") or _ABOUT[field.name]
    one = _of_value(field, owner)
    if not field.is_repeated:
        return one | {"description": about}
    most = _MAX_FINDINGS if owner == "FindingBatch" else _MAX_ITEMS
    return {"type": "array", "items": one, "maxItems": most, "description": about}


def _of_value(field: FieldDescriptor, owner: str) -> Schema:
    if field.message_type is not None:
        if field.message_type.full_name == "google.protobuf.Timestamp":
            return {"type": "string", "pattern": TIME}
        return {"$ref": f"#/$defs/{field.message_type.name}"}
    if field.enum_type is not None:
        return {"enum": [value.name for value in field.enum_type.values if value.number]}
    if (bits := _BITS.get(field.type)) is not None:
        number: Schema = {"type": "integer", "minimum": 0, "maximum": 2**bits - 1}
        # Protobuf's JSON mapping writes 64-bit numbers as strings, for readers whose numbers have 53 bits.
        return number | ({"type": ["integer", "string"], "pattern": "^[0-9]{1,20}$"} if bits == 64 else {})
    if field.type == FieldDescriptor.TYPE_DOUBLE:
        return {"type": "number", "minimum": 0, "maximum": 1e9}
    if field.type == FieldDescriptor.TYPE_BOOL:
        return {"type": "boolean"}
    if owner == "FindingKey":
        return {"type": "string", "minLength": 1, "maxLength": MAX_NAME_CHARS}
    return {"type": "string", "maxLength": MAX_REASON_CHARS if field.name == "reason" else _MAX_TEXT}


def _name(descriptor: Descriptor | None) -> str:
    return descriptor.name if descriptor is not None else ""


def _definitions() -> Schema:
    found: Schema = {}
    waiting: list[Descriptor | None] = [
        LldpPort.DESCRIPTOR,
        InfinibandPort.DESCRIPTOR,
        SwitchPort.DESCRIPTOR,
    ]
    waiting += [FindingBatch.DESCRIPTOR.fields_by_name[name].message_type for name in ("findings", "removed")]
    while waiting:
        descriptor = waiting.pop(0)
        if descriptor is None or descriptor.name in found or descriptor.file.package != "hyperscout.v1":
            continue
        found[descriptor.name] = _of_message(descriptor)
        if descriptor.name != "Finding":
            waiting += [f.message_type for f in descriptor.fields if f.message_type is not None]
    return found


FINDINGS = top(
    "findings",
    "What a device reports at PREFIX/findings/TOPIC: hyperscout.v1.FindingBatch as JSON",
    {"description": "up to 1 MiB; more findings go into several messages"}
    | _of_message(FindingBatch.DESCRIPTOR)
    | {"$defs": _definitions()},
)
