"""Reads from the brokers where replicas lie, and what is known of the brokers themselves."""

import time
from collections.abc import Sequence
from dataclasses import replace

from storage_engine.client.admin.log_dirs import describe_log_dirs
from storage_engine.client.admin.reassignment import Ongoing, list_reassignments
from storage_engine.client.cluster import Cluster
from storage_engine.client.metadata import ClusterMetadata
from storage_engine.core.errors import DeadlineExceededError, KafkaError
from storage_engine.core.ids import BrokerId, TopicPartition
from storage_engine.protocol.apis.metadata import MetadataPartition
from storage_engine.tools.broker_places import read_places
from storage_engine.tools.errors import CommandError
from storage_engine.tools.placement.layout import KnownBroker, Layout, PlacedPartition, own_machine


def read_layout(cluster: Cluster) -> Layout:
    """Return brokers and partitions. A broker that does not answer counts as dead."""
    view = cluster.metadata()
    ongoing = list_reassignments(cluster)
    brokers: dict[int, KnownBroker] = {}
    sizes: dict[TopicPartition, dict[int, int]] = {}
    for broker in sorted(view.brokers):
        try:
            brokers[broker], of_broker = _read_broker(cluster, view, broker)
        except (KafkaError, DeadlineExceededError) as error:
            if isinstance(error, KafkaError) and not error.retriable:
                raise
            brokers[broker] = KnownBroker(machine=own_machine(broker), is_alive=False)
            continue
        for tp, size in of_broker.items():
            sizes.setdefault(tp, {})[broker] = size
    partitions: dict[TopicPartition, PlacedPartition] = {}
    for topic in view.topics.values():
        for number, partition in topic.partitions.items():
            tp = TopicPartition(topic.topic, number)
            partitions[tp] = _placed(partition, ongoing.get(tp), sizes.get(tp, {}))
    for placed in partitions.values():
        for broker in (*placed.replicas, *placed.final):
            dead = KnownBroker(machine=own_machine(broker), is_alive=False)
            brokers.setdefault(broker, dead)
    return Layout(brokers=brokers, partitions=partitions)


def _read_broker(
    cluster: Cluster, view: ClusterMetadata, broker: int
) -> tuple[KnownBroker, dict[TopicPartition, int]]:
    place = read_places(cluster, view, [broker])[BrokerId(broker)]
    known = KnownBroker(
        machine=place.machine or own_machine(broker),
        rack=place.zone,
        is_cordoned=place.is_cordoned,
    )
    return known, {
        log.tp: log.size_bytes
        for log_dir in describe_log_dirs(cluster, broker)
        for log in log_dir.replicas
        if not log.is_future
    }


def _placed(
    partition: MetadataPartition, move: Ongoing | None, sizes: dict[int, int]
) -> PlacedPartition:
    replicas, target = tuple(partition.replicas), None
    if move is not None:
        replicas = tuple(broker for broker in move.replicas if broker not in move.adding)
        target = tuple(broker for broker in move.replicas if broker not in move.removing)
    return PlacedPartition(
        replicas=replicas,
        leader=partition.leader,
        isr=frozenset(partition.isr),
        target=target,
        size_bytes=sizes.get(partition.leader, max(sizes.values(), default=0)),
    )


def with_rates(cluster: Cluster, layout: Layout, sample_s: float) -> Layout:
    """Return the layout with the bytes a second that producers write to each partition: what is
    appended within `sample_s`, in records as large as those that are there."""
    led = [tp for tp, partition in layout.partitions.items() if partition.leader >= 0]
    before = cluster.log_bounds(led)
    began_s = time.monotonic()
    time.sleep(sample_s)
    after = cluster.log_bounds(led)
    taken_s = time.monotonic() - began_s
    partitions = dict(layout.partitions)
    for tp in after.latest.keys() & before.latest.keys() & after.earliest.keys():
        appended = max(after.latest[tp] - before.latest[tp], 0)
        stored = max(after.latest[tp] - after.earliest[tp], 1)
        rate = appended * partitions[tp].size_bytes / stored / taken_s
        partitions[tp] = replace(partitions[tp], bytes_per_s=rate)
    return replace(layout, partitions=partitions)


def named_brokers(layout: Layout, name: str) -> list[int]:
    """Return the broker with this id, or all brokers of the host; CommandError for neither."""
    if name.isascii() and name.isdigit() and int(name) in layout.brokers:
        return [int(name)]
    on_host = [broker for broker, place in layout.brokers.items() if place.machine == name]
    if on_host:
        return sorted(on_host)
    hosts = sorted({p.machine for b, p in layout.brokers.items() if p.machine != own_machine(b)})
    brokers = _listed([str(broker) for broker in sorted(layout.brokers)])
    of_hosts = f"hosts are {_listed(hosts)}" if hosts else "no broker has a broker.host.name"
    raise CommandError(f"there is no broker or host '{name}'; brokers are {brokers}; {of_hosts}")


def _listed(names: Sequence[str], most: int = 20) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
