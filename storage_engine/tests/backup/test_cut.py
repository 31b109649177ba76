"""The cut of a backup: a transaction is in all of its partitions or in none, whatever happens
between any two reads; and each rule is needed for it."""

import time
from uuid import UUID

import pytest

from storage_engine.backup import cut, decisions, moment_reader
from storage_engine.backup.cut import NEVER, BackupMoment, Round, TailChoice, first_beyond
from storage_engine.backup.errors import BackupError
from storage_engine.backup.moment_reader import STATE_TOPIC, MomentReader
from storage_engine.core.ids import TopicPartition
from storage_engine.core.transactions.transaction_state import LedgerRecord
from storage_engine.tests.backup.transaction_world import COORDINATORS, DATA, World, header
from storage_engine.tests.sampling import ALL_FAULTS

SEEDS = range(4_000 if ALL_FAULTS else 200)


def find_moment(world: World, patch: pytest.MonkeyPatch, wait_s: float = 1e9) -> BackupMoment:
    """The real reading, in a world that goes on between any two partitions."""

    def ends_of(_cluster, partitions):
        ends = {}
        for tp in partitions:
            world.advance()
            is_state = tp.topic == STATE_TOPIC
            log = world.state[tp.partition] if is_state else world.logs[tp]
            ends[tp] = len(log)
        return ends

    def read_batches(_cluster, ranges, _ids, **_):
        for tp, (start, end) in ranges.items():
            world.advance()
            for offset in range(start, end):
                yield tp, memoryview(world.state[tp.partition][offset])

    patch.setattr(moment_reader, "starts_of", lambda _, tps: dict.fromkeys(tps, 0))
    patch.setattr(moment_reader, "ends_of", ends_of)
    patch.setattr(moment_reader, "read_batches", read_batches)
    patch.setattr(time, "sleep", lambda _: world.pause())
    reader = MomentReader(None, UUID(int=1), range(COORDINATORS))
    return reader.find(DATA, wait_s=wait_s)


def halved(world: World, patch: pytest.MonkeyPatch) -> list[str]:
    """The transactions that a restored cluster would have in some of their partitions only, and
    those that were decided before the backup and are missing."""
    decided_before = committed_in(world, {tp: len(world.logs[tp]) for tp in DATA})
    body_ends = {tp: len(world.logs[tp]) for tp in DATA}
    moment = find_moment(world, patch)
    restored: dict[TopicPartition, set[tuple[int, int]]] = {}
    for tp in DATA:
        choice = TailChoice(tp, moment, keeps_plain=True)
        tail = range(body_ends[tp], moment.tail_ends[tp])
        headers = {
            offset: header(offset, each.producer_id, marker=each.marker)
            for offset in tail
            for each in [world.logs[tp][offset]]
        }
        for each in headers.values():
            choice.note(each)
        kept = [offset for offset in tail if choice.keeps(headers[offset])]
        restored[tp] = committed_at(world, tp, [*range(body_ends[tp]), *kept])
    return faults(world, restored, decided_before)


def committed_at(world: World, tp: TopicPartition, offsets) -> set[tuple[int, int]]:
    """The transactions whose records a reader of these offsets sees."""
    log = world.logs[tp]
    records = {(log[at].producer_id, log[at].transaction) for at in offsets if not log[at].marker}
    ends = {
        (log[at].producer_id, log[at].transaction)
        for at in offsets
        if log[at].marker and log[at].commits
    }
    return records & ends


def committed_in(world: World, ends) -> set[tuple[int, int]]:
    return set().union(*(committed_at(world, tp, range(ends[tp])) for tp in DATA))


def faults(world: World, restored, decided_before) -> list[str]:
    """What is wrong with the restored logs."""
    everywhere = {
        tp: {(each.producer_id, each.transaction) for each in world.logs[tp] if not each.marker}
        for tp in DATA
    }
    seen = set().union(*restored.values())
    found = []
    for transaction in seen | decided_before:
        wanted = {tp for tp in DATA if transaction in everywhere[tp]}
        there = {tp for tp in DATA if transaction in restored[tp]}
        if there != wanted:
            found.append(f"{transaction} is in {sorted(there)} of {sorted(wanted)}")
    return found


def test_a_transaction_is_in_all_of_its_partitions_or_in_none(monkeypatch):
    for seed in SEEDS:
        assert not halved(World(seed), monkeypatch), f"seed {seed}"


def never_too_late(self, tp, producer_id, markers):
    return markers[-1] if markers else NEVER


def all_in_doubt_are_dropped(self, tp, producer_id, markers):
    return NEVER


def first_round(self, producer_id, tp):
    return self.rounds[0]


def quiet_but_ending(self, producer_id, tp):
    """As the rule, without looking at what was ending."""
    coordinator = self.coordinator(producer_id)
    for each in self.rounds:
        if coordinator not in each.state_ends or tp not in each.ends:
            continue
        since = self.decisions.since(producer_id, each.state_ends)
        if not any(one.at[1] < each.next_state_ends.get(one.at[0], 0) for one in since):
            return each
    return None


MUTATIONS = {
    "all markers count": (cut.BackupMoment, "last_marker", never_too_late),
    "no marker of a tail counts": (cut.BackupMoment, "last_marker", all_in_doubt_are_dropped),
    "the first round is believed": (cut.BackupMoment, "_clear_round", first_round),
    "what was ending is not looked at": (cut.BackupMoment, "_clear_round", quiet_but_ending),
    "markers are not waited for": (moment_reader, "is_over", lambda before, now: True),
    "ledgers decide nothing": (
        decisions,
        "_begun",
        lambda before, now, begun=decisions._begun: (
            [] if isinstance(now, LedgerRecord) else begun(before, now)
        ),
    ),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_each_rule_of_the_cut_is_needed(name, monkeypatch):
    owner, attribute, mutated = MUTATIONS[name]
    monkeypatch.setattr(owner, attribute, mutated)
    assert any(halved(World(seed), monkeypatch) for seed in range(1_000))


def test_markers_that_never_come_end_the_search_with_the_producer(monkeypatch):
    world = World(1)
    while world.actors[0].step != "mark":
        world.step()
    world.is_quiet = True
    monkeypatch.setattr(world, "pause", lambda: None)
    with pytest.raises(BackupError, match=r"'id-0'.*bring the leaders"):
        find_moment(world, monkeypatch, wait_s=0.0)


def test_a_position_behind_what_was_left_out_is_found():
    tp, other = DATA[:2]
    assert first_beyond([(tp, 7), (other, 99)], {tp: 7}) is None
    assert first_beyond([(tp, 8)], {tp: 7}) == tp


def test_records_outside_transactions_belong_to_the_moment_but_for_those_of_groups():
    plain = header(5, 1, marker=False)._replace(attributes=0)
    moment = BackupMoment(
        {},
        decisions.Decisions(),
        [Round(state_ends={}, ending=frozenset(), ends={}, next_state_ends={})],
    )
    assert TailChoice(DATA[0], moment, keeps_plain=True).keeps(plain)
    assert not TailChoice(DATA[0], moment, keeps_plain=False).keeps(plain)
