"""Sinks, their numbers and the names of batch writes: models and the coordinator's core."""
