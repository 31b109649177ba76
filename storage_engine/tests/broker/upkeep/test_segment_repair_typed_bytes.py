"""Each byte of a typed segment, changed on the disk of the leader or of the follower: readers get
an error or the right rows, in every form, and another replica's bytes take its place (R-LOG8)."""

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from simulation.world.cluster import SimulatedCluster
from storage_engine.core.errors import ErrorCode, KafkaError
from storage_engine.protocol.apis.fetch import BY_NAME, FetchPartition, FetchRequest
from storage_engine.protocol.records.record_batch import crc_matches, iter_headers
from storage_engine.protocol.records.record_decoder import decode_batches
from storage_engine.protocol.typed.projection import WANT_STORED, TypedWant
from storage_engine.protocol.typed.typed_decoder import iter_typed_decoded, plan
from storage_engine.tests.broker.typed_topics.typed_support import (
    SCHEMA,
    TRIPS,
    columns,
)
from storage_engine.tests.broker.upkeep.test_scrubs import segments
from storage_engine.tests.broker.upkeep.test_scrubs_typed import BATCHES, typed_cluster
from storage_engine.tests.sampling import ALL_FAULTS, SEED

ROWS = 3
PARTS = 12 if ALL_FAULTS else 1
SAMPLED_ROUNDS = 4
"""A round changes a byte of each segment but the last; there is a segment a batch."""

NOT_IN_CRC = {*range(8), *range(12, 16)}
"""The bytes of a header that a leader writes, as in Kafka: base offset and leader epoch. Readers
can't tell that they were changed; the scrubber can."""

EXPECTED = [
    {"id": n, "fare": n / 2, "tag": str(n // ROWS), "_offset": n} for n in range(BATCHES * ROWS)
]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[SimulatedCluster]:
    folder = tmp_path_factory.mktemp("healed")
    yield from typed_cluster(folder, ROWS, segment_bytes="700", scrub_ms="2000", tag="{}")


def contents(cluster: SimulatedCluster, broker: int) -> bytes:
    try:
        return b"".join(path.read_bytes() for path in segments(cluster, broker, TRIPS))
    except FileNotFoundError:  # files come and go
        return b""


def fetched(cluster: SimulatedCluster, offset: int, want: TypedWant | None) -> Any:
    wanted = FetchPartition(TRIPS.topic, 0, offset, 1 << 20, want=want)
    leader = cluster.state(TRIPS).leader
    asked = cluster.ask(leader, BY_NAME, 12, FetchRequest(0, 1, 1 << 20, [wanted]))
    (answer,) = cluster.answer(asked).partitions
    return answer


def check_readers(cluster: SimulatedCluster, offset: int) -> None:
    """The leader sends the right rows from this offset on, or an error, in each form."""
    for want, framed in ((TypedWant(WANT_STORED), False), (columns(1, 2, 3), True)):
        answer = fetched(cluster, offset, want)
        if answer.error_code:
            assert answer.error_code == ErrorCode.CORRUPT_MESSAGE
            continue
        reading = plan(SCHEMA, None, ["_offset"])
        found: list[Any] = []
        try:
            for piece in iter_typed_decoded(
                answer.records, reading, start_offset=offset, framed=framed, topic_schema=SCHEMA
            ):
                found += piece.batch.to_pylist()
        except KafkaError:
            pass
        assert found == EXPECTED[offset : offset + len(found)]
    answer = fetched(cluster, offset, None)
    if answer.error_code:
        assert answer.error_code == ErrorCode.CORRUPT_MESSAGE
        return
    records = memoryview(bytes(answer.records or b""))
    assert all(
        crc_matches(records, at, header.size_in_bytes) for at, header in iter_headers(records)
    )
    decoded = decode_batches(records)
    rows = [
        {**json.loads(value), "_offset": at}
        for at, value in zip(decoded.offsets.to_pylist(), decoded.values.to_pylist(), strict=True)
    ]
    first = rows[0]["_offset"] if rows else 0
    assert rows == EXPECTED[first : first + len(rows)]


def rounds(cluster: SimulatedCluster, part: int) -> list[list[tuple[Path, int, int]]]:
    """Rounds of changes: of which segment, the first offset of the batch, and where in the file."""
    leader = cluster.state(TRIPS).leader
    of_segments = []
    for path in segments(cluster, leader, TRIPS)[:-1]:
        data = path.read_bytes()
        of_segments.append(
            [
                (path.name, header.base_offset, at + n)
                for at, header in iter_headers(data)
                for n in range(header.size_in_bytes)
            ]
        )
    count = max(map(len, of_segments))
    chosen = [*range(part, count, PARTS)]
    if not ALL_FAULTS:
        chosen = random.Random(SEED).sample(chosen, SAMPLED_ROUNDS)
    return [[places[n % len(places)] for places in of_segments] for n in chosen]


def header_part(path: Path, position: int) -> bool:
    """Whether this byte of a segment is one that no CRC covers."""
    for at, header in iter_headers(path.read_bytes()):
        if at <= position < at + header.size_in_bytes:
            return position - at in NOT_IN_CRC
    raise AssertionError(position)


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("is_of_leader", [True, False])
def test_a_changed_byte_gives_no_wrong_row_and_is_repaired(cluster, is_of_leader, part):
    leader = cluster.state(TRIPS).leader
    broker = leader if is_of_leader else 3 - leader
    good = contents(cluster, leader)
    assert contents(cluster, 3 - leader) == good
    for changes in rounds(cluster, part):
        told = []
        for name, offset, position in changes:
            path = Path(cluster[broker].logs.logs[TRIPS].directory) / name
            if not header_part(path, position):
                told.append(offset)
            with path.open("r+b") as file:
                file.seek(position)
                byte = file.read(1)[0]
                file.seek(position)
                file.write(bytes((byte ^ 1 << position % 8,)))
        assert contents(cluster, broker) != good
        for offset in told:
            check_readers(cluster, offset)
        cluster.loop.run_until(lambda: contents(cluster, broker) == good, limit_ms=120_000)
        cluster.loop.run_for(200)
        assert cluster.state(TRIPS).leader == leader
        for offset in told:
            check_all_is_there(cluster, offset)


def check_all_is_there(cluster: SimulatedCluster, offset: int) -> None:
    answer = fetched(cluster, offset, columns(1, 2, 3))
    assert answer.error_code == 0
    reading = plan(SCHEMA, None, ["_offset"])
    pieces = iter_typed_decoded(
        answer.records, reading, start_offset=offset, framed=True, topic_schema=SCHEMA
    )
    found = [each for piece in pieces for each in piece.batch.to_pylist()]
    assert len(found) >= ROWS and found == EXPECTED[offset : offset + len(found)]
