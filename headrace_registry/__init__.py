"""A schema registry with Confluent's REST interface, whose state is the topic `_schemas`."""
