"""Patterns are resolved by the driver, with the rights of a member that has them."""

from storage_engine.core.errors import ErrorCode
from storage_engine.core.groups.consumer import patterns
from storage_engine.core.groups.consumer.events import PatternResolved, PatternsStale
from storage_engine.tests.core.groups.consumer.consumer_bench import (
    CLIENT,
    INTERVAL_MS,
    Client,
    ConsumerBench,
    numbers,
    shapes,
)
from storage_engine.tests.core.groups.group_bench import G


def with_pattern(bench: ConsumerBench, name: str = "a", pattern: str = "t.*") -> Client:
    client = Client(bench, name, topics=frozenset(), pattern=pattern)
    client.turn()
    return client


def test_a_member_with_a_pattern_gets_the_topics_that_match_when_they_are_known():
    bench = ConsumerBench()
    client = with_pattern(bench)
    (asked,) = bench.asked
    assert (asked.group_id, asked.pattern, asked.client) == (G, "t.*", CLIENT)
    assert client.owned == {}
    bench.resolve("t", "not-there")
    bench.settle([client])
    assert numbers(client.owned) == [0, 1, 2, 3]
    assert bench.consumer_group().subscribed() == {"t", "not-there"}


def test_members_with_the_same_pattern_ask_once():
    bench = ConsumerBench()
    with_pattern(bench)
    with_pattern(bench, "b")
    assert len(bench.asked) == 1


def test_a_pattern_survives_a_failover_and_is_asked_for_again():
    bench = ConsumerBench()
    client = with_pattern(bench)
    bench.resolve("t")
    bench.settle([client])
    bench.fail_over()
    assert bench.beat("a", client.epoch).error is ErrorCode.NONE
    assert [each.pattern for each in bench.asked] == ["t.*"]
    bench.resolve("t")
    assert bench.state() == "Stable"


def test_a_pattern_is_asked_for_again_after_topics_or_rights_have_changed():
    bench = ConsumerBench()
    client = with_pattern(bench)
    bench.resolve("t")
    for change in (
        lambda: bench.tell_topics(shapes(t=4, t2=1)),
        lambda: bench.step(PatternsStale()),
    ):
        bench.settle([client])
        bench.advance(patterns.PAUSE_MS)
        client.turn()
        assert not bench.asked
        change()
        client.turn()
        assert len(bench.asked) == 1
        bench.resolve("t", "t2")
    bench.settle([client])
    assert numbers(client.owned, "t2") == [0]


def test_many_changes_of_topics_are_one_question():
    bench = ConsumerBench()
    client = with_pattern(bench)
    bench.resolve("t")
    for count in range(5, 9):
        bench.tell_topics(shapes(t=count))
        client.turn()
    assert not bench.asked, "it was asked for a moment ago"


def test_a_pattern_is_asked_for_every_ten_minutes():
    bench = ConsumerBench()
    client = with_pattern(bench)
    bench.resolve("t")
    bench.settle([client])
    for _ in range(patterns.AGE_MAX_MS // INTERVAL_MS):
        assert not bench.asked
        bench.advance(INTERVAL_MS)
        client.turn()
    assert len(bench.asked) == 1


def test_the_same_topics_again_move_nobody():
    bench = ConsumerBench()
    client = with_pattern(bench)
    bench.resolve("t")
    bench.settle([client])
    before = len(bench.log)
    bench.step(PatternsStale())
    bench.advance(patterns.PAUSE_MS)
    client.turn()
    bench.resolve("t")
    assert len(bench.log) == before


def test_a_pattern_that_could_not_be_resolved_is_asked_for_again():
    bench = ConsumerBench()
    client = with_pattern(bench)
    bench.asked.clear()
    bench.step(PatternResolved(group_id=G, pattern="t.*", topics=None, at=bench.at))
    client.turn()
    assert not bench.asked
    bench.advance(patterns.PAUSE_MS)
    client.turn()
    assert len(bench.asked) == 1


def test_a_pattern_ends_with_the_last_member_that_has_it():
    bench = ConsumerBench()
    first, second = with_pattern(bench), with_pattern(bench, "b")
    bench.resolve("t")
    bench.settle([first, second])
    first.leave()
    assert [*bench.consumer_group().content.patterns] == ["t.*"]
    assert bench.beat("b", second.epoch, pattern="", topics=frozenset({"t"})).error is (
        ErrorCode.NONE
    )
    group = bench.consumer_group()
    assert not group.content.patterns and not group.asked
    bench.fail_over()
    assert not bench.consumer_group().content.patterns


def test_an_answer_for_a_pattern_that_nobody_has_any_more_is_dropped():
    bench = ConsumerBench()
    client = with_pattern(bench)
    client.leave()
    bench.resolve("t")
    assert not bench.consumer_group().content.patterns


def test_a_group_has_a_bounded_number_of_patterns():
    bench = ConsumerBench()
    for number in range(patterns.PATTERNS_MAX):
        bench.enter_group(f"m{number}", pattern=f"p{number}")
    code = bench.code(bench.enter_group("one-more", pattern="p"))
    assert code is ErrorCode.INVALID_REQUEST
    assert bench.enter_group("another", pattern="p0").error is ErrorCode.NONE


def test_a_pattern_that_matches_very_much_counts_as_far_as_it_may():
    bench = ConsumerBench()
    with_pattern(bench)
    bench.resolve(*(f"t{number:05}" for number in range(patterns.PATTERN_TOPICS_MAX + 1)))
    topics = bench.consumer_group().content.patterns["t.*"].topics
    assert len(topics) == patterns.PATTERN_TOPICS_MAX
    assert f"t{patterns.PATTERN_TOPICS_MAX:05}" not in topics
