"""Brokers without disk, replicas or ZooKeeper, whose every answer a test can spoil.

Each serves the client's APIs over a real socket on one event loop, from a log kept in memory that
all of them share. A `fault` looks at each request first and says what goes wrong with it.
"""

import asyncio
import enum
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import topic_id_to_text
from storage_engine.core.replication.leader_epochs import LeaderEpochCache, divergence
from storage_engine.core.typed.topic_schema import TopicSchema
from storage_engine.net.connection import Connection
from storage_engine.net.frames import Exchange
from storage_engine.net.server import Server
from storage_engine.net.serving import ServedListener
from storage_engine.protocol.apis import (
    api_versions,
    describe_schemas,
    fetch,
    list_offsets,
    produce,
)
from storage_engine.protocol.apis import metadata as metadata_api
from storage_engine.protocol.apis.current_leaders import LeaderNode
from storage_engine.protocol.apis.registry import SERVED_RANGES, spec_for
from storage_engine.protocol.framing import encode_response_frame, parse_request_header
from storage_engine.protocol.messages import init_producer_id
from storage_engine.protocol.records.record_batch import patch, read_header
from storage_engine.protocol.typed.projection import WANT_FRAMES
from storage_engine.tests.protocol.typed.in_memory import project

REMEMBERED_BATCHES = 5
TOPIC_ID_CHARACTERS = 22


class Fault(enum.Enum):
    """What goes wrong with a request besides an error code."""

    DROP = "the connection is closed, nothing is done"
    DO_AND_DROP = "it is done, and the connection is closed without an answer"
    SILENCE = "it is done, and never answered"


@dataclass
class Asked:
    """A request as a fault sees it."""

    broker_id: int
    api: str
    message: Any
    number: int
    """Of all requests of that API."""


FaultHook = Callable[[Asked], Fault | ErrorCode | None]


@dataclass
class FakePartition:
    """The one copy of a partition's log."""

    leader: int
    epoch: int = 0
    batches: list[bytes] = field(default_factory=list)
    end_offset: int = 0
    start_offset: int = 0
    readable_to: int | None = None
    """A high watermark below the end."""
    max_batch_bytes: int = 1 << 20
    errors: deque[ErrorCode] = field(default_factory=deque)
    """For the next batches, one each."""
    record_errors: Sequence[tuple[int, str | None]] = ()  # With INVALID_RECORD.
    aborted: list[tuple[int, int]] = field(default_factory=list)
    producers: dict[int, deque[tuple[int, int, int]]] = field(default_factory=dict)
    takes_any_first: bool = False
    """Whether a producer that is not known may begin with any sequence."""

    @property
    def high_watermark(self) -> int:
        return self.end_offset if self.readable_to is None else self.readable_to

    @property
    def epochs(self) -> LeaderEpochCache:
        found = LeaderEpochCache()
        for batch in self.batches:
            header = read_header(batch)
            found.assign(header.partition_leader_epoch, header.base_offset)
        found.assign(self.epoch, self.end_offset)
        return found

    def divergence(self, asked: fetch.FetchPartition) -> tuple[int, int] | None:
        """Where the log leaves what the client has read, by the epochs of the batches."""
        return divergence(
            self.epochs,
            log_end_offset=self.end_offset,
            fetch_offset=asked.fetch_offset,
            last_fetched_epoch=asked.last_fetched_epoch,
        )

    def lose_from(self, number: int) -> None:
        """The batches from that one on: a replica leads that never had them."""
        self.end_offset = read_header(self.batches[number]).base_offset
        del self.batches[number:]

    def read(self, asked: fetch.FetchPartition, schema: TopicSchema | None) -> bytes:
        """The batches, or frames of them, that a fetch gets."""
        found = bytearray()
        framed = asked.want is not None and asked.want.mode == WANT_FRAMES
        for batch in self.batches:
            header = read_header(batch)
            if header.next_offset <= asked.fetch_offset or (
                header.base_offset >= self.high_watermark
            ):
                continue
            if found and not framed and len(found) + len(batch) > asked.partition_max_bytes:
                # Kafka cuts the last batch where the limit is.
                found += batch[: asked.partition_max_bytes - len(found)]
                break
            found += batch
        if not framed:
            return bytes(found)
        assert asked.want is not None
        assert schema is not None
        projected = project(
            memoryview(found), asked.want, schema, limit_bytes=asked.partition_max_bytes
        )
        return b"".join(projected.pieces)

    def append(self, records: bytes, *, idempotent_checks: bool = True) -> tuple[ErrorCode, int]:
        data = bytearray(records)
        header = read_header(data)
        assert header.size_in_bytes == len(data), "a Produce request holds one batch per partition"
        if len(data) > self.max_batch_bytes:
            return ErrorCode.MESSAGE_TOO_LARGE, -1
        if header.producer_id >= 0 and idempotent_checks:
            known = self.producers.get(header.producer_id)
            if known is None:
                if header.base_sequence != 0 and not self.takes_any_first:
                    return ErrorCode.UNKNOWN_PRODUCER_ID, -1
                known = self.producers[header.producer_id] = deque(maxlen=REMEMBERED_BATCHES)
            for first, last, offset in known:
                if (first, last) == (header.base_sequence, header.last_sequence):
                    return ErrorCode.NONE, offset
            expected = known[-1][1] + 1 if known else header.base_sequence
            if header.base_sequence != expected:
                return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
            known.append((header.base_sequence, header.last_sequence, self.end_offset))
        base_offset = self.end_offset
        patch(data, 0, base_offset=base_offset, leader_epoch=self.epoch)
        self.batches.append(bytes(data))
        self.end_offset += header.records_count
        return ErrorCode.NONE, base_offset


class FakeCluster:
    """`brokers` of them, with ids from 1."""

    def __init__(self, brokers: int = 3) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()
        self.servers: dict[int, Server] = {}
        self.topics: dict[str, dict[int, FakePartition]] = {}
        self.topic_ids: dict[str, UUID] = {}
        self.schemas: dict[str, TopicSchema] = {}
        """Of typed topics, as the brokers tell them."""
        self.controller_id = 1
        self.tells_leaders = False
        """Whether refusals say who leads (KIP-951)."""
        self.fault: FaultHook = lambda _: None
        self.asked: list[Asked] = []
        self.api_versions = {
            **SERVED_RANGES,
            describe_schemas.API.key: describe_schemas.API.versions,
        }
        self.admin: Callable[[int, str, Any], Any] | None = None
        """Answers the APIs that are not served here: (broker, name, request) -> response."""
        self._counts: dict[str, int] = defaultdict(int)
        self._producer_id = 1000
        self._waiting_fetches: list[tuple[Exchange, Callable[[], list | None]]] = []
        for broker_id in range(1, brokers + 1):
            self.start_broker(broker_id)

    # What tests use.

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"127.0.0.1:{server.port}" for server in self.servers.values())

    def add_topic(self, topic: str, leaders: list[int]) -> None:
        first_id = UUID(int=(len(self.topic_ids) + 1) << 64)
        self.topic_ids.setdefault(topic, first_id)
        self.topics[topic] = {
            number: FakePartition(leader) for number, leader in enumerate(leaders)
        }

    def create_again(self, topic: str, leaders: list[int]) -> None:
        """The same name, but another topic."""
        self.topic_ids[topic] = UUID(int=self.topic_ids[topic].int + 1)
        self.add_topic(topic, leaders)

    def partition(self, topic: str, number: int = 0) -> FakePartition:
        return self.topics[topic][number]

    def move_leader(self, topic: str, number: int, leader: int) -> None:
        partition = self.topics[topic][number]
        partition.leader = leader
        partition.epoch += 1

    def start_broker(self, broker_id: int, port: int = 0) -> None:
        def handle(connection: Connection, frame: memoryview) -> None:
            self._handle(broker_id, connection, frame)

        server = Server(self.loop, [ServedListener(host="127.0.0.1", port=port, handle=handle)])

        async def start() -> None:
            await server.start()
            # In the loop: else a client could be answered before the broker counts as one.
            self.servers[broker_id] = server

        self._run(start())

    def stop_broker(self, broker_id: int) -> int:
        """Its port, to start it again."""
        server = self.servers.pop(broker_id)
        self._run(server.close(grace_ms=0))
        return server.port

    def count(self, api: str) -> int:
        return self._counts[api]

    def wake(self) -> None:
        """Answer fetches that wait for data that a test has made readable."""
        self.loop.call_soon_threadsafe(self._answer_waiting)

    def close(self) -> None:
        for broker_id in list(self.servers):
            self.stop_broker(broker_id)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(60)
        self.loop.close()

    def _run(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(60)

    # Requests.

    def _handle(self, broker_id: int, connection: Connection, frame: memoryview) -> None:
        header, body = parse_request_header(memoryview(bytes(frame)))
        spec = spec_for(header.api_key)
        exchange = connection.begin()
        served = self.api_versions.get(header.api_key)
        if header.api_key == api_versions.API.key and header.api_version not in (served or ()):
            response: Any = api_versions.unsupported_version_response()
            exchange.respond(encode_response_frame(spec, 0, header.correlation_id, response))
            return
        message = spec.decode_request(header.api_version, body)
        self._counts[spec.name] += 1
        asked = Asked(broker_id, spec.name, message, self._counts[spec.name])
        self.asked.append(asked)
        fault = self.fault(asked)
        if fault is Fault.DROP:
            connection.abort()
            return
        forced = fault if isinstance(fault, ErrorCode) else None

        def respond(message: Any) -> None:
            if message is None:
                exchange.skip()
                return
            if self.tells_leaders and spec.name in ("Fetch", "Produce"):
                message = self._with_leaders(message)
            exchange.respond(
                encode_response_frame(spec, header.api_version, header.correlation_id, message)
            )

        if spec.name == "Fetch" and forced is None and fault is None:
            self._fetch(broker_id, message, exchange, respond)
            return
        response = self._respond(broker_id, spec.name, message, forced)
        if fault is Fault.DO_AND_DROP:
            connection.abort()
        elif fault is not Fault.SILENCE:
            respond(response)

    def _with_leaders(self, message: Any) -> Any:
        rows = []
        for row in message.partitions:
            known = self.topics.get(row.topic, {}).get(row.partition)
            told = known is not None and row.error_code in (6, 74)
            rows.append(row._replace(current_leader=(known.leader, known.epoch)) if told else row)
        ports = [(id_, server.port) for id_, server in self.servers.items()]
        nodes = [LeaderNode(id_, "127.0.0.1", port) for id_, port in ports]
        return message._replace(partitions=rows, nodes=nodes)

    def _respond(self, broker_id: int, api: str, message: Any, forced: ErrorCode | None) -> Any:
        match api:
            case "ApiVersions":
                return api_versions.ApiVersionsResponse.of(self.api_versions)
            case "Metadata":
                return self._metadata(message)
            case "InitProducerId":
                self._producer_id += 1
                return init_producer_id.InitProducerIdResponse(
                    error_code=forced or 0, producer_id=self._producer_id, producer_epoch=0
                )
            case "ListOffsets":
                return self._list_offsets(broker_id, message, forced)
            case "Produce":
                return self._produce(broker_id, message, forced)
            case "Fetch":
                return self._fetched(broker_id, message, forced)
            case "DescribeSchemas" if self.admin is None:
                return self._described_schemas(message)
        assert self.admin is not None, f"{api} is not served"
        return self.admin(broker_id, api, message)

    def _metadata(self, message: metadata_api.MetadataRequest) -> metadata_api.MetadataResponse:
        names = list(self.topics) if message.topics is None else message.topics
        return metadata_api.MetadataResponse(
            brokers=[
                metadata_api.MetadataBroker(broker_id=id_, host="127.0.0.1", port=server.port)
                for id_, server in self.servers.items()
            ],
            topics=[self._topic(name) for name in names],
            controller_id=self.controller_id,
            cluster_id="fake",
        )

    def _topic(self, name: str) -> metadata_api.MetadataTopic:
        partitions = self.topics.get(name)
        if partitions is None:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return metadata_api.MetadataTopic(topic=name, partitions=[], error_code=code)
        return metadata_api.MetadataTopic(
            topic=name,
            topic_id=self.topic_ids[name],
            partitions=[
                metadata_api.MetadataPartition(
                    partition=number,
                    leader=partition.leader,
                    leader_epoch=partition.epoch,
                    replicas=[partition.leader],
                    isr=[partition.leader],
                    error_code=0 if partition.leader >= 0 else ErrorCode.LEADER_NOT_AVAILABLE,
                )
                for number, partition in partitions.items()
            ],
        )

    def _described_schemas(
        self, message: describe_schemas.DescribeSchemasRequest
    ) -> describe_schemas.DescribeSchemasResponse:
        return describe_schemas.DescribeSchemasResponse(
            topics=[
                describe_schemas.DescribedSchema(
                    topic=name,
                    topic_id=self.topic_ids[name],
                    schema=self.schemas[name].to_json() if name in self.schemas else None,
                )
                for name in message.topics
            ]
        )

    def _led(self, broker_id: int, topic: str, number: int) -> FakePartition | ErrorCode:
        partition = self.topics.get(topic, {}).get(number)
        if partition is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return partition if partition.leader == broker_id else ErrorCode.NOT_LEADER_OR_FOLLOWER

    def _list_offsets(
        self, broker_id: int, message: list_offsets.ListOffsetsRequest, forced: ErrorCode | None
    ) -> list_offsets.ListOffsetsResponse:
        answers = []
        for topic, number, timestamp, _ in message.partitions:
            led = forced or self._led(broker_id, topic, number)
            if isinstance(led, ErrorCode):
                answers.append(list_offsets.ListOffsetsPartitionResponse(topic, number, led))
            else:
                earliest = timestamp == list_offsets.EARLIEST_TIMESTAMP
                offset = led.start_offset if earliest else led.high_watermark
                answers.append(
                    list_offsets.ListOffsetsPartitionResponse(topic, number, 0, -1, offset, 0)
                )
        return list_offsets.ListOffsetsResponse(answers)

    def _produce(
        self, broker_id: int, message: produce.ProduceRequest, forced: ErrorCode | None
    ) -> produce.ProduceResponse | None:
        answers = []
        for topic, number, records in message.partitions:
            assert isinstance(records, memoryview)
            led = self._led(broker_id, topic, number)
            if isinstance(led, ErrorCode):
                code, offset = led, -1
            elif forced is not None or led.errors:
                code, offset = forced or led.errors.popleft(), -1
                if code is ErrorCode.REQUEST_TIMED_OUT:
                    led.append(bytes(records))
            else:
                code, offset = led.append(bytes(records))
            bad = led.record_errors if code is ErrorCode.INVALID_RECORD else ()
            answer = produce.ProducePartitionResponse(topic, number, code, offset)
            answers.append(answer._replace(record_errors=bad))
        self._answer_waiting()
        return produce.ProduceResponse(answers) if message.acks else None

    # Fetches wait for data, or until their max_wait.

    def _fetch(
        self,
        broker_id: int,
        message: fetch.FetchRequest,
        exchange: Exchange,
        respond: Callable[[Any], None],
    ) -> None:
        answered = False

        def answer(final: bool) -> bool:
            nonlocal answered
            if answered:
                return True
            response = self._fetched(broker_id, message, None)
            if not final and not any(
                each.records or each.error_code or each.diverging_epoch
                for each in response.partitions
            ):
                return False
            answered = True
            respond(response)
            return True

        if not answer(False):
            self._waiting_fetches.append((exchange, lambda: [] if answer(False) else None))
            self.loop.call_later(message.max_wait_ms / 1000, answer, True)

    def _answer_waiting(self) -> None:
        self._waiting_fetches = [
            waiting for waiting in self._waiting_fetches if waiting[1]() is None
        ]

    def _fetched(
        self, broker_id: int, message: fetch.FetchRequest, forced: ErrorCode | None
    ) -> fetch.FetchResponse:
        return fetch.FetchResponse(
            [
                self._fetched_partition(broker_id, asked, message, forced)
                for asked in message.partitions
            ]
        )

    def _fetched_partition(
        self,
        broker_id: int,
        asked: fetch.FetchPartition,
        message: fetch.FetchRequest,
        forced: ErrorCode | None,
    ) -> fetch.FetchPartitionResponse:
        names = {topic_id_to_text(each): name for name, each in self.topic_ids.items()}
        name = asked.topic if asked.topic in self.topics else names.get(asked.topic)
        if name is None and len(asked.topic) == TOPIC_ID_CHARACTERS:
            forced = forced or ErrorCode.UNKNOWN_TOPIC_ID
        led = forced or self._led(broker_id, name or "", asked.partition)
        if isinstance(led, FakePartition):
            if 0 <= asked.current_leader_epoch < led.epoch:
                led = ErrorCode.FENCED_LEADER_EPOCH
            elif led.divergence(asked) is None and not (
                led.start_offset <= asked.fetch_offset <= led.end_offset
            ):
                return fetch.FetchPartitionResponse(
                    asked.topic,
                    asked.partition,
                    ErrorCode.OFFSET_OUT_OF_RANGE,
                    high_watermark=led.high_watermark,
                    log_start_offset=led.start_offset,
                )
        if isinstance(led, ErrorCode):
            return fetch.FetchPartitionResponse(asked.topic, asked.partition, led)
        parting = led.divergence(asked)
        if parting is not None:
            return fetch.FetchPartitionResponse(
                asked.topic,
                asked.partition,
                high_watermark=led.high_watermark,
                diverging_epoch=parting,
            )
        found = led.read(asked, self.schemas.get(name or ""))
        return fetch.FetchPartitionResponse(
            asked.topic,
            asked.partition,
            high_watermark=led.high_watermark,
            last_stable_offset=led.high_watermark,
            log_start_offset=led.start_offset,
            aborted_transactions=led.aborted if message.isolation_level else None,
            records=bytes(found) or None,
        )
