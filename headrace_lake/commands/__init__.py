"""The command `headrace lake`."""
