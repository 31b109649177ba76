"""ElectLeaders: served by the controller.

The answer comes when every election is over, or when the client's timeout is. After a request for
all partitions it names only those that needed an election. Source: R-CTL7, R-REP9, KIP-460.
"""

from collections.abc import Generator, Sequence

from storage_engine.broker.controller.acting_controller import ActingController
from storage_engine.broker.controller.runner import ControllerRunner
from storage_engine.broker.handlers.api_call import ApiCall
from storage_engine.broker.handlers.controller.controller_only import acting_controller
from storage_engine.broker.replicas.purgatory import RequestDeadline
from storage_engine.broker.requests.long_work import Steps
from storage_engine.core.errors import ErrorCode, KafkaError
from storage_engine.core.ids import TopicPartition
from storage_engine.core.ports import Scheduler
from storage_engine.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse

LONGEST_WAIT_MS = 120_000
"""The longest timeout of a request; a longer one is shortened to this."""

_PREFERRED, _UNCLEAN = 0, 1

_Topic = ElectLeadersResponse.ReplicaElectionResult
_Partition = _Topic.PartitionResult


def handle(
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
        yield from _respond(call, dict.fromkeys(named or (), failure.code), failure.code)
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
        call.run(_respond(call, {**outcomes, **unknown}))

    def expire() -> None:
        late = dict.fromkeys(partitions, ErrorCode.REQUEST_TIMED_OUT)
        call.run(_respond(call, {**late, **unknown}))

    delay_ms = max(0, min(request.timeout_ms, LONGEST_WAIT_MS))
    deadline = RequestDeadline(scheduler, delay_ms, expire)
    # Another broker may be the controller since the first step; then nobody else answers.
    if controller.acting is not acting:
        on_elected(None)
        return
    refusal = call.refusal()
    if refusal is not ErrorCode.NONE:
        on_elected(dict.fromkeys(partitions, refusal))
        return
    acting.elect(partitions, on_elected, unclean=election_type == _UNCLEAN)


def _named(request: ElectLeadersRequest) -> Generator[None, None, list[TopicPartition] | None]:
    """The partitions that are named, each once; None: all."""
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
    """The partitions that there are, and the codes of the others."""
    unknown: dict[TopicPartition, ErrorCode] = {}
    partitions: list[TopicPartition] = []
    for tp in sorted(acting.core.states()) if named is None else named:
        if acting.core.state(tp) is not None:
            partitions.append(tp)
        else:
            unknown[tp] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        yield None
    return partitions, unknown


def _respond(
    call: ApiCall[ElectLeadersResponse],
    outcomes: dict[TopicPartition, ErrorCode],
    whole: ErrorCode = ErrorCode.NONE,
) -> Steps:
    by_topic: dict[str, list[_Partition]] = {}
    for partition, code in sorted(outcomes.items()):
        yield None
        row = _Partition(
            partition_id=partition.partition,
            error_code=int(code),
            error_message=code.meaning if code else None,
        )
        by_topic.setdefault(partition.topic, []).append(row)
    topics = [_Topic(topic=topic, partition_result=rows) for topic, rows in by_topic.items()]
    call.respond(ElectLeadersResponse(error_code=int(whole), replica_election_results=topics))
