"""LeaderAndIsr (key 4): the controller says which partitions this broker leads or follows.

An order of another broker than the controller, one older than another order of the same controller,
and one meant for an earlier incarnation of this broker are refused (`order_gate`). Orders are
carried out one after another, each once the settings of its topics are known, and a long one in
several turns of the event loop, each of which checks again whether it is refused. A partition that
can't be led or followed does not hinder the others. Source: R-CTL1, R-CTL3, R-CTL4.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from storage_engine.broker import unexpected
from storage_engine.broker.cluster.metadata_cache import MetadataCache
from storage_engine.broker.cluster.order_gate import OrderGate, Orders
from storage_engine.broker.handlers.api_call import ApiCall
from storage_engine.broker.handlers.controller.full_orders import FullOrders
from storage_engine.broker.replicas.replica_manager import ReplicaManager
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ports import Endpoint
from storage_engine.protocol.apis.leader_and_isr import (
    LeaderAndIsrPartition,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LiveLeader,
)
from storage_engine.protocol.apis.order_answers import PartitionOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsrHandler:
    """Carries out LeaderAndIsr."""

    order_gate: OrderGate
    orders: Orders
    full_orders: FullOrders
    replicas: ReplicaManager
    metadata: MetadataCache

    def handle(self, call: ApiCall[LeaderAndIsrResponse], request: LeaderAndIsrRequest) -> None:
        def refuse(code: ErrorCode) -> None:
            call.respond(LeaderAndIsrResponse(error_code=int(code)))

        def refused() -> bool:
            refusal = call.refusal() or self.order_gate.refusal(request, call.connection)
            if refusal is ErrorCode.NONE:
                return False
            refuse(refusal)
            return True

        def apply() -> Iterator[None]:
            endpoints: dict[int, Endpoint] = {
                leader.broker_id: self._endpoint(leader) for leader in request.live_leaders
            }
            outcomes = []
            if request.full and not self.full_orders.begin(request):
                refuse(ErrorCode.UNKNOWN_SERVER_ERROR)
                return
            try:
                for item in request.partitions:
                    # A session, or a controller, may have ended since the turn before.
                    if refused():
                        return
                    outcomes.append(
                        PartitionOutcome(
                            topic=item.topic,
                            partition=item.partition,
                            error_code=int(self._apply(item, endpoints)),
                        )
                    )
                    yield None
            finally:
                self.replicas.roles_taken()
            if refused():
                return
            if request.full:
                self.full_orders.end(request)
            call.respond(LeaderAndIsrResponse(partitions=outcomes))

        topics = {item.topic for item in request.partitions}
        self.order_gate.admit(
            request,
            call.connection,
            carry_out=lambda: self.orders.submit(topics, apply, refuse),
            refuse=refuse,
        )

    def _endpoint(self, leader: LiveLeader) -> Endpoint:
        """The address by which this broker connects to that one: the controller's own choice may be
        another listener, in a rolling change of it."""
        host, port = leader.host, leader.port
        known = self.metadata.brokers.get(leader.broker_id)
        if known is not None and known.endpoints:
            host, port = known.host, known.port
        return Endpoint(broker_id=leader.broker_id, host=host, port=port)

    def _apply(self, item: LeaderAndIsrPartition, endpoints: dict[int, Endpoint]) -> ErrorCode:
        try:
            return self.replicas.apply_leadership(item, endpoints)
        except Exception as error:  # noqa: BLE001 - whatever it is, the others are led and followed
            unexpected.report(f"leadership of {item.topic}-{item.partition} not taken", error)
            return ErrorCode.UNKNOWN_SERVER_ERROR
