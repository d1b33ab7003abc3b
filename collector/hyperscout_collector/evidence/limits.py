"""Limits of one finding and of one reporter, in bytes of memory after decoding.

The encoded size says little about the decoded size: an empty element takes two bytes in a message and
hundreds of bytes as an object. Elements are therefore counted, before anything else reads the finding.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message
from hyperscout.v1.finding_pb2 import Finding
from hyperscout_formats.facts.shared_fields import one_number
from hyperscout_formats.text.reporters import is_fabric

from hyperscout_collector.evidence.rows import BadFinding

_MIB = 1024 * 1024
MAX_ENCODED_BYTES: Final = 256 * 1024  # of a finding; the limit of an agent
MAX_DECODED_BYTES: Final = 4 * _MIB  # of a finding; the largest of an agent, with 700 peers, takes 2.6 MiB
_ROW_BYTES = 1024
_ELEMENT_BYTES = 256
_BYTES_PER_ENCODED = 4  # a text of a few bytes is an object of 50


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of the evidence, for all reporters and for each one.

    Bytes are those of decoded findings in memory, and of texts as they are stored. What a reporter sends
    above its limits is refused, so it takes nothing from the others.
    """

    nodes: int = 100_000  # ten times the largest cluster of the performance budgets
    findings_per_node: int = 4096  # the limit of an agent
    bytes_per_node: int = 64 * _MIB  # an agent holds 32 MiB of texts; its largest findings take 2.6 MiB each
    findings_of_devices: int = 512  # in one node; the rest of its findings is for the node's agent
    bytes_per_fabric_agent: int = 512 * _MIB  # of an agent that reports all switches

    def bytes_of(self, reporter: str) -> int:
        return self.bytes_per_fabric_agent if is_fabric(reporter) else self.bytes_per_node

    def bytes_of_devices(self, node: str) -> int:
        """Returns the limit for the devices in a node. The rest is for the node's agent."""
        return self.bytes_of(node) // 4


def decoded_bytes(finding: Finding) -> int:
    """Returns the estimated memory of a finding in the evidence. Raises BadFinding if it is too much.

    It stops counting at the limit, so it takes milliseconds at most.
    """
    encoded = finding.ByteSize()
    if encoded > MAX_ENCODED_BYTES:
        raise BadFinding(f"{encoded} bytes; a finding has at most {MAX_ENCODED_BYTES}")
    base = _ROW_BYTES + _BYTES_PER_ENCODED * encoded
    most = (MAX_DECODED_BYTES - base) // _ELEMENT_BYTES
    payload = finding.WhichOneof("payload")
    elements = _elements(getattr(finding, payload), most) if payload is not None else 0
    if elements > most:
        raise BadFinding(
            f"its lists have {elements} elements or more; a finding of its size has at most {most}"
        )
    found: int = one_number(base + _ELEMENT_BYTES * elements)
    return found


def _elements(message: Message, most: int) -> int:
    """Returns the number of elements in all lists of a message, at any depth; above `most` it may stop."""
    count = 0
    lists, messages = _lists(message.DESCRIPTOR)
    for name, has_lists in lists:
        inner: Any = getattr(message, name)
        count += len(inner)
        if has_lists:
            for one in inner:
                if count > most:
                    return count
                count += _elements(one, most - count)
    for name in messages:
        if message.HasField(name):
            count += _elements(getattr(message, name), most - count)
    return count


@lru_cache(maxsize=256)
def _lists(kind: Descriptor) -> tuple[tuple[tuple[str, bool], ...], tuple[str, ...]]:
    """Returns the lists of a kind of message, with whether their elements have lists.

    And the fields of single messages that have lists.
    """
    lists, messages = [], []
    for field in kind.fields:
        inner = field.message_type
        if field.is_repeated:
            lists.append((field.name, inner is not None and any(_lists(inner))))
        elif inner is not None and any(_lists(inner)):
            messages.append(field.name)
    return tuple(lists), tuple(messages)
