"""Move partitions to other brokers or log dirs, or change their number of replicas.

actions:
  generate  print a plan that spreads topics over brokers; nothing is changed
  execute   start the reassignments of a plan and return; the brokers carry them out
  verify    show how far the reassignments of a plan are; remove the throttle when all have ended
  cancel    cancel the reassignments of a plan that are still in progress

'generate' puts the replicas of a partition on different machines (broker.host.name) and spreads
them over zones (broker.rack); brokers that are cordoned get none.

A plan is a JSON file, written by 'generate' or by hand. The first replica of a partition is its
preferred leader:

  {"version": 1, "partitions": [{"topic": "flights", "partition": 0, "replicas": [4, 5, 6]}]}

"log_dirs": ["/disk2", "any", "any"] beside "replicas" names the log dir for each replica, in
the same order. A replica that its broker already has is moved to that directory while it serves.

examples:
  headrace reassign generate --bootstrap-server 127.0.0.1:9092 \\
      --topics-to-move-json-file topics.json --broker-list 4,5,6
  headrace reassign execute --bootstrap-server 127.0.0.1:9092 \\
      --reassignment-json-file plan.json --throttle 50000000
  headrace reassign verify --bootstrap-server 127.0.0.1:9092 --reassignment-json-file plan.json
  headrace reassign cancel --bootstrap-server 127.0.0.1:9092 --reassignment-json-file plan.json
"""

import argparse
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from storage_engine.client.admin.reassignment import alter_reassignments, list_reassignments
from storage_engine.client.cluster import Cluster
from storage_engine.client.metadata import ClusterMetadata
from storage_engine.core.assignment import NewPartitions, assign_replicas
from storage_engine.core.errors import ErrorCode, KafkaError
from storage_engine.core.ids import BrokerId, TopicPartition
from storage_engine.core.placement import Places, ReplicaCounts
from storage_engine.tools.actions import Actions, act_on_cluster
from storage_engine.tools.arguments import add_json, positive_integer
from storage_engine.tools.broker_places import read_places
from storage_engine.tools.document import Document
from storage_engine.tools.errors import CommandError
from storage_engine.tools.placement.reassign_log_dirs import begin_log_dir_moves, log_dir_progress
from storage_engine.tools.placement.reassign_plan import (
    Plan,
    broker_list,
    plan_document,
    plan_text,
    read_log_dirs,
    read_plan,
    read_topics,
)
from storage_engine.tools.placement.reassign_progress import (
    DONE,
    FAILED,
    MOVING,
    begin,
    end_throttle,
    plan_states,
)
from storage_engine.tools.table import print_json, print_rows, write_line


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `headrace reassign`: each action has its own."""
    actions = Actions(parser, "reassign")
    generate = actions.add(
        "generate",
        _generate,
        "print a plan that spreads topics over brokers; nothing is changed",
    )
    generate.add_argument(
        "--topics-to-move-json-file",
        required=True,
        type=Path,
        metavar="FILE",
        help="JSON file that names the topics to spread: "
        '{"topics": [{"topic": "flights"}], "version": 1}',
    )
    generate.add_argument(
        "--broker-list",
        required=True,
        metavar="IDS",
        help="ids of the brokers that get the replicas, such as 4,5,6",
    )
    execute = actions.add(
        "execute",
        _execute,
        "start the reassignments of a plan; the brokers carry them out after the command returns",
    )
    execute.add_argument(
        "--throttle",
        type=positive_integer,
        metavar="BYTES",
        help="limit the replication traffic of the reassignment to BYTES per second, for each "
        "broker that sends and each that receives (default: no limit); 'verify' removes the limit "
        "when all reassignments have ended",
    )
    verify = actions.add(
        "verify",
        _verify,
        "show how far the reassignments of a plan are; remove the throttle when all have ended",
    )
    cancel = actions.add(
        "cancel",
        _cancel,
        "cancel the reassignments of a plan that are still in progress",
    )
    for action in (generate, execute, verify, cancel):
        add_json(action)
    for action in (execute, verify, cancel):
        action.add_argument(
            "--reassignment-json-file",
            required=True,
            type=Path,
            metavar="FILE",
            help="JSON file with the plan",
        )


def run(args: argparse.Namespace) -> int:
    """Run `headrace reassign`."""
    return act_on_cluster(args)


# --- generate ---


def _generate(cluster: Cluster, args: argparse.Namespace) -> None:
    brokers = broker_list(args.broker_list)
    topics = read_topics(args.topics_to_move_json_file)
    view = cluster.metadata()
    current = _current(view, topics)
    absent = [broker for broker in brokers if broker not in view.brokers]
    if absent:
        raise CommandError(
            f"brokers {', '.join(map(str, absent))} are not alive; alive are "
            f"{', '.join(map(str, sorted(view.brokers)))}"
        )
    places = read_places(cluster, view, brokers)
    proposed = propose(current, places, _counts_of_others(view, set(topics)))
    if args.json:
        print_json({"current": plan_document(current), "proposed": plan_document(proposed)})
        return
    write_line("current assignment (keep it: executing it undoes the plan)")
    write_line(plan_text(current))
    write_line("")
    write_line("proposed assignment (write it to a file for 'execute')")
    write_line(plan_text(proposed))


def _current(view: ClusterMetadata, topics: Iterable[str]) -> Plan:
    current: dict[TopicPartition, tuple[int, ...]] = {}
    for topic in topics:
        if topic not in view.topics:
            raise CommandError(f"there is no topic '{topic}'")
        for number, partition in view.topics[topic].partitions.items():
            current[TopicPartition(topic, number)] = tuple(partition.replicas)
    return current


def _counts_of_others(view: ClusterMetadata, topics: Collection[str]) -> ReplicaCounts:
    """The replicas of the topics that stay where they are."""
    counts = ReplicaCounts()
    for topic in view.topics.values():
        if topic.topic not in topics:
            for partition in topic.partitions.values():
                counts.add([BrokerId(replica) for replica in partition.replicas])
    return counts


def propose(current: Plan, places: Places, counts: ReplicaCounts | None = None) -> Plan:
    """Spread the topics of `current` over the brokers of `places` that take new replicas; each
    topic keeps its replication factor. `counts`: the replicas of other topics. Raises KafkaError
    when brokers or machines are too few."""
    proposed: dict[TopicPartition, tuple[int, ...]] = {}
    counts = ReplicaCounts() if counts is None else counts
    for topic in sorted({tp.topic for tp in current}):
        numbers = sorted(tp.partition for tp in current if tp.topic == topic)
        factor = max(len(current[TopicPartition(topic, number)]) for number in numbers)
        assigned = assign_replicas(places, NewPartitions(len(numbers), factor), counts)
        for number, replicas in zip(numbers, assigned.values(), strict=True):
            proposed[TopicPartition(topic, number)] = tuple(replicas)
            counts.add(replicas)
    return proposed


# --- execute, cancel ---


def _execute(cluster: Cluster, args: argparse.Namespace) -> None:
    plan = read_plan(args.reassignment_json_file)
    log_dirs = read_log_dirs(args.reassignment_json_file)
    topics = sorted({tp.topic for tp in plan})
    current = _current(cluster.metadata(topics), topics)
    # First, so that replicas which are made now are made there.
    begin_log_dir_moves(cluster, log_dirs)
    failures = begin(cluster, plan, current, args.throttle)
    before = {tp: current[tp] for tp in plan if tp in current}
    if not args.json:
        write_line("assignment before (keep it: executing it undoes the plan)")
        write_line(plan_text(before))
    states = {tp: "refused" if tp in failures else "started" for tp in sorted(plan)}
    _report(states, as_json=args.json)
    _complain("not started", failures)


def _cancel(cluster: Cluster, args: argparse.Namespace) -> None:
    plan = read_plan(args.reassignment_json_file)
    failures = alter_reassignments(cluster, dict.fromkeys(plan))
    not_moving = {
        tp
        for tp, failure in failures.items()
        if failure.code is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    }
    states = {tp: "refused" if tp in failures else "cancelled" for tp in sorted(plan)}
    states |= dict.fromkeys(sorted(not_moving), "not being reassigned")
    _report(states, as_json=args.json)
    _complain("not cancelled", {tp: f for tp, f in failures.items() if tp not in not_moving})
    end_throttle(cluster, plan, {tp.topic for tp in plan})


def _report(states: Mapping[TopicPartition, str], *, as_json: bool) -> None:
    rows: list[Document] = [
        {"topic": tp.topic, "partition": tp.partition, "state": state}
        for tp, state in states.items()
    ]
    print_rows(("topic", "partition", "state"), rows, as_json=as_json)


def _complain(what: str, failures: Mapping[TopicPartition, KafkaError]) -> None:
    if failures:
        reasons = "; ".join(f"{tp}: {failure}" for tp, failure in sorted(failures.items()))
        raise CommandError(f"{what}: {reasons}")


# --- verify ---


def _verify(cluster: Cluster, args: argparse.Namespace) -> None:
    plan = read_plan(args.reassignment_json_file)
    ongoing = list_reassignments(cluster)
    view = cluster.metadata(sorted({tp.topic for tp in plan}))
    states = plan_states(plan, view, ongoing)
    in_log_dirs = log_dir_progress(cluster, read_log_dirs(args.reassignment_json_file))
    for tp, (state, detail) in in_log_dirs.items():
        if states[tp][0] == DONE:
            states[tp] = state, detail
    rows: list[Document] = [
        {"topic": tp.topic, "partition": tp.partition, "state": state, "detail": detail}
        for tp, (state, detail) in states.items()
    ]
    print_rows(("topic", "partition", "state", "detail"), rows, as_json=args.json)
    if all(state != MOVING for state, _detail in states.values()):
        end_throttle(cluster, plan, {tp.topic for tp in plan if tp.topic in view.topics})
    failed = [str(tp) for tp, (state, _detail) in states.items() if state == FAILED]
    if failed:
        raise CommandError(
            f"these partitions are not as planned, and no reassignment of them is in progress: "
            f"{', '.join(failed)}"
        )
