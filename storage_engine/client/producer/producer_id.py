"""Gets the producer id and epoch of an idempotent producer from any broker. Source: KIP-98."""

from storage_engine.client.cluster import Cluster
from storage_engine.client.producer.produce_queue import ProducerIdentity
from storage_engine.client.retry import Retry
from storage_engine.core.errors import ErrorCode, KafkaError
from storage_engine.net.deadline import Deadline
from storage_engine.protocol.messages.init_producer_id import API as INIT_PRODUCER_ID
from storage_engine.protocol.messages.init_producer_id import InitProducerIdRequest


def new_producer(cluster: Cluster) -> ProducerIdentity:
    """Requests a producer id that nobody has had; retries until the cluster's deadline."""
    retry = Retry("InitProducerId", Deadline.after(cluster.deadline_ms))
    while True:
        answer = cluster.ask_any(INIT_PRODUCER_ID, InitProducerIdRequest())
        code = ErrorCode.of(answer.error_code)
        if code is ErrorCode.NONE:
            return ProducerIdentity(answer.producer_id, answer.producer_epoch)
        retry.pause(KafkaError(f"no producer id: {code.meaning}", code))
