"""The state of a schema registry, made of the records of the topic `_schemas`."""
