"""Sends dead letters back to the topics they came from: `headrace replay-dead-letters`."""
