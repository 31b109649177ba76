"""A broker for foreign clients that is nothing but our codecs: one partition in memory.

It keeps what it was asked, so that a test sees which versions a client used.
"""

import socket
import struct
import threading
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any
from uuid import UUID

from storage_engine.core.errors import ErrorCode
from storage_engine.protocol.apis import api_versions, list_offsets, metadata
from storage_engine.protocol.apis.fetch import FetchPartitionResponse, FetchResponse
from storage_engine.protocol.apis.produce import ProducePartitionResponse, ProduceResponse
from storage_engine.protocol.apis.registry import SERVED_RANGES, spec_for
from storage_engine.protocol.apis.spec import VersionRange
from storage_engine.protocol.framing import encode_response_frame, parse_request_header
from storage_engine.protocol.messages import init_producer_id
from storage_engine.protocol.messages.create_partitions import CreatePartitionsResponse
from storage_engine.protocol.messages.create_topics import CreateTopicsResponse
from storage_engine.protocol.messages.delete_records import DeleteRecordsResponse
from storage_engine.protocol.messages.delete_topics import DeleteTopicsResponse
from storage_engine.protocol.messages.describe_cluster import DescribeClusterResponse
from storage_engine.protocol.messages.describe_configs import DescribeConfigsResponse
from storage_engine.protocol.messages.find_coordinator import FindCoordinatorResponse
from storage_engine.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsResponse,
)
from storage_engine.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochResponse
from storage_engine.tests.protocol.apis.buffers import joined

TOPIC = "flights"
TOPIC_ID = UUID(int=7)
LAST_OFFSET_DELTA_AT = 23


class FakeBroker:
    """Serves until it is closed; a thread per connection."""

    def __init__(self, ranges: Mapping[int, VersionRange] = SERVED_RANGES) -> None:
        self.ranges = {key: ranges[key] for key in _HANDLERS}
        self.asked: list[tuple[int, int, Any]] = []
        """(api key, version, request) in the order of arrival."""
        self.batches: list[tuple[int, bytes]] = []
        self.end_offset = 0
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._sockets: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def versions_asked(self, key: int) -> set[int]:
        return {version for asked, version, _ in self.asked if asked == key}

    def __enter__(self) -> "FakeBroker":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # `shutdown` wakes the thread in `accept`, which `close` alone does not
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for each in self._sockets:
            each.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._sockets.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            with connection, connection.makefile("rb") as stream:
                while size := stream.read(4):
                    frame = memoryview(stream.read(struct.unpack(">i", size)[0]))
                    if answer := self._answer(frame):
                        connection.sendall(answer)
        except OSError:
            pass

    def _answer(self, frame: memoryview) -> bytes:
        header, body = parse_request_header(frame)
        key, version = header.api_key, header.api_version
        spec = spec_for(key)
        if key == api_versions.API.key and version not in self.ranges[key]:
            unsupported = api_versions.unsupported_version_response()
            return joined(encode_response_frame(spec, 0, header.correlation_id, unsupported))
        assert version in self.ranges[key], f"{spec.name} {version} was not advertised"
        request = spec.decode_request(version, body)
        with self._lock:
            self.asked.append((key, version, request))
            answer = _HANDLERS[key](self, request)
        return joined(encode_response_frame(spec, version, header.correlation_id, answer))

    def _api_versions(self, request: Any) -> Any:
        return api_versions.ApiVersionsResponse.of(self.ranges)

    def _metadata(self, request: metadata.MetadataRequest) -> Any:
        partition = metadata.MetadataPartition(
            partition=0, leader=1, replicas=[1], isr=[1], leader_epoch=0
        )
        names = [TOPIC] if request.topics is None else request.topics
        return metadata.MetadataResponse(
            brokers=[
                metadata.MetadataBroker(broker_id=1, host="127.0.0.1", port=self.port, rack="r1")
            ],
            topics=[
                metadata.MetadataTopic(topic=name, topic_id=TOPIC_ID, partitions=[partition])
                for name in names
            ],
            controller_id=1,
            cluster_id="fake",
        )

    def _produce(self, request: Any) -> Any:
        (partition,) = request.partitions
        base_offset = self.end_offset
        batch = bytearray(partition.records)
        struct.pack_into(">q", batch, 0, base_offset)
        self.batches.append((base_offset, bytes(batch)))
        self.end_offset += struct.unpack_from(">i", batch, LAST_OFFSET_DELTA_AT)[0] + 1
        topic, index, _ = partition
        return ProduceResponse([ProducePartitionResponse(topic, index, 0, base_offset, -1, 0)])

    def _fetch(self, request: Any) -> Any:
        return FetchResponse(
            [
                FetchPartitionResponse(
                    asked.topic,
                    asked.partition,
                    high_watermark=self.end_offset,
                    last_stable_offset=self.end_offset,
                    log_start_offset=0,
                    records=b"".join(
                        batch
                        for base_offset, batch in self.batches
                        if base_offset + struct.unpack_from(">i", batch, LAST_OFFSET_DELTA_AT)[0]
                        >= asked.fetch_offset
                    ),
                )
                for asked in request.partitions
            ]
        )

    def _list_offsets(self, request: Any) -> Any:
        return list_offsets.ListOffsetsResponse(
            [
                list_offsets.ListOffsetsPartitionResponse(
                    topic,
                    partition,
                    offset=0 if timestamp == list_offsets.EARLIEST_TIMESTAMP else self.end_offset,
                    leader_epoch=0,
                )
                for topic, partition, timestamp, _ in request.partitions
            ]
        )

    def _init_producer_id(self, request: Any) -> Any:
        return init_producer_id.InitProducerIdResponse(producer_id=4000, producer_epoch=0)

    def _find_coordinator(self, request: Any) -> Any:
        where = {"node_id": 1, "host": "127.0.0.1", "port": self.port, "error_code": 0}
        return FindCoordinatorResponse(
            **where,
            coordinators=[
                FindCoordinatorResponse.Coordinator(key=key, error_message=None, **where)
                for key in request.coordinator_keys
            ],
        )

    def _create_topics(self, request: Any) -> Any:
        result = CreateTopicsResponse.CreatableTopicResult
        return CreateTopicsResponse(
            topics=[
                result(
                    name=topic.name,
                    error_code=ErrorCode.NONE if topic.name == TOPIC else 36,
                    error_message=None if topic.name == TOPIC else f"{topic.name} exists",
                    num_partitions=topic.num_partitions,
                    replication_factor=topic.replication_factor,
                    configs=[
                        result.CreatableTopicConfigs(
                            name=config.name,
                            value=config.value,
                            read_only=False,
                            config_source=1,
                            is_sensitive=False,
                        )
                        for config in topic.configs
                    ],
                )
                for topic in request.topics
            ]
        )

    def _delete_topics(self, request: Any) -> Any:
        names = request.topic_names or [topic.name for topic in request.topics]
        result = DeleteTopicsResponse.DeletableTopicResult
        return DeleteTopicsResponse(responses=[result(name=name, error_code=0) for name in names])

    def _delete_records(self, request: Any) -> Any:
        result = DeleteRecordsResponse.DeleteRecordsTopicResult
        return DeleteRecordsResponse(
            topics=[
                result(
                    name=topic.name,
                    partitions=[
                        result.DeleteRecordsPartitionResult(
                            partition_index=partition.partition_index,
                            low_watermark=partition.offset,
                            error_code=0,
                        )
                        for partition in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    def _offset_for_leader_epoch(self, request: Any) -> Any:
        result = OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult
        return OffsetForLeaderEpochResponse(
            topics=[
                result(
                    topic=topic.topic,
                    partitions=[
                        result.EpochEndOffset(
                            error_code=0,
                            partition=partition.partition,
                            leader_epoch=partition.leader_epoch,
                            end_offset=self.end_offset,
                        )
                        for partition in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    def _describe_configs(self, request: Any) -> Any:
        result = DescribeConfigsResponse.DescribeConfigsResult
        setting = result.DescribeConfigsResourceResult(
            name="retention.ms",
            value="7",
            read_only=False,
            config_source=1,
            is_sensitive=False,
            synonyms=[],
            config_type=5,
            documentation="how long records stay",
        )
        return DescribeConfigsResponse(
            results=[
                result(
                    error_code=0,
                    error_message=None,
                    resource_type=resource.resource_type,
                    resource_name=resource.resource_name,
                    configs=[setting],
                )
                for resource in request.resources
            ]
        )

    def _incremental_alter_configs(self, request: Any) -> Any:
        return IncrementalAlterConfigsResponse(
            responses=[
                IncrementalAlterConfigsResponse.AlterConfigsResourceResponse(
                    error_code=0,
                    error_message=None,
                    resource_type=resource.resource_type,
                    resource_name=resource.resource_name,
                )
                for resource in request.resources
            ]
        )

    def _create_partitions(self, request: Any) -> Any:
        result = CreatePartitionsResponse.CreatePartitionsTopicResult
        return CreatePartitionsResponse(
            results=[result(name=topic.name, error_code=0) for topic in request.topics]
        )

    def _describe_cluster(self, request: Any) -> Any:
        broker = DescribeClusterResponse.DescribeClusterBroker(
            broker_id=1, host="127.0.0.1", port=self.port, rack=None
        )
        return DescribeClusterResponse(cluster_id="fake", controller_id=1, brokers=[broker])


_HANDLERS: dict[int, Callable[[FakeBroker, Any], Any]] = {
    0: FakeBroker._produce,
    1: FakeBroker._fetch,
    2: FakeBroker._list_offsets,
    3: FakeBroker._metadata,
    10: FakeBroker._find_coordinator,
    18: FakeBroker._api_versions,
    19: FakeBroker._create_topics,
    20: FakeBroker._delete_topics,
    21: FakeBroker._delete_records,
    22: FakeBroker._init_producer_id,
    23: FakeBroker._offset_for_leader_epoch,
    32: FakeBroker._describe_configs,
    37: FakeBroker._create_partitions,
    44: FakeBroker._incremental_alter_configs,
    60: FakeBroker._describe_cluster,
}
