"""Arrays in the encodings of other libraries have the same values without them."""

import pyarrow as pa
import pytest

from storage_engine.client.producer.tables.plain_arrays import plain, plain_type

TEXT = pa.array(["a", None, "longer than what a view holds itself"])
ENDS = pa.array([2, 3, 6], pa.int32())


@pytest.mark.parametrize(
    "array",
    [
        TEXT.cast(pa.string_view()),
        pa.array([b"a", None, b"x" * 40], pa.binary_view()),
        TEXT.dictionary_encode(),
        pa.RunEndEncodedArray.from_arrays(ENDS, TEXT),
        pa.RunEndEncodedArray.from_arrays(ENDS, TEXT.dictionary_encode()),
        pa.DictionaryArray.from_arrays(pa.array([2, None, 0]), TEXT.cast(pa.string_view())),
        pa.array(["{}", None], pa.json_(pa.string())),
        pa.array([1, None]),
    ],
    ids=lambda each: str(each.type),
)
def test_the_values_are_the_same_also_of_a_slice(array):
    for start in range(len(array) + 1):
        part = array.slice(start)
        made = plain(part)
        made.validate(full=True)
        assert made.to_pylist() == part.to_pylist()
        assert made.type in (pa.string(), pa.binary(), pa.int64())


@pytest.mark.parametrize(
    "kind",
    [
        pa.string_view(),
        pa.dictionary(pa.int8(), pa.string()),
        pa.dictionary(pa.int8(), pa.string_view()),
        pa.run_end_encoded(pa.int32(), pa.dictionary(pa.int8(), pa.string())),
        pa.json_(pa.string()),
    ],
    ids=str,
)
def test_the_type_is_known_without_an_array(kind):
    assert plain_type(kind) == pa.string()
