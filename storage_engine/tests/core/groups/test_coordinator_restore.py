"""A new coordinator reads its groups in pieces, whatever they are like: clients choose that."""

import pytest

from storage_engine.core.coordinator_log import PIECE, Moment
from storage_engine.core.groups.coordinator import GroupCoordinator
from storage_engine.core.groups.records import (
    NO_EXPIRY,
    GroupContent,
    GroupMemberRecord,
    GroupRecord,
    OffsetKey,
    OffsetRecord,
    PlacedOffset,
)
from storage_engine.core.ids import TopicPartition

AT = Moment(0, 0)


def group(members: int) -> GroupRecord:
    return GroupRecord(
        protocol_type="consumer",
        generation=1,
        protocol="range",
        leader="m0",
        state_ms=0,
        members=tuple(
            GroupMemberRecord(f"m{number}", None, "c", "/h", 1000, 10_000, b"", b"")
            for number in range(members)
        ),
    )


@pytest.mark.parametrize(("groups", "members"), [(20, 200), (5 * PIECE, 1), (3 * PIECE, 0)])
def test_each_step_restores_some_members_however_many_groups_have_them(groups, members):
    content = GroupContent()
    content.groups.update({f"g{number}": group(members) for number in range(groups)})
    coordinator = GroupCoordinator()
    known, most, steps = 0, 0, 0
    for _ in coordinator.restore(content, AT):
        steps += 1
        found = sum(1 + each.size for each in coordinator.groups.values())
        known, most = found, max(most, found - known)
    assert known == groups * (1 + members)
    assert most <= PIECE
    # Others have their turn between two steps, which may take as long.
    assert steps <= 2 + 2 * groups * (1 + members) // PIECE


def test_offsets_of_open_transactions_are_restored_in_pieces():
    content = GroupContent()
    placed = PlacedOffset(0, OffsetRecord(offset=1, commit_ms=0, expire_ms=NO_EXPIRY))
    content.pending[7] = {
        OffsetKey("g", TopicPartition("t", number)): placed for number in range(3 * PIECE)
    }
    coordinator = GroupCoordinator()
    known, most = 0, 0
    for _ in coordinator.restore(content, AT):
        found = len(coordinator.groups["g"].offsets.unstable()) if coordinator.groups else 0
        known, most = found, max(most, found - known)
    assert (known, most) == (3 * PIECE, PIECE)
