"""Measures how fast rows become record batches and back, against a plain copy of the same bytes.

Values of random bytes are encoded to batches and decoded again: all of one size without keys, and
of sizes from half to one and a half times that with keys. In the same run:

  copy          memcpy of the encoded batches: the ceiling, as nothing less can be done with them
  kafka-python  the same records, fewer of them, through its record builder and parser, if installed

With --avro instead: Avro records to columns, beside a copy of them and of the columns, and beside
fastavro, which makes a dict of Python of each. Needs the package's extra `dev`. With --typed:
records of JSON and of Avro to the columns of typed topics and back, in batches of 1,000 and of 10.

Rates are per core: records divided by processor time, the median of several rounds. MB/s count the
bytes of keys and values, 10^6 to the MB.

examples:
  headrace bench codec
  headrace bench codec --compression lz4 --json
  headrace bench codec --avro
  headrace bench codec --typed
"""

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.arguments import add_numbers
from storage_engine.protocol.records.record_batch import Codec
from storage_engine.tools.arguments import add_json
from storage_engine.tools.table import print_results

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

LEAST_ENCODED_PER_S = 5_000_000
LEAST_DECODED_PER_S = 3_000_000
"""The project's own goals, for values of 100 bytes in batches of 1 MiB, uncompressed."""

_SEED = 20130101
_KEY_BYTES = 8
_FOREIGN_RECORDS = 10_000
"""The records that kafka-python gets, which needs some two seconds for a million."""

COLUMNS = ("records", "step", "by", "records/s", "MB/s", "of copy", "of kafka-python", "goal/s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The rate of one step."""

    records: str
    step: str
    by: str
    records_per_s: int
    megabytes_per_s: int
    ratio_to_copy: float | None
    ratio_to_kafka_python: float | None
    goal_per_s: int | None


_Step = Callable[[], list[bytes] | None]
"""Does its work once; its result is ignored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rates:
    """Records a second of each step; None where kafka-python is not installed."""

    copy: float
    encode: float
    decode: float
    foreign_encode: float | None
    foreign_decode: float | None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `headrace bench codec`."""
    add_numbers(
        parser,
        ("--records", 500_000, "records of each kind"),
        ("--value-bytes", 100, "size of a value"),
        ("--batch-bytes", 1 << 20, "size of a batch"),
        ("--rounds", 5, "rounds of each step"),
    )
    parser.add_argument(
        "--compression",
        default="none",
        choices=[codec.name.lower() for codec in Codec],
        help="compression of the batches (default none)",
    )
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument("--avro", action="store_true", help="records of Avro, and nothing else")
    kinds.add_argument(
        "--typed", action="store_true", help="records of typed topics, and nothing else"
    )
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Run `headrace bench codec`."""
    if args.avro:
        from benchmarks.typed import avro_records

        rates = avro_records.measure(args.records, args.rounds)
        print_results(avro_records.COLUMNS, rates, as_json=args.json)
        return 0
    if args.typed:
        from benchmarks.typed import foreign_records

        costs = foreign_records.measure(args.records, args.rounds)
        print_results(foreign_records.COLUMNS, costs, as_json=args.json)
        return 0
    import numpy as np

    random = np.random.default_rng(_SEED)
    size = args.value_bytes
    same = np.full(args.records, size, np.int32)
    mixed = random.integers(size - size // 2, size + size // 2 + 1, args.records, np.int32)
    results = [
        *_measure(f"{size} B", _binary(random, same), None, args),
        *_measure(
            f"{int(mixed.min())}-{int(mixed.max())} B, keys",
            _binary(random, mixed),
            _binary(random, np.full(args.records, _KEY_BYTES, np.int32)),
            args,
        ),
    ]
    print_results(COLUMNS, results, as_json=args.json)
    return 0


def _binary(random: "np.random.Generator", sizes: "npt.NDArray[np.int32]") -> "pa.BinaryArray":
    """Return values of random bytes, of these sizes."""
    import numpy as np
    import pyarrow as pa

    offsets = np.zeros(len(sizes) + 1, np.int32)
    np.cumsum(sizes, out=offsets[1:])
    data = random.bytes(int(offsets[-1]))
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(sizes), buffers)


def _measure(
    records: str, values: "pa.BinaryArray", keys: "pa.BinaryArray | None", args: argparse.Namespace
) -> list[Result]:
    rates = _rates(values, keys, args)
    row_bytes = (_payload_bytes(values) + _payload_bytes(keys)) / len(values)
    steps = [
        ("copy", "memcpy", rates.copy, None, None),
        ("encode", "headrace", rates.encode, rates.foreign_encode, LEAST_ENCODED_PER_S),
        ("encode", "kafka-python", rates.foreign_encode, None, None),
        ("decode", "headrace", rates.decode, rates.foreign_decode, LEAST_DECODED_PER_S),
        ("decode", "kafka-python", rates.foreign_decode, None, None),
    ]
    return [
        Result(
            records=records,
            step=step,
            by=by,
            records_per_s=round(rate),
            megabytes_per_s=round(rate * row_bytes / 1e6),
            ratio_to_copy=None if step == "copy" else round(rate / rates.copy, 4),
            ratio_to_kafka_python=None if foreign is None else round(rate / foreign, 1),
            goal_per_s=goal if _has_goal(args) else None,
        )
        for step, by, rate, foreign, goal in steps
        if rate is not None
    ]


def _has_goal(args: argparse.Namespace) -> bool:
    return (args.value_bytes, args.batch_bytes, args.compression) == (100, 1 << 20, "none")


def _payload_bytes(column: "pa.BinaryArray | None") -> int:
    return 0 if column is None else int(column.buffers()[2].size)


def _rates(
    values: "pa.BinaryArray", keys: "pa.BinaryArray | None", args: argparse.Namespace
) -> _Rates:
    import numpy as np

    from storage_engine.protocol.records.record_decoder import decode_batches, iter_decoded
    from storage_engine.protocol.records.record_encoder import encode_batches

    options = {"compression": args.compression, "batch_bytes": args.batch_bytes}
    batches = [batch.data for batch in encode_batches(values, keys, **options)]
    if not decode_batches(batches).values.equals(values):
        raise AssertionError("the codec does not read what it writes")
    sources = [np.frombuffer(batch, np.uint8) for batch in batches]
    targets = [np.empty_like(source) for source in sources]

    def copy() -> None:
        for target, source in zip(targets, sources, strict=True):
            np.copyto(target, source)

    def encode() -> None:
        encode_batches(values, keys, **options)

    def decode() -> None:
        for _ in iter_decoded(batches):
            pass

    foreign = _foreign_steps(values, keys, args)
    foreign_rows = min(_FOREIGN_RECORDS, len(values))
    steps: list[tuple[int, _Step]] = [
        (len(values), copy),
        (len(values), encode),
        (len(values), decode),
        *((foreign_rows, step) for step in foreign),
    ]
    copied, encoded, decoded, *others = _rate_each(steps, args.rounds)
    return _Rates(
        copy=copied,
        encode=encoded,
        decode=decoded,
        foreign_encode=others[0] if others else None,
        foreign_decode=others[1] if others else None,
    )


def _rate_each(steps: list[tuple[int, _Step]], rounds: int) -> list[float]:
    """Return the records a second of each step: the median of `rounds` turns, after a warm-up."""
    times: list[list[float]] = [[] for _ in steps]
    for turn in range(rounds + 1):
        for (_, step), taken in zip(steps, times, strict=True):
            started = time.process_time()
            step()
            if turn:
                taken.append(time.process_time() - started)
    return [
        count / max(statistics.median(taken), 1e-9)
        for (count, _), taken in zip(steps, times, strict=True)
    ]


def _foreign_steps(
    values: "pa.BinaryArray", keys: "pa.BinaryArray | None", args: argparse.Namespace
) -> list[_Step]:
    """Return kafka-python's encode and decode of the first records; empty if not installed."""
    try:
        from kafka.record.memory_records import MemoryRecords, MemoryRecordsBuilder
    except ImportError:
        return []
    codec = Codec[args.compression.upper()]
    value_list = values[:_FOREIGN_RECORDS].to_pylist()
    key_list = [None] * len(value_list) if keys is None else keys[: len(value_list)].to_pylist()

    def encode() -> list[bytes]:
        batches = []
        builder = MemoryRecordsBuilder(2, int(codec), args.batch_bytes)
        for key, value in zip(key_list, value_list, strict=True):
            if builder.append(0, key, value) is None:
                builder.close()
                batches.append(bytes(builder.buffer()))
                builder = MemoryRecordsBuilder(2, int(codec), args.batch_bytes)
                builder.append(0, key, value)
        builder.close()
        batches.append(bytes(builder.buffer()))
        return batches

    encoded = encode()

    def decode() -> None:
        for data in encoded:
            records = MemoryRecords(data)
            while (batch := records.next_batch()) is not None:
                batch.validate_crc()
                for record in batch:
                    record.key, record.value  # noqa: B018  a consumer reads both

    return [encode, decode]
