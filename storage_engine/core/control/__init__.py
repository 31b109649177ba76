"""The controller's state machine: what the cluster should be, derived from what it is."""
