"""The current leader of a partition, in answers of Fetch and Produce that refuse to serve it.

    of a partition   tag 1 (Fetch), 0 (Produce)   leader id int32, leader epoch int32, tags
    of the answer    tag 0                        array of (id int32, host, port int32, rack, tags)

Source: KIP-951.
"""

import struct
from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

from storage_engine.protocol.apis.fields import int32, name, nullable_name
from storage_engine.protocol.apis.struct_codec import lay_out, read_struct, write_struct
from storage_engine.protocol.apis.wire import Reader, Writer

CurrentLeader = tuple[int, int]
"""The id of the leader, and its leader epoch."""

_NODES_TAG = 0
_LEADER = struct.Struct(">iib")
_LEAST_NODE_BYTES = 11


class LeaderNode(NamedTuple):
    """The address of a broker that leads, at the client's listener."""

    broker_id: int
    host: str
    port: int
    rack: str | None = None


lay_out(LeaderNode, broker_id=int32(), host=name(), port=int32(), rack=nullable_name())


def encode_leader(leader: CurrentLeader) -> bytes:
    """Encode the value of a partition's tagged field."""
    return _LEADER.pack(*leader, 0)


def decode_leader(value: memoryview) -> CurrentLeader:
    leader_id, leader_epoch, _ = _LEADER.unpack_from(value)
    return leader_id, leader_epoch


def encode_nodes(nodes: Sequence[LeaderNode]) -> bytes:
    """Encode the tagged fields of a whole answer."""
    if not nodes:
        return b"\x00"
    value = Writer(flexible=True)
    value.count(len(nodes))
    for node in nodes:
        write_struct(value, 0, node)
    writer = Writer(flexible=True)
    writer.tags([(_NODES_TAG, bytes(value.data))])
    return bytes(writer.data)


def decode_nodes(tags: Mapping[int, memoryview]) -> Sequence[LeaderNode]:
    """Decode the leaders' addresses in the tagged fields of a whole answer."""
    tag = tags.get(_NODES_TAG)
    if tag is None:
        return ()
    reader = Reader(tag, flexible=True)
    nodes = reader.array(_LEAST_NODE_BYTES, partial(read_struct, LeaderNode, 0, reader))
    reader.finish()
    return nodes
