"""Gets the producer id and epoch of an idempotent producer from any broker. Source: KIP-98."""

from storage_engine.client.asking import error_from
from storage_engine.client.cluster import Cluster
from storage_engine.client.producer.produce_queue import ProducerIdentity
from storage_engine.protocol.messages.init_producer_id import API as INIT_PRODUCER_ID
from storage_engine.protocol.messages.init_producer_id import InitProducerIdRequest


def new_producer(cluster: Cluster) -> ProducerIdentity:
    """Requests a producer id that nobody has had; retries until the cluster's deadline."""
    answer = cluster.ask_any(
        INIT_PRODUCER_ID,
        InitProducerIdRequest(),
        error_of=lambda answer: error_from(answer.error_code, what="no producer id"),
    )
    return ProducerIdentity(answer.producer_id, answer.producer_epoch)
