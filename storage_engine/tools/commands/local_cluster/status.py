"""Show a local cluster: its brokers, its controller, its topics, and the partitions in trouble.

A broker is 'alive' when its process runs, and 'serves' when it answers a Metadata request. A
partition is under-replicated when one of its replicas is not in sync, and offline when it has no
leader; the reason is printed with it. The exit status is 0 also when the cluster is down.

A partition can stay offline because it waits for a broker that will never return. An unclean
election gives it a leader, and loses the records that only the lost broker had: set the topic's
unclean.leader.election.enable=true with 'headrace topics alter' until the partition has a leader,
then remove it; or send ElectLeaders with any Kafka client.

examples:
  headrace status --dir ./cluster
  headrace status --dir ./cluster --json
"""

import argparse
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from storage_engine.client.metadata import ClusterMetadata
from storage_engine.core.errors import HeadraceError
from storage_engine.protocol.apis.metadata import MetadataPartition
from storage_engine.tools.arguments import add_directory, add_json
from storage_engine.tools.document import Document
from storage_engine.tools.local.cluster_file import BrokerEntry, ClusterFile
from storage_engine.tools.local.local_cluster import LocalCluster
from storage_engine.tools.local.serving import ask_metadata
from storage_engine.tools.table import print_json, print_rows, write_line

NO_LEADER = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterStatus:
    """The document of `--json`."""

    zookeeper: str
    zookeeper_pid: int | None
    zookeeper_alive: bool | None
    bootstrap_servers: str
    brokers: list[Document]
    answered_by: int | None
    controller: int | None
    topics: list[Document]
    under_replicated: list[Document]
    offline: list[Document]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `headrace status`."""
    add_directory(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Run `headrace status`."""
    cluster = LocalCluster(args.dir)
    state = cluster.state
    config = cluster.admin_config(state)
    answers = {entry.id: _ask(entry, config) for entry in state.brokers}
    status = describe(state, answers)
    if args.json:
        print_json(asdict(status))
    else:
        print_status(status)
    return 0


def _ask(entry: BrokerEntry, config: Path | None) -> ClusterMetadata | None:
    if entry.pid is None:
        return None
    try:
        return ask_metadata(entry, topics=None, config=config)
    except HeadraceError:
        return None


def describe(state: ClusterFile, answers: dict[int, ClusterMetadata | None]) -> ClusterStatus:
    """`answers` has what each broker said, None where it said nothing."""
    asked, view = next(
        ((broker_id, answer) for broker_id, answer in answers.items() if answer is not None),
        (None, ClusterMetadata()),
    )
    partitions = [
        (topic.topic, partition)
        for topic in view.topics.values()
        for partition in topic.partitions.values()
    ]
    return ClusterStatus(
        zookeeper=state.zookeeper,
        zookeeper_pid=state.zookeeper_pid,
        zookeeper_alive=None if state.zookeeper_dir is None else state.zookeeper_pid is not None,
        bootstrap_servers=state.bootstrap_servers,
        brokers=[
            {
                "id": entry.id,
                "host": entry.host,
                "port": entry.port,
                "pid": entry.pid,
                "alive": entry.pid is not None,
                "serves": answers[entry.id] is not None,
            }
            for entry in state.brokers
        ],
        answered_by=asked,
        controller=view.controller_id if view.controller_id in view.brokers else None,
        topics=[
            {
                "name": topic.topic,
                "partitions": len(topic.partitions),
                "replication_factor": max(
                    (len(partition.replicas) for partition in topic.partitions.values()), default=0
                ),
            }
            for topic in sorted(view.topics.values(), key=lambda topic: topic.topic)
        ],
        under_replicated=[
            _unwell(topic, partition)
            for topic, partition in partitions
            if len(partition.isr) < len(partition.replicas)
        ],
        offline=[
            {**_unwell(topic, partition), "why": _why_offline(partition, view)}
            for topic, partition in partitions
            if partition.leader == NO_LEADER
        ],
    )


def _unwell(topic: str, partition: MetadataPartition) -> Document:
    return {
        "topic": topic,
        "partition": partition.partition,
        "leader": None if partition.leader == NO_LEADER else partition.leader,
        "replicas": list(partition.replicas),
        "isr": list(partition.isr),
    }


def _why_offline(partition: MetadataPartition, view: ClusterMetadata) -> str:
    """A leader comes from the last ISR. A member that is there and does not lead is either one that
    may have lost the end of its log, and waits for the others, or one whose log dir failed."""
    here = [member for member in partition.isr if member in view.brokers]
    away = [member for member in partition.isr if member not in view.brokers]
    if not away:
        return f"an election is under way, or the log dir of {_brokers(here)} failed"
    why = f"waits for {_brokers(away)} of the last ISR"
    if here:
        why += f"; the end of the log may be lost, or the log dir failed, on {_brokers(here)}"
    return why


def _brokers(ids: Sequence[int]) -> str:
    return f"{'broker' if len(ids) == 1 else 'brokers'} {', '.join(map(str, ids))}"


def print_status(status: ClusterStatus) -> None:
    """The status as tables."""
    how = {
        None: "not ours",
        True: f"pid {status.zookeeper_pid}",
        False: "does not run",
    }[status.zookeeper_alive]
    write_line(f"ZooKeeper {status.zookeeper} ({how})")
    write_line("")
    controller = status.controller
    print_rows(
        (("broker", "id"), "host", "port", "pid", "alive", "serves", "controller"),
        [{**row, "controller": "yes" if row["id"] == controller else ""} for row in status.brokers],
    )
    write_line("")
    if status.answered_by is None:
        write_line("no broker answers, so the topics are unknown")
        return
    if status.controller is None:
        write_line("there is no controller at the moment")
    if status.topics:
        columns = (("topic", "name"), "partitions", ("replicas", "replication_factor"))
        print_rows(columns, status.topics)
    else:
        write_line("no topics")
    write_line("")
    _print_unwell("under-replicated", status.under_replicated)
    _print_unwell("offline", status.offline)


def _print_unwell(what: str, partitions: list[Document]) -> None:
    if not partitions:
        write_line(f"{what} partitions: none")
        return
    write_line(f"{what} partitions: {len(partitions)}")
    columns = ("topic", "partition", "leader", "replicas", ("in sync", "isr"))
    print_rows(columns, partitions)
    for row in partitions:
        if "why" in row:
            write_line(f"{row['topic']}-{row['partition']} {row['why']}")
