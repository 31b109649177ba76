"""ControlledShutdown (key 7): a broker wants to stop, its leaders move first. Source: R-CTL9."""

from storage_engine.broker.controller.runner import ControllerRunner
from storage_engine.broker.handlers.api_call import ApiCall
from storage_engine.broker.replicas.purgatory import RequestDeadline
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import TopicPartition
from storage_engine.core.ports import Scheduler
from storage_engine.protocol.apis.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
)

LONGEST_WAIT_MS = 10_000
"""After this time the answer names the partitions that no other broker could take over."""


def handle(
    controller: ControllerRunner,
    scheduler: Scheduler,
    call: ApiCall[ControlledShutdownResponse],
    request: ControlledShutdownRequest,
) -> None:
    acting = controller.acting
    if acting is None or not acting.loaded:
        _refuse(call, ErrorCode.NOT_CONTROLLER)
        return
    broker = acting.core.brokers.get(request.broker_id)
    if broker is None or broker.epoch != request.broker_epoch:
        _refuse(call, ErrorCode.STALE_BROKER_EPOCH)
        return
    remaining: tuple[TopicPartition, ...] = ()

    def expire() -> None:
        call.respond(ControlledShutdownResponse(remaining_partitions=remaining))

    deadline = RequestDeadline(scheduler, LONGEST_WAIT_MS, expire)

    def on_progress(left: tuple[TopicPartition, ...] | None) -> None:
        nonlocal remaining
        if left is None:
            if deadline.finish():
                _refuse(call, ErrorCode.NOT_CONTROLLER)
            return
        remaining = left
        if not left and deadline.finish():
            call.respond(ControlledShutdownResponse())

    acting.controlled_shutdown(request.broker_id, request.broker_epoch, on_progress)


def _refuse(call: ApiCall[ControlledShutdownResponse], code: ErrorCode) -> None:
    call.respond(ControlledShutdownResponse(error_code=int(code)))
