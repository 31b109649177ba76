"""AlterPartitionReassignments and ListPartitionReassignments: served by the controller.

A request is checked, written into the admin node that tools write too, and answered; the controller
carries out the node's content. Source: R-CTL8, KIP-455.

ElectLeaders: served by the controller.

The answer comes when every election is over, or when the client's timeout is. After a request for
all partitions it names only those that needed an election. Source: R-CTL7, R-REP9, KIP-460.
"""

from collections import Counter
from collections.abc import Generator, Sequence

from storage_engine.broker.cluster.broker_places import BrokerPlaces, warn_of_shared_machines
from storage_engine.broker.controller.acting_controller import ActingController
from storage_engine.broker.controller.runner import ControllerRunner
from storage_engine.broker.handlers.api_call import ApiCall
from storage_engine.broker.handlers.controller.orders import acting_controller
from storage_engine.broker.replicas.purgatory import RequestDeadline
from storage_engine.broker.requests.long_work import Steps
from storage_engine.core.control.planned_changes import target_problem
from storage_engine.core.errors import ErrorCode, KafkaError
from storage_engine.core.ids import BrokerId, TopicPartition
from storage_engine.core.placement import Places, cordoned_among, cordoned_problem
from storage_engine.core.ports import Scheduler
from storage_engine.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from storage_engine.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from storage_engine.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

_Topic = AlterPartitionReassignmentsResponse.ReassignableTopicResponse
_Partition = _Topic.ReassignablePartitionResponse
_OngoingTopic = ListPartitionReassignmentsResponse.OngoingTopicReassignment
_OngoingPartition = _OngoingTopic.OngoingPartitionReassignment

Target = tuple[BrokerId, ...]


def alter(
    controller: ControllerRunner,
    places: BrokerPlaces,
    call: ApiCall[AlterPartitionReassignmentsResponse],
    request: AlterPartitionReassignmentsRequest,
) -> Steps:
    try:
        acting = acting_controller(controller)
    except KafkaError as failure:
        call.respond(
            AlterPartitionReassignmentsResponse(
                error_code=int(failure.code), error_message=str(failure)
            )
        )
        return
    wanted = []
    named: Counter[TopicPartition] = Counter()
    for topic in request.topics:
        for item in topic.partitions:
            tp = TopicPartition(topic.name, item.partition_index)
            wanted.append((tp, item.replicas))
            named[tp] += 1
            yield None
    factor_may_change = call.version < 1 or request.allow_replication_factor_change
    failures: dict[TopicPartition, KafkaError] = {}
    changes: dict[TopicPartition, Target] = {}
    for partition, replicas in wanted:
        yield None
        try:
            # Another broker may be the controller since the step before.
            acting = acting_controller(controller)
            if named[partition] > 1:
                raise KafkaError(f"{partition} is named twice", ErrorCode.INVALID_REQUEST)
            if replicas is None:
                changes[partition] = _cancelled(acting, partition)
            else:
                target = tuple(BrokerId(replica) for replica in replicas)
                _check(acting, partition, target, factor_may_change=factor_may_change)
                _check_places(acting, partition, target, places.known())
                changes[partition] = target
        except KafkaError as failure:
            failures[partition] = failure.as_outcome()

    def on_written(written: bool) -> None:
        if not written:
            failures.update(dict.fromkeys(changes, _unanswered()))
        call.run(_respond(call, request, failures))

    refusal = call.refusal()
    if refusal is not ErrorCode.NONE:
        lost = KafkaError(refusal.meaning, refusal)
        failures.update(dict.fromkeys(changes, lost.as_outcome()))
        changes.clear()
    if changes:
        warn_of_shared_machines(changes, places.known())
        acting.reassign(changes, on_written)
    else:
        yield from _respond(call, request, failures)


def _unanswered() -> KafkaError:
    return KafkaError(
        "ZooKeeper did not answer, or another broker is the controller now: list the "
        "reassignments to see whether this one was taken",
        ErrorCode.REQUEST_TIMED_OUT,
    )


def _check(
    acting: ActingController, partition: TopicPartition, target: Target, *, factor_may_change: bool
) -> None:
    """Raises KafkaError when the target is not possible."""
    core = acting.core
    info = core.topic(partition.topic)
    present = info.assigned(partition.partition) if info is not None else None
    if present is None or core.is_deleting(partition.topic):
        raise KafkaError(f"there is no {partition}", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    problem = target_problem(target, present.replicas, core.brokers)
    if problem is not None:
        raise KafkaError(
            f"the assignment of {partition} {problem}", ErrorCode.INVALID_REPLICA_ASSIGNMENT
        )
    move = present.reassignment
    before = present.replicas if move is None else move.original
    if not factor_may_change and len(target) != len(before):
        raise KafkaError(
            f"{partition} has {len(before)} replicas and would have {len(target)}",
            ErrorCode.INVALID_REPLICATION_FACTOR,
        )


def _check_places(
    acting: ActingController, partition: TopicPartition, target: Target, places: Places
) -> None:
    """Raises KafkaError where a broker that takes no new replicas would get one."""
    info = acting.core.topic(partition.topic)
    present = info.assigned(partition.partition) if info is not None else None
    before = set() if present is None else {*present.replicas}
    if present is not None and present.reassignment is not None:
        # The way back stays open.
        before.update(present.reassignment.original)
    cordoned = cordoned_among(set(target) - before, places)
    if cordoned:
        raise KafkaError(
            f"the assignment of {partition} {cordoned_problem(cordoned)}; uncordon them first",
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        )


def _cancelled(acting: ActingController, partition: TopicPartition) -> Target:
    """The target that cancels a reassignment. Raises KafkaError."""
    info = acting.core.topic(partition.topic)
    present = info.assigned(partition.partition) if info is not None else None
    if present is None:
        raise KafkaError(f"there is no {partition}", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if partition not in acting.core.moves():
        raise KafkaError(
            f"{partition} is not being reassigned", ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
        )
    # A move that has not begun may be about to: the present replicas become the target.
    return present.replicas if present.reassignment is None else present.reassignment.original


def _respond(
    call: ApiCall[AlterPartitionReassignmentsResponse],
    request: AlterPartitionReassignmentsRequest,
    failures: dict[TopicPartition, KafkaError],
) -> Steps:
    topics = []
    for topic in request.topics:
        rows = []
        for item in topic.partitions:
            failure = failures.get(TopicPartition(topic.name, item.partition_index))
            rows.append(_row(item.partition_index, failure))
            yield None
        topics.append(_Topic(name=topic.name, partitions=rows))
    call.respond(AlterPartitionReassignmentsResponse(responses=topics))


def _row(partition: int, failure: KafkaError | None) -> _Partition:
    if failure is None:
        return _Partition(partition_index=partition, error_code=0, error_message=None)
    return _Partition(
        partition_index=partition, error_code=int(failure.code), error_message=str(failure)
    )


def list_ongoing(
    controller: ControllerRunner,
    call: ApiCall[ListPartitionReassignmentsResponse],
    request: ListPartitionReassignmentsRequest,
) -> None:
    try:
        acting = acting_controller(controller)
    except KafkaError as failure:
        call.respond(
            ListPartitionReassignmentsResponse(
                error_code=int(failure.code), error_message=str(failure)
            )
        )
        return
    asked = _asked(request.topics)
    by_topic: dict[str, list[_OngoingPartition]] = {}
    for partition, assigned in sorted(acting.core.moves().items()):
        if asked is None or partition in asked:
            row = _OngoingPartition(
                partition_index=partition.partition,
                replicas=list(assigned.replicas),
                adding_replicas=list(assigned.adding),
                removing_replicas=list(assigned.removing),
            )
            by_topic.setdefault(partition.topic, []).append(row)
    call.respond(
        ListPartitionReassignmentsResponse(
            error_code=int(ErrorCode.NONE),
            topics=[_OngoingTopic(name=name, partitions=rows) for name, rows in by_topic.items()],
        )
    )


def _asked(
    topics: Sequence[ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics] | None,
) -> set[TopicPartition] | None:
    """The requested partitions; None: all."""
    if topics is None:
        return None
    return {
        TopicPartition(topic.name, number) for topic in topics for number in topic.partition_indexes
    }


LONGEST_WAIT_MS = 120_000
"""The longest timeout of a request; a longer one is shortened to this."""

_PREFERRED, _UNCLEAN = 0, 1

_ElectedTopic = ElectLeadersResponse.ReplicaElectionResult
_ElectedPartition = _ElectedTopic.PartitionResult


def elect_leaders(
    controller: ControllerRunner,
    scheduler: Scheduler,
    call: ApiCall[ElectLeadersResponse],
    request: ElectLeadersRequest,
) -> Steps:
    election_type = request.election_type if call.version >= 1 else _PREFERRED
    named = yield from _named(request)
    try:
        acting = acting_controller(controller)
        if election_type not in (_PREFERRED, _UNCLEAN):
            raise KafkaError(
                "the election type must be 0 (preferred) or 1 (unclean)", ErrorCode.INVALID_REQUEST
            )
    except KafkaError as failure:
        yield from _respond_elected(call, dict.fromkeys(named or (), failure.code), failure.code)
        return
    partitions, unknown = yield from _split(acting, named)

    def on_elected(outcomes: dict[TopicPartition, ErrorCode] | None) -> None:
        if not deadline.finish():
            return
        if outcomes is None:
            outcomes = dict.fromkeys(partitions, ErrorCode.NOT_CONTROLLER)
        elif named is None:
            outcomes = {
                partition: code
                for partition, code in outcomes.items()
                if code is not ErrorCode.ELECTION_NOT_NEEDED
            }
        call.run(_respond_elected(call, {**outcomes, **unknown}))

    def expire() -> None:
        late = dict.fromkeys(partitions, ErrorCode.REQUEST_TIMED_OUT)
        call.run(_respond_elected(call, {**late, **unknown}))

    delay_ms = max(0, min(request.timeout_ms, LONGEST_WAIT_MS))
    deadline = RequestDeadline(scheduler, delay_ms, expire)
    # Another broker may be the controller since the first step; then nothing else would answer.
    if controller.acting is not acting:
        on_elected(None)
        return
    refusal = call.refusal()
    if refusal is not ErrorCode.NONE:
        on_elected(dict.fromkeys(partitions, refusal))
        return
    acting.elect(partitions, on_elected, unclean=election_type == _UNCLEAN)


def _named(request: ElectLeadersRequest) -> Generator[None, None, list[TopicPartition] | None]:
    """The partitions that the request names, each once; None: all."""
    if request.topic_partitions is None:
        return None
    named: dict[TopicPartition, None] = {}
    for topic in request.topic_partitions:
        for number in topic.partitions:
            named[TopicPartition(topic.topic, number)] = None
            yield None
    return list(named)


def _split(
    acting: ActingController, named: Sequence[TopicPartition] | None
) -> Generator[None, None, tuple[list[TopicPartition], dict[TopicPartition, ErrorCode]]]:
    """(existing partitions, error codes of the others)."""
    unknown: dict[TopicPartition, ErrorCode] = {}
    partitions: list[TopicPartition] = []
    for tp in sorted(acting.core.states()) if named is None else named:
        if acting.core.state(tp) is not None:
            partitions.append(tp)
        else:
            unknown[tp] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        yield None
    return partitions, unknown


def _respond_elected(
    call: ApiCall[ElectLeadersResponse],
    outcomes: dict[TopicPartition, ErrorCode],
    whole: ErrorCode = ErrorCode.NONE,
) -> Steps:
    by_topic: dict[str, list[_ElectedPartition]] = {}
    for partition, code in sorted(outcomes.items()):
        yield None
        row = _ElectedPartition(
            partition_id=partition.partition,
            error_code=int(code),
            error_message=code.meaning if code else None,
        )
        by_topic.setdefault(partition.topic, []).append(row)
    topics = [_ElectedTopic(topic=topic, partition_result=rows) for topic, rows in by_topic.items()]
    call.respond(ElectLeadersResponse(error_code=int(whole), replica_election_results=topics))
