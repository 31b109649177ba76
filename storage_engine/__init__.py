"""Headrace's storage engine: a replicated commit log that speaks the Kafka protocol."""

__version__ = "0.1.0"
