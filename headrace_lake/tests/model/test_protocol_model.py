"""Every state of small worlds keeps the promises, and each rule is needed for that."""

from dataclasses import replace

import pytest

from headrace_lake.protocol.attempts import AttemptDecision
from headrace_lake.protocol.resuming import resume
from headrace_lake.tests.model.world import (
    NAME,
    BrokenError,
    Rules,
    State,
    World,
    Writer,
    check,
    table_rows,
    topic_of,
)
from storage_engine.core.ids import NO_EPOCH
from storage_engine.tests.core.transactions.sinks.exploring import explored

MOST = 400_000

WORLDS = {
    "lost answers and late commits": World(ready=2, batch=1, batches=3, errors=2),
    "a writer that stops anywhere": World(ready=2, batch=2, batches=3, crashes=1, errors=1),
    "elections": World(records=3, ready=1, elections=1, batch=1, batches=3),
    "elections while answers are lost": World(
        writers=1, records=3, ready=1, elections=2, errors=1, crashes=1, batches=2
    ),
    "a branch that comes back": World(
        writers=1, records=4, ready=2, elections=2, crashes=1, batches=2
    ),
    "a topic made anew": World(records=3, ready=1, recreations=1, batch=1, crashes=1),
    "a sweep": World(ready=2, sweeps=1, errors=1, batch=1, batches=2),
    "a sweep beside a compaction": World(
        writers=1, ready=2, sweeps=1, compactions=1, batch=1, errors=1, crashes=1
    ),
    "two compactions": World(writers=1, ready=3, compactions=2, batch=1, batches=3),
    "rows deleted by others": World(ready=3, deletes=1, compactions=1, batch=1),
    "retention": World(ready=3, retained=2, crashes=1, batch=1),
}


class NobodyIsFenced(Rules):
    def decide(self, batch, table):
        found = super().decide(batch, table)
        return AttemptDecision.COMMIT if found is AttemptDecision.FENCED else found


class TheLibraryRetries(Rules):
    retries_behind_others = True


class SweepsAreForgotten(Rules):
    def decide(self, batch, table):
        found = super().decide(batch, table)
        return AttemptDecision.COMMIT if found is AttemptDecision.WRITE_ANEW else found


class FilesCountFromTheCommit(Rules):
    def base_version(self, writer):
        return writer.version


class SweepsAreNoCommits(Rules):
    def marks_sweeps(self):
        return False


class EpochsAreNotAskedFor(Rules):
    def resume(self, progress, answer):
        return super().resume(progress, replace(answer, epoch_end=None))


class OnlyTheEndOfAnEpochCounts(Rules):
    def resume(self, progress, answer):
        end = answer.epoch_end
        if end is not None and end.epoch >= 0:
            end = end._replace(epoch=progress.leader_epoch)
        return super().resume(progress, replace(answer, epoch_end=end))


class FetchesHaveNoEpoch(Rules):
    def fetched_epoch(self, writer):
        return NO_EPOCH


class FirstFetchesHaveNoEpoch(Rules):
    def fetched_epoch(self, writer):
        return super().fetched_epoch(writer) if writer.rows else NO_EPOCH


class OnlyFirstFetchesHaveAnEpoch(Rules):
    def fetched_epoch(self, writer):
        return NO_EPOCH if writer.rows else super().fetched_epoch(writer)


class FetchesHaveNoTopicId(Rules):
    def fetched_id(self, log):
        return log.topic_id


class RowsComeFromAnotherLeader(Rules):
    """One that was asked says yes, and the rows are those of a branch that was lost."""

    def rows_at(self, log, offset):
        lost = [log.lost[offset]] if offset < len(log.lost) else []
        return super().rows_at(log, offset) + lost


class RefusalsAreIgnored(Rules):
    def refused(self, writer, end_offset):
        return writer


class EachRefusalStopsTheTable(Rules):
    def refused(self, writer, end_offset):
        return Writer("stopped", writer.version)


class RefusalsMoveThePosition(Rules):
    """As `on_truncated` of the fetcher would: what is held is kept."""

    def refused(self, writer, end_offset):
        return writer._replace(position=(end_offset, NO_EPOCH))


class RefusalsNeverStopTheTable(Rules):
    """What is held is dropped, and reading goes on where the logs part."""

    def refused(self, writer, end_offset):
        return writer._replace(rows=(), file=0, position=(end_offset, NO_EPOCH))


class GapsAreNotSeen(Rules):
    def resume(self, progress, answer):
        return resume(NAME, topic_of(0), progress, answer, accepts_gaps=True)


class OthersAreNotWatched(Rules):
    def check(self, change):
        pass


class AnyFilesAreReplaced(Rules):
    def may_replace(self, files, base, active, table):
        return super().may_replace(files, base, files, table)


class RewritesOutliveSweeps(Rules):
    def may_replace(self, files, base, active, table):
        return super().may_replace(files, base, active, replace(table, swept_version=-1))


MUTATIONS = {
    NobodyIsFenced: "lost answers and late commits",
    TheLibraryRetries: "lost answers and late commits",
    SweepsAreForgotten: "a sweep",
    FilesCountFromTheCommit: "a sweep",
    SweepsAreNoCommits: "a sweep",
    EpochsAreNotAskedFor: "elections while answers are lost",
    OnlyTheEndOfAnEpochCounts: "a branch that comes back",
    FetchesHaveNoEpoch: "elections",
    FirstFetchesHaveNoEpoch: "elections",
    OnlyFirstFetchesHaveAnEpoch: "elections while answers are lost",
    FetchesHaveNoTopicId: "a topic made anew",
    RowsComeFromAnotherLeader: "a branch that comes back",
    RefusalsAreIgnored: "elections",
    EachRefusalStopsTheTable: "a branch that comes back",
    RefusalsMoveThePosition: "elections",
    RefusalsNeverStopTheTable: "elections",
    GapsAreNotSeen: "retention",
    OthersAreNotWatched: "rows deleted by others",
    AnyFilesAreReplaced: "two compactions",
    RewritesOutliveSweeps: "a sweep beside a compaction",
}


class OwnCommitsAreNotKnown(Rules):
    def decide(self, batch, table):
        return super().decide(batch, replace(table, landed=frozenset()))


def reachable(world: World, rules: Rules) -> set[State]:
    return explored(world.start(), lambda state: world.successors(state, rules), check, most=MOST)


@pytest.mark.parametrize("world", WORLDS.values(), ids=WORLDS)
def test_the_table_is_a_prefix_of_one_log_and_each_row_stands_once(world):
    states = reachable(world, Rules())
    print(len(states), "states")
    assert max(len(table_rows(each.commits)) for each in states) >= 2


@pytest.mark.parametrize(("rules", "world"), MUTATIONS.items(), ids=lambda each: str(each))
def test_each_rule_is_needed(rules, world):
    with pytest.raises(BrokenError):
        reachable(WORLDS[world], rules())


def test_writers_stop_only_for_a_reason():
    for world in (WORLDS["lost answers and late commits"], WORLDS["a sweep beside a compaction"]):
        states = reachable(world, Rules())
        assert not any(writer.phase == "stopped" for each in states for writer in each.writers)


ALONE = World(writers=1, ready=2, batch=1, errors=2)


def test_a_lost_answer_is_not_taken_for_another_writer():
    assert not any(each.was_fenced for each in reachable(ALONE, Rules()))
    assert any(each.was_fenced for each in reachable(ALONE, OwnCommitsAreNotKnown()))
