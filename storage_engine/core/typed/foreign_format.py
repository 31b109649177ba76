"""How clients that know no columns write and read a typed topic: a setting of the topic."""

import enum

FORMAT_SETTING = "headrace.foreign.format"


class ForeignFormat(enum.StrEnum):
    """The values of the setting."""

    JSON = "json"
    """A record is an object of JSON."""
    AVRO = "avro"
    """A record is five bytes with the id of a schema, and a body of Avro."""
