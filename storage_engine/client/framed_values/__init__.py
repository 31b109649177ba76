"""Keys and values with Confluent's framing, read through a schema registry."""
