"""For each API a request, the rights that it needs, and how it is refused without each of them."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from simulation.world.requests import make_batch, produce_request
from storage_engine.core.errors import ErrorCode
from storage_engine.core.security.acl_rules import CLUSTER_NAME, AclOperation, ResourceType
from storage_engine.protocol.apis.controlled_shutdown import ControlledShutdownRequest
from storage_engine.protocol.apis.fetch import FetchPartition, FetchRequest
from storage_engine.protocol.apis.leader_and_isr import LeaderAndIsrRequest
from storage_engine.protocol.apis.list_offsets import ListOffsetsPartition, ListOffsetsRequest
from storage_engine.protocol.apis.metadata import MetadataRequest
from storage_engine.protocol.apis.stop_replica import StopReplicaRequest
from storage_engine.protocol.apis.update_metadata import UpdateMetadataRequest
from storage_engine.protocol.messages.init_producer_id import InitProducerIdRequest
from storage_engine.tests.protocol.apis.struct_classes import api_of, struct_of

O = AclOperation  # noqa: E741
TOPIC_ERROR = ErrorCode.TOPIC_AUTHORIZATION_FAILED
GROUP_ERROR = ErrorCode.GROUP_AUTHORIZATION_FAILED
CLUSTER_ERROR = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
TRANSACTION_ERROR = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED

_ERRORS = {
    ResourceType.TOPIC: TOPIC_ERROR,
    ResourceType.GROUP: GROUP_ERROR,
    ResourceType.CLUSTER: CLUSTER_ERROR,
    ResourceType.TRANSACTIONAL_ID: TRANSACTION_ERROR,
}
Right = tuple[AclOperation, ResourceType, str]


def refusal_of(right: Right) -> ErrorCode:
    """The error of who lacks it."""
    return _ERRORS[right[1]]


def topic(operation: AclOperation, name: str = "t") -> Right:
    return operation, ResourceType.TOPIC, name


def group(operation: AclOperation, name: str = "g") -> Right:
    return operation, ResourceType.GROUP, name


def to_cluster(operation: AclOperation) -> Right:
    return operation, ResourceType.CLUSTER, CLUSTER_NAME


def transaction(operation: AclOperation, name: str = "x") -> Right:
    return operation, ResourceType.TRANSACTIONAL_ID, name


@dataclass(frozen=True)
class Case:
    """One request."""

    key: int
    version: int
    request: Callable[[], Any]
    rights: tuple[Right, ...]
    note: str = ""
    refusals: dict[Right, ErrorCode] = field(default_factory=dict)
    """Where the error is not that of the right's resource."""

    def refusal(self, right: Right) -> ErrorCode:
        return self.refusals.get(right, refusal_of(right))

    def __str__(self) -> str:
        return f"{api_of(self.key)[0].name}-{self.version}{self.note and f'-{self.note}'}"


def _rare(key: int, /, **fields: Any) -> Callable[[], Any]:
    return lambda: api_of(key)[1](**fields)


def _topics(key: int, **partition: Any) -> list[Any]:
    """A topic `t` with one partition, of a request."""
    field_of = {24: "v3_and_below_topics"}.get(key, "topics")
    topic_class = struct_of(api_of(key)[1], field_of)
    partition_class = struct_of(topic_class, "partitions")
    if partition_class == "int32":
        return [topic_class(name="t", partitions=[0])]
    return [topic_class(name="t", partitions=[partition_class(**partition)])]


def _item(key: int, field_name: str, **fields: Any) -> Any:
    return struct_of(api_of(key)[1], field_name)(**fields)


def _offset_topics(key: int) -> list[Any]:
    return _topics(
        key,
        partition_index=0,
        committed_offset=1,
        committed_leader_epoch=-1,
        committed_metadata="",
    )


def _group_to_fetch() -> Any:
    group_class = struct_of(api_of(9)[1], "groups")
    topic_class = struct_of(group_class, "topics")
    wanted = topic_class(name="t", partition_indexes=[0])
    return group_class(group_id="g", topics=[wanted])


def _settings_item(key: int, kind: int, name: str) -> Any:
    extra: dict[str, Any] = {"configuration_keys": None} if key == 32 else {"configs": []}
    return _item(key, "resources", resource_type=kind, resource_name=name, **extra)


def _fetch(replica_id: int = -1) -> FetchRequest:
    return FetchRequest(0, 1, 1 << 20, [FetchPartition("t", 0, 0, 1 << 20)], replica_id)


def _marker() -> Any:
    marker_class = struct_of(api_of(27)[1], "markers")
    topic_class = struct_of(marker_class, "topics")
    return marker_class(
        producer_id=1,
        producer_epoch=0,
        transaction_result=True,
        topics=[topic_class(name="t", partition_indexes=[7])],
        coordinator_epoch=0,
    )


def _epochs(replica_id: int) -> Callable[[], Any]:
    def request() -> Any:
        topic_class = struct_of(api_of(23)[1], "topics")
        partition = struct_of(topic_class, "partitions")(
            partition=0, current_leader_epoch=-1, leader_epoch=0
        )
        return api_of(23)[1](
            replica_id=replica_id, topics=[topic_class(topic="t", partitions=[partition])]
        )

    return request


def _rule_filter(key: int) -> dict[str, Any]:
    return {
        "resource_type_filter": 2,
        "resource_name_filter": "no-such",
        "pattern_type_filter": 3,
        "principal_filter": None,
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
    }


def _sink(key: int, /, **fields: Any) -> Callable[[], Any]:
    return lambda: api_of(key)[1](sink="s", query="q", **fields)


_WRITE_T, _READ_T, _DESCRIBE_T = topic(O.WRITE), topic(O.READ), topic(O.DESCRIBE)
_WRITE_X, _READ_G, _DESCRIBE_G = transaction(O.WRITE), group(O.READ), group(O.DESCRIBE)
_ACTION = to_cluster(O.CLUSTER_ACTION)
_OF_BROKERS = {"controller_id": 99, "controller_epoch": 1, "broker_epoch": 1, "partitions": []}
_COMMIT = {"group_id": "g", "generation_id_or_member_epoch": -1, "member_id": ""}
_OF_PRODUCER = {"transactional_id": "x", "producer_id": 1, "producer_epoch": 0}

CASES = [
    Case(0, 8, lambda: produce_request("t", 0, make_batch(), acks=1), (_WRITE_T,)),
    Case(
        0,
        8,
        lambda: produce_request("t", 0, make_batch(), acks=1, transactional_id="x"),
        (_WRITE_T, _WRITE_X),
        "transactional",
    ),
    Case(
        0,
        8,
        lambda: produce_request("t", 0, make_batch(), acks=1, transactional_id="__headrace_sink/s"),
        (_WRITE_T, transaction(O.WRITE, "s")),
        "sink",
    ),
    Case(1, 11, _fetch, (_READ_T,)),
    Case(1, 11, lambda: _fetch(2), (_ACTION,), "replica", {_ACTION: TOPIC_ERROR}),
    Case(2, 7, lambda: ListOffsetsRequest([ListOffsetsPartition("t", 0, -1)]), (_DESCRIBE_T,)),
    Case(
        2,
        7,
        lambda: ListOffsetsRequest([ListOffsetsPartition("t", 0, -1)], 2),
        (_ACTION,),
        "replica",
    ),
    Case(3, 9, lambda: MetadataRequest(topics=["t"]), (_DESCRIBE_T,)),
    Case(
        3,
        9,
        lambda: MetadataRequest(topics=["new"]),
        (topic(O.DESCRIBE, "new"), topic(O.CREATE, "new")),
        "creates",
    ),
    Case(4, 0, lambda: LeaderAndIsrRequest(**_OF_BROKERS), (_ACTION,)),
    Case(5, 0, lambda: StopReplicaRequest(**_OF_BROKERS), (_ACTION,)),
    Case(
        6,
        0,
        lambda: UpdateMetadataRequest(controller_id=99, controller_epoch=1, brokers=[]),
        (_ACTION,),
    ),
    Case(7, 0, lambda: ControlledShutdownRequest(broker_id=99, broker_epoch=1), (_ACTION,)),
    Case(
        8,
        5,
        lambda: api_of(8)[1](**_COMMIT, topics=_offset_topics(8)),
        (_READ_G, _READ_T),
    ),
    Case(
        9,
        5,
        lambda: api_of(9)[1](
            group_id="g", topics=[_item(9, "topics", name="t", partition_indexes=[0])]
        ),
        (_DESCRIBE_G, _DESCRIBE_T),
    ),
    Case(
        9,
        1,
        lambda: api_of(9)[1](
            group_id="g", topics=[_item(9, "topics", name="t", partition_indexes=[0])]
        ),
        (_DESCRIBE_G, _DESCRIBE_T),
    ),
    Case(9, 8, lambda: api_of(9)[1](groups=[_group_to_fetch()]), (_DESCRIBE_G, _DESCRIBE_T)),
    Case(10, 3, _rare(10, key="g", key_type=0), (_DESCRIBE_G,)),
    Case(10, 4, _rare(10, coordinator_keys=["g"], key_type=0), (_DESCRIBE_G,)),
    Case(
        10,
        4,
        _rare(10, coordinator_keys=["x"], key_type=1),
        (transaction(O.DESCRIBE),),
        "transaction",
    ),
    Case(
        11,
        4,
        _rare(
            11,
            group_id="g",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            member_id="",
            protocol_type="consumer",
            protocols=[],
        ),
        (_READ_G,),
    ),
    Case(12, 3, _rare(12, group_id="g", generation_id=1, member_id="m"), (_READ_G,)),
    Case(13, 1, _rare(13, group_id="g", member_id="m"), (_READ_G,)),
    Case(
        14,
        3,
        _rare(14, group_id="g", generation_id=1, member_id="m", assignments=[]),
        (_READ_G,),
    ),
    Case(15, 5, _rare(15, groups=["g"], include_authorized_operations=True), (_DESCRIBE_G,)),
    Case(16, 4, _rare(16, states_filter=[]), ()),
    Case(18, 3, _rare(18), ()),
    Case(
        19,
        5,
        lambda: api_of(19)[1](
            topics=[
                _item(
                    19,
                    "topics",
                    name="made",
                    num_partitions=1,
                    replication_factor=1,
                    assignments=[],
                    configs=[],
                )
            ],
            timeout_ms=10_000,
            validate_only=True,
        ),
        (topic(O.CREATE, "made"),),
    ),
    Case(20, 4, _rare(20, topic_names=["gone"], timeout_ms=10_000), (topic(O.DELETE, "gone"),)),
    Case(
        20,
        6,
        lambda: api_of(20)[1](
            topics=[_item(20, "topics", name="gone", topic_id=UUID(int=0))], timeout_ms=10_000
        ),
        (topic(O.DELETE, "gone"),),
    ),
    Case(
        21,
        2,
        lambda: api_of(21)[1](topics=_topics(21, partition_index=0, offset=0), timeout_ms=10_000),
        (topic(O.DELETE),),
    ),
    Case(22, 4, lambda: InitProducerIdRequest(transactional_id="x"), (_WRITE_X,)),
    Case(
        22,
        4,
        lambda: InitProducerIdRequest(),
        (topic(O.WRITE, "any"),),
        "idempotent",
        {topic(O.WRITE, "any"): CLUSTER_ERROR},
    ),
    Case(
        22,
        4,
        lambda: InitProducerIdRequest(),
        (to_cluster(O.IDEMPOTENT_WRITE),),
        "idempotent-cluster",
    ),
    Case(23, 4, _epochs(-1), (_DESCRIBE_T,)),
    Case(23, 4, _epochs(2), (_ACTION,), "replica"),
    Case(
        24,
        3,
        lambda: api_of(24)[1](
            v3_and_below_transactional_id="x",
            v3_and_below_producer_id=1,
            v3_and_below_producer_epoch=0,
            v3_and_below_topics=_topics(24),
        ),
        (_WRITE_X, _WRITE_T),
    ),
    Case(24, 4, _rare(24, transactions=[]), (_ACTION,), "brokers"),
    Case(25, 3, _rare(25, **_OF_PRODUCER, group_id="g"), (_WRITE_X, _READ_G)),
    Case(26, 3, _rare(26, **_OF_PRODUCER, committed=True), (_WRITE_X,)),
    Case(27, 1, lambda: api_of(27)[1](markers=[_marker()]), (_ACTION,)),
    Case(
        28,
        2,
        lambda: api_of(28)[1](**_OF_PRODUCER, group_id="g", topics=_offset_topics(28)),
        (_WRITE_X, _READ_G, _READ_T),
    ),
    Case(29, 2, lambda: api_of(29)[1](**_rule_filter(29)), (to_cluster(O.DESCRIBE),)),
    Case(
        30,
        2,
        lambda: api_of(30)[1](
            creations=[
                _item(
                    30,
                    "creations",
                    resource_type=2,
                    resource_name="other",
                    resource_pattern_type=3,
                    principal="User:carol",
                    host="*",
                    operation=3,
                    permission_type=3,
                )
            ]
        ),
        (to_cluster(O.ALTER),),
    ),
    Case(
        31,
        2,
        lambda: api_of(31)[1](filters=[_item(31, "filters", **_rule_filter(31))]),
        (to_cluster(O.ALTER),),
    ),
    Case(
        32,
        4,
        lambda: api_of(32)[1](resources=[_settings_item(32, 2, "t")]),
        (topic(O.DESCRIBE_CONFIGS),),
    ),
    Case(
        32,
        4,
        lambda: api_of(32)[1](resources=[_settings_item(32, 4, "1")]),
        (to_cluster(O.DESCRIBE_CONFIGS),),
        "broker",
    ),
    Case(
        33,
        2,
        lambda: api_of(33)[1](resources=[_settings_item(33, 2, "t")], validate_only=True),
        (topic(O.ALTER_CONFIGS),),
    ),
    Case(
        33,
        2,
        lambda: api_of(33)[1](resources=[_settings_item(33, 4, "1")], validate_only=True),
        (to_cluster(O.ALTER_CONFIGS),),
        "broker",
    ),
    Case(
        34,
        2,
        lambda: api_of(34)[1](
            dirs=[
                _item(
                    34,
                    "dirs",
                    path="/x",
                    topics=[
                        struct_of(struct_of(api_of(34)[1], "dirs"), "topics")(
                            name="t", partitions=[0]
                        )
                    ],
                )
            ]
        ),
        (to_cluster(O.ALTER),),
    ),
    Case(35, 3, _rare(35, topics=None), (to_cluster(O.DESCRIBE),)),
    Case(
        37,
        2,
        lambda: api_of(37)[1](
            topics=[_item(37, "topics", name="t", count=2, assignments=None)],
            timeout_ms=10_000,
            validate_only=True,
        ),
        (topic(O.ALTER),),
    ),
    Case(42, 2, _rare(42, groups_names=["g"]), (group(O.DELETE),)),
    Case(
        43,
        2,
        lambda: api_of(43)[1](
            election_type=0,
            topic_partitions=[_item(43, "topic_partitions", topic="t", partitions=[0])],
            timeout_ms=10_000,
        ),
        (to_cluster(O.ALTER),),
    ),
    Case(
        44,
        1,
        lambda: api_of(44)[1](resources=[_settings_item(44, 2, "t")], validate_only=True),
        (topic(O.ALTER_CONFIGS),),
    ),
    Case(
        44,
        1,
        lambda: api_of(44)[1](resources=[_settings_item(44, 4, "1")], validate_only=True),
        (to_cluster(O.ALTER_CONFIGS),),
        "broker",
    ),
    Case(45, 0, _rare(45, timeout_ms=10_000, topics=[]), (to_cluster(O.ALTER),)),
    Case(46, 0, _rare(46, timeout_ms=10_000, topics=None), (to_cluster(O.DESCRIBE),)),
    Case(
        47,
        0,
        lambda: api_of(47)[1](group_id="g", topics=_topics(47, partition_index=0)),
        (group(O.DELETE), _READ_T),
    ),
    Case(48, 1, _rare(48, components=[], strict=False), (to_cluster(O.DESCRIBE_CONFIGS),)),
    Case(
        49,
        1,
        lambda: api_of(49)[1](
            entries=[
                api_of(49)[1].EntryData(
                    entity=[
                        api_of(49)[1].EntryData.EntityData(entity_type="user", entity_name="u")
                    ],
                    ops=[
                        api_of(49)[1].EntryData.OpData(
                            key="producer_byte_rate", value=1e9, remove=False
                        )
                    ],
                )
            ],
            validate_only=True,
        ),
        (to_cluster(O.ALTER_CONFIGS),),
    ),
    Case(50, 0, _rare(50, users=None), (to_cluster(O.DESCRIBE),)),
    Case(
        51,
        0,
        lambda: api_of(51)[1](
            deletions=[_item(51, "deletions", name="nobody", mechanism=1)], upsertions=[]
        ),
        (to_cluster(O.ALTER),),
    ),
    Case(
        57,
        1,
        lambda: api_of(57)[1](
            feature_updates=[
                _item(57, "feature_updates", feature="transaction.version", max_version_level=2)
            ]
        ),
        (to_cluster(O.ALTER),),
    ),
    Case(
        60,
        0,
        _rare(60, include_cluster_authorized_operations=True),
        (),
    ),
    Case(
        68,
        1,
        _rare(
            68,
            group_id="consumers",
            member_id="m",
            rebalance_timeout_ms=10_000,
            subscribed_topic_names=["t"],
            topic_partitions=[],
        ),
        (group(O.READ, "consumers"), _DESCRIBE_T),
    ),
    Case(
        69,
        1,
        _rare(69, group_ids=["g"], include_authorized_operations=True),
        (_DESCRIBE_G,),
    ),
    Case(
        44,
        1,
        lambda: api_of(44)[1](resources=[_settings_item(44, 32, "g")], validate_only=True),
        (group(O.ALTER_CONFIGS),),
        "group",
    ),
    Case(
        33,
        1,
        lambda: api_of(33)[1](resources=[_settings_item(33, 32, "g")], validate_only=True),
        (group(O.ALTER_CONFIGS),),
        "group",
    ),
    Case(
        32,
        1,
        lambda: api_of(32)[1](resources=[_settings_item(32, 32, "g")]),
        (group(O.DESCRIBE_CONFIGS),),
        "group",
    ),
    Case(74, 1, _rare(74, resource_types=[]), (to_cluster(O.DESCRIBE_CONFIGS),)),
    Case(
        75,
        0,
        lambda: api_of(75)[1](topics=[_item(75, "topics", name="t")], cursor=None),
        (topic(O.DESCRIBE),),
    ),
    Case(
        61,
        0,
        lambda: api_of(61)[1](topics=[_item(61, "topics", name="t", partition_indexes=[0])]),
        (_READ_T,),
    ),
    Case(65, 0, _rare(65, transactional_ids=["x"]), (transaction(O.DESCRIBE),)),
    Case(66, 0, _rare(66, state_filters=[], producer_id_filters=[]), ()),
    Case(
        20_000,
        0,
        _sink(20_000, batch=0, timeout_ms=10_000, nonce=UUID(int=1)),
        (transaction(O.WRITE, "s"),),
    ),
    Case(20_001, 0, _sink(20_001, batch=0, members=frozenset()), (transaction(O.WRITE, "s"),)),
    Case(20_002, 0, _sink(20_002, batch=0), (transaction(O.WRITE, "s"),)),
    Case(20_003, 0, _sink(20_003, members=frozenset()), (transaction(O.WRITE, "s"),)),
    Case(20_004, 0, lambda: api_of(20_004)[1](topics=["t"]), (_DESCRIBE_T,)),
    Case(20_005, 0, lambda: api_of(20_005)[1](), ()),
]
