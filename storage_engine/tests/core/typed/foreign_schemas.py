"""Schemas in the forms of other programs, with the columns or the refusal that they lead to."""

import json

import pytest

from storage_engine.core.errors import ConfigError
from storage_engine.core.typed.ddl import render_ddl
from storage_engine.core.typed.schema_text import parse_schema


def ddl(text):
    """The columns of a schema in any form, as exact DDL."""
    return render_ddl(parse_schema(text if isinstance(text, str) else json.dumps(text)), exact=True)


def refusal(text):
    """The error of one line that a schema is refused with."""
    with pytest.raises(ConfigError) as caught:
        parse_schema(text if isinstance(text, str) else json.dumps(text))
    assert "\n" not in str(caught.value)
    return str(caught.value)
