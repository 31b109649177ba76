"""Check that all replicas of a partition hold the same records at the same offsets.

The command reads every replica of the matching topics up to the smallest high watermark among them,
checks each CRC, and compares offsets, leader epochs and contents with those of the leader. LAG is
the number of offsets by which a replica's high watermark is behind the leader's. Each replica
compacts its log by itself; in compacted topics, batches that two replicas have compacted
differently are skipped.

The exit status is 1 when a replica differs from its leader or could not be read. Nothing in the
cluster is changed.

examples:
  headrace verify-replicas --bootstrap-server 127.0.0.1:9092 --topics 'orders|flights'
  headrace verify-replicas --bootstrap-server 127.0.0.1:9092 --topics '.*' --json
"""

import argparse
import re
from dataclasses import dataclass, field

from storage_engine.client.admin.topics import describe_topic_configs
from storage_engine.client.cluster import Cluster
from storage_engine.client.fetching.replica_reader import (
    ReplicaReader,
    ReplicaState,
    replica_states,
)
from storage_engine.core.errors import (
    CorruptRecordError,
    DeadlineExceededError,
    HeadraceError,
    KafkaError,
)
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.apis.metadata import MetadataPartition
from storage_engine.tools.arguments import add_bootstrap_server, add_json, add_timeout
from storage_engine.tools.client_settings import connect
from storage_engine.tools.document import Document
from storage_engine.tools.errors import CommandError, UsageError
from storage_engine.tools.inspection.replica_comparison import ReplicaComparison, compare
from storage_engine.tools.table import print_json, print_table, report_line

TIMEOUT_S = 10.0

EQUAL = "equal"
DIFFERS = "differs"
NO_ANSWER = "no answer"


@dataclass(slots=True, kw_only=True)
class ReplicaReport:
    """One replica of a partition."""

    replica: int
    is_leader: bool
    in_sync: bool
    state: ReplicaState | None = None
    """None when the replica does not answer."""
    result: str = EQUAL
    first_offset: int | None = None
    """The offset of the first difference."""
    what: str | None = None
    """A text that says what differs, or why the replica does not answer."""

    def differs(self, offset: int | None, what: str) -> None:
        if self.result == EQUAL:
            self.result, self.first_offset, self.what = DIFFERS, offset, what

    def gives_no_answer(self, error: HeadraceError) -> None:
        self.result, self.what = NO_ANSWER, str(error)


@dataclass(slots=True, kw_only=True)
class PartitionReport:
    """The result of comparing one partition's replicas."""

    tp: TopicPartition
    replicas: list[ReplicaReport] = field(default_factory=list)
    start_offset: int | None = None
    end_offset: int | None = None
    batches: int = 0
    skipped: int = 0

    @property
    def leader_high_watermark(self) -> int | None:
        states = [each.state for each in self.replicas if each.is_leader]
        return states[0].high_watermark if states and states[0] is not None else None

    def lag(self, replica: ReplicaReport) -> int | None:
        """Records that its high watermark is behind the leader's; None where one is not known."""
        leader = self.leader_high_watermark
        if leader is None or replica.state is None:
            return None
        return max(0, leader - replica.state.high_watermark)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `headrace verify-replicas`."""
    add_bootstrap_server(parser)
    parser.add_argument(
        "--topics",
        required=True,
        metavar="REGEX",
        help="check the topics whose whole name matches",
    )
    add_timeout(
        parser,
        TIMEOUT_S,
        "report the replicas of a broker as unread when it does not answer for this many seconds",
    )
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Run `headrace verify-replicas`."""
    pattern = _pattern(args.topics)
    timeout_ms = round(1000 * args.timeout)
    with connect(
        args.bootstrap_server, args.command_config, request_timeout_ms=timeout_ms
    ) as cluster:
        verification = Verification(cluster, timeout_ms=timeout_ms)
        reports = verification.verify(pattern)
    if args.json:
        print_json(describe(reports))
    else:
        print_reports(reports)
    good = all(each.result == EQUAL for report in reports for each in report.replicas)
    return 0 if good else 1


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise UsageError(f"'--topics {text}' is not a regular expression: {error}") from None


class Verification:
    """Compares partition after partition; memory is one answer of each of two replicas."""

    def __init__(self, cluster: Cluster, *, timeout_ms: int) -> None:
        self._cluster = cluster
        self._timeout_ms = timeout_ms
        self._silent: dict[int, HeadraceError] = {}
        """Brokers that did not answer: they are not waited for again."""

    def verify(self, pattern: re.Pattern[str]) -> list[PartitionReport]:
        """Compares the replicas of all partitions of matching topics. Raises CommandError when no
        topic matches."""
        topics = self._cluster.metadata().topics
        names = sorted(name for name in topics if pattern.fullmatch(name))
        if not names:
            raise CommandError(
                f"no topic's name matches '{pattern.pattern}'; 'headrace topics list' shows them"
            )
        reports = []
        for number, name in enumerate(names, 1):
            policy = describe_topic_configs(self._cluster, name)["cleanup.policy"].value or ""
            partitions = topics[name].partitions
            for index, partition in partitions.items():
                report = self._report(TopicPartition(name, index), partition)
                self._compare(report, is_compacted="compact" in policy.split(","))
                reports.append(report)
            report_line(
                f"{number} of {len(names)} topics compared: {name}, {len(partitions)} partitions"
            )
        return reports

    def _report(self, tp: TopicPartition, partition: MetadataPartition) -> PartitionReport:
        report = PartitionReport(tp=tp)
        for replica in partition.replicas:
            each = ReplicaReport(
                replica=replica,
                is_leader=replica == partition.leader,
                in_sync=replica in partition.isr,
            )
            report.replicas.append(each)
            self._probe(tp, each)
        return report

    def _probe(self, tp: TopicPartition, replica: ReplicaReport) -> None:
        broker = replica.replica
        if broker in self._silent:
            replica.gives_no_answer(self._silent[broker])
            return
        try:
            states = replica_states(self._cluster, broker, [tp], timeout_ms=self._timeout_ms)
        except (KafkaError, DeadlineExceededError) as error:
            self._silent[broker] = error
            replica.gives_no_answer(error)
            return
        state = states[tp]
        if isinstance(state, KafkaError):
            replica.gives_no_answer(state)
        else:
            replica.state = state

    def _compare(self, report: PartitionReport, *, is_compacted: bool) -> None:
        answering = [each for each in report.replicas if each.state is not None]
        # The leader is what the others are held against, where it answers.
        answering.sort(key=lambda each: not each.is_leader)
        states = [each.state for each in answering if each.state is not None]
        if not states:
            return
        start_offset = max(state.log_start_offset for state in states)
        end_offset = max(start_offset, min(state.high_watermark for state in states))
        report.start_offset, report.end_offset = start_offset, end_offset
        reference, *others = answering
        for other in others or [reference]:
            readers = [
                ReplicaReader(
                    self._cluster,
                    each.replica,
                    report.tp,
                    start_offset=start_offset,
                    end_offset=end_offset,
                    timeout_ms=self._timeout_ms,
                )
                for each in (reference, other)
            ]
            try:
                done = compare(*readers, is_compacted=is_compacted)
            except CorruptRecordError as error:
                other.differs(None, str(error))
                continue
            except (KafkaError, DeadlineExceededError) as error:
                other.gives_no_answer(error)
                continue
            _note(report, reference, other, done)


def _note(
    report: PartitionReport, reference: ReplicaReport, other: ReplicaReport, done: ReplicaComparison
) -> None:
    report.batches = max(report.batches, done.batches)
    report.skipped += done.skipped
    if done.difference is not None:
        at_fault = reference if done.difference.of_reference else other
        at_fault.differs(done.difference.offset, done.difference.what)


def describe(reports: list[PartitionReport]) -> Document:
    """The document of `--json`."""
    return {
        "partitions": [
            {
                **report.tp._asdict(),
                "start_offset": report.start_offset,
                "end_offset": report.end_offset,
                "batches": report.batches,
                "batches_skipped": report.skipped,
                "replicas": [
                    {
                        "replica": each.replica,
                        "leader": each.is_leader,
                        "in_sync": each.in_sync,
                        "high_watermark": each.state.high_watermark if each.state else None,
                        "lag": report.lag(each),
                        "result": each.result,
                        "first_different_offset": each.first_offset,
                        "what": each.what,
                    }
                    for each in report.replicas
                ],
            }
            for report in reports
        ],
        "differences": _count(reports, DIFFERS),
        "unanswered": _count(reports, NO_ANSWER),
    }


def _count(reports: list[PartitionReport], result: str) -> int:
    return sum(each.result == result for report in reports for each in report.replicas)


def print_reports(reports: list[PartitionReport]) -> None:
    """The table, one line a replica, and a line that sums it up."""
    print_table(
        ["topic", "partition", "replica", "leader", "lag", "compared", "result", "offset", "what"],
        [
            [
                report.tp.topic,
                report.tp.partition,
                each.replica,
                each.is_leader,
                report.lag(each),
                f"{report.start_offset}..{report.end_offset}" if each.state else None,
                each.result,
                each.first_offset,
                each.what,
            ]
            for report in reports
            for each in report.replicas
        ],
    )
    replicas = sum(len(report.replicas) for report in reports)
    report_line(
        f"{replicas} replicas of {len(reports)} partitions: {_count(reports, DIFFERS)} differ, "
        f"{_count(reports, NO_ANSWER)} did not answer"
    )
