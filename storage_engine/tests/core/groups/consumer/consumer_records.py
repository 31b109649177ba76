"""Keys and records of consumer groups at random."""

from hypothesis import strategies as st

from storage_engine.core.groups.consumer.records import (
    ClassicMemberRecord,
    ConsumerGroupKey,
    ConsumerGroupRecord,
    ConsumerMemberKey,
    ConsumerMemberRecord,
    ConsumerRecord,
    ConsumerRecordKey,
    CurrentAssignmentKey,
    CurrentAssignmentRecord,
    MemberState,
    PartitionMetadataKey,
    PartitionMetadataRecord,
    PatternKey,
    PatternRecord,
    TargetKey,
    TargetMemberKey,
    TargetMemberRecord,
    TargetRecord,
)

names = st.text(max_size=20)
int32s = st.integers(-(2**31), 2**31 - 1)
int64s = st.integers(-(2**63), 2**63 - 1)
epochs = st.integers(0, 1 << 30)
member_epochs = st.integers(-2, 1 << 30)
topics = st.frozensets(names, max_size=4)
assignments = st.dictionaries(
    st.uuids(), st.frozensets(st.integers(0, 2**31 - 1), min_size=1, max_size=4), max_size=3
)
classic = st.builds(
    ClassicMemberRecord,
    session_timeout_ms=int32s,
    protocols=st.lists(st.tuples(names, st.binary(max_size=20)), max_size=3).map(tuple),
)

group_records = st.builds(ConsumerGroupRecord, epoch=epochs, metadata_hash=int64s)
target_records = st.builds(TargetRecord, epoch=epochs)
member_records = st.builds(
    ConsumerMemberRecord,
    instance_id=st.none() | names,
    rack_id=st.none() | names,
    client_id=names,
    client_host=names,
    topics=topics,
    pattern=st.none() | names,
    rebalance_timeout_ms=int32s,
    assignor=st.none() | names,
    classic=st.none() | classic,
)
target_member_records = st.builds(TargetMemberRecord, assignment=assignments)
current_records = st.builds(
    CurrentAssignmentRecord,
    member_epoch=member_epochs,
    previous_epoch=member_epochs,
    state=st.sampled_from(MemberState),
    assigned=assignments,
    pending_revocation=assignments,
)
pattern_records = st.builds(PatternRecord, topics=topics, version=int64s, resolved_ms=int64s)


def entries(
    ids: st.SearchStrategy[str],
) -> st.SearchStrategy[tuple[ConsumerRecordKey, ConsumerRecord]]:
    """`ids`: those of groups and members, and patterns."""
    return st.one_of(
        st.tuples(st.builds(ConsumerGroupKey, ids), group_records),
        st.tuples(st.builds(PartitionMetadataKey, ids), st.builds(PartitionMetadataRecord)),
        st.tuples(st.builds(ConsumerMemberKey, ids, ids), member_records),
        st.tuples(st.builds(TargetKey, ids), target_records),
        st.tuples(st.builds(TargetMemberKey, ids, ids), target_member_records),
        st.tuples(st.builds(CurrentAssignmentKey, ids, ids), current_records),
        st.tuples(st.builds(PatternKey, ids, ids), pattern_records),
    )
