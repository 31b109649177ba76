"""The states of a partition of a plan, in the words of `headrace reassign verify`."""

DONE, MOVING, FAILED = "completed", "in progress", "failed"
