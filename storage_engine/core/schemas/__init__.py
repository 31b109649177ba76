"""The schema languages of a registry: Avro, JSON Schema, Protobuf; and the registry's state."""
