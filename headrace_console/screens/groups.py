"""Consumer groups: members, lag, and new offsets, with a preview before they are set.

A preview is applied only if the group is still empty and its offsets are those of the preview: a
user gets exactly what they have confirmed. Source: R-CON9.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from headrace_console.cluster.broker_lines import BrokerLines, Question, unanswered
from headrace_console.cluster.group_looks import header_of, one_header_each, written_ms
from headrace_console.cluster.snapshot import Snapshot
from headrace_console.given import Body, bad
from headrace_console.paging import Page
from headrace_console.problem import ConsoleError
from storage_engine.client.addresses import Address
from storage_engine.client.admin.group_descriptions import CLASSIC_TYPE, CONSUMER_TYPE
from storage_engine.client.admin.groups import (
    ListedGroup,
    delete_group,
    describe_group,
    group_members,
    has_members,
)
from storage_engine.client.admin.offset_resets import OffsetReset, reset_offsets, set_offsets
from storage_engine.client.cluster import EARLIEST, LATEST, Cluster
from storage_engine.client.groups.committed_offsets import committed_offsets
from storage_engine.core.errors import DeadlineExceededError, ErrorCode, HeadraceError, KafkaError
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.apis.consumer_group_describe import API as CONSUMER_GROUP_DESCRIBE
from storage_engine.protocol.apis.consumer_group_describe import ConsumerGroupDescribeRequest
from storage_engine.protocol.apis.fetch import BY_NAME, FetchPartition
from storage_engine.protocol.messages.describe_groups import API as DESCRIBE_GROUPS
from storage_engine.protocol.messages.describe_groups import DescribeGroupsRequest
from storage_engine.protocol.messages.list_groups import API as LIST_GROUPS
from storage_engine.protocol.messages.list_groups import ListGroupsRequest
from storage_engine.protocol.messages.offset_fetch import API as OFFSET_FETCH
from storage_engine.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from storage_engine.protocol.records.record_batch import HEADER_BYTES
from storage_engine.tools.document import Document

ASK_TIMEOUT_MS = 2_000
PREVIEW_S = 120
MOST_AGES = 100
"""The most partitions of a group for which the age of the oldest unread record is read."""


def group_list(lines: BrokerLines, snapshot: Snapshot, page: Page) -> Document:
    """Return a page of groups; lag and members are read for its rows only, unless sorted by."""
    addresses = snapshot.addresses
    question = (LIST_GROUPS, ListGroupsRequest(states_filter=[], types_filter=[]))
    answers = lines.ask({b: [question] for b in addresses}, addresses, timeout_ms=ASK_TIMEOUT_MS)
    silent = unanswered(answers, "its groups")
    groups = []
    for broker, answer in answers.items():
        if isinstance(answer, HeadraceError):
            continue
        if answer[0].error_code:
            code = ErrorCode.of(answer[0].error_code)
            silent.append({"broker": broker, "what": "its groups", "why": code.meaning})
        groups += [
            ListedGroup(
                group=each.group_id,
                state=each.group_state or "",
                protocol_type=each.protocol_type,
                coordinator=broker,
                group_type=(each.group_type or CLASSIC_TYPE).lower(),
            )
            for each in answer[0].groups
        ]
    by_progress = (page.sort or "").removeprefix("-") in ("lag", "members")
    details = _details(lines, snapshot, groups, addresses) if by_progress else {}
    paged = page.of(
        groups,
        name=lambda row: row.group,
        keys={
            "name": lambda row: row.group,
            "state": lambda row: (row.state, row.group),
            "type": lambda row: (row.group_type, row.group),
            "lag": lambda row: details.get(row.group, _UNKNOWN).lag,
            "members": lambda row: details.get(row.group, _UNKNOWN).members,
        },
        default="name",
    )
    if not by_progress:
        details = _details(lines, snapshot, paged.rows, addresses)

    def row(group: ListedGroup) -> Document:
        detail = details.get(group.group, _UNKNOWN)
        lag_ms = _lag_ms(snapshot, group.group, detail)
        return {**asdict(group), **asdict(detail), "lag_ms": lag_ms}

    return paged.document(row, as_of_ms=snapshot.at_ms, unanswered=silent)


@dataclass(frozen=True, slots=True)
class _Detail:
    members: int | None = None
    lag: int | None = None
    topics: int | None = None


_UNKNOWN = _Detail()


def _lag_ms(snapshot: Snapshot, group: str, detail: _Detail) -> int | None:
    """Return the lag in ms, by the watcher's last look at the group; None: not known."""
    if detail.lag == 0:
        return 0
    seen = None if snapshot.groups is None else snapshot.groups.get(group)
    return None if seen is None else seen.lag_ms


MOST_DETAILS = 500
"""The most groups whose lag is read for one page, also if it sorts by lag."""


def _details(
    lines: BrokerLines,
    snapshot: Snapshot,
    groups: Sequence[ListedGroup],
    addresses: Mapping[int, Address],
) -> dict[str, _Detail]:
    """Return details by group, from one exchange with each coordinator for all its groups."""
    by_coordinator: dict[int, list[ListedGroup]] = {}
    for group in groups[:MOST_DETAILS]:
        by_coordinator.setdefault(group.coordinator, []).append(group)
    questions = {broker: _questions(asked) for broker, asked in by_coordinator.items()}
    found: dict[str, _Detail] = {}
    for answer in lines.ask(questions, addresses, timeout_ms=ASK_TIMEOUT_MS).values():
        if isinstance(answer, HeadraceError) or isinstance(answer[0], HeadraceError):
            continue
        offsets, *described = answer
        members = {
            each.group_id: len(each.members)
            for part in described
            if not isinstance(part, HeadraceError)
            for each in part.groups
        }
        for row in offsets.groups:
            if not row.error_code:
                found[row.group_id] = _detail(row, members.get(row.group_id), snapshot)
    return found


def _questions(groups: Sequence[ListedGroup]) -> list[Question]:
    """Return the question for offsets of groups, and one for the members of each type."""
    group_row = OffsetFetchRequest.OffsetFetchRequestGroup
    rows = [group_row(group_id=each.group, topics=None) for each in groups]
    questions: list[Question] = [(OFFSET_FETCH, OffsetFetchRequest(groups=rows))]
    consumer = [each.group for each in groups if each.group_type == CONSUMER_TYPE]
    if consumer:
        asked = ConsumerGroupDescribeRequest(group_ids=consumer)
        questions.append((CONSUMER_GROUP_DESCRIBE, asked))
    classic = [each.group for each in groups if each.group_type != CONSUMER_TYPE]
    if classic:
        questions.append((DESCRIBE_GROUPS, DescribeGroupsRequest(groups=classic)))
    return questions


def _detail(
    row: OffsetFetchResponse.OffsetFetchResponseGroup, members: int | None, snapshot: Snapshot
) -> _Detail:
    lag: int | None = None
    for topic in row.topics:
        for each in topic.partitions:
            ends = snapshot.ends.get(TopicPartition(topic.name, each.partition_index))
            if ends is not None and ends.high_watermark is not None and each.committed_offset >= 0:
                lag = (lag or 0) + max(0, ends.high_watermark - each.committed_offset)
    return _Detail(members, lag, len(row.topics))


def group_document(cluster: Cluster, group: str) -> Document:
    """Return a group with its members and partitions."""
    described = describe_group(cluster, group)
    ages = _ages_ms(
        cluster,
        {
            each.tp: each.offset
            for each in described.partitions
            if each.lag and each.offset is not None
        },
    )
    rows = [
        {
            **each.tp._asdict(),
            "offset": each.offset,
            "end_offset": each.end_offset,
            "lag": each.lag,
            "lag_ms": 0 if each.lag == 0 else ages.get(each.tp),
            "member_id": each.member_id,
        }
        for each in described.partitions
    ]
    known = [row["lag_ms"] for row in rows if isinstance(row["lag_ms"], int)]
    return {
        "as_of_ms": int(time.time() * 1000),
        "unanswered": [],
        "group": described.group,
        "state": described.state,
        "group_type": described.group_type,
        "epoch": described.epoch,
        "assignment_epoch": described.assignment_epoch,
        "protocol_type": described.protocol_type,
        "protocol": described.protocol,
        "coordinator": described.coordinator,
        "lag": described.lag,
        "lag_ms": max(known) if known else None,
        "members": [
            {
                **asdict(each),
                "partitions": [tp._asdict() for tp in each.partitions],
                "target": None if each.target is None else [tp._asdict() for tp in each.target],
            }
            for each in described.members
        ],
        "partitions": rows,
    }


def _ages_ms(cluster: Cluster, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Return the age of the record at each offset, by its batch; unknown ages are left out."""
    chosen = dict(list(offsets.items())[:MOST_AGES])
    by_leader: dict[int, list[FetchPartition]] = {}
    for tp, offset in chosen.items():
        leader = cluster.known_leader(tp)
        if leader is not None:
            row = FetchPartition(*tp, offset, HEADER_BYTES, leader.epoch)
            by_leader.setdefault(leader.broker_id, []).append(row)
    requests = [(broker, BY_NAME, one_header_each(rows)) for broker, rows in by_leader.items()]
    now_ms = int(time.time() * 1000)
    ages = {}
    for answer in cluster.request_all(requests) if requests else []:
        if isinstance(answer, KafkaError | DeadlineExceededError):
            continue
        for part in answer.partitions:
            at_ms = written_ms(header_of(part))
            if at_ms is not None:
                ages[TopicPartition(part.topic, part.partition)] = max(0, now_ms - at_ms)
    return ages


# --- new offsets


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetPreview:
    """A reset as it was shown to a user, who may confirm it."""

    group: str
    resets: tuple[OffsetReset, ...]
    stored: Mapping[TopicPartition, int]
    """All committed offsets of the group at the time of the preview."""
    until_s: float

    @property
    def rows(self) -> list[Document]:
        return [
            {
                **each.tp._asdict(),
                "before": each.before,
                "after": each.after,
                "change": None if each.before is None else each.after - each.before,
            }
            for each in self.resets
        ]


def preview_reset(cluster: Cluster, group: str, body: Body) -> ResetPreview:
    """Return the offsets that a reset would set; nothing is changed."""
    stored = committed_offsets(cluster, group)
    resets = reset_offsets(
        cluster, group, topics=body.texts("topics"), dry_run=True, **_target(body)
    )
    until_s = time.monotonic() + PREVIEW_S
    return ResetPreview(group=group, resets=tuple(resets), stored=stored, until_s=until_s)


def _target(body: Body) -> dict[str, int]:
    to = body.raw("to")
    if to == "earliest":
        return {"at_ms": EARLIEST}
    if to == "latest":
        return {"at_ms": LATEST}
    part = body.part("to") if isinstance(to, dict) else None
    if part is not None:
        found = {
            "at_ms": part.integer_or_none("time_ms"),
            "offset": part.integer_or_none("offset"),
            "shift_by": part.integer_or_none("shift_by", least=-(2**63)),
        }
        given = {name: value for name, value in found.items() if value is not None}
        if len(given) == 1:
            return given
    raise bad(
        '\'to\' must be "earliest", "latest", or an object with one of time_ms, offset, shift_by'
    )


def apply_reset(cluster: Cluster, preview: ResetPreview) -> list[Document]:
    """Set the offsets of a preview. ConsoleError conflict if the group has changed since; the
    coordinator itself refuses offsets of a group that has members by now."""
    if time.monotonic() > preview.until_s:
        raise ConsoleError("conflict", "the preview is too old; open a new one")
    if members := group_members(cluster, preview.group):
        raise has_members(preview.group, len(members))
    if committed_offsets(cluster, preview.group) != preview.stored:
        raise ConsoleError(
            "conflict",
            f"the offsets of group '{preview.group}' have changed since the preview, so nothing "
            "was reset; open a new preview",
        )
    set_offsets(cluster, preview.group, {each.tp: each.after for each in preview.resets})
    return preview.rows


def delete(cluster: Cluster, group: str, body: Body) -> None:
    body.confirm(group)
    delete_group(cluster, group)
