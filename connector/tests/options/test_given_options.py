"""Options as the user gave them: their values, units and names."""

import pytest

from connector.tests.options.parsed import assert_refused, source


def test_times_take_units():
    assert source(maxTriggerDelay="15m").max_trigger_delay_ms == 900_000
    assert source(maxTriggerDelay="250ms").max_trigger_delay_ms == 250


def test_names_of_columns_may_have_commas_and_stand_in_backquotes():
    assert source(columns="id, `a, b`,ID,`x``y`").chosen_columns == ("id", "a, b", "x`y")
    assert source().chosen_columns is None


def test_a_client_setting_without_effect_is_told_to_the_log():
    (note,) = source(kafka__session__timeout__ms="6000").notes
    assert note.startswith("the option 'session.timeout.ms' has no effect here")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"maxOffsetsPerTrigger": "many"}, "'maxOffsetsPerTrigger' must be a whole number"),
        ({"maxOffsetsPerTrigger": "0"}, "from 1"),
        ({"failOnDataLoss": "yes"}, "'failOnDataLoss' must be true or false, not 'yes'"),
        ({"maxTriggerDelay": "soon"}, "a time such as 15m"),
        ({"bootstrap.servers": "other:1"}, "with and without 'kafka.'"),
        ({"columns": " ,"}, "'columns' must be one name or more"),
        ({"columns": "id,`fare"}, "'columns' must be names separated by commas, such as id"),
    ],
)
def test_a_value_that_is_not_of_its_form_is_one_line(options, message):
    assert_refused(source, options, message)
