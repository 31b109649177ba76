"""How far a partition of a plan is, in the words of `headrace reassign verify`."""

DONE, MOVING, FAILED = "completed", "in progress", "failed"
