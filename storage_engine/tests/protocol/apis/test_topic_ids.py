"""Topic ids as text, as bytes, and as UUIDs."""

from uuid import UUID

import pytest

from storage_engine.protocol.apis.topic_ids import id_bytes, id_of_text, id_text

ID = UUID("6d0b3b1c-27a5-4a6f-9b6e-0a3d4f5e6a7b")


def test_the_three_forms_of_an_id_stand_for_one_another() -> None:
    text = id_text(ID.bytes)
    assert len(text) == 22
    assert (id_bytes(text), id_of_text(text)) == (ID.bytes, ID)


@pytest.mark.parametrize("text", ["", "flights", "A" * 21, "A" * 23, "=" * 22, "é" * 22])
def test_a_text_that_is_no_id_is_refused_each_time(text: str) -> None:
    """The functions remember results, and errors are none."""
    for form in (id_of_text, id_bytes) * 2:
        with pytest.raises(ValueError):
            form(text)
